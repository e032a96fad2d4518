# SPDX-License-Identifier: Apache-2.0
"""QEMUs that nobody named are found by /proc, and their monitors stay free for whom they belong to."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import User, eventually
from tests.guests.strangers import greeted, strange
from tests.published import strictly

from virtune import shell
from virtune.advise.audit import audit
from virtune.bench.live.emulators import Emulator, emulators_here
from virtune.bench.live.monitor import monitored
from virtune.bench.qemu.machine import PROGRAM
from virtune.flows.domains.domains import FoundDomain, as_it_runs
from virtune.flows.domains.like import LikeVm, find_vm, like_vm
from virtune.flows.live.diagnose_live import diagnose_monitor
from virtune.flows.live.top import watching
from virtune.model.domain import Domain
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.finding import Finding
from virtune.model.stack import LIMITS
from virtune.model.study_options import StudyOptions
from virtune.probe.process import Process

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


QUICK = ("--rig", "storage-daemon", "--rounds", "1", "--seconds", "100ms", "--ramp", "0", "--span", "16M")


def ours(name: str) -> Emulator:
    (found,) = [one for one in emulators_here() if one.name == name]
    return found


def test_a_qemu_that_nobody_named_is_watched_and_diagnosed(user: User, tmp_path: Path) -> None:
    name = f"strange-{os.getpid()}"
    with strange(tmp_path, name):
        found = ours(name)
        assert found.sockets[0].samefile(tmp_path / f"{name}.qmp")
        assert found.is_called(str(found.pid))
        assert not found.is_called("")
        watched = strictly(user.run("top", "--once", "--json").stdout)
        assert name in {vm["vm"] for vm in watched["vms"]}
        for word in (name, str(found.pid)):
            assert user.run("diagnose", f"{word}:scsi0", "--seconds", "1").stdout.startswith(f"{name}:scsi0\n")
        assert user.run("audit", name, status=None).stdout.startswith(f"{name}  ({found.command_line})\n")
        assert "measured as flash: " in user.run("fix", name, "--dry-run", *QUICK).stdout
        assert f"process {found.pid} keeps the line" in user.run("apply", name, status=2).stderr
        missing = user.run("diagnose", "no-such-vm", "--seconds", "1", status=3)
        assert f"{name} ({found.pid})" in missing.stderr
    assert not [one for one in emulators_here() if one.name == name]


def test_a_relative_path_is_that_of_the_process(user: User, tmp_path: Path) -> None:
    image, name = tmp_path / "beside.raw", f"relative-{os.getpid()}"
    image.write_bytes(bytes(2**20))
    said = "../" * 12 + str(image).lstrip("/")  # from wherever it is started
    disk = ("-drive", f"file={said},format=raw,if=none,id=r", "-device", "virtio-blk-pci,drive=r,id=beside")
    with strange(tmp_path, name, *disk) as place:
        with monitored(place) as view:
            (found,) = (one for one in view.vm.disks if one.target == "beside")
            assert found.path is not None
            assert Path(found.path).samefile(image)
        assert (
            f"filling 16 MiB of scratch in {tmp_path}"
            in user.run("fix", f"{name}:beside", "--dry-run", *QUICK, exactly=True).stderr
        )


def test_an_audit_of_what_runs_reads_its_state_and_not_only_its_command_line(user: User, tmp_path: Path) -> None:
    name, image = f"changed-{os.getpid()}", tmp_path / "later.raw"
    image.write_bytes(bytes(2**20))
    with strange(tmp_path, name, *("-global", "virtio-blk-pci.disable-legacy=on")) as place:
        before = user.run("audit", name, status=None).stdout
        assert ("on the running VM" in before, "plugged in now" in before) == (False, False)
        assert "virtune compare --like" in before
        with monitored(place) as view:
            limit = {"device": "d"} | dict.fromkeys(("bps", "bps_rd", "bps_wr", "iops_rd", "iops_wr"), 0)
            view.monitor.execute("block_set_io_throttle", limit | {"iops": 18})
            node = {"driver": "raw", "node-name": "later", "file": {"driver": "file", "filename": str(image)}}
            view.monitor.execute("blockdev-add", node)
            view.monitor.execute("device_add", {"driver": "virtio-blk-pci", "drive": "later", "id": "added"})
        after = user.run("audit", name, status=None).stdout
        assert "total_iops_sec=18 on the running VM alone" in after
        assert "added is plugged in now and gone after a power-off" in after


def alike(name: str, disk: str) -> LikeVm:
    """What a study takes from a QEMU that runs here."""
    return like_vm(StudyOptions(like=f"{name}:{disk}", rig="qemu"))


def why_left(vm: LikeVm) -> dict[str, str]:
    return {one.what: one.why for one in vm.left}


@pytest.mark.parametrize("named", [one.qmp for one in LIMITS])
@pytest.mark.parametrize("filtered", [False, True], ids=["drive", "filter"])
def test_what_a_study_takes_of_a_running_vm_has_the_limits_of_now(
    tmp_path: Path, named: str, *, filtered: bool
) -> None:
    (limit,) = (one for one in LIMITS if one.qmp == named)
    name, image = f"taken-{os.getpid()}", tmp_path / "limited.raw"
    image.write_bytes(bytes(2**20))
    words = ["-drive", f"file={image},format=raw,if=none,id=l,throttling.{limit.qmp}=9000"]
    if filtered:
        words = ["-object", f"throttle-group,id=g,x-{limit.qmp}=9000"]
        words += ["-blockdev", f"driver=raw,node-name=r,file.driver=file,file.filename={image}"]
        words += ["-blockdev", "driver=throttle,node-name=l,throttle-group=g,file=r"]
    with strange(tmp_path, name, *words, "-device", "virtio-blk-pci,drive=l,id=low") as place:
        assert f"{limit.knob}=9000" in alike(name, "low").settings
        for value in (7000, 0):
            with monitored(place) as view:
                if filtered:
                    now = {one.qmp: value if one is limit else 0 for one in LIMITS}
                    view.monitor.execute("qom-set", {"path": "/objects/g", "property": "limits", "value": now})
                else:
                    now = {one.drive: value if one is limit else 0 for one in LIMITS}
                    view.monitor.execute("block_set_io_throttle", {"device": "l", **now})
            has = [word for word in alike(name, "low").settings if word.startswith("disk.throttle_")]
            assert has == [f"{limit.knob}={value}"] * bool(value)


@contextlib.contextmanager
def plugged_in(tmp_path: Path, name: str, driver: str, image: str) -> Iterator[None]:
    """A QEMU that has a disk `added` since it runs, which is opened without the page cache."""
    with strange(tmp_path, name) as place:
        with monitored(place) as view:
            flags = {"direct": True, "no-flush": False}
            low = {"driver": driver, "filename": image, "cache": flags}
            view.monitor.execute("blockdev-add", {"driver": "raw", "node-name": "later", "file": low, "cache": flags})
            view.monitor.execute("device_add", {"driver": "virtio-blk-pci", "drive": "later", "id": "added"})
        yield


def test_what_a_study_takes_of_a_running_vm_is_plugged_in_now(tmp_path: Path) -> None:
    name, image = f"replaced-{os.getpid()}", tmp_path / "later.raw"
    image.write_bytes(bytes(2**20))
    with plugged_in(tmp_path, name, "file", str(image)):
        found = alike(name, "added")
        assert (found.scratch, "disk.cache=none" in found.settings) == (tmp_path, True)


@pytest.mark.parametrize("called", ["plain", "two words", "7"])
def test_the_command_that_repeats_a_load_finds_its_vm(tmp_path: Path, called: str) -> None:
    name = called if called.isdecimal() else f"{called}-{os.getpid()}"
    with strange(tmp_path, name) as place:
        (seen,) = diagnose_monitor(place, seconds=1.0)
        like, word, *_ = shlex.split(seen.like)
        found, disk = find_vm(word, None)
        assert (like, found.origin, disk) == ("--like", str(ours(name).command_line), "scsi0")


@pytest.mark.xdist_group("loop devices")
def test_a_study_like_a_block_device_that_was_plugged_in_puts_no_image_beside_it(tmp_path: Path) -> None:
    """Its folder is /dev, which is in memory."""
    image = tmp_path / "below.raw"
    image.write_bytes(bytes(2**20))
    device = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
    block, name = device.stdout.strip(), f"block-{os.getpid()}"
    try:
        with (
            plugged_in(tmp_path, name, "host_device", block),
            pytest.raises(PlanError, match=f"lies on the block device {block}"),
        ):
            alike(name, "added")
    finally:
        subprocess.run(["losetup", "-d", block], check=True)


def test_a_program_that_an_upgrade_replaced_is_the_one_of_its_command_line(tmp_path: Path) -> None:
    name, copy = f"upgraded-{os.getpid()}", tmp_path / "bin" / PROGRAM
    copy.parent.mkdir()
    for beside in ("lib", "share"):  # where it looks for its modules and firmware
        (tmp_path / beside).symlink_to(f"/usr/{beside}")
    copy.write_bytes(Path(shutil.which(PROGRAM) or "").read_bytes())
    copy.chmod(0o755)
    with strange(tmp_path, name, program=str(copy)):
        copy.unlink()
        copy.symlink_to(shutil.which(PROGRAM) or "")
        (found,) = (one for one in as_it_runs(ours(name)) if isinstance(one, FoundDomain))
        assert found.subject.running is not None
        assert found.subject.running.live.emulator == str(copy)


CACHES = {"none": (True, False), "writeback": (False, False), "unsafe": (False, True)}
"""Cache modes with their flags."""
THROUGH = {"none": "directsync", "writeback": "writethrough"}
"""What they are called where the device has no write cache."""


@pytest.mark.parametrize("write_cache", ["on", "off"])
def test_a_cache_mode_that_was_changed_is_the_one_that_a_study_takes(tmp_path: Path, write_cache: str) -> None:
    name, image = f"reopened-{os.getpid()}", tmp_path / "cached.raw"
    image.write_bytes(bytes(2**20))
    words = ["-blockdev", f"driver=file,node-name=low,filename={image},cache.direct=on"]
    words += ["-blockdev", "driver=raw,node-name=top,file=low,cache.direct=on"]
    words += ["-device", f"virtio-blk-pci,drive=top,id=kept,write-cache={write_cache}"]
    with strange(tmp_path, name, *words) as place:
        _, changed = differences(ours(name))
        assert changed == []
        for word, (direct, no_flush) in CACHES.items():
            flags = {"direct": direct, "no-flush": no_flush}
            with monitored(place) as view:
                low = {"driver": "file", "node-name": "low", "filename": str(image), "cache": flags}
                top = {"driver": "raw", "node-name": "top", "file": "low", "cache": flags}
                view.monitor.execute("blockdev-reopen", {"options": [low, top]})
            now = THROUGH.get(word, word) if write_cache == "off" else word
            assert f"disk.cache={now}" in alike(name, "kept").settings


@pytest.mark.parametrize("cache", ["none", "writeback", "unsafe", "writethrough", "directsync"])
def test_a_cache_mode_that_was_not_changed_is_that_of_the_command_line(tmp_path: Path, cache: str) -> None:
    name, image = f"cached-{os.getpid()}", tmp_path / "cached.raw"
    image.write_bytes(bytes(2**20))
    words = f"{IMAGE.format(image)},cache={cache},if=none,id={{0}}{{1}} -device virtio-blk-pci,drive={{0}},id=d{{0}}"
    both = [*words.format("kept", "").split(), *words.format("gone", ",snapshot=on,file.locking=off").split()]
    with strange(tmp_path, name, *both):
        _, changed = differences(ours(name))
        assert changed == []
        assert f"disk.cache={cache}" in alike(name, "dkept").settings


def test_of_a_vm_whose_monitor_does_not_answer_it_is_told_that_its_command_line_was_read(tmp_path: Path) -> None:
    name, untold = f"mute-{os.getpid()}", "what was changed while it ran"
    with strange(tmp_path, name) as place:
        assert untold not in why_left(alike(name, "scsi0"))
        place.unlink()
        said = why_left(alike(name, "scsi0"))[untold]
    assert said == "no monitor of it answered, so its settings are those of its command line"


def test_the_emulator_of_a_running_vm_is_the_program_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its command line calls it: a name that was found by the PATH of then, a link, a relative path."""
    program, names = shell.find(PROGRAM), tmp_path / "bin"
    names.mkdir()
    beside = "../" * 12 + str(names / PROGRAM).lstrip("/")  # from wherever it is started
    for word in (PROGRAM, "qemu-kvm", beside, f"{names}/qemu-system-linked"):
        (names / Path(word).name).unlink(missing_ok=True)
        (names / Path(word).name).symlink_to(program)
        name = f"run-as-{os.getpid()}"
        with contextlib.ExitStack() as runs:
            with monkeypatch.context() as patch:
                patch.setenv("PATH", str(names), prepend=os.pathsep)
                runs.enter_context(strange(tmp_path, name, program=word))
            vm = alike(name, "scsi0")
        assert f"machine.emulator={Path(program).resolve()}" in vm.settings, word
        assert "no such program" not in " ".join(why_left(vm).values()), word


