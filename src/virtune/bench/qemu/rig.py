# SPDX-License-Identifier: Apache-2.0
"""The rig `qemu`: test VMs, as many as a stack requests, each with its own machine, all on the same image.

A machine is booted when a stack first needs it, and stays; its disk is exchanged for every stack. Between stacks, and
while a stack does not need it, it is paused, so that its timers take no CPU time from other arms. The table of knobs
says how stacks are switched (nodes exchanged below the device, new device, new machine); `bench/qemu/carried.py` does
all of these but the last.
"""

import abc
import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from virtune import shell
from virtune.bench.appliance.build import (
    BESIDES,
    SCHEDULERS,
    Appliance,
    appliance_besides,
    chosen_appliance,
    general_appliance,
)
from virtune.bench.port import DiskImageSpec, Surroundings
from virtune.bench.qemu.carried import Carried, first_of, require_memory
from virtune.bench.qemu.load import BOOT_SECONDS as BARE_SECONDS
from virtune.bench.qemu.load import KVM_SECONDS, Bare, BareBench, CarriedBench, GuestBench, find_guest, running_bare
from virtune.bench.qemu.machine import (
    FIRST_BOOT_SECONDS,
    Accelerator,
    HungError,
    Linux,
    accelerator_for,
    bare_accelerator,
    running,
)
from virtune.bench.qemu.passthrough import BOOT_SECONDS, machine_of, taken
from virtune.dialects.qemu.guest import DRIVERS
from virtune.model.contradictions import bare_target
from virtune.model.errors import RigError
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import GuestTarget, Machine, Stack, Target

B = TypeVar("B", bound=CarriedBench)


