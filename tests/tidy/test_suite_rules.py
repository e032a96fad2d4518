# SPDX-License-Identifier: Apache-2.0
"""The rules of the whole run are kept, and a run that breaks one is told."""

import ast
from pathlib import Path

import pytest
from tests.suite_rules import EXPECTED_SKIPS, RERUN_ONCE, RERUNS_MAX, SuiteRules

ROOT = Path(__file__).parents[2]


def report(name: str, outcome: str, *, seconds: float = 0.5, why: str = "no such disk") -> pytest.TestReport:
    made = pytest.TestReport(
        nodeid=name,
        location=("test.py", 1, name),
        keywords={},
        outcome="skipped" if outcome == "skipped" else "passed",
        longrepr=("test.py", 1, why) if outcome == "skipped" else None,
        when="call",
        duration=seconds,
    )
    made.outcome = outcome  # type: ignore[assignment]  # rerunfailures has an outcome that pytest does not know
    return made


def test_a_skip_that_nobody_expects_breaks_a_run_that_is_to_skip_nothing() -> None:
    rules = SuiteRules()
    rules.pytest_runtest_logreport(report("tests/a.py::test_one[x]", "skipped"))
    assert rules.broken(skips_allowed=True) == []
    assert rules.broken(skips_allowed=False) == ["tests/a.py::test_one[x] was skipped: no such disk"]


def test_a_few_reruns_are_let_pass_and_more_are_not() -> None:
    rules = SuiteRules()
    for number in range(RERUNS_MAX):
        rules.pytest_runtest_logreport(report(f"test_{number}", "rerun"))
    assert rules.broken(skips_allowed=False) == []
    rules.pytest_runtest_logreport(report("test_last", "rerun"))
    assert "4 tests ran twice, and 3 may" in rules.broken(skips_allowed=False)[0]


def test_durations_are_added_over_a_test_s_phases_and_sorted(tmp_path: Path) -> None:
    rules = SuiteRules()
    for name, seconds in (("quick", 0.1), ("slow", 2.0), ("slow", 1.0)):
        rules.pytest_runtest_logreport(report(name, "passed", seconds=seconds))
    rules.write_durations(tmp_path / "durations.tsv")
    assert (tmp_path / "durations.tsv").read_text() == "3.00\tslow\n0.10\tquick\n"


@pytest.mark.parametrize("name", [*RERUN_ONCE, *EXPECTED_SKIPS])
def test_every_named_test_exists_and_has_a_reason(name: str) -> None:
    path, _, function = name.partition("::")
    names = {
        node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef)
    }
    assert function in names
    assert (RERUN_ONCE | EXPECTED_SKIPS)[name]


def test_those_who_may_run_twice_are_a_handful() -> None:
    assert len(RERUN_ONCE) <= 6
