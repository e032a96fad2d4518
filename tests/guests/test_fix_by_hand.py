# SPDX-License-Identifier: Apache-2.0
"""`fix` of a QEMU that was started by hand measures its disk as it is now, and ends with what to do by hand."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import User
from tests.guests.strangers import strange

from virtune.bench.live.monitor import monitored
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.like import LikeVm, as_it_is_now, disk_of, find_vm, liken
from virtune.flows.run.fix import Fixes, by_hand, fixes_for
from virtune.model.domain import SettingChange
from virtune.model.stack import LIMITS
from virtune.model.study_options import StudyOptions

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

TOTAL = next(limit for limit in LIMITS if limit.knob == "disk.throttle_iops")
LIFT = SettingChange(knob=TOTAL.knob, at="low", value=None)

DIRECT = {"none": "on", "writeback": "off", "writethrough": "off", "unsafe": "off"}


@dataclass(frozen=True)
class Slow:
    """A disk as it is started, `blockdev` or `drive`, and the limit that its monitor is told afterwards."""

    cache: str = "none"
    aio: str = "threads"
    limit: int = 0
    told: int | None = None
    iothread: bool = False
    front: str = "drive"

    @property
    def now(self) -> int:
        """The limit that it has now."""
        return self.limit if self.told is None else self.told

    def words(self, image: Path) -> Iterator[str]:
        """QEMU's options."""
        device = "virtio-blk-pci,drive=l,id=low"
        if self.iothread:
            yield from ("-object", "iothread,id=io9")
            device += ",iothread=io9"
        if self.front == "drive":
            limit = f",throttling.iops-total={self.limit}" if self.limit else ""
            opened = f"file={image},format=raw,cache={self.cache},aio={self.aio}"
            yield from ("-drive", f"{opened},if=none,id=l{limit}", "-device", device)
            return
        flags = f"cache.direct={DIRECT[self.cache]},cache.no-flush={'on' if self.cache == 'unsafe' else 'off'}"
        yield from ("-object", f"throttle-group,id=g,x-iops-total={self.limit}")
        yield from ("-blockdev", f"driver=file,node-name=f,filename={image},aio={self.aio},{flags}")
        yield from ("-blockdev", f"driver=raw,node-name=r,file=f,{flags}")
        yield from ("-blockdev", f"driver=throttle,node-name=l,throttle-group=g,file=r,{flags}")
        yield from ("-device", f"{device},write-cache={'off' if self.cache == 'writethrough' else 'on'}")

    def tell(self, place: Path) -> None:
        """Give its monitor the limit that it is to have."""
        if self.told is None:
            return
        with monitored(place) as view:
            values = {limit: self.told if limit is TOTAL else 0 for limit in LIMITS}
            if self.front == "drive":
                limits = {limit.drive: value for limit, value in values.items()}
                view.monitor.execute("block_set_io_throttle", {"device": "l", **limits})
            else:
                limits = {limit.qmp: value for limit, value in values.items()}
                view.monitor.execute("qom-set", {"path": "/objects/g", "property": "limits", "value": limits})


PLANTED = {
    "nothing is wrong but the engine": Slow(iothread=True),
    "no IOThread": Slow(),
    "writethrough": Slow(cache="writethrough"),
    "unsafe": Slow(cache="unsafe", iothread=True),
    "the page cache": Slow(cache="writeback"),
    "limit on the command line": Slow(limit=300),
    "limit by QMP": Slow(told=300),
    "another limit by QMP": Slow(limit=9000, told=300, cache="writeback"),
    "limit lifted by QMP": Slow(limit=300, told=0, iothread=True),
}
EVERY = {
    f"{front}: {name}": Slow(**{**vars(slow), "front": front})
    for (name, slow), front in itertools.product(PLANTED.items(), ("drive", "blockdev"))
}


