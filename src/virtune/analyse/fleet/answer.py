# SPDX-License-Identifier: Apache-2.0
"""What one study on many hosts says: does a setting help everywhere, which host is odd, and what has it."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean, stdev

import numpy as np

from virtune.analyse.fleet.differ import flat
from virtune.analyse.fleet.odd import HOSTS_MIN, funnel
from virtune.analyse.fleet.pooled import pooled
from virtune.analyse.fleet.ranks import ranks
from virtune.analyse.fleet.times import require_comparable
from virtune.analyse.fleet.traits import traits
from virtune.analyse.stats.anytime import LAG1_MAX
from virtune.analyse.stats.noise import lag1_of
from virtune.analyse.study.verdicts import Evidence, evidence_of, verdicts_of
from virtune.model.errors import VirtuneError
from virtune.model.evidence import StudyRecord
from virtune.model.fleet import FleetEffect, FleetLevel, FleetReport, HostEstimate
from virtune.model.study import Study
from virtune.model.verdict import Comparison

ROUNDS_MIN = 3
"""A standard error of fewer rounds has a heavy tail that no interval of many hosts repairs."""

RANK_SEED = 1


def answer(studies: Mapping[str, StudyRecord]) -> FleetReport:
    """Return the answer of the same study on many hosts, by their names."""
    study = next(iter(studies.values())).study
    others = [arm.name for arm in study.arms if arm.name != study.baseline]
    # the verdicts alone: all else that a summary has takes ten times as long
    evidence = {host: evidence_of(one) for host, one in studies.items()}
    verdicts = {host: tuple(verdicts_of(one)) for host, one in evidence.items()}
    return FleetReport(
        hosts=tuple(studies),
        study=study,
        effects=tuple(
            _effect(studies, verdicts, workload.name, candidate)
            for workload in study.compared
            for candidate in others
        ),
        levels=tuple(_level(studies, evidence, workload.name) for workload in study.compared),
        methods=tuple(sorted({method for one in studies.values() for method in one.methods})),
    )


def _effect(
    studies: Mapping[str, StudyRecord], verdicts: Mapping[str, Sequence[Comparison]], workload: str, candidate: str
) -> FleetEffect:
    found: dict[str, Comparison] = {}
    estimates, left_out = [], []
    for host, record in studies.items():
        one = _comparison(record.study, verdicts[host], workload, candidate)
        estimate = None if one is None else estimate_of(host, record, one)
        if one is not None:
            found[host] = one
        if estimate is None:
            left_out.append(host)
        else:
            estimates.append(estimate)
    return FleetEffect(
        workload=workload,
        candidate=candidate,
        verdicts=tuple((host, one.verdict) for host, one in found.items()),
        ratios=tuple((host, one.ratio) for host, one in found.items() if one.ratio is not None),
        estimates=tuple(estimates),
        left_out=tuple(left_out),
        pooled=pooled(estimates) if len(estimates) > 1 else None,
        points=funnel(estimates) if len(estimates) >= HOSTS_MIN else (),
    )


def _comparison(study: Study, verdicts: Sequence[Comparison], workload: str, candidate: str) -> Comparison | None:
    key = (workload, candidate, study.baseline, study.metric)
    return next((one for one in verdicts if (one.workload, one.candidate, one.baseline, one.metric) == key), None)


def estimate_of(host: str, record: StudyRecord, one: Comparison) -> HostEstimate | None:
    """Return a host's effect with the standard error that went into its interval; None where there is none.

    A comparison's `noise` has the allowance for autocorrelation in it already.
    """
    if one.ratio is None or not one.noise or one.rounds < ROUNDS_MIN:
        return None
    return _estimate(host, record, math.log(one.ratio.estimate), one.noise / math.sqrt(one.rounds), one.rounds)


def _level(studies: Mapping[str, StudyRecord], evidence: Mapping[str, Evidence], workload: str) -> FleetLevel:
    """Judge the baseline's level: refused, with the reason, where hosts cannot be compared."""
    study = next(iter(studies.values())).study
    known = {host: level_of(host, record, workload, evidence[host]) for host, record in studies.items()}
    estimates = [one for one in known.values() if one is not None]
    left_out = tuple(host for host, one in known.items() if one is None)
    try:
        require_comparable(estimates)
        points = funnel(estimates)
    except VirtuneError as error:
        return FleetLevel(
            workload=workload, arm=study.baseline, estimates=tuple(estimates), left_out=left_out,
            refused=error.message,
        )  # fmt: skip
    odd = {one.host for one in points if one.odd}
    facts = {one.host: _facts(studies[one.host]) for one in estimates} if odd else {}
    return FleetLevel(
        workload=workload,
        arm=study.baseline,
        estimates=tuple(estimates),
        left_out=left_out,
        points=points,
        ranks=ranks(estimates, seed=RANK_SEED),
        traits=traits(facts, odd),
    )


def level_of(host: str, record: StudyRecord, workload: str, evidence: Evidence | None = None) -> HostEstimate | None:
    """Return the logarithm of the baseline's main metric over the rounds of a host; None for too few rounds.

    `evidence` is the study's, where it is known already.
    """
    study = record.study
    rounds = (evidence or evidence_of(record)).rows.get((study.baseline, workload), {})
    values = [row.get(study.metric, math.nan) for _, row in sorted(rounds.items())]
    logs = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    if len(logs) < ROUNDS_MIN or (spread := stdev(logs)) == 0:
        return None
    lag1 = min(max(lag1_of(np.array(logs)[:, None]), 0.0), LAG1_MAX)
    # the standard error of an AR(1) series
    error = spread / math.sqrt(len(logs)) * math.sqrt((1 + lag1) / (1 - lag1))
    return _estimate(host, record, fmean(logs), error, len(logs))


def _estimate(host: str, record: StudyRecord, value: float, error: float, rounds: int) -> HostEstimate:
    begun = datetime.fromisoformat(record.study.created)
    ended = max(datetime.fromisoformat(one.ended) for one in record.trials if one.ended)
    return HostEstimate(host=host, value=value, error=error, df=rounds - 1, begun=begun, ended=ended)


def _facts(record: StudyRecord) -> Mapping[str, str]:
    """Return the facts of a host, and the settings of the baseline as they were read back while it ran."""
    settings = {
        f"setting.{check.setting}": check.found
        for one in record.trials
        if one.trial.arm == record.study.baseline
        for check in one.in_force.checks
        if check.found is not None
    }
    return {**_host_facts(record), **settings}


def _host_facts(record: StudyRecord) -> Mapping[str, str]:
    try:
        found = json.loads(record.facts or "{}")
    except ValueError:
        return {}
    return flat(found.get("host") if isinstance(found, dict) else None)
