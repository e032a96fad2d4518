# SPDX-License-Identifier: Apache-2.0
"""Bars of layers and of threads: the pieces add up to the whole, and say what the table says."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.layer_parts import LAYERS

from virtune.flows.reports.report import svgs
from virtune.flows.stored.show import current
from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.report.charts import charts_of
from virtune.report.charts.stacked import cpu_by_thread, layer_times
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
COMPARE = "20261122-184255-3883"
WORKLOAD = "randread-4k"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyRecord, Result]:
    place = tmp_path_factory.mktemp("stacked") / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with Store(place) as store:
        record, result = current(store, COMPARE)
    arms = tuple(replace(one, layers=LAYERS if one.arm == "slow" else None) for one in result.arms)
    return record, replace(result, arms=arms)


def test_layers_lie_end_to_end_with_their_intervals(kept: tuple[StudyRecord, Result]) -> None:
    chart = layer_times(kept[1], WORKLOAD)
    assert chart is not None
    rows = chart.spec["data"]["values"]
    assert [(row["from"], row["to"]) for row in rows] == [(0.0, 20.0), (20.0, 100.0)]
    assert (rows[0]["low"], rows[0]["high"]) == (18.0, 22.0)
    assert "low" not in rows[1]
    assert "most of a request's time goes to: host block layer and device (slow)" in chart.title
    assert chart.rows[1] == ("slow", "host block layer and device", "80 us", "-", "80 %")


def test_threads_are_the_mean_of_the_trials_that_count(kept: tuple[StudyRecord, Result]) -> None:
    record, result = kept
    trials = []
    for number, one in enumerate(record.trials):
        assert one.measurement is not None
        values = (("iops", 1000.0), ("cpu.io.load", 4e-6 + 1e-6 * (number % 2)), ("cpu.io.main", 0.0))
        trials.append(replace(one, measurement=replace(one.measurement, values=values, remarks=())))
    chart = cpu_by_thread(result, replace(record, trials=tuple(trials)), WORKLOAD)
    assert chart is not None
    for arm in ("free", "slow"):
        mine = [one.measurement.get("cpu.io.load") for one in trials if one.trial.arm == arm and one.measurement]
        (row,) = [row for row in chart.spec["data"]["values"] if row["arm"] == arm]
        assert row["to"] == pytest.approx(1e6 * sum(value or 0.0 for value in mine) / len(mine))
        assert row["part"] == "load generator"


def test_without_data_there_is_no_picture_and_with_it_there_are_drawings(kept: tuple[StudyRecord, Result]) -> None:
    record, result = kept
    bare = replace(result, arms=tuple(replace(one, layers=None) for one in result.arms))
    assert layer_times(bare, WORKLOAD) is None
    nothing = replace(record, trials=(), attempts=())
    assert cpu_by_thread(result, nothing, WORKLOAD) is None
    made = [one for one in charts_of(result, record) if one.name.startswith(("layers", "threads"))]
    assert len(made) >= 1
    for drawing in svgs(made):
        assert drawing.count("<path") > 3


def test_layers_that_could_not_be_told_apart_are_no_picture(kept: tuple[StudyRecord, Result]) -> None:
    whole = replace(LAYERS, layers=(replace(LAYERS.layers[0], label="all of it", share=1.0),))
    arms = tuple(replace(one, layers=whole) for one in kept[1].arms)
    assert layer_times(replace(kept[1], arms=arms), WORKLOAD) is None
