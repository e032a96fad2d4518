# SPDX-License-Identifier: Apache-2.0
"""`virtune fix` killed at every step: nothing is lost or half changed, and the next call goes on.

The VM's disk has a limit, whose lifting is measured beyond doubt on the busiest host, and its guest is powered off
and on, so that every step of a change is there.
"""

import contextlib
import hashlib
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import User
from tests.libvirt.tiny import UP, boot_tiny, start, ups, wait_for
from tests.libvirtd import Libvirtd

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("libvirt")]

LIMIT = "<iotune><total_iops_sec>150</total_iops_sec></iotune>"
QUICK = ("--rig", "storage-daemon", "--rounds", "12", "--seconds", "100ms", "--ramp", "0", "--span", "16M")
WORDS = ("--also", "R47", *QUICK, "--attempts", "1", "--restart", "--healthy", f"console:^{UP}$", "--timeout", "20")

PRINTED = {
    "audited": "1 findings", "measuring": "round 1 of", "measured further": "round 4 of",
    "measured": "the change to make", "shown": "1 change", "asking": "Change web?",
    "changed": "changed; `virtune apply undo", "verified": "measured again",
}  # fmt: skip
"""Moments of a call, and what it has printed by then."""

STEPS = ("intended", "defining", "defined", "stopping", "starting", "resuming", "committed")
"""The others, which the journal shows."""

KEPT = {"virtune-16777216.raw", "virtune-16777216.raw.virtune.json"}
"""A scratch image that the next call uses again."""

MOMENTS = (*PRINTED, *STEPS, "verifying")
KILLS = 3
"""48 kills in all."""


@pytest.fixture
def web(daemon: Libvirtd) -> Iterator[str]:
    """A tiny guest that runs on a disk with a limit."""
    boot_tiny(daemon, "web")
    daemon.virsh("destroy", "web")
    xml = daemon.xml("web").replace("cache='writeback'", "cache='none' io='io_uring' discard='unmap' iothread='1'")
    xml = xml.replace("<target dev='vda' bus='virtio'/>", f"<target dev='vda' bus='virtio'/>{LIMIT}")
    daemon.define(xml.replace("<vcpu", "<iothreads>1</iothreads><vcpu", 1))
    start(daemon, "web")
    yield "web"
    daemon.forget()


def killed_at(user: User, daemon: Libvirtd, moment: str, out: Path) -> None:
    """Call it, and kill it at that moment."""
    words = ("--again", *WORDS, *(() if moment == "asking" else ("--yes",)))
    command = user.command("fix", "web", "--connect", daemon.uri, *words)
    ours, theirs = pty.openpty()  # it asks where its input is a terminal
    with (
        out.open("wb") as file,
        subprocess.Popen(
            command, env=user.env, cwd=user.home, stdin=theirs, stdout=file, stderr=file, start_new_session=True
        ) as process,
    ):
        try:
            wait_for(lambda: come_to(moment, out.read_text(), steps(user)) or process.poll() is not None, 120)
            # at its last words it may have ended by then, and well
            assert process.poll() in ((None, 0) if moment == "verified" else (None,)), out.read_text()
        finally:
            process.send_signal(signal.SIGKILL)
            os.close(theirs)
            os.close(ours)


def come_to(moment: str, said: str, known: list[str]) -> bool:
    if moment == "verifying":
        return "round 2 of" in said.partition("changed; `virtune apply undo")[2]
    return PRINTED[moment] in said if moment in PRINTED else moment in known


def steps(user: User) -> list[str]:
    """The steps of the newest change."""
    found = sorted((user.home / "virtune" / "journal").glob("2*/steps"))
    with contextlib.suppress(OSError):
        return found[-1].read_text().split() if found else []
    return []


@pytest.mark.parametrize(
    ("moment", "kills"),
    [
        *(pytest.param(one, KILLS, marks=pytest.mark.long(always="two of them are in each run")) for one in MOMENTS),
        ("measuring", 1),
        ("starting", 1),
    ],
)
def test_nothing_is_lost_and_the_next_call_goes_on(
    user: User, daemon: Libvirtd, web: str, moment: str, kills: int, tmp_path: Path
) -> None:
    before = daemon.xml(web)
    image = daemon.home / f"{web}.raw"
    content = hashlib.sha256(image.read_bytes()).digest()
    there = {one.name for one in daemon.home.glob("virtune-*")}  # of other tests' sizes
    for count in range(kills):
        killed_at(user, daemon, moment, tmp_path / f"said-{count}")
        ran = user.run("fix", web, "--connect", daemon.uri, *WORDS, "--yes")
        print(ran.stdout, ran.stderr)
        assert "total_iops_sec" not in daemon.xml(web)
        if moment in ("measuring", "measured further"):
            assert "measured again" in ran.stdout
            assert "is better than it was" in ran.stdout
        assert daemon.virsh("domstate", web).strip() == "running"
        assert not [one for one in user.run("undo", "--list").stdout.splitlines() if not settled(one)]
        assert {one.name for one in daemon.home.glob("virtune-*")} - there <= KEPT, "else it is removed"
        seen = ups(daemon, web)
        user.run("undo", "last", "--restart")
        assert ups(daemon, web) == seen + 1
        assert daemon.xml(web) == before
        assert "total_iops_sec" in daemon.xml(web, live=True)
        assert hashlib.sha256(image.read_bytes()).digest() == content


def settled(line: str) -> bool:
    return "  undone  " in line or "  committed  " in line
