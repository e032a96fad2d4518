# SPDX-License-Identifier: Apache-2.0
"""How the level of a host changed between two studies of the same question, by Welch's interval on the logarithm."""

import math

from virtune.analyse.stats.student import two_sided
from virtune.model.fleet import HostEstimate
from virtune.model.fleet_task import HostDrift

CONFIDENCE = 0.95
_HOUR_SECONDS = 3600.0


def drift_between(before: HostEstimate, after: HostEstimate, *, workload: str, metric: str) -> HostDrift:
    """Return the ratio of a host's later level to its earlier one, with its 95 % interval."""
    squares = (before.error**2, after.error**2)
    error = math.sqrt(sum(squares))
    # Welch and Satterthwaite: the two studies need not be alike in noise
    df = sum(squares) ** 2 / (squares[0] ** 2 / before.df + squares[1] ** 2 / after.df) if error else before.df
    reach = two_sided(CONFIDENCE, df) * error
    change = after.value - before.value
    return HostDrift(
        workload=workload,
        metric=metric,
        estimate=math.exp(change),
        low=math.exp(change - reach),
        high=math.exp(change + reach),
        hours=max(0.0, (after.begun - before.begun).total_seconds() / _HOUR_SECONDS),
    )
