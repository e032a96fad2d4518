# SPDX-License-Identifier: Apache-2.0
"""Imported fio results: which jobs ran together, and their workload.

Jobs of one reporting group run together and are one workload. A `stonewall` in a job file begins a new group, whose
jobs run after the others, so their rates must not be added.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from virtune.fio.options import facts_of, shown, size_of
from virtune.model.errors import ReadError
from virtune.model.evidence import IMPORTED
from virtune.model.measurement import FioResult, LoadResult
from virtune.model.text import format_bytes
from virtune.model.workload import Job, Workload

ZERO_IS_UNSET = frozenset({"fsync", "fdatasync", "sync", "thinktime", "rate", "rate_iops"})
"""Options for which 0 is the same as unset."""

SHAPING = (
    "rwmixread", "rwmixwrite", "bssplit", "bsrange", "blockalign", "percentage_random", "random_distribution",
    "rate", "rate_iops", "thinktime", "fsync", "fdatasync", "sync", "zonemode",
)  # fmt: skip
"""Options besides rw, bs, iodepth and numjobs that describe the load on the disk."""

_MIXED = frozenset({"rw", "readwrite", "randrw"})
_BOOKKEEPING = ("write_", "log_", "name", "description", "group_reporting", "output", "stonewall", "new_group")
_SHAPE = frozenset({"rw", "bs", "iodepth", "numjobs", *SHAPING})
_LONGEST_NAME = 60

Shape = tuple[Mapping[str, str | None], ...]
"""The load of each job: the value of each option, "" if unset, None if the source does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The jobs of a result that ran together.

    `options` are their common options besides the shape; empty where nothing is echoed.
    """

    group: int | None
    name: str
    shape: Shape
    jobs: tuple[str, ...]
    options: Mapping[str, str]


def parts_of(result: FioResult) -> tuple[Part, ...]:
    """Split a result into the parts that ran together, in fio's order."""
    groups: dict[int | None, list[LoadResult]] = {}
    for load in result.loads:
        groups.setdefault(load.group, []).append(load)
    return tuple(_part(group, loads) for group, loads in groups.items())


