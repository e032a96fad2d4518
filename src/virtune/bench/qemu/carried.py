# SPDX-License-Identifier: Apache-2.0
"""A machine with its present stack: the attached device and the block nodes below it.

Between stacks the device is on a node that opens no image, so that another rig may use the image. `switch_method`
decides how stacks are switched (nodes exchanged below the device, new device, new machine).

Further disks are the functions of one PCI slot. The guest looks at the slot when function 0 comes, so that is plugged
in last, and unplugging it takes all of them away. On the older board each has a slot of its own.

The process's threads are placed on CPUs by role, its memory on pages of a given size. A thread that QEMU starts later
inherits its parent's CPUs: a worker those of the event loop whose request it takes, an IOThread or the main loop. The
kernel's io_uring workers are an exception: io-wq gives them its own CPU mask (all CPUs, or a node's), never the
submitter's, and it cannot be changed from outside.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from virtune.bench.during import BlockJob, DuringLoad, Snapshots
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.during import Discards, Migrations
from virtune.bench.qemu.machine import PROGRAM, Accelerator, QemuGuest, Vm
from virtune.bench.qmp import Monitor
from virtune.bench.verify import (
    RingOwners,
    Row,
    cache_checks,
    cpus_check,
    engine_check,
    guest_checks,
    kernel_checks,
    loops_of,
    node_checks,
    opened,
    rbd_checks,
    requested,
)
from virtune.dialects.qemu.guest import (
    AHCI,
    DEVICE,
    LIMITS,
    attached,
    controller_id,
    device_commands,
    device_id,
    first_commands,
    mapping_text,
    node_commands,
    node_of_turn,
    nodes_of_turn,
    parked_command,
    parked_node,
    plugged,
    switch_method,
    thread_commands,
    top_node,
)
from virtune.dialects.qemu.images import files_of
from virtune.dialects.qemu.qmp import FILE_NODE, FORMAT_NODE, Command, DaemonPlaces, undo_commands
from virtune.model.contradictions import settings_of_second, stack_of_disk
from virtune.model.counters import thread_role
from virtune.model.errors import RigError
from virtune.model.evidence import Check
from virtune.model.facts import Unknown
from virtune.model.stack import LIMITS as OF_LIMITS
from virtune.model.stack import MEMORY, PLUGGED, POLL_DEFAULT_NS, THROUGH_CACHES, WRITABLE, Machine, Stack
from virtune.model.text import format_bytes, setting_text
from virtune.probe import tree
from virtune.probe.cpu import parse_list
from virtune.probe.process import Process, Ring, Rings, Thread
from virtune.probe.programs import program

GUEST = "virtune-guest"
"""The program that is a guest by itself."""

Ask = Callable[[str, Mapping[str, Any]], Any]
"""Executes a QMP command with its arguments; raises RigError with QEMU's message."""

_SHOWN = (
    ("device.num_queues", "num-queues"),
    ("device.queue_size", "queue-size"),
    ("device.packed", "packed"),
    ("device.event_idx", "event_idx"),
    ("device.write_cache", "write-cache"),
    ("scsi.num_queues", "num_queues"),
    ("nvme.max_ioqpairs", "max_ioqpairs"),
    ("device.logical_block_size", "logical_block_size"),
    ("device.physical_block_size", "physical_block_size"),
)
"""The knobs of a device, and the properties by which QEMU shows them."""


_BUSES = {
    "virtio-blk-pci": "virtio-blk", "virtio-blk-device": "virtio-blk", "scsi-hd": "virtio-scsi", "nvme": "nvme",
    "ide-hd": "ide",
}  # fmt: skip
"""The buses of QEMU's disk devices, by their type; an `ide-hd` may be on AHCI."""


def require_known(ask: Ask, driver: str, properties: Mapping[str, Any], version: str) -> None:
    """Raise RigError when this QEMU's device lacks one of these properties, which is queried and never guessed."""
    has = {one["name"] for one in ask("device-list-properties", {"typename": driver})}
    for name in properties:
        if name not in has | {"driver", "id", "bus"}:
            raise RigError(
                f"{version} has no `{name}` for {driver}",
                hint="`--set machine.emulator=PATH` takes another QEMU, where one is installed",
            )


