# SPDX-License-Identifier: Apache-2.0
"""The fio options that `virtune-load` supports; anything else is refused here, before a disk is filled.

It knows fewer options than fio and is strict about them (loadgen/README.md), so a job that it would refuse, or
interpret differently, must never reach it. Of a load on an export (NBD by fio's nbd engine, vhost-user-blk by fio's
libblkio or by virtune-load) options without a meaning there are removed and reported; options whose removal would
change the load are refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from virtune.fio.options import ENGINE_OPTIONS, ENGINES, SYNCHRONOUS
from virtune.model.errors import PreconditionError
from virtune.model.stack import BareTarget, FileTarget, GuestTarget, NbdTarget, Target, VhostUserTarget
from virtune.model.text import format_bytes, parse_bytes
from virtune.model.workload import READING, WRITING, Job, Workload

FIO, PROGRAM = "fio", "virtune-load"

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
_DEFAULT_ENGINES = ("io_uring", "libaio", "psync")
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


_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "rw": _pattern,
    "bs": _block,
    "iodepth": _at_most(_DEPTH_MAX),
    "iodepth_batch": _at_most(_DEPTH_MAX),
    "iodepth_batch_complete_max": _at_most(_DEPTH_MAX),
    "numjobs": _at_most(_CLONES_MAX),
    "rate_iops": _rates,
    "random_distribution": _distribution,
    "norandommap": lambda value: None if value == "1" else "it keeps no map, so random places may repeat",
}


UNREAD = frozenset({"description", "disk_util"})
"""Options of a job file that do not affect the load."""

Chosen = tuple[str, str]
"""Decisions made for the user, and why."""

_FUSE = "use disk.export=fuse, where fio opens a file"
_ANYWHERE = "use disk.export=fuse (or rig=metal), where any engine works, or leave ioengine out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What a program can do with a target that is none of fio's files. `engine` is its name for the way there, the
    bus of a guest that has its own driver. `cache` says that there is no page cache, `who` has none, and `hint` what
    to do instead. `lacks` are options that fio's engine would ignore or fail at, changing the load; `sync` says that
    of O_SYNC, with a hint, and why it is left out where it is off.
    """

    engine: str = ""
    who: str = ""
    cache: str = ""
    hint: str = _FUSE
    lacks: tuple[str, ...] = ()
    sync: tuple[str, str, str] | None = None


_BY_QUEUE = Client(
    engine="libblkio",
    who="a vhost-user client",
    cache="a virtqueue has no page cache",
    hint="disk.cache decides what QEMU does; disk.export=fuse is a file that fio opens",
)
CLIENTS: Mapping[tuple[type[Target], str], Client] = {
    (NbdTarget, FIO): Client(
        engine="nbd",
        who="an NBD client",
        cache="an NBD client has no page cache",
        lacks=(*ENGINE_OPTIONS, "sync_file_range"),
        sync=(
            "O_SYNC cannot be said over NBD: fio would take sync and ignore it",
            f"write fsync=1 for a flush after every write, or {_FUSE}",
            "it is off, and NBD has none",
        ),
    ),
    (VhostUserTarget, FIO): replace(
        _BY_QUEUE,
        lacks=tuple(name for name in (*ENGINE_OPTIONS, "sync_file_range") if name != "hipri"),
        sync=(
            "fio's libblkio engine would take sync and ignore it",
            "write fsync=1: a flush after every write",
            "it is off, and fio's libblkio engine has none",
        ),
    ),
    (VhostUserTarget, PROGRAM): _BY_QUEUE,
    (BareTarget, PROGRAM): Client(
        who="a guest without a system",
        cache="there is no page cache in the guest",
        hint="`--set guest.system=linux` runs fio in the guest",
    ),
    (FileTarget, PROGRAM): Client(engine="io_uring"),
}
"""What each program can do with each kind of target. Of a file or device fio can do all that its engines can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The available load generators: the engines of this fio, and virtune-load if `installed`; `described` if that
    repeats a job's description in its result, as fio does.

    With `alike` files and disks of this host are loaded by virtune-load too, so that a study that compares them with
    a vhost-user-blk export, or a guest without an operating system, uses one load generator for all.
    """

    engines: frozenset[str]
    installed: bool = False
    alike: bool = False
    described: bool = False

    @property
    def covering(self) -> "Clients":
        """The same for a load that has to reach the end of its extent: fio without its engine io_uring.

        Short of CPU time that engine ends a pass early, begins again at the first block and counts both passes, so
        the last blocks are never written although all bytes are counted (seen with fio 3.33 in guests under TCG, in
        three of five runs, and with libaio in none of ten).
        """
        return replace(self, engines=self.engines - {"io_uring"})


