# SPDX-License-Identifier: Apache-2.0
"""The template for disks on flash: what it changes, and what it leaves alone."""

from pathlib import Path
from typing import Any

import pytest

from virtune.advise.audit import audit
from virtune.advise.placement import cpus_of, flash
from virtune.dialects.languages import language_of
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.advise import Wish, advise
from virtune.flows.domains.domains import FoundDomain
from virtune.model.finding import HostView, ImageView, Severity, Subject

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"


def of(name: str, image: ImageView | None = None, **host: Any) -> Subject:
    domain = read_domain((DOMAINS / f"{name}.xml").read_bytes())
    images = {disk.source.name: image for disk in domain.disks} if image else {}
    return Subject(domain=domain, host=HostView(images=images, **host))


def turned(subject: Subject) -> dict[str, str | None]:
    return {f"{turn.knob}@{turn.at}": turn.value for turn in flash(subject).turns}


def test_a_default_domain_gets_the_study_s_configuration() -> None:
    assert turned(of("virt-install-etc")) == {
        "iothread.count@": "1",
        "disk.cache@vda": "none",
        "disk.aio@vda": "io_uring",
        "disk.discard@vda": "unmap",
        "device.iothread@vda": "1",
    }


def test_the_study_s_own_configuration_is_left_as_it_is() -> None:
    assert flash(of("study3-flash")).turns == ()


@pytest.mark.parametrize("path", sorted(DOMAINS.glob("*.xml")), ids=lambda path: path.stem)
def test_what_it_changes_can_be_written_brings_no_new_error_and_is_done_with(path: Path) -> None:
    text = path.read_bytes()
    subject = Subject(domain=read_domain(text))
    after = Subject(domain=read_domain(LIBVIRT.alter(text, *flash(subject).turns)))
    assert flash(after).turns == ()
    worse = {one.rule.id for one in audit(after) if one.rule.severity is not Severity.TRY}
    assert worse <= {one.rule.id for one in audit(subject)}


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ({"kernel": (4, 18)}, "kernel 4.18 is older"),
        ({"qemu": (4, 2, 1)}, "has no io_uring"),
        ({"qemu": (10, 1, 2)}, "hangs with io_uring"),
        ({"io_uring_disabled": 2}, "does not allow io_uring"),
        ({"io_uring_usable": False}, "does not allow io_uring"),
    ],
)
def test_where_io_uring_is_not_sound_the_engine_stays(host: dict[str, Any], why: str) -> None:
    found = flash(of("virt-install-etc", **host))
    assert "disk.aio" not in {turn.knob for turn in found.turns}
    assert "disk.cache" in {turn.knob for turn in found.turns}
    assert any(why in one.text for one in found.left)


def test_spinning_network_and_durable_disks_keep_what_they_have() -> None:
    spinning = flash(of("virt-install-etc", ImageView(rotational=True)))
    assert (spinning.turns, "spinning" in spinning.left[0].text) == ((), True)
    assert flash(of("nova-rbd")).turns == ()
    durable = flash(of("proxmox-directsync"))
    assert "disk.cache" not in {turn.knob for turn in durable.turns}
    assert any("promises durable writes" in one.text for one in durable.left)
    assert any("bus=sata has no IOThread" in one.text for one in flash(of("vagrant-sata")).left)


def test_a_new_iothread_has_the_number_that_libvirt_will_give_it() -> None:
    disk = "<disk type='block'><driver name='qemu' {}/><source dev='/{}'/><target dev='{}' bus='virtio'/></disk>"
    disks = disk.format("iothread='5'", "a", "vda") + disk.format("", "b", "vdb")
    listed = "<iothreads>1</iothreads><iothreadids><iothread id='5'/></iothreadids>"
    text = f"<domain type='kvm'><name>g</name>{listed}<devices>{disks}</devices></domain>".encode()
    subject = Subject(domain=read_domain(text))
    assert turned(subject)["device.iothread@vdb"] == "1"
    after = read_domain(LIBVIRT.alter(text, *flash(subject).turns))
    assert [after.threads_of(one) for one in after.disks] == [(5,), (1,)]
    assert [one.number for one in after.threads] == [1, 5]


def test_new_iothreads_are_pinned_where_it_is_known_which_cpus_are_free() -> None:
    text = (DOMAINS / "virt-install-etc.xml").read_bytes()
    pinned = text.replace(
        b"  <os>",
        b"  <cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='2-3,^3'/></cputune>\n  <os>",
        1,
    )
    subject = Subject(domain=read_domain(pinned), host=HostView(cpus=3, online=(0, 2, 6)))
    assert turned(subject)["iothread.pin@iothread:1"] == "6"
    full = Subject(domain=read_domain(pinned), host=HostView(cpus=1, online=(0,)))
    assert any("every other CPU is taken" in one.text for one in flash(full).left)
    counted = Subject(domain=read_domain(pinned), host=HostView(cpus=4))
    assert any("which CPUs are free is known only" in one.text for one in flash(counted).left)


def test_cpu_sets_are_read_as_libvirt_writes_them() -> None:
    assert cpus_of("0-3,^2,7") == {0, 1, 3, 7}
    assert cpus_of("x,1-,5") == {1, 5}
    assert cpus_of("") == frozenset()


def advised(text: str) -> tuple[str, list[str]]:
    language = language_of(text.encode())
    subject = Subject(domain=language.read(text.encode()))
    found = FoundDomain(origin="100.conf", text=text.encode(), subject=subject, language=language)
    advice = advise(found, Wish(template="flash"))
    return advice.after.decode(), [one.text for one in advice.left]


@pytest.mark.parametrize("before", ["", ",iothread=1"])
def test_a_proxmox_scsi_disk_gets_its_iothread_by_a_controller_of_its_own(before: str) -> None:
    text = f"scsihw: virtio-scsi-pci\nscsi0: a:b,cache=none,discard=on{before}\nscsi1: a:c,cache=none,discard=on\n"
    after, left = advised(text)
    assert after == (
        "scsihw: virtio-scsi-single\nscsi0: a:b,cache=none,discard=on,iothread=1\n"
        "scsi1: a:c,cache=none,discard=on,iothread=1\n"
    )
    assert not any("no IOThread" in one for one in left)
    assert advised(after)[0] == after


def test_a_controller_without_iothreads_is_said_to_be_left_alone() -> None:
    after, left = advised("scsihw: lsi\nscsi0: a:b\n")
    assert "iothread" not in after
    assert any(one.startswith("scsi0: no IOThread: its SCSI controller is lsi;") for one in left)


def test_disks_of_one_libvirt_controller_get_one_iothread() -> None:
    disk = "<disk type='block'><driver name='qemu'/><source dev='/{0}'/><target dev='{0}' bus='scsi'/></disk>"
    controller = "<controller type='scsi' index='0' model='virtio-scsi'/>"
    disks = disk.format("sda") + disk.format("sdb")
    text = f"<domain type='kvm'><name>g</name><devices>{disks}{{}}</devices></domain>"
    turns = turned(Subject(domain=read_domain(text.format(controller).encode())))
    assert (turns["iothread.count@"], turns["device.iothread@scsi:0"]) == ("1", "1")
    unwritten = flash(Subject(domain=read_domain(text.format("").encode())))
    assert [one.at for one in unwritten.left if "no IOThread" in one.text] == ["sda", "sdb"]
