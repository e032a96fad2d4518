# SPDX-License-Identifier: Apache-2.0
"""The level of hosts over weeks: when it changed, by how much, and which recorded facts changed with it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev

import numpy as np

from virtune.analyse.fleet import drift_between
from virtune.analyse.stats.changes import SIDE_MIN, steps
from virtune.model.facts import TurnedFact
from virtune.model.fleet import HostEstimate, HostHistory, HostSummary, LevelChange
from virtune.model.study import Study

FALSE_ALARMS = 0.05
"""The chance that a change is named of hosts of which none has changed; it is shared by all that are asked."""

_SEED = 1


def histories(
    study: Study, summaries: Mapping[str, Sequence[HostSummary]], *, reference: str = ""
) -> tuple[HostHistory, ...]:
    """Return the level of each host's baseline over its studies of one question, and where it changed.

    With a `reference`, a host that nobody changes, what its level does over time is taken out of the others': what
    all share (storage, network, the time of year) is then no change of each of them. Its own stays as it is.
    """
    every = [
        (host, workload.name, points)
        for workload in study.compared
        for host, mine in summaries.items()
        if len(points := list(_points(host, workload.name, mine))) > 1
    ]
    common = {workload: [one for _, one in points] for host, workload, points in every if host == reference}
    found = []
    for host, workload, points in every:
        levels = [one for _, one in points]
        values = [one.value for one in levels]
        if host != reference and workload in common:
            values = _without(levels, common[workload])
        turns = steps(values, error=FALSE_ALARMS / len(every), seed=_SEED)
        parts = [range(*ends) for ends in pairwise([0, *(one.index for one in turns), len(values)])]
        changes = tuple(
            _change(points, values, before, after, p=turn.p, workload=workload, metric=study.metric)
            for turn, (before, after) in zip(turns, pairwise(parts), strict=True)
        )
        means = [fmean(values[one] for one in part) for part in parts for _ in part]
        rest = [value - mean for value, mean in zip(values, means, strict=True)]
        spread = math.sqrt(sum(one**2 for one in rest) / max(1, len(rest) - len(parts)))
        expected = tuple(level.value - one for level, one in zip(levels, rest, strict=True))
        found.append(
            HostHistory(
                host=host,
                workload=workload,
                levels=tuple(levels),
                expected=expected,
                spread=spread,
                changes=changes,
                judged=len(levels) >= 2 * SIDE_MIN,
            )
        )
    return tuple(found)


def _points(host: str, workload: str, studies: Sequence[HostSummary]) -> Iterator[tuple[HostSummary, HostEstimate]]:
    """Yield the studies of a host that have a level of a workload, in the order of time."""
    for one in sorted(studies, key=lambda one: one.begun):
        if (level := dict(one.levels).get(workload)) is not None:
            yield one, replace(level, host=host)


def _without(levels: Sequence[HostEstimate], reference: Sequence[HostEstimate]) -> list[float]:
    """Return the levels less what the reference's was beyond its mean at these times; between two times of it in
    proportion, before and after all of them as at the nearest.
    """
    times = [one.begun.timestamp() for one in reference]
    beyond = np.array([one.value for one in reference]) - fmean(one.value for one in reference)
    moved = np.interp([one.begun.timestamp() for one in levels], times, beyond)
    return [one.value - float(more) for one, more in zip(levels, moved, strict=True)]


def _change(
    points: Sequence[tuple[HostSummary, HostEstimate]], values: Sequence[float], before: range, after: range,
    *, p: float, workload: str, metric: str,
) -> LevelChange:  # fmt: skip
    sides = []
    for part in (before, after):
        mine = [values[index] for index in part]
        error = stdev(mine) / math.sqrt(len(mine))
        sides.append(replace(points[part[0]][1], value=fmean(mine), error=error, df=len(mine) - 1))
    summaries = [[points[index][0] for index in part] for part in (before, after)]
    drift = drift_between(*sides, workload=workload, metric=metric)
    last, first = summaries[0][-1], summaries[1][0]
    return LevelChange(
        last=last.study, study=first.study, begun=first.begun, ratio=drift.estimate, low=drift.low, high=drift.high,
        p=p, facts=tuple(_turned(*summaries)),
    )  # fmt: skip


def _turned(before: Sequence[HostSummary], after: Sequence[HostSummary]) -> Iterator[TurnedFact]:
    """Yield the facts that were one thing all the time before and another all the time after, with both values."""
    for key in sorted({key for one in (before[-1], after[0]) for key in one.facts}):
        was, now = ({one.facts.get(key, "absent") for one in part} for part in (before, after))
        if len(was) == len(now) == 1 and was != now:
            yield TurnedFact(key=key, before=was.pop(), after=now.pop())
