# SPDX-License-Identifier: Apache-2.0
"""fio results and what they say, as a JSON document."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from virtune.model.measurement import DeviceUse, LoadResult, Measurement
from virtune.model.metric import BY_ID, METRICS
from virtune.model.remark import Remark
from virtune.report.json.document import IDENTITY, At, Keys, Name, ProgramVersion, maker, part
from virtune.report.json.parts import RemarkPart
from virtune.report.pages.explain import Concurrent, Explained, percentiles_of

_WORDS = {"latency": "total", "clat": "completion"}

_PercentilesOf = Annotated[
    str | None,
    "Which latency the percentiles are of that stand under `latency.*`: total latency, or completion latency where"
    " fio printed no percentiles of the other; null without percentiles.",
    {"enum": [*_WORDS.values(), None]},
]


class _Part(TypedDict):
    """Jobs that ran at once."""

    jobs: Annotated[list[Name], "Their names."]
    metrics: Annotated[Mapping[str, float], "What they did together, by metric.", Keys.METRICS]
    percentiles_of: _PercentilesOf


class _Result(TypedDict):
    """One fio result."""

    name: Annotated[str, "The name of the file, of the arm and trial, or `standard input`."]
    source: Annotated[
        str,
        "What was read: fio's JSON with or without bins, its text, or a report of DiskSpd or Vdbench.",
        {"enum": ["json+", "json", "text", "diskspd", "vdbench"]},
        At("result.source"),
    ]
    fio: Annotated[
        str | None,
        "The version of fio, as it calls itself (fio-3.33), of DiskSpd or of Vdbench; null where it does not say.",
        At("result.version"),
    ]
    metrics: Annotated[
        Mapping[str, float],
        "The whole result by metric. One that is missing was not measured. Empty where not all of it ran at once:"
        " then `parts` has the figures.",
        Keys.METRICS,
    ]
    percentiles_of: _PercentilesOf
    parts: Annotated[list[_Part], "What ran at once, in the order in which fio reported it."]
    remarks: Annotated[list[RemarkPart], "What the numbers mean together, the most severe first."]
    loads: Annotated[Any, list[LoadResult], "The jobs or groups as fio reported them.", At("result.loads")]
    devices: Annotated[
        Any, list[DeviceUse], "What fio says that the kernel counted on devices.", At("result.devices")
    ]


class ExplainDocument(TypedDict):
    """What `virtune explain --json` writes: fio results in base units, and what they say."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/explain/1"}]
    virtune: ProgramVersion
    units: Annotated[Mapping[str, str], "The unit of every metric.", Keys.UNITS]
    results: Annotated[list[_Result], "Each result that was given, in the order of the words."]
    together: Annotated[list[RemarkPart], "What they say beside one another; empty for a single one."]


def explained_document(explained: Sequence[Explained], together: Sequence[Remark] = ()) -> ExplainDocument:
    units = {metric.id: metric.unit for metric in METRICS}
    return part(ExplainDocument, units=units, results=explained, together=together)


@maker
def _result(item: Explained) -> _Result:
    alone = item.parts[0].measurement if len(item.parts) == 1 else None
    return part(
        _Result,
        item,
        metrics={} if alone is None else _metrics(alone),
        percentiles_of=None if alone is None else _kind_of([alone]),
    )


@maker
def _part(one: Concurrent) -> _Part:
    return part(
        _Part,
        jobs=dict.fromkeys(load.name for load in one.loads),
        metrics=_metrics(one.measurement),
        percentiles_of=_kind_of([one.measurement]),
    )


def _metrics(measurement: Measurement) -> Mapping[str, float]:
    """The metrics; where the total latency has no percentiles, those of completion stand for them as well."""
    values = dict(measurement.values)
    standing = {
        metric.id: values[metric.instead]
        for metric in METRICS
        if metric.instead in values and metric.id not in values
    }
    return {name: (values | standing)[name] for name in BY_ID if name in values or name in standing}


def _kind_of(measurements: Sequence[Measurement]) -> str | None:
    return _WORDS.get(percentiles_of(measurements) or "")
