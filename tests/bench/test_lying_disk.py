# SPDX-License-Identifier: Apache-2.0
"""A guest without an operating system on a disk that lies: it ends its load with words, and is ready for the next."""

import contextlib
import json
import mmap
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.bench.lying_disk import LyingDisk
from tests.conftest import bare_guest

from virtune.bench.qemu.load import Line
from virtune.bench.qemu.machine import monitored
from virtune.bench.qmp import Monitor
from virtune.dialects.qemu.guest import GuestMachine, machine_argv
from virtune.model.stack import Machine
from virtune.shell import Warden, find

pytestmark = pytest.mark.real

SECTORS = 8192

STATUS = 20
"""Where the status of a virtio device lies in its common registers on PCI."""


@contextlib.contextmanager
def guest(place: Path, memory: str, words: Sequence[str]) -> Iterator[tuple[Line, Monitor]]:
    """A guest whose memory others share, with the disk that these words make."""
    ours, theirs = socket.socketpair()
    monitor, other = socket.socketpair()
    with ours, theirs, monitor, other, Warden("lying-disk") as warden:
        machine = GuestMachine(
            kernel=str(bare_guest()), initramfs="", console=str(place / "console"), channels=(theirs.fileno(),),
            monitor=other.fileno(), kvm=False, vcpus=1, asked=Machine(system="bare"),
        )  # fmt: skip
        argv = list(machine_argv(find("qemu-system-x86_64"), machine))
        argv[argv.index("-m") + 1] = "64M"
        argv[argv.index("-M") + 1] += ",memory-backend=memory0"
        argv += ["-object", f"{memory},id=memory0,size=64M,share=on", *words]
        with warden.running(argv, name="guest", keep=(theirs.fileno(), other.fileno())) as child:
            theirs.close()
            other.close()
            with monitored(monitor, child) as asked:
                line = Line(ours)
                hello = line.receive(120)
                assert hello is not None
                assert hello.kind == "hello"
                yield line, asked


@contextlib.contextmanager
def lying(place: Path, *, beside: Sequence[str] = ()) -> Iterator[tuple[Line, LyingDisk]]:
    """A guest whose disk is a vhost-user export of ours; `beside` makes other disks."""
    words = ["-chardev", f"socket,id=disk,path={place}/disk,reconnect=1"]
    words += ["-device", "vhost-user-blk-pci,chardev=disk,num-queues=1,bus=slot0", *beside]
    with LyingDisk(place / "disk", sectors=SECTORS) as disk, guest(place, "memory-backend-memfd", words) as (line, _):
        yield line, disk


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, LyingDisk]]:
    with lying(tmp_path_factory.mktemp("lying")) as found:
        yield found


PATIENT, LOST, SOON = b"60000 0", b"2000 0", b"300 0"
"""How long a load may stand still, in ms: longer than a busy host holds anything up; where a request is lost, whose
end the guest awaits, spinning, after the error; and where to stand still is the error."""


def load(line: Line, words: bytes = b"number_ios=40\n", go: bytes = PATIENT) -> dict[str, object]:
    """Run a load; returns what the guest says of its end."""
    begin(line, words, go)
    return end(line)


def begin(line: Line, words: bytes, go: bytes) -> None:
    job = b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nbs=4k\nhipri=1\n" + words
    line.ask("job", job, expect="armed", timeout_seconds=120)
    line.ask("go", go, expect="began", timeout_seconds=120)


def end(line: Line) -> dict[str, object]:
    while (frame := line.receive(120)) is not None:
        if frame.kind == "result":
            result = json.loads(frame.body)
            return {**result["virtune-load"], "ios": result["jobs"][0]["read"]["total_ios"]}
    raise AssertionError("the guest said nothing")


def test_a_disk_that_tells_the_truth_is_believed(lied_to: tuple[Line, LyingDisk]) -> None:
    line, disk = lied_to
    before = disk.served
    found = load(line)
    assert (found["ended_by"], found["ios"], disk.served - before) == ("complete", 40, 40)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("never", "the disk completed nothing for 0.3 s: it is stuck"),
        ("strange", "the disk gave request 77 of queue 0 back, which it did not have"),
        ("status", "the disk ended a request with status 7"),
        ("unwritten", "the disk ended a request with status 255"),
        ("short", "the disk wrote 1 bytes for a request that needs 4097"),
    ],
)
def test_a_lie_ends_the_load_with_words_and_the_next_one_runs(
    lied_to: tuple[Line, LyingDisk], lie: str, words: str
) -> None:
    line, disk = lied_to
    disk.lie = lie
    found = load(line, go=SOON if "stuck" in words else LOST)
    disk.lie = ""
    assert (found["ended_by"], found["message"]) == ("error", words)
    assert load(line)["ended_by"] == "complete"


