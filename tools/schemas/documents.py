# SPDX-License-Identifier: Apache-2.0
"""The published schemas by the names of their files: of every document that virtune writes, and of plan files.

keys.json has a digest of the keys of every document for each number of its schema: a key that comes, goes or is
renamed needs the next number. `python -m tools.reference` records a number that it has not seen, and stops where the
keys of a recorded one differ. Until a release has a number its entry may be taken out by hand.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.schemas.shape import COMMENT, Schema, Shapes, written
from virtune.model.knob import Knob, Size, describe_domain
from virtune.model.knobs import BY_ID, KNOBS
from virtune.model.metric import METRICS, Metric
from virtune.model.remark import GATES, REMARK_KINDS, Weight
from virtune.model.stack import Stack, setting_of
from virtune.model.verdict import Verdict
from virtune.plan.planfile import plan_schema, plan_words
from virtune.report.json import audit, explain, fleet, host, knobs, listing, live, result, tune
from virtune.report.json.document import Keys
from virtune.report.json.parts import A_METRIC, IN_WORDS

DOCUMENTS: Mapping[str, tuple[str, Any]] = {
    "advice": ("Advice for domains", audit.AdviceDocument),
    "audit": ("An audit of domains", audit.AuditDocument),
    "check": ("A check of a host", host.CheckDocument),
    "derive": ("What was derived again", listing.DeriveDocument),
    "diagnose": ("A diagnosis", live.DiagnoseDocument),
    "domains": ("Domains and their disks", audit.DomainsDocument),
    "explain": ("fio results, explained", explain.ExplainDocument),
    "fleet-apply": ("A change of the VMs of many hosts", fleet.FleetApplyDocument),
    "fleet-audit": ("The audit of many hosts", fleet.FleetAuditDocument),
    "fleet-history": ("How the hosts of a fleet did over time", fleet.FleetHistoryDocument),
    "fleet-runs": ("The runs of a fleet that are kept", fleet.FleetRunsDocument),
    "fleet-gather": ("What was gathered from many hosts", fleet.GatherDocument),
    "fleet-install": ("What was installed on many hosts", fleet.FleetInstallDocument),
    "fleet-inventory": ("The hosts of a fleet", fleet.InventoryDocument),
    "fleet-probe": ("The probe of many hosts", fleet.FleetProbeDocument),
    "fleet-report": ("The report of a fleet", fleet.FleetReportDocument),
    "fleet-run": ("A study on many hosts", fleet.FleetRunDocument),
    "fleet-tune": ("A search over many hosts", fleet.FleetTuneDocument),
    "knobs": ("Knobs of the I/O path", knobs.KnobsDocument),
    "list": ("The studies in a store", listing.ListDocument),
    "probe": ("The facts of a host", host.ProbeDocument),
    "result": ("The result of a study", result.ResultDocument),
    "sweep": ("One stack under more and more load", result.SweepDocument),
    "top": ("The disks of running VMs", live.TopDocument),
    "tune": ("The result of a search", tune.TuneDocument),
    "watch": ("When disks were slow, and why", live.WatchDocument),
    "watch-event": ("A rule that began or ceased to hold", live.WatchEventDocument),
}
"""The title and the type of each."""

PLAN = "virtune/plan/1"

NAMED: Mapping[Any, str] = {
    audit.FindingPart: "Finding",
    audit.DomainPart: "Domain",
    audit.RunningPart: "Running",
    audit.DomainDiskPart: "Disk",
    host.ProbeDocument: "Facts",
    knobs.KnobPart: "Knob",
    result.ComparisonPart: "Comparison",
    result.DifferencePart: "Difference",
    result.TrialPart: "Trial",
    result.MetricPart: "Metric",
}
"""The parts that are definitions, by their names."""


def _undecided_without_a_ratio(key: str) -> Schema:
    return {
        "if": {"properties": {"ratio": {"type": "null"}}},
        "then": {"properties": {key: {"const": Verdict.UNDECIDED.value}}},
    }


RULES: Mapping[Any, Schema] = {
    result.CheckPart: {
        "if": {"properties": {"found": {"type": "null"}}},
        "then": {"properties": {"agrees": {"type": "null"}}},
        "else": {"properties": {"agrees": {"type": "boolean"}}},
    },
    result.TrialPart: {
        "if": {"properties": {"failure": {"type": "null"}}},
        "then": {"properties": {"measurement": {"type": "object"}}},
        "else": {"properties": {"measurement": {"type": "null"}}},
    },
    result.ComparisonPart: _undecided_without_a_ratio("verdict"),
    result.DifferencePart: _undecided_without_a_ratio("difference"),
}
"""What holds between keys."""

GATE_UNITS = {
    "share": "as a share (0 to 1)",
    "count": "a number",
    "1/s": "a second",
    "s": "in seconds",
    "C": "in degrees above the drive's own limit, negative below it",
}
"""The units of gates in words."""


REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
RECORD = REFERENCE / "keys.json"

_BY_NAME = ("metrics", "values", "units", "gates", "set", "vary", "arm")
"""Keys whose own keys are names of metrics, gates or knobs: another one of these is no other document."""


def schema(name: str) -> str:
    """Return the text of a schema: of a document, or of plan files."""
    if name == "plan":
        return written(PLAN, "A plan file", plan_document())
    return shapes_of(name).document(*DOCUMENTS[name])


def shapes_of(name: str) -> Shapes:
    """Return what reads the types of a document."""
    found = Shapes(named=NAMED, keys=KEYS, rules=RULES, words=_words_of_knobs())
    if name == "result":  # keys refer to it as `MetricName`
        found.definitions["MetricName"] = {"description": "The id of a metric.", **A_METRIC}
    return found


def _words_of_knobs() -> dict[str, str]:
    """The words of what a knob sets in a stack, by `Class.field`; sizes are in bytes."""
    found = {}
    for knob in KNOBS:
        if knob.place:
            room, name = ("stack", *knob.place)[-2:]
            sized = isinstance(knob.domain, Size) and "bytes" not in knob.what
            unit = " Here in bytes." if sized else " Here in nanoseconds." if name.endswith("_ns") else ""
            found[f"{room.capitalize()}.{name}"] = f"{knob.what}{unit}"
    return found


def _meaning(metric: Metric) -> str:
    return f"{metric.label}, in {IN_WORDS[metric.unit]}; {metric.better} is better."


def _by_metric(value: Schema) -> Schema:
    """Keys of metrics; one that is missing was not measured."""
    properties = {metric.id: {"description": _meaning(metric), **value} for metric in METRICS}
    return {"properties": properties, "required": [], "additionalProperties": False}


def _units(_value: Schema) -> Schema:
    properties = {metric.id: {"description": IN_WORDS[metric.unit], "const": metric.unit} for metric in METRICS}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}


def _by_cause(_value: Schema) -> Schema:
    return {"propertyNames": {"enum": sorted(one.id for one in REMARK_KINDS if Weight.INVALID in one.weights)}}


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


def plan_document() -> Schema:
    """Return the reader's own schema with these words, and without what TOML cannot say (null)."""
    found = plan_schema()
    for name in ("$schema", "title"):
        del found[name]
    keys: Schema = found["properties"]
    found["properties"] = {name: _key(schema) for name, schema in keys.items()}
    found["description"] = "The values that a plan file's TOML stands for, with dotted keys as tables."
    for place in (keys["set"], keys["vary"], keys["arm"]["items"]):
        _say_knobs(place["properties"])
    return found


