# SPDX-License-Identifier: Apache-2.0
"""Where the level of a series changed: the best split, against the same values in random order; then each side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from virtune.analyse.stats.noise import between_groups

SIDE_MIN = 3
"""The fewest values of a level: one value that is far off is no level."""

ORDERS_MIN = 4_999
"""So many random orders give p to 1 in 5,000; a smaller error needs more of them, or nothing could be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStep:
    """A later level begins at the value number `index`; `p` is how often values in random order split as well."""

    index: int
    p: float


def steps(values: Sequence[float], *, error: float, seed: int) -> tuple[LevelStep, ...]:
    """Return where the level changed, in order, with a chance of at most `error` to name a step where there is none.

    The split with the largest sum of squares between its two sides is the one of the CUSUM (Page 1955, afterwards as
    Hinkley 1970); whether it is one is asked by random orders (Taylor 2000), which assume no law of the values, only
    that they are exchangeable; then each side is asked in the same way.
    """
    chance, found, parts = np.random.default_rng(seed), list[LevelStep](), [(0, len(values))]
    count = max(ORDERS_MIN, math.ceil(5 / error))
    while parts:
        begin, end = parts.pop()
        if end - begin < 2 * SIDE_MIN:
            continue
        rest = np.array(values[begin:end], dtype=np.float64)
        rest -= rest.mean()
        inner = slice(SIDE_MIN - 1, len(rest) - SIDE_MIN)  # with enough values on both sides
        between = between_groups(rest)[inner]
        index = int(between.argmax()) + SIDE_MIN
        orders = chance.permuted(np.tile(rest, (count, 1)), axis=1)
        # a sum in another order may differ in its last digit
        as_well = int(np.count_nonzero(between_groups(orders)[:, inner].max(axis=1) >= between.max() * (1 - 1e-9)))
        if (p := (1 + as_well) / (1 + count)) <= error:
            found.append(LevelStep(index=begin + index, p=p))
            parts += [(begin, begin + index), (begin + index, end)]
    return tuple(sorted(found, key=lambda one: one.index))
