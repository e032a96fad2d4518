# SPDX-License-Identifier: Apache-2.0
"""A host over its checks: each figure has a mark, an unfit host a hollow one, a drift that is not known none."""

import json
from dataclasses import replace

import pytest
from tests.report.records import record

from virtune.analyse.study.summarise import fitness_of
from virtune.flows.reports.report import svgs
from virtune.model.result import Drift, Fitness
from virtune.web.pages import HostCheck, host_over_time


@pytest.fixture(scope="module")
def fitness() -> Fitness:
    found = fitness_of(record(8), findings=(), neighbours=None)
    return replace(
        found, iops=30_000.0, windows_cv=0.05, drift=Drift(per_minute=0.01, low=-0.02, high=0.04), unfit=()
    )


def checks(*found: Fitness) -> list[HostCheck]:
    return [
        HostCheck(created=f"2026-01-0{day}T00:00:00+00:00", load="randread-4k on metal", fitness=one)
        for day, one in enumerate(found, 1)
    ]


def test_fit_and_unfit_checks_are_drawn(fitness: Fitness) -> None:
    unfit = replace(fitness, unfit=("too noisy",))
    chart = host_over_time(checks(fitness, unfit, fitness))
    assert chart is not None
    assert chart.title.startswith("in 2 of 3 checks")
    rows = chart.spec["data"]["values"]
    assert [row["figure"] for row in rows[:3]] == ["IOPS", "spread in %", "drift in % a minute"]
    assert [row["value"] for row in rows[:3]] == [30_000.0, pytest.approx(5.0), pytest.approx(1.0)]
    (svg,) = svgs([chart])
    drawn = [mark for mark in svg.split("<path") if 'aria-roledescription="point"' in mark]
    assert len(drawn) == 9
    hollow = [mark for mark in drawn if 'fill="#' not in mark]
    assert len(hollow) == 3
    assert all('stroke="#' in mark for mark in hollow), "a hollow mark has a line around it"


def test_one_check_is_no_history_and_an_unknown_drift_is_not_drawn(fitness: Fitness) -> None:
    assert host_over_time(checks(fitness)) is None
    assert host_over_time(checks(fitness, replace(fitness, iops=None))) is None
    wide = replace(fitness, drift=Drift(per_minute=0.2, low=-1.0, high=4.0))
    chart = host_over_time(checks(wide, wide))
    assert chart is not None
    assert "drift in % a minute" not in json.dumps(chart.spec)
