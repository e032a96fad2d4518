# SPDX-License-Identifier: Apache-2.0
"""Changes made to a real libvirtd's domains: shown, journalled, made, checked, and always reversible."""

import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.conftest import STUDY, STUDY_THREADS
from tests.libvirt.dying import killed_at
from tests.libvirtd import Libvirtd

from virtune.bench.live.domain import LiveDomain
from virtune.virsh import Virsh

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]
Make = Callable[..., str]


def test_a_bad_domain_is_fixed_and_put_back_byte_for_byte(user: User, daemon: Libvirtd, make: Make) -> None:
    make("bad", "cache='unsafe' queue_size='500'", rest="<iothreads>1</iothreads>")
    before = daemon.xml("bad")
    advised = user.run("apply", "advise", "--connect", daemon.uri, "--domain", "bad")
    ran = user.run("apply", "bad", "--connect", daemon.uri, "--yes")
    assert advised.stdout in ran.stdout
    assert "geheim" not in ran.stdout
    after = daemon.xml("bad")
    assert "cache='none'" in after
    assert "queue_size='256'" in after
    assert "iothread='1'" in after
    assert "passwd='geheim'" in after
    daemon.virsh("start", "bad")
    daemon.virsh("destroy", "bad")
    assert user.run("audit", "--connect", daemon.uri, "--fail-on", "error").status == 0
    assert "nothing to change" in user.run("apply", "bad", "--connect", daemon.uri, "--yes").stdout
    ran = user.run("apply", "undo", "last")
    assert "bad is as it was before" in ran.stdout
    assert daemon.xml("bad") == before
    assert "undone" in user.run("apply", "undo", "--list").stdout
    user.run("apply", "undo", "last", status=2)


@pytest.mark.long(always="a running domain gets as much in each run, below; cli/test_advise.py has templates")
def test_the_template_brings_a_default_domain_to_the_study_s(user: User, daemon: Libvirtd, make: Make) -> None:
    make("plain")
    ran = user.run("apply", "plain", "--connect", daemon.uri, "--template", "flash", "--yes")
    assert "plain: 5 changes" in ran.stdout
    xml = daemon.xml("plain")
    for word in ("cache='none'", "io='io_uring'", "discard='unmap'", "iothread='1'", "<iothreads>1</iothreads>"):
        assert word in xml
    daemon.virsh("start", "plain")
    probed = user.run("host", "probe", "--connect", daemon.uri)
    assert "IOThread 1, verified: O_DIRECT, aio io_uring" in probed.stdout
    assert "nothing to change" in user.run("apply", "advise", "--template", "flash", "--connect", daemon.uri).stdout


