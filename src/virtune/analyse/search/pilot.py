# SPDX-License-Identifier: Apache-2.0
"""What follows from a search's pilot trials: the slice length, the race's block limit, the cost of a certificate."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from virtune.analyse.search.blocks import block_of, flushes_of, rows_of, search_of
from virtune.analyse.search.confirm import SOAK_SLICE_SECONDS, soak_slices
from virtune.analyse.stats.anytime import blocks_for
from virtune.analyse.study.percentile_evidence import BEYOND
from virtune.model.evidence import TrialRecord
from virtune.model.metric import Metric
from virtune.model.result import Waiver
from virtune.model.search import Phase, Search
from virtune.model.study import Study
from virtune.model.tuning import Probed

PROBE_SLICES = 6
"""Pilot trials of the baseline: enough for the slice length and a rough estimate of the noise."""

OVERHEAD_SECONDS = 0.45
"""The overhead of a slice besides ramp and run: the swap, and fio's start and end (0.3 s)."""

IOS_OF_A_SLICE = 2_000
"""The fewest I/Os that a slice should hold, so that its rate is not random."""

IOS_FOR_A_TAIL = 10_000
"""The same where a percentile from the 99th on is raced: a hundred beyond it."""

SLICES = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
"""The lengths of slices to choose from, in seconds."""

QUICK_SECONDS_EACH = 30.0
"""The limit of the mode quick for each configuration: a tenth of the classic five minutes."""

RESTLESS = 0.25
"""From this sd of neighbouring slices (ln) on a host is restless: on a recorded hour of 0.37 seven of ten searches of
the usual length chose within 3 % of the best."""

PATIENCE = 2.5
"""How many times as long as otherwise the mode quick may take on a restless host. Searches of that length chose
within 3 % of the best of that hour in 94 % (benchmarks/decide.md)."""

BLOCKS_LEAST = 6
"""The fewest blocks, however small the mode's own limit is."""

JOIN_FIRST = 16
"""How many configurations start the race when the space is too large to race all: later ones are proposed from their
results.
"""

BLOCKS_IN_BUDGET = 4
"""The fewest blocks, however small the budget is: fewer allow no conclusion."""

BEYOND_SLACK = 1.5
"""The factor by which a slice exceeds the I/Os that a percentile needs: other arms may be slower than the baseline.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """A percentile that needs `count` I/Os (or flushes) in a slice: `seconds` at the `rate` of the probe."""

    metric: Metric
    count: int
    rate: float
    seconds: float


def probed_by(study: Study, search: Search, probes: Sequence[TrialRecord], pardoned: Sequence[Waiver]) -> Probed:
    """Return the pilot trials' result for the baseline, and what follows for the race."""
    rows, flushes = rows_of(probes, pardoned), flushes_of(study, probes)
    workloads = [workload.name for workload in study.workloads]
    rates = [
        [rate for row in rows.values() if (rate := row.get((study.baseline, name), {}).get("iops"))]
        for name in workloads
    ]
    slowest = min((fmean(found) for found in rates if found), default=None)
    logs = [block_of(study, search.goal.improves, row).get(study.baseline, math.nan) for row in rows.values()]
    steps = [b - a for a, b in itertools.pairwise(logs) if math.isfinite(b - a)]
    sd = math.sqrt(fmean(step**2 for step in steps)) if len(steps) > 1 else None
    restless = sd is not None and sd >= RESTLESS
    seconds = search.slice_seconds or _slice(search, slowest, flushes)
    each = (seconds + beside_seconds(study)) * len(study.workloads)
    count = search.racing
    return Probed(
        slices=len(rows),
        iops=slowest,
        flushes=flushes,
        sd=sd,
        slice_seconds=seconds,
        slices_max=_cap(study, search, seconds, restless=restless),
        restless=restless,
        certificate_seconds=_forecast(study, search, sd, each, count),
    )


def unresolved(search: Search, probed: Probed) -> Unresolved | None:
    """Return the rarest percentile of the goal or a limit for which a slice is too short; None if there is none."""
    needs = [
        Unresolved(metric=metric, count=round(count), rate=rate, seconds=count / rate)
        for metric, count, rate in _percentiles(search, probed.iops, probed.flushes)
    ]
    worst = max(needs, key=lambda one: one.seconds, default=None)
    if worst is None or worst.seconds <= (search.slice_seconds or SLICES[-1]):
        return None
    return worst


