# SPDX-License-Identifier: Apache-2.0
"""Measuring in a running domain: a disk is attached for each trial, verified, and detached without a trace."""

import contextlib
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SPAN, User, eventually, marked_processes
from tests.contract.rig_contract import Image, RigContract
from tests.guests.agent_contract import AgentContract
from tests.libvirt.conftest import DOMAIN
from tests.libvirt.inside import Inside
from tests.libvirtd import Libvirtd

from virtune.bench.guest.agent import AgentGuest
from virtune.bench.libvirt.access import find_way
from virtune.bench.port import Session, Surroundings, session
from virtune.bench.scratch import Scratch
from virtune.flows.run.question import Question, study_for
from virtune.model.errors import LoadError, PlanError, PreconditionError
from virtune.model.remark import GATE_BY_ID
from virtune.model.stack import Disk, Stack
from virtune.model.study import StudyKind
from virtune.model.text import Bytes
from virtune.shell import Warden

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("domains")]

SHORT = ("--seconds", "0.5", "--ramp", "0.1", "-q")
LONG = (
    "--arm",
    "a:",
    "--arm",
    "b:",
    "--workload",
    "rw=randread,bs=4k,rate_iops=20",
    "--rounds",
    "1",
    "--seconds",
    "60",
)
"""A load that goes on until something ends it, and leaves the guest and others their CPUs."""


@pytest.fixture
def guest(guest1: Inside) -> AgentGuest:
    return guest1.agent()


FAST = """while read -r now rest </run/p/uptime && [ -e /run/fast ]; do
    printf %010d.00 $((${now%.*}${now#*.} * 8 / 100)) 1<>/run/fast
    sleep 0.02
done
"""
"""Writes over the file, so that who reads meanwhile finds it whole."""


@contextlib.contextmanager
def clock_eight_times_as_fast(guest1: Inside) -> Iterator[None]:
    """In the guest another file lies over /proc/uptime, which counts the seconds of the real one eight times."""
    guest1.sh("mkdir -p /run/p && mount -t proc proc /run/p && cp /proc/uptime /run/fast")
    guest1.ask("guest-exec", path="sh", arg=["-c", FAST])
    guest1.sh("mount --bind /run/fast /proc/uptime")
    try:
        yield
    finally:
        guest1.sh("umount /proc/uptime; rm -f /run/fast; umount /run/p")


def asked(guest1: Inside, *words: str) -> tuple[str, ...]:
    return ("compare", "--rig", "libvirt:guest1", "--connect", guest1.daemon.uri, *words, *SHORT)


def left_on_host(user: User) -> list[str]:
    """What of a run is still here: notes, images, processes."""
    found = [path.name for path in (user.home / "virtune" / "plugged").glob("*.json")]
    return found + [path.name for path in user.scratch.glob("*passing*")] + marked_processes()


def left_over(user: User, guest1: Inside) -> list[str]:
    """What of a run is still here or in the guest: processes and directories there."""
    return left_on_host(user) + guest1.sh("ls -d /run/virtune-*; ps | grep '[f]io ' ").splitlines()


