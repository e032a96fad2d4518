# SPDX-License-Identifier: Apache-2.0
"""QEMU's language for guests: the command line of a machine, and the QMP commands of its disk.

A machine is started without its disk, which is hot-plugged, so that the same machine can run one stack after
another. The table of knobs says what a switch to another stack needs: settings of the nodes (engine, cache, format,
limits) are exchanged below the running device, settings of the device need a new device, and settings of the machine
need a new process. A disk on IDE or AHCI is present from the machine's start.

The block nodes of a printed disk are those measured in a storage daemon; only a virtio-blk device replaces the
export.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from virtune.dialects.qemu.images import KEY
from virtune.dialects.qemu.qmp import FORMAT_NODE, IOTHREAD, OPENED, Command, DaemonPlaces, daemon_commands
from virtune.model.contradictions import stack_of_disk
from virtune.model.knob import Change
from virtune.model.knobs import turned
from virtune.model.stack import MEMORY, PLUGGED, Device, Machine, Mapped, Stack, mapping_of, writes_through

DEVICE = "disk0"
"""The id of the disk's device."""

AHCI = "ahci0"
"""The id of the AHCI controller."""

IDE_UNITS = 2
"""The disks on one of the two channels of the board's IDE controller."""

SLOTS = ("slot0", "slot1")
"""The root ports for hot-plug: one for the disk, or for its controller, and one for all further disks."""

LIMIT_NODE = "limit0"
LIMITS = "limits0"

_FRONT = {
    "virtio-blk": "virtio-blk-pci", "virtio-scsi": "scsi-hd", "nvme": "nvme", "ahci": "ide-hd", "ide": "ide-hd",
}  # fmt: skip
"""What QEMU calls each kind of disk."""

