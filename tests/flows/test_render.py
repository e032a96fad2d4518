# SPDX-License-Identifier: Apache-2.0
"""The winner's lines hold what made it win, or say what they leave out."""

import re
from dataclasses import replace

import pytest
from tests.analyse.search_worlds import World, searched, study_of
from tests.knob_values import stack_with

from virtune.dialects.libvirt.disk import disk_xml
from virtune.flows.reports.render import lacking, spelled
from virtune.model.stack import Stack
from virtune.model.tuning import Spelled
from virtune.plan.arms import apply_settings


def lines_of(*settings: str) -> dict[str, Spelled]:
    """The lines of a winner in a guest that has these settings."""
    rates = {"base": 40_000.0, "fast": 80_000.0}
    study = study_of(list(rates))
    stack, own = apply_settings(Stack(), ["rig=qemu", *settings])
    arms = tuple(replace(arm, stack=stack, settings=own) if arm.name == "fast" else arm for arm in study.arms)
    known, _ = searched(replace(study, arms=arms), World(rates, noise=0.01))
    assert known.winner == "fast"
    return {one.program: one for one in spelled(known)}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("machine.vcpus=4", "-smp 4"),
        ("machine.cpu=max", "-cpu max"),
        ("memory.hugepages=2M", "hugetlb=on,hugetlbsize=2097152"),
        ("memory.numa=0", "host-nodes=0,policy=bind"),
        ("memory.ksm=off", "-machine mem-merge=off"),
    ],
)
def test_what_the_machine_has_is_in_the_line_for_qemu_and_told_for_libvirt(setting: str, words: str) -> None:
    found = lines_of(setting)
    assert words in found["qemu"].text
    assert found["qemu"].text != lines_of()["qemu"].text
    assert not any(setting in note for note in found["qemu"].notes)
    assert any(setting in note for note in found["libvirt"].notes)


@pytest.mark.parametrize(
    ("bus", "named"), [("virtio-blk", "vd*[!0-9]"), ("virtio-scsi", "sd*[!0-9]"), ("nvme", "nvme*n*")]
)
def test_what_the_guests_kernel_has_is_a_rule_of_udev(bus: str, named: str) -> None:
    found = lines_of(f"device.bus={bus}", "guest.scheduler=none", "guest.nomerges=2")
    rule = f'KERNEL=="{named}", ATTR{{queue/scheduler}}="none", ATTR{{queue/nomerges}}="2"'
    assert found["udev"].text.endswith(rule)
    lines = [found[name] for name in ("qemu", "libvirt") if found[name].text]
    assert all(any("udev rule" in note for note in one.notes) for one in lines)
    assert "udev" not in lines_of(f"device.bus={bus}")


def test_a_writer_that_drops_a_setting_has_it_named() -> None:
    _, stack = stack_with("qemu", "device.queue_size")

    def honest(one: Stack) -> str:
        return disk_xml(one, image="/i").disk

    def dropping(one: Stack) -> str:
        return re.sub(r" queue_size='\d+'", "", honest(one))

    assert list(lacking(stack, (honest,), lambda _: "why")) == []
    (named,) = lacking(stack, (dropping,), lambda _: "why")
    assert "device.queue_size=512" in named


@pytest.mark.parametrize("setting", ["vcpu.pin=0", "emulator.pin=0-1", "guests.count=2", "machine.emulator=/q"])
def test_what_no_line_can_hold_is_told_with_both(setting: str) -> None:
    found = lines_of(setting, "disk.aio=native")
    for program in ("qemu", "libvirt"):
        assert any(setting in note and "disk.aio" not in note for note in found[program].notes), program


def test_a_disk_is_written_on_its_bus_or_it_is_said_that_it_is_not() -> None:
    scsi = lines_of("device.bus=virtio-scsi", "scsi.num_queues=2")["libvirt"]
    assert scsi.text.partition("<!-- inside <devices> -->\n")[2].startswith(
        "<controller type='scsi' index='0' model='virtio-scsi'>"
    )
    assert "bus='scsi'" in scsi.text
    nvme = lines_of("device.bus=nvme")["libvirt"]
    assert nvme.text == ""
    assert nvme.notes == ("a disk on nvme is not written for libvirt yet",)
    assert lines_of()["qemu"].notes == ()


def test_what_belongs_beside_vcpu_says_so_and_what_is_left_out_too() -> None:
    found = lines_of("device.iothread=io1", "iothread.poll_max_ns=0")["libvirt"]
    head, rest = found.text.split("<!-- inside <devices> -->\n")
    assert head.startswith("<!-- inside <domain>, beside <vcpu> -->\n<iothreads>1</iothreads>\n")
    assert "<poll max='0'/>" in head
    assert rest.startswith("<disk ")
    assert '"' not in found.text
    unasked = lines_of("device.iothread=io1", "iothread.poll_max_ns=32768")["libvirt"]
    assert "<poll" not in unasked.text
    assert any(note.startswith("poll_max_ns=32768 is QEMU's default") for note in unasked.notes)
