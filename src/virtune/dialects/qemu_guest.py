# SPDX-License-Identifier: Apache-2.0
"""QEMU's language for guests: the command line of a machine without disks, and the QMP commands of its disk.

A machine is started bare and is given its disk by hot-plug, so that the same machine carries one stack after another:
what only the nodes know (engine, cache, format, limits) is exchanged under the running device, what the device was
made with needs the device anew, and only what the machine was made with needs another process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from virtune.dialects.qemu import FILE_NODE, FORMAT_NODE, Command, DaemonPlaces, daemon_commands
from virtune.model.stack import Device, Stack, shown_to_guest

DEVICE = "disk0"
"""The id of the disk's device."""

CONTROLLER = "scsi0"
"""The id of the SCSI controller that a virtio-scsi disk hangs on."""

SLOTS = ("slot0", "slot1")
"""The root ports for hot-plug: one for the disk, or for its controller, and one to spare."""

LIMIT_NODE = "limit0"
LIMITS = "limits0"

_FRONT = {"virtio-blk": "virtio-blk-pci", "virtio-scsi": "scsi-hd", "nvme": "nvme"}
"""What QEMU calls each kind of disk that can be plugged into a running machine."""

DRIVERS: Mapping[str, tuple[str, ...]] = {
    "virtio-blk": ("virtio_blk",),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "nvme": ("nvme",),
}
"""The drivers that the guest's kernel needs for each kind."""

AGENT_PORT = "org.qemu.guest_agent.0"
"""The port on which a QEMU guest agent listens."""

