# SPDX-License-Identifier: Apache-2.0
"""`virtune diagnose --prove` of a QEMU without a libvirt: polling and pins are turned in turn, and put back."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import User
from tests.guests.loaded import JOB, Loaded, loading, null
from tests.published import strictly

from virtune.apply.journal import Entry, Journal, Step
from virtune.bench.live.monitor import monitored
from virtune.flows.live.diagnose_live import diagnose_monitor
from virtune.flows.live.prove_live import LiveTest, live_test, prove_turning
from virtune.flows.live.turnable import ThreadEndedError, put_back, turn
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.errors import PreconditionError
from virtune.model.verdict import Proof, ProofReason

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

POLLS = "/objects/io1"

pinning = pytest.mark.skipif(
    os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2,
    reason="pins of others' threads are root's, of several CPUs",
)


@contextlib.contextmanager
def serving(tmp_path: Path, poll: int = 0, job: str = f"{JOB}rate_iops=2000\n") -> Iterator[Loaded]:
    """A QEMU whose IOThread serves a disk."""
    nodes = ["-object", f"iothread,id=io1,poll-max-ns={poll}", *null(0)]
    with loading(tmp_path, nodes, job, ",iothread=io1") as vm:
        yield vm


def iothread(vm: Loaded) -> int:
    (found,) = (one for one in Path(f"/proc/{vm.pid}/task").iterdir() if "IO io1" in (one / "comm").read_text())
    return int(found.name)


def first_among(pid: int, nice: int) -> None:
    """Where the kernel shares its CPUs between sessions, nice is a word between the processes of one."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


@pytest.fixture
def starved(tmp_path: Path) -> Iterator[Loaded]:
    """A QEMU whose IOThread copies much, and may only run on a CPU on which three busy loops run too."""
    cpu = min(os.sched_getaffinity(0))
    with serving(tmp_path, job=JOB.replace("bs=4k", "bs=256k")) as vm, contextlib.ExitStack() as ends:
        os.sched_setaffinity(iothread(vm), {cpu})
        first_among(vm.pid, -5)
        for _ in range(3):
            words = ["nice", "-n", "-5", "taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]
            loop = subprocess.Popen(words, start_new_session=True)
            ends.callback(loop.wait)
            ends.callback(loop.kill)
            first_among(loop.pid, -13)
        yield vm


def words(vm: Loaded) -> tuple[str, ...]:
    return ("diagnose", "--qmp", str(vm.socket), "--seconds", "5", "--prove", "--yes")


@pinning
@pytest.mark.first
def test_a_pin_that_holds_an_iothread_from_a_free_cpu_is_confirmed_and_put_back(user: User, starved: Loaded) -> None:
    before = os.sched_getaffinity(iothread(starved))
    tested = user.run(*words(starved), "--json")
    (disk,) = strictly(tested.stdout)["disks"]
    assert (disk["bottleneck"]["cause"], disk["proof"]["arm"]) == ("host-cpu", "unpinned"), disk
    assert disk["proof"]["outcome"] == "confirmed", disk["proof"]
    assert f"iothread:io1: CPU {min(before)}" in tested.stderr
    assert os.sched_getaffinity(iothread(starved)) == before
    assert "undone  iothread.pin@iothread:io1=" in user.run("apply", "undo", "--list").stdout


@pinning
@pytest.mark.parametrize(
    "ends",
    [
        signal.SIGINT,
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long(always="SIGINT, which ends it in the same way")),
    ],
)
def test_whatever_ends_it_the_pin_comes_back(user: User, starved: Loaded, ends: int) -> None:
    thread, deadline = iothread(starved), time.monotonic() + 120
    before, process = os.sched_getaffinity(thread), user.start(*words(starved))
    while os.sched_getaffinity(thread) == before:
        assert time.monotonic() < deadline, "it was never widened"
        if process.poll() is not None:  # a busy machine had another cause accused
            assert process.poll() == 0, process.communicate()
            process = user.start(*words(starved))
        time.sleep(0.02)
    process.send_signal(ends)
    process.wait(60)
    if ends == signal.SIGKILL:
        assert os.sched_getaffinity(thread) > before
        assert "it has iothread.pin=" in user.run("apply", "undo", "--show").stdout
        assert "is as it was before" in user.run("apply", "undo").stdout
    assert os.sched_getaffinity(thread) == before


def accused(vm: Loaded, cause: Cause, *, waiting: bool = False) -> Diagnosis:
    """What is seen of a QEMU, with this for its cause, and with threads that waited for a CPU all the time."""
    (one,) = diagnose_monitor(vm.socket, seconds=1)
    threads = tuple(replace(cost, wait_seconds=cost.seconds) for cost in one.path.threads)
    path = replace(one.path, threads=threads) if waiting else one.path
    return replace(one, path=path, found=replace(one.found, cause=cause))


