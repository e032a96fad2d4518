# SPDX-License-Identifier: Apache-2.0
"""The keys of what was asked, in a result document."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypedDict

from virtune.model.result import Stopped
from virtune.model.study import StudyKind
from virtune.report.json.document import AT_LEAST_ONE, NOT_EMPTY, NOT_NEGATIVE, POSITIVE, Moment
from virtune.report.json.pair_parts import A_METRIC_NAME
from virtune.report.json.parts import BasisPart, CheckedPart, FirstReads

KINDS = tuple(kind for kind in StudyKind if kind not in (StudyKind.TUNE, StudyKind.SWEEP))
"""The kinds of studies that a result is of: a search and a sweep have documents of their own."""

_SHARE = {"minimum": 0, "maximum": 1}
_IMPORTED = "; null for imported results."


class _Job(TypedDict):
    """One fio job."""

    name: Annotated[str, "Its name."]
    options: Annotated[Mapping[str, Annotated[str, "The value, as text."]], "Its options in fio's words."]


class WorkloadPart(TypedDict):
    """What is asked of the disk."""

    name: Annotated[str, "Its name."]
    meaning: Annotated[str, "What it stands for, in words."]
    offered_iops: Annotated[float | None, "I/Os offered a second; null where one waits for another.", NOT_NEGATIVE]
    probe: Annotated[bool, "True where only the baseline ran it, to find its saturation."]
    jobs: Annotated[list[_Job], "The jobs, which run together.", NOT_EMPTY]


class LookPart(TypedDict):
    """A look."""

    round: Annotated[int, "The round after which it was.", AT_LEAST_ONE]
    share: Annotated[float, "The share of the plan that was done then.", _SHARE]


class StudyPart(TypedDict):
    """What was to be found out, and how."""

    id: Annotated[str, "By which `show`, `resume` and `explain` find it."]
    kind: Annotated[StudyKind, "The verb that made it.", {"enum": [*KINDS]}]
    builtin: Annotated[str | None, "Which study that ships with virtune it is; null for any other."]
    created: Annotated[Moment, "When it was begun, in UTC."]
    finished: Annotated[bool, "Whether every trial gave a measurement."]
    trials: Annotated[int, "Trials that it consists of.", AT_LEAST_ONE]
    trials_done: Annotated[int, "Trials that gave a measurement.", NOT_NEGATIVE]
    measured_seconds: Annotated[float | None, f"Measured time of these together, in seconds{_IMPORTED}", NOT_NEGATIVE]
    elapsed_seconds: Annotated[
        float | None,
        "What its trials took with all that they need, interruptions left out, in seconds; null where nothing shows"
        " it.",
        NOT_NEGATIVE,
    ]
    stopped: Annotated[Stopped | None, "Why a sequential study has ended; null while it has not, and for any other."]
    baseline: Annotated[str, "The arm to compare the others with."]
    metric: Annotated[str, "The metric of the verdicts.", A_METRIC_NAME]
    rounds: Annotated[int, "Rounds: each tries every arm under every workload once.", AT_LEAST_ONE]
    seconds: Annotated[float | None, f"Measured time of one trial, in seconds{_IMPORTED}", POSITIVE]
    ramp_seconds: Annotated[float | None, f"Warm-up before it, not measured, in seconds{_IMPORTED}", NOT_NEGATIVE]
    seed: Annotated[int | None, f"Seed of the order of trials and of random offsets{_IMPORTED}", NOT_NEGATIVE]
    at_load: Annotated[list[Annotated[str, "A load."]], "Offered loads as asked for: `50%`, `5000iops`."]
    judged: Annotated[list[Annotated[str, "A metric."]], "The metrics that got verdicts, the main one first."]
    margin: Annotated[float, "The smallest relative difference worth knowing (0.03 is 3 %).", POSITIVE]
    confidence: Annotated[
        float, "Of all `comparisons` together, 0 to 1.", {"exclusiveMinimum": 0, "exclusiveMaximum": 1}
    ]
    span_bytes: Annotated[int | None, f"Bytes of the scratch image, or used of a target{_IMPORTED}", AT_LEAST_ONE]
    scratch: Annotated[str | None, f"The directory of the scratch images{_IMPORTED}"]
    target: Annotated[str | None, "The user's own file or device that was loaded; null for scratch images."]
    first_reads: FirstReads
    paired: Annotated[bool, "Whether arms ran in turn and are compared within rounds; imported results are not."]
    sequential: Annotated[
        bool,
        "Whether it was looked at after every round and stopped when every pair and condition was decided;"
        " `rounds` and `budget_seconds` are then the most that it takes.",
    ]
    pairs: Annotated[Literal["all", "baseline"], "Which pairs of arms get verdicts: those with the baseline, or all."]
    looks: Annotated[
        list[LookPart] | None,
        "The looks of a comparison whose end is planned; null for results that are judged otherwise.",
    ]
    budget_seconds: Annotated[
        float | None, "The most time of running trials, in seconds; null is no limit.", POSITIVE
    ]
    workloads: Annotated[list[WorkloadPart], "The workloads, in the order they were given.", NOT_EMPTY]


class ResultBasisPart(TypedDict):
    """What is to be known beside the verdicts to weigh them."""

    question: Annotated[str, "What was asked, in a sentence."]
    unit: Annotated[Literal["round", "run"], "What is analysed as one observation; never an I/O."]
    error: Annotated[
        float,
        "The chance that any of `comparisons` says what is not so, all of them together and however often they were"
        " looked at.",
        _SHARE,
    ]
    pairs: Annotated[int, "How many comparisons share that error.", NOT_NEGATIVE]
    checked: CheckedPart | None
    workloads: Annotated[list[BasisPart], "By workload; none for a single arm and for imported results."]
    command: Annotated[str | None, "The command line that asks it again, with its seed; null for imported results."]
