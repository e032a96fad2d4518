# SPDX-License-Identifier: Apache-2.0
"""Several disks in one guest, or several files of the host: the settings of each, and what contradicts them."""

from collections.abc import Iterator
from dataclasses import replace

from virtune.model.knobs import BY_ID
from virtune.model.stack import PLUGGED, Stack, with_setting
from virtune.model.target import BareTarget

_MMIO_DISKS = 7
"""microvm has eight places for virtio devices, and the line to the guest takes one."""

OF_SECOND: tuple[str, ...] = (
    "device.bus", "disk.throttle_iops", "disk.throttle_bps", "disk.throttle_iops_read", "disk.throttle_iops_write",
    "disk.throttle_bps_read", "disk.throttle_bps_write",
)  # fmt: skip
"""The settings in which every second disk may differ."""


def settings_of_second(text: str) -> tuple[tuple[str, str | int | bool], ...]:
    """Read `bus=virtio-scsi+throttle_iops=200`: the settings, by the ids of their knobs.

    Raises ValueError with what is wrong.
    """
    found = []
    for word in text.split("+"):
        name, equals, value = (part.strip() for part in word.partition("="))
        known = next((one for one in OF_SECOND if name in (one, one.partition(".")[2])), None)
        if not equals or known is None:
            offered = ", ".join(one.partition(".")[2] for one in OF_SECOND)
            raise ValueError(f"{word!r} is no setting in which every second disk may differ: {offered}")
        found.append((known, BY_ID[known].read(value)))
    if len({name for name, _ in found}) < len(found):
        raise ValueError("a setting is named twice")
    return tuple(found)


def stack_of_disk(stack: Stack, number: int) -> Stack:
    """Return the stack of one disk (0 is the first), as if the guest had no other.

    An IOThread of its own is named after the first one's: `io1`, `io1-2`, `io1-3`.
    """
    one = replace(stack, disks=1, own_iothreads=False, second=None)
    if number and stack.own_iothreads:
        one = replace(one, device=replace(one.device, iothread=f"{one.device.iothread}-{number + 1}"))
    if number % 2 and stack.second is not None:
        for name, value in settings_of_second(stack.second):
            one = with_setting(one, BY_ID[name], value)
    return one


def bare_target(stack: Stack, size_bytes: int) -> BareTarget:
    """Return the disks of a guest without an operating system, which the guest itself loads."""
    buses = [stack_of_disk(stack, number).device.bus_in_guest for number in range(stack.disks)]
    return BareTarget(size_bytes=size_bytes, bus=buses[0], more=tuple(buses[1:]))


def images_of(stack: Stack) -> int:
    """Return how many images a stack needs: one for each disk, or for each guest with an image of its own."""
    return stack.guests + stack.idle_guests if stack.own_images else stack.disks


def disks_contradictions(stack: Stack) -> Iterator[str]:
    """Yield what contradicts the requested number of disks, a sentence each."""
    if stack.own_images and stack.guests + stack.idle_guests < 2:
        yield "guests.images=on needs two guests: one has an image of its own anyway"
    if stack.own_images and stack.spread is not None:
        yield "guests.images=on and guests.spread exclude each other"
    if stack.disks == 1:
        if stack.own_iothreads or stack.second is not None:
            yield "disks.iothreads and disks.second are for several disks: set disks.count"
        return
    if stack.guests + stack.idle_guests > 1:
        yield "disks.count is of one guest, and there are several: leave out guests.count and guests.idle"
    if not stack.kind.has_qemu:
        return
    if not stack.machine.has_pci and stack.disks > _MMIO_DISKS:
        yield f"machine.type=microvm has room for {_MMIO_DISKS} disks"
    if stack.device.bus not in PLUGGED:
        yield f"bus={stack.device.bus} has one disk here: several are plugged into {', '.join(sorted(PLUGGED))}"
    if stack.own_iothreads and stack.device.iothread is None:
        yield "disks.iothreads=on gives each disk a thread like the first one's: set device.iothread"
    yield from _second_contradictions(stack)


def _second_contradictions(stack: Stack) -> Iterator[str]:
    if stack.second is None:
        return
    try:
        bus = dict(settings_of_second(stack.second)).get("device.bus")
    except ValueError as error:
        yield f"disks.second={stack.second}: {error}"
        return
    if bus not in (None, "virtio-blk") and not stack.machine.has_pci:
        yield f"machine.type=microvm has no PCI, so disks.second cannot have bus={bus}"
    elif bus is not None and bus not in PLUGGED:
        yield f"disks.second: bus={bus} cannot be plugged while the guest runs"
