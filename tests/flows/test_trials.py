# SPDX-License-Identifier: Apache-2.0
"""Trials, attempts and what becomes of a study, on simulated stacks that are told what to show and how to fail."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.store.store_contract import STUDY, WORKLOAD

from virtune.bench.permission import Held
from virtune.bench.port import Bench, DiskImageSpec, Keep, LoadJob, LoadOutput, Window
from virtune.bench.scratch import Scratch
from virtune.bench.simulated import SimulatedBench, SimulatedSession
from virtune.fio.generator import Clients
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.study import resume_study, run_study
from virtune.flows.run.trial import Attempts, Tools, ground_for, run_trial
from virtune.model.errors import Interrupted, LoadError, NotInForceError
from virtune.model.event import Event, TrialStarted
from virtune.model.evidence import Check, InForce
from virtune.model.facts import Unknown
from virtune.model.stack import Disk, Stack, Target
from virtune.model.study import Arm, Study
from virtune.plan.trials import trials
from virtune.probe.images import cachestat
from virtune.shell import Warden
from virtune.store.store import Store

OTHER = Check(setting="disk.aio", asked="threads", found="native", proof="made up")
Change = Callable[[LoadOutput, Window], LoadOutput]


@dataclass(kw_only=True)
class Told:
    """A simulated stack: what its load leaves is changed, and what it was asked is kept."""

    bench: SimulatedBench
    in_force: InForce
    change: Change
    asked: list[tuple[Sequence[LoadJob], Window]]

    def __post_init__(self) -> None:
        self.target: Target = self.bench.target
        self.processes: Mapping[str, int] = {}
        self.seen: Mapping[str, str] = {}
        self.command, self.changeover = self.bench.command, self.bench.changeover

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        self.asked.append((jobs, window))
        return self.change(self.bench.run(jobs, window, keep), window)


@dataclass(kw_only=True)
class Rig:
    """Brings simulated stacks up, with what is said of each before its load and after it."""

    before: tuple[Check, ...] = ()
    change: Change = lambda output, _: output
    asked: list[tuple[Sequence[LoadJob], Window]] = field(default_factory=list)
    real: SimulatedSession = field(default_factory=SimulatedSession)

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[Bench]:
        with self.real.up(stack, ground, restart=restart) as bench:
            seen = InForce(checks=(*bench.in_force.checks, *self.before))
            yield Told(bench=bench, in_force=seen, change=self.change, asked=self.asked)


def simulated(rounds: int = 1, *, scenario: str | None = "exact", arms: str = "ab", **more: object) -> Study:
    """A study of simulated arms, of which the second is faster."""
    engines = ("threads", "io_uring", "native")
    made = tuple(
        Arm(name=name, stack=Stack(rig="simulated", domain=scenario, disk=Disk(aio=engine)))  # type: ignore[arg-type]
        for name, engine in zip(arms, engines, strict=False)
    )
    planned = trials([arm.name for arm in made], [WORKLOAD.name], rounds=rounds, seed=STUDY.seed)
    study = replace(STUDY, arms=made, baseline=made[0].name, rounds=rounds, trials=planned, span_bytes=2**26)
    return replace(study, **more)  # type: ignore[arg-type]


def tools(rig: Rig, directory: Path) -> Tools:
    return Tools(
        programs={},
        clients=Clients(engines=frozenset({"io_uring", "psync"})),
        rigs=rig,
        scratch=Scratch(directory, span_bytes=1, say=lambda _: None),
        warden=Warden("trials"),
    )


def test_a_trial_is_what_it_was_asked_for(tmp_path: Path) -> None:
    study, rig = simulated(), Rig()
    record, captures = run_trial(study, study.trials[0], tools(rig, tmp_path))
    assert record.failure is None
    assert record.measurement is not None
    assert {"fio.json", "iops.log", "job.fio", "rig.txt"} <= {capture.name for capture in captures}
    ((_, window),) = rig.asked
    assert (window.seconds, window.ramp_seconds, window.round) == (study.seconds, study.ramp_seconds, 1)


def test_what_does_not_run_as_asked_is_not_loaded(tmp_path: Path) -> None:
    study, rig = simulated(), Rig(before=(OTHER,))
    with pytest.raises(NotInForceError, match=r"disk\.aio=threads"):
        run_trial(study, study.trials[0], tools(rig, tmp_path))
    assert rig.asked == []


def test_what_is_seen_to_run_otherwise_under_load_is_not_reported(tmp_path: Path) -> None:
    study, rig = simulated(), Rig(change=lambda output, _: replace(output, checks=(*output.checks, OTHER)))
    with pytest.raises(NotInForceError, match=r"disk\.aio=threads"):
        run_trial(study, study.trials[0], tools(rig, tmp_path))
    assert len(rig.asked) == 1


def test_all_arms_of_a_round_read_the_same_places_and_the_next_round_reads_others(tmp_path: Path) -> None:
    study, rig = simulated(rounds=2), Rig()
    for trial in study.trials:
        run_trial(study, trial, tools(rig, tmp_path))
    seeds = [line for jobs, _ in rig.asked for line in jobs[0].job.text.splitlines() if "randseed" in line]
    by_round = {trial.round: seed for trial, seed in zip(study.trials, seeds, strict=True)}
    assert seeds == [by_round[trial.round] for trial in study.trials]
    assert by_round[1] != by_round[2]
    other = Rig()
    run_trial(replace(study, seed=study.seed + 100), study.trials[0], tools(other, tmp_path))
    assert by_round[1] not in other.asked[0][0][0].job.text.splitlines()


@dataclass
class Images(Scratch):
    """Scratch images that are there already."""

    image: Path

    def image_for(self, disk: Disk, warden: Warden, number: int = 0) -> Path:
        return self.image


def warm(directory: Path) -> Path:
    """A file that the page cache holds."""
    path = directory / "disk.raw"
    path.write_bytes(b"x" * 2**22)
    assert cached(path) > 2**21
    return path


def cached(path: Path) -> int:
    found = cachestat(path)
    if isinstance(found, Unknown):
        pytest.skip(f"what the page cache holds cannot be seen here: {found.because}")
    return found.cached_bytes


@pytest.mark.parametrize("kind", ["target", "scratch", "second"])
def test_every_trial_begins_with_a_cold_page_cache(kind: str, tmp_path: Path) -> None:
    path = warm(tmp_path)
    made = tools(Rig(), tmp_path)
    stack = Stack(rig="metal")
    if kind == "target":
        made = replace(made, targets={"target": Held(path=path, size_bytes=2**22)})
    else:
        made = replace(made, scratch=Images(path))
    if kind == "second":
        (tmp_path / "other").mkdir()
        path = warm(tmp_path / "other")
        stack = replace(stack, spread="other")
        made = replace(made, directories={"other": Images(path)})
    ground = ground_for(stack, WORKLOAD, simulated(), made)
    assert path in (ground.image, ground.second)
    assert cached(path) == 0


def attempts(study: Study, rig: Rig, directory: Path) -> tuple[Attempts, Store]:
    store = Store(directory / "store.db")
    with store:
        store.add_study(study, facts="")
    return Attempts(study, tools(rig, directory), store=store, say=lambda _: None), store


def test_what_failed_runs_again_and_every_attempt_is_kept(tmp_path: Path) -> None:
    failures = iter([LoadError("broke"), None])

    def fail_first(output: LoadOutput, _: Window) -> LoadOutput:
        failure = next(failures, None)
        if failure is not None:
            raise failure
        return output

    study = simulated()
    made, store = attempts(study, Rig(change=fail_first), tmp_path)
    record = made.make(study.trials[0])
    assert (record.attempt, record.failure) == (2, None)
    assert [one.failure for one in made.made] == ["broke", None]
    assert [one.failure for one in store.get(study.id).attempts] == ["broke", None]


def test_a_ramp_that_was_found_too_short_is_longer_in_the_rounds_that_follow(tmp_path: Path) -> None:
    def slow_start(output: LoadOutput, window: Window) -> LoadOutput:
        rows = [line.split(b",") for line in output.log.splitlines()]
        slow = [b",".join([row[0], b" %d" % (int(row[1]) // (2 if index < len(rows) // 2 else 1)), *row[2:]])
                for index, row in enumerate(rows)]  # fmt: skip
        return replace(output, log=b"".join(line + b"\n" for line in slow))

    study = simulated(rounds=7, seconds=4.0)
    rig = Rig(change=slow_start)
    made, _ = attempts(study, rig, tmp_path)
    for trial in study.trials:
        made.make(trial)
    ramps = {window.round: window.ramp_seconds for _, window in rig.asked}
    assert {ramps[number] for number in (1, 2, 3, 4, 5)} == {study.ramp_seconds}
    assert {ramps[number] for number in (6, 7)} == {2 * study.ramp_seconds}


LEAVE = Leave()


def test_a_study_that_goes_on_runs_no_finished_trial_again(tmp_path: Path) -> None:
    study = simulated(rounds=4)
    stopped: list[int] = []

    def stop(event: Event) -> None:
        if isinstance(event, TrialStarted):
            stopped.append(event.trial.number)
            if len(stopped) == 4:
                raise KeyboardInterrupt

    with Store(tmp_path / "store.db") as store:
        with pytest.raises(Interrupted, match=r"interrupted in round 2 of 4; 3 trials are stored"):
            run_study(study, store=store, say=stop, leave=LEAVE, facts="")
        stopped.clear()
        more = list[int]()
        resume_study(store.get(study.id), store=store, say=lambda event: more.append(number(event)), leave=LEAVE)
        kept = store.get(study.id)
    assert [one for one in more if one] == [4, 5, 6, 7, 8]
    assert [one.attempt for one in kept.attempts] == [1] * 8
    assert kept.finished


def number(event: Event) -> int:
    return event.trial.number if isinstance(event, TrialStarted) else 0


def sequential(**more: object) -> Study:
    """Two arms that do not differ and are noisy: more rounds decide nothing soon."""
    study = simulated(rounds=200, scenario="noisy", arms="ab", sequential=True, **more)
    same = replace(study.arms[1], stack=study.arms[0].stack)
    first = tuple(trial for trial in study.trials if trial.round == 1)
    return replace(study, arms=(study.arms[0], same), trials=first)


def test_what_is_proposed_is_kept_before_it_runs(tmp_path: Path) -> None:
    study, seen = sequential(budget_seconds=3.0), 0
    with Store(tmp_path / "store.db") as store:

        def look(event: Event) -> None:
            nonlocal seen
            if isinstance(event, TrialStarted) and event.trial.round > 1:
                seen += 1
                if event.trial not in store.get(study.id).study.trials:
                    raise AssertionError(event)

        run_study(study, store=store, say=look, leave=LEAVE, facts="")
    assert seen > 2


def test_a_study_ends_within_its_budget(tmp_path: Path) -> None:
    study = sequential(budget_seconds=0.5)
    with Store(tmp_path / "store.db") as store:
        run_study(study, store=store, say=lambda _: None, leave=LEAVE, facts="")
        kept = store.get(study.id)
    assert 1 <= kept.study.rounds_begun < 150
