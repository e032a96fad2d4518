# SPDX-License-Identifier: Apache-2.0
"""The schema of a study's result: what `virtune compare`, `measure`, `resume` and `show` write with `--json`."""

from tools.schemas.facts_words import FACTS
from tools.schemas.layers import layers
from tools.schemas.names import CAUSES
from tools.schemas.parts import (
    IN_WORDS,
    basis,
    by_metric,
    checked,
    identity,
    measured,
    metric_word,
    program_version,
    ramp,
    remark,
)
from tools.schemas.shape import (
    Schema,
    Shapes,
    by_name,
    maybe,
    moment,
    number,
    rows,
    switch,
    table,
    text,
    whole,
    word,
    written,
)
from tools.schemas.typed import Typed
from virtune.model.condition import Outcome
from virtune.model.durability import Promise
from virtune.model.gate import GATES
from virtune.model.knobs import KNOBS
from virtune.model.metric import METRICS
from virtune.model.reason import OF_VERDICTS
from virtune.model.result import Stopped
from virtune.model.stack import Stack
from virtune.model.study import StudyKind
from virtune.model.verdict import Interval, Verdict
from virtune.report.json.probe import ProbeDocument
from virtune.report.json.result import SCHEMA

KINDS = tuple(kind for kind in StudyKind if kind not in (StudyKind.TUNE, StudyKind.SWEEP))
"""The kinds of studies that this document is about: a search and a sweep have their own."""

GATE_UNITS = {
    "share": "as a share (0 to 1)",
    "count": "a number",
    "1/s": "a second",
    "s": "in seconds",
    "C": "in degrees above the drive's own limit, negative below it",
}
"""The units of gates in words."""

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
    "Stack.spread": _PLACED["spread"].what,
    "Stack.device": "The disk as a guest sees it, of rig `qemu` only; null is QEMU's default.",
    "Stack.disk": "The disk; null is QEMU's default.",
    "Interval.estimate": "The ratio itself: of geometric means over the rounds. 1 is no change.",
    "Interval.low": "The lower end of the interval.",
    "Interval.high": "The upper end of the interval.",
    "Interval.confidence": "The confidence of this interval, 0 to 1.",
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


def schema() -> str:
    """Return the schema as text."""
    shapes = Shapes(WORDS | {name: f"{WORDS[name]} Here {unit}." for name, unit in _UNITS.items()})
    stack, ratio = shapes.of(Stack), shapes.of(Interval)
    if shapes.unused():
        raise KeyError(f"words for what is gone: {', '.join(shapes.unused())}")
    of_facts = Typed(FACTS)
    facts = of_facts.of(ProbeDocument)
    definitions = {
        "Comparison": _comparison("verdict", ratio),
        "Difference": _comparison("difference", ratio),
        "Trial": _trial(),
        "Metric": _metric(),
        "MetricName": metric_word("The id of a metric."),
        "Value": _value(),
        "Facts": facts,
    }
    body = table(
        "What `virtune compare`, `measure`, `resume` and `show` write with `--json`. Base units throughout: ns,"
        " bytes, 1/s, CPU seconds per I/O; only shares of a CPU and of time are in %.",
        {
            "schema": identity(SCHEMA),
            "virtune": program_version(),
            "study": _study(),
            "facts": maybe({"description": "The host as it was when the study began.", "$ref": "#/$defs/Facts"}),
            "metrics": by_name("All that there are.", {"$ref": "#/$defs/Metric"}, [one.id for one in METRICS]),
            "arms": rows("The stacks under comparison, in the order they were given.", _arm(stack), minItems=1),
            "comparisons": rows(
                "Every arm against the baseline (`pairs` all: every pair) on the study's metrics, for each workload;"
                " their errors are bounded together.",
                {"$ref": "#/$defs/Comparison"},
            ),
            "differences": rows(
                "Every metric of every arm against the baseline. Those of a metric with verdicts are the verdicts;"
                " the others stand each for itself: with many of them, some are chance.",
                {"$ref": "#/$defs/Difference"},
            ),
            "conditions": rows("What became of each `--fail-if`, for each workload and arm.", _condition()),
            "pardons": rows("Causes of invalidity for which trials count nevertheless, and why.", _pardon()),
            "ramps": rows("Ramps that were found too short, in the order of time.", ramp()),
            "basis": _basis(),
        },
    )  # fmt: skip
    return written(SCHEMA, "The result of a study", body, definitions | shapes.definitions | of_facts.definitions)


