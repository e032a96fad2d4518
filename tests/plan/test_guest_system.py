# SPDX-License-Identifier: Apache-2.0
"""What runs in a test guest where the user does not say: the load alone wherever nothing needs Linux."""

from dataclasses import replace

import pytest

from virtune.fio.workloads import parse_workload, read_job_file
from virtune.model.errors import PlanError
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import Provenance
from virtune.model.workload import Workload
from virtune.plan.arms import arm_from_text, base_stack
from virtune.plan.guests import system_words, with_system


def study(*workloads: str | Workload, arms: tuple[str, ...] = ("a:", "b:disk.aio=native")) -> Study:
    base, settings = base_stack(["rig=qemu"])
    found = [
        one
        for word in workloads or ("randread-4k",)
        for one in (parse_workload(word) if isinstance(word, str) else [word])
    ]
    return Study(
        id="s", created="", kind=StudyKind.COMPARE,
        arms=tuple(arm_from_text(text, base, settings=settings) for text in arms),
        baseline="a", workloads=tuple(found), rounds=1, seconds=1, ramp_seconds=0, seed=1, scratch="/s",
        span_bytes=2**24,
    )  # fmt: skip


def test_where_nothing_needs_linux_all_guests_are_the_load_alone() -> None:
    asked = study("randread-4k", "rw=randwrite,bs=16k,iodepth=8,numjobs=2,fsync=4", arms=("a:", "m:rig=metal", "c:"))
    found = with_system(asked, built=True)
    assert [arm.stack.machine.system for arm in found.arms] == ["bare", None, "bare"]
    assert [dict(arm.settings).get("guest.system") for arm in found.arms] == ["bare", None, "bare"], "to run it again"
    assert (found.options[-1].value, found.options[-1].source) == ("bare", Provenance.DEFAULT)
    words = system_words(found, built=True)
    assert words is not None
    assert words.startswith("the guests run the load alone, without an operating system (guest.system=bare)")
    assert with_system(found, built=True) == found, "nothing is left to choose"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (study(arms=("a:", "b:device.bus=ahci")), "guest.system=bare drives nvme, virtio-blk, virtio-scsi, and"),
        (study("rw=randread,bs=1m", arms=("a:", "b:device.bus=nvme")), "larger blocks than an NVMe disk takes"),
        (study(arms=("a:", "b:device.packed=on")), "arm b: guest.system=bare has no packed rings"),
        (study("randread-4k,ioengine=libaio"), "ioengine=libaio does not exist in it"),
        (study("randread-4k,direct=0"), "direct=0 asks for a page cache"),
        (study("name=a,rw=read,number_ios=9 + name=background,rw=read"), "ends with the one that is counted"),
        (study(read_job_file("[j]\nrw=read\n", "own")), "own is a job file"),
        (study("rw=randread,bs=4m,iodepth=100"), "more in flight than fits into the memory"),
        (study("rw=randread,iodepth=129"), "more in flight than a queue of the disk takes"),
        (study(arms=("a:", "b:guest.system=linux")), "another arm asks for it"),
        (replace(study(), builtin="io-engine"), "the figures that `io-engine` is compared with were measured in one"),
    ],
)  # fmt: skip
def test_what_needs_linux_gets_it_in_every_guest_and_says_why(asked: Study, why: str) -> None:
    found = with_system(asked, built=True)
    assert found.arms == asked.arms
    assert found.options[-1].value == "linux"
    words = system_words(found, built=True) or ""
    assert words.startswith("the guests run Linux: ")
    assert why in words


def test_without_the_guest_program_it_is_linux_and_other_rigs_have_nothing_to_choose() -> None:
    found = with_system(study(), built=False)
    assert found.arms == study().arms
    assert "is not built (`tools/setup` builds it)" in (system_words(found, built=False) or "")
    metal = study(arms=("a:rig=metal", "b:rig=storage-daemon"))
    assert with_system(metal, built=True) == metal
    assert system_words(metal, built=True) is None


def test_a_study_of_several_disks_needs_no_linux() -> None:
    arms = ("a:", "b:disks.count=2", "c:disks.count=4,disks.second=bus=nvme")
    found = with_system(study("rw=randread,iodepth=32,numjobs=4", arms=arms), built=True)
    assert [arm.stack.machine.system for arm in found.arms] == ["bare"] * 3
    # 256 in flight fit into the queues of two disks, and not into that of one
    full = ("rw=randread,iodepth=128,numjobs=2",)
    both = with_system(study(*full, arms=("a:disks.count=2", "b:disks.count=2,disk.aio=native")), built=True)
    assert [arm.stack.machine.system for arm in both.arms] == ["bare"] * 2
    assert "more in flight" in (system_words(with_system(study(*full), built=True), built=True) or "")


def test_a_study_of_buses_needs_no_linux() -> None:
    asked = study(
        "randread-4k", "rw=randread,iodepth=128", arms=("a:", "b:device.bus=virtio-scsi", "c:device.bus=nvme")
    )
    assert [arm.stack.machine.system for arm in with_system(asked, built=True).arms] == ["bare"] * 3
    with pytest.raises(PlanError, match=r"machine\.type=microvm needs guest\.system=bare"):
        study(arms=("a:", "b:machine.type=microvm"))
    with pytest.raises(PlanError, match="microvm has no PCI, so its disk is on virtio-blk"):
        study(arms=("a:", "b:machine.type=microvm,guest.system=bare,device.bus=nvme"))


def test_what_the_user_said_stays() -> None:
    said = study(arms=("a:guest.system=linux", "b:guest.system=bare"))
    assert with_system(said, built=True) == said
    half = with_system(study(arms=("a:guest.system=bare", "b:")), built=True)
    assert [arm.stack.machine.system for arm in half.arms] == ["bare", "bare"]
