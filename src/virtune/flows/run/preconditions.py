# SPDX-License-Identifier: Apache-2.0
"""The preconditions of a study, checked before anything is created: programs, a guest, and a target that may be
loaded.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from virtune import shell
from virtune.bench.permission import Held, admit
from virtune.bench.rbd import PROGRAM as RBD
from virtune.bench.scratch import FILESYSTEM_PROGRAMS, find_maker
from virtune.flows.run.appliance import ready_appliance
from virtune.flows.run.passed import require_given
from virtune.model.errors import MissingToolError, PreconditionError, RefusedTargetError, RigError
from virtune.model.event import Event, Noticed
from virtune.model.stack import WRITABLE
from virtune.model.study import Study
from virtune.plan.guests import system_words
from virtune.probe.access import why_exchangeable


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The user's permissions for an existing target."""

    write_to: str | None = None
    in_use: bool = False


def guest_is_built() -> bool:
    """Whether the guest without an operating system is at hand."""
    from virtune.bench.qemu.bare import find_guest

    with contextlib.suppress(MissingToolError):
        find_guest()
        return True
    return False


def require_programs(study: Study, say: Callable[[Event], None]) -> None:
    """Find the programs of every rig and format, build the guest image if needed, and say what guests run.

    Raises MissingToolError, or PreconditionError if this host cannot run guests.
    """
    on_ceph = {RBD for arm in study.arms if arm.stack.disk.backend == "rbd"}
    for program in sorted(on_ceph.union(*(arm.stack.kind.programs for arm in study.arms))):
        shell.find(program)
    if any(arm.stack.disk.format == "qcow2" for arm in study.arms):
        shell.find("qemu-img")
    for kind in sorted({arm.stack.disk.filesystem for arm in study.arms} - {"none"}):
        for program in FILESYSTEM_PROGRAMS[kind]:
            find_maker(program)
    machines = {arm.stack.machine for arm in study.arms if arm.stack.kind.own_guest}
    for emulator in {machine.emulator for machine in machines}:
        program = shell.find(emulator or "qemu-system-x86_64")
        if emulator is not None:
            _require_trusted(emulator, Path(program).resolve(), say)
    if machines:
        _require_host(study)
    for words in (system_words(study, built=guest_is_built()), study.left_out):
        if words is not None:
            say(Noticed(text=words))
    if any(machine.is_bare for machine in machines):
        from virtune.bench.qemu.bare import find_guest

        find_guest()
    if any(not machine.is_bare for machine in machines):
        ready_appliance(say)


def _require_trusted(asked: str, program: Path, say: Callable[[Event], None]) -> None:
    """Announce the program that a plan or a stored study runs as QEMU; refuse one that another user could replace.

    The plan's author chose it, so it is announced before anything is started.
    """
    if (why := why_exchangeable(program)) is not None:
        hint = "name a QEMU of yours or of root's that nobody else may write to"
        raise PreconditionError(f"machine.emulator={asked} is not started: {why}", hint=hint)
    say(Noticed(text=f"machine.emulator: {program} runs as QEMU"))


@contextlib.contextmanager
def admitted(study: Study, leave: Leave) -> Iterator[Held | None]:
    """Lock the study's target while the block runs, and yield it with the size used; None without a target.

    Raises RefusedTargetError with the reason when it may not be loaded.
    """
    if study.target is None:
        yield None
        return
    target = Path(study.target)
    require_given(study, allow_in_use=leave.in_use)
    if any(arm.stack.disk.format != "raw" for arm in study.arms):
        raise RefusedTargetError("--target is used as it is, so the only possible format is raw")
    if any(arm.stack.disk.filesystem != "none" and arm.stack.place == "target" for arm in study.arms):
        raise RefusedTargetError(
            "disk.filesystem makes a filesystem on a scratch image, and --target is left as it is",
            hint="disk.place=scratch in that arm, or no --target",
        )
    writes = study.check_data or any(workload.writes for workload in study.workloads)
    bus = next((arm.stack.device.bus for arm in study.arms if arm.stack.device.bus in WRITABLE), None)
    if bus is not None and not writes and leave.write_to is None:
        raise RefusedTargetError(
            f"QEMU gives bus={bus} no disk that is only read, so it would open {target} to write",
            hint=f"`--allow-write-to {target}` permits it",
        )
    with admit(
        target,
        span_bytes=study.span_bytes,
        writes=writes or bus is not None,
        allow_write_to=leave.write_to,
        allow_in_use=leave.in_use,
    ) as held:
        yield replace(held, size_bytes=min(study.span_bytes, held.size_bytes))


def _require_host(study: Study) -> None:
    """Check the host's requirements for guests."""
    from virtune.bench.qemu.carried import require_pages
    from virtune.bench.qemu.passthrough import require_lockable

    for arm in study.arms:
        try:
            require_pages(arm.stack.machine)
            if arm.stack.device.vfio_pci is not None:
                require_lockable(arm.stack.machine)
        except RigError as error:
            raise PreconditionError(f"arm {arm.name!r} cannot be here: {error.message}", hint=error.hint) from None
