# SPDX-License-Identifier: Apache-2.0
"""Ranks of hosts with intervals, by simulation from the estimates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.fleet.pooled import arrays
from virtune.model.fleet import HostEstimate, HostRank

Places = NDArray[np.int32]

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
    places = _places(drawn)
    tail = (1 - confidence) / 2
    low, high = np.quantile(places, [tail, 1 - tail], axis=1, method="nearest")
    above = _above(places) / draws
    tied = np.minimum(above, above.T) > tail
    found = [
        HostRank(
            host=one.host,
            rank=float(places[index].mean()),
            low=int(low[index]),
            high=int(high[index]),
            tied=tuple(
                other.host for column, other in enumerate(estimates) if column != index and tied[index, column]
            ),
        )
        for index, one in enumerate(estimates)
    ]
    return tuple(sorted(found, key=lambda one: (one.rank, one.host)))


def _places(drawn: NDArray[np.float64]) -> Places:
    """Return the place of each host, a row, in every draw, a column: 1 is the highest value."""
    order = (-drawn).argsort(axis=1)
    places = np.empty(drawn.shape, dtype=np.int32)
    np.put_along_axis(places, order, np.arange(1, drawn.shape[1] + 1, dtype=np.int32)[None, :], axis=1)
    return np.ascontiguousarray(places.T)


def _above(places: Places) -> NDArray[np.int64]:
    """Return in how many draws each host, a row, was above each other one."""
    found = np.zeros((len(places), len(places)), dtype=np.int64)
    for index in range(1, len(places)):
        # of two hosts one is above, so that half of the pairs tell the rest
        found[index, :index] = np.count_nonzero(places[index] < places[:index], axis=1)
    below = np.tri(len(places), k=-1, dtype=np.int64) * places.shape[1] - found
    return np.asarray(found + below.T)
