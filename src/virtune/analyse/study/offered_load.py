# SPDX-License-Identifier: Apache-2.0
"""Offered loads: whether one was achieved (an arm that falls behind owes ever more, and has no latency to
compare), and what a sweep of them shows: saturation, the knee, the greatest load at which a limit holds.

None of the three depends on where the sweep ends. Saturation is the rate achieved at the lowest loads that were not
met. The knee is the load of the greatest power, achieved IOPS by mean latency (Kleinrock 1979, "Power and
deterministic rules of thumb"): a load beyond saturation has less power than the one before it, so adding it changes
nothing. The load at which a limit is crossed is bracketed by measured loads; between them a rising curve is fitted
(isotonic regression), because latency rises with load. The noise of a load is pooled over the rounds of nearby loads
that were met: two or three rounds alone are too few, and the noise is larger near saturation. Interval ends are loads
that were run and shown to lie beyond, so they hold for a curve of any form. A load shows nothing by a single trial,
whatever its neighbours' noise is; and where loads contradict one another, the interval holds all that do. It is that
of the sweep's own time: how far a disk differs at another is not in it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from statistics import fmean, geometric_mean, median

from virtune.analyse.stats.student import mean_and_radius, two_sided
from virtune.analyse.trial.gates import EDGE_SECONDS, RATE_MET
from virtune.analyse.trial.rejection import pardons_of, sound_of
from virtune.model.evidence import StudyRecord, TrialRecord, Waiver, measured
from virtune.model.measurement import Measurement, percentile_of_all
from virtune.model.metric import BY_ID, Metric
from virtune.model.reason import Reason, Why, because
from virtune.model.result import ArmKnee, LoadEstimate, LoadPoint, LoadRuling, LoadSweep, out_of_order
from virtune.model.search import RESOLUTION, SWEEP_LOADS_MAX, Limit, SweepPlan
from virtune.model.study import Study
from virtune.model.text import format_count, format_share
from virtune.model.verdict import Comparison, Outcome, Threshold, Verdict
from virtune.model.workload import Workload

Unmet = Mapping[tuple[str, str], Mapping[int, float]]
"""(arm, workload) -> round -> the share of the offered load that was achieved, where it was too little."""

SATURATED_SHARE = 0.5
"""From this share of its rounds on, an arm counts as saturated; fewer such rounds are taken for stalls of the host.
"""


def met_share(study: Study) -> float:
    """Return the share of what is offered that is done where nothing falls behind: all of it, but for the edges."""
    return RATE_MET - EDGE_SECONDS / study.seconds


def unmet_rounds(study: Study, trials: Iterable[TrialRecord]) -> Unmet:
    """Return the rounds in which an arm achieved less than 99 % of the offered load, allowing for the edges of the
    run; also of a load whose rate is in its own options, or that was imported, which the trial's remark tells.
    """
    offered = {} if study.imported else {one.name: one.offered_iops for one in study.workloads}
    share = 0.0 if study.imported else met_share(study)
    found: dict[tuple[str, str], dict[int, float]] = {}
    for trial, one in measured(trials):
        asked, done = offered.get(trial.workload), one.get("iops")
        if asked is not None and done is not None and done < share * asked:
            found.setdefault((trial.arm, trial.workload), {})[trial.round] = done / asked
        elif has_unmet_rate(one):
            short = dict(one.gates).get(RATE_UNMET, math.nan)
            found.setdefault((trial.arm, trial.workload), {})[trial.round] = 1 - short
    return found


RATE_UNMET = "rate-unmet"
"""The remark and the gate of a trial that did less than was offered."""


def has_unmet_rate(measurement: Measurement) -> bool:
    """Whether a trial did less than was offered, so that its latencies say nothing of that load."""
    return any(remark.id == RATE_UNMET for remark in measurement.remarks)


def rounds_by_workload(trials: Iterable[TrialRecord]) -> dict[str, int]:
    """Return how many rounds each workload has had: a decided one has fewer than the study."""
    found: dict[str, int] = {}
    for record in trials:
        found[record.trial.workload] = max(record.trial.round, found.get(record.trial.workload, 0))
    return found


def judged(comparison: Comparison, unmet: Unmet, rounds: int, *, fewest: int) -> Comparison:
    """Mark a comparison of latencies as undecided where an arm was saturated: then there is nothing to compare.

    `rounds` are those of the comparison's workload, `fewest` those that a verdict takes.
    """
    if BY_ID[comparison.metric].unit != "ns":
        return comparison
    arms = (comparison.baseline, comparison.candidate)
    missed = {arm: unmet.get((arm, comparison.workload), {}) for arm in arms}
    saturated = {arm: shares for arm, shares in missed.items() if rounds and len(shares) >= SATURATED_SHARE * rounds}
    if not saturated:
        return comparison
    verb = "are" if len(saturated) > 1 else "is"
    known = [median(shares.values()) for shares in saturated.values()]
    did = "" if any(map(math.isnan, known)) else f" ({' and '.join(format_share(one) for one in known)} of it)"
    why = because(Reason.SATURATED, arms=" and ".join(saturated), are=verb, did=did)
    return replace(
        comparison,
        ratio=None,
        verdict=Verdict.UNDECIDED,
        why=why.text,
        reason=why.reason,
        rounds_left=None,
        closed=rounds >= fewest,
    )


CONFIDENCE = 0.95
"""The confidence of an interval, both ends together."""

TRIALS_MIN = 2
"""The fewest trials of a load that bounds an interval: one alone does not show how far the next may lie from it."""

NEAR_NOISE = 1.3
"""Loads that differ by at most this factor are taken to have the same noise."""


def knees_of(record: StudyRecord, pardoned: Sequence[Waiver]) -> Iterator[ArmKnee]:
    """Yield the knee of each arm that was compared at offered loads, where greater ones are shown to be beyond it."""
    study = record.study
    if not study.at_load:
        return
    share = met_share(study)
    for probe in (one for one in study.workloads if one.probe):
        for arm in study.arms:
            points = [
                load_point(load, sound_trials(record, arm.name, load.name, pardoned), None, share)
                for load in study.offered_under(probe)
            ]
            knee = knee_of(sorted((one for one in points if one is not None), key=lambda one: one.offered))
            if knee is not None and knee.high is not None:
                yield ArmKnee(arm=arm.name, workload=probe.name, knee=knee)


def sound_trials(record: StudyRecord, arm: str, workload: str, pardoned: Sequence[Waiver]) -> list[Measurement]:
    """Return the trials of an arm that count; all of them where none does."""
    mine = (one for one in record.trials if (one.trial.arm, one.trial.workload) == (arm, workload))
    return [one for _, one in measured(sound_of(mine, pardoned))]


def knee_of(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the load of the greatest power, with the nearest loads shown to have less as its interval; None for
    fewer than three loads, and where all are saturated.
    """
    if len(points) < 3:
        return None
    best = _best(points)
    if is_saturated(points[best]):
        return None
    least = [_less(points, best, index) for index in range(len(points))]
    low = next((points[index].iops for index in range(best - 1, -1, -1) if least[index]), None)
    above = next((index for index in range(best + 1, len(points)) if least[index]), None)
    high = None if above is None else _upper_end(points, above, points[best])
    return LoadEstimate(iops=points[best].iops, low=low, high=high)


