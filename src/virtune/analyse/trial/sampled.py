# SPDX-License-Identifier: Apache-2.0
"""The lines of a sampler's capture as they are written; `counters` makes samples of them."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

_Natural = Annotated[int, Field(ge=0, strict=True)]
_Real = Annotated[float, Field(allow_inf_nan=False)]
SampledThread = tuple[str, _Natural, _Natural, _Natural | None, _Natural | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledHeader:
    """The first line: what the others hold."""

    schema: str
    ticks_per_second: Annotated[int, Field(gt=0)]
    io_limits: list[str] = field(default_factory=list)
    drive_limits: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledProcess:
    """The texts of one process: its `stat` and its `io`."""

    stat: str
    io: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledLine:
    """One look, as the kernel's own lines."""

    t: _Natural
    wall: _Real
    mark: str = ""
    stat: str = ""
    diskstats: list[str] = field(default_factory=list)
    threads: dict[str, dict[str, SampledThread]] = field(default_factory=dict)
    switches: dict[str, dict[str, tuple[_Natural, _Natural]]] = field(default_factory=dict)
    processes: dict[str, dict[str, SampledProcess]] = field(default_factory=dict)
    pressure: dict[str, str] = field(default_factory=dict)
    residency: dict[str, tuple[_Natural, _Natural | None]] = field(default_factory=dict)
    vmstat: list[str] = field(default_factory=list)
    loadavg: str = ""
    throttle: dict[str, str] = field(default_factory=dict)
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    clock_source: str = ""
    heat: dict[str, str] = field(default_factory=dict)
    frequency: dict[str, str] = field(default_factory=dict)
    drives: dict[str, str] = field(default_factory=dict)


_line = TypeAdapter(SampledLine).validate_json

read_header = TypeAdapter(SampledHeader).validate_json
"""Read the first line; raises ValueError."""


class DamagedLineError(Exception):
    """A line is not what a sampler writes; its text says in which part."""


def read_line(text: bytes) -> SampledLine:
    """Read a line behind the first; raises DamagedLineError."""
    try:
        return _line(text)
    except ValidationError as error:
        place = error.errors()[0]["loc"][:1]
        raise DamagedLineError(f"`{place[0]}` is not what it should be" if place else "it is no sample") from None
