# SPDX-License-Identifier: Apache-2.0
"""One trial, on a rig that is another implementation of the port: what is judged when, and what the rig is told."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.told_load import told_output

from virtune.bench.permission import Held
from virtune.bench.port import Bench, DiskImageSpec, Keep, LoadJob, LoadOutput, Window
from virtune.bench.scratch import Scratch
from virtune.fio.generator import Clients
from virtune.fio.workloads import parse_workload
from virtune.flows.run.trial import Tools, run_trial
from virtune.model.errors import LoadError, NotInForceError
from virtune.model.evidence import Changeover, Check, InForce, to_verify
from virtune.model.facts import Unknown
from virtune.model.remark import UNVERIFIED
from virtune.model.stack import Disk, FileTarget, Stack, Target
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.probe.images import cachestat
from virtune.shell import Warden

STACK = Stack(disk=Disk(aio="io_uring"))
WRONG = Check(setting="disk.aio", asked="io_uring", found="threads", proof="workers are busy")
GOOD = tuple(Check(setting=name, asked="x", found="x", proof="seen") for name in to_verify(STACK))


@dataclass(slots=True, kw_only=True)
class Told:
    """A stack of which all is said beforehand."""

    in_force: InForce
    under_load: tuple[Check, ...] = ()
    fails: str = ""
    target: Target = field(default_factory=lambda: FileTarget(path="/told", size_bytes=2**20))
    processes: Mapping[str, int] = field(default_factory=dict)
    command: str = "told"
    changeover: Changeover | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    loaded: list[tuple[LoadJob, Window]] = field(default_factory=list)

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        self.loaded += [(job, window) for job in jobs]
        keep.capture("seen.txt", "what the rig saw")
        if self.fails:
            raise LoadError(self.fails)
        return LoadOutput(output=told_output(jobs[0].job), log=b"", command="told", checks=self.under_load)


class ToldRig:
    """Gives the stack that it was told to give, and remembers what it was to stand on."""

    def __init__(self, bench: Told) -> None:
        self.bench = bench
        self.grounds: list[DiskImageSpec] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[Bench]:
        self.grounds.append(ground)
        yield self.bench


def study(*, seed: int = 40) -> Study:
    return Study(
        id="told", created="2026-01-02T03:04:05+00:00", kind=StudyKind.MEASURE, arms=(Arm(name="a", stack=STACK),),
        baseline="a", workloads=parse_workload("randread-4k"), rounds=3, seconds=0.05, ramp_seconds=0.01, seed=seed,
        scratch="/nowhere", span_bytes=2**20,
    )  # fmt: skip


def tools(rig: ToldRig, target: Path) -> Tools:
    return Tools(
        programs={},
        clients=Clients(engines=frozenset({"psync"})),
        rigs=rig,
        scratch=Scratch(target.parent, span_bytes=2**20, say=lambda _: None),
        warden=Warden("told"),
        targets={"target": Held(path=target, size_bytes=2**20)},
    )


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "disk.raw"
    path.write_bytes(os.urandom(2**20))
    return path


def cached(path: Path) -> int:
    found = cachestat(path)
    if isinstance(found, Unknown):
        pytest.skip(f"this kernel does not say what the page cache holds: {found.because}")
    return found.cached_bytes


def trial(number: int = 1) -> Trial:
    return Trial(number=number, round=number, arm="a", workload="randread-4k")


def test_what_is_wrong_before_the_load_ends_the_study_before_it_is_loaded(target: Path) -> None:
    bench = Told(in_force=InForce(checks=(*GOOD, WRONG)))
    with pytest.raises(NotInForceError, match="threads is running"):
        run_trial(study(), trial(), tools(ToldRig(bench), target))
    assert bench.loaded == []


def test_what_is_seen_to_be_wrong_under_load_ends_the_study(target: Path) -> None:
    bench = Told(in_force=InForce(checks=GOOD), under_load=(WRONG,))
    with pytest.raises(NotInForceError, match="threads is running"):
        run_trial(study(), trial(), tools(ToldRig(bench), target))
    assert len(bench.loaded) == 1


def test_what_was_not_seen_makes_the_trial_invalid_and_nothing_else(target: Path) -> None:
    blind = tuple(one for one in GOOD if one.setting != "disk.aio")
    bench = Told(in_force=InForce(checks=blind))
    record, _ = run_trial(study(), trial(), tools(ToldRig(bench), target))
    assert record.measurement is not None
    assert record.measurement.causes == (UNVERIFIED.id,)
    seen, _ = run_trial(study(), trial(), tools(ToldRig(Told(in_force=InForce(checks=GOOD))), target))
    assert seen.measurement is not None
    assert UNVERIFIED.id not in seen.measurement.causes


def warmed(path: Path) -> None:
    with path.open("rb") as image:
        os.fsync(image.fileno())
        image.read()
    assert cached(path) > 0


def test_a_target_is_dropped_from_the_page_cache_before_it_is_loaded(target: Path) -> None:
    warmed(target)
    run_trial(study(), trial(), tools(ToldRig(Told(in_force=InForce(checks=GOOD))), target))
    assert cached(target) == 0


def test_our_own_image_is_dropped_from_the_page_cache_before_it_is_loaded(target: Path, warden: Warden) -> None:
    own = tools(ToldRig(Told(in_force=InForce(checks=GOOD))), target)
    with own.scratch as scratch:
        used = replace(own, scratch=scratch, targets={}, warden=warden)
        warmed(scratch.image_for(STACK.disk, warden))
        run_trial(study(), trial(), used)
        assert cached(scratch.image_for(STACK.disk, warden)) == 0


def test_each_round_has_a_seed_of_its_own_that_follows_from_the_study_s(target: Path) -> None:
    bench = Told(in_force=InForce(checks=GOOD))
    used = tools(ToldRig(bench), target)
    for asked, number in ((study(), 1), (study(), 1), (study(), 2), (study(seed=90), 1)):
        run_trial(asked, trial(number), used)
    assert len({job.job.identity for job, _ in bench.loaded}) == 4, "no two loads have one name"
    texts = [job.job.text.replace(job.job.identity, "") for job, _ in bench.loaded]
    assert texts[0] == texts[1]
    assert len({*texts}) == 3
    windows = [(window.seconds, window.ramp_seconds, window.round, window.seed) for _, window in bench.loaded]
    assert windows == [(0.05, 0.01, 1, 40), (0.05, 0.01, 1, 40), (0.05, 0.01, 2, 40), (0.05, 0.01, 1, 90)]


def test_what_a_rig_kept_stays_when_its_load_fails(target: Path) -> None:
    bench = Told(in_force=InForce(checks=GOOD), fails="the disk went away")
    record, captures = run_trial(study(), trial(), tools(ToldRig(bench), target))
    assert (record.measurement, record.failure) == (None, "the disk went away")
    assert "seen.txt" in {one.name for one in captures}