def _basis() -> Schema:
    return table(
        "What is to be known beside the verdicts to weigh them.",
        {
            "question": text("What was asked, in a sentence."),
            "unit": word("What is analysed as one observation; never an I/O.", ("round", "run")),
            "error": number("The chance that any of `comparisons` says what is not so, all of them together and"
                            " however often they were looked at.", minimum=0, maximum=1),
            "pairs": whole("How many comparisons share that error.", minimum=0),
            "checked": checked(),
            "workloads": rows("By workload; none for a single arm and for imported results.", basis()),
            "command": maybe(text("The command line that asks it again, with its seed; null for imported results.")),
        },
    )  # fmt: skip


def _condition() -> Schema:
    ratio = "of candidate / baseline, or of candidate / value; null where there is no interval."
    return table(
        "The result of one condition for one comparison. All of them together hold at the study's confidence.",
        {
            "condition": text("The condition."),
            "metric": _metric_name("The metric."),
            "limit": maybe(number("The ratio candidate / baseline that is the limit (1.05 is +5 %); null for a limit"
                                  " on a value.", minimum=0)),
            "value": maybe(number("The value that is the limit, in the metric's base unit; null for a change.")),
            "workload": text("The workload's name."),
            "baseline": maybe(text("The baseline; null for a limit on a value.")),
            "candidate": text("The arm that is judged."),
            "measured_as": measured_as(),
            "low": maybe(number(f"The lower end of the interval {ratio}")),
            "high": maybe(number(f"The upper end of the interval {ratio}")),
            "confidence": maybe(number("The confidence of this interval, 0 to 1.")),
            "outcome": word("`breached`: the whole interval lies beyond the limit; `held`: on the near side of it;"
                            " `undecided`: it straddles the limit, or nothing can be concluded.", Outcome),
            "why": text("The reason, in words."),
            "reason": reason(),
        },
    )  # fmt: skip


def reason() -> Schema:
    """Return the code of a reason."""
    return word("The same as a code, which stays the same whatever the words are.", OF_VERDICTS)


def measured_as() -> Schema:
    """Return the schema of what was measured in a metric's place."""
    return maybe(
        _metric_name("The metric of completion latency that was measured in its place; null where it was itself.")
    )


def _metric_name(description: str) -> Schema:
    return {"description": description, "$ref": "#/$defs/MetricName"}


def _metric() -> Schema:
    return table(
        "A metric.",
        {
            "label": text("Its name in tables."),
            "unit": word(f"Its unit: {', '.join(f'{unit} {words}' for unit, words in IN_WORDS.items())}.", IN_WORDS),
            "better": word("Which way is better.", ("higher", "lower")),
        },
    )


