# SPDX-License-Identifier: Apache-2.0
"""A check and a sweep end on one screen too: the verdict first, its figures, and what is left out."""

import gzip
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from rich.console import Console, RenderableType
from tests.report.records import record
from tests.report.warned import with_warnings

from virtune.analyse.study.summarise import summarise
from virtune.cli import run
from virtune.flows.live.diagnose import diagnose_study
from virtune.flows.run.check import fitness
from virtune.model.evidence import Listed
from virtune.model.reason import Reason
from virtune.model.remark import Remark, Weight
from virtune.model.result import (
    Fitness,
    GateStanding,
    LoadEstimate,
    LoadPoint,
    LoadSweep,
    Neighbour,
    Reach,
    SliceNoise,
)
from virtune.model.search import Limit, SweepPlan
from virtune.model.study import StudyKind
from virtune.model.text import format_count
from virtune.report.pages.brief import LINES, of_check, of_sweep
from virtune.report.pages.check import earlier_text
from virtune.report.pages.check import render as check_page
from virtune.report.pages.diagnose import DiagnosisScreen, render
from virtune.report.pages.sweep import answer_lines, curve_table
from virtune.store.store import Store

ROOM = 20
KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
WORDS = "a remark of some length that needs more than one line of a terminal that is 80 columns wide"
REMARK = Remark(id="r", weight=Weight.WARNING, text=WORDS, advice=WORDS)