class MachineSession(abc.ABC, Generic[B]):
    """One machine with its present stack."""

    def __init__(self, kind: type[B]) -> None:
        self._kind = kind
        self._machine: Carried | None = None
        self._none = "the first stack needs one"
        self._resting = False

    @abc.abstractmethod
    def _booted(
        self, stack: Stack, ground: DiskImageSpec, ends: contextlib.ExitStack, why: str
    ) -> tuple[Carried, str]:
        """Return a machine for the stack that ends with `ends`, and why it is a new one."""

    @abc.abstractmethod
    def _target(self, carried: Carried, stack: Stack, ground: DiskImageSpec) -> tuple[Target, tuple[Check, ...]]:
        """Return where the load in the guest lands, and what was checked on the way there."""

    def _lacks(self, stack: Stack) -> str:  # noqa: ARG002 - most machines lack nothing
        """Say what of the stack the running system cannot do, empty for nothing."""
        return ""

    def _leave(self) -> None:
        """Let go of the disk in the guest, before it is taken away."""

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[B]:
        """Put the stack below the guest's disk, and park the disk when the block ends.

        With `restart` the same machine gets a new disk, because a machine keeps nothing of an arm but its disk. A
        machine that failed, refuses, or differs from the stack's, is replaced. Raises RigError when the stack cannot
        come up.
        """
        begun = time.monotonic()
        carried, why = self._usable(stack, ground, anew=restart)
        try:
            swapped = carried.place(stack, ground, anew=restart and not why)
        except BaseException:
            self.give_up()
            raise
        seconds = time.monotonic() - begun
        changeover = Changeover(
            swapped=None if why else swapped,
            seconds=seconds,
            process=carried.vm.child.pid,
            carried=carried.count - 1,
            why=why,
        )
        try:
            yield self._bench(carried, stack, ground, changeover)
            self._leave()
            # what the host does to its memory between trials, under its own setting, belongs to no arm
            if not carried.stays or stack.machine.thp is not None:
                self.give_up()
                return
            carried.park()
            self._rest()
        except BaseException:
            # after any failure the next stack gets a machine in a known state
            self.give_up()
            raise

    def _rest(self) -> None:
        """Pause the vCPUs until the next stack, which gets another machine if that fails."""
        if self._machine is not None:
            try:
                self._machine.vm.monitor.execute("stop")
                self._resting = True
            except RigError as error:
                self.give_up()
                self._none = f"the one before did not stand still: {error.message}"

    def give_up(self) -> None:
        """End the machine; the next stack gets a new one."""
        self._resting = False
        if self._machine is not None:
            machine, self._machine = self._machine, None
            machine.ends.close()

    def _usable(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> tuple[Carried, str]:
        """Return a running machine, and why it is a new one (empty for the old one)."""
        why = self._none
        if self._machine is not None:
            trouble = self._machine.vm.trouble()
            why = f"the one before is gone: {trouble}" if trouble else self._machine.unfit(stack, ground, anew=anew)
            why = why or self._lacks(stack) or self._woken(self._machine)
            if not why:
                return self._machine, ""
            self.give_up()
        require_memory(stack.machine)
        with contextlib.ExitStack() as ends:
            self._machine, why = self._booted(stack, ground, ends, why)
            self._machine.ends = ends.pop_all()
        return self._machine, why

    def _bench(self, carried: Carried, stack: Stack, ground: DiskImageSpec, changeover: Changeover) -> B:
        """Return the guest as it is now, with the settings that are active."""
        size = int(carried.seen.get("sectors", "0")) * 512
        sizes = [size, *(int(one.get("sectors", "0")) * 512 for one in carried.further)]
        if min(sizes) < ground.size_bytes:
            raise RigError(f"the guest sees a disk of {min(sizes)} bytes, and the image has {ground.size_bytes}")
        target, checks = self._target(carried, stack, ground)
        told = (repr(one) for one in carried.commands)
        further = {"further": " ".join(one["device"] for one in carried.further)} if carried.further else {}
        return self._kind(
            target=target,
            image=ground.image,
            command="\n".join([" ".join(carried.vm.child.command), *told]) + "\n",
            processes={"guest": carried.vm.child.pid},
            in_force=InForce(checks=(*carried.checks(stack, ground), *checks)),
            changeover=changeover,
            stack=stack,
            during=carried.job(stack, ground),
            vm=carried.vm,
            accelerator=carried.accelerator,
            seen=dict(carried.seen) | further,
            engines=carried.engines,
            held=carried.held,
        )

    def _woken(self, machine: Carried) -> str:
        """Resume a paused machine; returns why that failed, empty on success."""
        try:
            if self._resting:
                machine.vm.monitor.execute("cont")
                self._resting = False
        except RigError as error:
            return f"the one before does not go on: {error.message}"
        return ""


class GuestSession(MachineSession[GuestBench]):
    """One Linux machine with its present stack."""

    def __init__(
        self,
        appliance: Appliance,
        accelerator: Accelerator,
        warden: shell.Warden,
        *,
        first_boot_seconds: float = FIRST_BOOT_SECONDS,
    ) -> None:
        super().__init__(GuestBench)
        self._appliance, self._accelerator, self._warden = appliance, accelerator, warden
        self._first_boot_seconds = first_boot_seconds
        self._linux: Linux | None = None

    def _booted(
        self, stack: Stack, ground: DiskImageSpec, ends: contextlib.ExitStack, why: str
    ) -> tuple[Carried, str]:
        drive = taken(stack, self._warden, ends)
        appliance = self._appliance_for(stack)
        accelerator, emulator = self._accelerator, stack.machine.emulator
        if accelerator.kvm and (emulator is not None or appliance is not self._appliance):
            # a QEMU or kernel other than the one tested with KVM is tested too
            accelerator = accelerator_for(appliance, self._warden, shell.cache_directory(), emulator=emulator)
        boot = functools.partial(
            running,
            appliance,
            self._warden,
            kvm=accelerator.kvm,
            host_cpu=accelerator.host_cpu,
            asked=stack.machine,
            first=first_of(stack, ground),
        )
        patience = self._first_boot_seconds if drive is None else BOOT_SECONDS
        try:
            vm = ends.enter_context(boot(boot_seconds=patience))
        except HungError as error:
            why += f"; it is the second one, since of the first {error.message} ({error.hint})"
            vm = ends.enter_context(boot())
        self._linux = Linux(vm, appliance)
        started = {"vm": vm, "system": self._linux, "accelerator": accelerator}
        return machine_of(drive, **started, ends=ends, stack=stack, ground=ground), why

    def _appliance_for(self, stack: Stack) -> Appliance:
        """Return an appliance with the driver of the stack's bus (the cloud kernel lacks AHCI, the general one has
        it) and its filesystem.
        """
        cache, besides = shell.cache_directory(), _besides(stack)
        lacking = [module for module in DRIVERS[stack.device.bus_in_guest] if not self._appliance.drives(module)]
        if lacking:
            return general_appliance(cache, module=lacking[0], besides=besides)
        if all(self._appliance.drives(module) for module in besides):
            return self._appliance
        return appliance_besides(cache, besides)

    def _target(self, carried: Carried, stack: Stack, ground: DiskImageSpec) -> tuple[Target, tuple[Check, ...]]:
        first, *more = [one.get("device", "") for one in (carried.seen, *carried.further)]
        if not first.startswith("/dev/"):
            raise RigError("the guest does not say which device its disk is")
        kind = stack.disk.filesystem
        if kind == "none" or self._linux is None:
            return GuestTarget(path=first, size_bytes=ground.size_bytes, more=tuple(more)), ()
        mounted = self._linux.mount([first, *more], kind, writes=ground.writes)
        first, *more = mounted.files
        target = GuestTarget(path=first, size_bytes=mounted.size_bytes, more=tuple(more))
        return target, tuple(mounted.checks(kind, stack.kernel))

    def _lacks(self, stack: Stack) -> str:
        drives = None if self._linux is None else self._linux.appliance.drives
        lacking = [module for module in sorted(_besides(stack)) if drives is not None and not drives(module)]
        return f"{lacking[0]} is not in the guest that runs" if lacking else ""

    def _leave(self) -> None:
        if self._linux is not None:
            self._linux.unmount()


def _besides(stack: Stack) -> frozenset[str]:
    """Return the further modules that a stack needs: of schedulers all, as arms that differ in them share a guest."""
    schedulers = SCHEDULERS.values() if stack.kernel.scheduler in SCHEDULERS else ()
    return BESIDES & {stack.disk.filesystem, *schedulers}


class BareSession(MachineSession[BareBench]):
    """One machine without an operating system, with its present stack."""

    def __init__(self, guest: Path, warden: shell.Warden, *, known: Accelerator | None = None) -> None:
        super().__init__(BareBench)
        self._guest, self._warden = guest, warden
        self._accelerators: dict[str | None, Accelerator] = {} if known is None else {None: known}

    def _booted(
        self, stack: Stack, ground: DiskImageSpec, ends: contextlib.ExitStack, why: str
    ) -> tuple[Carried, str]:
        accelerator = self.accelerator_for(stack.machine.emulator)
        drive = taken(stack, self._warden, ends)
        vm = ends.enter_context(
            running_bare(
                self._guest,
                self._warden,
                kvm=accelerator.kvm,
                host_cpu=accelerator.host_cpu,
                asked=stack.machine,
                first=first_of(stack, ground),
                boot_seconds=BARE_SECONDS if drive is None else BOOT_SECONDS,
            )
        )
        started = {"vm": vm, "system": Bare(vm), "accelerator": accelerator}
        return machine_of(drive, **started, ends=ends, stack=stack, ground=ground), why

    def accelerator_for(self, emulator: str | None) -> Accelerator:
        """Return the guest's accelerator under that QEMU: tested once on this host, and cached."""
        if emulator not in self._accelerators:
            asked = Machine(system="bare", emulator=emulator)
            boot = functools.partial(
                running_bare, self._guest, self._warden, kvm=True, asked=asked, boot_seconds=KVM_SECONDS
            )
            found = bare_accelerator(self._guest, shell.cache_directory(), boot, emulator=emulator)
            self._accelerators[emulator] = found
        return self._accelerators[emulator]

    def _target(
        self,
        carried: Carried,  # noqa: ARG002 - the stack says what its disks are called
        stack: Stack,
        ground: DiskImageSpec,
    ) -> tuple[Target, tuple[Check, ...]]:
        return bare_target(stack, ground.size_bytes), ()


@functools.cache
def ready_appliance() -> Appliance:
    """Return the appliance that guests boot, building it if needed; a run looks for it once."""
    return chosen_appliance(shell.cache_directory())


def session(stack: Stack, place: Surroundings) -> AbstractContextManager["Systems"]:  # noqa: ARG001 - all as needed
    """Return the rig; its machines end with the block."""
    return contextlib.closing(Systems(place.warden))


class Systems:
    """Guests with and without an operating system: those of one kind end when the other is requested."""

    def __init__(self, warden: shell.Warden) -> None:
        self._warden = warden
        self._linux: Guests[GuestBench] | None = None
        self._bare: Guests[BareBench] | None = None

    def up(
        self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False
    ) -> contextlib.AbstractContextManager[GuestBench | BareBench]:
        """Put the stack below the disk of every guest it needs; raises MissingToolError where the guest program is
        not built.
        """
        others = self._linux if stack.machine.is_bare else self._bare
        if others is not None:
            others.give_up()
        if stack.machine.is_bare:
            if self._bare is None:
                guest = find_guest()
                self._bare = Guests(lambda: BareSession(guest, self._warden))
            return self._bare.up(stack, ground, restart=restart)
        if self._linux is None:
            appliance = ready_appliance()
            accelerator = accelerator_for(appliance, self._warden, shell.cache_directory())
            self._linux = Guests(lambda: GuestSession(appliance, accelerator, self._warden))
        return self._linux.up(stack, ground, restart=restart)

    def close(self) -> None:
        """End all machines."""
        for guests in (self._linux, self._bare):
            if guests is not None:
                guests.give_up()


class Guests(Generic[B]):
    """Machines for guests with their present stacks; `make` makes the session of one."""

    def __init__(self, make: Callable[[], MachineSession[B]]) -> None:
        self._make = make
        self._sessions: list[MachineSession[B]] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[B]:
        """Put the stack below the disk of every guest it needs; yields the first, which knows the others.

        Raises RigError when one of them fails.
        """
        wanted = stack.guests + stack.idle_guests
        self._sessions += [self._make() for _ in range(wanted - len(self._sessions))]
        with contextlib.ExitStack() as ups:
            benches = [
                ups.enter_context(one.up(stack, _of(stack, ground, number), restart=restart))
                for number, one in enumerate(self._sessions[:wanted])
            ]
            yield _as_one(stack, ground, benches)

    def give_up(self) -> None:
        """End all machines."""
        for one in self._sessions:
            one.give_up()


def _of(stack: Stack, ground: DiskImageSpec, number: int) -> DiskImageSpec:
    """Return the image of one guest: its own, where each has one; else every second one has the second image."""
    if stack.own_images and number:
        return replace(ground, image=ground.further[number - 1], further=())
    return replace(ground, image=ground.second) if ground.second is not None and number % 2 else ground


def _as_one(stack: Stack, ground: DiskImageSpec, benches: list[B]) -> B:
    first, *others = benches
    if not others:
        return _with_spread(stack, ground, first)
    loaded, idle = benches[: stack.guests], benches[stack.guests :]
    pids = ", ".join(str(one.vm.child.pid) for one in benches)
    counted = (
        Check(name, str(asked), str(len(found)), f"QEMU processes {pids}")
        for name, asked, found in (
            ("guests.count", stack.guests, loaded),
            ("guests.idle", stack.idle_guests, idle),
        )
        if asked
    )
    spread = [] if stack.spread is None else [spread_check(stack.spread, others[0].image)]
    if stack.own_images:
        spread.append(images_check(benches, {ground.image, *ground.further}))
    seen = [replace(check, guest=number) for number, one in enumerate(benches) for check in one.in_force.checks]
    # all guests were started as the one that took a new process was, with the sum of their times
    ways = [one.changeover for one in benches if one.changeover is not None]
    told = next((way for way in ways if way.swapped is None), ways[0])
    return replace(
        first,
        beside=tuple(loaded[1:]),
        idle=tuple(one.vm.child.pid for one in idle),
        in_force=InForce(checks=(*counted, *spread, *seen)),
        changeover=replace(told, seconds=sum(way.seconds for way in ways)),
    )


def _with_spread(stack: Stack, ground: DiskImageSpec, bench: B) -> B:
    """Return the only guest, with a check of where the image of its second disk lies, if its disks are spread."""
    if stack.spread is None or not ground.further:
        return bench
    image = ground.further[0]
    held = bench.process.opened(image) if image is not None else {}
    check = replace(spread_check(stack.spread, image if held else None), hidden=held is None)
    return replace(bench, in_force=InForce(checks=(*bench.in_force.checks, check)))


def spread_check(asked: str, image: Path | None) -> Check:
    """Check whether an image lies in the requested directory or below it, under any name or link.

    If others may write to that directory, the image is in our own directory below it.
    """
    found = None
    if image is not None:
        place = image.resolve().parent
        found = asked if place.is_relative_to(Path(asked).resolve()) else str(place)
    proof = f"every second guest or disk stands on {image}"
    return Check("guests.spread", asked, found, proof)


def images_check(benches: Sequence[CarriedBench], meant: Collection[Path | None]) -> Check:
    """Check that each guest has an image of its own; an existing target is shared, whatever was asked."""
    images = {one.image for one in benches}
    shared = len(meant) == 1
    found = None if shared else "on" if images == meant and len(images) == len(benches) else "off"
    names = ", ".join(sorted(map(str, images)))
    proof = f"all guests share {names}" if shared else f"the guests stand on {names}"
    return Check("guests.images", "on", found, proof, hidden=shared)
