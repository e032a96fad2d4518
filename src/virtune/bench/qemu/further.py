# SPDX-License-Identifier: Apache-2.0
"""The further disks of a guest beside its first: plugged in for a stack, and unplugged after it.

They are the functions of one PCI slot. The guest looks at the slot when function 0 comes, so that is plugged in last,
and unplugging it takes all of them away. On the older board each has a slot of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from virtune.bench.qmp import Monitor
from virtune.dialects.qemu.guest import (
    LIMITS,
    controller_id,
    device_commands,
    device_id,
    node_commands,
    node_of_turn,
    plugged,
    removal_commands,
    top_node,
)
from virtune.dialects.qemu.qmp import Command, DaemonPlaces
from virtune.model.disks import settings_of_second, stack_of_disk
from virtune.model.evidence import Check
from virtune.model.stack import LIMITS as OF_LIMITS
from virtune.model.stack import Stack


class FurtherDisks:
    """The second disk of a guest and all after it; none until they are plugged."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
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
            self._attach(one, top_node(nodes), number, do)
        return tuple(device_id(number) for number in range(1, stack.disks))

    def unplug(self) -> None:
        """Take all of them away; nothing without any."""
        if not self._stacks:
            return
        self._detach()
        for command in removal_commands(self._nodes):
            self._monitor.execute(command.execute, command.arguments)
        self._nodes, self._stacks = [], []

    def _attach(self, stack: Stack, node: str, number: int, do: Callable[[Command], None]) -> None:
        for command in device_commands(stack, node, number):
            do(command)

    def _detach(self) -> None:
        devices = [plugged(one, number)[0] for number, one in enumerate(self._stacks, 1)]
        if self._stacks[0].machine.has_isa:
            for device in devices:
                self._monitor.execute_until("device_del", {"id": device}, "DEVICE_DELETED", device=device)
        else:
            # the functions go in their order, so the last one's end is the end of all
            asked = {"id": devices[0]}
            self._monitor.execute_until("device_del", asked, "DEVICE_DELETED", device=devices[-1])

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
        yield Check(setting="disks.count", asked=str(stack.disks), found=found, proof=proof)
        if stack.own_iothreads:
            threads = [self._thread_of(number) for number in range(stack.disks)]
            found = "on" if len({*threads} - {""}) == stack.disks else "off"
            yield Check(
                setting="disks.iothreads", asked="on", found=found, proof=f"QMP qom-get: {', '.join(threads)}"
            )
        if stack.second is not None:
            yield self._second_check(stack.second)

    def _second_check(self, asked: str) -> Check:
        """Check the settings of the second disk."""
        wanted = settings_of_second(asked)
        shown = dict(self._of_second())
        found = asked if all(shown.get(name) == value for name, value in wanted) else None
        told = ", ".join(f"{name}={shown.get(name)}" for name, _ in wanted)
        return Check(
            setting="disks.second", asked=asked, found=found or told, proof=f"QMP qom-get {device_id(1)}: {told}"
        )

    def _of_second(self) -> Iterator[tuple[str, object]]:
        kinds = {"virtio-blk-pci": "virtio-blk", "scsi-hd": "virtio-scsi", "nvme": "nvme"}
        kinds["virtio-blk-device"] = "virtio-blk"
        yield "device.bus", kinds.get(str(self._shown(device_id(1), "type")))
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


class FixedDisks(FurtherDisks):
    """The further disks of a guest into which nothing can be plugged: their devices come with the machine, and the
    nodes below them are exchanged.

    `swap` puts a node below the device of a disk, and `park` one that opens nothing.
    """

    def __init__(
        self, monitor: Monitor, *, swap: Callable[[Stack, str, int], None], park: Callable[[Stack, int], None]
    ) -> None:
        super().__init__(monitor)
        self._swap, self._park = swap, park

    def _attach(self, stack: Stack, node: str, number: int, do: Callable[[Command], None]) -> None:  # noqa: ARG002
        self._swap(stack, node, number)

    def _detach(self) -> None:
        for number, one in enumerate(self._stacks, 1):
            self._park(one, number)


def names_of(further: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the names of a guest's further disks, for what is kept of the guest."""
    return {"further": " ".join(one["device"] for one in further)} if further else {}


def _turn_of(turn: int, number: int) -> str:
    return f"{turn}-{number + 1}"