@pytest.mark.parametrize("engines", [("io_uring",), pytest.param(("threads", "io_uring"), marks=pytest.mark.long)])
def test_a_disk_is_measured_in_a_domain_that_is_left_as_it_was(
    engines: tuple[str, ...], user: User, guest1: Inside
) -> None:
    before, data = guest1.configurations(), guest1.image.read_bytes()
    compared = ("--vary", f"disk.aio={','.join(engines)}")
    words = asked(guest1, *(compared if len(engines) > 1 else ("--set", f"disk.aio={engines[0]}")))
    words = ("compare" if len(engines) > 1 else "measure", *words[1:], "--rounds", "1", "--json")
    words += ("--set", "guest.scheduler=mq-deadline", "--set", "guest.nomerges=2")
    # an engine is seen at work only while the guest gets its CPU, and some thousand requests show it
    load = ("--workload", "rw=randread,bs=4k,iodepth=4,rate_iops=1500", "--seconds", "2")
    found = user.run(*words, *load).json()
    assert guest1.configurations() == before
    assert guest1.image.read_bytes() == data
    assert not left_over(user, guest1)
    for arm, engine in zip(found["arms"], engines, strict=True):
        assert (arm["stack"]["rig"], arm["stack"]["domain"]) == ("libvirt", "guest1")
        assert all(trial["measurement"]["values"]["iops"] > 0 for trial in arm["rounds"])
        assert {"functional-only"} <= {one["id"] for one in arm["rounds"][0]["measurement"]["remarks"]}
        seen = {check["setting"]: check["found"] for check in arm["in_force"]}
        assert seen["disk.aio"] == engine
        assert (seen["guest.scheduler"], seen["guest.nomerges"]) == ("mq-deadline", "2")
        assert (seen["O_DIRECT"], seen["disk.cache"], seen["guest.write_cache"]) == ("on", "none", "write back")
    # as QEMU counted it, which is a part of fio's; a trial whose guest hardly ran, or whose load was over before its
    # end was looked at, has no such count
    measured = [trial["measurement"] for arm in found["arms"] for trial in arm["rounds"]]
    counted = [one["values"] for one in measured if "below.backend" in one["values"]]
    flag = GATE_BY_ID["cpu-wait"].flag
    assert flag is not None
    assert counted or all(one["gates"]["cpu-wait"] > flag for one in measured), "nobody had the CPUs"
    assert all(0 < one["below.backend"] < one["latency.mean"] for one in counted)
    assert "measured in guest1 while it runs" in user.run("show", "last").stdout.replace("\n", " ")
    xml = user.run("show", "last", "--trial", "1", "--capture", "domain.xml").stdout
    assert "<serial>virtune-" in xml
    counters = user.run("show", "last", "--trial", "1", "--capture", "guest-counters.jsonl").stdout.splitlines()
    samples = [json.loads(line) for line in counters[1:]]
    assert {"go", "begin", *(("stop",) if "below.backend" in measured[0]["values"] else ())} <= {
        one.get("mark") for one in samples
    }
    assert "vda" in next(one["text"] for one in samples if "text" in one)


def is_loaded(guest1: Inside) -> Callable[[], bool]:
    return lambda: "fio" in guest1.sh("ps | grep '[f]io .*load.json'; test -e /run/virtune-*/load/go || echo; true")


def test_a_search_in_a_guest_that_is_emulated_is_refused_and_leaves_it_as_it_was(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    words = ("tune", "--rig", "libvirt:guest1", "--connect", guest1.daemon.uri, "--vary", "disk.aio=threads,io_uring")
    ran = user.run(*words, "--seconds", "0.2", "--ramp", "0", "--budget", "600", "--attempts", "1", status=3)
    assert "guests run under software emulation only" in ran.stderr
    assert "bringing 2 configurations up once" in ran.stderr
    assert guest1.configurations() == before
    assert not left_over(user, guest1)


@pytest.mark.long(always="that it is refused without --emulated is in each run, above")
def test_a_search_in_place_runs_to_its_end_and_leaves_the_domain_as_it_was(user: User, guest1: Inside) -> None:
    before, data = guest1.configurations(), guest1.image.read_bytes()
    words = ("tune", "--rig", "libvirt:guest1", "--connect", guest1.daemon.uri, "--vary", "disk.aio=threads,io_uring")
    load = ("--workload", "rw=randread,bs=4k,iodepth=4,rate_iops=1500", "--seconds", "2", "--ramp", "0")
    ran = user.run(*words, *load, "--emulated", "--budget", "600", "--confirm", "2", "--json", timeout=900)
    found = ran.json()
    assert guest1.configurations() == before
    assert guest1.image.read_bytes() == data
    assert not left_over(user, guest1)
    assert (found["recommendation"], found["reason"]) == ("undecided", "emulated"), "the ranking is the emulator's"
    assert {arm["name"] for arm in found["arms"]} == {"baseline", "io_uring"}


def test_a_killed_run_is_found_in_the_domain_and_taken_out(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1), *LONG)
    assert eventually(is_loaded(guest1), seconds=60)
    child.kill()
    child.communicate(timeout=90)
    assert guest1.configurations()[0] != before[0]
    assert eventually(lambda: not marked_processes())
    assert len(left_over(user, guest1)) >= 4, "a note, an image and its witness, a directory and a load in the guest"
    said = user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert "from the domain guest1" in said
    assert guest1.configurations() == before
    assert not left_over(user, guest1)


