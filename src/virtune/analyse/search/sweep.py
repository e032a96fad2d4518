# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep: saturation, the knee, the greatest load at which a limit holds.

None of the three depends on where the sweep ends. Saturation is the rate achieved at the lowest loads that were not
met. The knee is the load of the greatest power, achieved IOPS by mean latency (Kleinrock 1979, "Power and
deterministic rules of thumb"): a load beyond saturation has less power than the one before it, so adding it changes
nothing. The load at which a limit is crossed is bracketed by measured loads; between them a rising curve is fitted
(isotonic regression), because latency rises with load. The noise of a load is pooled over the rounds of nearby loads
that were met: two or three rounds alone are too few, and the noise is larger near saturation. Interval ends are loads
that were run and shown to lie beyond, so they hold for a curve of any form.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean

from virtune.analyse.stats.student import mean_and_radius, two_sided
from virtune.analyse.study.offered_load import (
    CONFIDENCE,
    knee_of,
    load_point,
    loads_near,
    met_share,
    noise_of,
    sound_trials,
)
from virtune.analyse.trial.rejection import pardons
from virtune.model.evidence import StudyRecord
from virtune.model.reason import Reason, Why, because
from virtune.model.result import LoadEstimate, LoadPoint, LoadSweep
from virtune.model.search import RESOLUTION, SWEEP_LOADS_MAX, SweepPlan

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
    saturation, knee = saturation_of(points), knee_of(points)
    most = None if study.sweep.limit is None else most_of(points)
    chosen = not study.sweep.loads and bool(points)
    above, below = _beyond(points, study.sweep) if chosen else (None, None)
    gaps = tuple(_gaps(points, study.sweep)) if chosen and above is None and below is None else ()
    return LoadSweep(
        study=study,
        finished=record.finished,
        points=points,
        saturation=saturation,
        knee=knee,
        most=most,
        why=tuple(_why(points, study.sweep, saturation, knee, most)),
        gaps=gaps,
        above=above,
        below=below,
    )


def saturation_of(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the saturation: the rate achieved at the lowest loads that were not met; None if all were met."""
    first = next((index for index, one in enumerate(points) if not one.met), None)
    if first is None:
        return None
    near = [one for one in points[first:] if one.offered <= points[first].offered * NEAR_SATURATION and not one.met]
    rates = [rate for one in near for rate in one.achieved]
    mean, radius = mean_and_radius(rates, CONFIDENCE)
    if radius is None:
        return LoadEstimate(iops=mean, low=None, high=None)
    return LoadEstimate(iops=mean, low=max(0.0, mean - radius), high=mean + radius)


def most_of(points: Sequence[LoadPoint]) -> LoadEstimate | None:
    """Return the greatest load at which the limit holds, where the rising curve crosses it; None where no load keeps
    it or none breaks it.
    """
    fitted = _rising([_excess(one) for one in points])
    first = next((index for index, value in enumerate(fitted) if value > 0), None)
    if first is None or first == 0:
        return None
    before, after = points[first - 1], points[first]
    share = -fitted[first - 1] / (fitted[first] - fitted[first - 1])
    # the next load may be beyond saturation, where the achieved rate is below the offered one
    reach = after.offered if after.met else max(after.iops, before.offered)
    crossing = math.exp(math.log(before.offered) + share * math.log(max(reach, before.offered) / before.offered))
    sure = [_beyond_zero(one, *noise_of([other.excess for other in loads_near(points, one)])) for one in points]
    low = next((points[index].offered for index in range(first - 1, -1, -1) if sure[index] < 0), None)
    high = next((min(points[i].offered, points[i].iops) for i in range(first, len(points)) if sure[i] > 0), None)
    return LoadEstimate(iops=crossing, low=low, high=None if high is None else max(high, crossing))


def _points(record: StudyRecord, plan: SweepPlan) -> Iterator[LoadPoint]:
    study, attempts = record.study, record.attempts or record.trials
    pardoned = pardons(attempts)
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
    above = points[-1].offered * GROWTH if points[-1].met and not broken else None
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
        wanted |= {index for index, (low, high) in enumerate(pairwise(points)) if low.met and not high.met}
        best = max(range(len(points)), key=lambda index: fmean(points[index].power))
        wanted |= {best - 1, best}
    for index in sorted(wanted & set(range(len(points) - 1))):
        low, high = points[index].offered, points[index + 1].offered
        if high / low > 1 + RESOLUTION:
            yield low, high


def _excess(point: LoadPoint) -> float:
    """By how much a load breaks the limit, as a logarithm; at an unmet load the queue grows without end."""
    known = fmean(point.excess) if point.excess else 0.0
    return known if point.met and point.excess else max(known, RESOLUTION)


def _beyond_zero(point: LoadPoint, noise: float, free: int) -> int:
    """Return -1 for a load that is shown to keep the limit, 1 for one that is shown to break it, else 0."""
    if not point.met:
        return 1
    if not point.excess or free == 0:
        return 0
    half = two_sided(CONFIDENCE, free) * noise / math.sqrt(len(point.excess))
    mean = fmean(point.excess)
    return -1 if mean + half < 0 else 1 if mean - half > 0 else 0


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
    saturation: LoadEstimate | None,
    knee: LoadEstimate | None,
    most: LoadEstimate | None,
) -> Iterator[Why]:
    """Say why each missing result was not found."""
    if not points:
        yield because(Reason.NOTHING_MEASURED)
        return
    if saturation is None:
        yield because(Reason.NOT_SATURATED, most=points[-1].offered)
    if knee is None:
        yield because(Reason.TOO_FEW_LOADS)
    if plan.limit is not None and most is None:
        if _excess(points[0]) <= 0:
            yield because(Reason.LIMIT_ALWAYS_KEPT, limit=plan.limit.text, most=points[-1].offered)
        else:
            yield because(Reason.LIMIT_ALWAYS_BROKEN, limit=plan.limit.text, least=points[0].offered)
