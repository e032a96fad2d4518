# SPDX-License-Identifier: Apache-2.0
"""The rig `qemu`: a guest of ours that is booted once, and whose disk is exchanged for every stack.

Between stacks the device stands on a node that opens nothing, so that no image is held open while another rig may use
it. Which way a stack takes (nodes exchanged under the device, device anew, machine anew) is in `way_between`.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virtune import shell
from virtune.bench.appliance import Appliance
from virtune.bench.in_force import cache_checks, node_checks
from virtune.bench.qemu_accelerator import Accelerator
from virtune.bench.qemu_in_force import (
    Engines,
    Ring,
    engine_check,
    engine_check_under_load,
    guest_checks,
    iothread_check_under_load,
    rings_of,
    role_of,
    seen_in_guest,
    threads_of,
)
from virtune.bench.qemu_machine import Vm, running
from virtune.bench.rig import Ground
from virtune.dialects.qemu import Command, DaemonPlaces
from virtune.dialects.qemu_guest import (
    DEVICE,
    DRIVERS,
    LIMITS,
    device_commands,
    node_commands,
    node_of_turn,
    nodes_of_turn,
    plugged,
    removal_commands,
    thread_command,
    top_node,
    way_between,
)
from virtune.model.errors import RigError
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import GuestTarget, Target

PARKED = "parked"
"""The node below the device between stacks."""

POLL_MAX_NS = 32768
"""QEMU's default for an IOThread, set again where an arm asks for no other."""

_SEEN_SECONDS = 20.0
_DRIVER_SECONDS = 20.0


