# SPDX-License-Identifier: Apache-2.0
"""What follows from a search's pilot trials (slice length, the race's block limit, the cost of a certificate), which
configurations join its race, how much of its time budget is spent, and its end on fresh data.

Time is taken from the stored trials, so a search that was killed resumes with what is left.

Proposals only add arms; the race decides. It starts with a few random configurations. New ones join when no other arm
may still be better than the leader, and all are compared by the same confidence intervals.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, stdev

import numpy as np

from virtune.analyse.stats.anytime import blocks_for, levels
from virtune.analyse.stats.student import shift_of
from virtune.analyse.study.verdicts import BEYOND, values_of
from virtune.analyse.trial.rejection import Ramp, ramp_at
from virtune.model.evidence import TrialRecord, Waiver, measured
from virtune.model.metric import Metric
from virtune.model.reason import Reason, Why, because
from virtune.model.search import Phase, Search, phase_of
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.tuning import Confirmation, Place, Probed, RaceRules, Soak, Standing
from virtune.model.verdict import Interval, Verdict

Rows = dict[int, dict[tuple[str, str], dict[str, float]]]
"""round -> (arm, workload) -> metric id -> value."""


def search_of(study: Study) -> Search:
    """Return the search of a study; raises ValueError for a study of another kind."""
    if study.search is None:
        raise ValueError(f"study {study.id} is no search")
    return study.search


def rows_of(trials: Iterable[TrialRecord], pardoned: Sequence[Waiver]) -> Rows:
    """Return the comparable values of trials, by round: none of a trial that failed or is invalid."""
    rows: Rows = {}
    for one in trials:
        rows.setdefault(one.trial.round, {})[one.trial.arm, one.trial.workload] = values_of(one, pardoned)
    return rows


def blocks_of(study: Study, rows: Rows) -> list[dict[str, float]]:
    """Return of every round ln of the goal's metric by arm, higher is better: the mean over workloads, NaN where one
    is missing.
    """
    metric = search_of(study).goal.improves
    return [
        {
            arm: _sign(metric) * fmean(log_of(row.get((arm, one.name), {}).get(metric.id)) for one in study.workloads)
            for arm in dict.fromkeys(arm for arm, _ in row)
        }
        for row in rows.values()
    ]


def _sign(metric: Metric) -> float:
    return 1.0 if metric.better == "higher" else -1.0


def log_of(value: float | None) -> float:
    """Return ln of a value, NaN for an impossible rate or time."""
    return math.log(value) if value is not None and math.isfinite(value) and value > 0 else math.nan


def mean_of(logs: Iterable[float]) -> float | None:
    """Return the geometric mean; None without values."""
    found = list(logs)
    return math.exp(fmean(found)) if found else None


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
    sign = _sign(search.goal.improves)
    both = [(block.get(winner, math.nan), block.get(study.baseline, math.nan)) for block in blocks_of(study, rows)]
    usable = [(a, b) for a, b in both if math.isfinite(a) and math.isfinite(b)]
    shift = shift_of([a - b for a, b in usable], confidence=1 - search.error)
    changes = [one.in_force.changeover for one in trials if one.trial.arm == winner and one.measurement is not None]
    processes = len({one.process for one in changes if one}) if changes and None not in changes else None
    verdict, ratio = Verdict.UNDECIDED, None
    why = because(Reason.NO_VALUE, which="no pair of starts gave values of both")
    if shift is not None:
        low, high = map(math.exp, sorted((sign * shift.low, sign * shift.high)))
        ratio = Interval(estimate=math.exp(sign * shift.estimate), low=low, high=high, confidence=shift.confidence)
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
        processes=processes,
    )


def soaked(study: Study, winner: str | None, rows: Rows) -> tuple[Soak, ...]:
    """Return the soaks of winner and baseline: the last third of their runs over the first."""
    search = search_of(study)
    count, sign = soak_slices(search), _sign(search.goal.improves)
    each, blocks = min(SOAK_SLICE_SECONDS, search.soak_seconds), blocks_of(study, rows)
    found = []
    for arm in dict.fromkeys(name for name in (winner, study.baseline) if name is not None):
        runs = [block[arm] for block in blocks if arm in block]
        logs = [value for value in runs if math.isfinite(value)]
        if not runs:
            continue
        third = max(1, len(logs) // 3)
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
        text = "on fresh data the winner is worse: the race was wrong"
        return Verdict.WORSE, Why(reason=Reason.WORSE_SIDE, text=text)
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
    rows = rows_of(probes, pardoned)
    counts: dict[str, list[int]] = {}
    for trial, one in measured(probes):
        if (histogram := one.histogram_of("sync")) is not None and histogram.count:
            counts.setdefault(trial.workload, []).append(histogram.count)
    flushes = min((fmean(found) / study.seconds for found in counts.values()), default=None)
    workloads = [workload.name for workload in study.workloads]
    rates = [
        [rate for row in rows.values() if (rate := row.get((study.baseline, name), {}).get("iops"))]
        for name in workloads
    ]
    slowest = min((fmean(found) for found in rates if found), default=None)
    logs = [block.get(study.baseline, math.nan) for block in blocks_of(study, rows)]
    steps = [b - a for a, b in itertools.pairwise(logs) if math.isfinite(b - a)]
    sd = math.sqrt(fmean(step**2 for step in steps)) if len(steps) > 1 else None
    restless = sd is not None and sd >= RESTLESS
    seconds = search.slice_seconds or _slice(search, slowest, flushes)
    each = (seconds + beside_seconds(study)) * len(study.workloads)
    return Probed(
        slices=len(rows),
        iops=slowest,
        flushes=flushes,
        sd=sd,
        slice_seconds=seconds,
        slices_max=_cap(study, search, seconds, restless=restless),
        restless=restless,
        certificate_seconds=_forecast(study, search, sd, each),
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
    tail = (search.goal.improves.percent or 0.0) >= 99
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


def beside_seconds(study: Study) -> float:
    """Return the expected overhead of a slice."""
    return study.ramp_seconds + OVERHEAD_SECONDS


def probe_seconds(study: Study, *, slices: int = PROBE_SLICES) -> float:
    """Return the time of so many pilot slices."""
    return slices * (study.seconds + beside_seconds(study)) * len(study.workloads)


def confirm_seconds(study: Study, slice_seconds: float, *, beside: float) -> float:
    """Return the time of one pair of the confirmation."""
    each = seconds_of(study, slice_seconds, Phase.CONFIRM) + beside
    return 2 * each * len(study.workloads)


def soak_seconds(study: Study, slice_seconds: float, *, beside: float) -> float:
    """Return the time of the soaks of winner and baseline."""
    each = seconds_of(study, slice_seconds, Phase.SOAK) + beside
    return 2 * soak_slices(search_of(study)) * each * len(study.workloads)


def slices_least(search: Search) -> int:
    """Return the fewest slices of a race, however little time there is."""
    return (BLOCKS_LEAST if search.budget_seconds is None else BLOCKS_IN_BUDGET) * _beginners(search)


def _beginners(search: Search) -> int:
    return search.racing if search.tries is None else min(search.racing, JOIN_FIRST + 1)


def seconds_of(study: Study, slice_seconds: float, phase: Phase) -> float:
    """Return how long a trial of a phase measures."""
    search = search_of(study)
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


def _forecast(study: Study, search: Search, sd: float | None, each: float) -> float | None:
    """Estimate the time of a certificate in the worst case, in which every arm is a near tie."""
    if sd is None or sd <= 0:
        return None
    count = search.racing
    alpha = min(1.0, 2 * search.error / max(1, count - 1))
    blocks = blocks_for(math.log1p(study.margin), sd=sd, alpha=alpha, arms=count)
    return None if blocks is None else blocks * count * each


_PAUSE_SECONDS = 120.0
"""A gap between two trials that exceeds their length by more than this was an interruption and does not count."""

_BEFORE_RACE = (Phase.PROBE, Phase.RACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSpent:
    """The time of a search up to now, and what is left of it, in seconds.

    `beside` is the overhead of a slice: the ramp, and the time that slices took besides ramp and run. `race_left` is
    the budget left for the race, None without a budget; below 0 where it is too small. `confirming` is the part
    reserved for the confirmation.
    """

    elapsed: float
    beside: float
    race_left: float | None
    confirming: float = 0.0


def limit_of(study: Study) -> float | None:
    """Return the seconds that a search may take, None for any; a simulated one takes next to none of them."""
    return None if study.simulated else search_of(study).budget_seconds


def elapsed_seconds(study: Study, attempts: Sequence[TrialRecord]) -> float:
    """Return the seconds from the beginning to the last trial, without the time that an interruption took."""
    longest = _longest(study)
    moments = [datetime.fromisoformat(study.created), *sorted(datetime.fromisoformat(one.ended) for one in attempts)]
    steps = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
    return math.fsum(step for step in steps if step <= longest)


def spent_by(study: Study, probed: Probed, attempts: Sequence[TrialRecord], ramp: Ramp) -> BudgetSpent:
    """Return the time of the attempts so far.

    The time left for the race depends only on the trials of probe and race: later ones do not move its end.
    """
    search = search_of(study)
    racing = [one for one in attempts if phase_of(one.trial.round) in _BEFORE_RACE]
    beside = ramp.seconds + _overhead(study, probed, racing, ramp)
    left, pairs, limit = None, 0.0, limit_of(study)
    if limit is not None:
        pairs = search.confirm_pairs * confirm_seconds(study, probed.slice_seconds, beside=beside)
        after = pairs + soak_seconds(study, probed.slice_seconds, beside=beside)
        before = elapsed_seconds(study, racing) + probe_seconds(study, slices=max(0, PROBE_SLICES - probed.slices))
        left = limit - before - after
    return BudgetSpent(elapsed=elapsed_seconds(study, attempts), beside=beside, race_left=left, confirming=pairs)


def block_fits(
    study: Study, probed: Probed, spent: BudgetSpent, *, arms: int, before: int, unconfirmed: bool = False
) -> bool:
    """Whether a block of so many arms fits the budget, after one of `before` arms (0 for the first).

    `unconfirmed`: it may use the time of the confirmation too.
    """
    if spent.race_left is None:
        return True
    each = (probed.slice_seconds + spent.beside) * len(study.workloads)
    wait = max(0.0, search_of(study).spread_seconds - before * each) if before else 0.0
    return wait + arms * each <= spent.race_left + (spent.confirming if unconfirmed else 0.0)


def pair_fits(study: Study, probed: Probed, spent: BudgetSpent) -> bool:
    """Whether one more pair of the confirmation, and the soak, fit the budget."""
    budget = limit_of(study)
    pair = confirm_seconds(study, probed.slice_seconds, beside=spent.beside)
    soak = soak_seconds(study, probed.slice_seconds, beside=spent.beside)
    return budget is None or spent.elapsed + pair + soak <= budget


def _overhead(study: Study, probed: Probed, attempts: Sequence[TrialRecord], ramp: Ramp) -> float:
    """Return the overhead of a slice besides ramp and run: the mean over slices that followed one another without a
    wait.
    """
    ran = sorted(attempts, key=lambda one: (one.ended, one.trial.number, one.attempt))
    found = []
    for before, one in itertools.pairwise(ran):
        phase = phase_of(one.trial.round)
        if before.trial.round != one.trial.round and phase is not Phase.PROBE:
            continue  # blocks of the race may begin apart
        gap = (datetime.fromisoformat(one.ended) - datetime.fromisoformat(before.ended)).total_seconds()
        if gap <= _longest(study):
            asked = seconds_of(study, probed.slice_seconds, phase) + ramp_at(
                ramp, study.ramp_seconds, one.trial.round
            )
            found.append(gap - asked)
    return max(OVERHEAD_SECONDS, fmean(found)) if found else OVERHEAD_SECONDS


def load_seconds(study: Study, probed: Probed, ramp: Ramp, number: int) -> float:
    """Return how long the load of a trial in this round runs, its ramp included, as for the classic grid."""
    seconds = seconds_of(study, probed.slice_seconds, phase_of(number))
    return seconds + ramp_at(ramp, study.ramp_seconds, number)


def _longest(study: Study) -> float:
    search = search_of(study)
    return max(study.seconds, search.confirm_seconds, SOAK_SLICE_SECONDS, search.spread_seconds) + _PAUSE_SECONDS


JOIN = 8
"""How many join at once: few enough that proposals can learn from them, and enough to share the leader's slices."""