def device_checks(ask: Ask, added: Mapping[str, Mapping[str, Any]], stack: Stack) -> Iterator[Check]:
    """Check the properties of QEMU's devices; `added` has the requested ones by the device's id."""
    disk = {"path": f"/machine/peripheral/{DEVICE}"}
    kind, parent = (str(ask("qom-get", {**disk, "property": name})) for name in ("type", "parent_bus"))
    bus = "ahci" if kind == "ide-hd" and f"/{AHCI}/" in parent else _BUSES.get(kind, kind)
    yield Check("device.bus", stack.device.bus, bus, f"QMP qom-get {DEVICE}: {kind} on {parent}")
    for identity, given in added.items():
        at = f"/machine/peripheral/{identity}"
        for setting, name in _SHOWN:
            # what the cache mode says of the device is verified in the guest
            if name in given and (setting, stack.device.write_cache) != ("device.write_cache", None):
                found = setting_text(ask("qom-get", {"path": at, "property": name}))
                yield Check(setting, setting_text(given[name]), found, f"QMP qom-get {identity}.{name}")
        if (mapping := stack.device.iothread_vq_mapping) is not None and "iothread-vq-mapping" in given:
            shown = ask("qom-get", {"path": at, "property": "iothread-vq-mapping"})
            yield Check(
                "device.iothread_vq_mapping",
                mapping,
                mapping_text(shown, queues=":" in mapping),
                f"QMP qom-get {identity}.iothread-vq-mapping",
            )


def thread_checks(ask: Ask, stack: Stack) -> Iterator[Check]:
    """Check the settings of the disk's IOThreads at QEMU."""
    own = (
        ("iothread.poll_max_ns", "poll-max-ns", stack.poll_max_ns),
        ("iothread.thread_pool_max", "thread-pool-max", stack.thread_pool_max),
    )
    for setting, name, asked in own:
        if asked is not None:
            places = ({"path": f"/objects/{thread}", "property": name} for thread in stack.device.iothreads)
            found = {str(ask("qom-get", place)) for place in places}
            shown = found.pop() if len(found) == 1 else "several"
            yield Check(setting, str(asked), shown, f"QMP qom-get /objects/ID {name}")


def machine_checks(
    ask: Ask, stack: Stack, process: Process, version: str, cpus_in_guest: str | None
) -> Iterator[Check]:
    """Check every requested setting of the machine at QEMU."""
    asked = stack.machine
    runs = _version_check(asked.emulator or PROGRAM, version)
    yield runs
    if asked.emulator is not None:
        yield _emulator_check(asked.emulator, process, runs)
    if asked.type is not None:
        shown = str(ask("qom-get", {"path": "/machine", "property": "type"})).removesuffix("-machine")
        family = {"q35": "pc-q35-", "pc": "pc-i440fx-"}.get(asked.type)
        found = asked.type if shown == asked.type or (family and shown.startswith(family)) else shown
        yield Check("machine.type", asked.type, found, f"QMP qom-get /machine: {shown}")
    if asked.system is not None:
        kernel = str(ask("qom-get", {"path": "/machine", "property": "kernel"}))
        system = "bare" if Path(kernel).name == GUEST else "linux"
        proof = f"QMP qom-get /machine: it booted {kernel}"
        yield Check("guest.system", asked.system, system, proof)
    cpus = ask("query-cpus-fast", {})
    rows: tuple[Row, ...] = (
        ("machine.vcpus", asked.vcpus, len(cpus), "QMP query-cpus-fast"),
        ("guest.vcpus", asked.vcpus, cpus_in_guest, "the CPUs that answer in the guest"),
    )
    yield from requested(rows)
    if asked.cpu is not None:
        kind = str(ask("qom-get", {"path": cpus[0]["qom-path"], "property": "type"})).removesuffix("-x86_64-cpu")
        name = asked.cpu.partition(",")[0]
        found = asked.cpu if kind == name else kind
        yield Check("machine.cpu", asked.cpu, found, f"QMP qom-get the CPU's type: {kind}")
    if asked.memory is not None:
        memory = ask("query-memory-size-summary", {})["base-memory"]
        yield Check("machine.memory", str(asked.memory or MEMORY), str(memory), "QMP query-memory-size-summary")


