# SPDX-License-Identifier: Apache-2.0
"""A machine with its present stack: the attached device and the block nodes below it.

Between stacks the device is on a node that opens no image, so that another rig may use the image. `switch_method`
decides how stacks are switched (nodes exchanged below the device, new device, new machine).
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.accelerator import Accelerator
from virtune.bench.qemu.device_settings import device_checks, machine_checks, require_known, thread_checks
from virtune.bench.qemu.further import FixedDisks, FurtherDisks
from virtune.bench.qemu.machine import QemuGuest
from virtune.bench.qemu.placement import pages_check, place_checks, place_threads
from virtune.bench.verify.engine import RingOwners, engine_check, loops_of
from virtune.bench.verify.guest import guest_checks
from virtune.bench.verify.image import cache_checks, node_checks, opened, rbd_checks
from virtune.dialects.qemu.guest import (
    DEVICE,
    LIMITS,
    device_commands,
    device_id,
    node_commands,
    node_of_turn,
    nodes_of_turn,
    plugged,
    removal_commands,
    switch_method,
    thread_commands,
    top_node,
)
from virtune.dialects.qemu.parked import attached, first_commands, parked_command, parked_node
from virtune.dialects.qemu.qmp import Command, DaemonPlaces
from virtune.model.disks import stack_of_disk
from virtune.model.evidence import Check
from virtune.model.stack import PLUGGED, POLL_DEFAULT_NS, WRITABLE, Stack, writes_through
from virtune.probe.process import Process, Ring, Rings

THREAD_POOL_MAX = 64
"""QEMU's default for the workers of an IOThread, restored in the same way."""


class System(Protocol):
    """The system in a guest, as far as its disk needs it.

    `fixed`: its disk must exist at its start. `drives` is the most queues it supports, `proof` where it sees its
    disk.
    """

    fixed: bool
    drives: int
    proof: str

    def prepare(self, bus: str) -> None:
        """Load the driver of a disk on that bus; raises RigError when there is none."""
        ...

    def protect(self, device: str) -> None:
        """Have the guest write nothing to a disk, where it could; raises RigError when it refuses."""
        ...

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        """Return the properties of the disk with that serial number in the guest; raises RigError when it does not
        see it.
        """
        ...


@dataclass(frozen=True, slots=True)
class StartedMachine:
    """A machine that runs, the system in its guest, and the stack that it was started for; it ends with `ends`."""

    vm: QemuGuest
    system: System
    accelerator: Accelerator
    ends: contextlib.ExitStack
    stack: Stack
    ground: DiskImageSpec


