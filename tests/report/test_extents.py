# SPDX-License-Identifier: Apache-2.0
"""Pictures of the studies: single I/Os, offered loads, bars of IOPS; their values, and that each can be drawn."""

from pathlib import Path

import pytest

from virtune.cli import run
from virtune.flows.reports.report import charts, svgs
from virtune.report.charts.chart import Chart
from virtune.report.charts.distribution import DRAWN_MAX, each_operation
from virtune.store.store import Store

KIND = "name=each,rw=randread,bs=4k,number_ios=100,randseed=7"
LOUD = "name=background,rw=randread,bs=4k,numjobs=2"
PLACE = "--scratch"
TWO = ("--vary", "disk.aio=threads,native")


def drawn(tmp_path: Path, *words: str) -> dict[str, Chart]:
    path = tmp_path / "store.sqlite"
    assert run([*words, "--seed", "7", "-q", "--store", str(path), PLACE, str(tmp_path / "scratch")]) == 0
    with Store(path) as store:
        return {one.name: one for one in charts(store, "last")}


def test_single_operations_have_a_picture_for_each_background_load(tmp_path: Path) -> None:
    found = drawn(
        tmp_path, "compare", "--rig", "simulated", "--seconds", "1", "--rounds", "2", *TWO,
        "--workload", f"a-load0: {KIND}", "--workload", f"a-load2: {KIND} + {LOUD}",
    )  # fmt: skip
    for name, words in (("extents-load-0", ": alone: the"), ("extents-load-2", ": beside 2 background")):
        chart = found[name]
        assert words in chart.title
        assert [(row[0], row[1]) for row in chart.rows] == [("a", "threads"), ("a", "native")]
        assert all(row["min"] <= row["mean"] <= row["max"] for row in chart.spec["data"]["values"])
    assert "<svg" in next(svgs([found["extents-load-2"]]))


@pytest.mark.real
def test_each_operation_of_a_trial_is_drawn_against_its_index(tmp_path: Path) -> None:
    found = drawn(
        tmp_path, "measure", "--rig", "metal", "--seconds", "1", "--ramp", "0", "--rounds", "1", "--span", "8M",
        "--attempts", "1", "--workload", f"one: {KIND}",
    )  # fmt: skip
    chart = found["operations-one"]
    assert [row["index"] for row in chart.spec["data"]["values"]] == list(range(1, 101))
    ((arm, count, *_),) = chart.rows
    assert (arm, count) == ("metal", "100")
    least, greatest = (f(row["ms"] for row in chart.spec["data"]["values"]) for f in (min, max))
    (extent,) = found["extents-single"].spec["data"]["values"]
    # fio's log and its own least and greatest are of the same I/Os
    assert extent["min"] == pytest.approx(least, rel=1e-3)
    assert extent["max"] == pytest.approx(greatest, rel=1e-3)
    assert "<svg" in next(svgs([chart]))


def test_of_thousands_of_operations_the_first_are_drawn_and_all_are_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    words = ("--rig", "simulated", "--seconds", "1", "--rounds", "1", *TWO, "--seed", "7", "-q")
    place = ("--store", str(path), PLACE, str(tmp_path / "scratch"))
    assert run(["compare", *words, "--workload", f"one: {KIND}", *place]) == 0
    with Store(path) as store:
        study = store.get(store.find("last")).study
    chart = each_operation(study, "one", {"threads": range(1, 3001), "native": range(1, 101)})
    assert chart is not None
    assert len(chart.spec["data"]["values"]) == DRAWN_MAX + 100
    assert chart.title.startswith("one: the first 1,000 I/Os of a trial")
    assert chart.rows == (("threads", "3000", "1 ns", "3 us"), ("native", "100", "1 ns", "100 ns"))


def test_offered_loads_have_iops_busy_and_cpu_in_panels(tmp_path: Path) -> None:
    found = drawn(
        tmp_path, "compare", "--rig", "simulated", "--seconds", "1", "--rounds", "2", *TWO,
        "--workload", "two-at-once: rw=randread,bs=4k,iodepth=2", "--at-load", "50%,100%",
    )  # fmt: skip
    chart = found["offered-two-at-once"]  # a name is no place to look for a load
    assert len(chart.rows) == 4, "two arms at two loads"
    values = chart.spec["data"]["values"]
    assert {row["of"] for row in values} >= {"IOPS"}
    assert len({row["offered"] for row in values}) == 2
    assert "<svg" in next(svgs([chart]))


def test_datapath_has_a_bar_for_each_configuration(tmp_path: Path) -> None:
    words = ("compare", "study", "run", "datapath", "--rig", "simulated", "--quick", "--rounds", "2")
    found = drawn(tmp_path, *words)
    for name in ("bars-randread-4k", "bars-randwrite-4k"):
        assert [row[0] for row in found[name].rows][:2] == ["bare", "native"]
        assert all(row["low"] <= row["iops"] <= row["high"] for row in found[name].spec["data"]["values"])
    assert "<svg" in next(svgs([found["bars-randread-4k"]]))
