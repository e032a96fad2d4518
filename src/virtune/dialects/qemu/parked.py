# SPDX-License-Identifier: Apache-2.0
"""The disks that a machine must have from its start, and the nodes below them between stacks, which open nothing."""

from virtune.dialects.qemu.guest import device_commands, node_of_turn, thread_commands
from virtune.dialects.qemu.qmp import Command
from virtune.model.disks import stack_of_disk
from virtune.model.stack import PLUGGED, Stack

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
