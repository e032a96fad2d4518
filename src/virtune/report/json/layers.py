# SPDX-License-Identifier: Apache-2.0
"""The layers of a request as plain JSON values."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune.model.layers import Boundary, Layers, Operation, OperationKind, Way
from virtune.report.json.document import AT_LEAST_ONE, NOT_EMPTY, NOT_NEGATIVE, Sentence


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

    operation: Annotated[OperationKind, "What they ask for; a discard is QEMU's unmap, a guest's TRIM."]
    iops: Annotated[float, "How many a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second, of reads and writes.", NOT_NEGATIVE]
    latency_ns: Annotated[float | None, "Their mean time; null without any.", NOT_NEGATIVE]
    in_flight: Annotated[float, "How many were under way at a time, on average (Little's law).", NOT_NEGATIVE]


class _Esxtop(TypedDict):
    """In esxtop's terms, in ns; null where that was not seen."""

    gavg_ns: Annotated[
        float | None,
        "From when the guest's driver has handed a request over, where the virtqueue was seen, else from when"
        " QEMU took it off; until it was completed.",
        NOT_NEGATIVE,
    ]
    qavg_ns: Annotated[float | None, "The part of it that requests wait in the virtqueue.", NOT_NEGATIVE]
    kavg_ns: Annotated[float | None, "GAVG less DAVG: the hypervisor's part.", NOT_NEGATIVE]
    davg_ns: Annotated[float | None, "The host's block layer and device.", NOT_NEGATIVE]


class LayersPart(TypedDict):
    """Where the time of a request goes; null where nothing was seen below the load."""

    way: Annotated[Way, "What lies between the load and the medium."]
    top: Annotated[Boundary, "Where they begin; of a live VM its application is not seen."]
    rounds: Annotated[int, "Rounds that it rests on.", AT_LEAST_ONE]
    total_ns: Annotated[float, "Mean time from `top` down, in ns: the latency that the load saw.", NOT_NEGATIVE]
    layers: Annotated[list[_Layer], "From the top down.", NOT_EMPTY]
    idle: Annotated[
        float | None,
        "I/Os that may be in flight and were not; null where the load is not held to a depth.",
        NOT_NEGATIVE,
    ]
    esxtop: _Esxtop
    reasons: Annotated[list[Sentence], "Why layers are not told apart."]


def operations_document(found: Sequence[Operation]) -> list[OperationPart]:
    """Return requests by what they ask for."""
    return [
        {
            "operation": one.kind,
            "iops": one.iops,
            "bandwidth_bps": one.bandwidth,
            "latency_ns": one.mean_ns,
            "in_flight": one.in_flight,
        }
        for one in found
    ]


def layers_document(found: Layers | None) -> LayersPart | None:
    """Return where the time of a request goes, in ns; None where nothing was measured below the load."""
    if found is None:
        return None
    return {
        "way": found.way,
        "top": found.top,
        "rounds": found.rounds,
        "total_ns": found.total_ns,
        "layers": [
            {
                "boundary": one.boundary,
                "label": one.label,
                "mean_ns": one.mean_ns,
                "low_ns": one.low_ns,
                "high_ns": one.high_ns,
                "share": one.share,
                "in_flight": one.in_flight,
            }
            for one in found.layers
        ],
        "idle": found.idle,
        "esxtop": {
            "gavg_ns": found.gavg_ns,
            "qavg_ns": found.qavg_ns,
            "kavg_ns": found.kavg_ns,
            "davg_ns": found.davg_ns,
        },
        "reasons": list(found.reasons),
    }