def test_who_runs_the_guests_code_is_told_where_a_test_guest_has_another(tmp_path: Path) -> None:
    name, kvm = f"accelerated-{os.getpid()}", os.access("/dev/kvm", os.R_OK | os.W_OK)
    for accelerators in ("tcg", "kvm:tcg"):
        words = [word for one in accelerators.split(":") for word in ("-accel", one)]
        with strange(tmp_path, name, *words) as place:
            with monitored(place) as view:
                emulated = view.vm.emulated
            left = why_left(alike(name, "scsi0"))
        assert emulated or accelerators != "tcg"
        assert ("emulation (TCG)" in left, "KVM" in left) == (emulated and kvm, not (emulated or kvm))


def test_a_fix_of_what_runs_ends_with_what_to_do_by_hand(user: User, tmp_path: Path) -> None:
    name, image = f"by-hand-{os.getpid()}", tmp_path / "limited.raw"
    image.write_bytes(bytes(2**20))
    words = ("-drive", f"file={image},format=raw,if=none,id=l,iops=300", "-device", "virtio-blk-pci,drive=l,id=low")
    with strange(tmp_path, name, *words) as place:
        said = user.run("fix", f"{name}:low", "--also", "R47", "--yes", *QUICK).stdout
        reasons = [line for line in said.splitlines() if "left alone: R" in line]
        (lift,) = (line.partition("lifted by: ")[2] for line in said.splitlines() if "lifted by: " in line)
        command = json.loads(lift)
        with monitored(place) as view:
            view.monitor.execute(command["execute"], command["arguments"])
        assert not [word for word in alike(name, "low").settings if "throttle" in word]
    assert f"virtune diagnose {name}" in said
    assert "leave out throttling.iops-total (iops) of its -drive" in said
    assert reasons
    assert not [line for line in reasons if "throttle" in line]


