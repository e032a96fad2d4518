# SPDX-License-Identifier: Apache-2.0
"""The options of a load on an export: NBD by fio's nbd engine, vhost-user-blk by fio's libblkio or by virtune-load.

Options without a meaning there are removed and reported; options whose removal would change the load are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from virtune.fio import generator
from virtune.fio.options import ENGINE_OPTIONS
from virtune.model.errors import PreconditionError
from virtune.model.target import BareTarget, FileTarget, GuestTarget, NbdTarget, Target, VhostUserTarget
from virtune.model.workload import Workload

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
            return generator.PROGRAM
        case FileTarget():
            ours = clients.alike and _as_on_an_export(workload) and takes(workload)
            return generator.PROGRAM if ours else FIO
        case VhostUserTarget():
            ours = "libblkio" not in clients.engines or (clients.installed and takes(workload))
            return generator.PROGRAM if ours else FIO
        case _:
            assert_never(target)


def takes(workload: Workload) -> bool:
    """Whether virtune-load can run the workload, on both a vhost-user-blk export and a file."""
    try:
        for job in workload:
            options = {key: value for key, value in job.as_dict().items() if key not in UNREAD}
            if options.pop("ioengine", "libblkio") != "libblkio":
                return False
            on_vhost_user(options, generator.PROGRAM, [])
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
        generator.require_room(workload.jobs, queues)
        return
    clones = generator.clones_of(workload.jobs)
    if clones > queues:
        offers = "1 queue" if queues == 1 else f"{queues} queues"
        raise PreconditionError(
            f"the load has {clones} clones, fio gives each a queue, and the export offers {offers}",
            hint=f"`--set export.num_queues={clones}`; virtune-load lets clones share queues",
        )


def require_driven(workload: Workload, queues: int) -> None:
    """Raise PreconditionError when an export has queues that the load never uses: its arm is named by them."""
    clones = generator.clones_of(workload.jobs)
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
    for name in generator.FLUSHES:
        if not generator.writes(options):
            _leave_out(name, "the job writes nothing that could be flushed", options, chosen)
    generator.require_known(options)
    options.update(generator.spelled(options))
    if "rate_iops" in options:
        chosen.append(
            ("an open loop", "virtune-load starts requests by a timetable and counts latency from the intended start")
        )


def on_file_too(options: dict[str, str], chosen: list[Chosen]) -> dict[str, str]:
    """Return the options of a file for virtune-load, which loads the virtqueues of the same study."""
    options.pop("direct", None)  # it is 1: `takes` refuses another
    if "invalidate" in options:
        _leave_out("invalidate", "virtune drops the file from the page cache before each trial", options, chosen)
    chosen.append((f"by {generator.PROGRAM}", "it loads the study's virtqueues, so it loads this too"))
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
