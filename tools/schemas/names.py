# SPDX-License-Identifier: Apache-2.0
"""What the keys of mappings are names of: metrics, and the causes that make a trial invalid."""

from collections.abc import Callable, Mapping

from tools.schemas.shape import Schema, exactly
from virtune.model.gate import GATES
from virtune.model.metric import METRICS, Metric
from virtune.model.remark import Weight
from virtune.model.remark_kinds import REMARK_KINDS
from virtune.report.json.document import Keys
from virtune.report.json.parts import IN_WORDS

CAUSES = sorted(one.id for one in REMARK_KINDS if Weight.INVALID in one.weights)
"""Everything that may make a trial invalid, by the ids of the remarks."""


GATE_UNITS = {
    "share": "as a share (0 to 1)",
    "count": "a number",
    "1/s": "a second",
    "s": "in seconds",
    "C": "in degrees above the drive's own limit, negative below it",
}
"""The units of gates in words."""


def _meaning(metric: Metric) -> str:
    return f"{metric.label}, in {IN_WORDS[metric.unit]}; {metric.better} is better."


def _by_metric(value: Schema) -> Schema:
    """Keys of metrics; one that is missing was not measured."""
    properties = {metric.id: {"description": _meaning(metric), **value} for metric in METRICS}
    return {"properties": properties, "required": [], "additionalProperties": False}


def _units(_value: Schema) -> Schema:
    properties = {metric.id: exactly(IN_WORDS[metric.unit], metric.unit) for metric in METRICS}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _by_cause(_value: Schema) -> Schema:
    return {"propertyNames": {"enum": CAUSES}}


def _by_gate(value: Schema) -> Schema:
    properties = {
        gate.id: {**value, "description": f"{gate.label[0].upper()}{gate.label[1:]}, {GATE_UNITS[gate.unit]}."}
        for gate in GATES
    }
    return {"properties": properties, "required": [], "additionalProperties": False}


KEYS: Mapping[Keys, Callable[[Schema], Schema]] = {
    Keys.METRICS: _by_metric,
    Keys.UNITS: _units,
    Keys.CAUSES: _by_cause,
    Keys.GATES: _by_gate,
}
