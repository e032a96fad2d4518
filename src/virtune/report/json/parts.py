# SPDX-License-Identifier: Apache-2.0
"""The parts that several documents share."""

from typing import Annotated, Any, TypedDict

from virtune.model.live import Layers, RequestLayer, Way
from virtune.model.metric import METRICS, Boundary
from virtune.model.remark import Weight
from virtune.model.steady import Preconditioned, Steadied
from virtune.model.study import Checked, FirstRead
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


CheckedPart = Annotated[Any, Checked | None, "The last A/A test on this host in the day before; null without one."]

FirstReads = Annotated[
    Any,
    list[FirstRead],
    "The readings of the images before trials, one each time that the study ran; none where none was needed.",
]


Preconditionings = Annotated[
    Any, list[Preconditioned], "The disks that were written in full before their trials (--precondition)."
]

Steadyings = Annotated[
    Any, list[Steadied], "The loads that ran before the trials until they were steady (--until-steady)."
]


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
    layers: Annotated[Any, list[RequestLayer], "From the top down.", doc.NOT_EMPTY]
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
