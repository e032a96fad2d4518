# SPDX-License-Identifier: Apache-2.0
"""From a workload and a target to the fio job, in the same way for metal, storage daemon and guest.

What fio 3.33 does, and why the job is written as it is (each was tried):

* `runtime=0.3` is not 300 ms; times are written with `ms`.
* When `offset` + `size` go beyond the end of an existing file, fio UNLINKS it before `allow_file_create=0` stops it.
  Therefore the extent is checked here against `target.size_bytes`, which must never exceed the real size, and loads
  that only read get `--readonly`.
* In a job file `#` and `;` end a value anywhere in it, `${X}` is replaced and `$ncpus` is evaluated through a shell.
* With `group_reporting` different jobs are merged as well, unless each begins a `new_group`.
* The nbd engine takes `sync=1` and ignores it, and fails at `fdatasync` and `sync_file_range`.
* What is said over an export is another matter (`fio.generator`), and a vhost-user-blk export may be loaded by
  virtune-load in place of fio, from the same job file; files and disks that are compared with it are then as well.
* `randseed` decides even with `randrepeat=0`; fio multiplies it by the number of the clone, so it must not be 0.

And the job that checks whether a disk keeps its data: a pattern that is written to it and read back from it. A block
holds a mark and its own offset, again and again, so that anyone who knows the mark can tell what must be there: fio
(`verify=pattern`), virtune-load with the same words, and whoever reads the image outside of its stack. The begin of
the disk is written in small blocks and its end in large ones, and between them places at equal distances, from where
a seed says.

So what is lost in one piece as long as that distance, a 32nd of the disk at most, is always found. Of blocks that are
lost or torn here and there, with probability q each, one of the n that are checked is found with probability
1 - (1 - q)^n. Of 1 GiB n is 4224: of one bad block in a thousand 98.5 % of checks find one, of one in a hundred all.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, assert_never

from virtune.fio.generator import (
    CLIENTS,
    FIO,
    UNREAD,
    Chosen,
    Clients,
    fit,
    limits_of,
    program_for,
    refuse_cache,
    refuse_ignored,
    require_engine,
    require_queues,
)
from virtune.fio.options import check_together, in_milliseconds, milliseconds, read_option
from virtune.fio.workloads import check_name
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.stack import BareTarget, FileTarget, NbdTarget, Target, VhostUserTarget
from virtune.model.text import format_bytes, parse_bytes, quoted
from virtune.model.workload import BACKGROUND, ENDS_ITSELF, Job, Workload, name_of_disk
from virtune.model.workload import job as make_job

_PAGE = 4096


def extent_of(options: dict[str, str], target: Target) -> dict[str, str]:
    """Return the first byte and the size that each clone touches; refuse an extent beyond the target or smaller than
    a block.
    """
    whole = target.size_bytes
    first, step = _share(options.get("offset", "0"), whole), _share(options.get("offset_increment", "0"), whole)
    last = first + step * (int(options.get("numjobs", "1")) - 1)
    size = _share(options["size"], whole) if "size" in options else whole - last
    blocks = re.split("[,-]", options.get("bsrange", options.get("bs", "4k")))
    blocks += [part.partition("/")[0] for part in re.split("[,:]", options.get("bssplit", "")) if part]
    block = max(map(parse_bytes, blocks))
    if size < block or last + size > whole:
        need = format_bytes(last + max(size, block))
        raise PreconditionError(
            f"the workload needs {need}, and the target has {format_bytes(whole)}",
            hint="a larger --span, or smaller size=",
        )
    found = {"offset": str(first)} if "offset" in options else {}
    found |= {"offset_increment": str(step)} if "offset_increment" in options else {}
    return found | {"size": str(size)}


def _share(text: str, whole: int) -> int:
    """Read a size, or a share of the whole such as `50%`, the latter on a page boundary."""
    if text.endswith("%"):
        return whole * int(text[:-1]) // 100 // _PAGE * _PAGE
    return parse_bytes(text)


def targets_of(target: Target) -> tuple[Target, ...]:
    """Return each disk of a target by itself."""
    if isinstance(target, FileTarget):
        return tuple(replace(target, path=path, more=()) for path in (target.path, *target.more))
    if isinstance(target, BareTarget):
        buses = enumerate((target.bus, *target.more))
        return tuple(replace(target, bus=bus, number=number, more=()) for number, bus in buses)
    return (target,)


def parts_of(workload: Workload, target: Target) -> Iterator[tuple[Target, str, Job]]:
    """Yield for each disk its target and the name and the part of each job that loads it.

    Raises PlanError if the clones of a job cannot be divided evenly.
    """
    several = targets_of(target)
    for number, one in enumerate(several):
        for job in workload.jobs:
            # a background job keeps its name, by which its figures are left out
            name = job.name if job.name == BACKGROUND else name_of_disk(job.name, number)
            if (part := part_of(job, len(several))) is None:
                clones = f"{job.get('numjobs', '1')} clones"
                raise PlanError(
                    f"{job.name} has {clones}, which {len(several)} disks cannot share evenly",
                    hint=f"`numjobs={len(several)}` is one for each disk: --workload '...,numjobs={len(several)}'",
                )
            yield one, name, part


def part_of(job: Job, several: int) -> Job | None:
    """Return a job with its clones divided by so many; None where they cannot be divided evenly."""
    clones, rest = divmod(int(job.get("numjobs", "1")), several)
    options = {**job.as_dict(), "numjobs": str(clones)}
    return job if several == 1 else None if rest else replace(job, options=tuple(options.items()))


PERCENTILES = "50:70:90:95:99:99.9:99.99"
"""The percentiles that fio prints besides its bins: those of the studies, and the tail."""

COUNTED_SECONDS = 600
"""How long a counted job may take: 100 I/Os take 10 s on a disk of 10 IOPS. Background jobs last as long."""

OPERATIONS = "operations"
"""The names of fio's logs of single I/Os."""