def _version_check(emulator: str, running: str) -> Check:
    """Compare the version of the QEMU that runs with the one that its program says: the numbers, since a build may
    name its package in one of them only.
    """
    shown, found = program(emulator), _NUMBERS.search(running)
    said = shown if isinstance(shown, Unknown) else shown.version
    number = found[0] if found is not None else running
    if isinstance(said, Unknown):
        return Check("qemu.version", number, None, f"{emulator} --version: {said.because}", hidden=True)
    asked = _NUMBERS.search(said)
    proof = f"QMP query-version: {running}; {emulator} --version: {said}"
    return Check("qemu.version", said if asked is None else asked[0], number, proof)


_NUMBERS = re.compile(r"\d+(?:\.\d+)+")


def _emulator_check(asked: str, process: Process, version: Check) -> Check:
    """Compare the running program with the requested one. What a script starts is told by its version alone."""
    runs, script = process.program(), False
    same = runs is not None and Path(asked).resolve() == runs
    with contextlib.suppress(OSError), Path(asked).open("rb") as file:
        script = file.read(2) == b"#!"
    return Check(
        "machine.emulator",
        asked,
        asked if same or (script and version.agrees) else None,
        f"/proc/{process.pid}/exe is {runs}; {version.proof}",
        hidden=not same and script,
    )


POOLS = Path("/sys/kernel/mm/hugepages")

_KERNELS_OWN = "uring"
"""The role of kernel threads in the process, which it cannot place."""


NODES = Path("/sys/devices/system/node/online")


def require_memory(machine: Machine, pools: Path = POOLS, online: Path = NODES) -> None:
    """Raise RigError with the reason when the host lacks the huge pages for a guest's memory, or a node of it."""
    if machine.numa is not None:
        here = tree.text(str(online))
        # of a list with nodes that are not there the kernel takes the others without a word
        if isinstance(here, Unknown) or not {*parse_list(machine.numa)} <= {*parse_list(here)}:
            has = "knows no NUMA nodes" if isinstance(here, Unknown) else f"has the NUMA nodes {here}"
            raise RigError(f"this host {has}, and memory.numa={machine.numa} was asked for", hint=f"`cat {online}`")
    if machine.hugepages is None:
        return
    size, memory = format_bytes(machine.hugepages), machine.memory or MEMORY
    pool = pools / f"hugepages-{machine.hugepages // 1024}kB"
    try:
        free = int((pool / "free_hugepages").read_text())
    except (OSError, ValueError):
        raise RigError(f"this host has no huge pages of {size}", hint=f"`ls {pools}` shows the sizes") from None
    needed = memory // machine.hugepages
    if free < needed:
        raise RigError(
            f"this host has {free} huge pages of {size} free, and the guest's memory needs {needed}",
            hint=f"`echo {needed} > {pool}/nr_hugepages` reserves them, where there is memory in one piece",
        )


def memory_checks(machine: Machine, process: Process) -> Iterator[Check]:
    """Check the pages of the guest's memory and the nodes that hold it, where they were requested."""
    if machine.thp is not None or machine.ksm is not None:
        shown = process.own_memory(machine.memory or MEMORY) or {}
        where = f"of the memory in /proc/{process.pid}/smaps"
        if machine.thp is not None:
            yield _thp_check(machine.thp, shown, where)
        if machine.ksm is not None:
            yield _ksm_check(shown.get("VmFlags"), where, asked=machine.ksm)
    if machine.hugepages is not None:
        proof = f"KernelPageSize of the memory in /proc/{process.pid}/smaps"
        size = process.memfd_page_bytes()
        yield Check("memory.hugepages", str(machine.hugepages), None if size is None else str(size), proof)
    if machine.numa is not None:
        bound, lies = process.memfd_nodes() or (None, "")
        asked, pages = {*parse_list(machine.numa)}, {*parse_list(lies)}
        astray = bound is not None and not pages <= asked
        same = bound is not None and not astray and {*parse_list(bound)} == asked
        proof = f"/proc/{process.pid}/numa_maps: the memory is bound to {bound or 'no node'}, its pages lie on {lies}"
        found = None if bound is None else machine.numa if same else lies if astray else bound or "any node"
        yield Check("memory.numa", machine.numa, found, proof, hidden=bound is None)