def _slice(search: Search, iops: float | None, flushes: float | None) -> float:
    """Return the shortest slice with enough I/Os for the slowest workload at the baseline's rate, and enough beyond
    every requested percentile.
    """
    percent = search.goal.improves.percent
    tail = percent is not None and percent >= 99
    needs = [(IOS_FOR_A_TAIL if tail else IOS_OF_A_SLICE) / (iops or IOS_OF_A_SLICE)]
    needs += [count / rate for _, count, rate in _percentiles(search, iops, flushes)]
    return next((seconds for seconds in SLICES if seconds >= max(needs)), SLICES[-1])


def _percentiles(search: Search, iops: float | None, flushes: float | None) -> Iterator[tuple[Metric, float, float]]:
    """Yield the percentiles of goal and limits, with the I/Os (or flushes) that a slice needs and their rate."""
    slack = BEYOND_SLACK if search.slice_seconds is None else 1.0
    for metric in search.goal.metrics:
        rate = iops if metric.of == "latency" else flushes
        if metric.percent is not None and rate:
            yield metric, slack * BEYOND / (1 - metric.percent / 100), rate


def seconds_of(study: Study, probed: Probed, phase: Phase) -> float:
    """Return how long a trial of a phase measures."""
    return _seconds_of(study, search_of(study), probed.slice_seconds, phase)


def beside_seconds(study: Study) -> float:
    """Return the expected overhead of a slice."""
    return study.ramp_seconds + OVERHEAD_SECONDS


def probe_seconds(study: Study, *, slices: int = PROBE_SLICES) -> float:
    """Return the time of so many pilot slices."""
    return slices * (study.seconds + beside_seconds(study)) * len(study.workloads)


def confirm_seconds(study: Study, slice_seconds: float, *, beside: float) -> float:
    """Return the time of one pair of the confirmation."""
    each = _seconds_of(study, search_of(study), slice_seconds, Phase.CONFIRM) + beside
    return 2 * each * len(study.workloads)


def soak_seconds(study: Study, slice_seconds: float, *, beside: float) -> float:
    """Return the time of the soaks of winner and baseline."""
    search = search_of(study)
    each = _seconds_of(study, search, slice_seconds, Phase.SOAK) + beside
    return 2 * soak_slices(search) * each * len(study.workloads)


def slices_least(search: Search) -> int:
    """Return the fewest slices of a race, however little time there is."""
    return (BLOCKS_LEAST if search.budget_seconds is None else BLOCKS_IN_BUDGET) * _beginners(search)


def _beginners(search: Search) -> int:
    return search.racing if search.tries is None else min(search.racing, JOIN_FIRST + 1)


def _seconds_of(study: Study, search: Search, slice_seconds: float, phase: Phase) -> float:
    # a confirming run must be as long as a slice has to be
    tails = any(one.percent is not None for one in search.goal.metrics)
    return {
        Phase.PROBE: study.seconds,
        Phase.RACE: slice_seconds,
        Phase.CONFIRM: max(search.confirm_seconds, slice_seconds if tails else 0.0),
        Phase.SOAK: min(SOAK_SLICE_SECONDS, max(search.soak_seconds, study.seconds)),
    }[phase]


def _cap(study: Study, search: Search, seconds: float, *, restless: bool) -> int | None:
    """Return the number of slices after which the race stops; None for a certificate without a budget.

    A budget covers everything. The mode's own limit covers everything except the soak, and is longer on a restless
    host.
    """
    beside, total = beside_seconds(study), search.budget_seconds
    each, soak = (seconds + beside) * len(study.workloads), soak_seconds(study, seconds, beside=beside)
    if total is None:
        if search.mode == "certify":
            return None
        longer = search.patience if restless else 1.0
        total = longer * search.racing * QUICK_SECONDS_EACH + soak
    else:
        each = max(each, search.spread_seconds / _beginners(search))
    left = total - probe_seconds(study) - soak
    left -= search.confirm_pairs * confirm_seconds(study, seconds, beside=beside)
    return max(slices_least(search), int(left / each))


def _forecast(study: Study, search: Search, sd: float | None, each: float, count: int) -> float | None:
    """Estimate the time of a certificate in the worst case, in which every arm is a near tie."""
    if sd is None or sd <= 0:
        return None
    alpha = min(1.0, 2 * search.error / max(1, count - 1))
    blocks = blocks_for(math.log1p(study.margin), sd=sd, alpha=alpha, arms=count)
    return None if blocks is None else blocks * count * each