Way = Literal["same", "swap", "replug", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a guest is besides its disk. `kvm` says whether its vCPUs run on the CPU or in QEMU's own translator.

    `agent` is the descriptor that leads to QEMU's guest agent, None for a guest without one.
    """

    kernel: str
    initramfs: str
    console: str
    channels: Sequence[int]
    monitor: int
    kvm: bool
    agent: int | None = None
    vcpus: int = 2
    memory_mib: int = 512


def machine_argv(program: str, machine: Machine) -> tuple[str, ...]:
    """Write the command line of a bare machine; `channels` and `monitor` are descriptors that QEMU gets.

    The clock: under TCG all vCPUs read the host's TSC, so that it may be relied on; with several vCPUs the guest
    would else take the HPET, whose every read stops the emulation. On KVM the guest's own choice is right.
    """
    append = [
        "console=ttyS0",
        "quiet",
        "loglevel=3",
        "panic=-1",
        f"ports={len(machine.channels) + (machine.agent is not None)}",
    ]
    append += [] if machine.kvm else ["tsc=reliable", "mitigations=off"]
    argv = [program, "-name", "virtune,debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none"]
    argv += ["-no-reboot", "-M", "q35,hpet=off", "-accel", "kvm" if machine.kvm else "tcg,thread=multi"]
    argv += ["-cpu", "host" if machine.kvm else "max", "-smp", str(machine.vcpus), "-m", str(machine.memory_mib)]
    argv += ["-kernel", machine.kernel, "-initrd", machine.initramfs, "-append", " ".join(append)]
    # a console that nobody drains stops the guest, so it goes into a file
    argv += ["-chardev", f"file,id=console,path={machine.console}", "-serial", "chardev:console"]
    argv += ["-chardev", f"socket,id=monitor,fd={machine.monitor}", "-mon", "chardev=monitor,mode=control"]
    argv += ["-device", "virtio-serial-pci"]
    for number, descriptor in enumerate(machine.channels):
        argv += ["-chardev", f"socket,id=channel{number},fd={descriptor}"]
        argv += ["-device", f"virtserialport,chardev=channel{number},name=virtune.{number}"]
    if machine.agent is not None:
        argv += ["-chardev", f"socket,id=agent,fd={machine.agent}"]
        argv += ["-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"]
    for number, slot in enumerate(SLOTS, 1):
        argv += ["-device", f"pcie-root-port,id={slot},chassis={number},slot={number}"]
    return tuple(argv)


def node_commands(stack: Stack, places: DaemonPlaces, turn: int) -> tuple[Command, ...]:
    """Render what opens the image: limits and nodes, top node last; names end in the number of the turn."""
    return tuple(
        replace(command, arguments=_of_turn(command.arguments, turn) | _leave(command, places))
        for command in daemon_commands(stack, places)
        if command.execute == "blockdev-add" or command.arguments.get("qom-type") == "throttle-group"
    )


def node_of_turn(name: str, turn: int) -> str:
    """Return the name that a node has in one turn."""
    return f"{name}-{turn}"


def nodes_of_turn(nodes: Sequence[Mapping[str, Any]], turn: int) -> list[Mapping[str, Any]]:
    """Return the nodes of one turn, as `query-named-block-nodes` shows them, under their plain names."""
    names = {node_of_turn(name, turn): name for name in (FILE_NODE, FORMAT_NODE, LIMIT_NODE)}
    return [{**node, "node-name": names[node["node-name"]]} for node in nodes if node["node-name"] in names]


def top_node(commands: Sequence[Command]) -> str:
    """Return the name of the node that the device stands on."""
    return str([c.arguments["node-name"] for c in commands if c.execute == "blockdev-add"][-1])


def removal_commands(commands: Sequence[Command]) -> tuple[Command, ...]:
    """Render what takes these nodes and limits away again, last first."""
    found = []
    for command in reversed(commands):
        if command.execute == "blockdev-add":
            found.append(Command(execute="blockdev-del", arguments={"node-name": command.arguments["node-name"]}))
        else:
            found.append(Command(execute="object-del", arguments={"id": command.arguments["id"]}))
    return tuple(found)


def thread_command(stack: Stack) -> Command | None:
    """Render what makes the IOThread of the disk; None where the main loop serves it."""
    if stack.device.iothread is None:
        return None
    thread: dict[str, Any] = {"qom-type": "iothread", "id": stack.device.iothread}
    if stack.poll_max_ns is not None:
        thread["poll-max-ns"] = stack.poll_max_ns
    return Command(execute="object-add", arguments=thread)


def device_commands(stack: Stack, node: str) -> tuple[Command, ...]:
    """Render what plugs the disk in, controller first where it needs one."""
    device, front = stack.device, _FRONT[stack.device.bus]
    own: dict[str, Any] = {"driver": front, "id": DEVICE, "drive": node, "serial": DEVICE}
    own |= _sizes(device)
    thread = {} if device.iothread is None else {"iothread": device.iothread}
    write_cache = "off" if stack.disk.cache in ("writethrough", "directsync") else "on"
    match device.bus:
        case "virtio-blk":
            own |= {"bus": SLOTS[0], "write-cache": write_cache, **thread, **_queues(device)}
            return (Command(execute="device_add", arguments=own),)
        case "virtio-scsi":
            controller: dict[str, Any] = {"driver": "virtio-scsi-pci", "id": CONTROLLER, "bus": SLOTS[0], **thread}
            controller |= {} if device.scsi_num_queues is None else {"num_queues": device.scsi_num_queues}
            own |= {"bus": f"{CONTROLLER}.0", "write-cache": write_cache}
            return (
                Command(execute="device_add", arguments=controller),
                Command(execute="device_add", arguments=own),
            )
        case "nvme":
            queues = {} if device.max_ioqpairs is None else {"max_ioqpairs": device.max_ioqpairs}
            return (Command(execute="device_add", arguments={**own, "bus": SLOTS[0], **queues}),)
        case bus:
            raise ValueError(f"bus={bus} cannot be plugged into a running machine")


def plugged(stack: Stack) -> tuple[str, ...]:
    """Return the devices that are to be unplugged, in that order, to take the disk away."""
    return (CONTROLLER,) if stack.device.bus == "virtio-scsi" else (DEVICE,)


def way_between(old: Stack, new: Stack) -> Way:
    """Say how a machine that carries one stack comes to carry another.

    The nodes may be exchanged under a device as long as the guest could not tell: whether it sees a write cache, and
    whether it may discard, was decided when the device was made. How long its IOThread polls is changed as it runs.
    """
    if old == new:
        return "same"
    if shown_to_guest(old) != shown_to_guest(new):
        return "replug"
    return "swap"


def _leave(command: Command, places: DaemonPlaces) -> dict[str, bool]:
    """A read-only device refuses a filter that does not say of itself that it is read-only."""
    return {"read-only": not places.writable} if command.execute == "blockdev-add" else {}


def _of_turn(arguments: Mapping[str, Any], turn: int) -> dict[str, Any]:
    named = dict(arguments)
    for key in ("node-name", "file", "id", "throttle-group"):
        if key in named:
            named[key] = node_of_turn(named[key], turn)
    # two turns hold one image open for the moment of the exchange; virtune's own lock keeps others away from it
    if named.get("driver") in ("file", "host_device"):
        named["locking"] = "off"
    return named


def _queues(device: Device) -> dict[str, Any]:
    asked = {
        "num-queues": device.num_queues,
        "queue-size": device.queue_size,
        "packed": device.packed,
        "event_idx": device.event_idx,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _sizes(device: Device) -> dict[str, Any]:
    asked = {
        "logical_block_size": device.logical_block_size,
        "physical_block_size": device.physical_block_size,
    }
    return {name: value for name, value in asked.items() if value is not None}
