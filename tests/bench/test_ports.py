# SPDX-License-Identifier: Apache-2.0
"""Several disks on every bus: each has a port of its own, and a real QEMU starts with as many as a bus has."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from virtune.dialects.qemu.guest import SLOTS, argument_of, device_commands, parked_command, parked_node
from virtune.model.contradictions import contradictions
from virtune.model.stack import BUSES, Bus, Device, Machine, Stack

pytestmark = pytest.mark.real

MOST: dict[Bus, int] = {"virtio-blk": 9, "virtio-scsi": 9, "nvme": 9, "ahci": 6, "ide": 4}
"""The disks that are started on each bus: all that it has ports for, or a whole slot's and the one before it."""


def allowed() -> Iterator[Stack]:
    """Every bus on every board that has it, with three disks and with the most."""
    for bus in MOST:
        for board in ("q35", "pc", "microvm"):
            for count in (3, MOST[bus]):
                stack = Stack(rig="qemu", device=Device(bus=bus), machine=Machine(type=board), disks=count)
                if not contradictions(stack):
                    yield stack


def shown(stack: Stack) -> list[dict[str, Any]]:
    """Start a QEMU with the disks of a stack; returns what it says of each."""
    board = stack.machine.type or ""
    words = ["qemu-system-x86_64", "-M", board, "-S", "-nodefaults", "-no-user-config", "-display", "none"]
    if board == "q35":
        for number, slot in enumerate(SLOTS, 1):
            words += ["-device", f"pcie-root-port,id={slot},chassis={number},slot={number}"]
    # as they are plugged: the further ones first, since the others of a slot appear with its first function
    for number in [*range(1, stack.disks), 0] if stack.device.bus not in ("ahci", "ide") else range(stack.disks):
        disk = parked_command(2**20, read_only=False, number=number)
        for command in (disk, *device_commands(stack, parked_node(number), number)):
            words += argument_of(command)
    asked = [{"execute": one} for one in ("qmp_capabilities", "query-block", "quit")]
    done = subprocess.run(
        [*words, "-qmp", "stdio"], input="".join(map(json.dumps, asked)), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = (json.loads(line).get("return") for line in done.stdout.splitlines())
    found: list[dict[str, Any]] = next(one for one in answers if isinstance(one, list))
    return found


@pytest.mark.parametrize("stack", [*allowed()], ids=lambda one: f"{one.device.bus}-{one.machine.type}-{one.disks}")
def test_a_qemu_starts_with_many_disks_on_every_bus(stack: Stack) -> None:
    found = [one["inserted"]["node-name"] for one in shown(stack) if one.get("inserted")]
    assert sorted(found) == sorted(parked_node(number) for number in range(stack.disks))


def test_no_bus_that_a_rig_offers_is_left_out() -> None:
    assert set(MOST) == set(BUSES)


@pytest.mark.parametrize("bus", ["ahci", "ide"])
def test_one_more_than_a_bus_has_ports_is_refused_here_as_by_qemu(bus: Bus) -> None:
    fits = Stack(rig="qemu", device=Device(bus=bus), machine=Machine(type="pc"), disks=MOST[bus])
    more = replace(fits, disks=fits.disks + 1)
    assert contradictions(fits) == ()
    assert contradictions(more) == (f"bus={bus} has {MOST[bus]} ports for disks",)
    with pytest.raises(AssertionError, match="not found"):
        shown(more)
