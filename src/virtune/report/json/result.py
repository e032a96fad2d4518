# SPDX-License-Identifier: Apache-2.0
"""A study's result for machines: one JSON document with a published, versioned schema.

History of the schema:

virtune/result/1   first version
virtune/result/2   `measured_as` says where completion latency stands for total latency; metrics of reads and writes;
                   limits on an arm's own value among the conditions
virtune/result/3   `reason`: the code of why a verdict or a condition is what it is, beside its words
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from virtune import __version__
from virtune.model.condition import ThresholdResult
from virtune.model.durability import durability_of
from virtune.model.evidence import Changeover, Check, StudyRecord
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID
from virtune.model.remark import Remark
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study
from virtune.model.verdict import Comparison
from virtune.report.json.layers import layers_document
from virtune.report.reproduce import command_again, question_of
from virtune.report.text.imported import without_unknowns
from virtune.report.text.thresholds import conditions_document

SCHEMA = "virtune/result/3"


def result_document(result: Result, record: StudyRecord, rulings: Sequence[ThresholdResult] = ()) -> dict[str, Any]:
    """Return a whole result, as plain JSON values in base units (ns, bytes, 1/s, CPU seconds per I/O)."""
    study = result.study
    document = {
        "schema": SCHEMA,
        "virtune": __version__,
        "study": _study(study, result),
        "facts": json.loads(record.facts) if record.facts else None,
        "metrics": {m.id: {"label": m.label, "unit": m.unit, "better": m.better} for m in BY_ID.values()},
        "arms": [_arm(arm, result, record) for arm in study.arms],
        "comparisons": [_comparison(c, "verdict") for c in result.verdicts],
        "differences": [_comparison(c, "difference") for c in result.differences],
        "conditions": conditions_document(rulings),
        "pardons": [asdict(pardon) for pardon in result.pardons],
        "ramps": [asdict(finding) for finding in result.ramps],
        "basis": _basis(result),
    }
    return without_unknowns(document) if study.imported else document


def _study(study: Study, result: Result) -> dict[str, Any]:
    return {
        "id": study.id,
        "kind": study.kind,
        "created": study.created,
        "builtin": study.builtin or None,
        "finished": result.finished,
        "trials": len(study.trials),
        "trials_done": result.trials_done,
        "measured_seconds": result.measured_seconds,
        "elapsed_seconds": result.elapsed_seconds,
        "stopped": None if result.stopped is None else result.stopped.value,
        "baseline": study.baseline,
        "metric": study.metric,
        "rounds": study.rounds,
        "seconds": study.seconds,
        "ramp_seconds": study.ramp_seconds,
        "seed": study.seed,
        "at_load": list(study.at_load),
        "judged": list(study.judged),
        "margin": study.margin,
        "confidence": study.confidence,
        "span_bytes": study.span_bytes,
        "scratch": study.scratch,
        "target": study.target,
        "paired": study.paired,
        "sequential": study.sequential,
        "pairs": study.pairs,
        "looks": None if study.looks is None else [{"round": one, "share": share} for one, share in study.looks],
        "budget_seconds": study.budget_seconds,
        "workloads": [
            {
                "name": w.name,
                "meaning": w.meaning,
                "offered_iops": w.offered_iops,
                "probe": w.probe,
                "jobs": [{"name": j.name, "options": j.as_dict()} for j in w],
            }
            for w in study.workloads
        ],
    }


def _basis(result: Result) -> dict[str, Any]:
    """The evidence that the report of a comparison must state besides its verdicts."""
    study = result.study
    return {
        "question": question_of(study),
        "unit": "round" if study.paired else "run",
        "error": round(1 - study.confidence, 12),
        "pairs": len(result.verdicts),
        "checked": None if study.checked is None else asdict(study.checked),
        "workloads": [asdict(one) for one in result.basis],
        "command": command_again(study) or None,
    }


def _arm(arm: Arm, result: Result, record: StudyRecord) -> dict[str, Any]:
    summaries = [summary for summary in result.arms if summary.arm == arm.name]
    return {
        "name": arm.name,
        "stack": asdict(arm.stack),
        "durability": _durability(arm.stack),
        "settings": dict(arm.settings),
        "options": dict(arm.options),
        "in_force": _checks(check for summary in summaries for check in summary.in_force),
        "workloads": [_summary(summary) for summary in summaries],
        "rounds": [
            {
                "round": trial.trial.round,
                "number": trial.trial.number,
                "workload": trial.trial.workload,
                "ended": trial.ended,
                "attempt": trial.attempt,
                "changeover": _changeover(trial.in_force.changeover),
                "failure": trial.failure,
                "measurement": None if trial.measurement is None else _measurement(trial.measurement),
            }
            for trial in record.trials
            if trial.trial.arm == arm.name
        ],
    }


def _durability(stack: Stack) -> dict[str, Any]:
    found = durability_of(stack)
    return {"promise": found.promise.value, "why": found.words}


def _summary(summary: ArmSummary) -> dict[str, Any]:
    return {
        "workload": summary.workload,
        "rounds": summary.rounds,
        "values": {value.metric: _value(value) for value in summary.values},
        "remarks": [_remark(one.remark) | {"rounds": one.rounds} for one in summary.remarks],
        "failures": list(summary.failures),
        "attempts": summary.attempts,
        "invalid": dict(summary.invalid),
        "layers": layers_document(summary.layers),
    }


def _changeover(found: Changeover | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found) | {"text": found.text}


def _value(value: Value) -> dict[str, Any]:
    return {
        "value": value.value,
        "rounds": value.rounds,
        "spread": value.spread,
        "resolved": value.resolved,
        "low": value.low,
        "high": value.high,
        "measured_as": value.measured_as,
    }


def _measurement(measurement: Measurement) -> dict[str, Any]:
    return {
        "method": measurement.method,
        "values": dict(measurement.values),
        "remarks": [_remark(remark) for remark in measurement.remarks],
        "gates": dict(measurement.gates),
    }


def _remark(remark: Remark) -> dict[str, Any]:
    return {"id": remark.id, "weight": remark.weight.value, "text": remark.text, "advice": remark.advice}


def _checks(checks: Iterable[Check]) -> list[dict[str, Any]]:
    unique = {(check.setting, check.asked, check.found): check for check in checks}
    return [
        {"setting": c.setting, "asked": c.asked, "found": c.found, "agrees": c.agrees, "proof": c.proof}
        for c in unique.values()
    ]


def _comparison(comparison: Comparison, key: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "workload": comparison.workload,
        "metric": comparison.metric,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "rounds": comparison.rounds,
        "ratio": None if comparison.ratio is None else asdict(comparison.ratio),
        "change": comparison.change,
        "noise": comparison.noise,
        "lag1": comparison.lag1,
        "rounds_left": comparison.rounds_left,
        "measured_as": comparison.measured_as,
        "why": comparison.why,
        "reason": comparison.reason.value,
    }
    return document | {key: comparison.verdict.value}
