# SPDX-License-Identifier: Apache-2.0
"""Figures of one fio result that cannot all be right are told, and no figures that fio gives are."""

import random
from dataclasses import replace

import pytest
from tests.analyse.recordings import RESULTS, recorded

from virtune.analyse.trial.explain import contradicting
from virtune.fio.consistency import contradictions
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
    changed_one = replace(stream.clat, **changed)  # type: ignore[arg-type]
    return replace(stream, clat=changed_one, lat=stream.lat and changed_one)


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


def load(jobs: int, **changed: object) -> LoadResult:
    """A load of so many clones, reported together: 20,000 reads of 4 KiB in 2 s each, 8 in flight."""
    lat = Latency(count=IOS * jobs, mean_ns=800e3, min_ns=1e3, max_ns=1e6)
    stream = Stream(
        direction="read", ios=IOS * jobs, bytes=IOS * jobs * 4096, seconds=2.0, iops=1e4 * jobs,
        bandwidth_bps=1e4 * jobs * 4096, lat=lat, clat=lat,
    )  # fmt: skip
    whole = LoadResult(
        name="a", engine="libaio", pattern="randread", block_size=4096, direct=True, jobs=jobs, depth=8, error=0,
        streams=(stream,), usr_percent=1, sys_percent=1, depth_levels=(("8", 1.0),),
    )  # fmt: skip
    return replace(whole, **changed)  # type: ignore[arg-type]


def mixed(jobs: int, *, flushes: int) -> LoadResult:
    """As many writes beside three times as many reads, and flushes of each clone."""
    (read,) = load(jobs).streams
    sizes = ((15_000, "read"), (5_000, "write"))
    streams = tuple(
        latency(replace(read, direction=way, ios=ios * jobs, bytes=ios * jobs * 4096), count=ios * jobs)
        for ios, way in sizes
    )
    return load(jobs, streams=streams, pattern="randrw", sync=Latency(count=flushes * jobs, mean_ns=1e3))


ASKED = {"rw": "randread", "ioengine": "libaio", "iodepth": "8", "time_based": "1", "runtime": "2"}
IMPOSSIBLE: tuple[tuple[dict[str, str], LoadResult, LoadResult, str], ...] = tuple(
    (options, of(1), of(4), found)
    for options, of, found in (
        ({"rw": "randwrite"}, load, "rw: reads"),
        ({"bs": "8k"}, load, "bs: 4 KiB"),
        ({"bssplit": "4k/50:8k/50"}, load, "bssplit: 4 KiB"),
        ({"rw": "randrw", "rwmixread": "50"}, lambda jobs: mixed(jobs, flushes=0), "rwmixread: 75"),
        ({"rw": "randrw", "rwmixwrite": "50"}, lambda jobs: mixed(jobs, flushes=0), "rwmixwrite: 25"),
        ({"rw": "randrw", "rwmixread": "0"}, lambda jobs: mixed(jobs, flushes=0), "rwmixread: 75"),
        ({"rw": "randwrite", "rwmixread": "75", "fsync": "4"}, lambda jobs: mixed(jobs, flushes=625), "fsync: 8"),
        ({"runtime": "60"}, load, "runtime: 2 s"),
        ({"runtime": "1"}, load, "runtime: 2 s"),
        ({"number_ios": "15000"}, load, "number_ios: 20,000"),
        ({"number_ios": "25000", "size": "1g"}, load, "number_ios: 20,000"),
        ({"rate_iops": "1000"}, load, "rate_iops: 10,000"),
        ({"iodepth": "4"}, load, "iodepth: 8 or more"),
        ({"iodepth": "64"}, load, "iodepth: 8 to 15"),
        ({"iodepth": "4"}, lambda jobs: load(jobs, depth_levels=()), "iodepth: 8"),
        ({"iodepth": "128"}, lambda jobs: load(jobs, depth_levels=()), "iodepth: 8"),
    )
)


@pytest.mark.parametrize(("asked", "one", "four", "found"), IMPOSSIBLE)
def test_an_option_that_cannot_have_made_the_figures_is_told_with_what_ran_of_each_clone(
    asked: dict[str, str], one: LoadResult, four: LoadResult, found: str
) -> None:
    for figures, jobs in ((one, 1), (four, 4)):
        told = contradictions(figures, ASKED | asked, jobs=jobs)
        assert found in [f"{each.option}: {each.found}" for each in told], jobs


def test_options_that_made_the_figures_are_told_nothing_of() -> None:
    for jobs in (1, 4):
        assert list(contradictions(load(jobs), ASKED, jobs=jobs, spent=2.0 * jobs)) == []
        right = ASKED | {"rw": "randrw", "rwmixread": "75", "fsync": "4"}
        assert list(contradictions(mixed(jobs, flushes=1250), right, jobs=jobs)) == []
    (one,) = contradictions(load(4), ASKED, jobs=4, spent=4.0)
    assert (one.option, one.asked, one.found) == ("numjobs", "4", "2")
