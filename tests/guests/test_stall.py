# SPDX-License-Identifier: Apache-2.0
"""A load that is stopped, or loses its QEMU, in mid-trial: with evidence, and the rest of the study is measured."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.conftest import SPAN, eventually

from virtune.bench.port import DiskImageSpec, Session, Surroundings
from virtune.bench.qemu.guests import session
from virtune.bench.qemu.rig import GuestBench
from virtune.bench.scratch import Scratch
from virtune.fio.exported import Clients
from virtune.flows.run.attempt import Attempts
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.study import finished_result
from virtune.flows.run.trial import Tools, run_trial
from virtune.model.event import Event
from virtune.model.evidence import Capture
from virtune.model.stack import Stack
from virtune.model.study import StudyKind
from virtune.model.verdict import Verdict
from virtune.shell import Warden, find
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


class Hurting:
    """The rig, in whose first stacks something is done to the guest as soon as its load has done something."""

    def __init__(self, rig: Session, hurts: Sequence[Callable[[GuestBench], bool]]) -> None:
        self._rig, self._left = rig, list(hurts)
        self.hurt: list[bool] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[GuestBench]:
        with self._rig.up(stack, ground, restart=restart) as bench:
            assert isinstance(bench, GuestBench)
            if self._left:
                words = (bench, self._left.pop(0))
                threading.Thread(target=self._once_under_load, args=words, daemon=True).start()
            yield bench

    def _once_under_load(self, bench: GuestBench, hurt: Callable[[GuestBench], bool]) -> None:
        much = '$3 == "vda" && $4 > 1000 { found = 1 } END { exit !found }'
        if eventually(lambda: done(bench, "awk", much, "/proc/diskstats"), seconds=60):
            self.hurt.append(hurt(bench))


def done(bench: GuestBench, *words: str) -> bool:
    return bench.vm.guest.run(words, timeout_seconds=20).status == 0


def stop_fio(bench: GuestBench) -> bool:
    return done(bench, "killall", "-STOP", "fio")


def kill_qemu(bench: GuestBench) -> bool:
    os.kill(bench.vm.child.pid, signal.SIGKILL)
    return True


def test_a_load_that_breaks_off_ends_in_evidence_and_the_rest_is_measured(
    tmp_path: Path, scratch_directory: Path, warden: Warden
) -> None:
    said: list[Event] = []
    asked = Question(
        kind=StudyKind.COMPARE, rig="qemu", arms=("a:", "b:disk.aio=native"), rounds=1, seconds=1.5, ramp=0.2,
        span=SPAN, scratch=scratch_directory, seed=1,
        settings=("guest.system=linux",),  # its fio is what is stopped
    )  # fmt: skip
    study, facts = study_for(asked)
    with (
        Store(tmp_path / "store.sqlite") as store,
        Scratch(scratch_directory, span_bytes=SPAN, say=said.append) as scratch,
        session(study.arms[0].stack, Surroundings(warden=warden, scratch=scratch_directory)) as rig,
    ):
        hurting = Hurting(rig, (stop_fio, kill_qemu))
        tools = Tools(
            programs={"fio": find("fio")}, clients=Clients(engines=frozenset({"libaio", "io_uring", "psync"})),
            rigs=hurting, scratch=scratch, warden=warden, target=None,
        )  # fmt: skip
        store.add_study(study, facts=facts)
        first, of_first = run_trial(study, study.trials[0], tools)
        assert "completed nothing for 15 s: it is stuck" in str(first.failure)
        assert '"running": true' in trouble(of_first)
        assert "rd_operations" in trouble(of_first)
        assert looks(of_first) > 10, "a look a second while nothing moved"
        second, of_second = run_trial(study, study.trials[1], tools)
        assert "was killed by SIGKILL" in str(second.failure)
        assert '"trouble": "qemu-system-x86_64 was killed by SIGKILL' in trouble(of_second)
        assert looks(of_second) > 1
        assert hurting.hurt == [True, True]
        store.add_trial(study.id, first, of_first)
        store.add_trial(study.id, second, of_second)
        attempts = Attempts(study, tools, store=store, say=said.append)
        again = [attempts.make(trial) for trial in study.trials]
        assert all(record.attempt >= 2 for record in again)
        assert all(record.measurement is not None for record in again)
        _, result = finished_result(store, study.id)
        assert [(one.candidate, one.verdict) for one in result.verdicts] == [("b", Verdict.UNDECIDED)]


def kept(captures: Sequence[Capture], name: str) -> bytes:
    return next(one.content for one in captures if one.name == name)


def trouble(captures: Sequence[Capture]) -> str:
    return kept(captures, "trouble.txt").decode()


def looks(captures: Sequence[Capture]) -> int:
    return kept(captures, "guest-counters.jsonl").count(b"\n")
