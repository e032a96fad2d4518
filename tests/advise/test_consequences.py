# SPDX-License-Identifier: Apache-2.0
"""What a change takes and risks is of this value on this disk, and the same whoever says it."""

from pathlib import Path

import pytest
from tests.advise.cases import on, xml

from virtune.advise.audit import Consequences, audit
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.advise import Wish, advise, read_turn
from virtune.flows.domains.domains import FoundDomain, from_paths
from virtune.model.domain import Domain
from virtune.model.finding import Severity, Subject
from virtune.model.knob import Risk

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
DISK = "<disk type='file'><driver cache='{2}'/><source file='/d/{0}'/><target dev='{0}' bus='{1}'/></disk>"


def domain(*disks: tuple[str, str, str]) -> Domain:
    inside = "".join(DISK.format(*disk) for disk in disks)
    text = f"<domain type='kvm'><name>d</name><iothreads>2</iothreads><devices>{inside}</devices></domain>"
    return read_domain(text.encode())


@pytest.mark.parametrize(
    ("now", "then", "worst"),
    [
        ("unsafe", "none", "performance"),
        ("unsafe", "writeback", "performance"),
        ("writeback", "none", "performance"),
        ("none", "unsafe", "data"),
        ("writethrough", "none", "data"),
        ("directsync", "writeback", "data"),
        ("directsync", "writethrough", "performance"),
        ("none", "writethrough", "performance"),
        ("writethrough", "", "data"),
    ],
)
def test_a_cache_mode_risks_data_only_where_it_promises_less(now: str, then: str, worst: str) -> None:
    assert Consequences(domain(("vda", "virtio", now))).risk(read_turn(f"disk.cache@vda={then}")) == worst


@pytest.mark.parametrize(
    ("now", "then", "worst"),
    [("none", "writeback", "data"), ("none", "writethrough", "data"), ("writeback", "none", "performance"),
     ("none", "", "performance")],
)  # fmt: skip
def test_a_disk_that_vms_share_risks_data_in_any_page_cache(now: str, then: str, worst: str) -> None:
    shared = on(xml(f"cache='{now}'", inner="<shareable/>")).subject.domain
    assert Consequences(shared).risk(read_turn(f"disk.cache@vda={then}")) == worst


@pytest.mark.parametrize(
    ("words", "worst"),
    [
        ("disk.discard@vda=unmap", "data"),
        ("disk.discard@vda=ignore", "none"),
        ("disk.detect_zeroes@vda=off", "none"),
        ("disk.detect_zeroes@vda=on", "performance"),
        ("disk.aio@vda=io_uring", "availability"),
        ("disk.aio@vda=threads", "performance"),
        ("device.werror@vda=ignore", "data"),
        ("device.werror@vda=stop", "availability"),
        ("device.bus@vda=ahci", "availability"),
    ],
)
def test_a_value_has_its_own_risk(words: str, worst: str) -> None:
    assert Consequences(domain(("vda", "virtio", "none"))).risk(read_turn(words)) == worst


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("disk.cache@vda=none", "power-off"),  # the first disk is what the guest boots from
        ("disk.cache@vdb=none", "replug"),
        ("disk.discard@vdb=unmap", "replug"),
        ("disk.cache@hdb=none", "power-off"),  # libvirt replugs no IDE disk
        ("device.bus@vdb=ahci", "power-off"),
        ("disk.throttle_iops@hdb=5", "live"),
        ("iothread.count=4", "live"),
        ("iothread.count=1", "power-off"),
        ("iothread.pin@iothread:1=0", "live"),
        ("disk.throttle_group@vdb=a", "replug"),
    ],
)
def test_what_it_takes_depends_on_the_disk(words: str, what: str) -> None:
    disks = (("vda", "virtio", "none"), ("vdb", "virtio", "none"), ("hdb", "ide", "none"))
    assert Consequences(domain(*disks)).takes(read_turn(words)) == what


def test_audit_and_advise_say_the_same_of_the_same_change() -> None:
    compared = 0
    for found in from_paths([DOMAINS], here=False):
        assert isinstance(found, FoundDomain)
        for finding in audit(Subject(domain=found.subject.domain)):
            if len(finding.seen.turns) == 1:
                advised = advise(found, Wish(turns=finding.seen.turns))
                if advised.turns:
                    compared += 1
                    assert advised.effects == ((finding.takes, finding.risk),), finding
    assert compared > 15


CACHES = ("", "none", "writeback", "writethrough", "directsync", "unsafe")


@pytest.mark.parametrize("io", ["", "native", "threads", "io_uring"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("extra", ["", "discard='unmap' detect_zeroes='unmap'"])
def test_what_errors_and_warnings_change_unasked_never_risks_data(cache: str, io: str, extra: str) -> None:
    """`io=native` with writethrough was repaired by cache=none, which promises less."""
    words = " ".join(f"{name}='{value}'" for name, value in (("cache", cache), ("io", io)) if value)
    for kind, inner in (("block", ""), ("file", ""), ("block", "<shareable/>"), ("network", "")):
        subject = on(xml(f"{words} {extra}", kind=kind, inner=inner), qemu=(9, 0, 0), kernel=(6, 1)).subject
        consequences = Consequences(subject.domain)
        for one in audit(subject):
            if one.rule.severity is not Severity.TRY and not one.seen.meant:
                risks = {consequences.risk(turn) for turn in one.seen.turns}
                assert Risk.DATA not in risks, f"{one.rule.id}: {one.seen.seen}: {one.seen.turns}"
