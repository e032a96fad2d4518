# SPDX-License-Identifier: Apache-2.0
"""The schema of a study's result: what `virtune compare`, `measure`, `resume` and `show` write with `--json`."""

from tools.schemas.facts_words import FACTS
from tools.schemas.names import KEYS
from tools.schemas.shape import Schema
from tools.schemas.typed import Typed, schema_of
from virtune.model.knobs import KNOBS
from virtune.model.verdict import Verdict
from virtune.report.json.pair_parts import ComparisonPart, DifferencePart, IntervalPart
from virtune.report.json.parts import A_METRIC
from virtune.report.json.probe import ProbeDocument
from virtune.report.json.result_parts import SCHEMA, CheckPart, MetricPart, ResultDocument, TrialPart, ValuePart

_PLACED = {".".join(knob.place): knob for knob in KNOBS if knob.place}

WORDS: dict[str, str] = {
    "Stack.rig": "What brings the stack up; `metal` is no QEMU at all, and the rest then means nothing.",
    "Stack.domain": "The libvirt domain that the disk is plugged into, of rig `libvirt` only.",
    "Stack.export": _PLACED["export"].what,
    "Stack.num_queues": "Queues of a vhost-user-blk export; null is one.",
    "Stack.iothread": "Whether an IOThread serves the export; null is the default of the kind of export.",
    "Stack.poll_max_ns": "How long that IOThread polls at most, in ns; null is QEMU's default.",
    "Stack.thread_pool_max": _PLACED["thread_pool_max"].what,
    "Stack.machine": "The guest besides its disk, of rig `qemu` only; null is what virtune's guests get unasked.",
    "Stack.pins": "Where the guest's threads run, of rig `qemu` only; null is on any CPU.",
    "Stack.guests": _PLACED["guests"].what,
    "Stack.idle_guests": _PLACED["idle_guests"].what,
    **{
        f"Stack.{place}": _PLACED[place].what
        for place in (
            "own_images",
            "spread",
            "disks",
            "own_iothreads",
            "second",
            "cache_state",
            "place",
            "neighbour",
            "load_depth",
        )
    },
    "Stack.device": "The disk as a guest sees it, of rig `qemu` only; null is QEMU's default.",
    "Stack.disk": "The disk; null is QEMU's default.",
} | {f"{knob.place[0].capitalize()}.{knob.place[1]}": knob.what for knob in _PLACED.values() if len(knob.place) == 2}
"""By `Class.field`; of what a knob sets, the words are the knob's."""

_UNITS = {
    "Disk.cluster_size": "in bytes",
    "Disk.l2_cache_size": "in bytes",
    "Disk.throttle_iops": "in I/Os a second",
    "Disk.throttle_bps": "in bytes a second",
    "Device.logical_block_size": "in bytes",
    "Device.physical_block_size": "in bytes",
    "Machine.memory": "in bytes",
    "Machine.hugepages": "in bytes",
    "Disk.null_latency_ns": "in nanoseconds",
}


NAMED = {
    ProbeDocument: "Facts",
    ComparisonPart: "Comparison",
    DifferencePart: "Difference",
    IntervalPart: "Interval",
    TrialPart: "Trial",
    MetricPart: "Metric",
    ValuePart: "Value",
}
"""The parts that are definitions, by their names."""


def _undecided_without_a_ratio(key: str) -> Schema:
    return {
        "if": {"properties": {"ratio": {"type": "null"}}},
        "then": {"properties": {key: {"const": Verdict.UNDECIDED.value}}},
    }


RULES = {
    CheckPart: {
        "if": {"properties": {"found": {"type": "null"}}},
        "then": {"properties": {"agrees": {"type": "null"}}},
        "else": {"properties": {"agrees": {"type": "boolean"}}},
    },
    TrialPart: {
        "if": {"properties": {"failure": {"type": "null"}}},
        "then": {"properties": {"measurement": {"type": "object"}}},
        "else": {"properties": {"measurement": {"type": "null"}}},
    },
    ComparisonPart: _undecided_without_a_ratio("verdict"),
    DifferencePart: _undecided_without_a_ratio("difference"),
}
"""What holds between keys."""


def schema() -> str:
    """Return the schema as text."""
    words = WORDS | {name: f"{WORDS[name]} Here {unit}." for name, unit in _UNITS.items()}
    shapes = Typed(words | FACTS, named=NAMED, keys=KEYS, rules=RULES)
    shapes.definitions["MetricName"] = {"description": "The id of a metric.", **A_METRIC}
    return schema_of(SCHEMA, "The result of a study", ResultDocument, shapes)
