# SPDX-License-Identifier: Apache-2.0
"""How a guest comes from one stack to the next, by the table of knobs; what a stack says of its machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.qemu.guest import device_commands, mapped, mapping_text, plugged, switch_method
from virtune.model.errors import PlanError
from virtune.model.knobs import BY_ID, KNOBS
from virtune.model.stack import Bus, Cache, Device, Disk, Machine, Stack, mapping_of, with_setting
from virtune.model.text import Bytes
from virtune.plan.arms import make_arm

GUEST = Stack(rig="qemu")
IDE = replace(GUEST, device=Device(bus="ide"))


@pytest.mark.parametrize(
    ("settings", "way", "needed"),
    [
        ((), "same", ""),
        (("iothread.poll_max_ns=0",), "live", "iothread.poll_max_ns"),
        (("vcpu.pin=0", "iothread.thread_pool_max=2"), "live", "iothread.thread_pool_max"),
        (("disk.aio=native",), "swap", "disk.aio"),
        (("disk.cache=writeback", "disk.format=qcow2", "vcpu.pin=0"), "swap", "disk.cache"),
        (("disk.cache=directsync",), "replug", "disk.cache"),
        (("disk.discard=unmap", "disk.aio=native"), "replug", "disk.discard"),
        (("device.bus=nvme",), "replug", "device.bus"),
        (("device.iothread_vq_mapping=io1+io2",), "replug", "device.iothread_vq_mapping"),
        (("machine.vcpus=4", "device.packed=on"), "restart", "machine.vcpus"),
        (("memory.hugepages=2M",), "restart", "memory.hugepages"),
        (("memory.numa=0",), "restart", "memory.numa"),
        (("memory.thp=never",), "restart", "memory.thp"),
        (("memory.ksm=off",), "restart", "memory.ksm"),
        (("device.bus=ide",), "restart", "device.bus"),
    ],
)
def test_the_way_to_another_stack_is_the_most_that_a_knob_needs(
    settings: tuple[str, ...], way: str, needed: str
) -> None:
    other = GUEST
    for setting in settings:
        name, _, value = setting.partition("=")
        other = with_setting(other, BY_ID[name], BY_ID[name].read(value))
    assert switch_method(GUEST, other) == switch_method(other, GUEST) == (way, needed)


def test_what_is_there_from_the_start_is_not_plugged_again() -> None:
    assert switch_method(IDE, replace(IDE, disk=Disk(aio="native"))) == ("swap", "disk.aio")
    assert switch_method(IDE, replace(IDE, disk=Disk(discard="unmap"))) == ("restart", "disk.discard")


def test_every_knob_that_is_turned_has_a_way() -> None:
    for knob in (knob for knob in KNOBS if knob.place):
        one, other = ("1024", "2048") if knob.id.endswith(("size", "hugepages")) else ("1", "2")
        stacks = [with_setting(GUEST, knob, value) for value in (one, other)]
        assert switch_method(*stacks)[0] != "same", knob.id


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("device.bus=ide", "bus=ide needs machine.type=pc"),
        ("device.bus=ide,machine.type=pc,device.iothread=io1", "bus=ide has no IOThread in QEMU"),
        ("device.bus=virtio-scsi,guest.blk_poll_queues=1", "blk_poll_queues is of virtio-blk, and the bus"),
        ("machine.vcpus=4,guest.blk_poll_queues=4", "blk_poll_queues=4 leaves none of the disk's 4 queues"),
        ("device.num_queues=1,guest.blk_poll_queues=1", "blk_poll_queues=1 leaves none of the disk's 1 queues"),
        ("device.bus=ahci,device.num_queues=2", "num_queues belongs to bus=virtio-blk, and the bus is ahci"),
        (
            "device.bus=ahci,device.physical_block_size=4k,device.logical_block_size=4k",
            "bus=ahci has sectors of 512 bytes",
        ),
        ("device.iothread=a,device.iothread_vq_mapping=b", "exclude each other"),
        ("device.iothread_vq_mapping=io1+io1", "an IOThread is named twice"),
        ("device.iothread_vq_mapping=io1:0+io2", "of every IOThread, or of none"),
        ("device.iothread_vq_mapping=io1:x", "are no virtqueues"),
        ("device.bus=nvme,device.iothread_vq_mapping=io1", "bus=nvme has no IOThread"),
        ("iothread.pin=1", "iothread.pin belongs to an IOThread"),
        ("iothread.thread_pool_max=1", "thread_pool_max belongs to an IOThread"),
        ("vcpu.pin=all", "vcpu.pin=all is no list of CPUs"),
        ("machine.type=microvm", "machine.type=microvm needs guest.system=bare"),
        ("machine.type=isapc", "machine.type=isapc is not known here"),
        ("machine.emulator=qemu", "is no absolute path"),
        ("machine.cpu=max -device x", "is no name of a CPU model"),
        ("memory.hugepages=1G", "must be a multiple of memory.hugepages"),
        ("memory.numa=all", "is no list of NUMA nodes"),
        ("memory.thp=never,memory.numa=0", "memory.thp means nothing for memory that"),
        ("memory.ksm=on,memory.hugepages=2M", "memory.ksm means nothing for memory that"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(words: str, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        make_arm("it", ["rig=qemu", *words.split(",")])


def test_a_machine_is_a_guests() -> None:
    with pytest.raises(PlanError, match=r"machine\.vcpus means nothing .*: it belongs to rig=qemu"):
        make_arm("it", ["machine.vcpus=2"])
    with pytest.raises(PlanError, match="means nothing with rig=metal"):
        make_arm("it", ["rig=metal", "vcpu.pin=1"])


@given(st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=5), st.booleans())
def test_a_mapping_is_read_as_it_is_shown(counts: list[int], named: bool) -> None:
    parts, first = [], 0
    for number, count in enumerate(counts):
        span = f"{first}-{first + count - 1}" if count > 1 else str(first)
        parts.append(f"io{number}:{span}" if named else f"io{number}")
        first += count
    text = "+".join(parts)
    assert mapping_text([mapped(one) for one in mapping_of(text)], queues=named) == text


@given(st.text(max_size=30))
def test_no_text_breaks_a_mapping(text: str) -> None:
    try:
        assert mapping_of(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - the sentence is what is promised


PLACED: dict[tuple[str | None, int], dict[str, object]] = {
    ("q35", 0): {"bus": "slot0"},
    ("q35", 1): {"bus": "slot1", "addr": "0.0", "multifunction": True},
    ("q35", 3): {"bus": "slot1", "addr": "0.2", "multifunction": True},
    ("pc", 0): {},
    ("pc", 3): {},
    (None, 1): {"bus": "slot1", "addr": "0.0", "multifunction": True},
}
"""Where a disk is plugged in, by the board and the number of the disk."""


def attached(stack: Stack, number: int) -> list[dict[str, object]]:
    found = device_commands(stack, "node", number)
    assert {one.execute for one in found} == {"device_add"}
    return [dict(one.arguments) for one in found]


@pytest.mark.parametrize(("board", "number"), PLACED)
@pytest.mark.parametrize(("cache", "written"), [("writeback", "on"), ("none", "on"), ("directsync", "off"),
                                                ("writethrough", "off")])  # fmt: skip
def test_every_bus_is_attached_in_its_place_with_all_it_was_asked_for(
    board: str | None, number: int, cache: Cache, written: str
) -> None:
    place = PLACED[board, number]
    base = Stack(rig="qemu", machine=Machine(type=board), disk=Disk(cache=cache))
    own = {"id": f"disk{number}", "drive": "node", "serial": f"disk{number}"}
    wide = {"logical_block_size": 512, "physical_block_size": 4096}
    blk = Device(
        iothread="io1", num_queues=2, queue_size=64, packed=True, event_idx=False,
        logical_block_size=Bytes(512), physical_block_size=Bytes(4096),
    )  # fmt: skip
    assert attached(replace(base, device=blk), number) == [
        {"driver": "virtio-blk-pci", **own, **place, "write-cache": written, "iothread": "io1", "num-queues": 2,
         "queue-size": 64, "packed": True, "event_idx": False, **wide},
    ]  # fmt: skip
    scsi = Device(bus="virtio-scsi", iothread="io1", scsi_num_queues=4)
    assert attached(replace(base, device=scsi), number) == [
        {"driver": "virtio-scsi-pci", "id": f"scsi{number}", **place, "iothread": "io1", "num_queues": 4},
        {"driver": "scsi-hd", **own, "bus": f"scsi{number}.0", "write-cache": written},
    ]
    nvme = Device(bus="nvme", max_ioqpairs=8)
    assert attached(replace(base, device=nvme), number) == [{"driver": "nvme", **own, **place, "max_ioqpairs": 8}]
    assert attached(replace(base, device=Device(bus="ahci")), number) == [
        *([{"driver": "ich9-ahci", "id": "ahci0"}] if number == 0 else []),
        {"driver": "ide-hd", **own, "bus": f"ahci0.{number}", "write-cache": written},
    ]
    channel = {"bus": f"ide.{number // 2}", "unit": number % 2}
    assert attached(replace(base, device=Device(bus="ide")), number) == [
        {"driver": "ide-hd", **own, **channel, "write-cache": written}
    ]


@pytest.mark.parametrize("bus", ["virtio-blk", "virtio-scsi", "nvme"])
@pytest.mark.parametrize("number", [0, 2])
def test_what_takes_a_disk_away_is_what_was_plugged_first(bus: Bus, number: int) -> None:
    """The controller of a SCSI disk goes, and its disk with it; of all others the disk itself."""
    stack = Stack(rig="qemu", device=Device(bus=bus))
    assert plugged(stack, number) == (attached(stack, number)[0]["id"],)


@pytest.mark.parametrize(("board", "place"), [("q35", {"bus": "slot0"}), ("pc", {})])
def test_a_passed_device_and_one_without_pci_are_attached_by_themselves(board: str, place: dict[str, str]) -> None:
    passed = Stack(rig="qemu", machine=Machine(type=board), device=Device(vfio_pci="0000:01:00.0"))
    assert attached(passed, 0) == [{"driver": "vfio-pci", "id": "disk0", "host": "0000:01:00.0", **place}]
    mapped_io = Stack(rig="qemu", machine=Machine(type="microvm"))
    assert attached(mapped_io, 0) == [
        {"driver": "virtio-blk-device", "id": "disk0", "drive": "node", "serial": "disk0", "write-cache": "on"}
    ]
