# SPDX-License-Identifier: Apache-2.0
"""What one study on many hosts says: does a setting help everywhere, which host is odd, and what has it."""

from collections.abc import Mapping
from dataclasses import replace

from virtune.analyse.fleet.odd import HOSTS_MIN, funnel
from virtune.analyse.fleet.pooled import pooled
from virtune.analyse.fleet.ranks import ranks
from virtune.analyse.fleet.summary import estimate_of
from virtune.analyse.fleet.times import require_comparable
from virtune.analyse.fleet.traits import traits
from virtune.model.errors import VirtuneError
from virtune.model.fleet import FleetEffect, FleetLevel, FleetReport, HostSummary
from virtune.model.study import Study

RANK_SEED = 1


def answer(study: Study, summaries: Mapping[str, HostSummary]) -> FleetReport:
    """Return the answer of the same study on many hosts: `study` is one of theirs, `summaries` are by their names."""
    others = [arm.name for arm in study.arms if arm.name != study.baseline]
    return FleetReport(
        hosts=tuple(summaries),
        study=study,
        effects=tuple(
            _effect(summaries, workload.name, candidate) for workload in study.compared for candidate in others
        ),
        levels=tuple(_level(summaries, study.baseline, workload.name) for workload in study.compared),
        methods=tuple(sorted({method for one in summaries.values() for method in one.methods})),
    )


def _effect(summaries: Mapping[str, HostSummary], workload: str, candidate: str) -> FleetEffect:
    found = {
        host: one
        for host, summary in summaries.items()
        for one in summary.verdicts
        if (one.workload, one.candidate) == (workload, candidate)
    }
    known = {host: estimate_of(host, summaries[host], one) for host, one in found.items()}
    estimates = tuple(one for one in known.values() if one is not None)
    return FleetEffect(
        workload=workload,
        candidate=candidate,
        verdicts=tuple((host, one.verdict) for host, one in found.items()),
        ratios=tuple((host, one.ratio) for host, one in found.items() if one.ratio is not None),
        estimates=estimates,
        left_out=tuple(host for host in summaries if known.get(host) is None),
        pooled=pooled(estimates) if len(estimates) > 1 else None,
        points=funnel(estimates) if len(estimates) >= HOSTS_MIN else (),
    )


def _level(summaries: Mapping[str, HostSummary], arm: str, workload: str) -> FleetLevel:
    """Judge the baseline's level: refused, with the reason, where hosts cannot be compared."""
    estimates = tuple(
        replace(one, host=host)
        for host, summary in summaries.items()
        for name, one in summary.levels
        if name == workload
    )
    there = {one.host for one in estimates}
    left_out = tuple(host for host in summaries if host not in there)
    try:
        require_comparable(estimates)
        points = funnel(estimates)
    except VirtuneError as error:
        return FleetLevel(workload=workload, arm=arm, estimates=estimates, left_out=left_out, refused=error.message)
    odd = {one.host for one in points if one.odd}
    return FleetLevel(
        workload=workload,
        arm=arm,
        estimates=estimates,
        left_out=left_out,
        points=points,
        ranks=ranks(estimates, seed=RANK_SEED),
        traits=traits({one.host: summaries[one.host].facts for one in estimates}, odd) if odd else (),
    )
