# SPDX-License-Identifier: Apache-2.0
"""Whether the offered load was achieved: an arm that falls behind has an ever-growing queue, and no latency to
compare. And the knee of a curve of offered loads: the load of the greatest power, which is achieved IOPS by mean
latency (Kleinrock 1979, "Power and deterministic rules of thumb").
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from virtune.analyse.stats.student import two_sided
from virtune.analyse.trial.gates import EDGE_SECONDS, RATE_MET
from virtune.analyse.trial.rejection import rejected_for
from virtune.model.evidence import StudyRecord, TrialRecord, measured
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason, because
from virtune.model.result import ArmKnee, LoadEstimate, LoadPoint, Waiver
from virtune.model.search import Limit
from virtune.model.study import Study
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload

Unmet = Mapping[tuple[str, str], Collection[int]]
"""(arm, workload) -> rounds in which less than the offered load was achieved."""

SATURATED_SHARE = 0.5
"""From this share of its rounds on, an arm counts as saturated; fewer such rounds are taken for stalls of the host.
"""


def met_share(study: Study) -> float:
    """Return the share of what is offered that is done where nothing falls behind: all of it, but for the edges."""
    return RATE_MET - EDGE_SECONDS / study.seconds


def unmet_rounds(study: Study, trials: Iterable[TrialRecord]) -> Unmet:
    """Return the rounds in which an arm achieved less than 99 % of the offered load, allowing for the edges of the
    run.
    """
    if study.imported:  # it has neither an offered load nor a trial time
        return {}
    share = met_share(study)
    offered = {workload.name: workload.offered_iops for workload in study.workloads}
    found: dict[tuple[str, str], set[int]] = {}
    for trial, one in measured(trials):
        asked, done = offered.get(trial.workload), one.get("iops")
        if asked is not None and done is not None and done < share * asked:
            found.setdefault((trial.arm, trial.workload), set()).add(trial.round)
    return found


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
    missed = {arm: len(unmet.get((arm, comparison.workload), ())) for arm in arms}
    saturated = [arm for arm, count in missed.items() if rounds and count >= SATURATED_SHARE * rounds]
    if not saturated:
        return comparison
    verb = "are" if len(saturated) > 1 else "is"
    why = because(Reason.SATURATED, arms=" and ".join(saturated), are=verb)
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
    every = [one for trial, one in measured(record.trials) if (trial.arm, trial.workload) == (arm, workload)]
    return [one for one in every if not rejected_for(arm, one, pardoned)] or every


def knee_of(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the load of the greatest power, with the nearest loads shown to have less as its interval; None for
    fewer than three loads.
    """
    if len(points) < 3:
        return None
    best = max(range(len(points)), key=lambda index: fmean(points[index].power))
    least = [_less(points, best, index) for index in range(len(points))]
    low = next((points[index].iops for index in range(best - 1, -1, -1) if least[index]), None)
    high = next((points[index].iops for index in range(best + 1, len(points)) if least[index]), None)
    if high is not None and best + 1 < len(points) and not points[best + 1].met:
        high = max(points[best + 1].iops, points[best].iops)  # it achieved no more than saturation
    return LoadEstimate(iops=points[best].iops, low=low, high=high)


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
        met=median(iops for iops, *_ in found) >= share * asked,
        latency_ns=math.exp(fmean(math.log(mean) for _, mean, _ in found)),
        power=tuple(math.log(iops / mean) for iops, mean, _ in found),
        excess=() if limit is None else tuple(math.log(value / limit.value) for value in limited),
    )


def _less(points: Sequence[LoadPoint], best: int, index: int) -> bool:
    """Whether a load is shown to have less power than the best one; an unmet load always has."""
    if index == best:
        return False
    if not points[index].met and points[best].met and fmean(points[index].power) < fmean(points[best].power):
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