def polls(vm: Loaded) -> int:
    with monitored(vm.socket) as view:
        return int(view.monitor.execute("qom-get", {"path": POLLS, "property": "poll-max-ns"}))


def turning(vm: Loaded, cause: Cause) -> LiveTest:
    found = live_test(accused(vm, cause), None, vm.socket)
    assert isinstance(found, LiveTest), found
    return replace(found, turn_seconds=0.1)


@pytest.mark.parametrize(
    ("start", "cause", "arm", "meanwhile"),
    [
        (0, Cause.RING, "polling", 1_000_000),
        (20_000, Cause.IOTHREAD, "no-polling", 0),
        (20_000, Cause.HOST_CPU, "no-polling", 0),
    ],
)
def test_an_iothread_polls_in_turn_and_as_before_at_the_end(
    tmp_path: Path, start: int, cause: Cause, arm: str, meanwhile: int
) -> None:
    seen: list[int] = []
    with serving(tmp_path, start) as vm:

        def wait(seconds: float) -> None:
            seen.append(polls(vm))
            time.sleep(min(seconds, 0.1))

        diagnosis, journal = accused(vm, cause), Journal(tmp_path / "journal")
        proof = prove_turning(diagnosis, turning(vm, cause), journal, done=lambda: None, wait=wait).proof
        assert proof is not None
        assert proof.arm == arm
        half = len(seen) // 2
        assert half in (12, 24), "two halves of six pairs of turns, or of twelve"
        assert sorted(seen) == sorted([start, meanwhile] * half)
        assert polls(vm) == start
    (entry,) = journal.entries()
    assert (entry.steps[-1], entry.turns[0].at) == (Step.UNDONE, "iothread:io1")


def cut_short(test: LiveTest, journal: Journal) -> Entry:
    """Leave what a test leaves that was killed while it was turned."""
    with journal.alone():
        entry = journal.begin(
            name="20260101-000000", uri=test.vm.place, uuid=test.vm.uuid, domain=test.vm.name, turns=test.one.turns,
            live=test.one.pairs, before=b"x", after=b"x",
        )  # fmt: skip
        journal.step(entry, Step.LIVE)
    with test.vm.watched() as view:
        turn(partial(test.vm.say, view), test.one.pairs, back=False)
    return entry


def test_polling_that_was_cut_short_is_put_back_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with serving(tmp_path) as vm:
        test = turning(vm, Cause.RING)
        entry = cut_short(test, journal)
        assert polls(vm) == 1_000_000
        with pytest.raises(PreconditionError, match="was cut short"):
            prove_turning(accused(vm, Cause.RING), test, journal, done=lambda: None, wait=time.sleep)
        assert "is as it was before" in put_back(entry, journal)
        assert polls(vm) == 0
        assert "was put back before" in put_back(entry, journal)


def test_a_vm_that_ends_in_a_turn_leaves_nothing_to_put_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with serving(tmp_path) as vm:
        diagnosis, test = accused(vm, Cause.RING), turning(vm, Cause.RING)

        def end(_: float) -> None:
            os.kill(vm.pid, signal.SIGKILL)
            time.sleep(1)

        with pytest.raises(PreconditionError):
            prove_turning(diagnosis, test, journal, done=lambda: None, wait=end)
    assert [entry.open for entry in journal.entries()] == [False]


@pytest.mark.parametrize(("start", "cause"), [(20_000, Cause.RING), (0, Cause.IOTHREAD), (0, Cause.HOST_CPU)])
def test_what_is_so_already_is_left_with_a_test_guest_like_it(tmp_path: Path, start: int, cause: Cause) -> None:
    with serving(tmp_path, start) as vm:
        found = live_test(accused(vm, cause, waiting=True), None, vm.socket)
    assert isinstance(found, Proof)
    assert found.reason is ProofReason.NOT_OURS
    assert "--its-load" in found.by_hand


def said(test: LiveTest, *, back: bool, **other: Any) -> None:
    """Have the QEMU do what a test says, but for these words of it."""
    name, text = test.one.pairs[0][0]
    words = name, json.dumps(json.loads(text) | other)
    with test.vm.watched() as view:
        turn(partial(test.vm.say, view), [(words, words)], back=back)


@pinning
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with serving(tmp_path) as vm:
        with pytest.raises(PreconditionError, match=r"QEMU refused `qom-set`.*nobody"):
            said(turning(vm, Cause.RING), back=False, path="/objects/nobody")
        os.sched_setaffinity(iothread(vm), {min(os.sched_getaffinity(0))})
        found = live_test(accused(vm, Cause.HOST_CPU, waiting=True), None, vm.socket)
        assert isinstance(found, LiveTest)
        with pytest.raises(ThreadEndedError, match="has ended"):
            said(found, back=False, began="1")
        said(found, back=True, began="1")
        with pytest.raises(PreconditionError, match="cannot be given the CPUs 4095"):
            said(found, back=False, cpus="4095")