def test_a_request_that_ends_twice_is_noticed(lied_to: tuple[Line, LyingDisk]) -> None:
    line, disk = lied_to
    disk.lie = "twice"
    found = load(line, b"number_ios=400\niodepth=3\n")
    disk.lie = ""
    # the second end names a request that is not there any more, or one that has begun anew and has no status yet
    assert found["ended_by"] == "error"
    assert "which it did not have" in str(found["message"]) or "status 255" in str(found["message"])


def test_a_disk_that_stands_still_beside_one_that_goes_on_is_named(tmp_path: Path) -> None:
    other = ["-blockdev", "null-co,node-name=null,size=4194304,read-zeroes=off", "-device", "pcie-root-port,id=other"]
    other += ["-device", "virtio-blk-pci,drive=null,serial=good,bus=other"]
    with lying(tmp_path, beside=other) as (line, disk):
        disk.lie = "never"
        good = b"[good]\nioengine=virtio-blk\nfilename=good\nrw=randread\nhipri=1\niodepth=8\n"
        begin(line, b"filename=liar\nnumber_ios=9\n" + good + b"runtime=999\ntime_based=1\n", SOON)
        found = end(line)
    assert (found["ended_by"], found["message"]) == (
        "error",
        "liar: the disk completed nothing for 0.3 s: it is stuck",
    )


def test_a_disk_whose_back_end_starts_anew_in_mid_run_ends_the_load(tmp_path: Path) -> None:
    with lying(tmp_path) as (line, disk):
        assert load(line)["ended_by"] == "complete"
        disk.lie = "gone"
        found = load(line, go=SOON)
        disk.lie = ""
        assert (found["ended_by"], found["message"]) == ("error", "the disk completed nothing for 0.3 s: it is stuck")
        begin(line, b"number_ios=40\n", PATIENT)
        assert end(line)["ended_by"] == "complete", "QEMU tries once a second to connect again, and the disk is reset"


def test_a_disk_that_is_reset_in_mid_run_ends_the_load_and_the_next_one_runs(tmp_path: Path) -> None:
    # by the board's test port, which writes into the registers of a device as a guest does
    words = ["-blockdev", "null-co,node-name=null,size=4194304,read-zeroes=off"]
    words += ["-device", "virtio-blk-pci,id=disk0,drive=null,bus=slot0"]
    words += ["-qtest", f"unix:{tmp_path}/board,server=on,wait=off", "-qtest-log", "none"]
    with guest(tmp_path, "memory-backend-memfd", words) as (line, monitor), socket.socket(socket.AF_UNIX) as board:
        board.connect(f"{tmp_path}/board")
        begin(line, b"runtime=9999\ntime_based=1\n", PATIENT)
        shown = monitor.execute("human-monitor-command", {"command-line": "info pci"})
        registers = common_registers(shown)
        board.sendall(f"writeb {registers + STATUS:#x} 0\n".encode())
        found = end(line)
        assert (found["ended_by"], found["message"]) == ("error", "the disk was reset while it had requests")
        assert load(line)["ended_by"] == "complete"


def common_registers(shown: str) -> int:
    """Return where the guest has put the registers of the disk, which QEMU has in its fifth region."""
    (disk,) = [part for part in re.split(r"(?m)^  Bus ", shown) if 'id "disk0"' in part]
    found = re.search(r"BAR4: .* at 0x([0-9a-f]+)", disk)
    assert found is not None, shown
    return int(found[1], 16)


def test_a_disk_that_needs_a_reset_in_mid_run_says_so_and_gets_it(tmp_path: Path) -> None:
    # QEMU itself says so, of a ring that somebody else has spoilt in the guest's memory
    words = ["-blockdev", "null-co,node-name=null,size=4194304,read-zeroes=off"]
    words += ["-device", "virtio-blk-pci,id=disk0,drive=null,bus=slot0"]
    with guest(tmp_path, f"memory-backend-file,mem-path={tmp_path}/memory", words) as (line, monitor):
        begin(line, b"runtime=9999\ntime_based=1\n", PATIENT)
        queue = {"path": "/machine/peripheral/disk0/virtio-backend", "queue": 0}
        index = int(monitor.execute("x-query-virtio-queue-status", queue)["vring-avail"]) + 2
        broken, spoilt = time.monotonic() + 60, -1
        with (tmp_path / "memory").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            while "NEEDS_RESET" not in json.dumps(monitor.execute("x-query-virtio-status", {"path": queue["path"]})):
                assert time.monotonic() < broken
                for _ in range(1000):
                    (sent,) = struct.unpack_from("<H", memory, index)
                    if sent != spoilt:  # spoilt again and again it would be right at some time
                        spoilt = (sent + 9999) % 65536
                        struct.pack_into("<H", memory, index, spoilt)
        found = end(line)
        assert (found["ended_by"], found["message"]) == ("error", "the disk says that it needs a reset")
        assert load(line)["ended_by"] == "complete", "the next load resets it"