def test_a_running_domain_gets_at_once_what_it_can_and_the_rest_later(
    user: User, daemon: Libvirtd, make: Make
) -> None:
    make("live", STUDY, rest=STUDY_THREADS)
    daemon.virsh("start", "live")
    before, running = daemon.xml("live"), daemon.xml("live", live=True)
    words = (
        "--set",
        "iothread.pin@iothread:1=0",
        "--set",
        "disk.throttle_iops@vda=500",
        "--set",
        "disk.cache@vda=directsync",
    )
    ran = user.run("apply", "live", "--connect", daemon.uri, *words, "--yes")
    assert "the VM is running: 2 in effect now, 1 after a full power-off and start" in ran.stdout
    assert "cpuset='0'" in daemon.xml("live", live=True)
    assert limits(daemon, "live") == {"total_iops_sec": 500}
    assert "cache='none'" in daemon.xml("live", live=True)
    assert "cache='directsync'" in daemon.xml("live")
    pid = daemon.qemu("live")
    threads = [task for task in Path(f"/proc/{pid}/task").iterdir() if "iothread1" in (task / "comm").read_text()]
    assert "Cpus_allowed_list:\t0\n" in (threads[0] / "status").read_text()
    user.run("apply", "undo", "live")
    assert daemon.xml("live") == before
    assert without_ids(daemon.xml("live", live=True)) == running
    assert "Cpus_allowed_list:\t1\n" in (threads[0] / "status").read_text()
    # virsh lifts the limits that are left unsaid when another one of their kind is turned
    daemon.virsh("blkdeviotune", "live", "vda", "--read-iops-sec", "100", "--write-iops-sec", "200", "--live")
    ran = user.run("apply", "live", "--connect", daemon.uri, "--set", "disk.throttle_iops_read@vda=150", "--yes")
    assert limits(daemon, "live") == {"read_iops_sec": 150, "write_iops_sec": 200}
    user.run("apply", "undo", "live")
    assert limits(daemon, "live") == {"read_iops_sec": 100, "write_iops_sec": 200}
    # a limit that no configuration has is said to be there, with the command that lifts it
    ran = user.run(
        "apply", "advise", "--connect", daemon.uri, "--domain", "live", "--set", "disk.throttle_iops_read@vda="
    )
    assert "live: nothing to change" in ran.stdout
    assert "read_iops_sec=100, write_iops_sec=200 is on the running VM alone" in ran.stdout
    (command,) = re.findall("`(virsh .*)`", ran.stdout)
    audited = user.run("audit", "--connect", daemon.uri, "--domain", "live", status=4).stdout
    assert command in " ".join(audited.split())
    # a diagnosis names the command that lifts the one that is reached, and leaves the other
    (disk,) = LiveDomain(Virsh(daemon.uri), "live").vm.disks
    daemon.virsh(*shlex.split(disk.lifts["write.iops"])[3:])
    assert limits(daemon, "live") == {"read_iops_sec": 100}
    daemon.virsh(*shlex.split(command)[3:])
    assert limits(daemon, "live") == {}
    # what counts as one request goes with the last limit that counts them: QEMU takes no size without one
    daemon.virsh("blkdeviotune", "live", "vda", "--total-iops-sec", "9", "--size-iops-sec", "4096", "--live")
    (disk,) = LiveDomain(Virsh(daemon.uri), "live").vm.disks
    daemon.virsh(*shlex.split(disk.lifts["iops"])[3:])
    assert limits(daemon, "live") == {}


def test_the_libvirt_that_virsh_takes_is_taken_and_nothing_is_asked_where_nothing_is_changed(
    user: User, daemon: Libvirtd, make: Make
) -> None:
    make("usual", STUDY, rest=STUDY_THREADS)
    user.env["LIBVIRT_DEFAULT_URI"] = daemon.uri
    assert "usual: nothing to change" in user.run("apply", "usual").stdout
    ran = user.run("apply", "usual", "--set", "disk.cache@vda=writethrough", status=2)
    assert "[power-off; risks performance]" in ran.stdout
    assert "cannot ask for confirmation: stdin is not a terminal" in ran.stderr
    user.run("apply", "usual", "--set", "disk.cache@vda=writethrough", "--yes")
    assert "usual: unchanged since" in user.run("apply", "undo", "--show").stdout
    assert "cache='writethrough'" in daemon.xml("usual"), "to show it changes nothing"


def test_what_cannot_be_replugged_is_refused_before_anything_is_done(
    user: User, daemon: Libvirtd, make: Make
) -> None:
    image = daemon.home / "second.raw"
    image.write_bytes(bytes(2**20))
    make("old", bus="sata", target="sda")
    disk = f"<disk type='file'><driver type='raw'/><source file='{image}'/><target dev='sdb' bus='sata'/></disk>"
    daemon.define(daemon.xml("old").replace("</devices>", f"{disk}</devices>"))
    before = daemon.xml("old")
    daemon.virsh("start", "old")
    words = ("--connect", daemon.uri, "--set", "disk.cache@sdb=none", "--yes")
    assert "[power-off; risks performance]" in user.run("apply", "advise", *words[:4], "--domain", "old").stdout
    ran = user.run("apply", "old", *words, "--replug", "sdb", status=3)
    assert "sdb is on the bus sata, and libvirt replugs only scsi, usb, virtio disks" in ran.stderr
    assert daemon.xml("old") == before
    assert user.run("apply", "undo", "--list").stdout == ""


def limits(daemon: Libvirtd, domain: str) -> dict[str, int]:
    """The active limits of vda."""
    said = daemon.virsh("blkdeviotune", domain, "vda", "--live")
    return {name: int(value) for name, value in re.findall(r"^(\w+_sec) *: *([1-9]\d*)$", said, re.MULTILINE)}