def test_no_command_is_offered_that_cannot_change_a_command_line(user: User, tmp_path: Path) -> None:
    line = tmp_path / "slow.txt"
    line.write_text("qemu-system-x86_64 -name slow -drive file=/vm.img,format=raw,if=virtio,iops=300\n")
    said = user.run("audit", str(line), status=None).stdout
    assert "R30" in said
    assert "apply advise" not in said


IMAGE = "-drive file={},format=raw"
EMPTY = "-drive driver=null-co"
NODE = "-blockdev file,node-name=n0,filename={}"
NAMES = {
    f"{IMAGE},if=none,id=x -device virtio-blk-pci,drive=x,id=d0": ["d0"],
    f"{IMAGE},if=none,id=x -device virtio-blk-pci,drive=x": ["x"],
    f"{IMAGE},if=none -device virtio-blk-pci,drive=none1": ["none1"],
    f"{IMAGE},if=virtio": ["virtio0"],
    f"{IMAGE},if=virtio,id=x": ["x"],
    f"{EMPTY},if=virtio,index=2 {IMAGE},if=virtio {EMPTY},if=virtio,index=1 {EMPTY},if=virtio": [
        "virtio2", "virtio0", "virtio1", "virtio3",
    ],
    f"{IMAGE},if=ide {EMPTY},if=ide,bus=1,unit=1": ["ide0-hd0", "ide1-hd1"],
    f"-M q35 {IMAGE},if=ide {EMPTY},index=3": ["ide0-hd0", "ide3-hd0"],
    IMAGE: ["ide0-hd0"],
    "{} -hdd null-co://": ["ide0-hd0", "ide1-hd1"],
    "-hda {} -M q35 -hdb null-co://": ["ide0-hd0", "ide1-hd0"],
    f"-cdrom {{}} {EMPTY},if=virtio": ["virtio0"],
    f"{IMAGE},if=floppy": ["floppy0"],
    f"-drive driver=null-co,size=4194304,if=pflash {IMAGE},if=virtio": ["virtio0"],
    f"{IMAGE},if=none": [],
    f"{NODE} -device virtio-rng-pci -device virtio-blk-pci,drive=n0": ["n0"],
    f"{NODE} -device virtio-scsi-pci" + 2 * " -device scsi-hd,drive=n0,share-rw=on": ["n0", "n0#2"],
    f'{NODE} -device {{{{"driver":"virtio-blk-pci","drive":"n0"}}}}': ["n0"],
    f"{NODE} -device nvme,serial=s,drive=n0": ["n0"],
    f"{NODE} -device qemu-xhci -device usb-storage,drive=n0": ["n0"],
    f"{IMAGE},if=none,id=x -device qemu-xhci -device usb-storage,drive=x,id=stick": ["stick"],
}  # fmt: skip
"""Disks on a command line, with their names in QEMU's order."""