def _thp_check(asked: str, shown: Mapping[str, str], where: str) -> Check:
    """Compare what is asked for with what a guest has that has touched its memory. QEMU asks for huge pages, so
    `always` and `madvise` are the same to it: which one it is stands in the kernel's file.
    """
    pages, may = shown.get("AnonHugePages"), shown.get("THPeligible")
    fits = ["always", "madvise"] if pages not in (None, "0 kB") else ["never" if may == "0" else "small pages so far"]
    found = None if pages is None or may is None else asked if asked in fits else " or ".join(fits)
    return Check("memory.thp", asked, found, f"AnonHugePages is {pages}, THPeligible {may} {where}")


def _ksm_check(flags: str | None, where: str, *, asked: bool) -> Check:
    found = None if flags is None else "on" if "mg" in flags.split() else "off"
    proof = f"VmFlags are {flags} {where}; /sys/kernel/mm/ksm/run is {tree.text('/sys/kernel/mm/ksm/run')}"
    return Check("memory.ksm", "on" if asked else "off", found, proof)


def halt_poll_check(stack: Stack, polls: int | None) -> Check | None:
    """Check that KVM has not polled for a vCPU since the guest began, where it is to poll for none. None otherwise:
    how long it polls, and whether it does at all, KVM chooses below the limit that is read back.
    """
    if stack.host.halt_poll_ns != 0 or polls is None:
        return None
    proof = f"QMP query-stats: KVM polled {polls} times for a vCPU that had halted"
    return Check("host.halt_poll_ns", "0", "0" if polls == 0 else "more than 0", proof)


def place_threads(stack: Stack, process: Process) -> None:
    """Pin every thread to its role's CPUs, and unpin roles without a request.

    Raises RigError for CPUs that do not exist or are not available to us.
    """
    anywhere = os.sched_getaffinity(0)
    for thread in process.threads():
        role = thread_role(thread.name, main=thread.tid == process.pid)
        if role == _KERNELS_OWN:
            continue
        knob, asked = _asked(stack, role)
        try:
            wanted = anywhere if asked is None else set(parse_list(asked))
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.tid, wanted)
        except (OSError, ValueError, OverflowError):
            raise RigError(
                f"{knob}={asked} was refused: none of these CPUs is there for us",
                hint=f"the CPUs that we may use: {','.join(map(str, sorted(anywhere)))}",
            ) from None


def place_checks(stack: Stack, process: Process, when: str = "") -> Iterator[Check]:
    """Check the CPUs of each pinned role's threads."""
    threads: dict[str, list[Thread]] = {}
    for thread in process.threads():
        role = thread_role(thread.name, main=thread.tid == process.pid)
        if role != _KERNELS_OWN:
            threads.setdefault(_asked(stack, role)[0], []).append(thread)
    pins = stack.pins
    for knob, asked in (("vcpu.pin", pins.vcpu), ("iothread.pin", pins.iothread), ("emulator.pin", pins.emulator)):
        if asked is not None:
            yield cpus_check(knob, asked, process, threads.get(knob, ()), when)


def _asked(stack: Stack, role: str) -> tuple[str, str | None]:
    """Return the knob that pins a role's threads, and its value; workers follow their event loop."""
    match role:
        case "vcpu":
            return "vcpu.pin", stack.pins.vcpu
        case "iothread":
            return "iothread.pin", stack.pins.iothread
        case "worker" if stack.device.iothreads:
            return "iothread.pin", stack.pins.iothread
        case _:
            return "emulator.pin", stack.pins.emulator


