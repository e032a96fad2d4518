# SPDX-License-Identifier: Apache-2.0
"""The preconditions of a study, checked before anything is created: programs, a guest, a target that may be loaded.

All arms of a study that hands a drive to a guest load that drive: it is the target, and what is refused of a target
is refused of it.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import (
    Appliance,
    Chosen,
    appliance_for,
    appliances,
    choose,
    chosen,
    remove,
)
from virtune.bench.appliance.sources import find_sources
from virtune.bench.host_settings import settable
from virtune.bench.permission import Held, admit
from virtune.bench.qemu.machine import Accelerator, accelerator_for, running
from virtune.bench.rbd import PROGRAM as RBD
from virtune.bench.scratch import FILESYSTEM_PROGRAMS, find_maker
from virtune.bench.volumes import group_of, require_room
from virtune.model.errors import MissingToolError, PlanError, PreconditionError, RefusedTargetError, RigError
from virtune.model.event import Noticed, Say, step
from virtune.model.facts import Unknown
from virtune.model.rig import PASSED_KNOB
from virtune.model.stack import PASSED_TARGET, WRITABLE, Stack
from virtune.model.study import Arm, Study
from virtune.model.study_options import ChosenOption, Provenance
from virtune.model.text import format_bytes
from virtune.plan.guests import system_words
from virtune.probe.access import why_exchangeable
from virtune.probe.cpu import online_cpus, parse_list

_AGENT_SECONDS = 20.0
"""It answers within a second after the guest's own agent, under emulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An appliance, whether it was built now, and the accelerator of guests on this host. Its agent, if it has one,
    answered in a test.
    """

    appliance: Appliance
    made: bool
    accelerator: Accelerator


def build(*, kernel: Path | None, modules: Path | None, agent: bool) -> Built:
    """Build the appliance unless there is one of the same content, and test again whether it boots on KVM.

    The rig boots it from then on, or a rebuild of it after its sources have changed. Raises GuestError when its guest
    agent, if requested, does not answer.
    """
    cache = shell.cache_directory()
    sources = find_sources(cache / "packages", kernel=kernel, modules=modules, agent=agent)
    appliance, made = appliance_for(sources, cache / "appliances")
    with shell.Warden("appliance") as warden:
        accelerator = accelerator_for(appliance, warden, cache, again=True)
        if agent:
            with running(appliance, warden, kvm=accelerator.kvm) as vm:
                if vm.agent is not None:
                    vm.agent.ping(timeout_seconds=_AGENT_SECONDS)
    choose(Chosen(kernel=kernel, modules=modules, agent=agent, key=appliance.key))
    return Built(appliance=appliance, made=made, accelerator=accelerator)


def ready_appliance(say: Say) -> None:
    """Build the appliance if there is none yet, and report it: the first time packages are downloaded."""
    with step("getting the guest ready", say):
        # the rig imports QMP and its event loop, which only booting a guest needs
        from virtune.bench.qemu import rig

        rig.ready_appliance()


def kept() -> list[Appliance]:
    """Return the stored appliances, oldest first."""
    return appliances(shell.cache_directory() / "appliances")


def booted() -> str:
    """Return the key of the appliance that the rig boots, empty if there is none yet."""
    return chosen().key


def remove_kept(keys: frozenset[str]) -> list[str]:
    """Remove the appliances with these keys, or all without keys; raises PreconditionError for a missing one."""
    unknown = keys - {one.key for one in kept()}
    if unknown:
        raise PreconditionError(f"there is no appliance {min(unknown)}", hint="`virtune host guest list` shows them")
    return remove(shell.cache_directory() / "appliances", keys or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The arms of a study with the address of their drive, and the target that it is. `left_out` says which arms were
    left out, and why.
    """

    arms: tuple[Arm, ...]
    target: Path | None
    left_out: str | None = None

    @property
    def options(self) -> tuple[ChosenOption, ...]:
        """What is recorded with the study of arms that were left out."""
        if self.left_out is None:
            return ()
        return (ChosenOption(name=PASSED_KNOB, value=self.left_out, source=Provenance.DEFAULT),)


