# SPDX-License-Identifier: Apache-2.0
"""The parts that several documents share."""

from typing import Annotated, TypedDict

from virtune.model.metric import METRICS
from virtune.model.remark import Remark, Weight
from virtune.model.result import ArmKnee, Basis, RampFinding
from virtune.model.study import Checked, Study
from virtune.model.sweep import LoadEstimate
from virtune.model.verdict import Verdict
from virtune.report.json.document import AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, Moment

IN_WORDS = {
    "1/s": "operations a second",
    "B/s": "bytes a second",
    "ns": "nanoseconds",
    "%": "percent",
    "s/io": "CPU seconds per I/O",
    "1/io": "times per I/O",
}
"""The units of metrics in words; a metric with another one stops the generation of schemas."""

A_METRIC = {"enum": [metric.id for metric in METRICS]}


class RemarkPart(TypedDict):
    """One thing that a good reader notices."""

    id: Annotated[str, "The rule's id, which is stable; docs/reference/remarks.md lists them."]
    weight: Annotated[Weight, "`invalid` forbids conclusions, `warning` limits them, `note` explains."]
    text: Annotated[str, "What was noticed, with the numbers that it rests on."]
    advice: Annotated[str, "What to do about it; empty where there is nothing to do."]


class RampPart(TypedDict):
    """One look after five rounds that found the measured time not steady from its begin."""

    round: Annotated[int, "The last round with the ramp that was too short.", AT_LEAST_ONE]
    arm: Annotated[str, "The arm whose halves differed most."]
    workload: Annotated[str, "Under which workload."]
    change: Annotated[float, "IOPS of the second half of its trials over those of the first.", POSITIVE]
    before: Annotated[float, "The ramp up to then, in seconds.", NOT_NEGATIVE]
    after: Annotated[float, "The ramp from then on, of all arms, in seconds.", POSITIVE]


class EstimatePart(TypedDict):
    """A load with its interval."""

    iops: Annotated[float, "The load, in operations a second."]
    low: Annotated[float | None, "The lower end of its 95 % interval; null where no load bounds it."]
    high: Annotated[float | None, "The upper end of its 95 % interval; null where no load bounds it."]


class KneePart(TypedDict):
    """The knee of an arm's curve of offered loads: the load of the greatest IOPS by mean latency."""

    arm: Annotated[str, "The arm."]
    workload: Annotated[str, "Which workload was offered."]
    knee: EstimatePart


class _Drift(TypedDict):
    """How the metric moved over the study, all arms together: a share a minute, with its 95 % interval."""

    per_minute: Annotated[float, "Slope."]
    low: Annotated[float, "The lower end."]
    high: Annotated[float, "The upper end."]


class BasisPart(TypedDict):
    """What the verdicts of one workload rest on."""

    workload: Annotated[str, "Its name."]
    rounds: Annotated[int, "Rounds of the pair that has most.", NOT_NEGATIVE]
    noise: Annotated[
        float | None,
        "Standard deviation of one round's difference (ln; 0.05 is about 5 %), the median over the pairs; null where"
        " no pair has one.",
        NOT_NEGATIVE,
    ]
    lag1: Annotated[
        float | None,
        "How alike neighbouring rounds were taken to be, 0 to 0.9, as the intervals allow for.",
        NOT_NEGATIVE,
    ]
    seconds_left: Annotated[
        float | None,
        "What deciding the rest would take if the noise stays: 0 when nothing is undecided, null when that cannot be"
        " said.",
        NOT_NEGATIVE,
    ]
    effective: Annotated[
        float | None,
        "How many independent rounds the rounds are worth, neighbours being as alike as `lag1` says; null where that"
        " is.",
        NOT_NEGATIVE,
    ]
    correlation_seconds: Annotated[
        float | None,
        "The integrated autocorrelation time of the load within trials, in seconds; null where no trial kept its"
        " course.",
        NOT_NEGATIVE,
    ]
    correlation_open: Annotated[bool, "Whether it goes on beyond a trial, so that it is at least this."]
    drift: _Drift | None
    starts: Annotated[int, "How many processes, or disks of a guest made anew, carried the trials.", NOT_NEGATIVE]
    start_spread: Annotated[
        float | None,
        "Standard deviation (ln) of what their starts brought beside the noise of trials; null where starts cannot be"
        " told from trials.",
        NOT_NEGATIVE,
    ]


