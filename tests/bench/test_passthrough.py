# SPDX-License-Identifier: Apache-2.0
"""An NVMe drive for a guest alone: why a host cannot hand it over, which drive is meant, and that it comes back, in a
tree laid out as the kernel's. `guests/test_passthrough.py` does it for real.
"""

import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.planted_pci import DRIVE, PlantedPci

from virtune import warden
from virtune.bench.qemu.passthrough import Drive, HostsSide, address_of, drive_at, passed_check, require_lockable
from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.qemu.guest import SLOTS, guest_arguments
from virtune.model.errors import PlanError, RigError
from virtune.model.evidence import Check
from virtune.model.stack import Device, Machine, Stack
from virtune.model.text import Bytes
from virtune.plan.arms import base_stack, make_arm
from virtune.shell import CommandError, find, run

BRIDGE = "0000:00:1f.2"
PASSED = Stack(rig="qemu", device=Device(vfio_pci=DRIVE))


def why(pci: PlantedPci) -> str:
    with pytest.raises(RigError) as refused:
        drive_at(DRIVE, pci.root)
    return f"{refused.value.message} [{refused.value.hint}]"


def test_a_drive_is_found_by_its_address_and_by_its_node(tmp_path: Path) -> None:
    pci = PlantedPci(tmp_path)
    pci.drive()
    pci.drive("0000:02:00.0", number=1, group="8")
    drive = Drive(address=DRIVE, group="7", node="/dev/nvme0n1", number="259:1", size_bytes=2**20, serial="S3RIAL")
    assert drive_at(DRIVE, tmp_path) == drive
    assert address_of(Path("/dev/nvme0n1"), tmp_path) == DRIVE
    assert address_of(Path("/dev/nvme1n1"), tmp_path) == "0000:02:00.0"
    with pytest.raises(RigError, match="/dev/vda is no NVMe drive of this host's PCI bus"):
        address_of(Path("/dev/vda"), tmp_path)


def test_every_reason_is_said(tmp_path: Path) -> None:
    trees = iter(PlantedPci(tmp_path / str(number)) for number in range(20))
    assert "no IOMMU in use, so no device can be handed to a guest [" in why(next(trees))
    unsafe = next(trees)
    unsafe.drive(group="")
    switch = unsafe.root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
    switch.parent.mkdir(parents=True)
    switch.write_text("Y\n")
    assert "enable_unsafe_noiommu_mode is no substitute" in why(unsafe)
    one = next(trees)
    one.drive("0000:02:00.0")
    assert f"no PCI device {DRIVE} [its NVMe disks: 0000:02:00.0]" in why(one)
    (one.bus / "devices/0000:02:00.0").rename(one.bus / "devices" / DRIVE)
    (one.bus / "devices" / DRIVE / "iommu_group").unlink()
    assert "is behind no IOMMU" in why(one)
    card = next(trees)
    card.device(DRIVE, kind="0x020000", driver="ahci")
    assert "is no NVMe disk: its class is 0x020000" in why(card)
    taken = next(trees)
    taken.device(DRIVE, driver="vfio-pci")
    assert "is driven by vfio-pci, so nobody can see what is on it [give it back to the host" in why(taken)
    shared = next(trees)
    shared.drive()
    shared.device(BRIDGE, kind="0x010601", driver="ahci")
    assert f"shares its IOMMU group 7 with {BRIDGE}" in why(shared)
    several, none = next(trees), next(trees)
    several.drive(namespaces=2)
    assert "has 2 namespaces (nvme0n1, nvme0n2)" in why(several)
    none.drive(namespaces=0)
    assert "has no namespace" in why(none)


def test_a_drive_with_two_paths_is_refused(tmp_path: Path) -> None:
    pci = PlantedPci(tmp_path)
    pci.drive()
    for member in ("nvme0", "nvme1"):
        (tmp_path / "sys/class/nvme-subsystem/nvme-subsys0" / member).mkdir(parents=True)
    assert "one of several paths to the same data: nvme0, nvme1" in why(pci)


