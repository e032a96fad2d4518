# SPDX-License-Identifier: Apache-2.0
"""While a comparison runs it says what it still waits for: pairs and conditions."""

import contextlib
import io
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.report.records import record

from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import judge
from virtune.cli.common.output import Clean
from virtune.cli.common.progress import (
    FORETOLD_FROM,
    Face,
    LiveBlock,
    Recorded,
    place_text,
    round_line,
    rounds_left_text,
)
from virtune.model.event import Noticed, RoundJudged, StepStarted, TrialEnded, TrialPlace, TrialStarted
from virtune.model.reason import Reason
from virtune.model.study import Trial
from virtune.model.verdict import Verdict
from virtune.plan.goal import parse_conditions
from virtune.store.progress import ProgressFile, RunProgress, run_of


def test_after_a_round_it_says_how_many_pairs_and_conditions_are_decided() -> None:
    kept = record(12)
    rulings = rule(kept, parse_conditions(["iops < -3%", "cpu_per_io > +5%"]))
    assert round_line(12, judge(kept), rulings) == "round 12: 1 of 1 pairs decided, 1 of 2 conditions"
    assert round_line(12, judge(kept), ()) == "round 12: 1 of 1 pairs decided"


def test_a_trial_s_place_is_in_its_round_and_no_total_is_promised_that_may_not_come() -> None:
    trial = Trial(number=10, round=3, arm="a", workload="w")
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=6), "about ") == "round 3 of 6, trial 2 of 4"
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=37), "at most about ") == (
        "round 3 of at most 37, trial 2 of 4"
    )
    assert place_text(trial, TrialPlace(number=2, of=4, rounds=None), "about ") == "round 3, trial 2 of 4"


def test_a_run_notes_when_it_said_something_last_and_how_long_it_may_be_silent(tmp_path: Path) -> None:
    """By this a fleet knows a study that hangs from one that goes on."""
    study, store = record(2).study, tmp_path / "s.sqlite"
    trial = Trial(number=1, round=1, arm="a", workload="w")
    beats = [time.time()]
    with Recorded(lambda _: None, store=store, study=study) as recorded:
        for event in (
            StepStarted(what="filling"),
            TrialStarted(trial=trial, place=TrialPlace(number=1, of=2, rounds=3), seconds_left=9.0),
            TrialEnded(trial=trial, place=TrialPlace(number=1, of=2, rounds=3), summary="done"),
        ):
            recorded(event)
            run = run_of(store, study.id)
            assert run is not None
            assert not run.hangs(time.time())
            assert 3 * (study.seconds + study.ramp_seconds) < run.quiet_seconds < 3600
            beats.append(run.beat)
            assert replace(run, beat=time.time() - run.quiet_seconds - 1).hangs(time.time())
    assert sorted(set(beats)) == beats
    assert beats[-1] <= time.time()


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Face(quiet=True) as face:
        face(Noticed(text="trial 1 is repeated"))
        face(StepStarted(what="filling"))
    assert capsys.readouterr() == ("", "")
    with Face() as face:
        face(Noticed(text="trial 1 is repeated"))
    assert "trial 1 is repeated" in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_live_line_says_the_time_left_how_many_pairs_are_decided_and_what_runs(width: int) -> None:
    kept = record(12)
    block = LiveBlock(now="round 3 of 6, trial 2 of 4: randread-4k, native", total=24, again=5, verdicts=judge(kept))
    block.rulings = rule(kept, parse_conditions(["cpu_per_io > +5%"]))
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(block)
    (line,) = captured.get().splitlines()
    assert len(line) <= width
    assert line.startswith("1 of 1 pairs decided; 0 of 1 condition")
    assert width < 80 or "5 repeated; round 3 of 6, trial 2 of 4" in line


@pytest.mark.parametrize(("left", "told"), [(9.0, "25 %, about 9.0 s left"), (None, "25 %")])
def test_a_step_says_how_long_it_still_takes_where_that_is_known(left: float | None, told: str) -> None:
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(LiveBlock(step=("reading", 0.25), step_left=left))
    assert captured.get().rstrip().endswith(told)


def test_a_round_s_line_names_the_workload_of_the_pair_that_has_the_longest_to_go() -> None:
    (pair,) = judge(record(12))
    open_ = [replace(pair, workload=name, verdict=Verdict.UNDECIDED, rounds_left=3) for name in ("reads", "writes")]
    told = round_line(12, [*open_[:1], replace(open_[1], rounds_left=1)], (), 30)
    assert told.endswith(" (reads), perhaps by round 15 (a guess from 12 rounds)")