def _study() -> Schema:
    job = table(
        "One fio job.",
        {
            "name": text("Its name."),
            "options": by_name("Its options in fio's words.", text("The value, as text.")),
        },
    )
    workload = table(
        "What is asked of the disk.",
        {
            "name": text("Its name."),
            "meaning": text("What it stands for, in words."),
            "offered_iops": maybe(number("I/Os offered a second; null where one waits for another.", minimum=0)),
            "probe": switch("True where only the baseline ran it, to find its saturation."),
            "jobs": rows("The jobs, which run together.", job, minItems=1),
        },
    )
    unknown = "; null for imported results."
    return table(
        "What was to be found out, and how.",
        {
            "id": text("By which `show`, `resume` and `explain` find it."),
            "kind": word("The verb that made it.", KINDS),
            "builtin": maybe(text("Which study that ships with virtune it is; null for any other.")),
            "created": moment("When it was begun, in UTC."),
            "finished": switch("Whether every trial gave a measurement."),
            "trials": whole("Trials that it consists of.", minimum=1),
            "trials_done": whole("Trials that gave a measurement.", minimum=0),
            "measured_seconds": maybe(number(f"Measured time of these together, in seconds{unknown}", minimum=0)),
            "baseline": text("The arm to compare the others with."),
            "metric": _metric_name("The metric of the verdicts."),
            "rounds": whole("Rounds: each tries every arm under every workload once.", minimum=1),
            "seconds": maybe(number(f"Measured time of one trial, in seconds{unknown}", exclusiveMinimum=0)),
            "ramp_seconds": maybe(number(f"Warm-up before it, not measured, in seconds{unknown}", minimum=0)),
            "seed": maybe(whole(f"Seed of the order of trials and of random offsets{unknown}", minimum=0)),
            "at_load": rows("Offered loads as asked for: `50%`, `5000iops`.", text("A load.")),
            "judged": rows("The metrics that got verdicts, the main one first.", text("A metric.")),
            "margin": number("The smallest relative difference worth knowing (0.03 is 3 %).", exclusiveMinimum=0),
            "confidence": number("Of all `comparisons` together, 0 to 1.", exclusiveMinimum=0, exclusiveMaximum=1),
            "span_bytes": maybe(whole(f"Bytes of the scratch image, or used of a target{unknown}", minimum=1)),
            "scratch": maybe(text(f"The directory of the scratch images{unknown}")),
            "target": maybe(text("The user's own file or device that was loaded; null for scratch images.")),
            "elapsed_seconds": maybe(
                number(
                    "What its trials took with all that they need, interruptions left out, in"
                    " seconds; null where nothing shows it.",
                    minimum=0,
                )
            ),
            "stopped": maybe(
                word("Why a sequential study has ended; null while it has not, and for any other.", Stopped)
            ),
            "sequential": switch(
                "Whether it was looked at after every round and stopped when every pair and condition was decided;"
                " `rounds` and `budget_seconds` are then the most that it takes."
            ),
            "budget_seconds": maybe(
                number("The most time of running trials, in seconds; null is no limit.", exclusiveMinimum=0)
            ),
            "pairs": word("Which pairs of arms get verdicts: those with the baseline, or all.", ["all", "baseline"]),
            "looks": maybe(
                rows(
                    "The looks of a comparison whose end is planned; null for results that are judged otherwise.",
                    table(
                        "A look.",
                        {
                            "round": whole("The round after which it was.", minimum=1),
                            "share": number("The share of the plan that was done then.", minimum=0, maximum=1),
                        },
                    ),
                )
            ),
            "paired": switch("Whether arms ran in turn and are compared within rounds; imported results are not."),
            "workloads": rows("The workloads, in the order they were given.", workload, minItems=1),
        },
    )


def _arm(stack: Schema) -> Schema:
    asked = ["rig", *(knob.id for knob in KNOBS if knob.place)]
    return table(
        "One stack under comparison.",
        {
            "name": text("Its name."),
            "stack": maybe({"description": "All of the stack; null for an imported arm.", **stack}),
            "durability": maybe(
                table(
                    "What it promises of a guest's writes; null for an imported arm.",
                    {
                        "promise": word("The class: who promises less is not simply faster.", Promise),
                        "why": text("What a write survives there, and why."),
                    },
                )
            ),
            "settings": by_name("What was asked for, by knob.", text("The value as it was written."), asked),
            "options": by_name("Of an imported arm: what its jobs say beside their workloads.", text("The value.")),
            "in_force": rows("What was found on the running processes.", _check()),
            "workloads": rows("What it did, by workload.", _summary(), minItems=1),
            "rounds": rows("Its trials so far, by number.", {"$ref": "#/$defs/Trial"}),
        },
    )


def _check() -> Schema:
    check = table(
        "One setting: as asked, and as found on the running process.",
        {
            "setting": text("The knob, or what shows it (O_DIRECT, load.direct)."),
            "asked": text("The value that was asked for."),
            "found": maybe(text("The value that runs; null where the running system gives no way to see it.")),
            "agrees": {"description": "Whether both are the same; null where it could not be seen.",
                       "type": ["boolean", "null"]},
            "proof": text("How it was seen."),
        },
    )  # fmt: skip
    unseen = {"properties": {"found": {"type": "null"}}}
    return check | {
        "if": unseen,
        "then": {"properties": {"agrees": {"type": "null"}}},
        "else": {"properties": {"agrees": {"type": "boolean"}}},
    }


def _value() -> Schema:
    return table(
        "One metric of one arm over the rounds.",
        {
            "value": number(
                "The geometric mean of rates and times, the mean of shares in %; a percentile comes from the added"
                " histograms. In the metric's unit."
            ),
            "rounds": whole("Rounds that it rests on.", minimum=1),
            "spread": maybe(number("Relative standard deviation of the rounds (0.03 is 3 %); null without one.")),
            "resolved": switch("False for a percentile with fewer than 100 I/Os beyond it."),
            "low": maybe(
                number(
                    "The lower end of a percentile's own 95 % interval, over sections of the rounds; null"
                    " for other metrics and with fewer than five rounds."
                )
            ),
            "high": maybe(number("The upper end; null as `low`, and where the data bound it only from below.")),
            "measured_as": measured_as(),
        },
    )


