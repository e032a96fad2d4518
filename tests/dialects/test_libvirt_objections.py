# SPDX-License-Identifier: Apache-2.0
"""What libvirt refuses is refused before it is written, with the reason and what to do; what it takes is not."""

import pytest
from tests.libvirt_settings import AS_IT_STANDS, DOMAIN, NOT_STARTED, REFUSED, STANDS, TAKEN

from virtune.advise.audit import audit
from virtune.dialects.libvirt import alter as unchecked
from virtune.dialects.libvirt.alter import LIBVIRT
from virtune.dialects.libvirt.domain import read_domain
from virtune.flows.domains.advise import read_turn
from virtune.model.errors import PlanError
from virtune.model.finding import Subject


def altered(words: str) -> bytes:
    return LIBVIRT.alter(DOMAIN, *map(read_turn, words.split()))


@pytest.mark.parametrize(("words", "says"), (REFUSED | NOT_STARTED).items(), ids=REFUSED | NOT_STARTED)
def test_what_libvirt_refuses_is_refused_with_the_reason(words: str, says: str) -> None:
    with pytest.raises(PlanError) as refused:
        altered(words)
    assert says in refused.value.message


def refused(text: bytes) -> list[tuple[str, int, str]]:
    found = audit(Subject(domain=read_domain(text)))
    return [(one.at, one.line, one.seen.seen) for one in found if one.rule.id == "R83"]


@pytest.mark.parametrize(("text", "says"), AS_IT_STANDS.values(), ids=AS_IT_STANDS)
def test_the_audit_says_what_libvirt_refuses_of_a_domain_as_it_stands(text: bytes, says: str) -> None:
    found = refused(text)
    assert any(says in said for _, _, said in found), found
    assert all(at and line for at, line, _ in found)


@pytest.mark.parametrize("text", [*STANDS.values(), DOMAIN], ids=[*STANDS, "all"])
def test_the_audit_says_nothing_of_what_libvirt_takes(text: bytes) -> None:
    assert refused(text) == []


@pytest.mark.parametrize("words", NOT_STARTED)
def test_what_qemu_refuses_is_an_error_of_the_audit_too(words: str) -> None:
    text = unchecked.alter(DOMAIN, read_turn(words))
    assert {"R36", "R83"} & {one.rule.id for one in audit(Subject(domain=read_domain(text)))}


@pytest.mark.parametrize("words", TAKEN)
def test_what_libvirt_takes_is_written_and_can_be_taken_back(words: str) -> None:
    text = altered(words)
    assert text != DOMAIN or words == "device.werror@vda=auto"
    read_domain(text)
    if "device.bus" in words or "scsi_controller" in words:
        return
    gone = [word.partition("=")[0] + "=" for word in reversed(words.split())]
    kept = LIBVIRT.alter(text, *map(read_turn, gone))
    for word in (
        "queues",
        "iothread=",
        "group_name",
        "metadata_cache",
        "blockio",
        "_max",
        "batch",
        "hint-dedicated ",
    ):
        assert word.encode() not in kept


def test_what_was_wrong_before_does_not_stand_in_the_way_of_fixing_something_else() -> None:
    wrong = DOMAIN.replace(b"<driver name='qemu' type='raw'/>", b"<driver name='qemu' type='raw' iothread='7'/>")
    assert b"cache='none'" in LIBVIRT.alter(wrong, read_turn("disk.cache@vda=none"))
    with pytest.raises(PlanError, match="names IOThread 8"):
        LIBVIRT.alter(wrong, read_turn("device.iothread@vda=8"))


def test_another_bus_takes_the_name_the_address_and_the_words_of_the_old_one() -> None:
    disks = read_domain(altered("device.bus@sda=virtio-blk")).disks
    assert [(disk.target, disk.bus) for disk in disks] == [("vda", "virtio"), ("vdb", "virtio"), ("sdb", "scsi")]
    assert b"rotation_rate" not in altered("device.bus@sda=virtio-blk")
    assert b"type='drive'" not in altered("device.bus@sda=virtio-blk")
    text = altered("iothread.count=1 device.iothread@vda=1 device.num_queues@vda=2 device.bus@vda=ahci")
    # sda and the name sdb are taken, and a name without an address is the place
    assert [disk.target for disk in read_domain(text).disks] == ["sdc", "sda", "sdb"]
    assert b"queues" not in text
    assert b"iothread=" not in text
    # later changes call the disk what it was called when they were written
    text = altered("device.bus@sda=virtio-blk disk.cache@sda=none device.num_queues@sda=2")
    moved = read_domain(text).disk("vdb")
    assert moved is not None
    assert (moved.cache, moved.queues) == ("none", 2)


def test_the_bus_that_a_disk_has_keeps_its_address() -> None:
    for words in ("device.bus@sda=ahci", "device.bus@vda=virtio-blk", "device.bus@sdb=virtio-scsi"):
        assert altered(words) == DOMAIN


def test_what_an_identity_hangs_on_is_not_thrown_away() -> None:
    named = DOMAIN.replace(
        b"<target dev='sdb' bus='scsi'/>", b"<target dev='sdb' bus='scsi'/><wwn>5000c50015ea71aa</wwn>"
    )
    with pytest.raises(PlanError, match="the guest may know the disk by it"):
        LIBVIRT.alter(named, read_turn("device.bus@sdb=virtio-blk"))


def test_what_virtune_put_around_a_setting_goes_with_it() -> None:
    bare = DOMAIN.replace(b"      <driver name='qemu' type='raw'/>\n", b"")
    for words in ("disk.cache@vda=none", "device.physical_block_size@vda=4096", "disk.throttle_iops@vda=100"):
        there = LIBVIRT.alter(bare, read_turn(words))
        assert there != bare
        assert LIBVIRT.alter(there, read_turn(words.partition("=")[0] + "=")) == bare, words


def test_a_line_that_is_added_to_a_file_of_windows_ends_as_the_others_do() -> None:
    text = DOMAIN.replace(b"\n", b"\r\n")
    there = LIBVIRT.alter(text, read_turn("disk.throttle_iops@vda=100"))
    assert there.replace(b"\r\n", b"").count(b"\n") == 0
    assert LIBVIRT.alter(there, read_turn("disk.throttle_iops@vda=")) == text


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("min=2", True), ("min=0", True), ("max=4", False), ("min=2 max=4", False), ("min=4 max=4", False),
        ("min=5 max=4", True), ("max=1", False), ("min=0 max=1", False),
    ],
)  # fmt: skip
def test_a_pool_s_least_needs_a_greatest(words: str, refused: bool) -> None:
    asked = "iothread.count=1 " + " ".join(
        f"iothread.thread_pool_{word.replace('=', '@iothread:1=')}" for word in words.split()
    )
    if refused:
        with pytest.raises(PlanError, match="thread_pool_max is"):
            altered(asked)
    else:
        assert b"thread_pool" in altered(asked)
