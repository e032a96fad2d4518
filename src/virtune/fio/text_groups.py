# SPDX-License-Identifier: Apache-2.0
"""Reporting groups of fio's text while their lines come in, and the LoadResult that each becomes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from virtune.fio.job_options import JobFacts, facts_of
from virtune.model.measurement import Latency, LoadResult, Stream

_T = TypeVar("_T")


@dataclass(slots=True)
class Definition:
    """A job as fio announces it before it starts; `clones` when numjobs makes more of the same."""

    name: str
    group: str
    engine: str
    pattern: str
    block_size: int | None
    depth: int
    clones: bool = False


@dataclass(slots=True)
class Group:
    """One reporting group while its lines come in; `lost` while they belong to a direction that was not read,
    `issued` how many I/Os fio says it did, None where it says nothing.
    """

    key: tuple[str, str, str]
    jobs: int
    error: int
    streams: list[Stream] = field(default_factory=list)
    sync: Latency | None = None
    sync_count: int | None = None
    usr: float | None = None
    sys: float | None = None
    switches: int | None = None
    major: int | None = None
    minor: int | None = None
    levels: tuple[tuple[str, float], ...] = ()
    submitted: tuple[tuple[str, float], ...] = ()
    completed: tuple[tuple[str, float], ...] = ()
    errors: int = 0
    lost: bool = False
    issued: int | None = None

    def change(self, kind: str, make: Callable[[Latency | None], Latency | None]) -> None:
        """Put a kind of latency in its place: `sync` is the group's, the others are the last stream's."""
        if kind == "sync":
            self.sync = make(self.sync)
        elif self.streams and not self.lost:
            stream = self.streams[-1]
            if kind == "slat":
                self.streams[-1] = replace(stream, slat=make(stream.slat))
            elif kind == "clat":
                self.streams[-1] = replace(stream, clat=make(stream.clat))
            else:
                self.streams[-1] = replace(stream, lat=make(stream.lat))


def load_of(group: Group, definitions: list[Definition], options: dict[str, str] | None) -> LoadResult:
    """Make the LoadResult of a group out of its lines, the definitions behind it, and its command line."""
    name, number, _ = group.key
    facts = facts_of(options) if options is not None and len(definitions) < 2 else None
    streams = tuple(_counted(stream) for stream in group.streams)
    return LoadResult(
        name=name or f"group {number}",
        engine=_one(d.engine for d in definitions) or (facts.engine if facts else None),
        pattern=_one(d.pattern for d in definitions) or (facts.pattern if facts else None),
        block_size=_one(d.block_size for d in definitions) or (facts.block_size if facts else None),
        direct=facts.direct if facts else None,
        jobs=group.jobs,
        depth=_depth(definitions, facts, group.jobs),
        error=group.error,
        streams=tuple(stream for stream in streams if stream.direction != "mixed") or streams,
        usr_percent=group.usr,
        sys_percent=group.sys,
        context_switches=group.switches,
        major_faults=group.major,
        minor_faults=group.minor,
        sync=replace(group.sync, count=group.sync_count) if group.sync else None,
        depth_levels=group.levels,
        submit_levels=group.submitted,
        complete_levels=group.completed,
        rate_asked_iops=facts.rate_iops * group.jobs if facts and facts.rate_iops else None,
        errors=group.errors,
        options=tuple(options.items()) if facts and options is not None else None,
        group=int(number),
    )


def _counted(stream: Stream) -> Stream:
    """Every I/O of a stream has each kind of latency, so the issued count is theirs."""
    slat, clat, lat = (
        replace(kind, count=stream.ios) if kind else None for kind in (stream.slat, stream.clat, stream.lat)
    )
    return replace(stream, slat=slat, clat=clat, lat=lat)


def _one(values: Iterable[_T]) -> _T | None:
    """What all of them say, if they say the same."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _depth(definitions: list[Definition], facts: JobFacts | None, jobs: int) -> int | None:
    """I/Os in flight that were asked for; None when jobs of different depth and unknown number are one group."""
    depths = {d.depth for d in definitions} or ({facts.depth} if facts else set())
    if len(depths) == 1:
        return depths.pop() * jobs
    if definitions and len(definitions) == jobs and not any(d.clones for d in definitions):
        return sum(d.depth for d in definitions)
    return None
