# SPDX-License-Identifier: Apache-2.0
"""What one host's study says, as far as the report of a fleet needs it."""

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from statistics import fmean, stdev

import numpy as np

from virtune.analyse.fleet.differ import flat
from virtune.analyse.stats.anytime import LAG1_MAX
from virtune.analyse.stats.noise import lag1_of
from virtune.analyse.study.verdicts import Evidence, evidence_of, verdicts_of
from virtune.model.evidence import StudyRecord
from virtune.model.fleet import HostEstimate, HostSummary
from virtune.model.verdict import Comparison

SUMMARY = 1
"""The number of how a summary is made, beside that of the measurements' method. One that was kept under another
number is made anew: raise it when the same measurements give another summary.

1  first version
"""

ROUNDS_MIN = 3
"""A standard error of fewer rounds has a heavy tail that no interval of many hosts repairs."""


def summary_of(record: StudyRecord) -> HostSummary:
    """Return the summary of a finished study."""
    study, evidence = record.study, evidence_of(record)
    begun, ended = _span(record)
    # the verdicts alone: all else that a result has takes ten times as long
    against = (study.baseline, study.metric)
    levels = ((workload.name, level_of("", record, workload.name, evidence)) for workload in study.compared)
    return HostSummary(
        study=study.id,
        source=hashlib.sha256(record.facts.encode(errors="surrogatepass")).hexdigest(),
        begun=begun,
        ended=ended,
        verdicts=tuple(one for one in verdicts_of(evidence) if (one.baseline, one.metric) == against),
        levels=tuple((workload, one) for workload, one in levels if one is not None),
        facts=_facts(record),
        methods=record.methods,
    )


def estimate_of(host: str, summary: HostSummary, one: Comparison) -> HostEstimate | None:
    """Return a host's effect with the standard error that went into its interval; None where there is none.

    A comparison's `noise` has the allowance for autocorrelation in it already.
    """
    if one.ratio is None or not one.noise or one.rounds < ROUNDS_MIN:
        return None
    return HostEstimate(
        host=host,
        value=math.log(one.ratio.estimate),
        error=one.noise / math.sqrt(one.rounds),
        df=one.rounds - 1,
        begun=summary.begun,
        ended=summary.ended,
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
    lag1 = min(max(float(lag1_of(np.array(logs)[:, None])), 0.0), LAG1_MAX)
    # the standard error of an AR(1) series
    error = spread / math.sqrt(len(logs)) * math.sqrt((1 + lag1) / (1 - lag1))
    begun, ended = _span(record)
    return HostEstimate(host=host, value=fmean(logs), error=error, df=len(logs) - 1, begun=begun, ended=ended)


def _span(record: StudyRecord) -> tuple[datetime, datetime]:
    begun = datetime.fromisoformat(record.study.created)
    return begun, max((datetime.fromisoformat(one.ended) for one in record.trials if one.ended), default=begun)


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