def differences(emulator: Emulator) -> tuple[Domain, list[Finding]]:
    """A QEMU's configuration, and what a power-off would change of its disks."""
    (found,) = as_it_runs(emulator)
    assert isinstance(found, FoundDomain)
    return found.subject.domain, [one for one in audit(found.subject) if one.rule.id == "R80"]


@pytest.mark.parametrize("words", NAMES)
def test_a_disk_has_one_name_on_the_command_line_and_as_it_runs(tmp_path: Path, words: str) -> None:
    image, name = tmp_path / "beside.raw", f"named-{os.getpid()}"
    image.write_bytes(bytes(2**20))
    names = NAMES[words]
    with strange(tmp_path, name, *words.format(image).split()) as place:
        with monitored(place) as view:
            shown = [one.target for one in view.vm.disks]
            assert {"scsi0", *names} <= view.counts().keys()
        configured, changed = differences(ours(name))
        unseen, untold = differences(replace(ours(name), sockets=()))
    assert sorted(shown) == sorted(["scsi0", *names])
    assert {one.target for one in configured.disks if one.device != "cdrom"} == set(shown)
    assert (changed, untold, unseen) == ([], [], configured)


def test_what_the_command_line_names_is_watched_and_diagnosed_by_that_name(user: User, tmp_path: Path) -> None:
    image, name = tmp_path / "beside.raw", f"called-{os.getpid()}"
    image.write_bytes(bytes(2**20))
    with strange(tmp_path, name, "-drive", f"file={image},format=raw,if=virtio") as place:
        (vm,) = strictly(user.run("top", "--once", "--json", "--qmp", str(place)).stdout)["vms"]
        assert {one["disk"] for one in vm["disks"]} == {"scsi0", "virtio0"}
        assert user.run("diagnose", f"{name}:virtio0", "--seconds", "1").stdout.startswith(f"{name}:virtio0\n")
        assert "plugged in now" not in user.run("audit", name, status=None).stdout


