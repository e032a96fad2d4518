# SPDX-License-Identifier: Apache-2.0
"""A simulated study goes the way of any other, and every output of it says that it is simulated."""

import json
import re
from pathlib import Path

import pytest

from virtune.cli import run
from virtune.flows.run.question import Question, study_for
from virtune.flows.run.study import shows
from virtune.model.study import StudyKind

RESULT = Path(__file__).parents[1] / "captures" / "fio" / "plain.json"


def called(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    found = run(list(words))
    said = capsys.readouterr()
    assert found == status, said.err
    return said.out


def compared(tmp_path: Path, *more: str) -> list[str]:
    words = ["compare", "--rig", "simulated", "--vary", "disk.aio=threads,io_uring", "--rounds", "8", "--seed", "3"]
    return [*words, "--store", str(tmp_path / "store.sqlite"), "-q", *more]


def test_every_output_of_a_simulated_study_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ("--store", str(tmp_path / "store.sqlite"))
    report, page, cases = tmp_path / "report.txt", tmp_path / "page.md", tmp_path / "cases.xml"
    files = ("--report", str(report), "--markdown", str(page), "--junit", str(cases), "--fail-if", "iops < -5%")
    text = called(capsys, *compared(tmp_path, *files))
    assert "SIMULATED compare" in text
    assert "warnings: simulated: no disk was measured" in text
    for file in (report, page, cases):
        assert "SIMULATED compare" in file.read_text(), file
    listed = called(capsys, "show", "list", *store)
    assert "SIMULATED compare" in listed
    html = tmp_path / "page.html"
    called(capsys, "show", "report", "last", "-o", str(html), *store)
    assert "SIMULATED compare" in html.read_text()
    assert html.read_text().count("SIMULATED: invented figures, no disk was measured") > 1, "every picture says so"
    documents = [called(capsys, "show", "last", "--json", *store), called(capsys, "show", "list", "--json", *store)]
    result, listing = (json.loads(text) for text in documents)
    assert result["study"]["id"].endswith("-sim")
    assert listing["studies"][0]["id"].endswith("-sim")
    for arm in result["arms"]:
        assert arm["stack"]["rig"] == "simulated"
        assert "simulated" in [remark["id"] for remark in arm["workloads"][0]["remarks"]]
    raw = called(capsys, "show", "last", "--trial", "1", "--capture", "fio.json", *store)
    assert json.loads(raw)["fio version"] == "simulated"


def test_a_run_foretells_no_more_than_its_plan_has_and_nothing_of_few_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log said `about 249 rounds more`, and the next round decided it."""
    words = ["compare", "--rig", "simulated", "--vary", "disk.discard=unmap,ignore", "--rounds", "16"]
    assert run([*words, "--margin", "0.001", "--seed", "3", "--store", str(tmp_path / "store.sqlite")]) == 0
    lines = [one for one in capsys.readouterr().err.splitlines() if ": 0 of 1 pairs decided" in one]
    assert [one.partition(":")[0] for one in lines] == [f"round {number}" for number in range(6, 17)]
    for number, line in enumerate(lines, 6):
        left = re.search(r"may take more than the (\d+) rounds? left \(a guess from (\d+) rounds\)", line)
        assert (left is not None) == (12 <= number < 16), line
        assert left is None or (int(left[1]), int(left[2])) == (16 - number, number)


def test_a_known_difference_is_found_and_its_settings_are_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(called(capsys, *compared(tmp_path, "--json")))
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] == "better"
    assert 1.18 < comparison["ratio"]["estimate"] < 1.27
    seen = {check["setting"]: check["agrees"] for check in found["arms"][1]["in_force"]}
    assert seen["disk.aio"] is True


def test_it_needs_no_program_no_scratch_and_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    called(capsys, *compared(tmp_path, "--rounds", "2", "--seconds", "10m", "--scratch", str(scratch)))
    assert not scratch.exists()


def test_a_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "disk.raw"
    target.write_bytes(bytes(2**20))
    assert run(compared(tmp_path, "--target", str(target))) == 3
    assert "takes no --target" in capsys.readouterr().err


def test_help_does_not_offer_it(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("compare", "measure", "tune", "check"):
        assert "simulated" not in called(capsys, verb, "--help")


def test_simulated_figures_are_compared_within_their_study_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called(capsys, *compared(tmp_path))
    called(capsys, *compared(tmp_path))
    store = ("--store", str(tmp_path / "store.sqlite"))
    listed = json.loads(called(capsys, "show", "list", "--json", *store))["studies"]
    first, second = (study["id"] for study in listed)
    shown = json.loads(called(capsys, "show", first, "--json", *store))
    arms = [f"{first}:{arm['name']}" for arm in shown["arms"]]
    measured = tmp_path / "measured.json"
    measured.write_text(RESULT.read_text())
    other = f"{second}:{shown['arms'][0]['name']}"
    for beside in (str(measured), other):
        assert run(["compare", arms[0], beside, "--different-jobs", *store]) == 2
        said = capsys.readouterr().err
        assert f"{arms[0]} is simulated" in said
        assert "compare arms of this one study with each other" in said
    assert "SIMULATED compare" in called(capsys, "compare", *arms, *store)


def test_arms_chosen_afterwards_share_the_error_of_all_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called(capsys, *compared(tmp_path, "--vary", "disk.cache=none,writeback"))
    store = ("--store", str(tmp_path / "store.sqlite"))
    arms = [f"last:{arm['name']}" for arm in json.loads(called(capsys, "show", "last", "--json", *store))["arms"]]
    assert len(arms) == 4
    two = json.loads(called(capsys, "compare", arms[1], arms[2], "--json", *store))
    assert two["study"]["confidence"] == pytest.approx(1 - 0.05 / 6)
    assert two["comparisons"][0]["ratio"]["confidence"] >= 1 - 0.05 / 6 - 1e-9
    said = called(capsys, "compare", arms[1], arms[2], *store)
    assert "chosen after it ran: the error of 0.05 is shared among all 6 pairs of its arms" in " ".join(said.split())
    whole = json.loads(called(capsys, "compare", *arms, "--json", *store))
    assert whole["study"]["confidence"] == 0.95
    other = json.loads(called(capsys, "compare", arms[1], arms[0], *arms[2:], "--json", *store))
    assert other["study"]["confidence"] == pytest.approx(1 - 0.05 * 3 / 6), "another baseline is a choice too"


def test_a_simulated_search_takes_no_time_of_its_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its slices would take 53 s if they ran: what is forecast, and what is refused, goes by the clock."""
    words = ("--vary", "disk.aio=threads,io_uring", "--confirm", "2", "--budget", "10s", "--seed", "3")
    page, store = tmp_path / "page.html", str(tmp_path / "store.sqlite")
    code = run(["tune", "--rig", "simulated", *words, "--store", store, "--report", str(page)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "at most about 2." in said.err.splitlines()[0]
    left = [float(found) for found in re.findall(r"about ([0-9.]+) s left", said.err)]
    assert left
    assert max(left) < 2
    assert "against the baseline, on fresh data" in said.out
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_a_simulated_sweep_and_a_budget_of_a_simulated_comparison_go_by_the_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six trials of 2 s would take 17 s if they ran, and a round of two arms 6 s; a busy host doubles a forecast."""
    store = ("--store", str(tmp_path / "store.sqlite"))
    assert run(["sweep", "--rig", "simulated", "--loads", "50%,100%", "--rounds", "2", *store]) == 0
    said = capsys.readouterr().err
    told = [float(found) for found in re.findall(r"^about ([0-9.]+) s", said, re.MULTILINE)]
    assert len(told) > 1
    assert max(told) < 5
    assert run(["compare", "--rig", "simulated", "--arm", "a:", "--arm", "b:", "--budget", "2s", "-q", *store]) == 0


@pytest.mark.parametrize(
    ("arms", "rounds", "said"),
    [
        (2, 5, "too few rounds to show a difference: 5; 6 are the minimum for a verdict"),
        (2, 6, "6 rounds find differences of about "),
        (3, 4, "too few rounds to show a difference: 4; 5 are the minimum for a verdict"),
        (3, 5, "5 rounds find differences of about "),
    ],
)
def test_a_plan_says_beforehand_what_it_detects_and_whether_it_can_decide(
    arms: int, rounds: int, said: str, tmp_path: Path
) -> None:
    named = tuple(f"{name}:rig=simulated" for name in "abc"[:arms])
    study = study_for(Question(kind=StudyKind.COMPARE, arms=named, rounds=rounds, scratch=tmp_path))
    assert shows(study, rounds).startswith(said)
    assert study.rounds_begun == min(rounds, study.fewest_rounds), "so many are run before the first look"


def test_a_difference_that_is_decided_in_few_rounds_says_so_by_one_sentence_in_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, html, store = tmp_path / "page.md", tmp_path / "page.html", ("--store", str(tmp_path / "store.sqlite"))
    words = ["compare", "--arm", "a:rig=simulated", "--arm", "b:rig=simulated,disk.aio=io_uring", "--rounds", "40"]
    screen = called(capsys, *words, "-q", "--seed", "3", "--markdown", str(page), *store)
    text = called(capsys, "show", "last", *store)
    (verdict,) = json.loads(called(capsys, "show", "last", "--json", *store))["comparisons"]
    called(capsys, "show", "report", "last", "-o", str(html), *store)
    assert verdict["reason"] == "few-rounds"
    sentence = verdict["why"]
    assert re.fullmatch(
        r"decided in [6-9] rounds \([0-9.]+ s of load\): what changes more slowly, or happens more rarely, is not"
        r" excluded; a second run tells",
        sentence,
    )
    for one, places in ((screen, 1), (text, 1), (page.read_text(), 2), (html.read_text(), 2)):
        plain = " ".join(one.split())
        assert plain.count(sentence) == places, "once with the finding, once with the proof that is folded"
        assert "no interval shows what" not in plain, "one sentence is enough"
