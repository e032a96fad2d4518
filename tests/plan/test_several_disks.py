# SPDX-License-Identifier: Apache-2.0
"""Several disks in one guest: what each of them is, how a load is divided among them, what contradicts them."""

from dataclasses import replace

import pytest

from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.workloads import parse_workload
from virtune.model.contradictions import bare_target, contradictions, images_of, stack_of_disk
from virtune.model.errors import PlanError
from virtune.model.stack import Device, FileTarget, Machine, Stack

GUEST = Stack(rig="qemu")
CLIENTS = Clients(engines=frozenset({"libaio"}), installed=False)
THREE = FileTarget(path="/dev/vda", size_bytes=2**20, more=("/dev/vdb", "/dev/vdc"))


def job(words: str) -> dict[str, dict[str, str]]:
    written = fio_job(parse_workload(words)[0], THREE, seconds=1, ramp_seconds=0, seed=1, clients=CLIENTS)
    sections = written.text.split("\n[")[2:]
    return {
        head: dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
        for head, _, lines in (one.partition("]") for one in sections)
    }


def test_the_clones_of_a_load_are_divided_among_the_disks() -> None:
    found = job("mine: name=reader,rw=randread,numjobs=6 + name=background,rw=randread,numjobs=3")
    assert list(found) == [
        "reader",
        "background",
        "reader-disk2",
        "reader-disk3",
    ]  # the background job keeps its name
    assert [one["filename"] for name, one in found.items() if name != "background"] == [THREE.path, *THREE.more]
    assert {one["numjobs"] for name, one in found.items() if name != "background"} == {"2"}
    assert all(one["new_group"] == "1" for one in found.values())


def test_clones_that_cannot_be_divided_are_refused_with_the_number_that_can() -> None:
    with pytest.raises(PlanError, match="4 clones, which 3 disks cannot share evenly") as refused:
        job("rw=randread,numjobs=4")
    assert "numjobs=3" in str(refused.value.hint)


def test_every_second_disk_has_its_settings_and_each_its_own_iothread() -> None:
    stack = replace(
        GUEST, disks=3, own_iothreads=True, second="throttle_iops=60+bus=nvme", device=Device(iothread="io1")
    )
    each = [stack_of_disk(stack, number) for number in range(3)]
    assert [one.device.iothread for one in each] == ["io1", "io1-2", "io1-3"]
    assert [(one.device.bus, one.disk.throttle_iops) for one in each] == [
        ("virtio-blk", None), ("nvme", 60), ("virtio-blk", None),
    ]  # fmt: skip
    assert [images_of(one) for one in (stack, GUEST, replace(GUEST, guests=2, own_images=True))] == [3, 1, 2]


def test_a_guest_without_a_system_names_its_disks_itself_and_drives_each_as_its_bus_wants() -> None:
    stack = replace(GUEST, disks=3, second="bus=nvme", machine=Machine(system="bare"))
    assert contradictions(stack) == ()
    workload = parse_workload("rw=randread,numjobs=6")[0]
    target = bare_target(stack, 2**20)
    written = fio_job(workload, target, seconds=1, ramp_seconds=0, seed=1, clients=CLIENTS)
    found = [one for one in written.text.split("\n") if one.startswith(("filename", "ioengine", "numjobs"))]
    assert found == [
        "filename=disk0", "ioengine=virtio-blk", "numjobs=2",
        "filename=disk1", "ioengine=nvme", "numjobs=2",
        "filename=disk2", "ioengine=virtio-blk", "numjobs=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        (replace(GUEST, second="throttle_iops=60"), "for several disks"),
        (replace(GUEST, disks=2, guests=2), "of one guest"),
        (replace(GUEST, disks=2, own_iothreads=True), "set device.iothread"),
        (replace(GUEST, disks=2, second="bus=ide"), "cannot be plugged"),
        (replace(GUEST, disks=2, second="format=qcow2"), "no setting in which"),
        (replace(GUEST, disks=2, second="throttle_iops=many"), "not a whole number"),
        (replace(GUEST, disks=8, machine=Machine(system="bare", type="microvm")), "has room for 7 disks"),
        (
            replace(GUEST, disks=2, second="bus=nvme", machine=Machine(system="bare", type="microvm")),
            "microvm has no PCI, so disks.second cannot have bus=nvme",
        ),
        (replace(GUEST, own_images=True), "needs two guests"),
        (replace(Stack(), disks=2), "disks.count means nothing with rig=storage-daemon"),
    ],
)
def test_what_contradicts_several_disks_is_a_sentence(stack: Stack, why: str) -> None:
    assert any(why in one for one in contradictions(stack))


def test_several_files_without_a_guest_contradict_nothing() -> None:
    assert contradictions(replace(Stack(rig="metal"), disks=4)) == ()
