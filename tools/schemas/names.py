# SPDX-License-Identifier: Apache-2.0
"""What the keys of mappings are names of: metrics, and the causes that make a trial invalid."""

from collections.abc import Callable, Mapping

from tools.pages.said import said_in
from tools.schemas.parts import meaning
from tools.schemas.shape import Schema
from virtune.analyse.trial import cache_rules, derive, validity_rules
from virtune.model import verification
from virtune.model.gate import GATES
from virtune.model.metric import METRICS
from virtune.model.remark import Weight
from virtune.report.json.document import Keys

SAYS = (cache_rules, derive, validity_rules, verification)
"""The modules that make the remarks of a trial, beside the gates."""

CAUSES = sorted(
    {gate.id for gate in GATES if gate.invalid is not None}
    | {one.id for module in SAYS for one in said_in(module) if Weight.INVALID in one.weights}
)
"""Everything that may make a trial invalid, by the ids of the remarks."""


def _by_metric(value: Schema) -> Schema:
    """Keys of metrics; one that is missing was not measured."""
    properties = {metric.id: {"description": meaning(metric), **value} for metric in METRICS}
    return {"properties": properties, "required": [], "additionalProperties": False}


def _by_cause(_value: Schema) -> Schema:
    return {"propertyNames": {"enum": CAUSES}}


KEYS: Mapping[Keys, Callable[[Schema], Schema]] = {Keys.METRICS: _by_metric, Keys.CAUSES: _by_cause}
