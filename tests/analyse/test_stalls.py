# SPDX-License-Identifier: Apache-2.0
"""The period of stalls among single I/Os: planted ones are found, and there is none where none was planted."""

import functools
import math
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from virtune.analyse.trial.usage import operation_times, period_remarks, strongest_period
from virtune.model.remark import PERIODIC_CHANCE
from virtune.model.remark import PERIODIC_LEVEL as LEVEL
from virtune.model.workload import OPERATIONS_MAX

SERIES = 100


def series(seed: int, shape: Callable[[int, Random], float], *, count: int = 100) -> list[int]:
    """Latencies about 100 us that vary by a fifth, times what the shape gives of the index."""
    chance = Random(seed)
    return [round(1e5 * math.exp(chance.gauss(0, 0.2)) * shape(index, chance)) for index in range(count)]


def alarms(shape: Callable[[int, Random], float]) -> float:
    found = (strongest_period(series(seed, shape)) for seed in range(SERIES))
    return sum(one is not None and one.chance <= LEVEL for one in found) / SERIES


@pytest.mark.parametrize("period", [5, 10, 17])
def test_stalls_at_every_nth_operation_are_found_with_their_period(period: int) -> None:
    found = strongest_period(latencies := series(1, lambda index, _: 8.0 if index % period == 3 else 1.0))
    assert found is not None
    assert (found.operations, found.chance) == (period, 0.001)
    assert found.seconds == pytest.approx(period * sum(latencies) / len(latencies) / 1e9)


def test_a_wave_of_a_period_is_found_too() -> None:
    found = strongest_period(series(2, lambda index, _: math.exp(0.5 * math.sin(2 * math.pi * index / 12))))
    assert found is not None
    assert found.operations == 12
    assert found.chance <= LEVEL


seldom = functools.partial(pytest.param, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("what", "shape"),
    [
        ("nothing", lambda index, chance: 1.0),
        ("stalls by chance", lambda index, chance: 10.0 if chance.random() < 0.1 else 1.0),
        seldom("three stalls", lambda index, chance: 30.0 if index in (11, 40, 87) else 1.0),
        ("drift", lambda index, chance: 1 + index / 50),
        seldom("a slow half", lambda index, chance: 3.0 if index > 50 else 1.0),
        seldom("a slow start", lambda index, chance: 1 + 10 * math.exp(-index / 5)),
    ],
)
def test_without_a_period_there_are_no_more_alarms_than_announced(
    what: str, shape: Callable[[int, Random], float]
) -> None:
    # 1 % of 100 is 1; the seeds are fixed, and 5 and more come in one of 290 such sets
    assert alarms(shape) <= 4 / SERIES, what


class Alike:
    """Neighbours that are alike, without a period."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, index: int, chance: Random) -> float:
        self.last = (0.9 * self.last if index else 0.0) + chance.gauss(0, 0.2)
        return math.exp(self.last)


def test_neighbours_that_are_alike_raise_no_more_alarms_than_the_studys_words_allow_for() -> None:
    assert alarms(Alike()) <= PERIODIC_CHANCE


def test_too_few_operations_and_equal_ones_have_no_period() -> None:
    assert strongest_period(series(1, lambda index, _: 1.0, count=29)) is None
    assert strongest_period([5] * 100) is None
    assert strongest_period([]) is None


def test_the_remark_is_read_from_fios_log_and_says_how_often_it_is_wrong() -> None:
    latencies = series(3, lambda index, _: 8.0 if index % 10 == 0 else 1.0)
    log = "".join(f"{index}, {one}, 0, 4096, {4096 * index}, 0\n" for index, one in enumerate(latencies)).encode()
    assert operation_times(log) == tuple(latencies)
    (remark,) = period_remarks(log)
    assert remark.id == "periodic"
    assert "a period of 10 I/Os" in remark.text
    assert "false-alarm rate 0.1 %" in remark.text
    assert not list(period_remarks(b"broken\n1,x\n"))


def test_of_several_clones_the_first_is_looked_at() -> None:
    """Their logs follow one another, each from its own beginning."""
    first, second = (series(seed, lambda index, _: 1.0) for seed in (1, 2))
    log = b"".join(b"%d, %d, 0, 4096, 0, 0\n" % pair for one in (first, second) for pair in enumerate(one))
    assert operation_times(log) == tuple(first)
    assert operation_times(b"0, 5, 0, 4096, 0, 0\n1, " + b"9" * 5000 + b", 0, 4096, 0, 0\n") == (5,)


def test_as_many_operations_as_are_recorded_fit_into_memory() -> None:
    # a fifth of them: all shuffles at once would take 140 MiB, and counting memory makes Python slow
    latencies = series(4, lambda index, _: 1.0, count=OPERATIONS_MAX // 5)
    tracemalloc.start()
    try:
        found = strongest_period(latencies)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert most < 70 * 1024**2