def _summary() -> Schema:
    with_rounds = remark()
    with_rounds["properties"]["rounds"] = whole("In how many rounds it was made; the text is the first's.", minimum=1)
    with_rounds["required"].append("rounds")
    return table(
        "One workload over all rounds.",
        {
            "workload": text("Its name."),
            "rounds": whole("Rounds that gave a measurement.", minimum=0),
            "values": by_metric("By metric. One that is missing was not measured.", {"$ref": "#/$defs/Value"}),
            "remarks": rows("Warnings and notes.", with_rounds),
            "failures": rows("Why trials failed.", text("A reason.")),
            "attempts": whole("Attempts at its trials, failed and invalid ones too.", minimum=0),
            "invalid": by_name(
                "How many of them were invalid, by the id of the remark that says why.",
                whole("A number of attempts.", minimum=1),
                CAUSES,
            ),
            "layers": layers(),
        },
    )


def _trial() -> Schema:
    gates = {gate.id: number(f"{gate.label[0].upper()}{gate.label[1:]}, {GATE_UNITS[gate.unit]}.") for gate in GATES}
    measurement = table(
        "What was measured.",
        {
            "method": whole("The number of the way in which it was derived from the evidence.", minimum=1),
            "values": measured("By metric. One that is missing was not measured."),
            "remarks": rows("Warnings and notes.", remark()),
            "gates": table("What the gates read.", gates, optional=gates),
        },
    )
    trial = table(
        "The arm under one workload, once.",
        {
            "round": whole("The round, from 1.", minimum=1),
            "number": whole("Its place in the order of running, from 1; `show --trial` takes it.", minimum=1),
            "workload": text("The workload's name."),
            "ended": maybe(moment("When it ended, in UTC; null where an imported result does not say.")),
            "attempt": whole("The attempt that counts, from 1.", minimum=1),
            "changeover": maybe(_changeover()),
            "failure": maybe(text("Why it failed; null when it did not.")),
            "measurement": maybe(measurement),
        },
    )
    return trial | {
        "if": {"properties": {"failure": {"type": "null"}}},
        "then": {"properties": {"measurement": {"type": "object"}}},
        "else": {"properties": {"measurement": {"type": "null"}}},
    }


def _pardon() -> Schema:
    return table(
        "One such cause.",
        {
            "cause": text("The id of the remark that says it of a trial."),
            "arm": maybe(text("The arm that it comes with; null where it is this host's.")),
            "text": text("The reason, with its numbers."),
        },
    )


def _changeover() -> Schema:
    return table(
        "How the arm came to run after the one before it; null where no process of ours carries it.",
        {
            "swapped": maybe(text("What was exchanged in a process that ran; null for a new process.")),
            "seconds": number("What taking down the one before and bringing this one up took.", minimum=0),
            "process": whole("The id of the process.", minimum=1),
            "carried": whole("How many arms the process had carried before.", minimum=0),
            "why": text("Why a new process was needed; empty where none was."),
            "text": text("The same in words."),
        },
    )


def _comparison(key: str, ratio: Schema) -> Schema:
    found = table(
        "Two arms, one workload, one metric, paired by round.",
        {
            "workload": text("The workload's name."),
            "metric": _metric_name("The metric."),
            "baseline": text("The baseline of the comparison."),
            "candidate": text("The arm that is judged."),
            "rounds": whole("Rounds that both arms have a usable value in.", minimum=0),
            "ratio": maybe({"description": "candidate / baseline; null where there were too few rounds.", **ratio}),
            "change": maybe(number("Of arms that are not paired: the ratio of their geometric means, else null.")),
            "noise": maybe(
                number(
                    "Standard deviation of one round's difference (ln), as it went into the interval; null"
                    " where the rounds were fixed beforehand, or bear none.",
                    minimum=0,
                )
            ),
            "lag1": maybe(
                number("How alike neighbouring rounds were taken to be, 0 to 0.9; null as `noise`.", minimum=0)
            ),
            "rounds_left": maybe(
                whole(
                    "A forecast for an undecided pair: so many more rounds would decide it if the"
                    " noise stays; null where that cannot be said.",
                    minimum=1,
                )
            ),
            "measured_as": measured_as(),
            "why": text("The reason of the verdict, in words."),
            "reason": reason(),
            key: word("What may be said of the candidate. `undecided` is an answer.", Verdict),
        },
    )
    return found | {
        "if": {"properties": {"ratio": {"type": "null"}}},
        "then": {"properties": {key: {"const": Verdict.UNDECIDED.value}}},
    }