def program_for(workload: Workload, target: Target, clients: Clients) -> str:
    """Return the load generator of a workload on a target: fio, unless virtune-load can and should run it."""
    match target:
        case GuestTarget() | NbdTarget():
            return FIO
        case BareTarget():
            return PROGRAM
        case FileTarget():
            # no engine or polling of the device, which only make sense on a file, and no job file, which fio runs
            # unchanged where it opens the file
            own = workload.verbatim is not None or {"ioengine", "hipri"} & {
                n for one in workload for n in one.as_dict()
            }
            return PROGRAM if clients.alike and not own and takes(workload) else FIO
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
            if options.get("ioengine", "libblkio") != "libblkio":
                return False
            fit(options, VhostUserTarget(socket="", size_bytes=0, queues=1), PROGRAM, frozenset())
    except PreconditionError:
        return False
    return True


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


Fitted = tuple[dict[str, str], dict[str, str], list[Chosen]]
"""The options that a client brings, those of the job that stay, and what was decided."""


def fit(job: Mapping[str, str], target: Target, program: str, engines: frozenset[str]) -> Fitted:
    """Return what becomes of a job's options on a target that this program loads; `engines` are those of fio.

    Raises PreconditionError for options that it would ignore, changing the load, or that it does not have.
    """
    client = CLIENTS.get((type(target), program))
    options, chosen = dict(job), list[Chosen]()
    if client is None:
        own = _on_file(options, target, engines, chosen)
        return own, {name: value for name, value in options.items() if name not in own}, chosen
    own = {"ioengine": target.bus if isinstance(target, BareTarget) else client.engine}
    require_engine(options.pop("ioengine", own["ioengine"]), target, engines)
    if client.who:
        refuse_cache(options, client)
        left = {"direct": f"{client.cache}; disk.cache decides what QEMU does"}
        left |= {"invalidate": f"{client.cache} to drop"}
    else:
        own["direct"] = options.pop("direct", "1")  # it is 1: `takes` refuses another
        left = {"invalidate": "virtune drops the file from the page cache before each trial"}
    refuse_ignored(options, client)
    _leave_out(options, left | ({"sync": client.sync[2]} if client.sync else {}), chosen)
    if isinstance(target, NbdTarget) and (flushes := options.pop("fdatasync", "0")) != "0":
        if options.get("fsync", "0") != "0":
            raise PreconditionError("over NBD fsync and fdatasync are the same flush, so both cannot be", hint=_FUSE)
        chosen.append((f"fsync={flushes}", "over NBD fdatasync is the same flush, and fio's nbd engine knows fsync"))
        options.pop("fsync", None)
        own["fsync"] = flushes
    if isinstance(target, FileTarget):
        chosen.append((f"by {PROGRAM}", "it loads the study's virtqueues, so it loads this too"))
    if program == PROGRAM:
        _by_generator(options, chosen)
    if isinstance(target, BareTarget):
        if "hipri" not in options:
            chosen.append(("hipri=1", "the guest looks for completions; hipri=0 has it wait for interrupts"))
        own["hipri"] = options.pop("hipri", "1")
    return own, options, chosen


def _leave_out(options: dict[str, str], why: Mapping[str, str], chosen: list[Chosen]) -> None:
    chosen += [(f"{name}={options.pop(name)} is left out", why[name]) for name in why if name in options]


def refuse_cache(options: Mapping[str, str], client: Client) -> None:
    """Refuse to ask for a page cache where there is none."""
    if options.get("direct") == "0":
        raise PreconditionError(f"direct=0 asks for a page cache, and {client.who} has none", hint=client.hint)


def refuse_ignored(options: Mapping[str, str], client: Client) -> None:
    """Refuse options that fio's engine would ignore or fail at, changing the load."""
    if client.sync and options.get("sync", "none") not in ("none", "0"):
        raise PreconditionError(client.sync[0], hint=client.sync[1])
    bound = [name for name in client.lacks if name in options]
    if bound:
        raise PreconditionError(f"fio's {client.engine} engine has no {bound[0]}", hint=_FUSE)


