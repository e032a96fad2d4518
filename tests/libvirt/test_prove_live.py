# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose VM --prove` on a real libvirtd: the limit of a running VM's disk is lifted and put back in turn.

The guest is a boot sector that reads one sector after another through the BIOS, as fast as it is answered.
"""

import contextlib
import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import User
from tests.libvirt.conftest import DOMAIN
from tests.libvirt.tiny import wait_for
from tests.libvirtd import Libvirtd
from tests.published import strictly

from virtune.apply.journal import Journal
from virtune.flows.live.diagnose_live import diagnose_named
from virtune.flows.live.prove_live import LiveTest, live_test, prove_turning
from virtune.model.bottleneck import Cause

pytestmark = pytest.mark.xdist_group("libvirt")

_WAIT = "fb f4"
"""sti; hlt: until the clock ticks, 18.2 times a second."""

_READ = "b442 b280 be307c cd13"
"""mov ah,0x42; mov dl,0x80; mov si,packet; int 0x13: the packet asks for one sector, the second, to 0x8000."""

SECONDS = "6"
"""In half of that a busy machine let 28 of 31 I/Os through, which is too far from the limit to accuse it."""

LIMIT = 9
"""Under emulation on a busy host the guest does some sixty, and QEMU lets the next request go 5 ms too late."""

TICKS = 18
"""As many reads a second as a guest makes that waits for its clock."""


def boot_sector(loop: str) -> bytes:
    """Return a boot sector that repeats this for ever."""
    again = bytes.fromhex(loop)
    code = bytes.fromhex("31c0 8ed8") + again + bytes([0xEB, 256 - len(again) - 2])  # ds=0; ...; jmp again
    packet = bytes.fromhex("1000 0100 0080 0000 0100000000000000")
    return (code.ljust(48, b"\0") + packet).ljust(510, b"\0") + b"\x55\xaa"


def reads(daemon: Libvirtd) -> int:
    said = daemon.virsh("domstats", "--block", "reads")
    return int(said.partition("block.0.rd.reqs=")[2].split()[0])


@contextlib.contextmanager
def running(
    daemon: Libvirtd,
    loop: str,
    limit: int = LIMIT,
    cache: str = "none",
    *,
    threads: str = "",
    engine: str = "threads",
) -> Iterator[str]:
    """A VM with this load, and a limit on its running disk alone."""
    image = daemon.home / "reads.raw"
    image.write_bytes(boot_sector(loop).ljust(2**20, b"\x01"))
    driver = f"cache='{cache}' io='{engine}'" + (" iothread='1'" if threads else "")
    daemon.define(DOMAIN.format(name="reads", driver=driver, rest=threads, bus="virtio", target="vda", image=image))
    daemon.virsh("start", "reads")
    daemon.virsh("blkdeviotune", "reads", "vda", "--total-iops-sec", str(limit), "--live")
    try:
        wait_for(lambda: reads(daemon) > 4 * limit)
        yield "reads"
    finally:
        daemon.forget()


@pytest.fixture
def loaded(daemon: Libvirtd) -> Iterator[str]:
    with running(daemon, _READ) as name:
        yield name


def limits(daemon: Libvirtd) -> dict[str, int]:
    said = daemon.virsh("blkdeviotune", "reads", "vda", "--live")
    rows = (line.split(":") for line in said.splitlines() if ":" in line)
    return {name.strip(): int(value) for name, value in rows if value.strip().isdigit() and int(value)}


def proven(user: User, daemon: Libvirtd, *words: str, seconds: int = 4) -> dict[str, Any]:
    ran = user.run(
        "diagnose", "reads", "--connect", daemon.uri, "--seconds", str(seconds), "--prove", *words, "--json"
    )
    (disk,) = strictly(ran.stdout)["disks"]
    found: dict[str, Any] = disk
    return found


@pytest.mark.first
def test_a_limit_is_confirmed_put_back_and_journalled(user: User, daemon: Libvirtd, loaded: str) -> None:
    before = daemon.xml(loaded), daemon.xml(loaded, live=True)
    disk = proven(user, daemon, "--yes")
    assert (disk["bottleneck"]["cause"], disk["proof"]["outcome"]) == ("throttle", "confirmed"), disk
    assert disk["proof"]["change"]["low"] > 1.03
    assert disk["proof"]["rounds"] in (6, 12), "six more where others disturb the first"
    assert limits(daemon) == {"total_iops_sec": LIMIT}
    assert (daemon.xml(loaded), daemon.xml(loaded, live=True)) == before
    assert "reads  undone  disk.throttle_iops@vda=0" in user.run("apply", "undo", "--list").stdout


@pytest.mark.long(always="it takes 18 reads a second to 3 %; what confirms is tried in each run")
def test_a_limit_that_the_load_only_happens_to_meet_is_refuted(user: User, daemon: Libvirtd) -> None:
    with running(daemon, _WAIT + _READ, TICKS):
        disk = proven(user, daemon, "--yes", seconds=30)
        assert (disk["bottleneck"]["cause"], disk["proof"]["outcome"]) == ("throttle", "refuted"), disk
        assert limits(daemon) == {"total_iops_sec": TICKS}


def test_bursts_and_the_size_of_a_request_come_back_too(user: User, daemon: Libvirtd, loaded: str) -> None:
    more = {
        "total_iops_sec_max": 40,
        "total_iops_sec_max_length": 2,
        "size_iops_sec": 4096,
        "read_bytes_sec": 10_000_000,
    }
    words = (word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", str(value)))
    daemon.virsh("blkdeviotune", loaded, "vda", "--total-iops-sec", str(LIMIT), *words, "--live")
    before, xml = limits(daemon), daemon.xml(loaded, live=True)
    assert before == {"total_iops_sec": LIMIT, **more}
    proven(user, daemon, "--yes")
    assert (limits(daemon), daemon.xml(loaded, live=True)) == (before, xml)


@pytest.mark.parametrize(("cache", "native"), [("none", True), ("writethrough", False)])
def test_the_command_that_repeats_its_load_begins_with_the_disk_as_it_is(
    cache: str, native: bool, user: User, daemon: Libvirtd
) -> None:
    with running(daemon, _READ, cache=cache) as name:
        said = user.run("diagnose", name, "--connect", daemon.uri, "--seconds", "2", "-v").stdout
        (command,) = (line for line in said.splitlines() if line.lstrip().startswith("virtune compare --like"))
        plan = user.run(*shlex.split(command)[1:], "--dry-run", exactly=True).stdout
    assert f"disk.cache={cache}" in plan, (command, plan)
    assert ("disk.aio=native" in plan) == native, "which opens files without the page cache only"


@pytest.mark.first
def test_without_consent_nothing_is_lifted(user: User, daemon: Libvirtd, loaded: str) -> None:
    words = ("diagnose", loaded, "--connect", daemon.uri, "--seconds", SECONDS, "--prove")
    refused = user.run(*words, status=2)
    assert "--yes" in refused.stderr
    assert f"total_iops_sec {LIMIT}" in refused.stderr, "what would be done is said first"
    assert limits(daemon) == {"total_iops_sec": LIMIT}
    assert not user.run("apply", "undo", "--list").stdout.strip()


@pytest.mark.parametrize(
    "ends",
    [
        signal.SIGINT,
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long(always="SIGINT, which ends it in the same way")),
    ],
)
def test_whatever_ends_it_the_limit_comes_back(user: User, daemon: Libvirtd, loaded: str, ends: int) -> None:
    words = ("diagnose", loaded, "--connect", daemon.uri, "--seconds", SECONDS, "--prove", "--yes")
    process, deadline = user.start(*words), time.monotonic() + 120
    while limits(daemon):
        assert time.monotonic() < deadline, "it was never lifted"
        if process.poll() is not None:  # a busy machine kept the load from its limit, which is not accused then
            assert process.poll() == 0, process.communicate()
            process = user.start(*words)
        time.sleep(0.05)
    process.send_signal(ends)
    process.wait(60)
    if ends == signal.SIGKILL:
        assert not limits(daemon)
        user.run("apply", "undo")
    assert limits(daemon) == {"total_iops_sec": LIMIT}


def test_what_cannot_be_taken_back_is_named_with_a_test_guest_like_it(
    user: User, daemon: Libvirtd, loaded: str
) -> None:
    daemon.virsh("blkdeviotune", loaded, "vda", "--total-iops-sec", "0", "--live")
    proof = proven(user, daemon, "--yes")["proof"]
    assert proof["outcome"] == "untested"
    assert proof["by_hand"]
    assert not user.run("apply", "undo", "--list").stdout.strip()


THREADS = "<iothreads>1</iothreads><cputune><vcpupin vcpu='0' cpuset='0'/>{}</cputune>"
PINNED = THREADS.format("<emulatorpin cpuset='1'/><iothreadpin iothread='1' cpuset='0'/>")

several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="pins are of several CPUs")


def of_threads(daemon: Libvirtd) -> dict[str, str]:
    """How long the IOThread polls, and on which CPUs a thread may run, by its name."""
    pid, said = daemon.qemu("reads"), daemon.virsh("domstats", "--iothread", "reads")
    found = {"polls": said.partition("poll-max-ns=")[2].split()[0]}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        name = "main" if int(task.name) == pid else (task / "comm").read_text().strip()
        found[name] = status.partition("Cpus_allowed_list:")[2].split()[0]
    # of an idle pool, which end by themselves
    return {name: value for name, value in found.items() if not name.startswith("worker")}


def turned(daemon: Libvirtd, cause: Cause, place: Path) -> tuple[str, list[dict[str, str]]]:
    """Test a cause of which all threads waited for a CPU; returns the arm, and what was seen in the turns."""
    (one,) = diagnose_named(daemon.uri, "reads", disk="vda", seconds=1)
    waiting = tuple(replace(cost, wait_seconds=cost.seconds) for cost in one.path.threads)
    one = replace(one, path=replace(one.path, threads=waiting), found=replace(one.found, cause=cause))
    test, seen = live_test(one, daemon.uri, None), []
    assert isinstance(test, LiveTest), test

    def wait(seconds: float) -> None:
        seen.append(of_threads(daemon))
        time.sleep(min(seconds, 0.2))

    prove_turning(one, test, Journal(place), done=lambda: None, wait=wait)
    return test.one.arm, seen


@several
def test_pins_are_widened_in_turn_and_as_before_at_the_end(daemon: Libvirtd, tmp_path: Path) -> None:
    with running(daemon, _WAIT + _READ, limit=0, threads=PINNED, engine="native") as name:
        before, xml, wide = of_threads(daemon), daemon.xml(name, live=True), f"0-{(os.cpu_count() or 1) - 1}"
        arm, seen = turned(daemon, Cause.HOST_CPU, tmp_path / "journal")
        assert (arm, of_threads(daemon)) == ("unpinned", before)
        # libvirt writes the numbers of IOThreads down as soon as one is pinned
        numbers = re.compile(r"  <iothreadids>.*</iothreadids>\n", re.DOTALL)
        assert numbers.sub("", daemon.xml(name, live=True)) == xml
    apart = [{key: one[key] for key in one if one[key] != before.get(key)} for one in seen]
    assert 2 * apart.count({}) == len(apart) in (24, 48), "two halves of six pairs of turns, or of twelve"
    assert {"IO iothread1": wide}.items() <= max(apart, key=len).items()
    assert all("main" not in one for one in apart), "which serves no disk"


@several
def test_no_pin_is_widened_while_worker_threads_are_started_which_would_keep_it(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    with running(daemon, _WAIT + _READ, limit=0, threads=PINNED):
        arm, seen = turned(daemon, Cause.HOST_CPU, tmp_path / "journal")
    assert arm == "no-polling"
    assert all(one["CPU 0/TCG"] == "0" for one in seen)


@several
def test_a_pin_that_somebody_set_since_is_not_libvirts_to_put_back(daemon: Libvirtd, tmp_path: Path) -> None:
    with running(daemon, _WAIT + _READ, limit=0, threads=PINNED.replace("'0'/>", "'0-1'/>"), engine="native"):
        for task in Path(f"/proc/{daemon.qemu('reads')}/task").iterdir():
            if (task / "comm").read_text().startswith(("IO", "CPU")):
                os.sched_setaffinity(int(task.name), {1})
        arm, seen = turned(daemon, Cause.HOST_CPU, tmp_path / "journal")
    assert arm == "no-polling"
    assert all(one["CPU 0/TCG"] == "1" for one in seen)


def test_an_iothread_that_polls_ceases_to_in_turn(daemon: Libvirtd, tmp_path: Path) -> None:
    with running(daemon, _WAIT + _READ, limit=0, threads="<iothreads>1</iothreads>") as name:
        before, xml = of_threads(daemon), daemon.xml(name, live=True)
        assert before["polls"] == "32768"
        arm, seen = turned(daemon, Cause.IOTHREAD, tmp_path / "journal")
        assert (arm, of_threads(daemon), daemon.xml(name, live=True)) == ("no-polling", before, xml)
    half = len(seen) // 2
    assert half in (12, 24)
    assert sorted(one["polls"] for one in seen) == ["0"] * half + ["32768"] * half


def test_polling_that_was_cut_short_is_put_back(user: User, daemon: Libvirtd, tmp_path: Path) -> None:
    with running(daemon, _WAIT + _READ, limit=0, threads="<iothreads>1</iothreads>"):
        before, journal = of_threads(daemon), tmp_path / "journal"
        child = os.fork()
        if not child:
            turned(daemon, Cause.IOTHREAD, journal)
            os._exit(0)
        deadline = time.monotonic() + 60
        while of_threads(daemon) == before:
            assert time.monotonic() < deadline, "it was never turned"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert of_threads(daemon)["polls"] == "0"
        assert "is as it was before" in user.run("apply", "undo", "last", "--journal", str(journal)).stdout
        assert of_threads(daemon) == before
