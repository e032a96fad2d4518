# SPDX-License-Identifier: Apache-2.0
"""A load that is stopped in mid-trial: told from a slow one, with evidence, and the rest of the study is measured."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import SPAN, eventually

from virtune.bench.guests import session
from virtune.bench.qemu import GuestBench
from virtune.bench.rig import Ground, Session
from virtune.bench.scratch import Scratch
from virtune.flows.attempt import Attempts
from virtune.flows.question import Question, study_for
from virtune.flows.study import finished_result
from virtune.flows.trial import Tools, run_trial
from virtune.model.event import Event
from virtune.model.stack import Stack
from virtune.model.verdict import Verdict
from virtune.plan.exported import Clients
from virtune.shell import Warden, find
from virtune.store.sqlite import Store

pytestmark = [pytest.mark.real, pytest.mark.beside, pytest.mark.xdist_group("guests")]


class StoppingOnce:
    """The rig, in whose first stack the load is stopped as soon as it has done something."""

    def __init__(self, rig: Session) -> None:
        self._rig = rig
        self.stopped: list[bool] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: Ground, *, restart: bool = False) -> Iterator[GuestBench]:
        with self._rig.up(stack, ground, restart=restart) as bench:
            assert isinstance(bench, GuestBench)
            if not self.stopped:
                self.stopped.append(False)
                threading.Thread(target=self._stop, args=(bench,), daemon=True).start()
            yield bench

    def _stop(self, bench: GuestBench) -> None:
        def done(*words: str) -> bool:
            return bench.vm.guest.run(words, timeout_seconds=20).status == 0

        much = '$3 == "vda" && $4 > 1000 { found = 1 } END { exit !found }'
        if eventually(lambda: done("awk", much, "/proc/diskstats"), seconds=60):
            self.stopped[0] = done("killall", "-STOP", "fio")


def test_a_load_that_is_stopped_ends_in_evidence_and_the_rest_is_measured(
    tmp_path: Path, scratch_directory: Path, warden: Warden
) -> None:
    said: list[Event] = []
    asked = Question(
        kind="compare", rig="qemu", arms=("a:", "b:disk.aio=native"), rounds=1, seconds=1.5, ramp=0.2,
        span=SPAN, scratch=scratch_directory, seed=1,
    )  # fmt: skip
    study, facts = study_for(asked)
    with (
        Store(tmp_path / "store.sqlite") as store,
        Scratch(scratch_directory, span_bytes=SPAN, say=said.append) as scratch,
        session(warden) as rig,
    ):
        stopping = StoppingOnce(rig)
        tools = Tools(
            programs={"fio": find("fio")}, clients=Clients(engines=frozenset({"libaio", "io_uring", "psync"})),
            rigs=stopping, scratch=scratch, warden=warden, target=None, target_bytes=SPAN,
        )  # fmt: skip
        store.add_study(study, facts=facts)
        first, captures = run_trial(study, study.trials[0], tools)
        assert stopping.stopped == [True]
        assert "completed nothing for 15 s: it is stuck" in str(first.failure)
        kept = {capture.name: capture.content for capture in captures}
        trouble = kept["trouble.txt"].decode()
        assert '"running": true' in trouble, "QEMU is well"
        assert "rd_operations" in trouble
        assert kept["guest-counters.jsonl"].count(b"\n") > 10, "a look a second while nothing moved"
        store.add_trial(study.id, first, captures)
        attempts = Attempts(study, tools, store=store, say=said.append)
        again = [attempts.make(trial) for trial in study.trials]
        assert again[0].attempt >= 2
        assert all(record.measurement is not None for record in again)
        result = finished_result(store, study.id)
        assert [(one.candidate, one.verdict) for one in result.verdicts] == [("b", Verdict.UNDECIDED)]
