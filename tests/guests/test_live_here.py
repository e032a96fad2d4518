# SPDX-License-Identifier: Apache-2.0
"""QEMUs that nobody named are found by /proc, and their monitors stay free for whom they belong to."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import User, eventually
from tests.published import strictly

from virtune import shell
from virtune.bench.live.emulators import Emulator, emulators_here
from virtune.bench.live.monitor import monitored
from virtune.bench.qemu.machine import PROGRAM
from virtune.flows.live.top import watching
from virtune.model.errors import PreconditionError
from virtune.probe.process import Process

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


@contextlib.contextmanager
def strange(tmp_path: Path, name: str, *words: str) -> Iterator[Path]:
    """A QEMU with a disk, started as Proxmox VE does, whose guest has not an operating system."""
    place, image = tmp_path / f"{name}.qmp", tmp_path / f"{name}.raw"
    image.write_bytes(bytes(2**20))
    argv = [shell.find(PROGRAM), "-name", f"{name},debug-threads=on", "-display", "none", "-nodefaults", "-m", "64"]
    argv += ["-drive", f"file={image},format=raw,if=none,id=d", "-device", "virtio-blk-pci,drive=d,id=scsi0"]
    argv += ["-chardev", f"socket,id=qmp,path={place},server=on,wait=off", "-mon", "chardev=qmp,mode=control", *words]
    with shell.Warden("strange") as warden, warden.running(argv, name="qemu"):
        assert eventually(lambda: place.exists() and answers(place), seconds=20)
        yield place


def answers(place: Path) -> bool:
    """Whether a QEMU listens there: the socket is there before that."""
    with contextlib.suppress(OSError):
        return greeted(place) < 5
    return False


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
        assert "a process keeps the line that it was started with" in user.run("fix", name, "--dry-run").stdout
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
        assert "scratch image" not in user.run("fix", f"{name}:beside", "--dry-run", status=None, exactly=True).stderr


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


def greeted(place: Path) -> float:
    """Return how long the owner of a monitor waits until it is served, in seconds."""
    begun = time.monotonic()
    with socket.socket(socket.AF_UNIX) as owner:
        owner.settimeout(5)
        owner.connect(str(place))
        assert b"QMP" in owner.recv(4096)
        owner.sendall(b'{"execute":"qmp_capabilities"}')
        assert b"return" in owner.recv(4096)
    return time.monotonic() - begun


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
