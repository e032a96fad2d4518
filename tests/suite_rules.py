# SPDX-License-Identifier: Apache-2.0
"""What the whole run is held to: who may run twice, what may be skipped, and how long each test took.

Reruns are by name, with a reason, and few: more than RERUNS_MAX in one run fail it. A skip that is not expected here
fails a run that is to skip nothing (`CI` or `VIRTUNE_NO_SKIPS` set). With VIRTUNE_DURATIONS=FILE the run writes how
long every test took, slowest first.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

RERUN_ONCE: dict[str, str] = {
    "tests/truth/test_truth.py::test_a_planted_tenth_is_found_and_equal_arms_are_not_called_different": (
        "measures a real disk for a minute; another user of the physical host can hide a tenth"
    ),
}
"""Tests that other users of a shared machine can upset, and how."""

RERUNS_MAX = 3

EXPECTED_SKIPS: dict[str, str] = {}
"""Tests that may be skipped where nothing is to be skipped, and why that is no loss there."""


class SuiteRules:
    """Counts reruns, skips and seconds while reports come in; under xdist, in the process that collects them."""

    def __init__(self) -> None:
        self.reruns: list[str] = []
        self.skips: dict[str, str] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        outcome: str = report.outcome  # rerunfailures adds one to those that pytest knows
        if outcome == "rerun":
            self.reruns.append(report.nodeid)
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.skips[report.nodeid] = str(report.longrepr[2])

    def broken(self, *, skips_allowed: bool) -> list[str]:
        """Return the rules that the run broke, in sentences."""
        found = []
        if len(self.reruns) > RERUNS_MAX:
            found.append(f"{len(self.reruns)} tests ran twice, and {RERUNS_MAX} may: {', '.join(self.reruns)}")
        if not skips_allowed:
            found += [
                f"{name} was skipped: {why}"
                for name, why in self.skips.items()
                if name.partition("[")[0] not in EXPECTED_SKIPS
            ]
        return found

    def write_durations(self, path: Path) -> None:
        lines = (
            f"{seconds:.2f}\t{name}\n" for name, seconds in sorted(self.seconds.items(), key=lambda one: -one[1])
        )
        path.write_text("".join(lines))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if os.environ.get("PYTEST_XDIST_WORKER"):
            return
        if place := os.environ.get("VIRTUNE_DURATIONS"):
            self.write_durations(Path(place))
        allowed = not (os.environ.get("CI") or os.environ.get("VIRTUNE_NO_SKIPS"))
        broken = self.broken(skips_allowed=allowed)
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        for sentence in broken:
            if terminal is not None:
                terminal.write_line(f"rule broken: {sentence}", red=True)
        if broken and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
