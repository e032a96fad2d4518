# SPDX-License-Identifier: Apache-2.0
"""A knob turned in domain XML touches what it names and not one byte more."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.dialects.libvirt.alter import LIBVIRT, alter
from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.libvirt.domain import read_domain
from virtune.dialects.libvirt.words import CONTROLLER_ATTRIBUTES, DRIVER_ATTRIBUTES, LIMITS, REFUSALS, refusal
from virtune.dialects.text.xml import (
    Element,
    add_child,
    read_document,
    remove_attribute,
    remove_element,
    set_attribute,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError
from virtune.model.knobs import BY_ID, KNOBS
from virtune.model.stack import Disk, Stack
from virtune.model.text import Bytes

DOMAINS = Path(__file__).parents[1] / "captures" / "domains"
FILES = sorted(DOMAINS.glob("*.xml"))


def changed(before: bytes, after: bytes) -> tuple[int, bytes, bytes]:
    """Where two texts differ: the offset, the bytes that went, and those that came."""
    start = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    tail = 0
    while tail < min(len(before), len(after)) - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return start, before[start : len(before) - tail], after[start : len(after) - tail]


def disk_element(text: bytes, target: str) -> Element:
    root = read_document(text).root
    domain = root if root.tag == "domain" else root.find("domain")
    assert domain is not None
    for disk in domain.all("devices/disk"):
        named = disk.child("target")
        if named is not None and named.get("dev") == target:
            return disk
    raise AssertionError(target)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_difference_is_within_the_named_element(path: Path) -> None:
    text = path.read_bytes()
    for disk in read_domain(text).disks:
        element = disk_element(text, disk.target)
        driver = element.child("driver")
        for knob, word in DRIVER_ATTRIBUTES.items():
            altered = alter(text, SettingChange(knob=knob, at=disk.target, value="7"))
            start, gone, came = changed(text, altered)
            assert element.start < start < element.end
            if driver is not None:
                assert driver.start < start < driver.end
            assert len(gone) <= 12
            assert b"7" in came
            made = disk_element(altered, disk.target).child("driver")
            assert made is not None
            assert made.get(word) == "7"
            if driver is None:
                continue
            if driver.get(word) is None:
                assert alter(altered, SettingChange(knob=knob, at=disk.target, value=None)) == text
            else:
                assert alter(altered, SettingChange(knob=knob, at=disk.target, value=driver.get(word))) == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_threads_pins_and_polling_are_made_where_they_are_missing(path: Path) -> None:
    text = path.read_bytes()
    turns = (
        SettingChange(knob="iothread.count", value="4"),
        SettingChange(knob="iothread.pin", at="iothread:4", value="2-3"),
        SettingChange(knob="emulator.pin", value="0"),
        SettingChange(knob="vcpu.pin", at="vcpu:0", value="1"),
        SettingChange(knob="iothread.poll_max_ns", at="iothread:4", value="32768"),
    )
    altered = LIBVIRT.alter(text, *turns)
    found = read_domain(altered)
    assert len(found.threads) == 4
    assert [(found.pin(place)) for place in ("iothread:4", "emulator", "vcpu:0")] == ["2-3", "0", "1"]
    assert found.threads[3].poll_max_ns == 32768
    assert found.disks == tuple(
        type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"line": now.line})
        for one, now in zip(read_domain(text).disks, found.disks, strict=True)
    )
    removed = LIBVIRT.alter(altered, *(SettingChange(knob=turn.knob, at=turn.at, value=None) for turn in turns[1:4]))
    assert read_domain(removed).pin("iothread:4") is None


def test_every_line_that_no_turn_names_stays_as_it_is() -> None:
    text = (DOMAINS / "hand-written.xml").read_bytes()
    altered = alter(text, SettingChange(knob="disk.aio", at="vda", value="io_uring"))
    before, after = text.splitlines(), altered.splitlines()
    assert [b for a, b in zip(before, after, strict=True) if a != b] == [
        b"""\t\t\t\tname='qemu'   cache = "none" io='io_uring' ></driver >"""
    ]


def test_another_bus_gives_the_old_address_away() -> None:
    text = (DOMAINS / "vagrant-sata.xml").read_bytes()
    altered = alter(text, SettingChange(knob="device.bus", at="sda", value="virtio"))
    disk = disk_element(altered, "vda")
    assert disk.child("address") is None
    assert read_domain(altered).disks[0].bus == "virtio"
    assert len(altered.splitlines()) == len(text.splitlines()) - 1


def test_controllers_limits_and_caches() -> None:
    text = (DOMAINS / "ovirt-scsi.xml").read_bytes()
    altered = alter(text, SettingChange(knob="scsi.num_queues", at="scsi:0", value="2"))
    assert changed(text, altered)[1:] == (b"4", b"2")
    bare = (DOMAINS / "virt-install-scsi.xml").read_bytes()
    assert b"<driver iothread='1'/>" in alter(bare, SettingChange(knob="device.iothread", at="scsi:0", value="1"))
    limited = (DOMAINS / "virt-manager-limits.xml").read_bytes()
    assert changed(limited, alter(limited, SettingChange(knob="disk.throttle_iops", at="vda", value="3000")))[1:] == (
        b"2",
        b"3",
    )
    plain = (DOMAINS / "virt-install-default.xml").read_bytes()
    for turn, says in (
        (
            SettingChange(knob="disk.throttle_bps", at="vda", value="1"),
            b"<iotune><total_bytes_sec>1</total_bytes_sec></iotune>",
        ),
        (
            SettingChange(knob="disk.cache_size", at="vda", value="4194304"),
            b"<max_size unit='bytes'>4194304</max_size>",
        ),
        (SettingChange(knob="device.rotation_rate", at="sda", value="1"), b"rotation_rate='1'"),
    ):
        altered = alter(plain, turn)
        assert says in altered
        read_domain(altered)
    cached = alter(plain, SettingChange(knob="disk.cache_size", at="vda", value="1048576"))
    again = alter(cached, SettingChange(knob="disk.cache_size", at="vda", value="2097152"))
    assert read_domain(again).disks[0].metadata_cache_bytes == 2097152
    hidden = (DOMAINS / "virt-manager-hidden-no-gpu.xml").read_bytes()
    assert not read_domain(alter(hidden, SettingChange(knob="cpu.kvm_hidden", value=None))).kvm_hidden


@pytest.mark.parametrize("knob", sorted(REFUSALS))
def test_what_xml_cannot_say_is_refused_with_the_reason(knob: str) -> None:
    assert knob in BY_ID
    with pytest.raises(PlanError, match=r"cannot be written into a libvirt domain: \w+"):
        alter(b"<domain/>", SettingChange(knob=knob, at="vda", value="1"))


def test_every_knob_is_turned_or_refused() -> None:
    for knob in KNOBS:
        assert refusal(knob.id) is None or len(refusal(knob.id) or "") > 10
        # what the row itself writes as XML is not called no part of a domain
        assert "not part of" not in (refusal(knob.id) or "") or "<" not in knob.spelled.get("libvirt", "")
    assert {*DRIVER_ATTRIBUTES, *CONTROLLER_ATTRIBUTES, *LIMITS, *REFUSALS} <= BY_ID.keys()
    assert not any(refusal(knob) is None for knob in REFUSALS)


@pytest.mark.parametrize(
    "turn",
    [
        SettingChange(knob="disk.cache", at="vdz", value="none"),
        SettingChange(knob="device.iothread", at="scsi:9", value="1"),
        SettingChange(knob="disk.cache", at="scsi:0", value="none"),
        SettingChange(knob="iothread.pin", at="iothread:x", value="1"),
        SettingChange(knob="iothread.pin", at="iothread:1", value="1'/><x y='"),
        SettingChange(knob="device.bus", at="sda", value=None),
        SettingChange(knob="cpu.kvm_hidden", value="on"),
    ],
    ids=str,
)
def test_a_place_or_value_that_cannot_be_is_refused(turn: SettingChange) -> None:
    with pytest.raises(PlanError):
        alter((DOMAINS / "virt-install-scsi.xml").read_bytes(), turn)


@given(
    value=st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=20),
    blanks=st.text(" \t\n", min_size=1, max_size=3),
    quote=st.sampled_from("'\""),
    empty=st.booleans(),
)
def test_attributes_survive_any_blanks_quotes_and_values(value: str, blanks: str, quote: str, empty: bool) -> None:
    end = f"{blanks}/>" if empty else f"{blanks}></b >"
    text = f"<a>é<!-- <b c='1'/> --><b{blanks}x={quote}a>b{quote}{blanks}c = {quote}old{quote}{end}</a>".encode()
    document = read_document(text)
    element = document.root.children[0]
    altered = set_attribute(document, element, "c", value)
    found = read_document(altered).root.children[0]
    assert found.attributes == {"x": "a>b", "c": value}
    assert found.end - found.start == element.end - element.start + len(altered) - len(text)
    without = read_document(remove_attribute(document, element, "c")).root.children[0]
    assert without.attributes == {"x": "a>b"}
    more = read_document(set_attribute(document, element, "d", value)).root.children[0]
    assert more.attributes == {"x": "a>b", "c": "old", "d": value}
    grown = read_document(add_child(document, element, "<k/>"))
    assert [one.tag for one in grown.root.children[0].children] == ["k"]
    assert read_document(remove_element(document, element)).root.children == []


def test_a_line_that_goes_takes_the_whole_of_its_end_and_a_comment_is_kept() -> None:
    text = b"<domain>\r\n  <iothreads>2</iothreads>\r\n  <vcpu>1</vcpu>\r\n</domain>\r\n"
    assert alter(text, SettingChange(knob="iothread.count", value=None)) == text.replace(
        b"  <iothreads>2</iothreads>\r\n", b""
    )
    text = b"<domain><iothreads>2<!-- keep --></iothreads></domain>"
    with pytest.raises(PlanError, match="more in it than its value"):
        alter(text, SettingChange(knob="iothread.count", value="3"))


@pytest.mark.parametrize(
    ("knob", "element"),
    [
        ("disk.throttle_iops", "total_iops_sec"),
        ("disk.throttle_iops_read", "read_iops_sec"),
        ("disk.throttle_iops_write", "write_iops_sec"),
        ("disk.throttle_bps", "total_bytes_sec"),
        ("disk.throttle_bps_read", "read_bytes_sec"),
        ("disk.throttle_bps_write", "write_bytes_sec"),
    ],
)
def test_each_limit_has_the_element_of_its_own_name(knob: str, element: str) -> None:
    text = b"<domain><devices><disk><target dev='vda'/></disk></devices></domain>"
    altered = LIBVIRT.alter(text, SettingChange(knob=knob, at="vda", value="7000"))
    assert f"<iotune><{element}>7000</{element}></iotune>".encode() in altered
    assert read_domain(altered).disks[0].limits == ((element, 7000),)


def test_what_libvirt_is_given_of_a_stack_limits_operations_and_bytes_each_by_its_name() -> None:
    stack = Stack(disk=Disk(throttle_iops=5, throttle_bps=Bytes(7000)), rig="qemu")
    written = disk_xml(stack, image="/a").disk
    assert "<total_iops_sec>5</total_iops_sec>" in written
    assert "<total_bytes_sec>7000</total_bytes_sec>" in written


def test_an_attribute_is_not_taken_for_another_that_begins_like_it() -> None:
    text = b"<a iothread='1' io='x' io2='y'/>"
    document = read_document(text)
    assert set_attribute(document, document.root, "io", "z") == text.replace(b"'x'", b"'z'")
    assert remove_attribute(document, document.root, "io") == text.replace(b" io='x'", b"")
    assert set_attribute(document, document.root, "i", "z") == text.replace(b"/>", b" i='z'/>")
    assert remove_attribute(document, document.root, "i") == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (b"<a>\n  <b/><c/>\n</a>", b"<a>\n  <c/>\n</a>"),
        (b"<a>\n  <c/><b/>\n</a>", b"<a>\n  <c/>\n</a>"),
        (b"<a>\n  <c/>\n  <b/>\n</a>", b"<a>\n  <c/>\n</a>"),
        (b"<a>\r\n  <b/>\r\n  <c/>\r\n</a>", b"<a>\r\n  <c/>\r\n</a>"),
        (b"<a><b/></a>", b"<a></a>"),
    ],
)
def test_a_line_goes_only_with_an_element_that_has_it_alone(text: bytes, left: bytes) -> None:
    document = read_document(text)
    (element,) = document.root.all("b")
    assert remove_element(document, element) == left


def test_a_new_pin_stands_after_the_others_of_its_kind() -> None:
    pins = b"<vcpupin vcpu='0' cpuset='0'/>\n<emulatorpin cpuset='1'/>"
    text = b"<domain><cputune>\n" + pins + b"\n</cputune><vcpu>4</vcpu></domain>"
    altered = LIBVIRT.alter(text, SettingChange(knob="vcpu.pin", at="vcpu:1", value="2"))
    assert altered == text.replace(b"cpuset='0'/>", b"cpuset='0'/>\n<vcpupin vcpu='1' cpuset='2'/>")


def test_a_disk_goes_to_scsi_only_where_its_controller_is_virtio_s() -> None:
    text = "<domain><devices>{}<disk><target dev='vda' bus='virtio'/></disk></devices></domain>"
    turn = SettingChange(knob="device.bus", at="vda", value="virtio-scsi")
    for controller in (
        "",
        "<controller type='scsi' index='0' model='lsilogic'/>",
        "<controller type='usb' model='virtio-scsi'/>",
    ):
        with pytest.raises(PlanError, match="no virtio-scsi controller"):
            LIBVIRT.alter(text.format(controller).encode(), turn)
    served = text.format("<controller type='scsi' index='0' model='virtio-scsi'/>").encode()
    assert b"bus='scsi'" in LIBVIRT.alter(served, turn)
