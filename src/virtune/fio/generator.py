# SPDX-License-Identifier: Apache-2.0
"""The fio options that `virtune-load` supports; anything else is refused here, before a disk is filled.

It knows fewer options than fio and is strict about them (loadgen/README.md), so a job that it would refuse, or
interpret differently, must never reach it. Of a load on an export (NBD by fio's nbd engine, vhost-user-blk by fio's
libblkio or by virtune-load) options without a meaning there are removed and reported; options whose removal would
change the load are refused.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from virtune.fio.options import ENGINE_OPTIONS
from virtune.model.errors import PreconditionError
from virtune.model.stack import BareTarget, FileTarget, GuestTarget, NbdTarget, Target, VhostUserTarget
from virtune.model.text import format_bytes, parse_bytes
from virtune.model.workload import READING, WRITING, Job, Workload

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


FIO = "fio"

UNREAD = frozenset({"description", "disk_util"})
"""Options of a job file that do not affect the load."""

Chosen = tuple[str, str]
"""Decisions made for the user, and why."""

_FUSE = "use disk.export=fuse, where fio opens a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The available load generators: the engines of this fio, and virtune-load if `installed`.

    With `alike` files and disks of this host are loaded by virtune-load too, so that a study that compares them with
    a vhost-user-blk export, or a guest without an operating system, uses one load generator for all.
    """

    engines: frozenset[str]
    installed: bool = False
    alike: bool = False


def program_for(workload: Workload, target: Target, clients: Clients) -> str:
    """Return the load generator of a workload on a target: fio, unless virtune-load can and should run it."""
    match target:
        case GuestTarget() | NbdTarget():
            return FIO
        case BareTarget():
            return PROGRAM
        case FileTarget():
            ours = clients.alike and _as_on_an_export(workload) and takes(workload)
            return PROGRAM if ours else FIO
        case VhostUserTarget():
            ours = "libblkio" not in clients.engines or (clients.installed and takes(workload))
            return PROGRAM if ours else FIO
        case _:
            assert_never(target)


def takes(workload: Workload) -> bool:
    """Whether virtune-load can run the workload, on both a vhost-user-blk export and a file."""
    try:
        for job in workload:
            options = {key: value for key, value in job.as_dict().items() if key not in UNREAD}
            if options.pop("ioengine", "libblkio") != "libblkio":
                return False
            on_vhost_user(options, PROGRAM, [])
    except PreconditionError:
        return False
    return True


def _as_on_an_export(workload: Workload) -> bool:
    """Whether a file's job has no options that only make sense on a file: an engine, polling of the device, or a
    user's own job file, which fio runs unchanged where it opens the file.
    """
    said = {name for job in workload for name in job.as_dict()}
    return workload.verbatim is None and not said & {"ioengine", "hipri"}


def require_queues(workload: Workload, queues: int, program: str) -> None:
    """Raise PreconditionError when the clones of a workload need more queues than an export has."""
    if program != FIO:
        require_room(workload.jobs, queues)
        return
    clones = clones_of(workload.jobs)
    if clones > queues:
        offers = "1 queue" if queues == 1 else f"{queues} queues"
        raise PreconditionError(
            f"the load has {clones} clones, fio gives each a queue, and the export offers {offers}",
            hint=f"`--set export.num_queues={clones}`; virtune-load lets clones share queues",
        )


def require_driven(workload: Workload, queues: int) -> None:
    """Raise PreconditionError when an export has queues that the load never uses: its arm is named by them."""
    clones = clones_of(workload.jobs)
    if clones < queues:
        raise PreconditionError(
            f"the load drives {clones} of {queues} queues, so the others would measure nothing",
            hint=f"a load with numjobs={queues} has a clone for each, and on fewer queues its clones share them",
        )


def on_nbd(options: dict[str, str], chosen: list[Chosen]) -> dict[str, str]:
    """Return nbd's options; those without a meaning there are removed from `options`, those that nbd would weaken are
    refused.
    """
    refuse_on_nbd(options, _FUSE)
    for name, why in (
        ("direct", "an NBD client has no page cache; disk.cache decides what QEMU does"),
        ("invalidate", "an NBD client has no page cache to drop"),
        ("sync", "it is off, and NBD has none"),
    ):
        _leave_out(name, why, options, chosen)
    flushes = options.pop("fdatasync", "0")
    if flushes != "0":
        if options.get("fsync", "0") != "0":
            raise PreconditionError("over NBD fsync and fdatasync are the same flush, so both cannot be", hint=_FUSE)
        chosen.append((f"fsync={flushes}", "over NBD fdatasync is the same flush, and fio's nbd engine knows fsync"))
        return {"ioengine": "nbd", "fsync": flushes}
    return {"ioengine": "nbd"}


