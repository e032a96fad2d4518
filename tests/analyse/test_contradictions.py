# SPDX-License-Identifier: Apache-2.0
"""Figures of one fio result that cannot all be right are told, and no figures that fio gives are."""

import random
from dataclasses import replace

import pytest
from tests.analyse.recordings import RESULTS, recorded

from virtune.analyse.trial.explain import contradicting
from virtune.fio.results import read_runs
from virtune.model.measurement import Latency, LoadResult, Stream

PERCENTS = (1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99)
IOS = 20_000


def measured(seed: int) -> Stream:
    """A direction as fio reports it: samples of some shape in bins of 1.6 %, and perhaps in whole microseconds."""
    chance = random.Random(seed)
    shape = chance.choice((0.1, 0.5, 1.5, 2.5))
    samples = sorted(chance.lognormvariate(11, shape) for _ in range(chance.choice((1, 3, 40, 2000))))
    if chance.random() < 0.3:
        samples = sorted([*samples, *(samples[-1] * 30 for _ in range(3))])
    unit = chance.choice((1, 1000))

    def binned(percent: float) -> float:
        value = samples[min(len(samples) - 1, int(percent / 100 * len(samples)))]
        return round(value * chance.uniform(0.985, 1.015) / unit) * unit

    rows: list[float] = []
    for percent in PERCENTS:
        rows.append(max(binned(percent), rows[-1] if rows else 0))
    latency = Latency(
        mean_ns=sum(samples) / len(samples), min_ns=samples[0] // unit * unit,
        max_ns=samples[-1] // unit * unit + unit,
        percentiles=tuple(zip(PERCENTS, rows, strict=True)),
    )  # fmt: skip
    iops = chance.uniform(100, 1e6)
    return Stream(
        direction=chance.choice(("read", "write")), ios=IOS, bytes=IOS * 4096, seconds=IOS / iops,
        iops=iops * chance.uniform(0.98, 1.02), bandwidth_bps=iops * 4096, clat=latency,
    )  # fmt: skip


def told(stream: Stream) -> list[str]:
    load = LoadResult(
        name="a", engine="libaio", pattern="randrw", block_size=4096, direct=True, jobs=1, depth=8, error=0,
        streams=(stream,), usr_percent=1, sys_percent=1,
    )  # fmt: skip
    return [one.text for one in contradicting(load)]


def latency(stream: Stream, **changed: object) -> Stream:
    assert stream.clat is not None
    return replace(stream, clat=replace(stream.clat, **changed))  # type: ignore[arg-type]


def planted(stream: Stream, chance: random.Random) -> dict[str, tuple[Stream, str]]:
    """Every class of contradiction in these figures, and what is to be said of it."""
    clat = stream.clat
    assert clat is not None
    assert clat.max_ns
    assert clat.min_ns is not None
    rows, by = clat.percentiles, chance.uniform(1.3, 40)
    place = chance.randrange(1, len(rows))
    fallen = (*rows[:place], (rows[place][0], rows[place - 1][1] / by - 3000), *rows[place + 1 :])
    return {
        "mean above the greatest": (latency(stream, mean_ns=clat.max_ns * by + 3000), "and the greatest"),
        "mean below the least": (latency(stream, min_ns=clat.mean_ns * by + 3000), "the least is"),
        "percentile above the greatest": (
            latency(stream, percentiles=(*rows[:-1], (99.99, clat.max_ns * by + 3000))), "and the greatest"),
        "percentiles fall": (latency(stream, percentiles=fallen), "and p"),
        "mean beyond its percentiles": (
            latency(stream, mean_ns=rows[-1][1] * 1.1 + by * 3000 + 1e-4 * clat.max_ns * 1.2), "allow"),
        "IOPS and time": (replace(stream, iops=(stream.iops or 0) * by), "IOPS for"),
        "fewer IOPS": (replace(stream, iops=(stream.iops or 0) / by), "IOPS for"),
        "bandwidth and bytes": (replace(stream, bandwidth_bps=(stream.bandwidth_bps or 0) * by), "MB/s for"),
        "bytes and blocks": (replace(stream, bytes=round(IOS * 4096 * by)), "not "),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_what_fio_measures_does_not_contradict_itself_and_what_is_planted_does(seed: int) -> None:
    stream = measured(seed)
    assert told(stream) == []
    for name, (changed, said) in planted(stream, random.Random(seed)).items():
        if (
            name == "mean beyond its percentiles"
            and changed.clat
            and changed.clat.mean_ns > (changed.clat.max_ns or 0)
        ):
            continue  # that is another class
        (text,) = told(changed)
        assert said in text, name


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in ("terse.txt", "missing.both")])
def test_no_recording_contradicts_itself(name: str) -> None:
    for run in read_runs(recorded(name)):
        for load in run.result.loads:
            assert [one.text for one in contradicting(load)] == []


def test_the_end_of_fio_s_histogram_is_no_contradiction() -> None:
    rows = tuple((percent, 17.1e9) for percent in PERCENTS)
    slow = Latency(mean_ns=40e9, min_ns=20e9, max_ns=60e9, percentiles=rows)
    texts = told(replace(measured(1), clat=slow))
    assert not any("allow" in text or "greatest" in text for text in texts)


def test_a_mean_that_no_tail_explains_is_told() -> None:
    stream = latency(measured(2), mean_ns=18.5e9, max_ns=None, percentiles=((50.0, 1e9), (99.99, 1.7e9)))
    assert told(stream) == []  # a tail of unknown length may explain it
    known = latency(stream, max_ns=30e9)
    assert "its percentiles allow" in told(known)[0]
