# SPDX-License-Identifier: Apache-2.0
"""Derive a job's load from its fio options: engine, pattern, block size, direct, depth, rate.

fio echoes the options in its JSON, and a transcript of a terminal shows them on the command line. The values are
untrusted text: an unreadable one is "unknown", never an error.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from virtune.model.text import parse_bytes, printable
from virtune.model.workload import READING, WRITING

DEFAULT_ENGINE = "psync"
"""fio's engine on Linux when a job names none."""

SYNCHRONOUS = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "dev-dax", "libpmem"})
"""Engines whose call returns when the I/O is done: one I/O in flight a job, whatever `iodepth` says."""

MOST_JOBS = 4096
"""fio itself refuses to run more jobs (REAL_MAX_JOBS), so no result has more."""

_REMOTE = frozenset(
    {"nbd", "libblkio", "rbd", "rados", "http", "libiscsi", "gfapi", "gfapi_async", "nfs", "null", "net",
     "virtio-blk-vhost-user", "virtio-blk", "virtio-scsi", "nvme"}
)  # fmt: skip
"""Engines that use a protocol, a guest's own driver, or no device: they bypass the page cache."""

_ALIASES = {"readwrite": "rw", "blocksize": "bs", "odirect": "direct"}
_MOST = 1_000_000
"""fio takes no larger depth or number of jobs; a larger value is treated as unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The options as this program uses them; None if unknown. `depth` is that of one job."""

    engine: str
    pattern: str
    block_size: int | None
    direct: bool | None
    jobs: int
    depth: int
    rate_iops: float | None


def canonical(options: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give every option the name that the rest of this program uses; the later of two wins, as in fio."""
    return {_ALIASES.get(name, name): value for name, value in options}


def facts_of(options: Mapping[str, str]) -> JobFacts:
    """Read the facts out of the options of one job; what a job does not set has fio's default."""
    pattern = options.get("rw", "read").partition(":")[0]
    block_size = _block_size(options)
    return JobFacts(
        engine=shown(options.get("ioengine", DEFAULT_ENGINE).partition(":")[0]),
        pattern=shown(pattern),
        block_size=block_size,
        direct=_direct(options),
        jobs=whole(options.get("numjobs", "1")) or 1,
        depth=whole(options.get("iodepth", "1")) or 1,
        rate_iops=_rate_iops(options, pattern, block_size),
    )


def shown(text: str) -> str:
    """Return an untrusted word of a job, safe to show: printable, and at most 100 characters."""
    return printable(text, most=100)


def size_of(text: str) -> int | None:
    """Read one size or rate as fio does (`4k`, `4096B`; fio takes `4KiB` for 4000); None for anything else."""
    try:
        return None if "i" in text.lower() else parse_bytes(text)
    except ValueError:
        return None


def _block_size(options: Mapping[str, str]) -> int | None:
    """Return the one size of all blocks (`bs=4k`, `4k,4k`, `4096B-4096B`); None where there are several."""
    if {"bsrange", "blocksize_range", "bssplit"} & options.keys():
        return None
    sizes = {size_of(part) for part in re.split("[,-]", options.get("bs", "4k"))}
    return sizes.pop() if len(sizes) == 1 else None


def whole(text: str) -> int | None:
    """Read a plain positive number such as a depth; None when it is something else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= _MOST else None


def _direct(options: Mapping[str, str]) -> bool | None:
    """Whether O_DIRECT is in use. `buffered=0` is fio's other way to write `direct=1`; the default is buffered.

    None for engines that open no file of this host, because it depends on their server.
    """
    if options.get("ioengine", "").partition(":")[0] in _REMOTE:
        return None
    if "direct" in options:
        return {"1": True, "0": False}.get(options["direct"])
    if "buffered" in options:
        return {"1": False, "0": True}.get(options["buffered"])
    return False


def _rate_iops(options: Mapping[str, str], pattern: str, block_size: int | None) -> float | None:
    """Add up the `rate_iops` (or `rate`, in bytes) of one job over its directions."""
    for name, scale in (("rate_iops", 1), ("rate", block_size)):
        if name in options and scale:
            parts = [size_of(part) for part in options[name].split(",")]
            return _rate_of_directions(parts, pattern, scale)
    return None


def _rate_of_directions(parts: list[int | None], pattern: str, scale: int) -> float | None:
    """One value counts for every direction; of `read,write,trim` each counts for its own."""
    active = [pattern in READING, pattern in WRITING and "trim" not in pattern, "trim" in pattern]
    asked = [parts[0] if len(parts) == 1 else (parts[i] if i < len(parts) else None) for i in range(3)]
    limited = [value for value, on in zip(asked, active, strict=True) if on]
    if not limited or any(value is None for value in limited):
        return None
    return math.fsum(value for value in limited if value) / scale


def milliseconds(text: str) -> int:
    """Read a time as fio writes it (`30`, `300ms`, `2m`), in milliseconds."""
    number = int(re.match(r"[0-9]+", text)[0])  # type: ignore[index]
    unit = text.lstrip("0123456789")
    return (
        number // 1000 if unit == "us" else number * {"": 1000, "s": 1000, "ms": 1, "m": 60_000, "h": 3_600_000}[unit]
    )


def in_milliseconds(seconds: float) -> str:
    """Write a time as fio takes it: `runtime=0.3` is not 300 ms for it."""
    return f"{round(seconds * 1000)}ms"
