# SPDX-License-Identifier: Apache-2.0
"""Whether an arm keeps a limit, judged by the anytime-valid confidence interval of its slices."""

import math
from collections.abc import Mapping, Sequence

from virtune.analyse.stats.anytime import contrast, logs
from virtune.model.goal import Limit
from virtune.model.metric import BY_ID
from virtune.model.tuning import LimitCheck, LimitState

Slices = Mapping[tuple[str, str], Sequence[Mapping[str, float]]]
"""(arm, workload) -> the metrics of each slice."""


def check_limits(limits: Sequence[Limit], slices: Slices, *, error: float) -> tuple[LimitCheck, ...]:
    """Check every arm against every limit under every workload; the probability of any error is at most `error`.

    For a percentile each slice gives one value: its uncertainty comes from the spread over slices, never from the
    number of I/Os.
    """
    alpha = min(1.0, 2 * error / max(1, len(limits) * len(slices)))
    return tuple(
        _check(arm, workload, limit, [one.get(limit.metric, math.nan) for one in values], alpha)
        for (arm, workload), values in slices.items()
        for limit in limits
    )


def state_of(checks: Sequence[LimitCheck], arm: str) -> LimitState:
    """Return the worst state of an arm over all limits; kept where there is no limit."""
    states = {check.state for check in checks if check.arm == arm}
    for worst in (LimitState.BROKEN, LimitState.OPEN):
        if worst in states:
            return worst
    return LimitState.KEPT


def _check(arm: str, workload: str, limit: Limit, values: Sequence[float], alpha: float) -> LimitCheck:
    here = [one for one in logs(values) if math.isfinite(one)]
    bound = math.log(limit.value)
    found = contrast(here, [bound] * len(here), alpha=alpha)
    if found.blocks == 0:
        return LimitCheck(arm=arm, workload=workload, limit=limit, blocks=0)
    known = math.isfinite(found.radius)
    low, high = (limit.value * math.exp(end) for end in (found.low, found.high)) if known else (None, None)
    below = BY_ID[limit.metric].better == "lower"
    state = LimitState.OPEN
    if known and (found.high <= 0 if below else found.low >= 0):
        state = LimitState.KEPT
    elif known and (found.low > 0 if below else found.high < 0):
        state = LimitState.BROKEN
    value = limit.value * math.exp(found.mean)
    return LimitCheck(
        arm=arm, workload=workload, limit=limit, blocks=found.blocks, value=value, low=low, high=high, state=state
    )