class CheckedPart(TypedDict):
    """The last A/A test on this host in the day before; null without one."""

    study: Annotated[str, "The id of that check."]
    created: Annotated[Moment, "When it was begun, in UTC."]
    verdict: Annotated[Verdict, "`better` or `worse` was a false alarm."]
    low: Annotated[float | None, "The lower end of the ratio, null where there was no interval."]
    high: Annotated[float | None, "The upper end of the ratio, null where there was no interval."]


class FirstReadPart(TypedDict):
    """What was read of the images once, past the page cache, so that storage below this host was not cold."""

    images: Annotated[int, "Files and devices.", AT_LEAST_ONE]
    size_bytes: Annotated[int, "What trials load of them together.", NOT_NEGATIVE]
    read_bytes: Annotated[int, "What was read of it.", NOT_NEGATIVE]
    seconds: Annotated[float, "How long that took.", NOT_NEGATIVE]
    after: Annotated[
        int, "Trials that were stored by then: 0 before the first, else the study went on.", NOT_NEGATIVE
    ]
    why: Annotated[str, "Why not all was read; empty where it was."]


FirstReads = Annotated[
    list[FirstReadPart],
    "The readings of the images before trials, one each time that the study ran; none where none was needed.",
]


def remark_part(remark: Remark) -> RemarkPart:
    """Return a remark as a document's part."""
    return {"id": remark.id, "weight": remark.weight, "text": remark.text, "advice": remark.advice}


def ramp_part(found: RampFinding) -> RampPart:
    """Return a ramp that was too short as a document's part."""
    return {
        "round": found.round,
        "arm": found.arm,
        "workload": found.workload,
        "change": found.change,
        "before": found.before,
        "after": found.after,
    }


def basis_part(found: Basis) -> BasisPart:
    """Return the evidence behind the verdicts of one workload as a document's part."""
    drift = found.drift
    return {
        "workload": found.workload,
        "rounds": found.rounds,
        "noise": found.noise,
        "lag1": found.lag1,
        "seconds_left": found.seconds_left,
        "effective": found.effective,
        "correlation_seconds": found.correlation_seconds,
        "correlation_open": found.correlation_open,
        "drift": None if drift is None else {"per_minute": drift.per_minute, "low": drift.low, "high": drift.high},
        "starts": found.starts,
        "start_spread": found.start_spread,
    }


def checked_part(found: Checked | None) -> CheckedPart | None:
    """Return a host's last A/A test as a document's part; None without one."""
    if found is None:
        return None
    return {
        "study": found.study,
        "created": found.created,
        "verdict": found.verdict,
        "low": found.low,
        "high": found.high,
    }


def first_read_parts(study: Study) -> list[FirstReadPart]:
    """Return what was read of a study's images before its trials as parts of a document."""
    return [
        {
            "images": one.images,
            "size_bytes": one.size_bytes,
            "read_bytes": one.read_bytes,
            "seconds": one.seconds,
            "after": one.after,
            "why": one.why,
        }
        for one in study.first_reads
    ]


def estimate_part(found: LoadEstimate) -> EstimatePart:
    """Return a load with its interval."""
    return {"iops": found.iops, "low": found.low, "high": found.high}


def knee_part(one: ArmKnee) -> KneePart:
    """Return an arm's knee."""
    return {"arm": one.arm, "workload": one.workload, "knee": estimate_part(one.knee)}