def _by_generator(options: dict[str, str], chosen: list[Chosen]) -> None:
    """Remove options without a meaning for virtune-load, check the rest and write them in its form."""
    if options.get("rw", "read").partition(":")[0] not in WRITING:
        _leave_out(options, dict.fromkeys(FLUSHES, "the job writes nothing that could be flushed"), chosen)
    require_known(options)
    for name in _SIZES:  # in bytes, from any of fio's suffixes
        if not options.get(name, "%").endswith("%"):
            options[name] = str(parse_bytes(options[name]))
    if "rate_iops" in options:
        chosen.append(
            ("an open loop", "virtune-load starts requests by a timetable and counts latency from the intended start")
        )


def _on_file(
    options: dict[str, str], target: Target, engines: frozenset[str], chosen: list[Chosen]
) -> dict[str, str]:
    """Return what fio is told of a file or device."""
    engine = options.get("ioengine")
    if engine is None:
        bound = [name for name in ENGINE_OPTIONS if name in options]
        able = [e for e in ENGINES if e in engines and all(e in ENGINE_OPTIONS[name] for name in bound)]
        engine = next((e for e in (*_DEFAULT_ENGINES, *able) if e in able), None)
        if engine is None:
            wanted = f"one that has {', '.join(bound)}" if bound else f"one of {', '.join(_DEFAULT_ENGINES)}"
            raise PreconditionError(f"this fio has no engine for the workload: it needs {wanted}")
        depth, why = int(options.get("iodepth", "1")), "the best that this fio has for it"
        if engine == "io_uring" and depth & (depth - 1) and "libaio" in able and options.get("direct") != "0":
            engine, why = "libaio", f"fio before 3.39 has no depth of {depth} with io_uring"
        chosen.append((f"ioengine={engine}", f"the workload names none; {why}"))
    require_engine(engine, target, engines)
    direct = options.get("direct", "0" if engine == "mmap" else "1")
    if engine == "mmap":
        chosen.append(("direct=0", "ioengine=mmap always goes through the page cache"))
    elif "direct" not in options:
        chosen.append(("direct=1", "the disk is measured, not the page cache of whoever runs fio"))
    chosen += limits_of(engine, direct, options)
    keeps = isinstance(target, FileTarget) and target.keeps_cache
    invalidate = options.get("invalidate", "0" if keeps else "1")
    return {"ioengine": engine, "direct": direct, "invalidate": invalidate, "allow_file_create": "0"}


def limits_of(engine: str, direct: str, options: Mapping[str, str]) -> Iterator[Chosen]:
    """Warn where the engine cannot do what the workload's options suggest."""
    depth = options.get("iodepth", "1")
    if engine in SYNCHRONOUS and depth != "1":
        yield f"iodepth={depth} acts as 1", f"ioengine={engine} holds one I/O in flight"
    if engine == "libaio" and direct == "0":
        yield f"iodepth={depth} may act as 1", "without O_DIRECT Linux AIO blocks while it submits"


def require_engine(engine: str, target: Target, engines: frozenset[str]) -> None:
    """Raise PreconditionError for an engine that cannot load this target, or that this fio does not have."""
    match target:
        case FileTarget():
            if engine == "nbd":
                hint = "leave ioengine out, or use disk.export=nbd"
                raise PreconditionError("ioengine=nbd loads an NBD export, and the target is a file", hint=hint)
        case NbdTarget():
            if engine != "nbd":
                said = f"the target is an NBD export, which ioengine={engine} cannot load"
                raise PreconditionError(said, hint=_ANYWHERE)
        case VhostUserTarget():
            if engine != "libblkio":
                said = f"the target is a vhost-user-blk export, which ioengine={engine} cannot load"
                raise PreconditionError(said, hint=_ANYWHERE)
            return  # what fio lacks virtune-load has
        case BareTarget(bus=bus):
            if engine != bus:
                said = (
                    f"a guest without an operating system has its own driver: ioengine={engine} does not exist in it"
                )
                raise PreconditionError(said, hint=CLIENTS[BareTarget, PROGRAM].hint)
            return
        case _:
            assert_never(target)
    if engine not in engines:
        have = ", ".join(e for e in ENGINES if e in engines)
        hint = "use disk.export=fuse, or a fio built with libnbd" if engine == "nbd" else f"it has {have}"
        raise PreconditionError(f"this fio has no engine {engine}", hint=hint)
