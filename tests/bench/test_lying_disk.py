# SPDX-License-Identifier: Apache-2.0
"""A guest without an operating system on a disk that lies: it ends its load with words, and is ready for the next."""

import json
import socket
from collections.abc import Iterator

import pytest
from tests.bench.lying_disk import LyingDisk
from tests.conftest import bare_guest

from virtune.bench.guest.line import Line
from virtune.dialects.qemu.guest import GuestMachine, machine_argv
from virtune.model.machine import Machine
from virtune.shell import Warden, find

pytestmark = pytest.mark.real

SECTORS = 8192
SHARED = "memory-backend-memfd,id=memory0,size=64M,share=on"


@pytest.fixture(scope="module")
def lied_to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, LyingDisk]]:
    """A guest whose disk is a vhost-user export of ours."""
    place = tmp_path_factory.mktemp("lying")
    ours, theirs = socket.socketpair()
    monitor, other = socket.socketpair()
    with ours, theirs, monitor, other, Warden("lying-disk") as warden:
        machine = GuestMachine(
            kernel=str(bare_guest()), initramfs="", console=str(place / "console"), channels=(theirs.fileno(),),
            monitor=other.fileno(), kvm=False, vcpus=1, asked=Machine(system="bare"),
        )  # fmt: skip
        words = list(machine_argv(find("qemu-system-x86_64"), machine))
        words[words.index("-m") + 1] = "64M"
        words[words.index("-M") + 1] += ",memory-backend=memory0"
        words += ["-object", SHARED, "-chardev", f"socket,id=disk,path={place}/disk"]
        words += ["-device", "vhost-user-blk-pci,chardev=disk,num-queues=1,bus=slot0"]
        with (
            LyingDisk(place / "disk", sectors=SECTORS) as disk,
            warden.running(words, name="guest", keep=(theirs.fileno(), other.fileno())),
        ):
            theirs.close()
            line = Line(ours)
            hello = line.receive(20)
            assert hello is not None
            assert hello.kind == "hello"
            yield line, disk


def load(line: Line, words: bytes = b"number_ios=40\n") -> dict[str, object]:
    """Run a load that may stand still for 0.3 s; returns what the guest says of its end."""
    job = b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nbs=4k\nhipri=1\n" + words
    line.ask("job", job, expect="armed", timeout_seconds=9)
    line.ask("go", b"300 0", expect="began", timeout_seconds=9)
    while (frame := line.receive(9)) is not None:
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
    found = load(line)
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
