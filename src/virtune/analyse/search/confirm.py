# SPDX-License-Identifier: Apache-2.0
"""The end of a search: the winner against the baseline on fresh data, and under load for minutes."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from virtune.analyse.search.blocks import Rows, block_of, log_of, mean_of, rows_of, search_of
from virtune.analyse.stats.hodges_lehmann import shift_of
from virtune.model.evidence import TrialRecord
from virtune.model.reason import Reason, Why, because
from virtune.model.result import Waiver
from virtune.model.search import Search
from virtune.model.study import Study
from virtune.model.tuning import Confirmation, Soak
from virtune.model.units import format_share
from virtune.model.verdict import Interval, Verdict

SOAK_SLICE_SECONDS = 10.0
"""A soak is a series of runs of this length, almost without pauses."""


def soak_slices(search: Search) -> int:
    """Return the number of runs in the soak of one arm."""
    return math.ceil(search.soak_seconds / SOAK_SLICE_SECONDS)


def confirmed(
    study: Study, winner: str | None, trials: Sequence[TrialRecord], pardoned: Sequence[Waiver]
) -> Confirmation | None:
    """Compare the winner with the baseline on data measured after the race."""
    search, rows = search_of(study), rows_of(trials, pardoned)
    if winner is None or winner == study.baseline or not rows:
        return None
    metric = search.goal.improves
    sign = 1.0 if metric.better == "higher" else -1.0
    blocks = [block_of(study, metric, row) for row in rows.values()]
    both = [(block.get(winner, math.nan), block.get(study.baseline, math.nan)) for block in blocks]
    usable = [(a, b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    shift = shift_of([a - b for a, b in usable], confidence=1 - search.error)
    verdict, ratio = Verdict.UNDECIDED, None
    why = because(Reason.NO_VALUE, which="no pair of starts gave values of both")
    if shift is not None:
        ends = sorted((sign * shift.low, sign * shift.high))
        ratio = Interval(
            estimate=math.exp(sign * shift.estimate),
            low=math.exp(ends[0]),
            high=math.exp(ends[1]),
            confidence=shift.confidence,
        )
        verdict, why = _judged(shift.low, shift.high, shift.confidence, len(usable), search, study.margin)
    return Confirmation(
        pairs=len(usable),
        winner=mean_of(sign * a for a, _ in usable),
        baseline=mean_of(sign * b for _, b in usable),
        ratio=ratio,
        verdict=verdict,
        why=why,
        spread=_spread([a for a, _ in usable]),
        baseline_spread=_spread([b for _, b in usable]),
        breaks=_breaks(study, search, winner, rows),
        processes=_processes(winner, trials),
    )


def _processes(winner: str | None, trials: Sequence[TrialRecord]) -> int | None:
    """Return in how many processes the winner was confirmed, None if it was not recorded."""
    ran = [one for one in trials if one.trial.arm == winner and one.measurement is not None]
    found = [one.in_force.changeover for one in ran]
    return len({change.process for change in found if change is not None}) if found and None not in found else None


def soaked(study: Study, winner: str | None, rows: Rows) -> tuple[Soak, ...]:
    """Return the soaks of winner and baseline: the last third of their runs over the first."""
    search = search_of(study)
    count, metric = soak_slices(search), search.goal.improves
    each = min(SOAK_SLICE_SECONDS, search.soak_seconds)
    found = []
    for arm in dict.fromkeys(name for name in (winner, study.baseline) if name is not None):
        blocks = [block_of(study, metric, row) for row in rows.values()]
        runs = [block[arm] for block in blocks if arm in block]
        logs = [value for value in runs if math.isfinite(value)]
        if not runs:
            continue
        third = max(1, len(logs) // 3)
        sign = 1.0 if metric.better == "higher" else -1.0
        enough = len(logs) >= max(1, min(3, count))  # of a rare percentile such a run may have none
        ratio = math.exp(sign * (fmean(logs[-third:]) - fmean(logs[:third]))) if enough else None
        found.append(Soak(arm=arm, seconds=len(runs) * each, ratio=ratio))
    return tuple(found)


def _judged(low: float, high: float, has: float, pairs: int, search: Search, margin: float) -> tuple[Verdict, Why]:
    if has < 1 - search.error:
        level = format_share(1 - search.error)
        words = f"too few pairs of starts ({pairs}) for an interval at {level} confidence"
        return Verdict.UNDECIDED, Why(reason=Reason.TOO_FEW, text=words)
    reach = math.log1p(margin)
    if -reach <= low and high <= reach:
        return Verdict.SAME, because(Reason.WITHIN_MARGIN, margin=format_share(margin))
    if low > 0:
        return Verdict.BETTER, because(Reason.BETTER_SIDE)
    if high < 0:
        return Verdict.WORSE, Why(
            reason=Reason.WORSE_SIDE, text="on fresh data the winner is worse: the race was wrong"
        )
    return Verdict.UNDECIDED, because(Reason.NOT_SETTLED, margin=format_share(margin))


def _breaks(study: Study, search: Search, winner: str, rows: Rows) -> tuple[str, ...]:
    """Return the limits that the winner's fresh data break, by the mean over its starts."""
    found = []
    for limit in search.goal.limits:
        for workload in study.workloads:
            logs = [log_of(row.get((winner, workload.name), {}).get(limit.metric)) for row in rows.values()]
            mean = mean_of(one for one in logs if math.isfinite(one))
            if mean is not None and not limit.kept_by(mean):
                found.append(limit.text)
    return tuple(dict.fromkeys(found))


def _spread(logs: Sequence[float]) -> float | None:
    return math.expm1(stdev(logs)) if len(logs) > 1 else None
