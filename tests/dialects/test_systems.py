# SPDX-License-Identifier: Apache-2.0
"""What every language beside libvirt's promises: it is recognised, read, and altered in one place only."""

import dataclasses
import difflib
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from virtune.dialects.language import Language
from virtune.dialects.languages import LANGUAGES, language_of
from virtune.model.domain import Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

CAPTURES = Path(__file__).parents[1] / "captures"
SYSTEMS = [one for one in LANGUAGES if one.name in ("proxmox", "kubevirt", "nova", "openstack", "vm-bhyve")]
FILES = [(one, path) for one in SYSTEMS for path in sorted((CAPTURES / one.name).glob("*"))]
NAMES = [f"{one.name}-{path.stem}" for one, path in FILES]

FIELDS: dict[str, tuple[str, ...]] = {
    "device.werror": ("werror",),
    "device.rerror": ("rerror",),
    "disk.aio": ("io",),
    "disk.cache": ("cache", "options"),
    "disk.discard": ("discard", "detect_zeroes"),
    "disk.detect_zeroes": ("detect_zeroes", "options"),
    "device.iothread": ("iothread", "mapping"),
    "device.bus": ("bus", "iothread", "queues"),
    "device.num_queues": ("queues",),
    "device.queue_size": ("queue_size",),
    "device.rotation_rate": ("rotation_rate",),
    "disk.throttle_iops": ("limits",),
    "disk.throttle_iops_read": ("limits",),
    "disk.throttle_iops_write": ("limits",),
    "disk.throttle_bps": ("limits",),
    "disk.throttle_bps_read": ("limits",),
    "disk.throttle_bps_write": ("limits",),
}
"""What of a disk a knob may change; others change nothing that a DomainDisk has, or a controller."""

VALUES: dict[str, tuple[str | None, ...]] = {
    "disk.aio": ("threads", "native", "io_uring", None),
    "disk.cache": ("none", "writeback", "writethrough", "directsync", "unsafe", None),
    "disk.discard": ("unmap", "ignore", None),
    "disk.detect_zeroes": ("off", "on", "unmap", None),
    "device.iothread": ("1", None),
    "device.bus": ("virtio", "scsi", "sata", "ide", "nvme"),
    "device.scsi_controller": ("virtio-scsi-single", "virtio-scsi-pci", "pvscsi", "lsi53c895a"),
    "device.num_queues": ("4", "2", None),
    "device.queue_size": ("256", None),
    "device.rotation_rate": ("1", "0", None),
    "device.werror": ("stop", "report", "enospc", None),
    "device.rerror": ("stop", "report", None),
}
NUMBERS = ("1048576", "262144000", None)


def values_of(knob: str) -> tuple[str | None, ...]:
    return VALUES.get(knob, NUMBERS if "throttle" in knob else ("2", "off", "on", None))


def without_lines(domain: Domain) -> Domain:
    """A domain without the places of things, which move when lines are added."""
    disks = tuple(dataclasses.replace(disk, line=0) for disk in domain.disks)
    controllers = tuple(dataclasses.replace(one, line=0) for one in domain.controllers)
    return dataclasses.replace(domain, line=0, threads_line=0, disks=disks, controllers=controllers)


def plain(disk: DomainDisk, *fields: str) -> dict[str, Any]:
    return {f.name: getattr(disk, f.name) for f in dataclasses.fields(disk) if f.name not in fields}


def lines_changed(before: bytes, after: bytes) -> list[str]:
    old, new = (text.decode("latin-1").split("\n") for text in (before, after))
    return [line for line in difflib.ndiff(old, new) if line[:2] in ("- ", "+ ")]


@pytest.mark.parametrize(("dialect", "path"), FILES, ids=NAMES)
def test_a_capture_is_recognised_by_its_content_and_read(dialect: Language, path: Path) -> None:
    text = path.read_bytes()
    assert language_of(text) is dialect
    domains = dialect.domains(text)
    assert domains
    for domain in domains:
        assert domain.language == dialect.name
        assert domain.disks
        assert len({disk.target for disk in domain.disks}) == len(domain.disks)
        for disk in domain.disks:
            assert 1 <= disk.line <= text.count(b"\n") + 1


@pytest.mark.parametrize(("dialect", "path"), FILES, ids=NAMES)
def test_a_turn_changes_the_one_thing_that_it_names(dialect: Language, path: Path) -> None:
    text = path.read_bytes()
    turned = 0
    for domain in dialect.domains(text):
        for disk in domain.disks:
            for knob in dialect.says:
                for value in values_of(knob):
                    at = "" if knob == "device.scsi_controller" else disk.target
                    try:
                        after = dialect.alter(text, SettingChange(knob=knob, at=at, value=value), domain=domain.name)
                    except PlanError:
                        continue
                    turned += after != text
                    check_one_change(dialect, text, after, domain, disk, knob)
    assert turned