def _best(points: Sequence[LoadPoint]) -> int:
    """Return the load of the greatest power, of those that are not saturated if there are any."""
    carried = [index for index, one in enumerate(points) if not is_saturated(one)]
    return max(carried or range(len(points)), key=lambda index: fmean(points[index].power))


def is_saturated(point: LoadPoint) -> bool:
    """Whether a load was not met, and not just because a few of its trials stalled."""
    return not point.met and point.short >= SATURATED_SHARE * len(point.achieved)


def _upper_end(points: Sequence[LoadPoint], at: int, below: LoadPoint) -> float:
    """Return the upper end of an interval between two loads: the greater one, or what it carries where that is less.

    Never nearer to the lower load than loads are told apart, nor below one between that was met: what is carried
    varies, and may be less at the greater.
    """
    above, least = points[at], below.offered * (1 + RESOLUTION)
    mean, radius = mean_and_radius(above.achieved, CONFIDENCE)
    if above.met or radius is None or mean + radius < max([least, *(one.iops for one in points[:at] if one.met)]):
        return max(above.offered, below.iops)
    return min(above.offered, mean + radius)


def load_point(
    workload: Workload, sound: Sequence[Measurement], limit: Limit | None, share: float
) -> LoadPoint | None:
    """Return an offered load over its rounds, None where nothing was measured; it is met from `share` of it on."""
    asked = workload.offered_iops
    found = [(iops, mean, one) for one in sound if (iops := one.get("iops")) and (mean := one.get("latency.mean"))]
    if asked is None or not found:
        return None
    limited = [] if limit is None else [value for *_, one in found if (value := one.get(limit.metric))]
    return LoadPoint(
        workload=workload.name,
        offered=asked,
        achieved=tuple(iops for iops, *_ in found),
        met=fmean(iops for iops, *_ in found) >= share * asked,
        short=sum(iops < share * asked for iops, *_ in found),
        driven=sum(any(remark.id == "saturated-cpu" for remark in one.remarks) for *_, one in found),
        latency_ns=over_all(BY_ID["latency.mean"], [one for *_, one in found]),
        power=tuple(math.log(iops / mean) for iops, mean, _ in found),
        excess=() if limit is None else tuple(math.log(value / limit.value) for value in limited),
        beyond=None if limit is None or not limited else math.log(_together(limit, sound, limited) / limit.value),
    )


