# SPDX-License-Identifier: Apache-2.0
"""The values of a typical round, which differ between arms by what the comparison within rounds says.

A mean over all rounds does not: one disturbed round moves it, and the comparison gives such a round little weight.
Nor does a percentile of all I/Os together: a few bad rounds decide the p99 of all, whatever the other rounds show.
The baseline's value is the same kind of mean as a change is: where a part of its rounds were slow, its median times
a change would be a value that the other arm never had.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from virtune.analyse.stats.paired import mean_of_rounds
from virtune.analyse.study.percentile_evidence import measured_in_place
from virtune.analyse.study.verdicts import Evidence
from virtune.model.metric import BY_ID, Metric
from virtune.model.result import ArmSummary, Value
from virtune.model.verdict import Comparison


def with_typical(
    arms: Sequence[ArmSummary], evidence: Evidence, differences: Sequence[Comparison]
) -> tuple[ArmSummary, ...]:
    """Return the summaries with the values of a typical round, where arms are compared within rounds."""
    if not evidence.study.paired:
        return tuple(arms)
    most = {one.workload: 0 for one in differences}
    for one in differences:
        most[one.workload] = max(most[one.workload], one.rounds)
    ratios = {
        (one.candidate, one.workload, one.metric): one.ratio.estimate
        for one in differences
        # a percentile that few rounds have enough I/Os for is not that of a typical round
        if one.ratio is not None and 2 * one.rounds > most[one.workload]
    }
    compared = {(workload, metric) for _, workload, metric in ratios}
    busy = {workload for workload, _ in compared}
    return tuple(
        replace(one, values=_in_order([_typical(value, one, evidence, ratios, compared) for value in one.values]))
        if one.workload in busy
        else one
        for one in arms
    )


def _in_order(values: Sequence[Value]) -> tuple[Value, ...]:
    """Leave out the typical value of a percentile that is below one of a lower percentile: each has its own rounds
    of little weight, so on a very noisy host they may contradict one another.
    """
    greatest: dict[str, float] = {}
    kept = list(values)
    percentiles = [place for place, value in enumerate(values) if BY_ID[value.metric].percent is not None]
    for place in sorted(percentiles, key=lambda place: BY_ID[values[place].metric].percent or 0.0):
        value = values[place]
        kind = BY_ID[value.metric].of
        if value.typical is None:
            continue
        if value.typical < greatest.get(kind, 0.0):
            kept[place] = replace(value, typical=None)
        else:
            greatest[kind] = value.typical
    return tuple(kept)


def _typical(
    value: Value,
    summary: ArmSummary,
    evidence: Evidence,
    ratios: Mapping[tuple[str, str, str], float],
    compared: set[tuple[str, str]],
) -> Value:
    metric, workload, baseline = BY_ID[value.metric], summary.workload, evidence.study.baseline
    if not metric.compared:  # the use of a CPU or device: by itself, like the arm's other values
        known = metric.unit == "%" and metric.over == "mean"
        return replace(value, typical=_middle(evidence, summary.arm, workload, metric)) if known else value
    if (workload, value.metric) not in compared:
        return value
    ratio = 1.0 if summary.arm == baseline else ratios.get((summary.arm, workload, value.metric))
    actual = measured_in_place(evidence.stand_ins, workload, metric)
    base = mean_of_rounds(_rounds(evidence, baseline, workload, actual), robust=evidence.study.sequential)
    return value if ratio is None or base is None else replace(value, typical=base * ratio)


def _middle(evidence: Evidence, arm: str, workload: str, metric: Metric) -> float | None:
    """Return the median of an arm's valid rounds; None where none has a value."""
    found = [value for value in _rounds(evidence, arm, workload, metric) if math.isfinite(value)]
    return median(found) if found else None


def _rounds(evidence: Evidence, arm: str, workload: str, metric: Metric) -> list[float]:
    return [row.get(metric.id, math.nan) for row in evidence.rows.get((arm, workload), {}).values()]