def without_ids(xml: str) -> str:
    """The live XML without the list of IOThreads, which libvirt begins to show once one of them was pinned."""
    return re.sub(r"  <iothreadids>.*?</iothreadids>\n", "", xml, flags=re.DOTALL)


CHANGE = ("disk.cache@vda=writeback", "disk.aio@vda=threads", "iothread.pin@iothread:1=0")


INSTANTS = range(10)
"""Before and after each of five steps."""


@pytest.mark.parametrize("instants", [(4, 6, 8), pytest.param(INSTANTS, marks=pytest.mark.long)], ids=str)
def test_killed_at_any_step_undo_returns_every_byte(
    instants: Sequence[int], user: User, daemon: Libvirtd, make: Make
) -> None:
    make("killed", STUDY, rest=STUDY_THREADS)
    daemon.virsh("start", "killed")
    before, live = daemon.xml("killed"), daemon.xml("killed", live=True)
    journal = user.home / "virtune" / "journal"
    changed = 0
    for instant in instants:
        assert killed_at(instant, daemon.uri, "killed", CHANGE, journal=journal), instant
        changed += daemon.xml("killed") != before
        ran = user.run("apply", "undo", status=0 if instant else 2)
        assert ("is as it was" in ran.stdout) == (instant >= 1), (instant, ran.stdout)
        assert daemon.xml("killed") == before, instant
        assert without_ids(daemon.xml("killed", live=True)) == live, instant
    assert not killed_at(INSTANTS.stop, daemon.uri, "killed", CHANGE, journal=journal)
    assert changed >= 2
    assert daemon.xml("killed") != before
    user.run("apply", "undo", "last")
    assert daemon.xml("killed") == before


def test_what_somebody_else_changed_since_is_not_taken_away(user: User, daemon: Libvirtd, make: Make) -> None:
    make("shared", "cache='unsafe'")
    before = daemon.xml("shared")
    user.run("apply", "shared", "--connect", daemon.uri, "--yes")
    daemon.define(daemon.xml("shared").replace("<vcpu placement='static'>2", "<vcpu placement='static'>1"))
    theirs = daemon.xml("shared")
    ran = user.run("apply", "undo", "last", status=3)
    assert "has been changed since by somebody else" in ran.stderr
    assert daemon.xml("shared") == theirs
    assert "+  <vcpu placement='static'>1</vcpu>" in user.run("apply", "undo", "shared", "--show").stdout
    user.run("apply", "undo", "last", "--anyway")
    assert daemon.xml("shared") == before


def test_of_a_domain_that_is_gone_the_configuration_is_kept(user: User, daemon: Libvirtd, make: Make) -> None:
    make("gone", "cache='unsafe'")
    before = daemon.xml("gone")
    user.run("apply", "gone", "--connect", daemon.uri, "--yes")
    daemon.virsh("undefine", "gone")
    ran = user.run("apply", "undo", "last", status=3)
    words = re.search(r"hint: `virsh define (\S+)` makes it as it was", ran.stderr)
    assert words is not None
    daemon.virsh("define", words[1])
    assert daemon.xml("gone") == before


def test_what_libvirt_drops_is_noticed_and_nothing_stays_changed(user: User, daemon: Libvirtd, make: Make) -> None:
    make("drops", STUDY, rest=STUDY_THREADS)
    before = daemon.xml("drops")
    words = ("--set", "iothread.poll_max_ns@iothread:1=1000", "--set", "disk.cache@vda=directsync")
    ran = user.run("apply", "drops", "--connect", daemon.uri, *words, "--yes", status=None)
    if ran.status == 0:  # a libvirt of 9.4 or newer keeps it
        assert "<poll max='1000'" in daemon.xml("drops")
        user.run("apply", "undo", "last")
    else:
        assert ran.status == 3
        assert "this libvirt dropped what it was given: " in ran.stderr
        assert "poll max='1000'" in ran.stderr
    assert daemon.xml("drops") == before