@contextlib.contextmanager
def started(tmp_path: Path, slow: Slow) -> Iterator[str]:
    """Such a VM that runs here, by its name."""
    name, image = f"fixed-{os.getpid()}", tmp_path / "low.raw"
    image.write_bytes(bytes(2**20))
    with strange(tmp_path, name, *slow.words(image)) as place:
        slow.tell(place)
        yield name


def fixes(name: str, *also: str, rig: str = "qemu") -> tuple[FoundDomain, LikeVm, Fixes]:
    """What a fix of its disk would measure."""
    found, _ = find_vm(name, None)
    disk, like = disk_of(as_it_is_now(found), "low"), liken(found, "low", StudyOptions(rig=rig))
    return found, like, fixes_for(found, disk, like, also=also)


@pytest.mark.parametrize("what", EVERY)
def test_what_is_wrong_with_a_disk_is_measured_or_told_with_its_reason(tmp_path: Path, what: str) -> None:
    slow = EVERY[what]
    limit = f"{TOTAL.knob}={slow.now}"
    with started(tmp_path, slow) as name:
        found, like, plain = fixes(name)
        _, _, lifting = fixes(name, "R47")
        hand = list(by_hand(found, "low", lifting.needed))
    assert {f"disk.cache={slow.cache}", f"disk.aio={slow.aio}"} <= {*like.settings}
    assert [word for word in like.settings if "throttle" in word] == [limit] * bool(slow.now)
    arms = {one.name: one for one in plain.candidates}
    assert "disk.aio=io_uring" in arms["flash"].settings
    assert ("disk.cache=none" in arms["flash"].settings) == (slow.cache not in ("none", "writethrough"))
    assert any("promises durable writes" in one for one in plain.left) == (slow.cache == "writethrough")
    assert ("R30" in arms) != slow.iothread
    assert slow.iothread or "device.iothread=iothread1" in arms["R30"].settings
    assert ("fixes" in arms) == (slow.cache == "unsafe")
    assert slow.cache != "unsafe" or arms["fixes"].settings == ("disk.cache=none",)
    assert not any(one.without for one in plain.candidates), "a limit that may be meant stays"

    limited, asked = bool(slow.limit or slow.now), "--also R47: --set disk.throttle_iops@low="
    assert any(asked in one for one in plain.left) == limited
    assert (LIFT in lifting.needed) == limited
    lifts = {one.name for one in lifting.candidates if one.without == {TOTAL.knob}}
    assert lifts == ({one.name for one in lifting.candidates} if slow.now else set())
    assert any("nothing that it changes is seen" in one for one in lifting.left) == (limited and not slow.now)
    assert any("lifted by" in line for line in hand) == bool(slow.now)
    assert any("leave out throttling.iops-total (iops)" in line for line in hand) == bool(slow.limit)


def test_what_risks_data_is_measured_when_it_is_asked_for(tmp_path: Path) -> None:
    for front, (rule, setting) in itertools.product(
        ("drive", "blockdev"), (("R25", "disk.discard=unmap"), ("R19", "disk.cache=none"))
    ):
        with started(tmp_path, Slow(cache="writethrough", front=front)) as name:
            found, _, asked = fixes(name, rule)
            hand = list(by_hand(found, "low", asked.needed))
        if rule not in {one.rule.id for one in asked.findings}:
            continue  # a QEMU from 10.0 on writes through without a flush
        assert setting in next(one for one in asked.candidates if one.name == "fixes").settings
        assert any(f"for low: {setting} (-blockdev" in line for line in hand)