def test_what_may_not_lock_the_memory_of_a_guest_is_told_the_limit() -> None:
    def refused() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 * 2**20, 8 * 2**20))
        require_lockable(Machine(memory=Bytes(2**28)))  # root may lock all that it likes
        os.setuid(65534)
        require_lockable(Machine(memory=Bytes(2**28)))

    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            refused()
        except RigError as error:
            os.write(writes, f"{error.message} [{error.hint}]".encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as told:
        said = told.read()
    os.waitpid(child, 0)
    assert "has its memory locked, 320 MiB, and we may lock 8 MiB [run as root" in said


def test_a_drive_goes_to_the_guest_and_back(tmp_path: Path) -> None:
    pci = PlantedPci(tmp_path / "host")
    device = pci.drive()
    notes = tmp_path / "run"
    notes.mkdir()
    with pci.running():
        warden.note_drive(notes, DRIVE, driver="nvme", group="7")
        assert warden.noted_drives(notes) == [DRIVE]
        warden.bind(device, warden.VFIO, override=warden.VFIO)
        assert warden.driver_of(device) == warden.VFIO
        assert warden.give_back(notes, DRIVE, pci.root)
        assert warden.driver_of(device) == "nvme"
        assert (device / "driver_override").read_text() == "\n"
        assert pci.seen == [
            f"unbind {DRIVE}",
            f"probe {DRIVE} for vfio-pci",
            f"unbind {DRIVE}",
            f"probe {DRIVE} for any",
        ]
    assert warden.noted_drives(notes) == []


@pytest.mark.parametrize("step", ["noted", "reserved", "unbound"])
def test_a_drive_comes_back_from_every_step_on_its_way(tmp_path: Path, step: str) -> None:
    pci = PlantedPci(tmp_path / "host")
    device = pci.drive()
    warden.note_drive(tmp_path, DRIVE, driver="nvme", group="7")
    with pci.running():
        if step != "noted":
            (device / "driver_override").write_text("vfio-pci")
        if step == "unbound":
            (device / "driver").unlink()
        assert warden.give_back(tmp_path, DRIVE, pci.root)
    assert warden.driver_of(device) == "nvme"
    assert (device / "driver_override").read_text() == ("(null)\n" if step == "noted" else "\n")
    assert warden.noted_drives(tmp_path) == []


def test_a_drive_that_a_process_still_has_is_left_to_it(tmp_path: Path) -> None:
    pci = PlantedPci(tmp_path / "host")
    device = pci.drive()
    (device / "driver").unlink()
    (device / "driver").symlink_to("../../drivers/vfio-pci")
    warden.note_drive(tmp_path, DRIVE, driver="nvme", group="7")
    node = pci.root / "dev/vfio/7"
    node.parent.mkdir(parents=True)
    with pci.running():
        with node.open("w"):
            assert list(warden.holders_of(node)) == [os.getpid()]
            assert not warden.give_back(tmp_path, DRIVE, pci.root)
            assert warden.driver_of(device) == warden.VFIO
        assert warden.give_back(tmp_path, DRIVE, pci.root)
    assert pci.seen == [f"unbind {DRIVE}", f"probe {DRIVE} for any"]


def test_no_record_is_kept_of_a_drive_that_is_gone(tmp_path: Path) -> None:
    warden.note_drive(tmp_path, DRIVE, driver="nvme", group="7")
    assert not warden.give_back(tmp_path, DRIVE, tmp_path)
    assert warden.noted_drives(tmp_path) == []


@pytest.mark.parametrize("since", ["another driver", "a restart of the host", "an override of the user's"])
def test_what_is_no_longer_as_virtune_left_it_is_left_to_whoever_changed_it(tmp_path: Path, since: str) -> None:
    pci = PlantedPci(tmp_path / "host")
    device = pci.drive(driver={"another driver": "ahci", "a restart of the host": "vfio-pci"}.get(since, "nvme"))
    warden.note_drive(tmp_path, DRIVE, driver="nvme", group="7")
    (device / "driver_override").write_text("mine\n")
    if since == "a restart of the host":
        record = tmp_path / f"drive-{DRIVE}"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"boot": "another"}))
    before = warden.driver_of(device)
    with pci.running():
        assert warden.give_back(tmp_path, DRIVE, pci.root) == (before == "nvme")
    assert (pci.seen, warden.driver_of(device)) == ([], before)
    assert (device / "driver_override").read_text() == "mine\n"
    assert warden.noted_drives(tmp_path) == []