def meant_of(result: FioResult, captures: Mapping[str, bytes]) -> FioResult:
    """Return the part of a result that belongs to a trial: all of it, or the reporting group that its capture names.

    Raises ReadError when that capture is damaged, or names a missing group.
    """
    if IMPORTED not in captures:
        return result
    try:
        group = json.loads(captures[IMPORTED])["group"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ReadError(f"the capture {IMPORTED} is damaged") from None
    loads = tuple(load for load in result.loads if load.group == group)
    if not loads:
        raise ReadError(f"the result has no reporting group {group}")
    return replace(result, loads=loads)


def shape_of(workload: Workload, *, complete: bool) -> Shape:
    """Return the load of a stored workload. In an imported one an unset option is unknown (`complete` is False); in
    one of our own it has fio's default.
    """
    if complete:
        found = [(job.as_dict(), facts_of(job.as_dict())) for job in workload]
        return tuple(_asked(options, facts.depth * facts.jobs, str(facts.jobs)) for options, facts in found)
    return tuple({name: job.as_dict().get(name) for name in sorted(_SHAPE)} for job in workload)


def differing(one: Shape, other: Shape) -> list[tuple[str, str, str]]:
    """Return the options in which two shapes differ, with both values. An option unknown in either is not a
    difference.
    """
    if len(one) != len(other):
        return [("jobs", str(len(one)), str(len(other)))]
    found: dict[str, tuple[str, str]] = {}
    for mine, theirs in zip(one, other, strict=True):
        for name in mine.keys() & theirs.keys():
            a, b = mine[name], theirs[name]
            if a is not None and b is not None and a != b:
                found.setdefault(name, (a or "not shown", b or "not set"))
    return [(name, *values) for name, values in sorted(found.items())]


def workload_of(part: Part, name: str, common: Mapping[str, str]) -> Workload:
    """Make a Workload of that name; `common` are options besides the shape that all its runs share."""
    jobs = tuple(
        Job(
            name=job.replace(" ", "_") or "job",
            options=(*((key, value) for key, value in shape.items() if value), *common.items()),
        )
        for job, shape in zip(part.jobs, part.shape, strict=True)
    )
    return Workload(name=name, meaning=" + ".join(_meaning(shape) for shape in part.shape), jobs=jobs)


def slug_of(shape: Shape) -> str:
    """Write a shape as a part of a name: `randread-4k-qd8`, followed by further options."""
    return "+".join(_slug(asked) for asked in shape)


def _part(group: int | None, loads: Sequence[LoadResult]) -> Part:
    named: dict[str, list[LoadResult]] = {}
    for load in loads:
        named.setdefault(load.name, []).append(load)
    told = [dict(load.options) for load in loads if load.options is not None]
    beside = [
        {
            key: shown(value)
            for key, value in options.items()
            if key not in _SHAPE and not key.startswith(_BOOKKEEPING)
        }
        for options in told
    ]
    same = {
        shown(key): value
        for key, value in (beside[0] if len(beside) == len(loads) else {}).items()
        if all(options.get(key) == value for options in beside)
    }
    for name, known in (("ioengine", _one(load.engine for load in loads)), ("direct", _direct(loads))):
        if known is not None and name not in same:
            same[name] = known
    return Part(
        group=group,
        name="+".join(named)[:_LONGEST_NAME],
        shape=tuple(_shape(clones) for clones in named.values()),
        jobs=tuple(named),
        options=same,
    )


def _shape(clones: Sequence[LoadResult]) -> Mapping[str, str | None]:
    """Return the combined load of a job's clones; clones that are reported one by one are added."""
    first = clones[0]
    jobs = sum(load.jobs for load in clones)
    depths = [load.depth for load in clones]
    depth = None if any(depth is None for depth in depths) else sum(depth or 0 for depth in depths)
    if first.options is not None and first.pattern is not None:
        return _asked(dict(first.options), depth, str(jobs))
    known: dict[str, str | None] = dict.fromkeys(_SHAPE)
    known["rw"], known["numjobs"] = first.pattern, str(jobs)
    known["bs"] = None if first.block_size is None else str(first.block_size)
    known["iodepth"] = None if depth is None else str(max(1, depth // jobs))
    return known


def _asked(options: Mapping[str, str], depth: int | None, jobs: str) -> Mapping[str, str | None]:
    facts = facts_of(options)
    bs = options.get("bs", "4k").lower()
    pattern = facts.pattern
    count = int(jobs) if jobs.isascii() and jobs.isdigit() and 0 < len(jobs) < 8 else 1
    asked: dict[str, str | None] = {
        "rw": shown(options.get("rw", "read")),
        "bs": shown(bs) if "," in bs or "-" in bs or facts.block_size is None else str(facts.block_size),
        "iodepth": None if depth is None else str(max(1, depth // max(1, count))),
        "numjobs": str(count),
    }
    for name in SHAPING:
        value = shown(options.get(name, "")).lower()
        if (name in ZERO_IS_UNSET and value == "0") or (name.startswith("rwmix") and pattern not in _MIXED):
            value = ""
        asked[name] = value
    return asked


def _direct(loads: Sequence[LoadResult]) -> str | None:
    said = {load.direct for load in loads}
    return str(int(bool(next(iter(said))))) if len(said) == 1 and None not in said else None


def _one(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _slug(asked: Mapping[str, str | None]) -> str:
    words = [(asked["rw"] or "").replace(":", "_"), _short_size(asked["bs"])]
    words += [f"qd{asked['iodepth']}"] if asked["iodepth"] else []
    words += [f"j{asked['numjobs']}"] if asked["numjobs"] not in (None, "1") else []
    words += [f"{name}_{asked[name]}" for name in SHAPING if asked.get(name)]
    return "-".join(word for word in words if word)


def _short_size(text: str | None) -> str:
    size = size_of(text) if text and text.isdigit() else None
    for power, letter in ((1024**2, "m"), (1024, "k")):
        if size and size % power == 0:
            return f"{size // power}{letter}"
    return (text or "").replace(",", "_")


def _meaning(asked: Mapping[str, str | None]) -> str:
    """Describe the load of one job, as far as it is known."""
    size = asked["bs"]
    words = [asked["rw"] or "", format_bytes(int(size)) if size and size.isdigit() else size or ""]
    depth, jobs = asked["iodepth"], asked["numjobs"]
    words += [f"{int(depth) * int(jobs or 1)} in flight"] if depth else []
    words += [f"{jobs} jobs"] if jobs not in (None, "1") else []
    words += [f"{name}={asked[name]}" for name in SHAPING if asked.get(name)]
    return ", ".join(word for word in words if word)
