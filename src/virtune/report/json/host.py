# SPDX-License-Identifier: Apache-2.0
"""A host as a JSON document: its facts, whose keys name their units, and a check of it.

A fact that could not be read is null, and `unknown` says under its path (`cpu.governors`) why.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, TypedDict

from virtune.model.facts import HostFacts, Unknown
from virtune.model.reason import OF_HOSTS, Reason
from virtune.model.remark import Remark
from virtune.model.result import Drift, Fitness, GateStanding, Neighbour, Reach, SelfTest, SliceNoise
from virtune.report.json.document import IDENTITY, ProgramVersion, part
from virtune.report.json.parts import RemarkPart

PROBE = "virtune/probe/1"


class ProbeDocument(TypedDict):
    """What `virtune host probe --json` writes. The unit of a fact is in its name."""

    schema: Annotated[str, IDENTITY, {"const": PROBE}]
    host: Annotated[Any, HostFacts, "All facts. One that could not be read is null, and `unknown` says why."]
    findings: Annotated[list[RemarkPart], "What to know before measuring on this host, the most severe first."]
    unknown: Annotated[
        Mapping[str, Annotated[str, "The reason in one clause."]],
        "Why a fact is not known, by its path below `host` (cpu.governors, disks[0].device.model).",
    ]


class CheckDocument(TypedDict):
    """What `virtune host check --json` writes. Seconds, bytes, 1/s and shares (0 to 1) throughout."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/check/2"}]
    virtune: ProgramVersion
    study: Annotated[str, "By which `show` finds it again."]
    workload: Annotated[str, "What the disk was asked."]
    trials: Annotated[int, "Trials that gave a measurement, a count."]
    measured_seconds: Annotated[float, "Their measured time together, in seconds."]
    iops: Annotated[float | None, "Operations a second, the mean of all windows."]
    window_seconds: Annotated[float | None, "The length of a window, in seconds."]
    windows_cv: Annotated[float | None, "Standard deviation of IOPS in windows against their mean (0.05 is 5 %)."]
    correlation_seconds: Annotated[
        float | None, "Integrated autocorrelation time: windows nearer than this tell much the same."
    ]
    correlation_open: Annotated[bool, "Whether it is at least that long, since no trial saw its end."]
    drift: Annotated[Any, Drift | None, "How IOPS moved over the whole check; null with fewer than four trials."]
    overhead_seconds: Annotated[float | None, "Seconds of a trial in which nothing is measured, its ramp included."]
    slices: Annotated[Any, tuple[SliceNoise, ...], "What trials of other lengths would have given."]
    best_seconds: Annotated[float | None, "The length that finds a difference soonest, in seconds."]
    confidence: Annotated[float, "The confidence of `reaches`, 0 to 1."]
    reaches: Annotated[
        Any, tuple[Reach, ...], "The smallest difference that a comparison of that length detects by its planned end."
    ]
    same: Annotated[Any, SelfTest | None, "The A/A test of one stack: `better` or `worse` would be a false alarm."]
    gates: Annotated[Any, tuple[GateStanding, ...], "Where the trials stood at the gates."]
    neighbours: Annotated[
        Any,
        tuple[Neighbour, ...] | None,
        "Who else worked meanwhile, the busiest first; null when it is shown again.",
    ]
    advice: Annotated[list[RemarkPart], "What to do about it, the most severe first."]
    unfit: Annotated[list[str], "Why the host is not fit to measure on, in words; none where it is fit."]
    unfit_reasons: Annotated[
        list[Annotated[Reason, {"enum": [*OF_HOSTS]}]], "The codes of these reasons, in the same order."
    ]


def probe_document(facts: HostFacts, remarks: tuple[Remark, ...]) -> ProbeDocument:
    unknown: dict[str, str] = {}
    host = _plain(facts, "", unknown)
    return part(ProbeDocument, host=host, findings=remarks, unknown=unknown)


def _plain(value: object, path: str, unknown: dict[str, str]) -> Any:
    if isinstance(value, Unknown):
        unknown[path] = value.because
        return None
    if is_dataclass(value):
        members = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: _plain(member, f"{path}.{name}".lstrip("."), unknown) for name, member in members}
    if isinstance(value, tuple):
        return [_plain(member, f"{path}[{index}]", unknown) for index, member in enumerate(value)]
    return value.value if isinstance(value, Enum) else value


def check_document(fitness: Fitness) -> CheckDocument:
    return part(CheckDocument, fitness)