class FurtherDisks:
    """The second disk of a guest and all after it; none until they are plugged.

    Into some guests nothing can be plugged: their devices come with the machine, and the nodes below them are
    exchanged. `swap` then puts a node below the device of a disk, and `park` one that opens nothing.
    """

    def __init__(
        self,
        monitor: Monitor,
        *,
        swap: Callable[[Stack, str, int], None] | None,
        park: Callable[[Stack, int], None],
    ) -> None:
        self._monitor, self._swap, self._park = monitor, swap, park
        self._nodes: list[Command] = []
        self._stacks: list[Stack] = []
        self._turn = 0

    def plug(
        self, stack: Stack, places: Sequence[DaemonPlaces], turn: int, do: Callable[[Command], None]
    ) -> tuple[str, ...]:
        """Plug in every disk of the stack but the first; returns their serial numbers. `do` executes a command and
        notes it. The disks' IOThreads must exist.
        """
        self._turn = turn
        self._stacks = [stack_of_disk(stack, number) for number in range(1, stack.disks)]
        for number, (one, place) in reversed(list(enumerate(zip(self._stacks, places, strict=True), 1))):
            nodes = node_commands(one, place, _turn_of(turn, number))
            self._nodes += nodes
            for command in nodes:
                do(command)
            if self._swap is not None:
                self._swap(one, top_node(nodes), number)
                continue
            for command in device_commands(one, top_node(nodes), number):
                do(command)
        return tuple(device_id(number) for number in range(1, stack.disks))

    def unplug(self) -> None:
        """Take all of them away; nothing without any."""
        if not self._stacks:
            return
        self._detach()
        for command in undo_commands(self._nodes):
            self._monitor.execute(command.execute, command.arguments)
        self._nodes, self._stacks = [], []

    def _detach(self) -> None:
        if self._swap is not None:
            for number, one in enumerate(self._stacks, 1):
                self._park(one, number)
            return
        devices = [plugged(one, number)[0] for number, one in enumerate(self._stacks, 1)]
        if self._stacks[0].machine.has_isa:
            for device in devices:
                self._monitor.unplug(device, last=device)
        else:
            # the functions go in their order, so the last one's end is the end of all
            self._monitor.unplug(devices[0], last=devices[-1])

    def checks(self, stack: Stack, seen: Sequence[str]) -> Iterator[Check]:
        """Check how many disks the guest has and in what every second one differs; `seen` are those that the guest
        itself sees, the first included.
        """
        if stack.disks == 1:
            return
        mine = [device_id(number) for number in range(stack.disks)]
        there = [name for name in mine if self._shown(name, "type") is not None]
        found = str(min(len(there), len(seen)))
        proof = f"QMP qom-get {', '.join(there)}; the guest sees {', '.join(seen)}"
        yield Check("disks.count", str(stack.disks), found, proof)
        if stack.own_iothreads:
            threads = [self._thread_of(number) for number in range(stack.disks)]
            found = "on" if len({*threads} - {""}) == stack.disks else "off"
            yield Check("disks.iothreads", "on", found, f"QMP qom-get: {', '.join(threads)}")
        if stack.second is not None:
            yield self._second_check(stack.second)

    def _second_check(self, asked: str) -> Check:
        wanted = settings_of_second(asked)
        shown = dict(self._of_second())
        found = asked if all(shown.get(name) == value for name, value in wanted) else None
        told = ", ".join(f"{name}={shown.get(name)}" for name, _ in wanted)
        return Check("disks.second", asked, found or told, f"QMP qom-get {device_id(1)}: {told}")

    def _of_second(self) -> Iterator[tuple[str, object]]:
        yield "device.bus", _BUSES.get(str(self._shown(device_id(1), "type")))
        if self._stacks[0].disk.limits:
            at = f"/objects/{node_of_turn(LIMITS, _turn_of(self._turn, 1))}"
            limits: Mapping[str, Any] = self._monitor.execute("qom-get", {"path": at, "property": "limits"})
            yield from ((one.knob, limits.get(one.qmp)) for one in OF_LIMITS)

    def _thread_of(self, number: int) -> str:
        """Return the IOThread of a disk, or of its controller; empty for the main loop."""
        shown = (self._shown(name, "iothread") for name in (device_id(number), controller_id(number)))
        return str(next(filter(None, shown), "")).rpartition("/")[2]

    def _shown(self, device: str, prop: str) -> object:
        """Return a property of a device; None where there is none."""
        names = {one["name"] for one in self._monitor.execute("qom-list", {"path": "/machine/peripheral"})}
        if device not in names:
            return None
        shown = {one["name"] for one in self._monitor.execute("qom-list", {"path": f"/machine/peripheral/{device}"})}
        if prop not in shown:
            return None
        return self._monitor.execute("qom-get", {"path": f"/machine/peripheral/{device}", "property": prop})