def test_of_too_few_rounds_a_line_has_no_interval_that_looks_like_a_verdict_s() -> None:
    (few,), (enough,) = (judge(record(rounds)) for rounds in (4, 12))
    open_ = replace(enough, verdict=Verdict.UNDECIDED, rounds_left=2)
    assert few.reason is Reason.TOO_FEW
    assert few.ratio is not None
    told = round_line(4, [replace(few, rounds_left=2)], (), 90)
    assert "native against threads, " in told
    assert told.endswith(" % so far"), "nor a forecast, which 249 rounds more were of one that the next round decided"
    assert "[" in round_line(12, [open_], ())


@pytest.mark.parametrize("ahead", [None, 0, 1, 2, 10, 500, 5000])
@pytest.mark.parametrize("left", [1, 2, 3, 11, 249, 501, 4000])
@pytest.mark.parametrize("rounds", [4, 6, 11, 12, 13, 40])
def test_a_forecast_is_within_the_plan_and_of_enough_rounds_or_is_none(
    rounds: int, left: int, ahead: int | None
) -> None:
    (pair,) = judge(record(12))
    open_ = replace(pair, verdict=Verdict.UNDECIDED, rounds=rounds, rounds_left=left)
    told = rounds_left_text(open_, 50, ahead)
    if rounds < FORETOLD_FROM or ahead == 0:
        assert not told
    elif ahead is not None and left > ahead:
        assert (
            told
            == f"may take more than the {ahead:,} round{'s' if ahead > 1 else ''} left (a guess from {rounds} rounds)"
        )
    elif left > 500:
        assert told == "too noisy to estimate"
    else:
        assert told == f"perhaps by round {50 + left} (a guess from {rounds} rounds)"
    assert not rounds_left_text(replace(open_, rounds_left=None), 50, ahead)


def test_what_a_run_keeps_of_a_pair_has_the_same_forecast_as_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pair,) = judge(record(12))
    study, store = record(12).study, tmp_path / "s.sqlite"
    open_ = replace(pair, verdict=Verdict.UNDECIDED, rounds_left=249)
    with Face() as face, Recorded(face, store=store, study=study) as recorded:
        recorded(RoundJudged(round=12, verdicts=(open_,), seconds_left=9.0, ahead=20))
        run = run_of(store, study.id)
    assert run is not None
    assert run.pairs[0].left == "may take more than the 20 rounds left (a guess from 12 rounds)"
    assert f", {run.pairs[0].left}; about 9.0 s left" in capsys.readouterr().err


def test_a_log_has_a_line_for_each_round_and_for_each_trial_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for verbose in (False, True):
        with Face(verbose=verbose) as face:  # pytest's stderr is no terminal
            for number in (1, 2):
                trial = Trial(number=number, round=1, arm="a", workload="w")
                face(Noticed(text="trial 1 is repeated", of_trial=True))
                face(TrialEnded(trial=trial, place=TrialPlace(number=number, of=2, rounds=6), summary="IOPS 12"))
            face(RoundJudged(round=1, verdicts=judge(record(12)), rulings=(), seconds_left=9.0))
        said.append(capsys.readouterr().err.splitlines())
    last = [
        "round 1 of 6, trial 2 of 2  w  a: IOPS 12",
        "round 1: 1 of 1 pairs decided, 2 repeated; about 9.0 s left",
    ]
    assert said[0] == last
    assert len(said[1]) == 5
    assert said[1][-2:] == last


@pytest.mark.parametrize("rounds", [None, 6])
def test_a_run_without_looks_says_at_each_round_s_end_how_long_is_left(
    rounds: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a sweep, whose rounds become more as it goes."""
    trial, place = Trial(number=1, round=1, arm="a", workload="w"), TrialPlace(number=1, of=1, rounds=rounds)
    with Face() as face:
        face(TrialStarted(trial=trial, place=place, seconds_left=600.0))
        face(TrialEnded(trial=trial, place=place, summary="IOPS 12"))
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"IOPS 12; about (10|9) min [0-9]+ s left$", line)
    assert ("of 6" in line) is (rounds is not None)


def test_without_utf_8_drawings_are_ascii() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    console = Console(file=file, width=80)
    console.print(Clean("├──●──┤ │ ≥ 4 µs caf\u00e9"), end="")
    file.flush()
    assert raw.getvalue().decode().split("\n")[0] == "|--o--| : >= 4 us caf?"


def test_what_is_told_of_a_run_stays_whole_on_a_full_disk(tmp_path: Path) -> None:
    """Else it would be taken for a run that is over."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        with ProgressFile(small / "s.sqlite", "s1") as file:
            file.write(RunProgress(study="s1", title="before"))
            with contextlib.suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
                while filler.write(b"x" * 512):
                    pass
            file.write(RunProgress(study="s1", title="after", now="x" * 20_000))
            found = run_of(small / "s.sqlite", "s1")
            assert found is not None
            assert found.title == "before"
    finally:
        subprocess.run(["umount", str(small)], check=True)
