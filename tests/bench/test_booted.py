# SPDX-License-Identifier: Apache-2.0
"""Where the states of booted guests lie: by all that they depend on, one process at a time, and not for ever."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.leftovers import left_over

from virtune.bench.appliance.build import Appliance, Chosen, choose, chosen, remove_halves
from virtune.bench.guest.agent import ClockReading, wrong_speed
from virtune.bench.qemu.machine import DEVICES_FILE, MEMORY_FILE, is_saved, place_of, refuse, to_save
from virtune.dialects.qemu.guest import GuestMachine
from virtune.model.stack import Machine
from virtune.model.text import Bytes

STRANGER, NONE = 65534, 2**32 - 1
MACHINE = GuestMachine(
    kernel="/k/vmlinux", initramfs="/k/initramfs", console="/c", channels=(5, 6), monitor=7, kvm=False
)


@pytest.fixture
def appliance(tmp_path: Path) -> Appliance:
    home = tmp_path / "appliances" / "0123"
    home.mkdir(parents=True)
    (home / "vmlinux").touch()
    return Appliance(
        key="0123", kernel=home / "vmlinux", initramfs=home / "initramfs", release="6.1", modules=frozenset(),
        built_in=frozenset(), agent=False, size_bytes=0, made="",
    )  # fmt: skip


@pytest.fixture
def place(appliance: Appliance) -> Path:
    return where(appliance, MACHINE)


def where(appliance: Appliance, machine: GuestMachine, *, program: str = "/bin/true", prepared: str = "") -> Path:
    return place_of(appliance, program, machine, prepared=prepared)


def save(place: Path) -> bool:
    """Save a state unless there is one; whether it was saved now."""
    with to_save(place, MACHINE) as work:
        if work is not None:
            (work / DEVICES_FILE).write_bytes(b"devices" * 9)
            with (work / MEMORY_FILE).open("wb") as memory:
                memory.truncate(2**21)
                memory.seek(2**20)
                memory.write(b"memory")
        return work is not None


def test_a_state_is_of_one_machine_of_one_qemu(appliance: Appliance, place: Path) -> None:
    others = [
        replace(MACHINE, vcpus=3),
        replace(MACHINE, agent=8),
        replace(MACHINE, asked=Machine(cpu="qemu64")),
        replace(MACHINE, asked=Machine(memory=Bytes(2**30))),
        replace(MACHINE, asked=Machine(type="pc")),
    ]
    places = {where(appliance, one) for one in (MACHINE, *others)}
    places |= {
        where(appliance, MACHINE, program="/bin/false"),
        where(appliance, MACHINE, prepared="insmod /lib/modules/virtio_blk.ko"),
        where(replace(appliance, key="4567"), MACHINE),
    }
    assert len(places) == 9
    same = replace(MACHINE, channels=(15, 16), monitor=17, console="/d")
    assert where(appliance, same) == place, "descriptors are of one run"


def test_a_state_is_saved_once(place: Path) -> None:
    assert not is_saved(place)
    assert save(place)
    assert is_saved(place)
    assert not save(place)


def test_one_process_saves_while_others_do_without(place: Path) -> None:
    with to_save(place, MACHINE) as work:
        assert work is not None
        assert not save(place)


def test_a_state_that_could_not_be_saved_leaves_nothing_and_is_tried_again(place: Path) -> None:
    with pytest.raises(RuntimeError), to_save(place, MACHINE):
        raise RuntimeError
    assert list(place.parent.iterdir()) == []
    assert save(place)
    assert list(place.parent.iterdir()) == [place], "nor is the lock left"


def test_a_refused_state_is_not_tried_again(place: Path) -> None:
    assert save(place)
    refuse(place)
    assert not is_saved(place)
    assert not save(place)


def acl(place: Path) -> None:
    """Let one more user write, as `setfacl -m u:nobody:rw` does."""
    entries = ((0x01, 6, NONE), (0x02, 6, STRANGER), (0x04, 4, NONE), (0x10, 6, NONE), (0x20, 4, NONE))
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(place, "system.posix_acl_access", content)


def bent(place: Path) -> None:
    """Change one byte, and nothing that a look at the file would show."""
    found = place.stat()
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))


def linked(place: Path) -> None:
    """Move a file, and leave a link to it."""
    moved = place.parent.parent / "moved"
    place.rename(moved)
    place.symlink_to(moved)


def of_group(place: Path) -> None:
    """Let another group write."""
    os.chown(place, -1, STRANGER)
    place.chmod(0o664)


TAMPERING: dict[str, Callable[[Path], object]] = {
    "a byte": bent,
    "cut off": lambda path: os.truncate(path, 1),
    "writable by all": lambda path: path.chmod(0o666),
    "writable by a group": of_group,
    "writable by ACL": acl,
    "another user's": lambda path: os.chown(path, STRANGER, -1),
    "a link": linked,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("file", [DEVICES_FILE, MEMORY_FILE, "digests.json", "owner"])
@pytest.mark.parametrize("way", TAMPERING)
def test_a_state_that_somebody_may_have_changed_is_not_resumed(way: str, file: str, place: Path) -> None:
    assert save(place)
    path = place / file
    TAMPERING[way](path)
    harmless = {("a link", DEVICES_FILE), ("a link", MEMORY_FILE), ("a link", "digests.json")}
    if file != "owner" or way not in ("a byte", "cut off"):
        assert is_saved(place) == ((way, file) in harmless), "a link leads where only we may write, to what was saved"
    if (way, file) not in harmless and way != "another user's" and file != "owner":
        assert save(place), "it is saved again"
        assert is_saved(place)


@pytest.mark.parametrize("way", [None, *(way for way in TAMPERING if way not in ("a byte", "a link"))])
def test_a_choice_of_a_kernel_that_somebody_else_may_have_made_is_none(
    way: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    umask = os.umask(0)  # whoever has none is not to lose the choice by that
    try:
        choose(Chosen(kernel=Path("/k/vmlinuz")))
    finally:
        os.umask(umask)
    if way is not None:
        TAMPERING[way](tmp_path / "virtune" / "guest.json")
    assert chosen().kernel == (Path("/k/vmlinuz") if way is None else None)


def test_a_state_in_a_directory_that_is_open_to_others_is_not_resumed(place: Path) -> None:
    for opened in (place, place.parent, place.parent.parent):
        assert save(place) or is_saved(place)
        mode = opened.stat().st_mode
        opened.chmod(0o777)
        assert not is_saved(place)
        opened.chmod(mode)
        assert is_saved(place)
        os.chown(opened, STRANGER, -1)
        assert not is_saved(place)
        os.chown(opened, 0, -1)


def test_without_room_for_the_whole_memory_nothing_is_saved(place: Path) -> None:
    with to_save(place, replace(MACHINE, asked=Machine(memory=Bytes(2**60)))) as work:
        assert work is None


def test_the_states_that_were_not_used_for_the_longest_time_go(appliance: Appliance) -> None:
    places = [where(appliance, replace(MACHINE, vcpus=count)) for count in range(1, 9)]
    for index, place in enumerate(places):
        assert save(place)
        os.utime(place, (1e9 - index, 1e9 - index))  # the later it was saved, the longer it was not used
    assert [is_saved(place) for place in places] == [True] * 5 + [False] * 2 + [True]


def test_what_other_boots_left_with_any_appliance_goes_after_a_day(appliance: Appliance, place: Path) -> None:
    other = appliance.kernel.parent.parent / "89ab" / "booted"
    left = [place.with_name("ffffffff-0123"), other / "ffffffff-4567", other / "ffffffff-4567.7.partial"]
    in_use = other / "eeeeeeee-4567"  # of another host, where several have one home directory
    for path in (*left, in_use):
        path.parent.mkdir(parents=True, exist_ok=True)
        left_over(path)
    lock = other / "ffffffff-4567.lock"
    lock.touch()
    for path in (*left, lock):
        os.utime(path, (1e9, 1e9))
    assert save(place)
    assert [path for path in (*left, lock, in_use) if path.exists()] == [in_use]


def test_the_next_save_removes_what_a_killed_one_left(place: Path) -> None:
    place.parent.mkdir()
    half = left_over(place.with_name(f"{place.name}.999999999.partial"))
    assert save(place)
    assert not half.exists()


def test_the_remains_of_a_killed_save_are_removed(appliance: Appliance, place: Path) -> None:
    place.parent.mkdir()
    half = left_over(place.with_name(f"{place.name}.999999999.partial"))
    assert remove_halves(appliance.kernel.parent.parent) == [half]
    assert not half.exists()


@pytest.mark.parametrize(
    ("first", "last", "speed"),
    [
        (ClockReading(5.0, 100.0, 100.02), ClockReading(5.32, 100.31, 100.33), None),
        (ClockReading(5.0, 100.0, 104.0), ClockReading(9.0, 104.3, 104.4), None),  # answered late, once
        (ClockReading(5.0, 100.0, 100.02), ClockReading(7.5, 100.31, 100.33), 7.6),
        (ClockReading(5.0, 100.0, 100.02), ClockReading(5.1, 100.52, 100.55), 0.2),
    ],
)
def test_a_clock_is_wrong_where_no_delay_of_an_answer_explains_it(
    first: ClockReading, last: ClockReading, speed: float | None
) -> None:
    found = wrong_speed(first, last)
    assert found == (None if speed is None else pytest.approx(speed, rel=0.02))
