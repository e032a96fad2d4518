# SPDX-License-Identifier: Apache-2.0
"""A VM with settings changed is the VM that its changed text is read as."""

from pathlib import Path

import pytest
from tests.advise.cases import CASES

from virtune.advise.audit import audit
from virtune.advise.placement import flash
from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.finding import HostView, Subject
from virtune.model.stack import LIMITS
from virtune.plan.like import Looked, likeness
from virtune.plan.turned import turned

CAPTURES = Path(__file__).parents[1] / "captures" / "domains"

UNREAD = {"cpu.kvm_hidden", "device.scsi_controller", "vcpu.pin", "iothread.pin", "emulator.pin"}
"""What no disk has, or no command line of QEMU."""

LIMITED = b"""<domain type='kvm'><name>w</name><devices><disk type='file' device='disk'>
<source file='/a'/><target dev='vda' bus='virtio'/><iotune>
<total_iops_sec>300</total_iops_sec></iotune></disk></devices></domain>"""


def likenesses(domain: Domain) -> list[object]:
    """What each disk of a VM is like, whatever its changed bus has called it."""
    return [likeness(Looked(domain=domain, disk=disk)) for disk in domain.disks]


@pytest.mark.parametrize("identity", CASES)
def test_what_a_rule_advises_makes_the_disk_that_its_text_is_read_as(identity: str) -> None:
    text, subject = CASES[identity][0]
    language = language_of(text)
    for finding in audit(subject):
        turns = finding.seen.turns
        if not turns or language.name not in ("libvirt", "proxmox"):
            continue
        if UNREAD & {turn.knob for turn in turns}:
            with pytest.raises(PlanError):
                turned(subject.domain, *turns)
        elif language is LIBVIRT:  # in Proxmox's other changes come with one: an IOThread of its own, say
            read = language.read(language.alter(text, *turns))
            assert likenesses(turned(subject.domain, *turns)) == likenesses(read), turns


def test_the_template_for_flash_makes_the_disks_that_its_text_is_read_as() -> None:
    seen = 0
    for path in sorted(CAPTURES.glob("*.xml")):
        text = path.read_bytes()
        try:
            domain = LIBVIRT.read(text)
            turns = flash(Subject(domain=domain, host=HostView())).turns
            read = LIBVIRT.read(LIBVIRT.alter(text, *turns, domain=domain.name))
        except (ReadError, PlanError):
            continue
        seen += bool(turns)
        assert likenesses(turned(domain, *turns)) == likenesses(read), path.name
    assert seen > 20


@pytest.mark.parametrize("name", [one.libvirt for one in LIMITS])
@pytest.mark.parametrize("value", [None, "77"])
def test_a_limit_is_lifted_and_raised(name: str, value: str | None) -> None:
    text = LIMITED.replace(b"total_iops_sec", name.encode())
    (knob,) = (one.knob for one in LIMITS if one.libvirt == name)
    turn = SettingChange(knob=knob, at="vda", value=value)
    read = LIBVIRT.read(LIBVIRT.alter(text, turn))
    assert turned(LIBVIRT.read(text), turn).disks[0].limits == read.disks[0].limits != ((name, 300),)


def test_a_limit_goes_with_its_bursts() -> None:
    limits = (
        ("total_iops_sec", 3),
        ("total_iops_sec_max", 9),
        ("total_iops_sec_max_length", 2),
        ("read_iops_sec", 1),
    )
    disk = DomainDisk(target="d", line=1, source=DiskSource(kind="file", name="/a"), limits=limits)
    domain = Domain(name="w", uuid=None, kind="kvm", line=1, vcpus=1, disks=(disk,))
    after = turned(domain, SettingChange(knob="disk.throttle_iops", at="d", value=None))
    assert after.disks[0].limits == (("read_iops_sec", 1),)


@pytest.mark.parametrize(
    ("knob", "at", "value"),
    [("disk.cache", "vdx", "none"), ("disk.cache", "", "none"), ("disk.copy_on_read", "vda", "on"),
     ("iothread.poll_max_ns", "vda", "0"), ("disk.throttle_iops", "iothread:1", None), ("machine.type", "", "pc"),
     ("device.bus", "vda", None)],
)  # fmt: skip
def test_what_is_not_read_of_a_place_is_refused_by_its_name(knob: str, at: str, value: str | None) -> None:
    (domain,) = LIBVIRT.domains(LIMITED.replace(b"<devices>", b"<iothreads>1</iothreads><devices>"))
    with pytest.raises(PlanError, match=knob):
        turned(domain, SettingChange(knob=knob, at=at, value=value))