def test_beside_a_socket_a_word_is_a_disk_or_the_vm(user: User, tmp_path: Path) -> None:
    name = f"mail-{os.getpid()}"
    with strange(tmp_path, name, "-drive", f"driver=null-co,if=virtio,id={name}x") as place:

        def seen(word: str, status: int = 0) -> str:
            said = user.run("diagnose", word, "--qmp", str(place), "--seconds", "1", status=status)
            if status:
                return " ".join(said.stderr.split())
            return " ".join(line for line in said.stdout.splitlines() if line.startswith(f"{name}:"))

        both = f"{name}:scsi0 {name}:{name}x"
        pid = str(ours(name).pid)
        assert [seen(word) for word in (name, pid, "", f"{name}:")] == [both] * 4
        assert [seen(word) for word in ("scsi0", ":scsi0", f"{name}:scsi0", f"{pid}:scsi0")] == [f"{name}:scsi0"] * 4
        assert seen(f"{name}x") == f"{name}:{name}x"
        for word in ("web", f"{name}:web", f":{name}"):
            assert f"it has scsi0, {name}x; without a name all are looked at" in seen(word, 2)
        other = seen("web:scsi0", 2)
        assert f"is called '{name}', not 'web'" in other
        assert f"its disks: {name}:scsi0, {name}:{name}x" in other
        user.run("diagnose", f"{name}:{name}", "--seconds", "1", status=2)


