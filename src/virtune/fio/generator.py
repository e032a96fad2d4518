# SPDX-License-Identifier: Apache-2.0
"""The fio options that `virtune-load` supports; anything else is refused here, before a disk is filled.

It knows fewer options than fio and is strict about them (loadgen/README.md), so a job that it would refuse, or
interpret differently, must never reach it.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from virtune.model.errors import PreconditionError
from virtune.model.units import format_bytes, parse_bytes
from virtune.model.workload import READING, WRITING, Job

PROGRAM = "virtune-load"

INSTEAD = "use disk.export=nbd or fuse, where fio loads the disk"

KNOWN = frozenset({
    "rw", "bs", "rwmixread", "rwmixwrite", "iodepth", "iodepth_batch", "iodepth_batch_complete_max", "numjobs",
    "fsync", "fdatasync", "end_fsync", "sync", "rate_iops", "rate_process", "random_distribution", "norandommap",
    "randrepeat", "randseed", "refill_buffers", "zero_buffers", "hipri", "offset", "offset_increment", "size",
    "number_ios", "runtime", "ramp_time", "time_based", "thread", "group_reporting", "new_group", "clat_percentiles",
    "lat_percentiles", "percentile_list",
})  # fmt: skip
"""The supported options of a workload or a job file, besides those of fio's libblkio and those that virtune adds."""

FLUSHES = ("fsync", "fdatasync", "end_fsync", "sync")
"""Options that make writes durable; in a job without writes fio ignores them, and virtune-load refuses them."""

_SIZES = ("bs", "size", "offset", "offset_increment")
_DEPTH_MAX = 8192
"""The largest iodepth that it takes."""

QUEUE_MAX = 32768 // 3
"""The most requests in the largest virtqueue: 32768 descriptors, three per request."""

_CLONES_MAX = 512
_BUFFERS_MAX = 8 * 1024**3
_RATE_MAX = 10**8
_RATES = re.compile(r"([0-9]{1,9})([kK]?)", re.ASCII)
_ZIPF = re.compile(r"zipf:([0-9]{1,2}(?:\.[0-9]{1,9})?)", re.ASCII)


def require_known(options: Mapping[str, str]) -> None:
    """Raise PreconditionError for the first option of a job that virtune-load does not support, or not with that
    value.
    """
    for name, value in options.items():
        if name not in KNOWN:
            raise PreconditionError(f"virtune-load has no {name}", hint=INSTEAD)
        reason = _CHECKS[name](value) if name in _CHECKS else None
        if reason is not None:
            raise PreconditionError(f"virtune-load cannot do {name}={value}: {reason}", hint=INSTEAD)
    if options.get("fsync", "0") != "0" and options.get("fdatasync", "0") != "0":
        raise PreconditionError("over vhost-user fsync and fdatasync are the same flush, so both cannot be")
    pattern = options.get("rw", "read")
    if not pattern.startswith("rand") and options.get("random_distribution", "random") != "random":
        raise PreconditionError(f"random_distribution needs a random rw, and it is {pattern}")


def require_room(jobs: Iterable[Job], queues: int) -> None:
    """Raise PreconditionError when the jobs cannot run together, or need more room or memory than there is.

    Where there are fewer queues than clones, clone n takes queue n modulo their number.
    """
    jobs = tuple(jobs)
    if len({job.get("hipri", "0") != "0" for job in jobs}) > 1:
        raise PreconditionError(
            "virtune-load polls for all completions or for none, and hipri is not the same in all jobs",
            hint="set hipri in every job, or in none",
        )
    depths = [int(job.get("iodepth", "1")) for job in jobs for _ in range(clones_of([job]))]
    used = min(queues, len(depths))
    deepest = max(sum(depths[number::used]) for number in range(used))
    if deepest > QUEUE_MAX:
        offers = "1 queue" if queues == 1 else f"{queues} queues"
        raise PreconditionError(
            f"the export offers {offers}, so {deepest} requests would be in flight on one, and {QUEUE_MAX} fit",
            hint=f"`--set export.num_queues={len(depths)}` gives each clone its own",
        )
    buffers = sum(job.depth * job.block_size for job in jobs)
    if buffers > _BUFFERS_MAX:
        need, most = format_bytes(buffers), format_bytes(_BUFFERS_MAX)
        raise PreconditionError(f"depth times block size needs {need} of buffers, and virtune-load takes {most}")


def clones_of(jobs: Iterable[Job]) -> int:
    """Return how many clones all jobs have together: each submits from a thread, or shares one."""
    return sum(int(job.get("numjobs", "1")) for job in jobs)


def spelled(options: Mapping[str, str]) -> dict[str, str]:
    """Write sizes in bytes, from any of fio's suffixes."""
    return {
        name: str(parse_bytes(value)) if name in _SIZES and not value.endswith("%") else value
        for name, value in options.items()
    }


def _pattern(value: str) -> str | None:
    if ":" in value:
        return "it has no offset modifiers"
    return None if value in READING or value in ("write", "randwrite") else "it has no trims"


def _block(value: str) -> str | None:
    if "," in value or "-" in value:
        return "one block size only"
    return "it is no multiple of 512" if parse_bytes(value) % 512 else None


def _at_most(most: int) -> Callable[[str], str | None]:
    return lambda value: None if 1 <= int(value) <= most else f"it is not in 1..{most}"


def _rates(value: str) -> str | None:
    parts = [_RATES.fullmatch(part) for part in value.split(",")]
    if len(parts) > 2:
        return "two rates at most, for reads and writes"
    rates = [int(part[1]) * (1024 if part[2] else 1) for part in parts if part]
    return None if len(rates) == len(parts) and all(1 <= r <= _RATE_MAX for r in rates) else "not a rate it has"


def _distribution(value: str) -> str | None:
    zipf = _ZIPF.fullmatch(value)
    known = value == "random" or (zipf is not None and 0 < float(zipf[1]) <= 20)
    return None if known else "it has random and zipf:THETA"


def _stays_on(value: str) -> str | None:
    return None if value == "1" else "it keeps no map, so random places may repeat"


_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "rw": _pattern,
    "bs": _block,
    "iodepth": _at_most(_DEPTH_MAX),
    "iodepth_batch": _at_most(_DEPTH_MAX),
    "iodepth_batch_complete_max": _at_most(_DEPTH_MAX),
    "numjobs": _at_most(_CLONES_MAX),
    "rate_iops": _rates,
    "random_distribution": _distribution,
    "norandommap": _stays_on,
}


def writes(options: Mapping[str, str]) -> bool:
    """Whether a job with these options writes."""
    return options.get("rw", "read").partition(":")[0] in WRITING