def refuse_on_nbd(options: Mapping[str, str], hint: str = _FUSE) -> None:
    """Refuse options that fio's nbd engine would ignore or fail at, changing the load."""
    if options.get("sync", "none") not in ("none", "0"):
        hint = f"write fsync=1 for a flush after every write, or {hint}"
        raise PreconditionError("O_SYNC cannot be said over NBD: fio would take sync and ignore it", hint=hint)
    if options.get("direct") == "0":
        raise PreconditionError("direct=0 asks for a page cache, and an NBD client has none", hint=hint)
    bound = [name for name in (*ENGINE_OPTIONS, "sync_file_range") if name in options]
    if bound:
        raise PreconditionError(f"fio's nbd engine has no {bound[0]}", hint=hint)


def on_vhost_user(options: dict[str, str], program: str, chosen: list[Chosen]) -> dict[str, str]:
    """Return the options for vhost-user; those without a meaning there are removed from `options`, the rest is
    checked.
    """
    if options.get("direct") == "0":
        raise PreconditionError(
            "direct=0 asks for a page cache, and a vhost-user client has none",
            hint="disk.cache decides what QEMU does; disk.export=fuse is a file that fio opens",
        )
    _leave_out("direct", "a virtqueue has no page cache; disk.cache decides what QEMU does", options, chosen)
    _leave_out("invalidate", "a virtqueue has no page cache to drop", options, chosen)
    if program == FIO:
        refuse_on_libblkio(options)
        _leave_out("sync", "it is off, and fio's libblkio engine has none", options, chosen)
        return {"ioengine": "libblkio"}
    _by_generator(options, chosen)
    return {"ioengine": "libblkio"}


def on_bare(options: dict[str, str], bus: str, chosen: list[Chosen]) -> dict[str, str]:
    """Return the options for a guest without an operating system whose disk is on that bus; those without a meaning
    there are removed from `options`.
    """
    engine, hint = options.pop("ioengine", bus), "`--set guest.system=linux` runs fio in the guest"
    if engine != bus:
        raise PreconditionError(
            f"a guest without an operating system has its own driver: ioengine={engine} does not exist in it",
            hint=hint,
        )
    if options.get("direct") == "0":
        raise PreconditionError("direct=0 asks for a page cache, and a guest without a system has none", hint=hint)
    _leave_out("direct", "there is no page cache in the guest; disk.cache decides what QEMU does", options, chosen)
    _leave_out("invalidate", "there is no page cache in the guest to drop", options, chosen)
    _by_generator(options, chosen)
    if "hipri" not in options:
        chosen.append(("hipri=1", "the guest looks for completions; hipri=0 has it wait for interrupts"))
    return {"ioengine": bus, "hipri": options.get("hipri", "1")}


def _by_generator(options: dict[str, str], chosen: list[Chosen]) -> None:
    """Remove options without a meaning for virtune-load, check the rest and write them in its form."""
    for name in FLUSHES:
        if not writes(options):
            _leave_out(name, "the job writes nothing that could be flushed", options, chosen)
    require_known(options)
    options.update(spelled(options))
    if "rate_iops" in options:
        chosen.append(
            ("an open loop", "virtune-load starts requests by a timetable and counts latency from the intended start")
        )


def on_file_too(options: dict[str, str], chosen: list[Chosen]) -> dict[str, str]:
    """Return the options of a file for virtune-load, which loads the virtqueues of the same study."""
    options.pop("direct", None)  # it is 1: `takes` refuses another
    if "invalidate" in options:
        _leave_out("invalidate", "virtune drops the file from the page cache before each trial", options, chosen)
    chosen.append((f"by {PROGRAM}", "it loads the study's virtqueues, so it loads this too"))
    _by_generator(options, chosen)
    return {"ioengine": "io_uring", "direct": "1"}


def refuse_on_libblkio(options: Mapping[str, str]) -> None:
    """Refuse options that fio's libblkio engine would ignore, changing the load."""
    if options.get("sync", "none") not in ("none", "0"):
        raise PreconditionError(
            "fio's libblkio engine would take sync and ignore it", hint="write fsync=1: a flush after every write"
        )
    bound = [name for name in (*ENGINE_OPTIONS, "sync_file_range") if name in options and name != "hipri"]
    if bound:
        raise PreconditionError(f"fio's libblkio engine has no {bound[0]}", hint=_FUSE)


def _leave_out(name: str, why: str, options: dict[str, str], chosen: list[Chosen]) -> None:
    if name in options:
        chosen.append((f"{name}={options.pop(name)} is left out", why))
