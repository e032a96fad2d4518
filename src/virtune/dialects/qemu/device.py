# SPDX-License-Identifier: Apache-2.0
"""Write QEMU's command line for a guest's disk: a Stack as `-object`, `-blockdev` and `-device virtio-blk-pci`.

The block nodes are the same as those measured in a storage daemon; only a virtio-blk device replaces the export.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from virtune.dialects.qemu.guest import (
    MEMORY_BACKEND,
    SLOTS,
    argument_of,
    device_commands,
    hugepage_words,
    thread_commands,
    top_node,
)
from virtune.dialects.qemu.qmp import FORMAT_NODE, IOTHREAD, Command, DaemonPlaces, daemon_commands
from virtune.model.machine import MEMORY
from virtune.model.stack import Stack, writes_through
from virtune.model.units import Bytes

DEVICE = "virtio-disk0"
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
    return (*words, "-device", _json(_device(stack, node)))


def _as_plugged(stack: Stack, places: DaemonPlaces) -> tuple[str, ...]:
    """Write what a guest of the rig `qemu` was given by hot-plug; the ports it was plugged into are the rig's own."""
    if stack.device.vfio_pci is not None:
        return _words(device_commands(stack, ""))
    nodes = daemon_commands(replace(stack, rig="storage-daemon", export="nbd", iothread=None), places)
    commands = [*thread_commands(stack), *(one for one in nodes if one.execute in _OPTIONS)]
    commands += device_commands(stack, top_node(commands))
    return _words(commands)


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
    if machine.memory is not None or machine.hugepages is not None:
        words += ["-m", f"{machine.memory or MEMORY}B"]
    return (
        *words,
        *hugepage_words(machine),
        *(("-machine", MEMORY_BACKEND) if machine.hugepages is not None else ()),
    )


def guest_command_line(arguments: Sequence[str]) -> str:
    """Write the options one per line, to be appended to an existing `qemu-system-...` command."""
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return " \\\n".join(shlex.join(pair) for pair in pairs)


def image_line(stack: Stack, *, image: str, size_bytes: int) -> str | None:
    """Return the `qemu-img` line that makes an image with the stack's layout, None for one that needs none."""
    disk = stack.disk
    if disk.backend != "file" or (disk.format == "raw" and disk.preallocation is None):
        return None
    asked: dict[str, Bytes | str | bool | None] = {
        "cluster_size": disk.cluster_size,
        "extended_l2": disk.extended_l2,
        "lazy_refcounts": disk.lazy_refcounts,
        "preallocation": disk.preallocation,
    }
    options = [f"{name}={_word(value)}" for name, value in asked.items() if value is not None]
    words = ["qemu-img", "create", "-f", disk.format, *(["-o", ",".join(options)] if options else [])]
    return shlex.join([*words, image, str(size_bytes)])


def _device(stack: Stack, node: str) -> dict[str, Any]:
    device: dict[str, Any] = {"driver": "virtio-blk-pci", "id": DEVICE, "drive": node}
    if stack.num_queues is not None:
        device["num-queues"] = stack.num_queues
    if stack.in_iothread:
        device["iothread"] = IOTHREAD
    # a guest that sees no write cache sends no flush: QEMU then makes each write durable before it says so
    device["write-cache"] = "off" if writes_through(stack) else "on"
    return device


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _word(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
