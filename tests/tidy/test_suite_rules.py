# SPDX-License-Identifier: Apache-2.0
"""The rules of the whole run are kept, and a run that breaks one fails."""

import re
import subprocess
from pathlib import Path

import pytest
from benchmarks.planted import table
from tests.suite_rules import SuiteRules

pytest_plugins = ["pytester"]


def report(name: str, outcome: str, *, seconds: float = 0.5) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=name,
        location=("test.py", 1, name),
        keywords={},
        outcome="skipped" if outcome == "skipped" else "passed",
        longrepr=("test.py", 1, "no such disk") if outcome == "skipped" else None,
        when="call",
        duration=seconds,
    )


def test_a_skip_is_named_with_its_reason() -> None:
    rules = SuiteRules()
    rules.pytest_runtest_logreport(report("tests/a.py::test_one[x]", "skipped"))
    assert rules.broken() == ["tests/a.py::test_one[x] was skipped: no such disk"]


TEST = "def test_one(): "
WAYS = {
    "called": TEST + "pytest.skip('no such disk')",
    "module": "pytest.skip('no such disk', allow_module_level=True)",
    "import": "pytest.importorskip('no_such_disk')\n" + TEST + "pass",
    "mark": "@pytest.mark.skipif(True, reason='no such disk')\n" + TEST + "pass",
    "fixture": "@pytest.fixture\ndef disk(): pytest.skip('no such disk')\ndef test_one(disk): pass",
    "no case": "@pytest.mark.parametrize('disk', [])\ndef test_one(disk): assert False",
    "to fail": "@pytest.mark.xfail\n" + TEST + "assert False",
    "to fail, and does not": "@pytest.mark.xfail\n" + TEST + "pass",
    "fails as expected": TEST + "pytest.xfail('no such disk')",
}


@pytest.mark.parametrize(("must_skip_nothing", "status"), [("1", 1), ("", 0)])
@pytest.mark.parametrize("way", WAYS)
def test_a_skip_of_any_kind_fails_a_run_that_must_skip_nothing(
    way: str, must_skip_nothing: str, status: int, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "PYTEST_XDIST_WORKER"):  # a worker leaves the rules to the process that collects its reports
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUNE_NO_SKIPS", must_skip_nothing)
    pytester.makepyfile(test_it=f"import pytest\n{WAYS[way]}\n", test_beside=TEST + "pass")
    assert pytester.inline_run(plugins=[SuiteRules()]).ret == status


def test_durations_are_added_over_a_test_s_phases_and_sorted(tmp_path: Path) -> None:
    rules = SuiteRules()
    for name, seconds in (("quick", 0.1), ("slow", 2.0), ("slow", 1.0)):
        rules.pytest_runtest_logreport(report(name, "passed", seconds=seconds))
    rules.write_durations(tmp_path / "durations.tsv")
    assert (tmp_path / "durations.tsv").read_text() == "3.00\tslow\n0.10\tquick\n"


@pytest.mark.parametrize("mark", ["first", "alone"])
def test_make_test_runs_all_that_runs_apart_and_collects_no_more(mark: str) -> None:
    """It looks for files with the text of the mark, so no mark may come from elsewhere."""
    root = Path(__file__).parents[2]
    planned = subprocess.run(["make", "-n", "test"], cwd=root, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in planned.splitlines() if f"pytest -m '{mark} " in line)
    marked = {path for path in (root / "tests").rglob("*.py") if "mark." + mark in path.read_text()}
    assert marked
    assert {root / word for word in line.partition("#")[0].split() if word.startswith("tests/")} == marked


def test_every_planted_fault_can_still_be_planted() -> None:
    """Eight of 167 could not: the text that they replace had been written anew, and nothing ran that says so."""
    assert len(table()) > 160


def unexplained(source: str) -> list[str]:
    """Where a test is marked as long, and no word says what of it runs always."""
    return re.findall(r"""^ *@pytest\.mark\.long\b(?!\(\s*always=["']\w).*""", source, re.MULTILINE)


def test_a_long_test_says_what_of_it_runs_always() -> None:
    tests = (Path(__file__).parents[1]).rglob("test_*.py")
    assert {path.name: lines for path in tests if (lines := unexplained(path.read_text()))} == {}
    assert len(unexplained('@pytest.mark.long\n@pytest.mark.long("why")\n@pytest.mark.long(always="more")\n')) == 2


def test_a_long_run_ends_with_what_of_it_runs_always(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = long: rare")
    pytester.makepyfile("import pytest\n\n\n@pytest.mark.long(always='a short one')\ndef test_one(): ...\n")
    done = pytester.runpytest_inprocess("-m", "long", plugins=[SuiteRules()])
    assert done.ret == 0
    assert "test_one: a short one" in done.stdout.str()
