# SPDX-License-Identifier: Apache-2.0
"""What an audit could not look at is said: for every rule with each of its facts absent, for every type of domain."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.advise.cases import CASES, on, xml

from virtune.advise.audit import audit, not_audited, not_looked_at, rules, rules_by_need
from virtune.advise.rule import version_of_machine
from virtune.cli import run
from virtune.dialects.libvirt.domain import read_domain
from virtune.model.finding import HostView, ImageView, NotLookedAt, Running, Subject

QEMU_RUNS = ("kvm", "qemu", "hvf", "kqemu", "nvmm")
OTHERS = ("xen", "lxc", "uml", "openvz", "test", "vmware", "hyperv", "vbox", "phyp", "parallels", "vz", "bhyve")
"""The types of libvirt's schema; two more than one version of it has."""

SCHEMA = Path("/usr/share/libvirt/schemas/domaincommon.rng")


def absences(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """Yield a subject with one fact after the other gone, and the name of the fact."""
    for one in fields(HostView):
        if getattr(subject.host, one.name):
            empty: Any = {} if one.name == "images" else None
            yield one.name, replace(subject, host=replace(subject.host, **{one.name: empty}))
    for field in fields(ImageView):
        nothing: dict[str, Any] = {field.name: None}
        images = {name: replace(image, **nothing) for name, image in subject.host.images.items()}
        yield f"image's {field.name}", replace(subject, host=replace(subject.host, images=images))
    yield "running", replace(subject, running=None)
    if subject.running is not None:
        for name in (one.name for one in fields(Running) if one.name in ("rings", "contexts", "disks")):
            without: dict[str, Any] = {name: () if name == "disks" else None}
            yield f"running's {name}", replace(subject, running=replace(subject.running, **without))
    # the languages of other hypervisors have the bus in the disk's name
    for name, value in (("bus", None), ("backing", None)) if subject.disks else ():
        unset: dict[str, Any] = {name: value}
        disks = tuple(replace(disk, **unset) for disk in subject.domain.disks)
        yield f"disk's {name}", replace(subject, domain=replace(subject.domain, disks=disks))
    if subject.disks:
        yield "machine", replace(subject, domain=replace(subject.domain, machine="pc-q35-unheard-of"))


def named(subject: Subject) -> set[str]:
    return {rule for one in not_looked_at(subject, rules_by_need(rules())) for rule in one.rules}


def found(subject: Subject) -> set[str]:
    return {one.rule.id for one in audit(subject)}


@pytest.mark.parametrize("identity", CASES)
def test_a_rule_that_lacks_its_fact_is_named(identity: str) -> None:
    fires, silent = (case.subject for case in CASES[identity])
    gone = [fact for fact, subject in absences(fires) if identity not in found(subject)]
    for fact, subject in absences(fires):
        assert identity in found(subject) or identity in named(subject), fact
    for fact, subject in absences(silent):
        # what decides where the rule fires decides where it is silent
        if fact in gone and identity not in found(subject) and not fact.startswith("disk's"):
            assert identity in named(subject), fact


def test_with_every_fact_known_nothing_is_named() -> None:
    image = ImageView(
        size_bytes=2, allocated_bytes=2, filesystem="ext4", copy_on_write=False, free_share=0.5, rotational=False,
        scheduler="none", cluster_bytes=65536, extended_l2=False, backing=False,
    )  # fmt: skip
    known = on(
        xml("cache='none' io='io_uring'", kind="file", form="qcow2"), image, kernel=(6, 1), qemu=(9, 0, 0),
        libvirt=(9, 0, 0), io_uring_disabled=0, io_uring_usable=True, aio_used=0, aio_limit=65536, cpus=4,
        online=(0, 1, 2, 3), memory_bytes=10**10, dirty_percent=20, dirty_bytes=0, governors=("performance",),
    )  # fmt: skip
    subject = replace(known.subject, connect="qemu:///system")
    assert not_looked_at(subject, rules_by_need(rules())) == ()
    nothing = replace(known.subject, host=HostView())
    assert {"R04", "R08", "R12", "R13", "R14", "R20", "R22", "R23", "R24", "R25", "R41", "R44"} <= named(nothing)


@pytest.mark.parametrize("kind", [*QEMU_RUNS, *OTHERS, "", "invented"])
def test_each_type_of_libvirt_is_audited_or_said_not_to_be(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"type='{kind}'" if kind else ""
    text = xml("cache='none' io='threads' discard='unmap' iothread='1'", rest="<iothreads>1</iothreads>")
    path = tmp_path / "a.xml"
    path.write_bytes(text.replace(b"type='kvm'", said.encode()))
    theirs = kind in QEMU_RUNS
    status = run(["audit", str(path)])
    out = capsys.readouterr().out
    assert status == (0 if theirs else 5)
    assert ("nothing found" in out) == theirs
    assert (f"not audited: type {kind}" in out) == (not theirs and bool(kind))
    assert out.splitlines()[-1].startswith("1 domain audited" if theirs else "0 domains audited, 1 not audited")
    assert run(["audit", str(path), "--json"]) == status
    (domain,) = json.loads(capsys.readouterr().out)["domains"]
    assert (domain["not_audited"] is None) == theirs
    assert run(["audit", str(path), "--sarif"]) == status
    (invocation,) = json.loads(capsys.readouterr().out)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] == theirs
    assert run(["audit", str(path), "--fail-on", "never"]) == 0
    capsys.readouterr()


@pytest.mark.skipif(not SCHEMA.exists(), reason="needs libvirt's schemas (apt install libvirt-daemon)")
def test_no_type_of_the_schema_here_is_forgotten() -> None:
    block = re.search(r'<define name="hvs">.*?</define>', SCHEMA.read_text(), re.DOTALL)
    assert block is not None
    assert set(re.findall(r"<value>(\w+)</value>", block[0])) <= {*QEMU_RUNS, *OTHERS}


def test_a_domain_without_a_type_still_hears_that_its_data_is_at_risk() -> None:
    text = xml("cache='unsafe'")
    for kind, heard in (("", {"R01"}), ("type='xen'", set())):
        domain = read_domain(text.replace(b"type='kvm'", kind.encode()))
        assert not_audited(domain)
        assert found(Subject(domain=domain)) == heard


def test_an_input_that_cannot_be_audited_is_no_clean_bill_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = xml("cache='none' io='threads' discard='unmap' iothread='1'", rest="<iothreads>1</iothreads>")
    bad = {
        "xen.xml": (good.replace(b"'kvm'", b"'xen'"), 5), "broken.xml": (b"<domain", 2),
        "unsafe.xml": (good.replace(b"'none'", b"'unsafe'"), 4),
    }  # fmt: skip
    chance = random.Random(5)
    for _ in range(12):
        chosen = chance.sample(sorted(bad), chance.randint(0, 3))
        folder = tmp_path / f"{chance.random()}"
        folder.mkdir()
        for name in chosen:
            (folder / name).write_bytes(bad[name][0])
        (folder / "good.xml").write_bytes(good)
        codes = {bad[name][1] for name in chosen}
        assert run(["audit", str(folder)]) == next((one for one in (4, 2, 5) if one in codes), 0)
    capsys.readouterr()


@pytest.mark.parametrize("files", [{}, {"a.tf": b"x"}, {"vm.json": b'{"boot-source": {}}', "b/n.xml": b"<network/>"}])
def test_a_folder_without_a_vm_is_no_clean_bill(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}, none is a VM that virtune can read"
    for verb in (["audit"], ["audit", "--fail-on", "never"], ["audit", "--brief"], ["probe"]):
        assert run([*verb, str(tmp_path)]) == 2, verb
        out = capsys.readouterr().out
        assert (count if files else "there is no file in it") in out
        assert "nothing found" not in out
    assert run(["apply", "advise", str(tmp_path)]) == 2
    capsys.readouterr()


MACHINES = {
    "pc-q35-rhel8.1.0": (4, 1), "pc-i440fx-rhel7.6.0": (2, 12), "s390-ccw-virtio-rhel8.4.0": (5, 2),
    "virt-rhel9.2.0": (7, 2), "pseries-rhel7.6.0": (2, 12), "rhel6.5.0": (0, 12), "pc-i440fx-focal": (4, 2),
    "pc-q35-jammy-hpb": (6, 2), "pc-i440fx-xenial": (2, 5), "s390-ccw-virtio-noble": (8, 2), "pc-q35-7.2": (7, 2),
    "pc-q35-4.0.1": (4, 0), "pc-i440fx-5.1+pve0": (5, 1), "pc-0.12": (0, 12), "virt-10.1": (10, 1),
    "pc-q35-rhel12.7.0": None, "pc-q35-sid": None, "sun4v": None, "": None, "q35": (9, 9), None: (9, 9),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_type_has_the_version_that_it_equals(machine: str | None) -> None:
    assert version_of_machine(machine, (9, 9)) == MACHINES[machine]


@pytest.mark.parametrize("machine", [one for one in MACHINES if one])
def test_an_old_machine_type_is_found_or_said_to_be_of_unknown_age(machine: str) -> None:
    version = version_of_machine(machine)
    subject = on(xml(machine=machine, vcpus=16)).subject
    theirs = {"R34", "R38"}
    assert (theirs <= found(subject)) == (version is not None and version < (5, 2))
    assert (theirs <= named(subject)) == (version is None)
    unknown = NotLookedAt(unknown=f"age of this machine type ({machine})", rules=("R34", "R38"))
    assert (unknown in not_looked_at(subject, rules_by_need(rules()))) == (version is None)


@pytest.mark.parametrize(
    ("machine", "vcpus", "driver", "follows"),
    [
        ("pc-q35-5.1", 1, "", False), ("pc-q35-5.1", 8, "", True), ("pc-q35-5.1", 8, "queues='8'", False),
        ("pc-q35-4.1", 1, "", True), ("pc-q35-4.1", 8, "queues='8'", True),
        ("pc-q35-4.1", 8, "queues='8' queue_size='256'", False), ("pc-q35-5.2", 8, "", False),
        ("pc-q35-rhel8.1.0", 8, "queues='8' queue_size='256'", False), ("pc-q35-rhel8.1.0", 8, "", True),
    ],
)  # fmt: skip
def test_an_old_machine_type_is_no_warning_where_nothing_follows(
    machine: str, vcpus: int, driver: str, follows: bool
) -> None:
    assert ("R38" in found(on(xml(driver, machine=machine, vcpus=vcpus)).subject)) == follows