def lines_of(shown: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(shown, crop=False, end="")
    return captured.get().splitlines()


def invented(remarks: int, *, fit: bool) -> Fitness:
    """A check that has everything to say."""
    gate = GateStanding(id="g", label="CPU contention", unit="share", readings=9, median=0.1, worst=0.4, flag=0.05,
                        invalid=0.2, standing="invalid")  # fmt: skip
    slices = tuple(SliceNoise(seconds=n, pairs=40, sd=0.05, blocks_per_minute=9, cost=n) for n in (1, 2, 3, 4))
    return Fitness(
        study="20261122-000000-0000", workload="randread-4k", rig="metal", trials=40, measured_seconds=40.0,
        iops=41234.0,
        window_seconds=0.25, windows_cv=0.04, correlation_seconds=1.5, correlation_open=True, drift=None,
        overhead_seconds=0.5, slices=slices, best_seconds=1.0, confidence=0.95,
        reaches=tuple(Reach(minutes=n, blocks=8 * n, smallest=0.2 / n, at_most=0.3 / n) for n in (1, 5, 15)),
        same=None,
        gates=(gate,) * 12, neighbours=(Neighbour(pid=1, name="fio", cpus=1.5, bandwidth_bps=1e8),) * 30,
        advice=tuple(replace(REMARK, text=f"{WORDS} {n}") for n in range(remarks)),
        unfit=() if fit else ("it drifts", "the A/A test found a difference"),
        earlier=(0.025, 0.05, None),
        unfit_reasons=() if fit else (Reason.ONLY_LARGE_DIFFERENCES, Reason.FALSE_DIFFERENCE),
    )  # fmt: skip


@pytest.mark.parametrize("fit", [True, False])
@pytest.mark.parametrize("remarks", [0, 1, 30])
def test_a_check_is_one_screen_with_its_verdict_first(remarks: int, *, fit: bool) -> None:
    lines = lines_of(of_check(invented(remarks, fit=fit)))
    assert len(lines) <= LINES, "\n".join(lines)
    assert lines[0].startswith("FIT: " if fit else "NOT FIT: ")
    told = "\n".join(lines)
    assert "finds: 20.0 % in 1 min; 4.0 % in 5 min; 1.3 % in 15 min" in told
    assert "20261122-000000-0000" in told
    assert "before 3 such checks here found 2.5 % to 5.0 % in 5 min, 1 told nothing" in " ".join(told.split())
    assert "CPU contention up to " in told
    assert remarks == 0 or "to do: " in told


@pytest.mark.parametrize(
    ("earlier", "said"),
    [
        ((0.05,), "1 such check here found 5.0 % in 5 min"),
        ((0.05, 0.0501), "2 such checks here found 5.0 % in 5 min"),
        ((None, None), "2 such checks here told nothing"),
        ((0.07, None, 0.02, 0.05), "4 such checks here found 2.0 % to 7.0 % in 5 min, 1 told nothing"),
    ],
)
def test_what_earlier_checks_found_is_a_range(earlier: tuple[float | None, ...], said: str) -> None:
    assert earlier_text(earlier) == said


WHOLE_CHECK = """\
NOT FIT: it drifts; the A/A test found a difference
check 20261122-000000-0000  randread-4k on rig=metal, 40 trials, 40 s measured

noise
  IOPS             41.2k
  spread           standard deviation 4.0 % of IOPS over 250 ms each
  autocorrelation  IOPS closer than 1.5 s resemble one another
  before           3 such checks here found 2.5 % to 5.0 % in 5 min, 1 told
                   nothing

minimum detectable effect
  in 1 min                20.0 % (8 pairs of trials)
  in 5 min                4.0 % (40 pairs of trials)
  in 15 min               1.3 % (120 pairs of trials)
  best length of a trial  --seconds 1 (two such trials differ with a standard
                          deviation of 5.0 %; 40 pairs); longer for the same
                          precision: 2 s 2.0x (standard deviation 5.0 %), 3 s
                          3.0x (standard deviation 5.0 %), 4 s 4.0x (standard
                          deviation 5.0 %)
  at 0.95 confidence; found 9 times in 10 by the end of such a comparison

disturbances
  cause           usual  worst  warns above  invalid above  state
  CPU contention   10 %   40 %        5.0 %           20 %  invalid

other processes meanwhile
  fio (1)  1.50 CPUs, 100 MB/s of disk I/O"""


def test_every_figure_of_a_check_stands_on_its_page_and_those_that_matter_on_its_screen() -> None:
    found = invented(0, fit=False)
    found = replace(found, neighbours=(found.neighbours or ())[:1], gates=found.gates[:1], correlation_open=False)
    assert lines_of(check_page(found)) == WHOLE_CHECK.splitlines()
    screen = " ".join(lines_of(of_check(found)))
    assert "best with --seconds 1" in screen
    assert "longer for" not in screen
    alone = replace(found, slices=found.slices[:1])
    assert "longer for" not in " ".join(lines_of(check_page(alone)))


def test_the_kept_check_fits_on_a_screen(tmp_path: Path) -> None:
    place = tmp_path / "kept.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as store:
        found = next(one for one in store.list() if isinstance(one, Listed) and one.study.kind is StudyKind.CHECK)
        checked = fitness(store.get(found.study.id))
    lines = lines_of(of_check(checked))
    assert len(lines) <= LINES
    assert "FIT" in lines[0]


def test_a_diagnosis_of_several_disks_is_one_screen_with_what_limits_each(tmp_path: Path) -> None:
    place = tmp_path / "kept.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as store:
        kept = next(one for one in store.list() if isinstance(one, Listed) and one.study.kind is StudyKind.COMPARE)
        found = diagnose_study(store, kept.study.id)[:1] * 4
    everything = lines_of(render(found))
    assert len(everything) > ROOM
    lines = lines_of(DiagnosisScreen(found=found, lines=ROOM))
    assert len(lines) <= ROOM, "\n".join(lines)
    told = "\n".join(lines)
    assert told.count("what limits it is undecidable") == len(found)
    assert lines[-1].startswith("left out here (-v shows it): ")
    assert "the evidence" in lines[-1]
    shown, ranked = list[str](), False
    for line in everything:  # but for the ranked list, which ends at an empty line
        ranked = line == "what may limit it, the likeliest first" or (ranked and bool(line))
        shown += [] if ranked else [line]
    assert len(shown) < len(everything)
    whole = lines_of(DiagnosisScreen(found=found))
    assert [line for line in whole if line] == [line for line in shown if line]


def swept(loads: int) -> LoadSweep:
    points = tuple(
        LoadPoint(workload="randread-4k", offered=1000.0 * n, achieved=(990.0 * n,), met=n < loads,
                  latency_ns=1e5 * n * n, power=())
        for n in range(1, loads + 1)
    )  # fmt: skip
    knee = LoadEstimate(iops=990.0 * (loads - loads // 4), low=1500.0, high=None)
    top = LoadEstimate(iops=990.0 * loads, low=1.0, high=None)
    study = record(8).study
    return LoadSweep(study=study, finished=False, points=points, saturation=top, knee=knee, most=None, why=())


@pytest.mark.parametrize("seed", range(40))
def test_a_sweep_carries_at_most_no_less_than_one_of_its_loads_achieved(seed: int) -> None:
    """A server that lets bursts through achieves more at one load than at those beyond it."""
    chance = Random(seed)
    known = swept(12)
    points = tuple(replace(one, achieved=(one.offered * chance.uniform(0.3, 1.1),)) for one in known.points)
    mean = chance.uniform(3e3, 12e3)
    top = LoadEstimate(iops=mean, low=None, high=chance.choice((None, mean * 1.1)))
    told = next(answer_lines(replace(known, points=points, saturation=top)))
    best = max(one.iops for one in points)
    assert ("it carries at most" in told) is (best <= (top.high or mean))
    assert "at most" in told or f"one load achieved {format_count(best)}" in told


@pytest.mark.parametrize("loads", [2, 12, 60])
@pytest.mark.parametrize("warnings", [0, 12])
def test_a_sweep_is_one_screen_with_what_it_found_first(loads: int, warnings: int) -> None:
    known, result = swept(loads), summarise(with_warnings(record(8), warnings))
    lines = lines_of(of_sweep(known, result, ""))
    assert warnings or len(lines) <= LINES, "\n".join(lines)
    told = "\n".join(lines)
    assert "not finished" in lines[0]
    assert lines[0].startswith("threads, randread-4k, not finished: saturation: ")
    assert "knee: " in told
    offered = 1000.0 * (loads - loads // 4)
    assert any(line.split()[:1] == [format_count(offered)] for line in lines), "the loads around the knee are shown"
    assert loads < 60 or "more load" in told
    assert warnings == 0 or "warnings: " in told


def test_of_named_loads_each_has_its_row_and_their_order_is_looked_at() -> None:
    known, result = swept(40), summarise(with_warnings(record(8), 12))
    limit = Limit(metric="latency.p99", sense="<=", value=1e6, text="latency.p99<=1ms")
    # 11,000 broke it and 13,000 kept it, as a reader saw; so no load is shown to keep it
    points = [
        replace(one, met=True, excess=((e := -0.1 if one.offered != 11_000 else 0.1),), beyond=e)
        for one in known.points[:13]
    ]
    most = LoadEstimate(iops=13_100.0, low=None, high=23_000.0)
    plan = SweepPlan(limit=limit, loads=tuple(f"{one.offered:.0f}iops" for one in points))
    study = replace(known.study, sweep=plan)
    known = replace(known, study=study, points=tuple(points), most=most)
    told = " ".join(" ".join(lines_of(of_sweep(known, result, ""))).split())
    assert "more load" not in told
    assert all(f" {format_count(one.offered)} {format_count(one.iops)}" in told for one in points)
    assert f"{limit.text} may hold up to 13.1k IOPS [open to 23k]" in told
    assert "loads are out of order: 11k broke the limit and 13k kept it" in told
    known = replace(known, points=tuple(points[:10]), most=replace(most, low=5000.0))
    assert "out of order" not in " ".join(answer_lines(known))
    assert f"{limit.text} holds up to 13.1k" in " ".join(answer_lines(known))


@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_the_load_that_is_claimed_is_among_the_rows(most: int, seed: int) -> None:
    """Whatever the loads beyond it achieved, which may be as much as what is claimed."""
    known, result = swept(12), summarise(record(8))
    at = Random(seed).randrange(1, 11)
    claimed = known.points[at].offered * 1.02
    points = tuple(
        replace(one, achieved=(claimed * 1.0001,), met=False) if number > at else one
        for number, one in enumerate(known.points)
    )
    found = LoadEstimate(iops=claimed, low=known.points[at].offered, high=known.points[at + 1].offered)
    table = curve_table(replace(known, points=points, most=found), result, most)
    assert format_count(known.points[at].offered) in [row[0] for row in table.cells]


@pytest.mark.parametrize(("driven", "says"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_load_generator_without_a_cpu_to_spare_may_be_the_limit(driven: int, says: bool) -> None:
    known = swept(12)
    *met, last = (replace(one, achieved=one.achieved * 3, driven=3) for one in known.points)
    points = (*met, replace(last, achieved=(9000.0,) * 3, met=False, driven=driven))
    told = next(answer_lines(replace(known, points=points, saturation=LoadEstimate(iops=2e4, low=1e4, high=3e4))))
    assert told.endswith("load generator's full CPU may be the limit") is says, "what it used below does not matter"


def test_a_claim_by_single_trials_says_that_it_has_no_interval() -> None:
    known, limit = swept(12), Limit(metric="latency.p99", sense="<=", value=1e6, text="latency.p99<=1ms")
    none = LoadEstimate(iops=6100.0, low=None, high=None)
    known = replace(
        known, study=replace(known.study, sweep=SweepPlan(limit=limit)), most=none, saturation=none, knee=none
    )
    told = list(answer_lines(known))
    assert sum("from single trials: no interval" in line for line in told) == 3
    half = replace(known, most=replace(none, low=5000.0))
    assert "[5,000 to open] (a load beside it has a single trial)" in next(iter(answer_lines(half)))
    twice = tuple(replace(one, achieved=one.achieved * 2) for one in known.points)
    assert "single trial" not in " ".join(answer_lines(replace(known, points=twice)))


def test_no_interval_is_written_with_equal_ends() -> None:
    known = swept(12)
    narrow = LoadEstimate(iops=70_400.0, low=70_390.0, high=70_410.0)
    told = " ".join(answer_lines(replace(known, saturation=narrow, knee=narrow)))
    assert "70.4k to 70.4k" not in told
    assert "its interval is within these digits" in told


def test_without_a_terminal_a_check_and_a_sweep_say_where_the_rest_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--rig", "simulated", "--seed", "1", "--store", str(tmp_path / "s.sqlite")]
    for words in (["host", "check", *where], ["sweep", *where]):
        assert run(words) == 0
        captured = capsys.readouterr()
        brief = captured.out.splitlines()
        assert brief[-1].startswith("next: `virtune show`")
        assert run(["show", "--store", str(tmp_path / "s.sqlite")]) == 0
        whole = capsys.readouterr().out.splitlines()
        assert len(brief) < len(whole), words
        assert run([*words, "-v", "-q"]) == 0
        assert len(capsys.readouterr().out.splitlines()) > len(brief)