DRIVERS: Mapping[str, tuple[str, ...]] = {
    "virtio-blk": ("virtio_blk",),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "nvme": ("nvme",),
    "ahci": ("ahci", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
}
"""The drivers that the guest's kernel needs for each kind."""

MEMORY_BACKEND = "memory-backend=memory0"
"""The option of a machine whose memory is that object."""

AGENT_PORT = "org.qemu.guest_agent.0"
"""The port on which a QEMU guest agent listens."""

Turn = int | str
"""What the names of nodes end in: the number of the exchange, and for further disks `3-2`, where 2 is the disk."""

QBOOT = "qboot.rom"
"""The firmware that starts a kernel through PVH, in a tenth of SeaBIOS's time; it leaves PCI to the guest."""

_CALLS = (
    "init_kprobe_trace", "load_system_certificate_list", "crypto_kdf108_init", "cubictcp_register", "init_encrypted",
    "fscrypt_init",
)  # fmt: skip
_UNNEEDED = ("cryptomgr.notests", "ipv6.disable=1", f"initcall_blacklist={','.join(_CALLS)}")
"""What a guest without a network, keys or probes can leave out: a fifth of the CPU time of a boot under TCG."""

_MICROVM = ("acpi=off", "pit=on", "rtc=off")
"""microvm without ACPI has its virtio devices and their interrupts at the same places in every version; the timer is
what a guest on TCG holds its clock against.
"""

SwitchMethod = Literal["same", "live", "swap", "replug", "restart"]

_METHODS: Mapping[Change, SwitchMethod] = {
    Change.LIVE: "live",
    Change.SWAP: "swap",
    Change.REPLUG: "replug",
    Change.POWEROFF: "restart",
    Change.HOST_REBOOT: "restart",
}
_LEAST_FIRST: tuple[SwitchMethod, ...] = ("same", "live", "swap", "replug", "restart")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestMachine:
    """A guest without its disk. `kvm`: it runs on KVM, not on TCG; `host_cpu` is the CPU model on KVM if the stack
    names none.

    `asked` are the stack's settings of the machine. `first` are the commands of a disk that must exist from the
    start: its node, and its devices. `agent` is the descriptor of the QEMU guest agent's port, None for a guest
    without one. `memory_file` is the descriptor of a file that is the guest's memory. A guest that `resumes` waits
    for the state that it goes on from, and keeps what it writes to itself.
    """

    kernel: str
    initramfs: str
    console: str
    channels: Sequence[int]
    monitor: int
    kvm: bool
    host_cpu: str = "host"
    agent: int | None = None
    vcpus: int = 2
    asked: Machine = field(default_factory=Machine)
    first: Sequence[Command] = ()
    memory_file: int | None = None
    resumes: bool = False

    @property
    def by_pvh(self) -> bool:
        """Whether the kernel is an ELF file that QEMU starts through PVH, not a packed one."""
        return self.kernel.endswith("/vmlinux")


def machine_argv(program: str, machine: GuestMachine) -> tuple[str, ...]:
    """Write the command line of a machine; `channels` and `monitor` are descriptors that QEMU gets."""
    asked = machine.asked
    argv = [program, "-name", "virtune,debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-no-reboot", *_board(machine), "-accel", "kvm" if machine.kvm else "tcg,thread=multi"]
    # a console that is not read blocks the guest, so it goes into a file
    argv += ["-chardev", f"file,id=console,path={machine.console}", "-serial", "chardev:console"]
    argv += ["-chardev", f"socket,id=monitor,fd={machine.monitor}", "-mon", "chardev=monitor,mode=control"]
    argv += ["-kernel", machine.kernel, *(_bare_words(machine) if asked.is_bare else _linux_words(machine))]
    # the older board has no PCI Express, and takes what is plugged in on its one bus
    slots: Sequence[str] = () if asked.has_isa or not asked.has_pci else SLOTS
    if asked.is_bare:
        # nothing is plugged into it: it has what it starts with, and looks at each port
        used = {command.arguments.get("bus") for command in machine.first}
        slots = [slot for slot in slots if slot == SLOTS[0] or slot in used]
    for number, slot in enumerate(slots, 1):
        argv += ["-device", f"pcie-root-port,id={slot},chassis={number},slot={number}"]
    return (*argv, *(word for command in machine.first for word in argument_of(command)))


def _linux_words(machine: GuestMachine) -> Iterator[str]:
    """Yield the options of a Linux guest: its first process, its own command line, its serial ports.

    The clock: under TCG all vCPUs read the host's TSC, so that it may be relied on; with several vCPUs the guest
    would else take the HPET, whose every read stops the emulation. On KVM the guest's own choice is right.
    Programs at the same addresses every time: what TCG has translated of one is of use for the next, so that fio is
    ready in 0.35 s and not in 0.40.
    Linux counts timer interrupts while it starts, and panics ("IO-APIC + timer doesn't work") when too few came
    in ten of its ticks, which on a busy host is chance: `no_timer_check`, which Linux sets by itself on KVM.
    """
    ports = len(machine.channels) + (machine.agent is not None)
    append = ["console=ttyS0", "quiet", "loglevel=3", "panic=-1", f"ports={ports}", *_UNNEEDED]
    append += [] if machine.kvm else ["tsc=reliable", "mitigations=off", "norandmaps", "no_timer_check"]
    if machine.by_pvh:
        yield from ("-bios", QBOOT)
    yield from ("-initrd", machine.initramfs, "-append", " ".join(append), "-device", "virtio-serial-pci")
    for number, descriptor in enumerate(machine.channels):
        yield from ("-chardev", f"socket,id=channel{number},fd={descriptor}")
        yield from ("-device", f"virtserialport,chardev=channel{number},name=virtune.{number}")
    if machine.agent is not None:
        yield from ("-chardev", f"socket,id=agent,fd={machine.agent}")
        yield from ("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}")


def _bare_words(machine: GuestMachine) -> Iterator[str]:
    """Yield the options of a guest without an operating system.

    qboot starts it in a tenth of the time that SeaBIOS takes, and leaves PCI to the guest. Its line to the host is a
    virtio console; the serial port is for its last words, and the port 0xf4 for its end.
    """
    yield from ("-bios", QBOOT, "-device", "isa-debug-exit,iobase=0xf4,iosize=4")
    yield from ("-device", f"virtio-serial-{'pci' if machine.asked.has_pci else 'device'},max_ports=1")
    for line in machine.channels:
        yield from ("-chardev", f"socket,id=line,fd={line}", "-device", "virtconsole,chardev=line")


def _board(machine: GuestMachine) -> list[str]:
    asked, memory = machine.asked, machine.asked.memory or MEMORY
    cpu = asked.cpu or (machine.host_cpu if machine.kvm else "max")
    options = [asked.type or "q35", *(["hpet=off"] if asked.has_pci else _MICROVM)]
    options += [MEMORY_BACKEND] if asked.places_memory or machine.memory_file is not None else []
    options += _merging(asked)
    # where there can be only one vCPU, TCG before QEMU 8.1 leaves out the memory barriers of the guest, which then
    # loses notifications of its disk, and hangs
    vcpus = "1,maxcpus=2" if machine.vcpus == 1 and not machine.kvm else str(machine.vcpus)
    words = ["-cpu", cpu, "-smp", vcpus, "-m", f"{memory}B"]
    words += [] if asked.has_pci else ["-global", "virtio-mmio.force-legacy=off"]
    return ["-M", ",".join(options), *words, *memory_words(asked), *_file_words(machine, memory)]


def _merging(machine: Machine) -> list[str]:
    """Write whether equal pages of a guest's memory may be merged, as an option of its board."""
    return [] if machine.ksm is None else [f"mem-merge={'on' if machine.ksm else 'off'}"]


def _file_words(machine: GuestMachine, size: int) -> tuple[str, ...]:
    """Write the memory of a machine that is a file; nothing for any other."""
    if machine.memory_file is None:
        return ()
    share = "off" if machine.resumes else "on"
    memory = f"memory-backend-file,id=memory0,size={size},mem-path=/dev/fd/{machine.memory_file},share={share}"
    return ("-object", memory, *(("-incoming", "defer") if machine.resumes else ()))


def memory_words(machine: Machine) -> tuple[str, ...]:
    """Write the memory of a machine that lies on huge pages or on certain nodes; nothing for any other."""
    if not machine.places_memory:
        return ()
    words = ["memory-backend-memfd,id=memory0", f"size={machine.memory or MEMORY}"]
    words += [] if machine.hugepages is None else ["hugetlb=on", f"hugetlbsize={machine.hugepages}", "prealloc=on"]
    words += [f"host-nodes={nodes}" for nodes in (machine.numa or "").split(",") if nodes]
    words += [] if machine.numa is None else ["policy=bind"]
    return ("-object", ",".join([*words, "share=on"]))


def argument_of(command: Command) -> tuple[str, str]:
    """Write a QMP command as the option of the command line that does the same."""
    flag = {"object-add": "-object", "blockdev-add": "-blockdev", "device_add": "-device"}[command.execute]
    return flag, json.dumps(dict(command.arguments), separators=(",", ":"))


def node_commands(stack: Stack, places: DaemonPlaces, turn: Turn) -> tuple[Command, ...]:
    """Render the commands that open the image: limits and nodes, top node last; names end in the turn number."""
    return tuple(
        replace(command, arguments=_of_turn(command.arguments, turn) | _leave(command, places))
        for command in daemon_commands(stack, places)
        if command.execute == "blockdev-add" or command.arguments.get("qom-type") in ("throttle-group", "secret")
    )


def node_of_turn(name: str, turn: Turn) -> str:
    """Return the name that a node has in one turn."""
    return f"{name}-{turn}"


def nodes_of_turn(nodes: Sequence[Mapping[str, Any]], turn: Turn) -> list[Mapping[str, Any]]:
    """Return the nodes of one turn, as `query-named-block-nodes` shows them, under their plain names."""
    names = {node_of_turn(name, turn): name for name in (*OPENED, LIMIT_NODE)}
    return [{**node, "node-name": names[node["node-name"]]} for node in nodes if node["node-name"] in names]


def top_node(commands: Sequence[Command]) -> str:
    """Return the name of the node that the device stands on."""
    return str([c.arguments["node-name"] for c in commands if c.execute == "blockdev-add"][-1])


def thread_commands(stack: Stack) -> tuple[Command, ...]:
    """Render the commands that create the disk's IOThreads; none where the main loop serves it."""
    asked = {"poll-max-ns": stack.poll_max_ns, "thread-pool-max": stack.thread_pool_max}
    own = {name: value for name, value in asked.items() if value is not None}
    return tuple(
        Command(execute="object-add", arguments={"qom-type": "iothread", "id": name, **own})
        for name in stack.device.iothreads
    )


def device_commands(stack: Stack, node: str, number: int = 0) -> tuple[Command, ...]:
    """Render the commands that attach a disk of the guest (0 is the first), its controller first if any."""
    device, front = stack.device, _FRONT[stack.device.bus]
    if device.vfio_pci is not None:
        passed = {"driver": "vfio-pci", "id": DEVICE, "host": device.vfio_pci}
        passed |= {} if stack.machine.has_isa else {"bus": SLOTS[0]}
        return (Command(execute="device_add", arguments=passed),)
    name, scsi = device_id(number), controller_id(number)
    own: dict[str, Any] = {"driver": front, "id": name, "drive": node, "serial": name}
    sizes = {"logical_block_size": device.logical_block_size, "physical_block_size": device.physical_block_size}
    own |= {key: size for key, size in sizes.items() if size is not None}
    own |= {} if stack.machine.has_pci else {"driver": "virtio-blk-device"}
    slot = _slot(number) if stack.machine.has_pci and not stack.machine.has_isa else {}
    write_cache = {"write-cache": "off" if writes_through(stack) else "on"}
    controller: dict[str, Any] | None = None
    match device.bus:
        case "virtio-blk":
            own |= {**slot, **write_cache, **_threads(device), **_queues(device)}
        case "virtio-scsi":
            controller = {"driver": "virtio-scsi-pci", "id": scsi, **slot, **_threads(device)}
            controller |= {} if device.scsi_num_queues is None else {"num_queues": device.scsi_num_queues}
            own |= {"bus": f"{scsi}.0", **write_cache}
        case "nvme":
            own |= {**slot, **({} if device.max_ioqpairs is None else {"max_ioqpairs": device.max_ioqpairs})}
        case "ahci":
            controller = {"driver": "ich9-ahci", "id": AHCI} if number == 0 else None
            own |= {"bus": f"{AHCI}.{number}", **write_cache}
        case "ide":
            channel, unit = divmod(number, IDE_UNITS)
            own |= {"bus": f"ide.{channel}", "unit": unit, **write_cache}
        case bus:
            raise ValueError(f"bus={bus} is not written here")
    found = [] if controller is None else [Command(execute="device_add", arguments=controller)]
    return (*found, Command(execute="device_add", arguments=own))


def device_id(number: int) -> str:
    """Return the id of a disk's device, which is its serial number too; 0 is the first disk."""
    return f"disk{number}"


def controller_id(number: int) -> str:
    """Return the id of the SCSI controller of a virtio-scsi disk."""
    return f"scsi{number}"


def _slot(number: int) -> dict[str, Any]:
    """Return where a disk is plugged in: the first in a slot of its own, all others as functions of the next slot."""
    if number == 0:
        return {"bus": SLOTS[0]}
    return {"bus": SLOTS[1], "addr": f"0.{number - 1}", "multifunction": True}


def plugged(stack: Stack, number: int = 0) -> tuple[str, ...]:
    """Return the devices that are to be unplugged, in that order, to take a disk away."""
    return (controller_id(number) if stack.device.bus == "virtio-scsi" else device_id(number),)


def switch_method(old: Stack, new: Stack) -> tuple[SwitchMethod, str]:
    """Return how a machine switches from one stack to another, and the knob that decides it.

    Each knob's row says what changing it takes. A node is exchanged below a device only if the guest cannot notice:
    whether it sees a write cache is fixed when the device is made.
    """
    way: SwitchMethod = "same"
    needed = ""
    for knob in turned(old, new):
        this = _METHODS[knob.in_guest or knob.change]
        if this == "swap" and knob.place[0] == "disk" and writes_through(old) != writes_through(new):
            this = "replug"
        if this == "replug" and not {old.device.bus, new.device.bus} <= PLUGGED:
            this = "restart"
        if _LEAST_FIRST.index(this) > _LEAST_FIRST.index(way):
            way, needed = this, knob.id
    return way, needed


def _leave(command: Command, places: DaemonPlaces) -> dict[str, bool]:
    """A read-only device refuses a filter that does not say of itself that it is read-only."""
    own = command.execute != "blockdev-add" or "read-only" in command.arguments
    return {} if own else {"read-only": not places.writable}


def _of_turn(arguments: Mapping[str, Any], turn: Turn) -> dict[str, Any]:
    named = dict(arguments)
    for key in ("node-name", "file", "backing", "data-file", "id", "throttle-group"):
        if key in named and (key, named.get("qom-type")) != ("file", "secret"):  # that is the name of its file
            named[key] = node_of_turn(named[key], turn)
    if "encrypt" in named:
        named["encrypt"] = {**named["encrypt"], "key-secret": node_of_turn(KEY, turn)}
    # two turns hold one image open for the moment of the exchange; virtune's own lock keeps others away from it
    if named.get("driver") in ("file", "host_device"):
        named["locking"] = "off"
    return named


def _threads(device: Device) -> dict[str, Any]:
    if device.iothread_vq_mapping is not None:
        return {"iothread-vq-mapping": [mapped(one) for one in mapping_of(device.iothread_vq_mapping)]}
    return {} if device.iothread is None else {"iothread": device.iothread}


def mapped(one: Mapped) -> dict[str, Any]:
    """Write an IOThread and its queues as QEMU does."""
    return {"iothread": one.iothread} | ({"vqs": list(one.queues)} if one.queues else {})


def mapping_text(shown: Sequence[Mapping[str, Any]], *, queues: bool) -> str:
    """Write what QEMU shows of a mapping as `mapping_of` reads it, with its queues or without."""
    parts = []
    for one in shown:
        own = [int(number) for number in one.get("vqs") or ()] if queues else []
        row = own == list(range(own[0], own[-1] + 1)) if own else False
        words = f"{own[0]}-{own[-1]}" if row and len(own) > 1 else ",".join(map(str, own))
        parts.append(f"{one['iothread']}:{words}" if queues else str(one["iothread"]))
    return "+".join(parts)


def _queues(device: Device) -> dict[str, Any]:
    asked = {
        "num-queues": device.num_queues,
        "queue-size": device.queue_size,
        "packed": device.packed,
        "event_idx": device.event_idx,
    }
    return {name: value for name, value in asked.items() if value is not None}


PRINTED_DEVICE = "virtio-disk0"
"""The id of the device."""

_OPTIONS = frozenset({"object-add", "blockdev-add"})


def guest_arguments(stack: Stack, *, image: str, size_bytes: int, block_device: bool = False) -> tuple[str, ...]:
    """Return the options of a guest's disk, in the order that QEMU needs.

    `size_bytes` is that of a disk without an image. An IOThread and queues are written where the stack has them: an
    export over NBD has neither, and then QEMU's defaults stand.
    """
    places = DaemonPlaces(image=image, size_bytes=size_bytes, socket="", mountpoint="", block_device=block_device)
    if stack.kind.own_guest:
        return _as_plugged(stack, places)
    words: list[str] = []
    node = FORMAT_NODE
    for command in daemon_commands(stack, places):
        if command.execute in _OPTIONS:
            words += argument_of(command)
            node = command.arguments.get("node-name", node)
    return (*words, *argument_of(Command(execute="device_add", arguments=_device(stack, node))))


def _as_plugged(stack: Stack, places: DaemonPlaces) -> tuple[str, ...]:
    """Write what a guest of the rig `qemu` was given by hot-plug; the ports it was plugged into are the rig's own."""
    if stack.device.vfio_pci is not None:
        return _words(device_commands(stack, ""))
    nodes = daemon_commands(replace(stack, rig="storage-daemon", export="nbd", iothread=None), places)
    commands = [*thread_commands(stack), *(one for one in nodes if one.execute in _OPTIONS)]
    return _words([*commands, *device_commands(stack, top_node(commands))])


def _words(commands: Sequence[Command]) -> tuple[str, ...]:
    words: list[str] = []
    for command in commands:
        arguments = {name: value for name, value in command.arguments.items() if value not in SLOTS}
        words += argument_of(replace(command, arguments=arguments))
    return tuple(words)


def machine_arguments(stack: Stack) -> tuple[str, ...]:
    """Return what the machine was given besides its disk, where it was asked for; an option of a command line that
    has it already goes on in these words (`-machine`), or is replaced by them.
    """
    machine = stack.machine
    asked = {"-machine": machine.type, "-cpu": machine.cpu, "-smp": machine.vcpus}
    words = [word for flag, value in asked.items() if value is not None for word in (flag, str(value))]
    if machine.memory is not None or machine.places_memory:
        words += ["-m", f"{machine.memory or MEMORY}B"]
    return (
        *words,
        *memory_words(machine),
        *(("-machine", MEMORY_BACKEND) if machine.places_memory else ()),
        *(word for option in _merging(machine) for word in ("-machine", option)),
    )


def guest_command_line(arguments: Sequence[str]) -> str:
    """Write the options one per line, to be appended to an existing `qemu-system-...` command."""
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return " \\\n".join(shlex.join(pair) for pair in pairs)


def _device(stack: Stack, node: str) -> dict[str, Any]:
    device: dict[str, Any] = {"driver": "virtio-blk-pci", "id": PRINTED_DEVICE, "drive": node}
    if stack.num_queues is not None:
        device["num-queues"] = stack.num_queues
    if stack.in_iothread:
        device["iothread"] = IOTHREAD
    # a guest that sees no write cache sends no flush: QEMU then makes each write durable before it says so
    device["write-cache"] = "off" if writes_through(stack) else "on"
    return device


PARKED = "parked"
"""The node below the device between stacks: one that opens nothing."""


def parked_node(number: int) -> str:
    """Return the name of the node below a disk's device between stacks; 0 is the first disk."""
    return node_of_turn(PARKED, number + 1) if number else PARKED


def parked_command(size_bytes: int, *, read_only: bool, number: int = 0) -> Command:
    """Render the node below a device between stacks: as large as the image, but without opening any."""
    node = {
        "driver": "null-co",
        "node-name": parked_node(number),
        "size": size_bytes,
        "read-zeroes": False,
        "read-only": read_only,
    }
    return Command(execute="blockdev-add", arguments=node)


def first_commands(stack: Stack, size_bytes: int, *, read_only: bool) -> tuple[Command, ...]:
    """Render the disks that a machine must have from its start, on parked nodes; nothing where it need not.

    A drive that is passed through is on no node.
    """
    if stack.device.vfio_pci is not None:
        return device_commands(stack, "")
    if stack.device.bus in PLUGGED and not stack.machine.is_bare:
        return ()
    found: list[Command] = []
    for number in range(stack.disks):
        one = stack_of_disk(stack, number)
        threads = thread_commands(one) if stack.machine.is_bare else ()
        found += [command for command in threads if command not in found]
        found.append(parked_command(size_bytes, read_only=read_only, number=number))
        found += device_commands(one, parked_node(number), number)
    return tuple(found)


def attached(stack: Stack) -> tuple[Command, ...]:
    """Render the devices of all disks, whatever is below them."""
    each = (device_commands(stack_of_disk(stack, number), "", number) for number in range(stack.disks))
    return tuple(command for commands in each for command in commands)
