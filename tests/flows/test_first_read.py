# SPDX-License-Identifier: Apache-2.0
"""Which images a study reads once before its first trial, and what is kept and said of it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analyse.threshold_studies import study as kept_study
from tests.conftest import CALM, SPAN, User
from tests.plan.forecast_studies import METAL, study_on

from virtune.bench.scratch import Scratch
from virtune.fio.generator import Clients
from virtune.flows.run.prepare import resumed
from virtune.flows.run.trial import ReadingProgress, Tools, before_seconds, reads_first
from virtune.model.event import Event, StepEnded, StepProgressed, StepStarted
from virtune.model.stack import During, Stack
from virtune.model.study import FirstRead
from virtune.plan.trials import TimedStudy, first_read_seconds_max, seen_of
from virtune.report.pages.study import first_read_lines
from virtune.shell import Warden
from virtune.store.store import Store

MIB = 1024**2
SHORT = (*CALM, "--rig", "metal", "--rounds", "1", "--seconds", "200ms", "--ramp", "0s", "--json")
UNLIMITED = ("--workload", "rw=randread,bs=4k,iodepth=4")
READ = FirstRead(images=1, size_bytes=1024 * MIB, read_bytes=1024 * MIB, seconds=2.1)


@pytest.mark.real
@pytest.mark.once
def test_an_image_of_an_earlier_run_is_read_and_one_that_was_just_written_is_not(tmp_path: Path, user: User) -> None:
    user = User(user.home, tmp_path / "scratch", once=True)
    assert user.run("compare", "measure", *SHORT).json()["study"]["first_reads"] == []
    (again,) = user.run("compare", "measure", *SHORT).json()["study"]["first_reads"]
    known = {"images": 1, "size_bytes": SPAN, "read_bytes": SPAN, "after": 0, "why": ""}
    assert {key: again[key] for key in known} == known
    assert again["seconds"] > 0
    assert "the scratch image was read once before the first trial (64 MiB in " in user.run("show", "last").stdout
    page = user.home / "page.html"
    user.run("show", "report", "last", "-o", str(page))
    assert "was read once before the first trial" in page.read_text()
    (left,) = user.run("compare", "measure", *SHORT, "--set", "host.cache=as-found").json()["study"]["first_reads"]
    assert (left["read_bytes"], left["why"]) == (0, "an arm measures caches as they are found (host.cache=as-found)")
    (swept,) = user.run("sweep", *UNLIMITED, *SHORT[2:], "--loads", "500iops").json()["study"]["first_reads"]
    assert swept["read_bytes"] == SPAN


@pytest.mark.real
@pytest.mark.once
def test_of_a_target_what_trials_load_is_read(user: User) -> None:
    target = user.home / "target"
    target.write_bytes(os.urandom(16 * MIB))
    words = ("compare", "measure", *SHORT, "--scratch", str(user.scratch), "--target", str(target), "--span", "8M")
    (read,) = user.run(*words, exactly=True).json()["study"]["first_reads"]
    assert (read["images"], read["size_bytes"], read["read_bytes"]) == (1, 8 * MIB, 8 * MIB)


def test_a_study_that_goes_on_reads_again_and_keeps_both(tmp_path: Path) -> None:
    record = kept_study([1.0, 2.0], [1.0, 2.0])
    record = replace(record, study=replace(record.study, first_reads=(READ,)))
    tools = Tools(
        programs={},
        clients=Clients(engines=frozenset()),
        rigs=None,  # type: ignore[arg-type]
        scratch=Scratch(tmp_path, span_bytes=1, say=lambda _: None),
        warden=Warden("first-read"),
    )
    with Store(tmp_path / "store.sqlite") as store:
        store.add_study(record.study, facts="")
        assert resumed(record, tools, store) == record
        found = resumed(record, replace(tools, first_read=replace(READ, seconds=1.0)), store)
        assert found.study.first_reads == (READ, replace(READ, seconds=1.0, after=len(record.trials)))
        assert store.get(record.study.id).study == found.study
    assert [*first_read_lines(found.study)] == [
        "the scratch image was read once before the first trial (1 GiB in 2.1 s)",
        f"the scratch image was read once when it went on after {len(record.trials)} trials (1 GiB in 1.0 s)",
    ]


def test_what_was_not_read_is_said() -> None:
    part = replace(READ, images=2, read_bytes=300 * MIB, why="the 5 s for it were over")
    none = replace(READ, read_bytes=0, why="its filesystem does not allow direct I/O")
    found = replace(study_on(METAL), first_reads=(part, none))
    assert [*first_read_lines(found)] == [
        "the 2 images were read once before the first trial (300 MiB of 1 GiB, then the 5 s for it were over)",
        "the scratch image was not read before the first trial: its filesystem does not allow direct I/O",
    ]


def test_nothing_is_read_where_things_are_measured_as_found_or_not_at_all() -> None:
    assert reads_first(study_on(METAL, Stack(cache_state="warm")))
    assert not reads_first(study_on(METAL, Stack(cache_state="as-found")))
    assert not reads_first(study_on(Stack(rig="simulated")))
    assert not reads_first(replace(study_on(METAL), connect="qemu:///system"))


def test_a_reading_may_take_a_share_of_the_time_and_is_forecast(tmp_path: Path) -> None:
    asked = replace(study_on(METAL), budget_seconds=300.0)
    assert first_read_seconds_max(asked) == 30.0
    assert first_read_seconds_max(replace(asked, budget_seconds=1.0)) == 5.0
    assert first_read_seconds_max(replace(asked, budget_seconds=36000.0)) == 60.0
    large = replace(asked, target=str(tmp_path / "disk"), span_bytes=5 * 10**9)
    as_found = replace(large, arms=tuple(replace(arm, stack=Stack(cache_state="as-found")) for arm in large.arms))
    assert before_seconds(large) - before_seconds(replace(large, span_bytes=1)) == pytest.approx(10.0)
    assert before_seconds(as_found) == before_seconds(replace(as_found, span_bytes=1))
    endless = replace(large, span_bytes=10**15)
    assert before_seconds(endless) - before_seconds(replace(large, span_bytes=1)) == pytest.approx(30.0)


@pytest.mark.parametrize(("during", "images"), [("none", 1), ("backup", 2)])
def test_the_copy_of_a_block_job_is_filled_and_not_read(during: During, images: int, tmp_path: Path) -> None:
    asked = replace(study_on(Stack(rig="qemu", during=during)), scratch=str(tmp_path), span_bytes=10**9)
    plain = replace(study_on(Stack(rig="qemu")), scratch=str(tmp_path), span_bytes=10**9)
    filled, of_one = (before_seconds(one) - before_seconds(replace(one, span_bytes=1)) for one in (asked, plain))
    assert filled == pytest.approx(images * of_one)


def test_what_an_earlier_study_read_is_no_cost_of_its_rig() -> None:
    attempts = tuple(("arm0", 20.0 + 4 * number) for number in range(5))
    plain = TimedStudy(study=study_on(METAL), attempts=attempts, filled=False)
    read = replace(plain, study=replace(plain.study, first_reads=(replace(READ, seconds=6.0),)))
    (before,), (after,) = (seen_of([one]).ready.values() for one in (plain, read))
    assert before - after == pytest.approx(6.0)


def test_a_reading_is_shown_with_the_time_left_where_it_takes_longer_than_two_seconds() -> None:
    said: list[Event] = []
    quick = ReadingProgress(1024 * MIB, 30.0, said.append)
    quick.heard(0.3, 0.5)
    quick.end()
    assert said == []
    slow = ReadingProgress(1024 * MIB, 30.0, said.append)
    slow.heard(0.02, 0.1)  # too early to tell
    slow.heard(0.1, 1.0)
    slow.heard(0.1, 29.0)
    slow.end()
    what = "reading 1 GiB of disk once (at most 30 s)"
    begun, soon, late, over = said
    assert (begun, over) == (StepStarted(what=what), StepEnded(what=what))
    assert isinstance(soon, StepProgressed)
    assert isinstance(late, StepProgressed)
    assert [soon.seconds_left, soon.fraction] == pytest.approx([9.0, 0.1])
    assert [late.seconds_left, late.fraction] == pytest.approx([1.0, 29 / 30])
