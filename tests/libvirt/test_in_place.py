# SPDX-License-Identifier: Apache-2.0
"""Measuring in a domain that runs: a disk plugged in for each trial, in force, and nothing left of it ever."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import User, eventually, marked_processes
from tests.libvirt.conftest import DOMAIN
from tests.libvirt.inside import Inside, inside
from tests.libvirtd import Libvirtd

from virtune.bench.domain_way import LibvirtLine
from virtune.bench.guest import GuestError
from virtune.bench.guest_agent import AgentGuest
from virtune.probe.virsh import Virsh

pytestmark = pytest.mark.real

SHORT = ("--seconds", "0.5", "--ramp", "0.1", "-q")


@pytest.fixture(scope="module")
def guest1(daemon: Libvirtd) -> Iterator[Inside]:
    with inside(daemon, "guest1") as found:
        yield found


@pytest.fixture
def guest(guest1: Inside) -> AgentGuest:
    virsh = Virsh(guest1.daemon.uri, write=True)
    return AgentGuest(LibvirtLine(virsh, virsh.uuid("guest1")))


def asked(guest1: Inside, *words: str) -> tuple[str, ...]:
    return ("compare", "--rig", "libvirt:guest1", "--connect", guest1.daemon.uri, *words, *SHORT)


def left_over(user: User, guest1: Inside) -> list[str]:
    """What of a run is still there: notes, images, processes here and in the guest, directories in the guest."""
    found = [path.name for path in (user.home / "virtune" / "plugged").glob("*.json")]
    found += [path.name for path in user.scratch.glob("*passing*")] + marked_processes()
    found += guest1.sh("ls -d /run/virtune-*; ps | grep '[f]io ' ").splitlines()
    return found


def test_two_arms_are_compared_in_a_domain_that_is_left_as_it_was(user: User, guest1: Inside) -> None:
    before, data = guest1.configurations(), guest1.image.read_bytes()
    words = asked(guest1, "--vary", "disk.aio=threads,io_uring", "--rounds", "2", "--json")
    found = user.run(*words, timeout=170).json()
    assert guest1.configurations() == before
    assert guest1.image.read_bytes() == data
    assert not left_over(user, guest1)
    for arm in found["arms"]:
        assert (arm["stack"]["rig"], arm["stack"]["domain"]) == ("libvirt", "guest1")
        assert all(trial["measurement"]["values"]["iops"] > 0 for trial in arm["rounds"])
        assert {"functional-only"} <= {one["id"] for one in arm["rounds"][0]["measurement"]["remarks"]}
        seen = {check["setting"]: check["found"] for check in arm["in_force"]}
        assert seen["disk.aio"] == arm["name"]
        assert (seen["O_DIRECT"], seen["disk.cache"], seen["guest.write_cache"]) == ("on", "none", "write back")
    assert "measured in place, in guest1" in user.run("show", "last").stdout.replace("\n", " ")
    xml = user.run("show", "last", "--trial", "1", "--capture", "domain.xml").stdout
    assert "<serial>virtune-" in xml
    counters = user.run("show", "last", "--trial", "1", "--capture", "guest-counters.jsonl").stdout.splitlines()
    samples = [json.loads(line) for line in counters[1:]]
    assert {"go", "begin", "stop"} <= {one.get("mark") for one in samples}
    assert "vda" in next(one["text"] for one in samples if "text" in one)


def is_loaded(guest1: Inside) -> Callable[[], bool]:
    return lambda: "fio" in guest1.sh("ps | grep '[f]io .*load.json'; test -e /run/virtune-*/load/go || echo; true")


def test_a_killed_run_is_found_in_the_domain_and_taken_out(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1, "--arm", "a:", "--arm", "b:", "--rounds", "1", "--seconds", "60"))
    assert eventually(is_loaded(guest1), seconds=60)
    child.kill()
    child.communicate(timeout=30)
    assert guest1.configurations()[0] != before[0]
    assert eventually(lambda: not marked_processes(), seconds=15)
    assert len(left_over(user, guest1)) >= 4, "a note, an image and its witness, a directory and a load in the guest"
    said = user.run("clean", "--scratch", str(user.scratch)).stdout
    assert "from the domain guest1" in said
    assert guest1.configurations() == before
    assert not left_over(user, guest1)
    assert "nothing was left behind" in user.run("clean", "--scratch", str(user.scratch)).stdout


def test_interrupted_it_leaves_the_domain_as_it_was(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1, "--arm", "a:", "--arm", "b:", "--rounds", "1", "--seconds", "60"))
    assert eventually(is_loaded(guest1), seconds=60)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert guest1.configurations() == before
    assert not left_over(user, guest1)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--set", "device.iothread=iothread7"), 3, "guest1 has no IOThread 7: it has 1"),
        (("--set", "device.bus=virtio-scsi"), 2, "only virtio-blk leaves nothing behind"),
        (("--target", "/dev/null"), 2, "only scratch disks of its own"),
        (("--restart",), 2, "not restarted"),
        (("--rig", "libvirt:nobody"), 3, "no domain 'nobody'"),
        (("--rig", "libvirt:"), 2, "libvirt:DOMAIN"),
        (("--connect", "qemu+ssh://root@host.invalid/system"), 3, "cannot reach libvirt"),
        (("--connect", "test:///default"), 3, "domains of QEMU"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    user: User, guest1: Inside, words: tuple[str, ...], status: int, says: str
) -> None:
    before = guest1.configurations()
    ran = user.run(*asked(guest1, "--arm", "a:", "--arm", "b:"), *words, status=status)
    assert says in ran.stderr, ran.stderr
    assert guest1.configurations() == before


def test_a_guest_that_lacks_something_is_told_what(user: User, guest1: Inside) -> None:
    daemon = guest1.daemon
    words = ("--vary", "disk.aio=threads,native")
    guest1.sh("mv /bin/fio /bin/oif")
    ran = user.run(*asked(guest1, *words), status=3)
    guest1.sh("mv /bin/oif /bin/fio")
    assert "guest1 has no fio" in ran.stderr
    assert "apt-get install fio" in ran.stderr
    only_reads = f"{daemon.uri}-ro"
    ran = user.run(*asked(guest1, *words), "--connect", only_reads, status=3)
    assert "only reads" in ran.stderr
    daemon.virsh("suspend", "guest1")
    ran = user.run(*asked(guest1, *words), status=3)
    daemon.virsh("resume", "guest1")
    assert "guest1 is paused" in ran.stderr


def test_a_domain_without_agent_or_off_is_told_what(user: User, daemon: Libvirtd, tmp_path: Path) -> None:
    image = tmp_path / "mute.raw"
    image.write_bytes(bytes(2**20))
    daemon.define(DOMAIN.format(name="mute", driver="", rest="", bus="virtio", target="vda", image=image))
    words = ("compare", "--rig", "libvirt:mute", "--connect", daemon.uri, "--vary", "disk.aio=threads,native")
    assert "mute is shut off" in user.run(*words, status=3).stderr
    daemon.virsh("start", "mute")
    ran = user.run(*words, status=3)
    assert "has no port for a guest agent" in ran.stderr
    assert "org.qemu.guest_agent.0" in ran.stderr
    daemon.virsh("destroy", "mute")
    daemon.virsh("undefine", "mute")


def test_words_bytes_and_statuses_come_whole_through_the_agent(guest: AgentGuest) -> None:
    for word in ("plain", "a b", "$HOME `id`", "quo'te\"s", "back\\slash", "new\nline", "ünï", "-n", ""):
        output = guest.run(["printf", "%s", word], timeout_seconds=20)
        assert (output.status, output.stdout, output.stderr) == (0, word.encode(), b"")
    output = guest.run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_seconds=20)
    assert (output.status, output.stdout, output.stderr) == (7, b"out\n", b"err\n")
    assert guest.run(["no-such-program"], timeout_seconds=20).status == 127
    content = bytes(range(256)) * 12 * 1024
    guest.put("/run/bytes", content, timeout_seconds=60)
    assert guest.get("/run/bytes", timeout_seconds=60) == content
    guest.run(["rm", "/run/bytes"], timeout_seconds=20)
    with pytest.raises(GuestError, match="cannot read /run/none"):
        guest.get("/run/none", timeout_seconds=20)


def test_a_deadline_holds_and_a_program_is_ended(guest: AgentGuest) -> None:
    with pytest.raises(GuestError, match="did not answer within"):
        guest.run(["sleep", "3"], timeout_seconds=0.3)
    process = guest.start(["sleep", "1000"], timeout_seconds=20)
    guest.run(["kill", "-STOP", str(process.pid)], timeout_seconds=20)
    begun = time.monotonic()
    process.end("INT")
    ended = process.wait(0)
    assert ended is not None
    assert ended.status > 128
    assert time.monotonic() - begun < 15


def test_much_output_and_what_is_read_come_whole(guest: AgentGuest) -> None:
    much = guest.run(["sh", "-c", "head -c 3000000 /dev/zero"], timeout_seconds=60).stdout
    assert much == bytes(3_000_000)
    read = guest.start(["cat"], timeout_seconds=20, stdin=b"\0read\xff").wait(20)
    assert read is not None
    assert read.stdout == b"\0read\xff"