def with_drive(arms: Sequence[Arm], target: Path | None, *, builtin: bool) -> Given:
    """Find the drive of the arms whose guest drives one itself. In a built-in study such arms are left out where this
    host cannot hand over the target.

    Raises PlanError for arms with several drives, or another one than the target; PreconditionError with the reason
    when this host cannot hand it over.
    """
    asked = {arm.stack.device.vfio_pci for arm in arms} - {None}
    simulated = not all(arm.stack.kind.measures for arm in arms)
    if not asked or (simulated and not builtin):
        return Given(arms=tuple(arms), target=target)
    try:
        address, node = _drive(asked, target, simulated=simulated)
    except (RigError, PlanError) as error:
        gone = ", ".join(arm.name for arm in arms if arm.stack.device.vfio_pci is not None)
        if isinstance(error, PlanError) and not builtin:
            raise
        if not builtin:
            raise PreconditionError(f"arm {gone!r} cannot be here: {error.message}", hint=error.hint) from None
        rest = tuple(arm for arm in arms if arm.stack.device.vfio_pci is None)
        return Given(arms=rest, target=target, left_out=f"{gone} is left out: {error.message}")
    named = []
    for arm in arms:
        if arm.stack.device.vfio_pci != PASSED_TARGET:
            named.append(arm)
            continue
        stack = replace(arm.stack, device=replace(arm.stack.device, vfio_pci=address))
        said = tuple((name, address if name == PASSED_KNOB else value) for name, value in arm.settings)
        named.append(replace(arm, stack=stack, settings=said))
    return Given(arms=tuple(named), target=target or node)


def bring_back(study: Study) -> None:
    """Give back the drives that killed runs left with a guest, for a study that hands one over."""
    if any(arm.stack.device.vfio_pci is not None for arm in study.arms):
        from virtune.bench.qemu.passthrough import recover

        recover()


def require_given(study: Study, *, allow_in_use: bool) -> None:
    """Raise RefusedTargetError where the drive that a study hands over may not be taken from this host; nothing for
    a study without one.
    """
    address = next((found for arm in study.arms if (found := arm.stack.device.vfio_pci) is not None), None)
    if address is None:
        return
    from virtune.bench.qemu.passthrough import address_of, drive_at, recover, require_free

    recover()
    try:
        if study.target is None or address_of(Path(study.target)) != address:
            raise RefusedTargetError(f"{study.target} is not the disk {address}, which its guests are to drive")
        require_free(drive_at(address), allow_in_use=allow_in_use)
    except RigError as error:
        raise PreconditionError(error.message, hint=error.hint) from None


