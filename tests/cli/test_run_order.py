# SPDX-License-Identifier: Apache-2.0
"""Folders of fio results whose files tell when each run ended: the order is said, runs in turn are paired by it, and
a drift is not called a difference of what was compared.
"""

import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kept_results import Capture, Kept
from tests.cli.timed_runs import BEGUN, timed
from tests.published import complaints, strictly

IN_BLOCKS, IN_TURN = "AAAAAABBBBBB", "ABABABABABAB"
LIMIT = ("--fail-if", "iops < -3%")


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def said(kept: Kept, sides: tuple[str, str], *words: str, status: int = 0) -> str:
    return " ".join(kept("compare", *sides, *words, status=status).split())


def judged(kept: Kept, sides: tuple[str, str], *words: str, status: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    document = strictly(kept("compare", *sides, "--json", *words, status=status))
    assert complaints("result", document) == []
    (verdict,) = document["comparisons"]
    return document, verdict


def test_a_drift_that_explains_a_difference_is_no_regression(kept: Kept, tmp_path: Path) -> None:
    sides = timed(tmp_path, IN_BLOCKS, step=0.98)
    document, verdict = judged(kept, sides, *LIMIT, status=5)
    assert (verdict["verdict"], verdict["reason"]) == ("undecided", "run-drift")
    assert document["conditions"][0]["reason"] == "run-drift"
    assert document["study"]["order"] == "one-after-the-other"
    drift = verdict["drift"]
    assert drift["per_run"] == pytest.approx(-0.02, abs=1e-4)
    assert drift["low"] <= drift["per_run"] <= drift["high"] < 0
    assert drift["carried"] == pytest.approx(0.98**6, abs=1e-3)
    assert drift["rest"]["estimate"] == pytest.approx(1, abs=1e-3)
    shown = said(kept, sides, *LIMIT, status=5)
    assert "undecided, -11.4 % [-15.6, +0.0]" in shown
    assert "IOPS within A and within B changed by -2.0 % [-2.0, -2.0] a run, in order of time" in shown
    assert "that alone makes -11.4 % of the -11.4 % between them, and leaves +0.0 %" in shown
    assert "take turns (A, B, A, B, ...)" in shown
    assert "more runs narrow it" not in shown


def test_what_a_drift_does_not_explain_is_still_a_verdict(kept: Kept, tmp_path: Path) -> None:
    sides = timed(tmp_path, IN_BLOCKS, step=0.98, of_arm={"B": 0.7}, noise=0.003)
    document, verdict = judged(kept, sides, *LIMIT, status=4)
    assert verdict["verdict"] == "worse"
    assert verdict["drift"]["rest"]["estimate"] == pytest.approx(0.7, abs=0.01)
    assert verdict["ratio"]["low"] < 0.7 * 0.98**6 < 0.7 <= verdict["ratio"]["high"] + 0.01
    assert "% of the -37.9 % between them, and leaves -29." in said(kept, sides)
    # between what the runs show and what is left of it, their order does not tell
    document, _ = judged(kept, sides, "--fail-if", "iops < -35%", status=5)
    assert document["conditions"][0]["reason"] == "run-drift"


def test_without_a_drift_a_difference_is_as_before(kept: Kept, tmp_path: Path) -> None:
    sides = timed(tmp_path, IN_BLOCKS, of_arm={"B": 0.9}, noise=0.01)
    document, verdict = judged(kept, sides, *LIMIT, status=4)
    assert (verdict["verdict"], verdict["drift"], document["study"]["paired"]) == ("worse", None, False)
    assert "measured elsewhere, one after the other; no setting was verified" in said(kept, sides)


def test_three_runs_of_a_side_show_no_drift(kept: Kept, tmp_path: Path) -> None:
    _, verdict = judged(kept, timed(tmp_path, "AAABBBBB", step=0.98))
    assert (verdict["reason"], verdict["drift"]) == ("too-few", None)


def test_runs_taken_in_turn_are_paired_by_their_times_and_their_drift_is_in_both(kept: Kept, tmp_path: Path) -> None:
    """-2 % from each run to the next is -2 % in each pair, and 0 once the one place between the two is taken out."""
    sides = timed(tmp_path / "alike", IN_TURN, step=0.98)
    document, verdict = judged(kept, sides)
    assert (document["study"]["order"], document["study"]["paired"]) == ("taken-in-turn", True)
    assert (verdict["verdict"], verdict["rounds"], document["basis"]["unit"]) == ("same", 6, "round")
    assert verdict["ratio"]["estimate"] == pytest.approx(1, abs=1e-3)
    shown = said(kept, sides)
    assert "measured elsewhere, taken in turn and paired by their times; no setting was verified" in shown
    assert "a run, in order of time; that is taken out of their difference" in shown
    other = timed(tmp_path / "slower", IN_TURN, step=0.98, of_arm={"B": 0.95}, noise=0.002)
    _, verdict = judged(kept, other, *LIMIT, status=4)
    assert verdict["verdict"] == "worse"
    assert verdict["ratio"]["low"] < 0.95 < verdict["ratio"]["high"] < 0.97


def test_a_round_is_the_next_run_of_each_whatever_the_files_are_called(kept: Kept, tmp_path: Path) -> None:
    """The files of B are numbered against the order of time: the host that slows down by half is in no pair."""
    last = {2 * turn + 1: {"timestamp": BEGUN + 60 * (11 - 2 * turn), "timestamp_ms": None} for turn in range(6)}
    sides = timed(tmp_path, IN_TURN, times=last, of_arm={"B": 0.95}, noise=0.002)
    document, _ = judged(kept, sides)
    rounds = {arm["name"]: [one["round"] for one in arm["rounds"]] for arm in document["arms"]}
    assert rounds == {"A": [1, 2, 3, 4, 5, 6], "B": [6, 5, 4, 3, 2, 1]}


@pytest.mark.parametrize(
    ("order", "words", "paired"),
    [
        ("ABBAABBAABBA", "taken in turn and paired by their times", True),
        ("ABBAABAB", "taken in turn;", False),
        ("ABABABABABABA", "taken in turn;", False),
        ("AABBAABBAABB", "not in turn;", False),
        ("BBBBBBAAAAAA", "one after the other;", False),
    ],
)
def test_the_order_is_said(kept: Kept, tmp_path: Path, order: str, words: str, paired: bool) -> None:
    sides = timed(tmp_path, order, noise=0.01)
    assert f"measured elsewhere, {words}" in said(kept, sides)
    document, _ = judged(kept, sides)
    assert document["study"]["paired"] is paired
    assert "in turn" in said(kept, sides, "-v") or "one after the other" in said(kept, sides, "-v")


HOSTILE: dict[str, dict[str, object]] = {
    "missing": {"timestamp": None, "timestamp_ms": None},
    "equal": {"timestamp": BEGUN, "timestamp_ms": BEGUN * 1000},
    "future": {"timestamp": 9_000_000_000, "timestamp_ms": 9_000_000_000_000},
    "beyond any year": {"timestamp": 2**63, "timestamp_ms": 2**63},
    "negative": {"timestamp": -5, "timestamp_ms": -5000},
    "zero": {"timestamp": 0, "timestamp_ms": 0},
    "text": {"timestamp": "yesterday", "timestamp_ms": "noon"},
    "a list": {"timestamp": [1], "timestamp_ms": {}},
    "not finite": {"timestamp": math.nan, "timestamp_ms": math.inf},
}


@pytest.mark.parametrize("told", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("order", [IN_BLOCKS, IN_TURN])
def test_times_that_cannot_be_tell_no_order(kept: Kept, tmp_path: Path, order: str, told: dict[str, object]) -> None:
    sides = timed(tmp_path, order, step=0.98, times={5: told})
    document, verdict = judged(kept, sides)
    assert (document["study"]["order"], document["study"]["paired"]) == ("order-not-known", False)
    assert verdict["drift"] is None
    assert "measured elsewhere, order not known; no setting was verified" in said(kept, sides)


def test_kept_results_show_the_same_as_files(kept: Kept, tmp_path: Path) -> None:
    sides = timed(tmp_path, IN_BLOCKS, step=0.98)
    kept("explain", "import", *sides, "--arm", "A", "--arm", "B", "--quiet")
    document = kept.document("last")
    assert document["study"]["order"] == "one-after-the-other"
    assert document["comparisons"][0]["reason"] == "run-drift"
    _, verdict = judged(kept, ("last:A", sides[1]))
    assert verdict["reason"] == "run-drift"


def test_three_arms_take_turns_too(kept: Kept, tmp_path: Path) -> None:
    timed(tmp_path, "ABCBCA" * 3, of_arm={"C": 0.9}, noise=0.005)
    words = [str(tmp_path / arm) for arm in "ABC"]
    document = strictly(kept("compare", *words, "--json"))
    assert (document["study"]["order"], document["study"]["paired"]) == ("taken-in-turn", True)
    assert [one["rounds"] for one in document["comparisons"]] == [6, 6, 6]


def test_of_many_arms_a_few_drifts_are_told(kept: Kept, tmp_path: Path) -> None:
    timed(tmp_path, "AAAABBBBCCCCDDDD", step=0.98, noise=0.001)
    shown = " ".join(kept("compare", *(str(tmp_path / arm) for arm in "ABCD")).split())
    assert shown.count("a run, in order of time") == 3
    assert "drift: 3 more pairs of arms changed so from run to run" in shown
