# SPDX-License-Identifier: Apache-2.0
"""A load that is stopped, or loses its QEMU, in mid-trial: with evidence, and the rest of the study is measured."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import SPAN, bare_guest, eventually

from virtune.bench.port import DiskImageSpec, Session, Surroundings
from virtune.bench.qemu.load import CarriedBench, GuestBench
from virtune.bench.qemu.rig import session
from virtune.bench.scratch import Scratch
from virtune.bench.verify import cpu_of
from virtune.fio.generator import Clients
from virtune.flows.run.question import Question, facts_text, study_for
from virtune.flows.run.study import finished_result
from virtune.flows.run.trial import Attempts, Tools, run_trial
from virtune.model.evidence import Capture, TrialRecord
from virtune.model.result import Result
from virtune.model.stack import Stack
from virtune.model.study import Study, StudyKind
from virtune.model.verdict import Verdict
from virtune.shell import Warden, find
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


class Hurting:
    """The rig, in whose first stacks something is done to the guest as soon as its load has done something."""

    def __init__(self, rig: Session, hurts: Sequence[Callable[[CarriedBench], bool]]) -> None:
        self._rig, self._left = rig, list(hurts)
        self.hurt: list[bool] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[CarriedBench]:
        with self._rig.up(stack, ground, restart=restart) as bench:
            assert isinstance(bench, CarriedBench)
            if self._left:
                words = (bench, self._left.pop(0), loaded(bench))
                threading.Thread(target=self._once_under_load, args=words, daemon=True).start()
            yield bench

    def _once_under_load(
        self, bench: CarriedBench, hurt: Callable[[CarriedBench], bool], loaded: Callable[[], bool]
    ) -> None:
        if eventually(loaded, seconds=60):
            self.hurt.append(hurt(bench))


def loaded(bench: CarriedBench) -> Callable[[], bool]:
    """What says whether a load has done something since now."""
    if isinstance(bench, GuestBench):
        much = '$3 == "vda" && $4 > 1000 { found = 1 } END { exit !found }'
        return lambda: done(bench, "awk", much, "/proc/diskstats")
    before = used(bench)
    return lambda: used(bench) > before + 200_000_000  # a bare guest stands still until its load begins


def used(bench: CarriedBench) -> int:
    """The CPU time of a QEMU in ns."""
    return sum(cpu_of(bench.process).values())


def done(bench: GuestBench, *words: str) -> bool:
    return bench.vm.guest.run(words, timeout_seconds=120).status == 0


def stop_fio(bench: CarriedBench) -> bool:
    assert isinstance(bench, GuestBench)
    return done(bench, "killall", "-STOP", "fio")


def kill_qemu(bench: CarriedBench) -> bool:
    os.kill(bench.vm.child.pid, signal.SIGKILL)
    return True


@dataclass(frozen=True)
class Asked:
    """A study in guests, and what runs and keeps its trials."""

    study: Study
    tools: Tools
    store: Store
    hurting: Hurting

    def run(self, number: int) -> tuple[TrialRecord, tuple[Capture, ...]]:
        """Run a trial and keep it."""
        record, captures = run_trial(self.study, self.study.trials[number], self.tools)
        self.store.add_trial(self.study.id, record, captures)
        return record, captures

    def run_again(self) -> Result:
        """Run all trials again, as a study goes on after failures, and return its result."""
        attempts = Attempts(self.study, self.tools, store=self.store, say=lambda event: None)
        again = [attempts.make(trial) for trial in self.study.trials]
        assert all(record.attempt >= 2 for record in again)
        assert all(record.measurement is not None for record in again)
        return finished_result(self.store, self.study.id)[1]


@contextlib.contextmanager
def asked(
    place: Path, scratch_directory: Path, warden: Warden, system: str, hurts: Sequence[Callable[[CarriedBench], bool]]
) -> Iterator[Asked]:
    """A study of two arms, in whose first trials something is done to the guest."""
    question = Question(
        kind=StudyKind.COMPARE, rig="qemu", arms=("a:", "b:disk.aio=native"), rounds=1, seconds=1.5, ramp=0.2,
        span=SPAN, scratch=scratch_directory, seed=1, settings=(f"guest.system={system}",),
    )  # fmt: skip
    study = study_for(question)
    with (
        Store(place / "store.sqlite") as store,
        Scratch(scratch_directory, span_bytes=SPAN, say=lambda event: None) as scratch,
        session(study.arms[0].stack, Surroundings(warden=warden, scratch=scratch_directory)) as rig,
    ):
        hurting = Hurting(rig, hurts)
        tools = Tools(
            programs={"fio": find("fio")}, clients=Clients(engines=frozenset({"libaio", "io_uring", "psync"})),
            rigs=hurting, scratch=scratch, warden=warden,
        )  # fmt: skip
        store.add_study(study, facts=facts_text(scratch_directory))
        yield Asked(study, tools, store, hurting)


def test_a_guest_that_is_killed_under_its_load_ends_in_evidence_and_the_rest_is_measured(
    tmp_path: Path, scratch_directory: Path, warden: Warden
) -> None:
    bare_guest()
    with asked(tmp_path, scratch_directory, warden, "bare", (kill_qemu,)) as found:
        record, captures = found.run(0)
        assert "was killed by SIGKILL" in str(record.failure)
        assert '"trouble": "qemu-system-x86_64 was killed by SIGKILL' in trouble(captures)
        assert found.hurting.hurt == [True]
        other, _ = found.run(1)
        assert other.measurement is not None


@pytest.mark.long(always="one is killed in each run, above, and truth/test_bare.py has a disk that completes nothing")
def test_a_load_that_breaks_off_ends_in_evidence_and_the_rest_is_measured(
    tmp_path: Path, scratch_directory: Path, warden: Warden
) -> None:
    # Linux, whose fio is what is stopped
    with asked(tmp_path, scratch_directory, warden, "linux", (stop_fio, kill_qemu)) as found:
        first, of_first = found.run(0)
        assert "completed nothing for 15 s: it is stuck" in str(first.failure)
        assert '"running": true' in trouble(of_first)
        assert "rd_operations" in trouble(of_first)
        assert looks(of_first) > 10, "a look a second while nothing moved"
        second, of_second = found.run(1)
        assert "was killed by SIGKILL" in str(second.failure)
        assert '"trouble": "qemu-system-x86_64 was killed by SIGKILL' in trouble(of_second)
        assert looks(of_second) > 1
        assert found.hurting.hurt == [True, True]
        result = found.run_again()
        assert [(one.candidate, one.verdict) for one in result.verdicts] == [("b", Verdict.UNDECIDED)]


def kept(captures: Sequence[Capture], name: str) -> bytes:
    return next(one.content for one in captures if one.name == name)


def trouble(captures: Sequence[Capture]) -> str:
    return kept(captures, "trouble.txt").decode()


def looks(captures: Sequence[Capture]) -> int:
    return kept(captures, "guest-counters.jsonl").count(b"\n")
