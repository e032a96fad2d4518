# SPDX-License-Identifier: Apache-2.0
"""One rule for units: times in ns, us, ms or s and rates in kB/s or MB/s, whichever keeps the figure readable, are
written in one place, so that every table, page and study shows the same figure in the same words.
"""

import re
from pathlib import Path

import pytest

from virtune.model.metric import METRICS, Metric
from virtune.model.text import format_bandwidth, format_ns
from virtune.report.words import quantity

SOURCE = Path(__file__).parents[2] / "src" / "virtune"
BY_HAND = re.compile(r"\} (?:ns|us|ms|[kKMG]i?B/s)\b")
"""A figure in braces and a unit that somebody wrote behind it."""


@pytest.mark.parametrize("room", ["report", "cli", "flows", "analyse/study", "analyse/search", "analyse/stats"])
def test_no_room_that_writes_figures_chooses_units_by_itself(room: str) -> None:
    modules = sorted((SOURCE / room).rglob("*.py"))
    assert modules, "a room of that name is gone"
    by_hand = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in modules
        for line in path.read_text(encoding="utf-8").splitlines()
        if BY_HAND.search(line)
    ]
    assert by_hand == []


def test_a_unit_behind_braces_is_noticed() -> None:
    assert [
        bool(BY_HAND.search(line)) for line in ('f"{took:.1f} ms"', 'f"{rate} MB/s"', 'f"{format_ns(took)} each"')
    ] == [True, True, False]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.id)
def test_every_metric_has_its_unit_in_the_words_of_a_figure(metric: Metric) -> None:
    units = {"1/s": r"[0-9.,kM]+", "B/s": r"[0-9.,]+ (kB|MB)/s", "ns": r"[0-9.]+ (ns|us|ms|s)",
             "%": r"[0-9.]+ %", "s/io": r"[0-9.]+ (ns|us|ms|s)", "1/io": r"[0-9.,kM]+"}  # fmt: skip
    for number in (0.5, 12.0, 4_321.0, 98_765_432.0) if metric.unit != "s/io" else (1e-6, 3e-3):
        assert re.fullmatch(units[metric.unit], quantity(metric, number).replace(",", "")), metric


def test_the_units_are_decimal_for_rates_and_never_change_with_the_column() -> None:
    assert [format_bandwidth(rate) for rate in (999e3, 1e6, 104.2 * 2**20)] == ["999 kB/s", "1.0 MB/s", "109 MB/s"]
    assert [format_ns(time) for time in (999, 2_024e3, 1.5e9)] == ["999 ns", "2.02 ms", "1.50 s"]