_UNSAFE = re.compile(r"[#;$`\\%]")
_ADDRESS = re.compile(r"[A-Za-z0-9/._@-]{1,107}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """A job file, the arguments before it, and virtune's decisions: (what, why).

    `program` runs it: fio, or virtune-load, which takes fio's options. `direct` says whether fio opens the target
    with O_DIRECT, `engines` are those that its jobs name or are given. `asked` are its jobs with all of their
    options. Output options are the caller's. `identity` is in the result of every job of it; empty where the jobs of
    a user's file describe themselves, and where the program has no such option.
    """

    text: str
    arguments: tuple[str, ...]
    chosen: tuple[Chosen, ...]
    direct: bool
    engines: frozenset[str]
    asked: tuple[Job, ...]
    program: str = FIO
    identity: str = ""


def fio_job(
    workload: Workload,
    target: Target,
    *,
    seconds: float,
    ramp_seconds: float,
    seed: int,
    clients: Clients,
    identity: str = "",
) -> FioJob:
    """Write the job that puts the workload on the target; `clients` are at hand to run it. `identity` is one word by
    which the result can be told from that of any other load (`fio.as_asked.identity_of`).

    Raises PlanError when the workload is invalid, PreconditionError when this target or this fio cannot run it as
    intended.
    """
    if not 0.001 <= seconds <= 10**6 or not 0 <= ramp_seconds <= 10**6:
        raise PlanError(f"a load cannot run {seconds:g} s after a ramp of {ramp_seconds:g} s")
    times = {"runtime": in_milliseconds(seconds), "ramp_time": in_milliseconds(ramp_seconds)}
    program = program_for(workload, target, clients)
    plan = _Plan(
        target=target, times=times, seed=str(seed % (2**31 - 1) + 1), engines=clients.engines, program=program,
        identity=identity if program == FIO or clients.described else "",
    )  # fmt: skip
    _check_jobs(workload)
    if isinstance(target, VhostUserTarget):
        require_queues(workload, target.queues, program)
    address = _address(target, program)
    if workload.verbatim is not None:
        if len(targets_of(target)) > 1:
            raise PlanError(
                f"{workload.name} is a job file, which runs as it is and cannot be divided among several disks",
                hint="write its words inline: rw=...,numjobs=...",
            )
        return _unchanged(workload, workload.verbatim, address, plan)
    chosen: list[Chosen] = []
    sections = [
        (name, _section(part, place, plan, workload, chosen)) for place, name, part in parts_of(workload, target)
    ]
    return _written(workload, sections, plan, chosen)


def can_name(path: str) -> bool:
    """Whether a job file can name this file: some characters have a meaning for fio and cannot be escaped."""
    plain = path.startswith("/") and path.isprintable() and path == path.strip() and len(path) <= 1000
    return plain and not _UNSAFE.search(path)


def _written(
    workload: Workload, sections: list[tuple[str, dict[str, str]]], plan: "_Plan", chosen: list[Chosen]
) -> FioJob:
    """Write the job file. fio is told when it must not write, virtune-load when it may."""
    lines = [f"# {workload.name}: written by virtune", "[global]", "thread=1"]
    lines += [f"description={plan.identity}"] if plan.identity else []
    for name, options in sections:
        lines += ["", f"[{name}]", *(f"{key}={value}" for key, value in options.items())]
    directs = {options["direct"] for _, options in sections if "direct" in options}
    allowed = () if plan.program == FIO else ("--allow-write",)
    return FioJob(
        text="\n".join(lines) + "\n",
        arguments=allowed if workload.writes else ("--readonly",),
        chosen=tuple(dict.fromkeys(chosen)),
        direct=_one_direct(directs),
        engines=frozenset(options["ioengine"] for _, options in sections),
        asked=tuple(make_job(name, {"thread": "1", **options}) for name, options in sections),
        program=plan.program,
        identity=plan.identity,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The common settings of all jobs of a load."""

    target: Target
    times: dict[str, str]
    seed: str
    engines: frozenset[str]
    program: str
    identity: str


def _check_jobs(workload: Workload) -> None:
    """Check every option again: a workload may come from a file, a store or a caller."""
    if not workload.jobs:
        raise PlanError(f"workload {workload.name} has no job")
    in_file = workload.verbatim is not None
    if not in_file:
        check_name(workload.name, "a workload")
    for job in workload.jobs:
        where = f"workload {workload.name}"
        if not in_file:
            check_name(job.name, "a job")
        for key, value in job.options:
            if read_option(key, value, where=where, in_file=in_file) != (key, value):
                raise PlanError(f"{where}: {key} is not written the way fio writes it")
        check_together({"direct": "0", **job.as_dict()} if in_file else job.as_dict(), where=where)


def _address(target: Target, program: str) -> dict[str, str]:
    """Return the options that name the target, escaped for a job file of that program."""
    match target:
        case FileTarget(path=path):
            if not can_name(path):
                hint = "an absolute path without # ; $ ` \\ % and without control characters, at most 1000 long"
                raise PreconditionError(f"fio's job file cannot name {quoted(path)}", hint=hint)
            return {"filename": path.replace(":", "\\:") if program == FIO else path}
        case NbdTarget(socket=socket, export=export, uri=uri):
            if not _ADDRESS.fullmatch(socket) or not _ADDRESS.fullmatch(export):
                hint = "letters, digits and / . _ @ - are safe in it"
                raise PreconditionError(f"fio's job file cannot name the NBD export {quoted(uri)}", hint=hint)
            return {"ioengine": "nbd", "uri": uri}
        case VhostUserTarget(socket=socket):
            if not _ADDRESS.fullmatch(socket):
                hint = "letters, digits and / . _ @ - are safe in it"
                raise PreconditionError(f"a job file cannot name the socket {quoted(socket)}", hint=hint)
            driver = "virtio-blk-vhost-user"
            return {"ioengine": "libblkio", "libblkio_driver": driver, "libblkio_path": socket}
        case BareTarget(number=number):
            return {"filename": f"disk{number}"}
        case _:
            assert_never(target)


def _section(job: Job, place: Target, plan: _Plan, workload: Workload, chosen: list[Chosen]) -> dict[str, str]:
    """Return the options of a job on one of the plan's disks."""
    own, options, decided = fit(job.as_dict(), place, plan.program, plan.engines)
    chosen += decided
    section = {**_address(place, plan.program), **own, **options, **extent_of(options, place)}
    section |= _how_long(job, workload, plan)
    if job.recorded:
        section |= {"write_lat_log": OPERATIONS, "log_avg_msec": "0", "log_offset": "1"}
    for key, value in _defaults(job, plan.seed).items():
        section.setdefault(key, value)
    if int(options.get("numjobs", "1")) > 1:
        section["group_reporting"] = "1"
    if len(workload.jobs) * len(targets_of(plan.target)) > 1:
        section["new_group"] = "1"
    return section


def _how_long(job: Job, workload: Workload, plan: _Plan) -> dict[str, str]:
    """Return how long a job lasts: a counted one as long as its I/Os take, and a background job as long as that."""
    counted = any("number_ios" in one.as_dict() for one in workload.jobs)
    together = counted and plan.program == FIO and any(one.name == BACKGROUND for one in workload.jobs)
    if "number_ios" in job.as_dict():
        return {"exitall": "1", "exit_what": "all"} if together else {}
    times = {**plan.times, "time_based": "1"}
    return {**times, "runtime": f"{COUNTED_SECONDS}s"} if together and job.name == BACKGROUND else times


def _defaults(job: Job, seed: str) -> dict[str, str]:
    options = job.as_dict()
    found: dict[str, str] = {}
    if not {"randseed", "randrepeat", "allrandrepeat"} & options.keys():
        found |= {"randrepeat": "0", "randseed": seed}
    if job.pattern.startswith("rand") and "random_generator" not in options:
        found["norandommap"] = "1"
    if job.writes and options.get("zero_buffers", "0") == "0":
        found["refill_buffers"] = "1"
    return found | {"clat_percentiles": "1", "lat_percentiles": "1", "percentile_list": PERCENTILES}


def _unchanged(workload: Workload, text: str, address: dict[str, str], plan: _Plan) -> FioJob:
    """Give a user's own job file to fio as it is; arguments before it are defaults that the file may override."""
    if plan.program != FIO:
        return _rewritten(workload, address, plan)
    chosen: list[Chosen] = [("the job file runs unchanged", "what it does not say is given before it")]
    arguments = {"thread": "1", **address, "size": str(plan.target.size_bytes), "allow_file_create": "0"}
    for job in workload.jobs:
        options = job.as_dict()
        client = CLIENTS.get((type(plan.target), FIO))
        engine = options.get("ioengine", "psync" if client is None else client.engine)
        require_engine(engine, plan.target, plan.engines)
        if client is None:
            chosen += limits_of(engine, options.get("direct", "0"), options)
        else:
            refuse_ignored(options, client)
        if client is not None and isinstance(plan.target, NbdTarget):
            refuse_cache(options, client)
            if options.get("fdatasync", "0") != "0":
                raise PreconditionError(
                    "fio's nbd engine fails at fdatasync", hint="write fsync, the same flush there"
                )
        _require_alike(options, plan)
        arguments |= {key: value for key, value in _defaults(job, plan.seed).items() if key != "norandommap"}
    if any("zero_buffers" in job.as_dict() for job in workload.jobs):
        arguments.pop("refill_buffers", None)
    arguments |= plan.times
    if all("number_ios" in job.as_dict() for job in workload.jobs):
        arguments.pop("runtime")
    if not any(ENDS_ITSELF & job.as_dict().keys() for job in workload.jobs):
        arguments["time_based"] = "1"
    directs = {job.get("direct", "0") for job in workload.jobs} if isinstance(plan.target, FileTarget) else set()
    if directs == {"0"}:
        chosen.append(("direct=0", "the job file does not say direct=1, so the page cache is measured as well"))
    # what a [global] section of the file says of itself takes the place of what is said before it
    identity = "" if all("description" in job.as_dict() for job in workload.jobs) else plan.identity
    words = tuple(f"--{key}={value}" for key, value in arguments.items())
    words += (f"--description={identity}",) if identity else ()
    return FioJob(
        text=text,
        arguments=words if workload.writes else ("--readonly", *words),
        chosen=tuple(dict.fromkeys(chosen)),
        direct=_one_direct(directs),
        engines=frozenset(one.get("ioengine", address.get("ioengine", "psync")) for one in workload.jobs),
        asked=tuple(make_job(one.name, {**arguments, **one.as_dict()}) for one in workload.jobs),
        identity=identity,
    )


def _rewritten(workload: Workload, address: dict[str, str], plan: _Plan) -> FioJob:
    """Rewrite a user's job file for virtune-load, whose arguments would override the file."""
    why = "virtune-load takes what the file leaves open from the file itself, and keeps no map of random places"
    chosen: list[Chosen] = [("the job file is written anew", why)]
    sections = []
    for job in workload.jobs:
        read = {key: value for key, value in job.as_dict().items() if key not in UNREAD}
        own, options, decided = fit(read, plan.target, plan.program, plan.engines)
        chosen += decided
        _require_alike(options, plan)
        section = {**address, **own, "size": str(plan.target.size_bytes), **plan.times, **_defaults(job, plan.seed)}
        if not ENDS_ITSELF & options.keys():
            section["time_based"] = "1"
        for name, without in (("zero_buffers", "refill_buffers"), ("number_ios", "runtime")):
            if name in options:
                section.pop(without, None)
        sections.append((job.name, section | options))
    return _written(workload, sections, plan, chosen)


def _require_alike(options: dict[str, str], plan: _Plan) -> None:
    """Refuse an extent that may leave the target, since a share is one of the real size, which only fio sees; and
    other times than the study's.
    """
    shares = [key for key in ("size", "offset", "offset_increment") if options.get(key, "").endswith("%")]
    if shares:
        hint = "write it in bytes, or leave size out: the whole target is the default"
        raise PlanError(f"the job file says {shares[0]}={options[shares[0]]}, a share of what fio finds", hint=hint)
    if "size" not in options and {"offset", "offset_increment"} & options.keys():
        raise PlanError(
            "the job file says offset without size", hint="write size= as well, so that it ends on the target"
        )
    extent_of(options, plan.target)
    for key, asked in plan.times.items():
        if (said := milliseconds(options.get(key, asked))) != milliseconds(asked):
            flag = "--seconds" if key == "runtime" else "--ramp"
            hint = f"give {flag} {said / 1000:g}, or take {key} out of the file"
            raise PlanError(f"the job file says {key}={options[key]}, and the study {asked}", hint=hint)


def _one_direct(directs: set[str]) -> bool:
    if len(directs) > 1:
        raise PlanError(
            "jobs with and without O_DIRECT on one target disturb each other's page cache", hint="set direct= alike"
        )
    return directs == {"1"}


Step = Literal["write", "read", "refill"]
"""What is done: the pattern is written and flushed, read back, and at last replaced by random data, since a disk that
compresses would serve the pattern faster than what else is measured.
"""

STEPS: tuple[Step, ...] = ("write", "read")

_SMALL, _LARGE = 4096, 64 * 1024
_SMALL_BYTES, _LARGE_BYTES = 4 * 1024**2, 8 * 1024**2
_PLACES, _PLACE_BYTES = 32, 384 * 1024
"""4096 small blocks and 128 large ones: some tenths of a second on a drive, seconds on an emulated guest's."""

_DEPTH, _DEPTH_OF_PLACES = "16", "4"
_MORE_THAN_ALL = "1000000"
"""A job with a number of I/Os ends without a run time; it ends with its extent, long before this number."""

_FOUND = re.compile(r"verify failed at (?:file .* )?offset (\d+)")

_FAILED = ("verify type mismatch", "Invalid or incomplete multibyte")
"""What fio says of data that differs where it does not say the place, the latter for its error EILSEQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the disk, written in blocks of one size, in bytes; at so many `places`, each `step` further."""

    name: str
    offset: int
    size: int
    block: int
    places: int = 1
    step: int = 0

    def each(self) -> Iterator["Region"]:
        """Yield each of its places as a region of its own."""
        for number in range(self.places):
            yield replace(self, offset=self.offset + number * self.step, places=1, step=0)

    def blocks(self, mark: str) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each block of one place, and what it must hold."""
        for offset in range(self.offset, self.offset + self.size, self.block):
            yield offset, (mark.encode() + offset.to_bytes(8, "little")) * (self.block // 16)


def regions_of(size_bytes: int, seed: int) -> tuple[Region, ...]:
    """Return the parts that are checked of a disk of this size, which is at least two large blocks. The seed decides
    where the places between its begin and its end lie, if there is room for them.
    """
    end = size_bytes // _LARGE * _LARGE
    quarter = size_bytes // 4 // _LARGE * _LARGE
    small, large = min(_SMALL_BYTES, quarter), min(_LARGE_BYTES, quarter)
    step = (end - large - small) // _PLACES // _SMALL * _SMALL
    if not quarter or not step:
        half = size_bytes // 2 // _LARGE * _LARGE
        small, large = min(_SMALL_BYTES, half), min(_LARGE_BYTES, half)
    parts = (
        Region(name="begin", offset=0, size=small, block=_SMALL),
        Region(name="end", offset=end - large, size=large, block=_LARGE),
    )
    if not quarter or not step:
        return parts
    each = min(_PLACE_BYTES, step)
    phase = Random(f"data {seed}").randrange((step - each) // _SMALL + 1) * _SMALL  # noqa: S311 - a place, no secret
    return (*parts, Region(name="spread", offset=small + phase, size=each, block=_SMALL, places=_PLACES, step=step))


def checked(regions: Iterable[Region], size_bytes: int) -> str:
    """Say how much of a disk is checked: `24 MiB of 1 GiB at 34 places`."""
    each = [place for region in regions for place in region.each()]
    size = format_bytes(sum(place.size for place in each))
    return f"{size} of {format_bytes(size_bytes)} at {len(each)} places"


def data_workload(step: Step, regions: Iterable[Region], *, disks: int = 1) -> Workload:
    """Return the workload of a step on these parts of so many disks."""
    writes = {} if step == "read" else {"end_fsync": "1"}
    jobs = tuple(
        make_job(
            region.name,
            {
                "rw": "read" if step == "read" else "write",
                "bs": str(region.block),
                "iodepth": _DEPTH if region.places == 1 else _DEPTH_OF_PLACES,
                "numjobs": str(disks * region.places),
                "offset": str(region.offset),
                **({"offset_increment": str(region.step)} if region.step else {}),
                "size": str(region.size),
                "number_ios": _MORE_THAN_ALL,
                **writes,
            },
        )
        for region in regions
    )
    return Workload(name="data-check", meaning="checks that the disk keeps its data", jobs=jobs)


def parts_for(target: Target, clients: Clients, seed: int) -> tuple[Region, ...]:
    """Return the parts that are checked of a target. Raises PreconditionError where nothing here can load it."""
    regions = regions_of(target.size_bytes, seed)
    if isinstance(target, VhostUserTarget) and program_for(data_workload("write", regions), target, clients) == FIO:
        return regions[: min(2, target.queues)]  # fio gives each clone a queue
    return regions


def data_job(step: Step, target: Target, *, mark: str, clients: Clients, seed: int) -> tuple[FioJob, Workload]:
    """Return the job of a step, and its workload; `mark` is eight letters or digits, `seed` decides the places.

    Raises PreconditionError where nothing here can load this target.
    """
    workload = data_workload(step, parts_for(target, clients, seed), disks=len(targets_of(target)))
    program = program_for(workload, target, clients)
    made = fio_job(workload, target, seconds=1.0, ramp_seconds=0.0, seed=1, clients=clients.covering)
    if step == "refill":
        return made, workload
    words = ["verify=pattern", f'verify_pattern="{mark}"%o']
    if program == FIO:
        # nothing is left in the directory of whoever runs fio, and the first difference ends it
        words += ["verify_fatal=1", "verify_state_save=0", *(["do_verify=0"] if step == "write" else [])]
    begin = "[global]\n"
    return replace(made, text=made.text.replace(begin, begin + "".join(f"{word}\n" for word in words), 1)), workload


def difference_in(said: str) -> str | None:
    """Return where a load found something else than was written, from what it said at its end; None if it failed
    for another reason.
    """
    if found := _FOUND.search(said):
        return f"byte {found[1]}"
    return "a place that fio does not name" if any(words in said for words in _FAILED) else None