@dataclass(slots=True, kw_only=True)
class GuestBench:
    """A guest with a disk that stands for one stack; `beside` it others that share its load, and the pids of `idle`
    ones.
    """

    target: Target
    image: Path | None
    command: str
    processes: Mapping[str, int]
    in_force: InForce
    changeover: Changeover | None
    stack: Stack
    vm: Vm
    accelerator: Accelerator
    seen: Mapping[str, str]
    rings: set[Ring]
    beside: tuple["GuestBench", ...] = ()
    idle: tuple[int, ...] = ()
    rings_before: Mapping[Ring, int] = field(default_factory=dict)
    spent_before: Mapping[int, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Note how far everything has come when the load begins."""
        pid = self.vm.child.pid
        self.rings_before = rings_of(pid)
        self.spent_before = {tid: spent for tid, _, spent in threads_of(pid)}

    def spent(self) -> dict[str, int]:
        """Return the nanoseconds on a CPU since the load began, by role."""
        pid = self.vm.child.pid
        found: dict[str, int] = {}
        for tid, comm, spent in threads_of(pid):
            role = role_of(comm, main=tid == pid)
            found[role] = found.get(role, 0) + spent - self.spent_before.get(tid, 0)
        return found

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:  # noqa: ARG002 - rings tell it whoever flushes
        """Look who does the I/O now."""
        spent = self.spent()
        checks = [iothread_check_under_load(self.stack, spent)]
        if self.stack.disk.backend == "file":
            now = rings_of(self.vm.child.pid)
            workers = spent.get("worker", 0)
            checks.append(engine_check_under_load(self.stack, self.rings_before, now, self.rings, workers))
        return tuple(check for check in checks if check is not None)

    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""
        return self.vm.trouble()


class GuestSession:
    """One machine, and what stands in it now."""

    def __init__(self, appliance: Appliance, accelerator: Accelerator, warden: shell.Warden) -> None:
        self._appliance, self._accelerator, self._warden = appliance, accelerator, warden
        self._machine: _Carried | None = None
        self._resting = False

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: Ground, *, restart: bool = False) -> Iterator[GuestBench]:
        """Put the stack below the guest's disk, and park the disk again with the block.

        With `restart` the disk is made anew in the machine that there is: a machine holds nothing of an arm but its
        disk. A machine that is in trouble, or that refuses, is replaced. Raises RigError when the stack cannot be.
        """
        begun = time.monotonic()
        carried, why = self._usable()
        try:
            swapped = carried.place(stack, ground, anew=restart)
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
            yield carried.bench(stack, ground, self._accelerator, changeover)
            carried.park()
        except BaseException:
            # whatever went wrong, the next stack finds a machine of which all is known
            self.give_up()
            raise

    def _usable(self) -> tuple["_Carried", str]:
        """Return a machine that runs, and why it is a new one (empty for the one that there was)."""
        why = "the first stack needs one"
        if self._machine is not None:
            trouble = self._machine.vm.trouble()
            if trouble is None:
                if self._resting:
                    self._machine.vm.monitor.execute("cont")
                    self._resting = False
                return self._machine, ""
            why = f"the one before is gone: {trouble}"
            self.give_up()
        ends = contextlib.ExitStack()
        vm = ends.enter_context(running(self._appliance, self._warden, kvm=self._accelerator.kvm))
        self._machine = _Carried(vm, self._appliance, ends)
        return self._machine, why

    def rest(self) -> None:
        """Stop the vCPUs until the next stack: a guest that an arm has no use for takes no time from it."""
        if self._machine is not None and not self._resting and self._machine.vm.trouble() is None:
            self._machine.vm.monitor.execute("stop")
            self._resting = True

    def give_up(self) -> None:
        """End the machine; the next stack gets a new one."""
        self._resting = False
        if self._machine is not None:
            machine, self._machine = self._machine, None
            machine.ends.close()


class _Carried:
    """A machine with what it carries: the stack whose device is plugged in, and the nodes of the present turn."""

    def __init__(self, vm: Vm, appliance: Appliance, ends: contextlib.ExitStack) -> None:
        self.vm, self.ends = vm, ends
        self.count = 0
        self._appliance = appliance
        self._plugged: tuple[Stack, Ground] | None = None
        self._nodes: tuple[Command, ...] = ()
        self._turn = 0
        self._threads: set[str] = set()
        self._drivers: set[str] = set()
        self._engines = Engines()
        self._new: set[Ring] = set()
        self._seen: Mapping[str, str] = {}
        self._commands: list[Command] = []

    def place(self, stack: Stack, ground: Ground, *, anew: bool) -> str:
        """Bring the stack below the guest's disk; returns what was exchanged for that."""
        self._turn += 1
        self._commands = []
        self._require_drivers(stack)
        self._thread(stack)
        bare = rings_of(self.vm.child.pid)
        self._nodes = node_commands(stack, _places(ground), self._turn)
        for command in self._nodes:
            self._do(command)
        top = top_node(self._nodes)
        if not anew and self._may_swap(stack, ground):
            self._swap(stack, top)
            return self._done(stack, ground, bare, "nodes")
        self._unplug()
        for command in device_commands(stack, top):
            self._do(command)
        self._seen = seen_in_guest(self.vm.guest, DEVICE, timeout_seconds=_SEEN_SECONDS)
        return self._done(stack, ground, bare, "disk")

    def _done(self, stack: Stack, ground: Ground, bare: Mapping[Ring, int], what: str) -> str:
        loop = stack.device.iothread or "main"
        self._new = self._engines.opened(loop, bare, rings_of(self.vm.child.pid))
        self._plugged = (stack, ground)
        self.count += 1
        return what

    def _may_swap(self, stack: Stack, ground: Ground) -> bool:
        """Whether the device may stay: a guest would miss another size, or leave to write."""
        if self._plugged is None:
            return False
        before, stood_on = self._plugged
        alike = (stood_on.size_bytes, stood_on.writes) == (ground.size_bytes, ground.writes)
        return alike and way_between(before, stack) != "replug"

    def park(self) -> None:
        """Take the image away from under the device."""
        if self._plugged is None:
            return
        stack, ground = self._plugged
        parked = {"driver": "null-co", "node-name": PARKED, "size": ground.size_bytes, "read-zeroes": False}
        parked["read-only"] = not ground.writes
        self._execute("blockdev-add", parked)
        self._swap(stack, PARKED)
        for command in removal_commands(self._nodes):
            self._execute(command.execute, command.arguments)
        self._nodes = ()

    def bench(self, stack: Stack, ground: Ground, accelerator: Accelerator, changeover: Changeover) -> GuestBench:
        """Say what is in force now."""
        device = self._seen.get("device", "")
        size = int(self._seen.get("sectors", "0")) * 512
        if not device.startswith("/dev/") or size < ground.size_bytes:
            raise RigError(f"the guest sees a disk of {size} bytes, and the image has {ground.size_bytes}")
        return GuestBench(
            target=GuestTarget(path=device, size_bytes=ground.size_bytes),
            image=ground.image,
            command="\n".join([" ".join(self.vm.child.command), *(repr(one) for one in self._commands)]) + "\n",
            processes={"guest": self.vm.child.pid},
            in_force=InForce(checks=tuple(self._checks(stack, ground, accelerator))),
            changeover=changeover,
            stack=stack,
            vm=self.vm,
            accelerator=accelerator,
            seen=self._seen,
            rings=self._engines.brought.get(stack.device.iothread or "main", set()),
        )

    def _checks(self, stack: Stack, ground: Ground, accelerator: Accelerator) -> Iterator[Check]:
        shown = self._execute("query-named-block-nodes")
        nodes = nodes_of_turn(shown, self._turn)
        limited = stack.disk.throttle_iops or stack.disk.throttle_bps
        at = {"path": f"/objects/{node_of_turn(LIMITS, self._turn)}", "property": "limits"}
        yield Check(setting="accelerator", asked=accelerator.name, found=accelerator.name, proof=accelerator.why)
        if ground.image is not None and stack.disk.backend == "file":
            yield engine_check(stack, self._new)
            for check in cache_checks(stack, self.vm.child.pid, ground.image, nodes):
                yield _through_device(check, stack, self._seen)
        yield from (
            _named(check) for check in node_checks(stack, nodes, self._execute("qom-get", at) if limited else None)
        )
        yield from guest_checks(stack, self._seen, vcpus=self.vm.vcpus, writes=ground.writes)

    def _require_drivers(self, stack: Stack) -> None:
        for module in DRIVERS[stack.device.bus]:
            if module in self._drivers:
                continue
            if not self._appliance.drives(module):
                release = self._appliance.release
                raise RigError(f"the guest's kernel {release} has no {module}, which bus={stack.device.bus} needs")
            words = (
                f"for m in $(cat /lib/modules/{module}.order); do insmod /lib/modules/$m.ko; done 2>/dev/null; true"
            )
            if module in self._appliance.modules:
                self.vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
            self._drivers.add(module)

    def _thread(self, stack: Stack) -> None:
        command, name = thread_command(stack), stack.device.iothread
        if command is None or name is None:
            return
        if name not in self._threads:
            self._do(command)
            self._threads.add(name)
        else:
            wanted = POLL_MAX_NS if stack.poll_max_ns is None else stack.poll_max_ns
            self._execute("qom-set", {"path": f"/objects/{name}", "property": "poll-max-ns", "value": wanted})

    def _swap(self, stack: Stack, node: str) -> None:
        """Put another node below the device while the guest goes on."""
        if stack.device.iothread is not None:
            self._execute("x-blockdev-set-iothread", {"node-name": node, "iothread": stack.device.iothread})
        place = {"path": f"/machine/peripheral/{DEVICE}", "property": "drive", "value": node}
        self._execute("qom-set", place)
        if node != PARKED:
            self._execute("blockdev-del", {"node-name": PARKED})

    def _unplug(self) -> None:
        if self._plugged is None:
            return
        stack, self._plugged = self._plugged[0], None
        for device in plugged(stack):
            self.vm.monitor.execute_until("device_del", {"id": device}, "DEVICE_DELETED", device=device)
        self._execute("blockdev-del", {"node-name": PARKED})

    def _do(self, command: Command) -> None:
        self._commands.append(command)
        self._execute(command.execute, command.arguments)

    def _execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return self.vm.monitor.execute(command, arguments)


def _places(ground: Ground) -> DaemonPlaces:
    image = ground.image
    return DaemonPlaces(
        image="" if image is None else str(image.resolve()),
        size_bytes=ground.size_bytes,
        socket="",
        mountpoint="",
        block_device=image is not None and image.is_block_device(),
        writable=ground.writes,
    )


def _through_device(check: Check, stack: Stack, seen: Mapping[str, str]) -> Check:
    """writethrough and directsync are the device's part: it announces no write cache, which the guest sees."""
    if check.setting != "disk.cache" or stack.disk.cache not in ("writethrough", "directsync"):
        return check
    through = seen.get("write_cache") == "write through"
    proof = "the device announces no write cache" if through else "the device announces a write cache"
    return Check(setting=check.setting, asked=check.asked, found=check.asked if through else "another", proof=proof)


def _named(check: Check) -> Check:
    """On a block device QEMU's `file` back end is called `host_device`."""
    if check.setting == "disk.backend" and (check.asked, check.found) == ("file", "host_device"):
        return Check(setting=check.setting, asked=check.asked, found=check.asked, proof=f"{check.proof}: host_device")
    return check