class Carried:
    """A running machine and its present stack.

    `stack` is the one that it was started for or ran last, `held` the kernel's rings when that stack was in place,
    and `engines` the event loop of each of them. `stays`: the machine may run other stacks after this one.
    """

    stays = True

    def __init__(self, started: StartedMachine) -> None:
        self.accelerator = started.accelerator
        self.vm, self.ends, self.stack = started.vm, started.ends, started.stack
        self.count = 0
        self.seen: Mapping[str, str] = {}
        self.commands: list[Command] = []
        self.engines = RingOwners()
        self.held: frozenset[Ring] = frozenset()
        self._system = system = started.system
        # on some buses a disk is there from the start
        self._plugged: tuple[Stack, DiskImageSpec] | None = None
        if not self._plugs(self.stack):
            self._plugged = self.stack, started.ground
        self._nodes: tuple[Command, ...] = ()
        self._turn = 0
        self._threads: set[str] = set(_threads_of(self.stack) if system.fixed else ())
        self._new: set[Ring] = set()
        self._now = Rings()
        self._further = FurtherDisks(self.vm.monitor)
        if system.fixed:
            self._further = FixedDisks(self.vm.monitor, swap=self._swap, park=self._park_on)
        self.further: tuple[Mapping[str, str], ...] = ()

    @property
    def process(self) -> Process:
        """The QEMU."""
        return Process(self.vm.child.pid)

    def unfit(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:
        """Say why this machine cannot run a stack, empty when it can; `anew`: with a new device."""
        way, knob = switch_method(self.stack, stack)
        if way == "restart":
            return f"{knob} is the machine's"
        if not self._plugs(stack) and (anew or not self._may_stay(stack, ground)):
            where = "of a guest without a system" if self._system.fixed else f"on {stack.device.bus}"
            return f"a disk {where} comes with the machine"
        return ""

    def _plugs(self, stack: Stack) -> bool:
        """Whether the guest's disk can be hotplugged."""
        return stack.device.bus in PLUGGED and not self._system.fixed

    def place(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:
        """Put the stack below the guest's disk; returns what was exchanged."""
        self._turn += 1
        self.commands = []
        self._system.prepare(stack.device.bus)
        self._make_threads(stack)
        place_threads(stack, self.process)
        bare = self.process.rings()
        self._nodes = node_commands(stack, _places(stack, ground), self._turn)
        for command in self._nodes:
            self._do(command)
        top = top_node(self._nodes)
        what = "nodes"
        if not anew and self._may_stay(stack, ground):
            self._swap(stack, top)
        else:
            self._unplug()
            what = "disk"
            for command in device_commands(stack, top):
                require_known(self._execute, command.arguments["driver"], command.arguments, self.vm.version)
                self._do(command)
        if what == "disk" or not self.seen:
            self.seen = self._system.look()
        now = self._now = self.process.rings()
        self._new = self.engines.opened(loops_of(stack), bare, now)
        self.further = self._plug_further(stack, ground)
        self.held = frozenset((self.process.rings() if self.further else now).places)
        self._plugged, self.stack = (stack, ground), stack
        self.count += 1
        return what

    def _plug_further(self, stack: Stack, ground: DiskImageSpec) -> tuple[Mapping[str, str], ...]:
        """Plug in the disks beside the first one; returns their properties in the guest."""
        for number in range(1, stack.disks):
            one = stack_of_disk(stack, number)
            self._system.prepare(one.device.bus)
            self._make_threads(one)
        places = [_places(stack, replace(ground, image=image)) for image in ground.further]
        serials = self._further.plug(stack, places, self._turn, self._do) if stack.disks > 1 else ()
        return tuple(self._system.look(serial) for serial in serials)

    def park(self) -> None:
        """Remove the image from below the device, and all further disks."""
        if self._plugged is None:
            return
        self._further.unplug()
        stack, _ = self._plugged
        self._park_on(stack)
        for command in removal_commands(self._nodes):
            self._execute(command.execute, command.arguments)
        self._nodes = ()

    def checks(self, stack: Stack, ground: DiskImageSpec) -> Iterator[Check]:
        """Check the settings that are active now."""
        nodes = nodes_of_turn(self._execute("query-named-block-nodes"), self._turn)
        at = {"path": f"/objects/{node_of_turn(LIMITS, self._turn)}", "property": "limits"}
        yield self._accelerator_check()
        if ground.image is not None and stack.disk.backend == "file":
            yield engine_check(stack.disk.aio, self._new, self._now)
            for check in cache_checks(stack, opened(self.process, ground.image), nodes):
                yield _through_device(check, stack, self.seen)
        for check in rbd_checks(stack, nodes):
            yield _through_device(check, stack, self.seen)
        yield from node_checks(stack, nodes, self._execute("qom-get", at) if stack.disk.limits else None)
        given = {command.arguments["id"]: command.arguments for command in device_commands(stack, "")}
        yield from device_checks(self._execute, given, stack)
        yield from thread_checks(self._execute, stack)
        yield from machine_checks(self._execute, stack, self.process, self.vm.version, self.seen.get("cpus"))
        yield from self._further.checks(stack, [one.get("device", "") for one in (self.seen, *self.further)])
        yield from pages_check(stack.machine, self.process)
        yield from place_checks(stack, self.process)
        yield from guest_checks(
            stack, self.seen, vcpus=self._system.drives, writes=writable(stack, ground), proof=self._system.proof
        )

    def _accelerator_check(self) -> Check:
        runs_on = "kvm" if self._execute("query-kvm")["enabled"] else "tcg"
        proof = f"QMP query-kvm; {self.accelerator.why}"
        return Check(setting="accelerator", asked=self.accelerator.name, found=runs_on, proof=proof)

    def _may_stay(self, stack: Stack, ground: DiskImageSpec) -> bool:
        """Whether the device may stay: a guest would not notice another size, or a change to writable."""
        if self._plugged is None:
            return False
        before, stood_on = self._plugged
        alike = stood_on.size_bytes == ground.size_bytes and writable(before, stood_on) == writable(stack, ground)
        if self._system.fixed and attached(before) != attached(stack):
            return False  # the further disks come with the machine too
        return alike and switch_method(before, stack)[0] in ("same", "live", "swap")

    def _make_threads(self, stack: Stack) -> None:
        """Create the IOThreads that the disk needs; existing ones get the stack's settings."""
        wanted = {
            "poll-max-ns": POLL_DEFAULT_NS if stack.poll_max_ns is None else stack.poll_max_ns,
            "thread-pool-max": THREAD_POOL_MAX if stack.thread_pool_max is None else stack.thread_pool_max,
        }
        for command in thread_commands(stack):
            name = command.arguments["id"]
            if name not in self._threads:
                self._do(command)
                self._threads.add(name)
                continue
            for prop, value in wanted.items():
                self._execute("qom-set", {"path": f"/objects/{name}", "property": prop, "value": value})

    def _park_on(self, stack: Stack, number: int = 0) -> None:
        """Put a node that opens nothing below the device of a disk."""
        if self._plugged is None:
            return
        ground = self._plugged[1]
        read_only = not writable(stack, ground)
        parked = parked_command(ground.size_bytes, read_only=read_only, number=number)
        self._execute(parked.execute, parked.arguments)
        self._swap(stack, parked_node(number), number)

    def _swap(self, stack: Stack, node: str, number: int = 0) -> None:
        """Put another node below the device of a disk while the guest runs."""
        # a virtio-blk device without a started driver is in the main loop, and moves with its node when the driver
        # starts; a SCSI disk is in its controller's loop from the start
        if stack.device.iothreads and (not self._system.fixed or stack.device.bus == "virtio-scsi"):
            # a device that is spread over several has its node in the first one's loop
            loop = {"node-name": node, "iothread": stack.device.iothreads[0]}
            self._execute("x-blockdev-set-iothread", loop)
        place = {"path": f"/machine/peripheral/{device_id(number)}", "property": "drive", "value": node}
        self._execute("qom-set", place)
        if node != (parked := parked_node(number)):
            self._execute("blockdev-del", {"node-name": parked})

    def _unplug(self) -> None:
        if self._plugged is None:
            return
        stack, self._plugged = self._plugged[0], None
        for device in plugged(stack):
            self.vm.monitor.execute_until("device_del", {"id": device}, "DEVICE_DELETED", device=device)
        self._execute("blockdev-del", {"node-name": parked_node(0)})

    def _do(self, command: Command) -> None:
        self.commands.append(command)
        self._execute(command.execute, command.arguments)

    def _execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return self.vm.monitor.execute(command, arguments)


def _threads_of(stack: Stack) -> Iterator[str]:
    """Yield the IOThreads of all disks."""
    for number in range(stack.disks):
        yield from stack_of_disk(stack, number).device.iothreads


def writable(stack: Stack, ground: DiskImageSpec) -> bool:
    """Whether the guest may write to its disk: QEMU has no read-only disks on IDE and AHCI."""
    return ground.writes or stack.device.bus in WRITABLE


def first_of(stack: Stack, ground: DiskImageSpec) -> tuple[Command, ...]:
    """Return the disks that a machine must have from its start."""
    return first_commands(stack, ground.size_bytes, read_only=not writable(stack, ground))


def _places(stack: Stack, ground: DiskImageSpec) -> DaemonPlaces:
    image = ground.image
    return DaemonPlaces(
        image="" if image is None else str(image.absolute()),
        size_bytes=ground.size_bytes,
        socket="",
        mountpoint="",
        block_device=image is not None and image.is_block_device(),
        writable=writable(stack, ground),
        rbd=ground.rbd,
    )


def _through_device(check: Check, stack: Stack, seen: Mapping[str, str]) -> Check:
    """writethrough and directsync are settings of the device: it announces no write cache to the guest."""
    if check.setting != "disk.cache" or not writes_through(stack):
        return check
    through = seen.get("write_cache") == "write through"
    proof = "the device announces no write cache" if through else "the device announces a write cache"
    return Check(setting=check.setting, asked=check.asked, found=check.asked if through else "another", proof=proof)