def _drive(asked: set[str | None], target: Path | None, *, simulated: bool) -> tuple[str, Path]:
    """Return the address and the node of the only drive that is asked for; a simulation has none."""
    if simulated:
        raise RigError("a simulation has no drives")
    from virtune.bench.qemu.passthrough import address_of, drive_at, recover

    recover()
    if PASSED_TARGET in asked and target is None:
        raise PlanError(
            f"{PASSED_KNOB}={PASSED_TARGET} is the drive of --target, and there is no --target",
            hint="`--target /dev/NAME`, an NVMe drive that this host does not use",
        )
    addresses = {word for word in asked if word is not None and word != PASSED_TARGET}
    if PASSED_TARGET in asked or (target is not None and addresses):
        own = drive_at(address_of(target or Path()))
        if addresses - {own.address}:
            raise PlanError(f"{PASSED_KNOB} is {min(addresses)}, and --target is the drive {own.address}")
        return own.address, Path(own.node)
    if len(addresses) > 1:
        raise PlanError(f"the arms have several drives: {', '.join(sorted(addresses))}", hint="compare two studies")
    drive = drive_at(addresses.pop())
    return drive.address, Path(drive.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The user's permissions for existing targets."""

    write_to: tuple[str, ...] = ()
    in_use: bool = False


def guest_is_built() -> bool:
    """Whether the guest without an operating system is at hand."""
    from virtune.bench.qemu.load import find_guest

    with contextlib.suppress(MissingToolError):
        find_guest()
        return True
    return False


def require_programs(study: Study, say: Say) -> None:
    """Find the programs of every rig and format, build the guest image if needed, and say what guests run.

    Raises MissingToolError, or PreconditionError if this host cannot run guests.
    """
    on_ceph = {RBD for arm in study.arms if arm.stack.disk.backend == "rbd"}
    for program in sorted(on_ceph.union(*(arm.stack.kind.programs for arm in study.arms))):
        shell.find(program)
    overlaid = any(arm.stack.kind.users_guest and arm.stack.during == "snapshot" for arm in study.arms)
    if overlaid or any(arm.stack.disk.format == "qcow2" for arm in study.arms):
        shell.find("qemu-img")
    for kind in sorted({arm.stack.disk.filesystem for arm in study.arms} - {"none"}):
        for program in FILESYSTEM_PROGRAMS[kind]:
            find_maker(program)
    machines = {arm.stack.machine for arm in study.arms if arm.stack.kind.own_guest}
    for emulator in {machine.emulator for machine in machines}:
        shell.require_x86_64()
        program = shell.find(emulator or "qemu-system-x86_64")
        if emulator is not None:
            _require_trusted(emulator, Path(program).resolve(), say)
    if machines:
        _require_host(study)
    for words in (system_words(study, built=guest_is_built()), study.left_out):
        if words is not None:
            say(Noticed(text=words))
    if any(machine.is_bare for machine in machines):
        from virtune.bench.qemu.load import find_guest

        find_guest()
    if any(not machine.is_bare for machine in machines):
        ready_appliance(say)


def _require_trusted(asked: str, program: Path, say: Say) -> None:
    """Announce the program that a plan or a stored study runs as QEMU; refuse one that another user could replace.

    The plan's author chose it, so it is announced before anything is started.
    """
    if (why := why_exchangeable(program)) is not None:
        hint = "name a QEMU of yours or of root's that nobody else may write to"
        raise PreconditionError(f"machine.emulator={asked} is not started: {why}", hint=hint)
    say(Noticed(text=f"machine.emulator: {program} runs as QEMU"))


@contextlib.contextmanager
def admitted(study: Study, leave: Leave, say: Say) -> Iterator[Mapping[str, Held]]:
    """Lock the study's targets while the block runs, and yield them with the size used, by `disk.place`. Where a
    scratch volume is to be made, there is room for it.

    Raises RefusedTargetError with the reason when one may not be loaded; PreconditionError for want of room.
    """
    _require_plain(study)
    for place in sorted({place for arm in study.arms for place in (arm.stack.directory, arm.stack.spread) if place}):
        if not Path(place).is_dir():
            said = f"an arm's images are to lie in {place}, and there is no such directory"
            raise PreconditionError(said, hint="is it mounted? `mkdir` makes one where none is to be")
    _require_cpus(study)
    if study.volume is not None:
        require_room(study.volume, study.span_bytes)
    stacks = {arm.stack: _loaded(arm.stack, study) for arm in study.arms if arm.stack.of_this_host}
    with settable(stacks, say, allow_in_use=leave.in_use), _held(study, leave) as held:
        yield held


def _require_cpus(study: Study) -> None:
    """Raise PreconditionError for an arm whose threads are to run on CPUs that this host has not."""
    online = online_cpus()
    if isinstance(online, Unknown):
        return
    pins = ((arm.name, *pin) for arm in study.arms for pin in asdict(arm.stack.pins).items())
    for name, role, cpus in pins:
        if not set(online).issuperset(parse_list(cpus or "")):
            raise PreconditionError(
                f"arm {name!r} cannot be here: {role}.pin={cpus} names a CPU that is not online",
                hint=f"those of this host are {','.join(map(str, online))}",
            )


def _loaded(stack: Stack, study: Study) -> list[Path]:
    """Return paths on the disks that a stack loads: its images need not be there yet."""
    if stack.disk.backend != "file":
        return []
    if (target := study.targets.get(stack.place)) is not None:
        return [Path(target)]
    if study.volume is not None and stack.directory is None:
        return [Path(device) for device in group_of(study.volume.group).devices]
    return [Path(stack.directory or study.scratch), *([] if stack.spread is None else [Path(stack.spread)])]


@contextlib.contextmanager
def _held(study: Study, leave: Leave) -> Iterator[Mapping[str, Held]]:
    require_given(study, allow_in_use=leave.in_use)
    with contextlib.ExitStack() as ends:
        held = {place: ends.enter_context(_target(place, study, leave)) for place in study.targets}
        for (name, one), (other, another) in itertools.combinations(held.items(), 2):
            if one.path.samefile(another.path):
                raise RefusedTargetError(f"{study.targets[name]} and {study.targets[other]} are one disk")
        sizes = {*(one.size_bytes for one in held.values())}
        if any(arm.stack.own_target for arm in study.arms):
            on_images = any(not study.loads_target(arm.stack) for arm in study.arms)
            sizes |= {study.span_bytes} if on_images else set()
            if len(sizes) > 1:
                raise RefusedTargetError(
                    f"{format_bytes(max(sizes))} of one arm's disk and {format_bytes(min(sizes))} of another's would"
                    " be loaded, and what lies further apart takes longer to reach",
                    hint=f"`--span {min(sizes)}` is what all of them have",
                )
        yield held


@contextlib.contextmanager
def _target(place: str, study: Study, leave: Leave) -> Iterator[Held]:
    target, stacks = Path(study.targets[place]), [arm.stack for arm in study.arms if arm.stack.place == place]
    cut = study.check_durability and any(stack.kind.front != "file" for stack in stacks)
    writes = study.check_data or cut or study.precondition or any(one.writes for one in study.workloads)
    bus = next((stack.device.bus for stack in stacks if stack.device.bus in WRITABLE), None)
    if bus is not None and not writes and not leave.write_to:
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


def _require_plain(study: Study) -> None:
    """Raise RefusedTargetError for arms that need an image: what they load is a target, or a scratch volume."""
    what = "a target is used as it is" if study.targets else "a scratch volume has nothing around its data"
    plain = [arm.stack for arm in study.arms if study.loads_target(arm.stack)]
    if any(stack.disk.format != "raw" for stack in plain):
        raise RefusedTargetError(f"{what}, so the only possible format is raw")
    if study.volume is not None and any(arm.stack.neighbour == "io" for arm in study.arms):
        raise RefusedTargetError(
            "host.neighbour=io loads the disk below scratch images, and a scratch volume has none beside it",
            hint="a directory on the same disk: `--scratch DIR`",
        )
    if any(stack.during not in ("none", "migration") for stack in plain):
        raise RefusedTargetError(
            f"disk.during copies a scratch image to another of its size, or lets it grow, and {what}",
            hint="disk.place=scratch in that arm, or a scratch image: no --target, and `--scratch DIR`",
        )
    if any(stack.disk.filesystem != "none" for stack in plain):
        raise RefusedTargetError(
            f"disk.filesystem makes a filesystem on a scratch image, and {what}",
            hint="disk.place=scratch in that arm, or a scratch image: no --target, and `--scratch DIR`",
        )


def _require_host(study: Study) -> None:
    """Check the host's requirements for guests."""
    from virtune.bench.qemu.carried import require_memory
    from virtune.bench.qemu.passthrough import require_lockable

    for arm in study.arms:
        try:
            require_memory(arm.stack.machine)
            if arm.stack.device.vfio_pci is not None:
                require_lockable(arm.stack.machine)
        except RigError as error:
            raise PreconditionError(f"arm {arm.name!r} cannot be here: {error.message}", hint=error.hint) from None