def _together(limit: Limit, sound: Sequence[Measurement], values: Sequence[float]) -> float:
    """Return a limited metric over all rounds: a percentile and a mean are those of all their I/Os.

    The mean of the rounds' percentiles would be kept by a load whose few bad rounds hold all its slow I/Os; it stands
    in only where the distributions are not known.
    """
    metric = BY_ID[limit.metric]
    if metric.percent is None:
        return over_all(metric, sound)
    whole = percentile_of_all([one.histogram_of(metric.of) for one in sound], metric.percent)
    return geometric_mean(values) if whole is None else whole


def over_all(metric: Metric, counted: Sequence[Measurement]) -> float:
    """Return the mean of a metric that some rounds have, all together: of their I/Os for what is had of each I/O, so
    that a round of few I/Os has little weight, else of their time.
    """
    disk = metric.id.rpartition(".latency.")[0] if metric.id.startswith("disk.") else metric.direction
    done = f"{disk}.iops" if disk else "iops"
    found = [(value, one.get(done)) for one in counted if (value := one.get(metric.id)) is not None]
    weights = [ios or 0.0 for _, ios in found] if metric.unit in ("ns", "s/io", "1/io") else []
    return fmean((value for value, _ in found), weights if any(weights) else None)


def _less(points: Sequence[LoadPoint], best: int, index: int) -> bool:
    """Whether a load is shown to have less power than the best one; an unmet load always has."""
    if index == best or min(len(points[best].power), len(points[index].power)) < TRIALS_MIN:
        return False
    if is_saturated(points[index]) and points[best].met and fmean(points[index].power) < fmean(points[best].power):
        return True
    noise, free = noise_of([one.power for end in (points[best], points[index]) for one in loads_near(points, end)])
    if free == 0:
        return False
    first, other = points[best].power, points[index].power
    error = noise * math.sqrt(1 / len(first) + 1 / len(other))
    one = 1 - (1 - CONFIDENCE) / (len(points) - 1)  # the best is compared with each (Bonferroni)
    return fmean(first) - fmean(other) > two_sided(one, free) * error


def loads_near(points: Sequence[LoadPoint], of: LoadPoint) -> list[LoadPoint]:
    """Return the loads with about the same noise as one of them: itself and nearby loads that were met."""
    ratios = ((one, max(one.offered / of.offered, of.offered / one.offered)) for one in points)
    return [one for one, ratio in ratios if one is of or (one.met and ratio <= NEAR_NOISE)]