def test_a_disk_that_is_called_as_its_vm_is_meant_by_that_word(user: User, tmp_path: Path) -> None:
    name = f"mail-{os.getpid()}"
    with strange(tmp_path, name, "-drive", f"driver=null-co,if=virtio,id={name}") as place:
        said = user.run("diagnose", name, "--qmp", str(place), "--seconds", "1").stdout
    assert [line for line in said.splitlines() if line.startswith(f"{name}:")] == [f"{name}:{name}"]


def test_a_disk_without_an_id_that_came_and_one_that_went_are_told(tmp_path: Path) -> None:
    name, came, went = f"plugged-{os.getpid()}", tmp_path / "came.raw", tmp_path / "went.raw"
    for one in (came, went):
        one.write_bytes(bytes(2**20))
    words = f"-device virtio-scsi-pci {IMAGE.format(went)},if=none,id=old -device scsi-hd,drive=old,id=went"
    with strange(tmp_path, name, *words.split()) as place:
        with monitored(place) as view:
            view.monitor.execute("blockdev-add", {"driver": "file", "node-name": "node", "filename": str(came)})
            drive = {"command-line": "drive_add 0 driver=null-co,if=none,id=drive"}
            view.monitor.execute("human-monitor-command", drive)
            for kind in ("node", "drive"):
                view.monitor.execute("device_add", {"driver": "scsi-hd", "drive": kind})
            view.monitor.execute("device_del", {"id": "went"})
            assert eventually(lambda: "went" not in view.counts(), seconds=20)
        _, found = differences(ours(name))
    assert [(one.at, one.seen.seen) for one in found] == [
        ("went", "it is not plugged in now"),
        *(("", f"{one} is plugged in now and gone after a power-off") for one in ("drive", "node")),
    ]


def test_settings_are_not_compared_below_a_limit_that_would_hold_all_arms(user: User, tmp_path: Path) -> None:
    name, image = f"limited-{os.getpid()}", tmp_path / "limited.raw"
    image.write_bytes(bytes(2**20))
    words = ("-drive", f"file={image},format=raw,if=none,id=l,iops=18", "-device", "virtio-blk-pci,drive=l,id=low")
    with strange(tmp_path, name, *words):
        said = " ".join(user.run("audit", name, status=None).stdout.split())
    assert "total_iops_sec=18" in said
    assert "raise it if it is not, before other settings are compared" in said
    assert (f"--like {name}:scsi0" in said, f"--like {name}:low" in said) == (True, False)


def test_threads_have_the_names_that_qemu_tells(tmp_path: Path) -> None:
    """Proxmox VE's IOThreads have names that are too long for the kernel; without debug-threads nothing has one."""
    long = ("iothread-virtio0", "iothread-virtioscsi1")
    words = [word for one in long for word in ("-object", f"iothread,id={one}")]
    with strange(tmp_path, "named", *words) as place, monitored(place) as view:
        names = view.vm.threads
        assert sorted(names.values()) == ["CPU 0", *(f"IO {one}" for one in long)]
        assert view.vm.pid is not None
        assert names.keys() <= {one.tid for one in Process(view.vm.pid).threads()}


def test_the_owner_of_a_monitor_is_served_while_its_vm_is_watched(tmp_path: Path) -> None:
    """Held all the while, the owner was never served."""
    with strange(tmp_path, f"owned-{os.getpid()}") as place, watching(None, [place]) as watch:
        over, waits = threading.Event(), list[float]()

        def ask() -> None:
            with contextlib.suppress(OSError):  # QEMU has ended
                while not over.is_set():
                    waits.append(greeted(place))
                    time.sleep(0.05)

        owner = threading.Thread(target=ask)
        owner.start()
        for _ in range(10):
            assert watch.sample().counts
            time.sleep(0.1)
        over.set()
        owner.join(timeout=10)
    assert len(waits) >= 5


def test_another_qemu_at_the_same_place_is_not_taken_for_the_first(tmp_path: Path) -> None:
    name = f"again-{os.getpid()}"
    with contextlib.ExitStack() as ends:
        first = contextlib.ExitStack()
        place = first.enter_context(strange(tmp_path, name))
        view = ends.enter_context(monitored(place))
        view.counts()
        view.rest()
        first.close()
        place.unlink(missing_ok=True)
        ends.enter_context(strange(tmp_path, name))
        with pytest.raises(Exception, match="another QEMU listens there now"):
            view.counts()


def test_where_nothing_runs_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="no QEMU answers"), watching(None, [tmp_path / "none"]):
        pass