def check_one_change(
    dialect: Language, text: bytes, after: bytes, domain: Domain, disk: DomainDisk, knob: str
) -> None:
    if dialect.given_back:  # else nobody sees the text, and a change is a command
        assert len(lines_changed(text, after)) <= 3, knob
    elif after != text:
        assert dialect.commands is not None
        assert len(dialect.commands(text, after, "x")) == 1, knob
    assert language_of(after) is dialect
    before, now = dialect.domains(text), dialect.domains(after)
    assert [one.name for one in before] == [one.name for one in now]
    for old, new in zip(before, now, strict=True):
        if old.name != domain.name:
            assert without_lines(old) == without_lines(new)
            continue
        assert [one.target for one in old.disks] == [one.target for one in new.disks]
        for was, become in zip(old.disks, new.disks, strict=True):
            others = {"line"} | (set(FIELDS.get(knob, ())) if was.target == disk.target else set())
            # threads are numbered in the order of the disks, and belong to the controller with SCSI
            if knob in ("device.iothread", "device.scsi_controller", "device.bus"):
                others |= {"iothread", "mapping", "controller", "options"}
            if (dialect.name, knob) == ("kubevirt", "device.num_queues"):
                others |= {"queues"}  # a switch of the whole VM
            if (dialect.name, knob) == ("nova", "disk.discard"):
                others |= {"discard"}  # one setting for all disks of a host
            assert plain(was, *others) == plain(become, *others), knob


@pytest.mark.parametrize("dialect", SYSTEMS, ids=lambda one: one.name)
@pytest.mark.parametrize("text", [b"", b"\0", b"hello\nworld\n", b"[" * 5000, b"\xff\xfe\xfa", b": : :"])
def test_what_is_no_such_text_is_refused(dialect: Language, text: bytes) -> None:
    with pytest.raises(ReadError):
        dialect.domains(text)
    with pytest.raises(ReadError):
        language_of(text)


@pytest.mark.parametrize(("dialect", "path"), FILES, ids=NAMES)
def test_a_place_that_is_not_there_is_refused(dialect: Language, path: Path) -> None:
    knob = next(iter(knob for knob in dialect.says if knob.startswith("disk.")))
    with pytest.raises(PlanError):
        dialect.alter(path.read_bytes(), SettingChange(knob=knob, at="nowhere", value=values_of(knob)[0]))


def try_everything(dialect: Language, text: bytes) -> None:
    """Read it and turn every knob; only the two errors that a dialect has may come."""
    dialect.knows(text)
    try:
        domains = dialect.domains(text)
        if dialect.live is not None:
            dialect.live(text)
    except ReadError:
        return
    for domain in domains[:2]:
        for disk in domain.disks[:2]:
            for knob in dialect.says:
                try:
                    dialect.alter(
                        text, SettingChange(knob=knob, at=disk.target, value=values_of(knob)[0]), domain=domain.name
                    )
                except (PlanError, ReadError):
                    continue


@pytest.mark.parametrize("dialect", SYSTEMS, ids=lambda one: one.name)
@settings(max_examples=60)
@given(noise=st.binary(max_size=200))
def test_garbage_raises_nothing_but_the_dialects_error(dialect: Language, noise: bytes) -> None:
    try_everything(dialect, noise)


@pytest.mark.parametrize("dialect", SYSTEMS, ids=lambda one: one.name)
@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_file_raises_nothing_but_the_dialects_error(dialect: Language, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted((CAPTURES / dialect.name).iterdir())))
    text = path.read_bytes()
    at = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.binary(max_size=8) | st.sampled_from([b",", b"=", b"'", b'"', b"[", b"\n", b"&a *a", b": "]))
    try_everything(dialect, text[:at] + noise + text[at + data.draw(st.integers(0, 6)) :])


@pytest.mark.parametrize(("dialect", "path"), FILES, ids=NAMES)
def test_a_huge_file_is_refused_or_read_at_once(dialect: Language, path: Path) -> None:
    text = path.read_bytes()
    for hostile in (text + b"#" * 5_000_000, text + b"\n" * 100_000, text + b" " * 900_000, text + b"a=" * 300_000):
        began = time.process_time()
        try_everything_once(dialect, hostile)
        assert time.process_time() - began < 2


def try_everything_once(dialect: Language, text: bytes) -> None:
    dialect.knows(text)
    try:
        dialect.domains(text)
    except ReadError:
        return


@given(st.text(max_size=100))
@example("\x85scsi0: a\u2028b")
def test_any_text_is_kept_byte_for_byte(noise: str) -> None:
    """A line is ended by a line feed alone, so that other ends of Unicode stay where they are."""
    noise = noise.replace("\n", "").replace("\r", "").replace("\0", "")
    text = f"ostype: l26\nmemory: 2048\n#{noise}\nscsi0: a:b,cache=none\n".encode(errors="ignore")
    dialect = language_of(text)
    after = dialect.alter(text, SettingChange(knob="disk.cache", at="scsi0", value="unsafe"))
    assert after == text.replace(b"cache=none", b"cache=unsafe") or b"cache=none" in noise.encode(errors="ignore")