def noise_of(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the pooled standard deviation within groups, and its degrees of freedom."""
    free = sum(len(group) - 1 for group in groups if group)
    squares = math.fsum((value - fmean(group)) ** 2 for group in groups if group for value in group)
    return (math.sqrt(squares / free), free) if free else (0.0, 0)


NEAR_SATURATION = 1.3
"""Loads up to this factor above the lowest unmet load give the saturation; far above it a stack may do worse."""

LOWEST_SHARE = 0.01
"""As a share of saturation: a limit that is broken at such a small load counts as broken at any load."""

GROWTH = 1.25
"""By which the next load is greater, where the greatest so far was met."""

SHRINKAGE = 3.0
"""By which the next load is smaller, where the smallest so far breaks the limit."""


def swept(record: StudyRecord) -> LoadSweep:
    """Return the results of a sweep's trials so far, and where more loads are needed."""
    study = record.study
    assert study.sweep is not None  # noqa: S101 - only sweeps are asked
    points = tuple(sorted(_points(record, study.sweep), key=lambda one: one.offered))
    closed_loop = _closed_loop(record)
    saturation, knee = saturation_of(points, closed_loop), knee_of(points)
    limit = study.sweep.limit
    most = None if limit is None else most_of(points)
    if most is not None and saturation is not None:  # between loads that were met and others the curve is but fitted
        most = replace(most, iops=max(min(most.iops, saturation.iops), most.low or 0.0))
    chosen = not study.sweep.loads and bool(points)
    above, below = _beyond(points, study.sweep) if chosen else (None, None)
    gaps = tuple(_gaps(points, study.sweep)) if chosen and above is None and below is None else ()
    why = tuple(_why(points, study.sweep, closed_loop, knee, most))
    return LoadSweep(
        study=study,
        finished=record.finished,
        points=points,
        saturation=saturation,
        knee=knee,
        most=most,
        why=why,
        rulings=tuple(
            _ruled(one, points, study.sweep, most if limit else saturation, why) for one in study.conditions
        ),
        closed_loop=closed_loop,
        met_share=met_share(study),
        gaps=gaps,
        above=above,
        below=below,
    )


def _closed_loop(record: StudyRecord) -> LoadEstimate | None:
    """Return what a sweep's stack did without an offered rate, with its interval over the rounds."""
    study, pardoned = record.study, pardons_of(record)
    probes = (one.name for one in study.workloads if one.probe)
    rates = [
        rate
        for name in probes
        for one in sound_trials(record, study.baseline, name, pardoned)
        if (rate := one.get("iops")) is not None
    ]
    return _mean_of(rates) if rates else None


def _mean_of(rates: Sequence[float]) -> LoadEstimate:
    """Return the mean of rates with its interval; without one of a single rate."""
    mean, radius = mean_and_radius(rates, CONFIDENCE)
    if radius is None:
        return LoadEstimate(iops=mean, low=None, high=None)
    return LoadEstimate(iops=mean, low=max(0.0, mean - radius), high=mean + radius)


def saturation_of(points: Sequence[LoadPoint], closed_loop: LoadEstimate | None = None) -> LoadEstimate | None:
    """Return the saturation: the rate achieved at the lowest loads that were not met; None if all were met, or where
    loads or the closed loop contradict it.

    It is no less than what any load that is not saturated did, and its upper end no less than the closed loop.
    """
    found = _first_unmet(points)
    if found is None or _contradicted(points, closed_loop) is not None:
        return None
    most = max([found.iops, *(one.iops for one in points if not is_saturated(one))])
    ends = [most, *([] if closed_loop is None else [closed_loop.iops])]
    return replace(found, iops=most, high=None if found.high is None else max(found.high, *ends))


def _contradicted(points: Sequence[LoadPoint], closed_loop: LoadEstimate | None) -> Why | None:
    """Say which load, or the closed loop, did more than the lowest loads that were not met are shown to carry, or was
    carried although it is greater than these; None where none did.
    """
    found, first = _first_unmet(points), next(filter(is_saturated, points), None)
    if found is None or first is None:
        return None
    reach = (found.high or found.iops) * (1 + RESOLUTION)
    carried = [one for one in points if not is_saturated(one)]
    more = [one for one in carried if one.offered > first.offered or one.iops > reach]
    if more:
        best = max(more, key=lambda one: (one.met, one.iops))
        other = f"{best.offered:,.0f} was" if best.met else f"of {best.offered:,.0f} it did {best.iops:,.0f}"
    elif closed_loop is not None and closed_loop.iops > reach:
        other = f"its closed loop did {closed_loop.iops:,.0f}"
    else:
        return None
    return because(Reason.LOADS_CONTRADICT, least=first.offered, done=first.iops, other=other)


def _first_unmet(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the rate achieved at the lowest loads that were not met, by themselves; None if all were met.

    Loads with a single trial count only where there are no others, and give no interval.
    """
    beyond = [one for one in points if is_saturated(one)]
    if not beyond:
        return None
    near = [one for one in beyond if one.offered <= beyond[0].offered * NEAR_SATURATION]
    several = [one for one in near if len(one.achieved) >= TRIALS_MIN]
    found = _mean_of([rate for one in several or near for rate in one.achieved])
    return found if several else replace(found, low=None, high=None)


def most_of(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the greatest load at which the limit holds, where the rising curve crosses it; None where no load keeps
    it or none breaks it.

    Its interval is between a load that is shown to keep it, below all that are shown to break it, and one that is
    shown to break it, above all that keep it by what they did.
    """
    fitted = _rising([_excess(one) for one in points])
    first = next((index for index, value in enumerate(fitted) if value > 0), None)
    if first is None or first == 0:
        return None
    before, after = points[first - 1], points[first]
    share = -fitted[first - 1] / (fitted[first] - fitted[first - 1])
    # the next load may be beyond saturation, where the achieved rate is below the offered one
    reach = after.offered if after.met else max(after.iops, before.offered)
    # not by logarithms and back, which may end just below the load itself
    crossing = before.offered * (max(reach, before.offered) / before.offered) ** share
    sure = [_shown(points, one) for one in points]
    kept = [index for index, one in enumerate(sure) if one < 0]
    broken = [index for index, one in enumerate(sure) if one > 0]
    below = [index for index in kept if index < min([first, *broken])]
    seem = [index for index, one in enumerate(points) if one.met and _excess(one) <= 0]
    above = [index for index in broken if index > max([first - 1, *seem])]
    low = points[below[-1]].offered if below else None
    high = max(_upper_end(points, above[0], before), crossing) if above else None
    return LoadEstimate(iops=crossing, low=low, high=high)


def _points(record: StudyRecord, plan: SweepPlan) -> Iterator[LoadPoint]:
    study, pardoned = record.study, pardons_of(record)
    share = met_share(study)
    for workload in study.compared:
        sound = sound_trials(record, study.baseline, workload.name, pardoned)
        point = load_point(workload, sound, plan.limit, share)
        if point is not None:
            yield point


def _beyond(points: Sequence[LoadPoint], plan: SweepPlan) -> tuple[float | None, float | None]:
    """Return the next load needed above all others, and the next one below all others; None where none is needed."""
    if len(points) >= SWEEP_LOADS_MAX:
        return None, None
    broken = plan.limit is not None and _rising([_excess(one) for one in points])[-1] > 0
    above = points[-1].offered * GROWTH if not (is_saturated(points[-1]) or broken) else None
    keeps = plan.limit is None or _excess(points[0]) <= 0 or points[0].offered <= LOWEST_SHARE * points[-1].offered
    return above, None if keeps else points[0].offered / SHRINKAGE


def _gaps(points: Sequence[LoadPoint], plan: SweepPlan) -> Iterator[tuple[float, float]]:
    """Yield the pairs of neighbours between which more loads are needed."""
    if len(points) >= SWEEP_LOADS_MAX:
        return
    wanted: set[int] = set()  # of each pair the lower one
    if plan.limit is not None:
        fitted = _rising([_excess(one) for one in points])
        wanted |= {index for index, (low, high) in enumerate(pairwise(fitted)) if low <= 0 < high}
    else:
        wanted |= {
            index
            for index, (low, high) in enumerate(pairwise(points))
            if not is_saturated(low) and is_saturated(high)
        }
        best = _best(points)
        wanted |= {best - 1, best}
    for index in sorted(wanted & set(range(len(points) - 1))):
        low, high = points[index].offered, points[index + 1].offered
        if high / low > 1 + RESOLUTION:
            yield low, high


def _excess(point: LoadPoint) -> float:
    """By how much a load breaks the limit, as a logarithm; at a saturated load the queue grows without end."""
    known = point.beyond or 0.0
    return known if point.excess and not is_saturated(point) else max(known, RESOLUTION)


def _shown(points: Sequence[LoadPoint], point: LoadPoint) -> int:
    """Return -1 for a load that is shown to keep the limit, 1 for one that is shown to break it, else 0."""
    noise, free = noise_of([other.excess for other in loads_near(points, point)])
    if min(len(point.excess), len(point.achieved)) < TRIALS_MIN or free == 0:
        return int(is_saturated(point) and len(point.achieved) >= TRIALS_MIN)
    if is_saturated(point):
        return 1
    half = two_sided(CONFIDENCE, free) * noise / math.sqrt(len(point.excess))
    mean = _excess(point)
    return -1 if mean + half < 0 and point.met else 1 if mean - half > 0 else 0


def _rising(values: Sequence[float]) -> list[float]:
    """Return the closest values that never fall (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [fmean(block) for block in blocks for _ in block]


def _why(
    points: Sequence[LoadPoint],
    plan: SweepPlan,
    closed_loop: LoadEstimate | None,
    knee: LoadEstimate | None,
    most: LoadEstimate | None,
) -> Iterator[Why]:
    """Say why each missing result was not found."""
    if not points:
        yield because(Reason.NOTHING_MEASURED)
        return
    if (contradicted := _contradicted(points, closed_loop)) is not None:
        yield contradicted
    elif not any(map(is_saturated, points)):
        met = (
            "every load was met"
            if all(one.met for one in points)
            else "no load was missed in half of its rounds or more"
        )
        yield because(Reason.NOT_SATURATED, met=met, most=points[-1].offered)
    if knee is None and len(points) < 3:
        yield because(Reason.TOO_FEW_LOADS)
    elif knee is None:
        yield because(Reason.NO_LOAD_MET, least=points[0].offered)
    if plan.limit is not None and most is None:
        if (pair := out_of_order(points)) is not None:
            least, greatest = (one.offered for one in pair)
            yield because(Reason.LIMIT_CONTRADICTED, limit=plan.limit.text, least=least, most=greatest)
        elif _excess(points[0]) <= 0:
            holds, shown = "holds at every load that was offered", ""
            if _shown(points, points[-1]) >= 0:
                surely = max((one.offered for one in points if _shown(points, one) < 0), default=0.0)
                how = f"shown to hold up to {surely:,.0f} IOPS" if surely else "shown to hold at none"
                holds, shown = "was broken at no load that was offered", f"; it is {how}, and more --rounds tell"
            yield because(
                Reason.LIMIT_ALWAYS_KEPT, limit=plan.limit.text, holds=holds, most=points[-1].offered, shown=shown
            )
        else:
            broken = "is broken" if _shown(points, points[0]) > 0 else f"may be broken ({_NOT_SHOWN})"
            yield because(Reason.LIMIT_ALWAYS_BROKEN, limit=plan.limit.text, broken=broken, least=points[0].offered)


_NOT_SHOWN = "its trials do not show it: more --rounds tell"


def _ruled(
    condition: Threshold,
    points: Sequence[LoadPoint],
    plan: SweepPlan,
    found: LoadEstimate | None,
    why: Sequence[Why],
) -> LoadRuling:
    """Judge whether the greatest load is less than a rate: that which keeps the limit, or which is carried at all."""
    low, high = _bounds(points, plan, found)
    value, words = condition.value or 0.0, f"{plan.limit.text} holds" if plan.limit else "it is carried"
    at_least = f"{words} at {format_count(low)} IOPS" if low else f"no load is shown at which {words}"
    at_most = "" if high is None else f"not above {format_count(high)} IOPS"
    beyond = high is not None and high <= value  # at the least load that is shown not to be fine, too
    if low >= value and not beyond:
        return LoadRuling(condition=condition, outcome=Outcome.HELD, text=at_least)
    if beyond and low < value:
        return LoadRuling(condition=condition, outcome=Outcome.BREACHED, text=f"{words} {at_most}")
    contradicted = Reason.LIMIT_CONTRADICTED if plan.limit else Reason.LOADS_CONTRADICT
    if (told := next((one.text for one in why if one.reason is contradicted), None)) is not None:
        return LoadRuling(condition=condition, outcome=Outcome.UNDECIDED, text=told)
    tells = "more --rounds tell"
    if points and points[-1].met and value > points[-1].offered:
        tells = "a greater one among --loads tells"
    elif points and value < points[0].offered:
        tells = "a smaller one among --loads tells"
    told = f"{at_least}{f', and {at_most}' if at_most else ''}; {tells}"
    return LoadRuling(condition=condition, outcome=Outcome.UNDECIDED, text=told)


def _bounds(points: Sequence[LoadPoint], plan: SweepPlan, found: LoadEstimate | None) -> tuple[float, float | None]:
    """Return the greatest load that is shown to be fine, 0 for none, and the least that is shown not to be."""
    if plan.limit is None:
        below = takewhile(lambda one: not is_saturated(one), points)
        # a load that is hardly less than the saturation may have been met by luck
        most = math.inf if found is None or found.low is None else found.iops / (1 + RESOLUTION)
        met = (one.offered for one in below if one.met and len(one.achieved) >= TRIALS_MIN and one.offered <= most)
        low, high = (None, None) if found is None else (found.low, found.high)
        return max([low or 0.0, *met]), high
    if found is not None:
        return found.low or 0.0, found.high
    sure = [(_shown(points, one), one.offered) for one in points]
    kept, broken = ([load for shown, load in sure if shown * sign > 0] for sign in (-1, 1))
    low = max((load for load in kept if load < min(broken, default=math.inf)), default=0.0)
    seem = max((one.offered for one in points if one.met and _excess(one) <= 0), default=0.0)
    return low, min((load for load in broken if load > seem), default=None)
