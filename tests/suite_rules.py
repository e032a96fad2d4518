# SPDX-License-Identifier: Apache-2.0
"""What the whole run is held to: nothing is skipped where nothing may be, and how long each test took.

No test runs a second time. A skipped test fails a run that must skip nothing (`CI` or `VIRTUNE_NO_SKIPS` set). With
VIRTUNE_DURATIONS=FILE the run writes how long every test took, slowest first. A run of long tests ends with what of
each runs always.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest


class SuiteRules:
    """Counts skips and seconds while reports come in; under xdist, in the process that collects them."""

    def __init__(self) -> None:
        self.skips: dict[str, str] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.always: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("long"):
                self.always[item.nodeid.partition("[")[0]] = mark.kwargs.get(
                    "always", "shorter cases of the same test"
                )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.always and terminalreporter.config.getoption("markexpr") == "long":
            terminalreporter.section("what only a long run has, and what of it runs always")
            for name, always in self.always.items():
                terminalreporter.write_line(f"{name}: {always}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        self._skipped(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module may skip itself, and with it all tests in it."""
        self._skipped(report)

    def _skipped(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        expected = getattr(report, "wasxfail", None)  # to fail is as good as skipped, and so is not to
        if expected is not None:
            self.skips[report.nodeid] = f"it is expected to fail {expected}".strip()
        elif report.skipped:
            told = report.longrepr
            self.skips[report.nodeid] = str(told[2] if isinstance(told, tuple) else told)

    def broken(self) -> list[str]:
        """Return what breaks the rules of a run that must skip nothing, in sentences."""
        return [f"{name} was skipped: {why}" for name, why in self.skips.items()]

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
        if not (os.environ.get("CI") or os.environ.get("VIRTUNE_NO_SKIPS")):
            return
        broken = self.broken()
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        for sentence in broken:
            if terminal is not None:
                terminal.write_line(f"rule broken: {sentence}", red=True)
        if broken and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