BLOCKS_MAX = 10
"""After this many blocks the last to join no longer hold up new ones: near ties are decided at the end."""


def entrants_of(search: Search, rows: Rows) -> Sequence[str]:
    """Return the racing arms: all, or those that have joined, in that order."""
    if search.tries is None:
        return search.ranked
    return tuple(dict.fromkeys(arm for row in rows.values() for arm, _ in row))


def to_join(search: Search, probed: Probed, standing: Standing, rows: Rows) -> int:
    """Return how many configurations join the race in its next block."""
    entrants = entrants_of(search, rows)
    count = min(JOIN if entrants else JOIN_FIRST, search.racing - len(entrants))
    if search.tries is None or count <= 0:
        return 0
    cap, blocks_min = probed.slices_max, RaceRules().blocks_min
    if cap is not None and standing.slices + blocks_min * (count + 1) > cap:
        return 0
    return 0 if entrants and _contended(standing, rows) else count


def _contended(standing: Standing, rows: Rows) -> bool:
    """Whether any of the last to join may still be better than the leader."""
    seen: set[str] = set()
    last = 0
    for index, row in enumerate(rows.values()):
        arms = {arm for arm, _ in row}
        last, seen = (index if arms - seen else last), seen | arms
    blocks, rules = len(rows) - last, RaceRules()
    if blocks < rules.blocks_min:
        return True
    contenders = [
        one
        for one in standing.runners
        if one.place is Place.OPEN and (found := one.against_leader) is not None
        if found.sd is None or found.mean < rules.hot * found.sd / math.sqrt(found.blocks)
    ]
    return bool(contenders) and blocks < BLOCKS_MAX and bool(standing.up_next)


def levels_of(study: Study, rows: Rows) -> tuple[tuple[str, float], ...]:
    """Return ln of each entrant's result on one scale, higher is better; entrants without a value are missing."""
    blocks = blocks_of(study, rows)
    arms = list(dict.fromkeys(arm for block in blocks for arm, value in block.items() if math.isfinite(value)))
    if not arms:
        return ()
    found = levels(np.array([[block.get(arm, math.nan) for arm in arms] for block in blocks]))[0]
    return tuple(zip(arms, map(float, found), strict=True))
