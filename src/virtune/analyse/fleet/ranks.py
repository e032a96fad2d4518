# SPDX-License-Identifier: Apache-2.0
"""Ranks of hosts with intervals, by simulation from the estimates."""

from collections.abc import Sequence

import numpy as np

from virtune.analyse.fleet.pooled import arrays
from virtune.model.fleet import HostEstimate, HostRank

DRAWS = 10_000
"""So many draws put the ends of a 95 % interval of ranks within one rank in forty."""


def ranks(
    estimates: Sequence[HostEstimate], *, seed: int, confidence: float = 0.95, draws: int = DRAWS
) -> tuple[HostRank, ...]:
    """Return the hosts from the highest value to the lowest, each with its mean rank and an interval of ranks.

    Every draw takes each host's value with its noise anew (Student's t of its degrees of freedom) and ranks them;
    the interval holds that share of the draws (Goldstein and Spiegelhalter 1996; Marshall and Spiegelhalter 1998).
    Two hosts are tied where each was above the other in more draws than an end of the interval leaves out.
    """
    values, variances = arrays(estimates)
    chance = np.random.default_rng(seed)
    noise = chance.standard_t([one.df for one in estimates], size=(draws, len(values)))
    drawn = values + noise * np.sqrt(variances)
    places = (-drawn).argsort(axis=1).argsort(axis=1) + 1
    tail = (1 - confidence) / 2
    low, high = np.quantile(places, [tail, 1 - tail], axis=0, method="nearest")
    above = np.array([(drawn[:, [index]] > drawn).mean(axis=0) for index in range(len(values))])
    tied = np.minimum(above, above.T) > tail
    found = [
        HostRank(
            host=one.host,
            rank=float(places[:, index].mean()),
            low=int(low[index]),
            high=int(high[index]),
            tied=tuple(
                other.host for column, other in enumerate(estimates) if column != index and tied[index, column]
            ),
        )
        for index, one in enumerate(estimates)
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.host)))