@pytest.mark.real
def test_qemu_and_libvirt_know_the_words(tmp_path: Path) -> None:
    _, option = guest_arguments(PASSED, image="", size_bytes=0)
    assert not any(slot in option for slot in SLOTS)
    quiet = ["-machine", "q35,accel=tcg", "-nodefaults", "-display", "none", "-S"]
    # what it understands, and does not find here
    with pytest.raises(CommandError, match=r"vfio 0000:01:00\.0: .*no such host device|0000:01:00\.0"):
        run([find("qemu-system-x86_64"), *quiet, "-device", option], timeout_seconds=120)
    element = disk_xml(PASSED, image="").disk
    assert 'bus="0x01"' in element.replace("'", '"')
    head = "<name>x</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os>"
    (tmp_path / "x.xml").write_text(f"<domain type='kvm'>{head}<devices>{element}</devices></domain>")
    run([find("virt-xml-validate"), str(tmp_path / "x.xml"), "domain"], timeout_seconds=120)


def test_nothing_else_can_be_said_of_such_a_disk() -> None:
    for setting in ("disk.aio=native", "guests.count=2", "disks.count=2", "host.cache=warm", "device.num_queues=2"):
        name = setting.partition("=")[0]
        with pytest.raises(
            PlanError, match=rf"the guest drives the disk 0000:01:00\.0 itself, so {name} means nothing"
        ):
            make_arm("it", ["rig=qemu", f"storage.vfio_pci={DRIVE}", setting])
    with pytest.raises(PlanError, match="is no PCI address"):
        make_arm("it", ["rig=qemu", "storage.vfio_pci=nvme0"])
    with pytest.raises(PlanError, match=r"machine\.type=microvm has no PCI"):
        make_arm("it", ["rig=qemu", f"storage.vfio_pci={DRIVE}", "machine.type=microvm", "guest.system=bare"])


def test_an_arm_takes_over_what_means_something_for_its_drive() -> None:
    base, settings = base_stack(["rig=qemu", "disk.aio=native", "machine.vcpus=3"])
    arm = make_arm("it", [f"storage.vfio_pci={DRIVE}"], base, settings=settings)
    assert (arm.stack.disk.aio, arm.stack.machine.vcpus) == (Stack().disk.aio, 3)
    assert dict(arm.settings) == {"rig": "qemu", "machine.vcpus": "3", "storage.vfio_pci": DRIVE}


@pytest.mark.parametrize(
    ("told", "here", "sectors"),
    [
        ({"type": "nvme"}, {}, 2048),
        ({"host": "0000:02:00.0"}, {}, 2048),
        ({}, {"driver": "nvme"}, 2048),
        ({}, {"held": {"/dev/vfio/8"}}, 2048),
        ({}, {}, 2047),
    ],
)
def test_a_drive_that_is_not_where_it_should_be_is_seen(
    told: dict[str, str], here: dict[str, Any], sectors: int
) -> None:
    drive = Drive(address=DRIVE, group="7", node="/dev/nvme0n1", number="259:1", size_bytes=2**20, serial="S3RIAL")

    def check(told: dict[str, str], here: dict[str, Any], sectors: int) -> Check:
        says = {"type": "vfio-pci", "host": DRIVE} | told
        usual = HostsSide(driver="vfio-pci", pid=1, held={"/dev/vfio/7"}, locked_bytes=0)
        side = replace(usual, **here)
        seen = {"sectors": str(sectors)}
        return passed_check(lambda _, at: says[at["property"]], drive, side, seen, by_serial=True)

    assert check({}, {}, 2048).found == DRIVE
    found = check(told, here, sectors).found
    assert found is not None
    assert DRIVE not in found.split("; ")
