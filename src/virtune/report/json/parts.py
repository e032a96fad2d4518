# SPDX-License-Identifier: Apache-2.0
"""The parts that several documents share."""

from typing import Annotated, TypedDict

from virtune.model.live import Layers, OperationKind, Way
from virtune.model.metric import METRICS, Boundary
from virtune.model.remark import Weight
from virtune.model.verdict import Verdict
from virtune.report.json import document as doc
from virtune.report.json.document import maker, part

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

    round: Annotated[int, "The last round with the ramp that was too short.", doc.AT_LEAST_ONE]
    arm: Annotated[str, "The arm whose halves differed most."]
    workload: Annotated[str, "Under which workload."]
    change: Annotated[float, "IOPS of the second half of its trials over those of the first.", doc.POSITIVE]
    before: Annotated[float, "The ramp up to then, in seconds.", doc.NOT_NEGATIVE]
    after: Annotated[float, "The ramp from then on, of all arms, in seconds.", doc.POSITIVE]


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
    rounds: Annotated[int, "Rounds of the pair that has most.", doc.NOT_NEGATIVE]
    noise: Annotated[
        float | None,
        "Standard deviation of one round's difference (ln; 0.05 is about 5 %), the median over the pairs; null where"
        " no pair has one.",
        doc.NOT_NEGATIVE,
    ]
    lag1: Annotated[
        float | None,
        "How alike neighbouring rounds were taken to be, 0 to 0.9, as the intervals allow for.",
        doc.NOT_NEGATIVE,
    ]
    seconds_left: Annotated[
        float | None,
        "What deciding the rest would take if the noise stays: 0 when nothing is undecided, null when that cannot be"
        " said.",
        doc.NOT_NEGATIVE,
    ]
    effective: Annotated[
        float | None,
        "How many independent rounds the rounds are worth, neighbours being as alike as `lag1` says; null where that"
        " is.",
        doc.NOT_NEGATIVE,
    ]
    correlation_seconds: Annotated[
        float | None,
        "The integrated autocorrelation time of the load within trials, in seconds; null where no trial kept its"
        " course.",
        doc.NOT_NEGATIVE,
    ]
    correlation_open: Annotated[bool, "Whether it goes on beyond a trial, so that it is at least this."]
    drift: _Drift | None
    starts: Annotated[int, "How many processes, or disks of a guest made anew, carried the trials.", doc.NOT_NEGATIVE]
    start_spread: Annotated[
        float | None,
        "Standard deviation (ln) of what their starts brought beside the noise of trials; null where starts cannot be"
        " told from trials.",
        doc.NOT_NEGATIVE,
    ]


class CheckedPart(TypedDict):
    """The last A/A test on this host in the day before; null without one."""

    study: Annotated[str, "The id of that check."]
    created: Annotated[doc.Moment, "When it was begun, in UTC."]
    verdict: Annotated[Verdict, "`better` or `worse` was a false alarm."]
    low: Annotated[float | None, "The lower end of the ratio, null where there was no interval."]
    high: Annotated[float | None, "The upper end of the ratio, null where there was no interval."]


class FirstReadPart(TypedDict):
    """What was read of the images once, past the page cache, so that storage below this host was not cold."""

    images: Annotated[int, "Files and devices.", doc.AT_LEAST_ONE]
    size_bytes: Annotated[int, "What trials load of them together.", doc.NOT_NEGATIVE]
    read_bytes: Annotated[int, "What was read of it.", doc.NOT_NEGATIVE]
    seconds: Annotated[float, "How long that took.", doc.NOT_NEGATIVE]
    after: Annotated[
        int, "Trials that were stored by then: 0 before the first, else the study went on.", doc.NOT_NEGATIVE
    ]
    why: Annotated[str, "Why not all was read; empty where it was."]


FirstReads = Annotated[
    list[FirstReadPart],
    "The readings of the images before trials, one each time that the study ran; none where none was needed.",
]


class IntervalPart(TypedDict):
    """A ratio candidate/baseline (1.0 = no change) with its confidence interval."""

    estimate: Annotated[float, "The ratio itself: of geometric means over the rounds. 1 is no change."]
    low: Annotated[float, "The lower end of the interval."]
    high: Annotated[float, "The upper end of the interval."]
    confidence: Annotated[float, "The confidence of this interval, 0 to 1."]


class _Layer(TypedDict):
    """A layer. Together they add up to `total_ns`."""

    boundary: Annotated[Boundary, "Where it begins."]
    label: Annotated[str, "What lies there, in words."]
    mean_ns: Annotated[float, "Time of a request in it, in ns, the mean over rounds."]
    low_ns: Annotated[float | None, "The lower end of its 95 % interval over rounds; null of one round."]
    high_ns: Annotated[float | None, "The upper end; null of one round."]
    share: Annotated[float, "Its part of `total_ns`, 0 to 1."]
    in_flight: Annotated[float, "Requests in it at a time, on average (Little's law)."]


class OperationPart(TypedDict):
    """The requests of one kind."""

    operation: Annotated[
        OperationKind, "What they ask for; a discard is QEMU's unmap, a guest's TRIM.", doc.At("kind")
    ]
    iops: Annotated[float, "How many a second.", doc.NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second, of reads and writes.", doc.NOT_NEGATIVE, doc.At("bandwidth")]
    latency_ns: Annotated[float | None, "Their mean time; null without any.", doc.NOT_NEGATIVE, doc.At("mean_ns")]
    in_flight: Annotated[float, "How many were under way at a time, on average (Little's law).", doc.NOT_NEGATIVE]


class _Esxtop(TypedDict):
    """In esxtop's terms, in ns; null where that was not seen."""

    gavg_ns: Annotated[
        float | None,
        "From when the guest's driver has handed a request over, where the virtqueue was seen, else from when"
        " QEMU took it off; until it was completed.",
        doc.NOT_NEGATIVE,
    ]
    qavg_ns: Annotated[float | None, "The part of it that requests wait in the virtqueue.", doc.NOT_NEGATIVE]
    kavg_ns: Annotated[float | None, "GAVG less DAVG: the hypervisor's part.", doc.NOT_NEGATIVE]
    davg_ns: Annotated[float | None, "The host's block layer and device.", doc.NOT_NEGATIVE]


class LayersPart(TypedDict):
    """Where the time of a request goes; null where nothing was seen below the load."""

    way: Annotated[Way, "What lies between the load and the medium."]
    top: Annotated[Boundary, "Where they begin; of a live VM its application is not seen."]
    rounds: Annotated[int, "Rounds that it rests on.", doc.AT_LEAST_ONE]
    total_ns: Annotated[float, "Mean time from `top` down, in ns: the latency that the load saw.", doc.NOT_NEGATIVE]
    layers: Annotated[list[_Layer], "From the top down.", doc.NOT_EMPTY]
    idle: Annotated[
        float | None,
        "I/Os that may be in flight and were not; null where the load is not held to a depth.",
        doc.NOT_NEGATIVE,
    ]
    esxtop: _Esxtop
    reasons: Annotated[list[doc.Sentence], "Why layers are not told apart."]


@maker
def _layers(found: Layers) -> LayersPart:
    return part(LayersPart, found, esxtop=found)
