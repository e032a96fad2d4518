# SPDX-License-Identifier: Apache-2.0
"""Extremes, standard deviations and the kernel's counts: as fio prints them, and added up over jobs."""

import math

import pytest
from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import extreme_values, load_values, measurement_of
from virtune.fio.results import read_result
from virtune.model.measurement import FioResult, Latency, LoadResult, Stream


def stream(count: int, mean: float, stdev: float, *, low: float = 1, high: float = 9) -> Stream:
    latency = Latency(count=count, mean_ns=mean, stddev_ns=stdev, min_ns=low, max_ns=high)
    return Stream(direction="read", ios=count, bytes=1, seconds=2, iops=1, bandwidth_bps=1, slat=latency)


def test_the_published_extremes_are_those_of_the_article() -> None:
    found = measurement_of(read_result(recorded("study1-before.txt")))
    assert found.get("slat.max") > found.get("slat.mean") > found.get("slat.min")  # type: ignore[operator]
    assert found.get("load.ctx") is not None
    assert found.get("iops.stdev") == pytest.approx(6368, abs=1)


def test_deviations_of_several_jobs_are_those_of_all_their_ios() -> None:
    # 100 I/Os of 10 and 100 of 30, each without deviation: the mean is 20, and every one lies 10 from it
    found = dict(extreme_values([stream(100, 10, 0, low=2), stream(100, 30, 0, high=50, low=3)]))
    assert found["slat.stdev"] == pytest.approx(10)
    assert (found["slat.min"], found["slat.max"]) == (2, 50)
    weighted = dict(extreme_values([stream(300, 10, 3), stream(100, 10, 5)]))
    assert weighted["slat.stdev"] == pytest.approx(math.sqrt((300 * 9 + 100 * 25) / 400))


def load(name: str, direction: str = "write", switches: int | None = None) -> LoadResult:
    one = Stream(direction=direction, ios=10, bytes=1, seconds=2, iops=5, bandwidth_bps=1)
    return LoadResult(
        name=name, engine=None, pattern=None, block_size=None, direct=None, jobs=1, depth=None, error=0,
        streams=(one,), usr_percent=None, sys_percent=None, context_switches=switches, major_faults=0, minor_faults=8,
    )  # fmt: skip


def test_counts_of_the_kernel_are_a_second_and_of_all_jobs() -> None:
    both = FioResult(source="json", version=None, loads=(load("a", switches=30), load("b", switches=30)))
    assert dict(load_values(both)) == {"load.ctx": 30, "load.majf": 0, "load.minf": 8}
    unknown = FioResult(source="json", version=None, loads=(load("a", switches=30), load("b")))
    assert dict(load_values(unknown)) == {"load.majf": 0, "load.minf": 8}


@pytest.mark.parametrize(
    ("name", "direction", "wrong"),
    [
        ("random-read-test", "write", True),
        ("RandWrite", "read", True),
        ("readwrite", "write", False),
        ("read", "read", False),
        ("thread-1", "write", False),
        ("job1", "write", False),
    ],
)
def test_a_job_that_is_called_what_it_did_not_do_is_noticed(name: str, direction: str, wrong: bool) -> None:
    result = FioResult(source="json", version=None, loads=(load(name, direction),))
    assert ("misnamed" in [one.id for one in explain(result)]) is wrong
