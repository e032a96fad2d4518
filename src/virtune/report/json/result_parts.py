# SPDX-License-Identifier: Apache-2.0
"""The keys of a result document."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from virtune.model.durability import Promise
from virtune.model.knobs import KNOBS
from virtune.model.metric import METRICS
from virtune.model.stack import Stack
from virtune.report.json.document import (
    A_MOMENT,
    AT_LEAST_ONE,
    IDENTITY,
    NOT_EMPTY,
    NOT_NEGATIVE,
    Keys,
    ProgramVersion,
    Sentence,
)
from virtune.report.json.layers import LayersPart
from virtune.report.json.pair_parts import ComparisonPart, ConditionPart, DifferencePart, MeasuredAs
from virtune.report.json.parts import IN_WORDS, KneePart, RampPart, RemarkPart
from virtune.report.json.probe import ProbeDocument
from virtune.report.json.study_parts import ResultBasisPart, StudyPart

SCHEMA = "virtune/result/8"

_ALL_METRICS = {"propertyNames": {"enum": [one.id for one in METRICS]}}
_SETTINGS = {"propertyNames": {"enum": ["rig", *(knob.id for knob in KNOBS if knob.place)]}}


class MetricPart(TypedDict):
    """A metric."""

    label: Annotated[str, "Its name in tables."]
    unit: Annotated[
        str, f"Its unit: {', '.join(f'{unit} {words}' for unit, words in IN_WORDS.items())}.", {"enum": [*IN_WORDS]}
    ]
    better: Annotated[Literal["higher", "lower"], "Which way is better."]


class CheckPart(TypedDict):
    """One setting: as asked, and as found on the running process."""

    setting: Annotated[str, "The knob, or what shows it (O_DIRECT, load.direct); `data` for --check-data."]
    asked: Annotated[str, "The value that was asked for."]
    found: Annotated[str | None, "The value that runs; null where the running system gives no way to see it."]
    agrees: Annotated[bool | None, "Whether both are the same; null where it could not be seen."]
    proof: Annotated[str, "How it was seen."]


class ValuePart(TypedDict):
    """One metric of one arm over the rounds."""

    value: Annotated[
        float,
        "The geometric mean of rates and times, the mean of shares in %; a percentile comes from the added"
        " histograms. In the metric's unit.",
    ]
    rounds: Annotated[int, "Rounds that it rests on.", AT_LEAST_ONE]
    spread: Annotated[float | None, "Relative standard deviation of the rounds (0.03 is 3 %); null without one."]
    resolved: Annotated[
        bool,
        "False for a percentile with fewer than 100 I/Os beyond it, and for the middle one of imported results that"
        " have no distributions to add.",
    ]
    low: Annotated[
        float | None,
        "The lower end of a percentile's own 95 % interval, over sections of the rounds; null for other metrics and"
        " with fewer than five rounds.",
    ]
    high: Annotated[float | None, "The upper end; null as `low`, and where the data bound it only from below."]
    measured_as: MeasuredAs
    typical: Annotated[
        float | None,
        "The value of a typical round, as tables show it beside changes: for the baseline the mean of its rounds (of"
        " logarithms, extreme rounds count less), for another arm that times its change; of a share in % the arm's"
        " own median round. Null where arms are not compared within rounds.",
    ]


class _RepeatedRemark(RemarkPart):
    """One thing that a good reader notices."""

    rounds: Annotated[int, "In how many rounds it was made; the text is the first's.", AT_LEAST_ONE]


class SummaryPart(TypedDict):
    """One workload over all rounds."""

    workload: Annotated[str, "Its name."]
    rounds: Annotated[int, "Rounds that gave a measurement.", NOT_NEGATIVE]
    values: Annotated[Mapping[str, ValuePart], "By metric. One that is missing was not measured.", Keys.METRICS]
    remarks: Annotated[list[_RepeatedRemark], "Warnings and notes."]
    failures: Annotated[list[Annotated[str, "A reason."]], "Why trials failed."]
    attempts: Annotated[int, "Attempts at its trials, failed and invalid ones too.", NOT_NEGATIVE]
    invalid: Annotated[
        Mapping[str, Annotated[int, "A number of attempts.", AT_LEAST_ONE]],
        "How many of them were invalid, by the id of the remark that says why.",
        Keys.CAUSES,
    ]
    layers: LayersPart | None


class ChangeoverPart(TypedDict):
    """How the arm came to run after the one before it; null where no process of ours carries it."""

    swapped: Annotated[str | None, "What was exchanged in a process that ran; null for a new process."]
    seconds: Annotated[float, "What taking down the one before and bringing this one up took.", NOT_NEGATIVE]
    process: Annotated[int, "The id of the process.", AT_LEAST_ONE]
    carried: Annotated[int, "How many arms the process had carried before.", NOT_NEGATIVE]
    why: Annotated[str, "Why a new process was needed; empty where none was."]
    text: Annotated[str, "The same in words."]


class MeasurementPart(TypedDict):
    """What was measured."""

    method: Annotated[int, "The number of the way in which it was derived from the evidence.", AT_LEAST_ONE]
    values: Annotated[Mapping[str, float], "By metric. One that is missing was not measured.", Keys.METRICS]
    remarks: Annotated[list[RemarkPart], "Warnings and notes."]
    gates: Annotated[Mapping[str, float], "What the gates read.", Keys.GATES]


class TrialPart(TypedDict):
    """The arm under one workload, once."""

    round: Annotated[int, "The round, from 1.", AT_LEAST_ONE]
    number: Annotated[int, "Its place in the order of running, from 1; `show --trial` takes it.", AT_LEAST_ONE]
    workload: Annotated[str, "The workload's name."]
    ended: Annotated[str | None, "When it ended, in UTC; null where an imported result does not say.", A_MOMENT]
    attempt: Annotated[int, "The attempt that counts, from 1.", AT_LEAST_ONE]
    changeover: ChangeoverPart | None
    failure: Annotated[str | None, "Why it failed; null when it did not."]
    measurement: MeasurementPart | None


class DurabilityPart(TypedDict):
    """What it promises of a guest's writes; null for an imported arm."""

    promise: Annotated[Promise, "The class: who promises less is not simply faster."]
    why: Annotated[str, "What a write survives there, and why."]