def test_what_libvirt_refuses_changes_nothing(user: User, daemon: Libvirtd, make: Make) -> None:
    make("refused", "cache='none'")
    before = daemon.xml("refused")
    words = ("--set", "emulator.pin=none")
    ran = user.run("apply", "refused", "--connect", daemon.uri, *words, "--yes", status=1)
    assert "Failed to parse bitmap 'none'" in ran.stderr
    assert daemon.xml("refused") == before
    assert "undone" in user.run("apply", "undo", "--list").stdout


def test_a_libvirtd_that_dies_leaves_the_way_back(user: User, daemon: Libvirtd, make: Make) -> None:
    make("orphan", "cache='unsafe'")
    before = daemon.xml("orphan")
    journal = user.home / "virtune" / "journal"
    # virtune dies between the definition and its note of it, and the daemon dies with it
    assert killed_at(4, daemon.uri, "orphan", ["disk.cache@vda=none"], journal=journal)
    assert daemon.xml("orphan") != before
    killer = threading.Timer(0.05, daemon.process.kill)
    killer.start()
    killer.join()
    daemon.process.wait()
    ran = user.run("apply", "undo", status=3)
    assert "cannot reach libvirt" in ran.stderr
    daemon.restart()
    assert "is as it was" in user.run("apply", "undo").stdout
    assert daemon.xml("orphan") == before


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("apply", "nobody", "--connect", "{uri}", "--yes"), 3, "no domain 'nobody'"),
        (
            ("apply", "mine", "--connect", "{uri}", "--set", "disk.cache@vda=none"),
            2,
            "cannot ask for confirmation: stdin is not a terminal",
        ),
        (("apply", "mine", "--connect", "{uri}", "--yes", "--set", "disk.cache@vda=fast"), 2, "not one of"),
        (("apply", "mine", "--connect", "{uri}", "--yes", "--set", "disk.format@vda=raw"), 2, "cannot be written"),
        (("apply", "mine", "--connect", "{uri}", "--yes", "--set", "disk.cache@vdz=none"), 2, "no disk 'vdz'"),
        (("apply", "mine", "--connect", "{uri}", "--yes", "--rule", "R999"), 2, "no rule"),
        (("undo", "nothing"), 2, "no change 'nothing'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    user: User, daemon: Libvirtd, make: Make, words: tuple[str, ...], status: int, says: str
) -> None:
    make("mine")
    ran = user.run(*(word.format(uri=daemon.uri) for word in words), status=status)
    assert says in ran.stderr


def test_a_transient_domain_is_refused(user: User, daemon: Libvirtd, make: Make) -> None:
    make("passing", "cache='unsafe'")
    daemon.virsh("start", "passing")
    daemon.virsh("undefine", "passing")
    ran = user.run("apply", "passing", "--connect", daemon.uri, "--yes", status=3)
    assert "passing is a transient domain" in ran.stderr
    daemon.virsh("destroy", "passing")


def test_a_saved_guest_is_said_to_come_back_with_its_old_disks(user: User, daemon: Libvirtd, make: Make) -> None:
    make("saved", "cache='unsafe'")
    daemon.virsh("start", "saved")
    daemon.virsh("managedsave", "saved")
    ran = user.run("apply", "saved", "--connect", daemon.uri, "--yes")
    assert "its next start resumes it with its old disks" in ran.stdout
    daemon.virsh("managedsave-remove", "saved")


def test_two_at_once_are_one_after_the_other(user: User, daemon: Libvirtd, make: Make) -> None:
    make("busy", "cache='unsafe'")
    import fcntl
    import os

    journal = user.home / "virtune" / "journal"
    journal.mkdir(parents=True)
    descriptor = os.open(journal, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    ran = user.run("apply", "busy", "--connect", daemon.uri, "--yes", status=3)
    assert "another virtune" in ran.stderr
    os.close(descriptor)
    begun = time.monotonic()
    user.run("apply", "busy", "--connect", daemon.uri, "--yes")
    assert time.monotonic() - begun < 90
    entry = next(place for place in journal.iterdir() if place.is_dir())
    assert entry.stat().st_mode & 0o777 == 0o700
    assert (entry / "before.xml").stat().st_mode & 0o777 == 0o600
