# SPDX-License-Identifier: Apache-2.0
"""An NVMe disk for a guest alone: why a host cannot, in a tree laid out as the kernel's, and the words for one that
can.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.conftest import User

from virtune.bench.qemu.passthrough import passthrough_words, refuse_passthrough
from virtune.model.errors import PlanError, RigError
from virtune.model.stack import Device, Stack
from virtune.plan.arms import make_arm
from virtune.shell import CommandError, find, run

DISK, BRIDGE = "0000:01:00.0", "0000:00:1f.2"
PASSED = Stack(rig="qemu", device=Device(vfio_pci=DISK))


def put(root: Path, address: str, *, kind: str, driver: str, group: str = "7") -> None:
    place = root / "sys/bus/pci/devices" / address
    place.mkdir(parents=True)
    (place / "class").write_text(f"{kind}\n")
    (place / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    (place / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
    (root / "sys/kernel/iommu_groups" / group / "devices" / address).mkdir(parents=True)


def why(root: Path) -> str:
    with pytest.raises(RigError) as refused:
        refuse_passthrough(PASSED, root)
    return f"{refused.value.message} [{refused.value.hint}]"


def test_every_reason_is_said(tmp_path: Path) -> None:
    refuse_passthrough(Stack(rig="qemu"), tmp_path)
    assert "no IOMMU in use" in why(tmp_path)
    put(tmp_path, "0000:02:00.0", kind="0x010802", driver="nvme")
    assert f"no PCI device {DISK} [its NVMe disks: 0000:02:00.0]" in why(tmp_path)
    put(tmp_path / "a", DISK, kind="0x020000", driver="e1000e")
    assert "is no NVMe disk: its class is 0x020000" in why(tmp_path / "a")
    put(tmp_path / "b", DISK, kind="0x010802", driver="nvme")
    assert "is driven by nvme" in why(tmp_path / "b")
    put(tmp_path / "c", DISK, kind="0x010802", driver="vfio-pci")
    assert "/dev/vfio/7 is not accessible" in why(tmp_path / "c")
    put(tmp_path / "c", BRIDGE, kind="0x010601", driver="ahci")
    assert f"shares its IOMMU group 7 with {BRIDGE}" in why(tmp_path / "c")
    put(tmp_path / "d", DISK, kind="0x010802", driver="vfio-pci")
    (tmp_path / "d/dev/vfio").mkdir(parents=True)
    (tmp_path / "d/dev/vfio/7").touch()
    assert '"driver":"vfio-pci"' in why(tmp_path / "d")


@pytest.mark.real
def test_qemu_and_libvirt_know_the_words(tmp_path: Path) -> None:
    words = passthrough_words(PASSED)
    option = words.splitlines()[0].removeprefix("QEMU: -device ").strip("'")
    quiet = ["-machine", "q35,accel=tcg", "-nodefaults", "-display", "none", "-S"]
    # what it understands, and does not find here
    with pytest.raises(CommandError, match=r"vfio 0000:01:00\.0: .*no such host device|0000:01:00\.0"):
        run([find("qemu-system-x86_64"), *quiet, "-device", option], timeout_seconds=20)
    element = words.partition("libvirt: ")[2]
    assert ET.fromstring(element).find("source/address").get("bus") == "0x01"  # type: ignore[union-attr] # noqa: S314
    head = "<name>x</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os>"
    (tmp_path / "x.xml").write_text(f"<domain type='kvm'>{head}<devices>{element}</devices></domain>")
    run([find("virt-xml-validate"), str(tmp_path / "x.xml"), "domain"], timeout_seconds=20)


@pytest.mark.real
def test_a_comparison_on_it_is_refused_before_anything_is_made(user: User) -> None:
    before = set(user.scratch.iterdir())
    refused = user.run("compare", "--rig", "qemu", "--arm", f"it:storage.vfio_pci={DISK}", "--arm", "now:", status=3)
    assert "arm 'it' cannot be here: this host has no" in refused.stderr
    assert set(user.scratch.iterdir()) == before


def test_nothing_else_can_be_said_of_such_a_disk() -> None:
    with pytest.raises(PlanError, match=r"the guest drives the disk 0000:01:00\.0 itself, so aio means nothing"):
        make_arm("it", ["rig=qemu", f"storage.vfio_pci={DISK}", "disk.aio=native"])
    with pytest.raises(PlanError, match="is no PCI address"):
        make_arm("it", ["rig=qemu", "storage.vfio_pci=nvme0"])