def test_a_disk_behind_a_controller_and_one_on_ide(tmp_path: Path) -> None:
    image, other = tmp_path / "low.raw", tmp_path / "other.raw"
    for one in (image, other):
        one.write_bytes(bytes(2**20))
    name = f"buses-{os.getpid()}"
    words = ["-device", "virtio-scsi-pci,id=ctl", "-drive", f"file={image},format=raw,if=none,id=l"]
    words += ["-device", "scsi-hd,drive=l,id=low,bus=ctl.0", "-drive", f"file={other},format=raw,if=ide"]
    with strange(tmp_path, name, *words):
        _, like, behind = fixes(name)
        found, _ = find_vm(name, None)
        ide = disk_of(found, "ide0-hd0")
        old = liken(found, ide.target, StudyOptions(rig="qemu"))
        on_ide = fixes_for(found, ide, old)
    assert "device.bus=virtio-scsi" in like.settings
    (own,) = (one for one in behind.candidates if one.name == "R30")
    assert (own.settings, own.turns[-1].at) == (("device.iothread=iothread1",), "scsi:0")
    assert {"device.bus=ide", "machine.type=pc"} <= {*old.settings}
    (moved,) = (one for one in on_ide.candidates if one.name == "R27")
    assert moved.settings == ("device.bus=virtio-blk",)
    assert any("once its guest has the driver" in line for line in by_hand(found, ide.target, moved.turns))


def test_a_disk_that_was_plugged_in_is_measured_too(tmp_path: Path) -> None:
    image = tmp_path / "later.raw"
    image.write_bytes(bytes(2**20))
    with started(tmp_path, Slow()) as name:
        with monitored(tmp_path / f"{name}.qmp") as view:
            node = {"driver": "raw", "node-name": "later", "file": {"driver": "file", "filename": str(image)}}
            view.monitor.execute("blockdev-add", node)
            view.monitor.execute("device_add", {"driver": "virtio-blk-pci", "drive": "later", "id": "added"})
        found, _ = find_vm(name, None)
        disk, like = disk_of(as_it_is_now(found), "added"), liken(found, "added", StudyOptions(rig="qemu"))
        offered = fixes_for(found, disk, like)
    assert any("disk.cache=none" in one.settings for one in offered.candidates)
    assert any("added is plugged in now" in one for one in offered.left)


def short(*more: str, rounds: int = 1) -> Sequence[str]:
    """Options of a measurement that is soon over."""
    quick = ("--rig", "storage-daemon", "--seconds", "100ms", "--ramp", "0", "--span", "16M")
    return (*quick, "--rounds", str(rounds), *more)


@pytest.mark.parametrize("front", ["drive", "blockdev"])
def test_a_limit_that_only_the_monitor_tells_is_measured_away_and_lifted_by_hand(
    user: User, tmp_path: Path, front: str
) -> None:
    """As a user does it: call it, lift the limit by the command that it tells, and call it again."""
    with started(tmp_path, Slow(told=50, front=front)) as name:
        said = user.run("fix", f"{name}:low", "--also", "R47", "--yes", *short(rounds=24)).stdout
        (lift,) = (line.partition("lifted by: ")[2] for line in said.splitlines() if "lifted by: " in line)
        with monitored(tmp_path / f"{name}.qmp") as view:
            command = json.loads(lift)
            view.monitor.execute(command["execute"], command["arguments"])
        again = user.run("fix", f"{name}:low", "--also", "R47", "--dry-run", *short()).stdout
    assert "measured as fixes: no disk.throttle_iops" in said
    assert "the change to make: " in said
    assert "virtune does not change QEMU's command line; to be done by hand:" in said
    assert "leave out throttling" not in said, "its command line has none"
    assert "R47: it finds nothing to change at low" in again
    assert "throttle" not in again


def test_a_command_line_in_a_file_is_measured_and_ends_with_what_to_do_by_hand(user: User, tmp_path: Path) -> None:
    file, image = tmp_path / "slow.txt", tmp_path / "low.raw"
    image.write_bytes(bytes(2**20))
    line = f"qemu-system-x86_64 -name slow {' '.join(Slow(cache='unsafe', limit=50).words(image))}\n"
    file.write_text(line)
    said = user.run("fix", f"{file}:low", "--yes", *short()).stdout
    assert "measured as fixes: disk.cache=none" in said
    assert "slow: virtune does not change QEMU's command line; to be done by hand:" in said
    assert "from its next start on, in what starts it, for low: disk.cache=none (-blockdev" in said
    assert "changed all the same: R01" in said
    assert file.read_text() == line