def _turn_of(turn: int, number: int) -> str:
    return f"{turn}-{number + 1}"


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

    def prepare(self, stack: Stack) -> None:
        """Load the drivers of a stack's disk, which is looked at next; raises RigError when there is none."""
        ...

    def protect(self, device: str) -> None:
        """Have the guest write nothing to a disk, where it could; raises RigError when it refuses."""
        ...

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        """Return the properties of the disk with that serial number in the guest; raises RigError when it does not
        see it.
        """
        ...


@dataclass(kw_only=True)
class Carried:
    """A running machine, the system in its guest, and its present stack; it ends with `ends`.

    `stack` is the one that it was started for or ran last, with the `ground` of the former, `held` the kernel's rings
    when that stack was in place, and `engines` the event loop of each of them. `stays`: the machine may run other
    stacks after this one.
    """

    vm: QemuGuest
    system: System
    accelerator: Accelerator
    ends: contextlib.ExitStack
    stack: Stack
    ground: DiskImageSpec
    count: int = 0
    seen: Mapping[str, str] = field(default_factory=dict)
    further: tuple[Mapping[str, str], ...] = ()
    commands: list[Command] = field(default_factory=list)
    engines: RingOwners = field(default_factory=RingOwners)
    held: frozenset[Ring] = frozenset()
    stays = True

    def __post_init__(self) -> None:
        # on some buses a disk is there from the start
        self._plugged = None if self._plugs(self.stack) else (self.stack, self.ground)
        self._nodes: tuple[Command, ...] = ()
        self._turn = 0
        disks = range(self.stack.disks) if self.system.fixed else ()
        self._threads = {thread for number in disks for thread in stack_of_disk(self.stack, number).device.iothreads}
        self._new: set[Ring] = set()
        self._now = Rings()
        swap = None if self._plugs(self.stack) else self._swap
        self._further = FurtherDisks(self.vm.monitor, swap=swap, park=self._park_on)

    @property
    def process(self) -> Process:
        return Process(self.vm.child.pid)

    def unfit(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:
        """Say why this machine cannot run a stack, empty when it can; `anew`: with a new device."""
        way, knob = switch_method(self.stack, stack)
        if way == "restart":
            return f"{knob} is the machine's"
        if not self._plugs(stack) and (anew or not self._may_stay(stack, ground)):
            where = "of a guest without a system" if self.system.fixed else f"on {stack.device.bus}"
            return f"a disk {where} comes with the machine"
        return ""

    def _plugs(self, stack: Stack) -> bool:
        """Whether the guest's disk can be hotplugged."""
        return stack.device.bus in PLUGGED and not self.system.fixed

    def place(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:
        """Put the stack below the guest's disk; returns what was exchanged."""
        self._turn += 1
        self.commands = []
        self.system.prepare(stack)
        self._make_threads(stack)
        place_threads(stack, self.process)
        bare = self.process.rings()
        self._nodes = node_commands(stack, ground.places(writable=writable(stack, ground)), self._turn)
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
            self.seen = self.system.look()
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
            self.system.prepare(one)
            self._make_threads(one)
        may = writable(stack, ground)
        places = [replace(ground, image=image).places(writable=may) for image in ground.further]
        serials = self._further.plug(stack, places, self._turn, self._do) if stack.disks > 1 else ()
        return tuple(self.system.look(serial) for serial in serials)

    def park(self) -> None:
        """Remove the image from below the device, and all further disks."""
        if self._plugged is None:
            return
        self._further.unplug()
        stack, _ = self._plugged
        self._park_on(stack)
        for command in undo_commands(self._nodes):
            self._execute(command.execute, command.arguments)
        self._nodes = ()

    def job(self, stack: Stack, ground: DiskImageSpec) -> DuringLoad | None:
        """Return what is to be at work under load; a block job works on the disk below its limits."""
        if stack.during == "discard" and isinstance(self.vm, Vm):
            nodes = {"top": top_node(self._nodes), "file": node_of_turn(FILE_NODE, self._turn)}
            device, size = self.seen["device"], ground.size_bytes
            return Discards(self._execute, self.vm.guest, device=device, size=size, **nodes)
        if stack.during == "migration" and isinstance(self.vm, Vm):
            return Migrations(self._execute, self.vm.guest)
        if stack.during == "none" or ground.copy is None:
            return None
        source = node_of_turn(FORMAT_NODE, self._turn)
        kind = Snapshots if stack.during == "snapshot" else BlockJob
        return kind(stack.during, self._execute, source=source, copy=ground.copy, disk=stack.disk)

    def checks(self, stack: Stack, ground: DiskImageSpec) -> Iterator[Check]:
        """Check the settings that are active now."""
        nodes = nodes_of_turn(self._execute("query-named-block-nodes"), self._turn)
        at = {"path": f"/objects/{node_of_turn(LIMITS, self._turn)}", "property": "limits"}
        yield self._accelerator_check()
        if stack.host.halt_poll_ns is not None and not self.vm.kvm:
            raise RigError("host.halt_poll_ns is KVM's, and the guest runs without it", hint=self.accelerator.why)
        if ground.image is not None and stack.disk.backend == "file":
            yield engine_check(stack.disk.aio, self._new, self._now)
            held = opened(self.process, *files_of(stack.disk, ground.image))
            for check in cache_checks(stack, held, nodes):
                yield through_device(check, stack, self.seen)
        for check in rbd_checks(stack, nodes):
            yield through_device(check, stack, self.seen)
        yield from node_checks(stack, nodes, self._execute("qom-get", at) if stack.disk.limits else None)
        given = {command.arguments["id"]: command.arguments for command in device_commands(stack, "")}
        yield from device_checks(self._execute, given, stack)
        yield from thread_checks(self._execute, stack)
        yield from machine_checks(self._execute, stack, self.process, self.vm.version, self.seen.get("cpus"))
        yield from self._further.checks(stack, [one.get("device", "") for one in (self.seen, *self.further)])
        yield from memory_checks(stack.machine, self.process)
        yield from place_checks(stack, self.process)
        yield from guest_checks(
            stack, self.seen, vcpus=self.system.drives, writes=writable(stack, ground), proof=self.system.proof
        )
        yield from kernel_checks(stack, (self.seen, *self.further), proof=self.system.proof)

    def _accelerator_check(self) -> Check:
        runs_on = "kvm" if self._execute("query-kvm")["enabled"] else "tcg"
        proof = f"QMP query-kvm; {self.accelerator.why}"
        return Check("accelerator", self.accelerator.name, runs_on, proof)

    def _may_stay(self, stack: Stack, ground: DiskImageSpec) -> bool:
        """Whether the device may stay: a guest would not notice another size, or a change to writable."""
        if self._plugged is None:
            return False
        before, stood_on = self._plugged
        alike = stood_on.size_bytes == ground.size_bytes and writable(before, stood_on) == writable(stack, ground)
        if not self._plugs(before) and attached(before) != attached(stack):
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
        if stack.device.iothreads and (not self.system.fixed or stack.device.bus == "virtio-scsi"):
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
            self.vm.monitor.unplug(device, last=device)
        self._execute("blockdev-del", {"node-name": parked_node(0)})

    def _do(self, command: Command) -> None:
        self.commands.append(command)
        self._execute(command.execute, command.arguments)

    def _execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return self.vm.monitor.execute(command, arguments)


def writable(stack: Stack, ground: DiskImageSpec) -> bool:
    """Whether the guest may write to its disk: QEMU has no read-only disks on IDE and AHCI, and merges a snapshot
    into no other, and what is discarded beside the load is written too.
    """
    return ground.writes or stack.device.bus in WRITABLE or stack.during in ("snapshot", "discard")


def first_of(stack: Stack, ground: DiskImageSpec) -> tuple[Command, ...]:
    """Return the disks that a machine must have from its start."""
    return first_commands(stack, ground.size_bytes, read_only=not writable(stack, ground))


def through_device(check: Check, stack: Stack, seen: Mapping[str, str]) -> Check:
    """writethrough and directsync are settings of the device: it announces no write cache to the guest."""
    if check.setting != "disk.cache" or stack.disk.cache not in THROUGH_CACHES:
        return check
    through = seen.get("write_cache") == "write through"
    proof = "the device announces no write cache" if through else "the device announces a write cache"
    return Check(check.setting, check.asked, check.asked if through else "another", proof)