class GuestsPart(TypedDict):
    """The guests of virtune's own that share an arm's load; null where there are none."""

    count: Annotated[int, "How many they are.", {"minimum": 1}]
    vcpus: Annotated[int, "Their vCPUs together.", {"minimum": 1}]
    memory_bytes: Annotated[int, "Their memory together.", {"minimum": 1}]


class ArmPart(TypedDict):
    """One stack under comparison."""

    name: Annotated[str, "Its name."]
    stack: Annotated[Any, Stack | None, "All of the stack; null for an imported arm."]
    durability: DurabilityPart | None
    guests: GuestsPart | None
    settings: Annotated[
        Mapping[str, Annotated[str, "The value as it was written."]], "What was asked for, by knob.", _SETTINGS
    ]
    options: Annotated[
        Mapping[str, Annotated[str, "The value."]], "Of an imported arm: what its jobs say beside their workloads."
    ]
    in_force: Annotated[list[CheckPart], "What was found on the running processes."]
    workloads: Annotated[list[SummaryPart], "What it did, by workload.", NOT_EMPTY]
    rounds: Annotated[list[TrialPart], "Its trials so far, by number."]


class WaiverPart(TypedDict):
    """One such cause."""

    cause: Annotated[str, "The id of the remark that says it of a trial."]
    arm: Annotated[str | None, "The arm that it comes with; null where it is this host's."]
    text: Annotated[str, "The reason, with its numbers."]


class ResultDocument(TypedDict):
    """What `virtune compare`, `measure`, `resume` and `show` write with `--json`. Base units throughout: ns, bytes,
    1/s, CPU seconds per I/O; only shares of a CPU and of time are in %.
    """

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    study: StudyPart
    facts: Annotated[ProbeDocument | None, "The host as it was when the study began."]
    metrics: Annotated[Mapping[str, MetricPart], "All that there are.", _ALL_METRICS]
    arms: Annotated[list[ArmPart], "The stacks under comparison, in the order they were given.", NOT_EMPTY]
    comparisons: Annotated[
        list[ComparisonPart],
        "Every arm against the baseline (`pairs` all: every pair) on the study's metrics, for each workload; their"
        " errors are bounded together.",
    ]
    differences: Annotated[
        list[DifferencePart],
        "Every metric of every arm against the baseline. Those of a metric with verdicts are the verdicts; the others"
        " stand each for itself: with many of them, some are chance.",
    ]
    conditions: Annotated[list[ConditionPart], "What became of each `--fail-if`, for each workload and arm."]
    pardons: Annotated[list[WaiverPart], "Causes of invalidity for which trials count nevertheless, and why."]
    ramps: Annotated[list[RampPart], "Ramps that were found too short, in the order of time."]
    patterns: Annotated[list[Sentence], "What the figures show beside the verdicts: a tail that all arms share, say."]
    knees: Annotated[list[KneePart], "Of arms at offered loads, where greater loads are shown to be beyond it."]
    basis: ResultBasisPart