@pytest.mark.long(always="killed, it leaves more: that is in each run, above")
def test_interrupted_it_leaves_the_domain_as_it_was(user: User, guest1: Inside) -> None:
    before = guest1.configurations()
    child = user.start(*asked(guest1), *LONG)
    assert eventually(is_loaded(guest1), seconds=60)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=90)
    assert child.returncode == 130, err
    assert guest1.configurations() == before
    assert not left_over(user, guest1)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--set", "device.iothread=iothread7"), 3, "guest1 has no IOThread 7: it has 1"),
        (("--rig", "libvirt:"), 2, "libvirt:DOMAIN"),
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


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"target": Path("/dev/null")}, "only its own scratch disks"),
        ({"restart": True}, "does not restart your VM"),
        ({"rig": "qemu"}, "no arm runs in a libvirt domain"),
    ],
)
def test_what_cannot_be_asked_of_a_domain_is_said_at_once(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    asked_for: dict[str, Any] = {
        "rig": "libvirt:web1",
        "connect": "qemu:///system",
        "arms": ("a:", "b:"),
        "scratch": tmp_path,
    }
    with pytest.raises(PlanError, match=says):
        study_for(Question(kind=StudyKind.COMPARE, **asked_for | more))


def test_a_way_that_is_none_is_said(guest1: Inside) -> None:
    with pytest.raises(PreconditionError, match="no domain 'nobody'"):
        find_way(guest1.daemon.uri, "nobody")
    guest1.daemon.virsh("suspend", "guest1")
    with pytest.raises(PreconditionError, match="guest1 is paused"):
        find_way(guest1.daemon.uri, "guest1")
    guest1.daemon.virsh("resume", "guest1")


def test_a_guest_whose_clock_is_wrong_is_refused_before_a_disk_is_attached(guest1: Inside) -> None:
    with clock_eight_times_as_fast(guest1), pytest.raises(PreconditionError) as refused:
        find_way(guest1.daemon.uri, "guest1")
    speed = re.fullmatch(r"the clock of guest1 runs (\S+) times as fast as this host's", refused.value.message)
    assert speed is not None, refused.value.message
    assert 1.1 < float(speed[1]) <= 8.2
    assert "boot it again" in (refused.value.hint or "")


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


@pytest.mark.long(always="the same agent over its own socket is held to this in each run (guests/test_guest.py)")
class TestTheAgentThroughLibvirt(AgentContract):
    """What the way through a domain's libvirt promises."""


class TestContract(RigContract):
    """A domain keeps what every rig promises."""

    stacks = (
        Stack(rig="libvirt", domain="guest1", disk=Disk(aio="io_uring")),
        Stack(rig="libvirt", domain="guest1", disk=Disk(aio="threads", format="qcow2", cluster_size=Bytes(131072))),
    )
    size_bytes = SPAN

    @pytest.fixture
    def image_of(self, scratch: Scratch, warden: Warden) -> Image:
        return lambda stack: scratch.image_for(stack.disk, warden)

    @pytest.fixture
    def session(
        self, guest1: Inside, warden: Warden, scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Session]:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        access = {"guest1": find_way(guest1.daemon.uri, "guest1")}
        with session(Surroundings(warden=warden, scratch=scratch.directory, access=access)) as found:
            yield found

    @pytest.mark.long(always="one whose clock is wrong before a disk is attached is refused in each run")
    def test_what_a_guest_measured_by_a_clock_that_is_wrong_is_refused(
        self, session: Session, image_of: Image, guest1: Inside
    ) -> None:
        stack = self.stacks[0]
        with (
            session.up(stack, self.spec(stack, image_of)) as bench,
            clock_eight_times_as_fast(guest1),
            pytest.raises(LoadError, match="the clock of guest1 runs"),
        ):
            self.load(bench, seconds=0.3)

    @pytest.mark.long(always="the other rigs have this in each run (contract/test_rigs.py)")
    def test_after_a_job_that_its_program_refuses_the_first_stack_comes_up_again(
        self, session: Session, image_of: Image
    ) -> None:
        super().test_after_a_job_that_its_program_refuses_the_first_stack_comes_up_again(session, image_of)


@pytest.mark.long(always="a guest is killed under its load in each run (guests/test_stall.py)")
def test_a_guest_that_dies_under_its_load_is_said_to_be_gone_and_what_was_kept_is_found(
    user: User, guest1: Inside
) -> None:
    """The last one: nobody after it needs this guest."""
    child = user.start(*asked(guest1), *LONG)
    assert eventually(is_loaded(guest1), seconds=60)
    guest1.daemon.virsh("destroy", "guest1")
    _, err = child.communicate(timeout=90)
    assert child.returncode == 1, err
    assert "Traceback" not in err
    user.run("host", "clean", "--scratch", str(user.scratch))
    assert not left_on_host(user)
