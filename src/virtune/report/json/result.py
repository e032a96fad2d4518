# SPDX-License-Identifier: Apache-2.0
"""A study's result for machines: one JSON document with a published, versioned schema.

History of the schema:

virtune/result/1   first version
virtune/result/2   `measured_as` says where completion latency stands for total latency; metrics of reads and writes;
                   limits on an arm's own value among the conditions
virtune/result/3   `reason`: the code of why a verdict or a condition is what it is, beside its words
virtune/result/4   `patterns`, `knees`; of a stack `disks`, `own_images`, `own_iothreads`, `second`,
                   `cache_state`, `place`, `neighbour` and `pins.load`
virtune/result/6   `rbd` of a stack's disk: its pool on Ceph
virtune/result/5   `typical` of a value: that of a typical round, which tables show beside changes
virtune/result/7   `first_reads`: what was read of the images before the first trial
virtune/result/8   `guests` of an arm: how many share the load, and what vCPUs and memory they have together;
                   `plain` of a comparison: the ratio of arithmetic means
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from virtune import __version__
from virtune.model.condition import ThresholdResult
from virtune.model.durability import durability_of
from virtune.model.evidence import Changeover, Check, StudyRecord
from virtune.model.measurement import Measurement
from virtune.model.metric import BY_ID
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study
from virtune.report.json.layers import layers_document
from virtune.report.json.pair_parts import comparison_part, condition_part, difference_part
from virtune.report.json.parts import (
    basis_part,
    checked_part,
    first_read_parts,
    knee_part,
    ramp_part,
    remark_part,
)
from virtune.report.json.result_parts import (
    SCHEMA,
    ArmPart,
    ChangeoverPart,
    CheckPart,
    DurabilityPart,
    GuestsPart,
    MeasurementPart,
    ResultDocument,
    SummaryPart,
    TrialPart,
    ValuePart,
)
from virtune.report.json.study_parts import ResultBasisPart, StudyPart
from virtune.report.reproduce import command_again, question_of


def result_document(result: Result, record: StudyRecord, rulings: Sequence[ThresholdResult] = ()) -> ResultDocument:
    """Return a whole result, as plain JSON values in base units (ns, bytes, 1/s, CPU seconds per I/O)."""
    study = result.study
    document: ResultDocument = {
        "schema": SCHEMA,
        "virtune": __version__,
        "study": _study(study, result),
        "facts": json.loads(record.facts) if record.facts else None,
        "metrics": {m.id: {"label": m.label, "unit": m.unit, "better": m.better} for m in BY_ID.values()},
        "arms": [_arm(arm, result, record) for arm in study.arms],
        "comparisons": [comparison_part(one) for one in result.verdicts],
        "differences": [difference_part(one) for one in result.differences],
        "conditions": [condition_part(one) for one in rulings],
        "pardons": [{"cause": one.cause, "arm": one.arm, "text": one.text} for one in result.pardons],
        "ramps": [ramp_part(one) for one in result.ramps],
        "patterns": [*study.unequal_guests, *result.patterns],
        "knees": [knee_part(one) for one in result.knees],
        "basis": _basis(result),
    }
    return _without_unknowns(document) if study.imported else document


def _study(study: Study, result: Result) -> StudyPart:
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
        "stopped": result.stopped,
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
        "first_reads": first_read_parts(study),
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


def _basis(result: Result) -> ResultBasisPart:
    """The evidence that the report of a comparison must state besides its verdicts."""
    study = result.study
    return {
        "question": question_of(study),
        "unit": "round" if study.paired else "run",
        "error": round(1 - study.confidence, 12),
        "pairs": len(result.verdicts),
        "checked": checked_part(study.checked),
        "workloads": [basis_part(one) for one in result.basis],
        "command": command_again(study) or None,
    }


def _arm(arm: Arm, result: Result, record: StudyRecord) -> ArmPart:
    summaries = [summary for summary in result.arms if summary.arm == arm.name]
    return {
        "name": arm.name,
        "stack": asdict(arm.stack),
        "durability": _durability(arm.stack),
        "guests": _guests(arm.stack),
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


def _guests(stack: Stack) -> GuestsPart | None:
    if stack.vcpus is None or stack.memory is None:
        return None
    return {"count": stack.guests, "vcpus": stack.vcpus, "memory_bytes": stack.memory}


def _durability(stack: Stack) -> DurabilityPart:
    found = durability_of(stack)
    return {"promise": found.promise, "why": found.words}


def _summary(summary: ArmSummary) -> SummaryPart:
    return {
        "workload": summary.workload,
        "rounds": summary.rounds,
        "values": {value.metric: _value(value) for value in summary.values},
        "remarks": [{**remark_part(one.remark), "rounds": one.rounds} for one in summary.remarks],
        "failures": list(summary.failures),
        "attempts": summary.attempts,
        "invalid": dict(summary.invalid),
        "layers": layers_document(summary.layers),
    }


def _changeover(found: Changeover | None) -> ChangeoverPart | None:
    if found is None:
        return None
    return {
        "swapped": found.swapped,
        "seconds": found.seconds,
        "process": found.process,
        "carried": found.carried,
        "why": found.why,
        "text": found.text,
    }


def _value(value: Value) -> ValuePart:
    return {
        "value": value.value,
        "rounds": value.rounds,
        "spread": value.spread,
        "resolved": value.resolved,
        "low": value.low,
        "high": value.high,
        "measured_as": value.measured_as,
        "typical": value.typical,
    }


def _measurement(measurement: Measurement) -> MeasurementPart:
    return {
        "method": measurement.method,
        "values": dict(measurement.values),
        "remarks": [remark_part(remark) for remark in measurement.remarks],
        "gates": dict(measurement.gates),
    }


def _checks(checks: Iterable[Check]) -> list[CheckPart]:
    unique = {(check.setting, check.asked, check.found): check for check in checks}
    return [
        {"setting": c.setting, "asked": c.asked, "found": c.found, "agrees": c.agrees, "proof": c.proof}
        for c in unique.values()
    ]


def _without_unknowns(document: ResultDocument) -> ResultDocument:
    """Return the same with null for what is unknown of an imported study, which virtune did not see run."""
    study: StudyPart = {
        **document["study"],
        "seconds": None,
        "ramp_seconds": None,
        "seed": None,
        "span_bytes": None,
        "scratch": None,
        "measured_seconds": None,
    }
    return {**document, "study": study, "arms": [_imported(arm) for arm in document["arms"]]}


def _imported(arm: ArmPart) -> ArmPart:
    rounds: list[TrialPart] = [{**one, "ended": one["ended"] or None} for one in arm["rounds"]]
    return {**arm, "stack": None, "durability": None, "rounds": rounds}
