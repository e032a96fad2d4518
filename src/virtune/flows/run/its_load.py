# SPDX-License-Identifier: Apache-2.0
"""`--its-load`: the load that a running VM's disk has, as fio's options."""

from pathlib import Path

from virtune.bench.live.emulators import emulators_here
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.like import as_it_is_now, disk_of, find_vm, path_of
from virtune.flows.live.diagnose_live import diagnose_domain, diagnose_monitor, diagnose_named
from virtune.model.bottleneck import Diagnosis
from virtune.model.errors import MissingToolError, PreconditionError

LOOK_SECONDS = 10.0
"""How long the disk is looked at."""


def its_load(word: str, connect: str | None) -> Diagnosis:
    """Return what is seen of the disk `VM[:DISK]` under its load, whose `workload` is not empty.

    Raises UsageError where there is no such VM or disk, PreconditionError where it does not run or its disk is idle.
    """
    found, name = find_vm(word, connect)
    disk = disk_of(as_it_is_now(found), name)
    # Proxmox VE 8 calls a disk's drive `drive-scsi0`
    called = {disk.target, f"drive-{disk.target}"}
    vm = f"{found.subject.domain.name or found.origin}:{disk.target}"
    try:
        every = _looked_at(found, connect)
    except (PreconditionError, MissingToolError) as error:
        raise type(error)(f"the load of {vm} cannot be seen: {error.message}", hint=error.hint) from None
    seen = next((one for one in every if one.disk.rpartition(":")[2] in called), None)
    if seen is None:
        raise PreconditionError(f"{vm} is not among the disks of the running VM", hint="`virtune diagnose VM`")
    if not seen.workload:
        raise PreconditionError(
            f"{vm} read and wrote nothing for {LOOK_SECONDS:g} s, so there is no load to repeat",
            hint="look while it is used, or name a load: `--workload randread-4k`",
        )
    return seen


def _looked_at(found: FoundDomain, connect: str | None) -> tuple[Diagnosis, ...]:
    """Look at the running VM of a configuration: that of a process is its own, a Proxmox VM's goes by its number."""
    origin, domain = Path(found.origin), found.subject.domain
    here = next((one for one in emulators_here() if one.command_line == origin and one.sockets), None)
    if here is not None:
        return diagnose_monitor(here.sockets[0], seconds=LOOK_SECONDS)
    if found.subject.connect is not None:
        return diagnose_domain(found.subject.connect, domain.name, disk="", seconds=LOOK_SECONDS)
    called = origin.stem if origin == path_of(origin.stem) else domain.name
    return diagnose_named(connect, called, disk="", seconds=LOOK_SECONDS)
