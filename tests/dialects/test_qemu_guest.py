# SPDX-License-Identifier: Apache-2.0
"""How a guest comes from one stack to the next, by the table of knobs; what a stack says of its machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.qemu.guest import mapped, mapping_text, switch_method
from virtune.model.errors import PlanError
from virtune.model.knobs import BY_ID, KNOBS
from virtune.model.stack import Device, Disk, Stack, mapping_of, with_setting
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