def _key(schema: Schema) -> Schema:
    plain = {key: value for key, value in schema.items() if key not in ("title", "default")}
    choices: list[Any] = [one for one in plain.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        plain = {key: value for key, value in plain.items() if key != "anyOf"} | choices[0]
    return plain


def _say_knobs(properties: Schema) -> None:
    """Give each knob its words: what it is, what may be written, what it is otherwise."""
    for room, schema in properties.items():
        if room == "rig":
            schema["description"] = plan_words("rig")
        elif room != "name":
            schema["description"] = f"The knobs `{room}.*`."
            for name, own in schema["properties"].items():
                knob = BY_ID[f"{room}.{name}"]
                own["description"] = (
                    f"{knob.what} Values: {describe_domain(knob.domain)}. Default: {begins_with(knob)}."
                )


def begins_with(knob: Knob) -> str:
    """Return the value that virtune's stacks have when nobody turns the knob."""
    value = setting_of(Stack(), knob)
    if isinstance(value, bool):
        return "on" if value else "off"
    own = {"kernel": "the guest kernel's own", "host": "as it is found", "load_depth": "the workload's own"}.get(
        knob.place[0], "QEMU's own"
    )
    return own if value is None else str(value)


def keys_of(text: str) -> list[str]:
    """Return every key of a schema's documents, as a path: `arms[].rounds[].number`."""
    schema = json.loads(text)
    return sorted(set(_keys(schema, "", schema.get("$defs", {}))))


def record(schemas: Mapping[str, str]) -> str:
    """Return the record with the keys of `schemas` (texts by the names of their files) in it; raises ValueError for
    keys that differ from those recorded for the same number.
    """
    kept: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept.pop("$comment", None)
    for page, text in schemas.items():
        identity, keys = str(json.loads(text)["$id"]).removeprefix("urn:").replace(":", "/"), keys_of(text)
        digest = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]
        if kept.setdefault(identity, digest) != digest:
            published = (REFERENCE / page).read_text(encoding="utf-8") if (REFERENCE / page).exists() else "{}"
            moved = sorted(set(keys_of(published)) ^ set(keys))
            raise ValueError(
                f"{page}: {identity} has other keys than were published ({', '.join(moved[:6])}); raise its number"
                " and say so in CHANGELOG.md"
            )
    return json.dumps({"$comment": COMMENT, **dict(sorted(kept.items()))}, indent=1) + "\n"


def _keys(schema: Any, path: str, definitions: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _keys(one, path, definitions)
        return
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield from _keys(definitions[schema["$ref"].removeprefix("#/$defs/")], path, definitions)
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}".lstrip(".")
        if name not in _BY_NAME:
            yield from _keys(inner, f"{path}.{name}".lstrip("."), definitions)
    for word in ("anyOf", "allOf", "oneOf"):
        yield from _keys(schema.get(word), path, definitions)
    for word in ("items", "additionalProperties", "prefixItems"):
        yield from _keys(schema.get(word), f"{path}[]", definitions)
