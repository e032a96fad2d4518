# SPDX-License-Identifier: Apache-2.0
"""Every rule that reads a fio result: one result that it speaks of, one that it is silent on, and its numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import LOAD_RULES, RESULT_RULES, beside, explain
from virtune.fio.job_options import facts_of
from virtune.fio.results import read_result
from virtune.model.measurement import DeviceUse, FioResult, Latency, LoadResult, Stream
from virtune.model.remark import OF_LOADS, OF_RESULTS, Remark, Weight

PERCENTILES = ((50.0, 120e3), (95.0, 200e3), (99.0, 300e3), (99.9, 900e3))
READ = Stream(
    direction="read", ios=2_400_000, bytes=2_400_000 * 4096, seconds=30.0, iops=80_000, bandwidth_bps=80_000 * 4096.0,
    iops_samples=60, iops_min=79_000, iops_max=81_000, iops_mean=80_000, iops_stddev=900,
    slat=Latency(count=2_400_000, mean_ns=3e3), clat=Latency(count=2_400_000, mean_ns=97e3, percentiles=PERCENTILES),
    lat=Latency(count=2_400_000, mean_ns=100e3),
)  # fmt: skip
LOAD = LoadResult(
    name="good", engine="libaio", pattern="randread", block_size=4096, direct=True, jobs=1, depth=8, error=0,
    streams=(READ,), usr_percent=10, sys_percent=30, depth_levels=(("1", 0.001), ("4", 0.001), ("8", 0.999)),
    options=(("rw", "randread"), ("ioengine", "libaio"), ("iodepth", "8")),
)  # fmt: skip
DEVICE = DeviceUse(name="vda", reads=2_395_000, writes=3, read_seconds=190.0, write_seconds=0.0, busy_percent=80)
GOOD = FioResult(source="json", version="fio-3.33", loads=(LOAD,), devices=(DEVICE,))


def of_load(**changes: object) -> FioResult:
    return replace(GOOD, loads=(replace(LOAD, **changes),))  # type: ignore[arg-type]


def of_flow(**changes: object) -> FioResult:
    return of_load(streams=(replace(READ, **changes),))  # type: ignore[arg-type]


def of_device(**changes: object) -> FioResult:
    return replace(GOOD, devices=(replace(DEVICE, **changes),))  # type: ignore[arg-type]


def said(result: FioResult, name: str) -> list[Remark]:
    return [remark for remark in explain(result) if remark.id == name]


FIRES: dict[str, tuple[FioResult, Weight, tuple[str, ...]]] = {
    "page-cache, buffered": (
        replace(of_load(direct=False), devices=()),
        Weight.INVALID, ("direct=1 was not set", "Nothing shows how many of its 2,400,000 I/Os"),
    ),
    "page-cache, buffered but cold": (of_load(direct=False), Weight.WARNING, ("100 %", "mostly cold")),
    "page-cache, few requests": (
        replace(of_load(direct=None), devices=(replace(DEVICE, reads=24_000),)),
        Weight.INVALID, ("2,400,000 I/Os", "24,000 requests (1.0 %)"),
    ),
    "page-cache, too fast": (
        replace(of_load(direct=None, streams=(replace(READ, clat=Latency(mean_ns=800)),)), devices=()),
        Weight.INVALID, ("800 ns", "within 2 us"),
    ),
    "page-cache, mmap": (
        replace(of_load(engine="mmap", direct=False, depth=1), devices=()), Weight.INVALID, ("mmap always",),
    ),
    "unserved": (of_device(reads=0), Weight.INVALID, ("2,400,000", "0 requests (0.0 %)", "never written")),
    "cached-sync": (
        read_result(recorded("fsync.both")), Weight.WARNING, ("4.28 us", "165 us", "one for every 4 writes"),
    ),
    "no-io": (read_result(recorded("missing.both")), Weight.INVALID, ("0 operations",)),
    "contradiction": (of_flow(iops=160_000), Weight.WARNING, ("IOPS for 30 s are 4,800,000 I/Os",)),
    "errors": (of_load(error=5), Weight.INVALID, ("EIO (5)",)),
    "errors, gone on": (of_load(errors=17), Weight.INVALID, ("17 I/Os failed",)),
    "short-ios": (of_flow(short_ios=3, dropped_ios=1), Weight.WARNING, ("3 I/Os came back short", "1 were dropped")),
    "page-cache, latencies only": (
        replace(
            of_load(direct=False, streams=(replace(READ, clat=Latency(mean_ns=800)),)),
            devices=(replace(DEVICE, reads=19_000, read_bytes=2_390_000 * 4096),),
        ),
        Weight.WARNING, ("direct=1 was not set", "800 ns", "vda, which moved 100 % of the bytes", "503 KiB"),
    ),
    "cut-short": (
        of_load(options=(("rw", "randread"), ("number_ios", "3000000"))),
        Weight.WARNING, ("2,400,000 of 3,000,000 I/Os",),
    ),
    "depth, ignored": (read_result(recorded("sync-deep.both")), Weight.WARNING, ("iodepth=32", "psync", "1, not 32")),
    "depth, not filled": (
        of_load(depth=32, depth_levels=(("1", 0.9), ("16", 0.08), ("32", 0.02))),
        Weight.WARNING, ("iodepth=32", "2 % of the I/Os", "90 % with 1"),
    ),
    "depth, in submission": (
        read_result(recorded("buffered-deep.both")), Weight.WARNING, ("Depth 32 is nominal", "56 % of its time"),
    ),
    "little": (
        of_load(depth=16, depth_levels=()), Weight.WARNING,
        ("80k operations", "8 I/Os in flight", "of 16", "50 %", "usr 10 %, sys 30 %"),
    ),
    "little, impossible": (of_load(depth=4), Weight.INVALID, ("8 I/Os in flight", "only 4")),
    "rate-unmet": (
        of_load(rate_asked_iops=100_000), Weight.WARNING, ("100k operations", "80k were done (80.0 %)"),
    ),
    "spread": (of_flow(iops_stddev=20_000), Weight.WARNING, ("25 %", "20,000", "80,000", "60 samples", "below 9 %")),
    "short-run": (of_flow(seconds=2.0), Weight.WARNING, ("2,400,000 I/Os in 2 s",)),
    "saturated-cpu": (of_load(usr_percent=21, sys_percent=75), Weight.WARNING, ("96.0 %", "usr 21 %", "sys 75 %")),
    "latency-parts": (GOOD, Weight.NOTE, ("3 us, 3.0 %", "97 us")),
    "latency-parts, blocking": (
        of_flow(slat=Latency(mean_ns=60e3), clat=Latency(mean_ns=40e3)), Weight.NOTE, ("60.0 %", "submission call"),
    ),
    "latency-parts, submitting": (of_flow(slat=Latency(mean_ns=10e3)), Weight.NOTE, ("80 % of its time",)),
    "jitter": (GOOD, Weight.NOTE, ("120 us (p50)", "200 us (p95, 1.7 times", "300 us (p99, 2.5 times")),
    "tail-unresolved": (of_flow(ios=50_000), Weight.NOTE, ("50,000 reads", "about 50", "p99.9")),
    "sync-share": (read_result(recorded("fsync.both")), Weight.NOTE, ("90 %", "10,698", "165 us")),
    "kernel-cpu": (GOOD, Weight.NOTE, ("sys 30 %", "usr 10 %", "3.75 us of sys per I/O")),
    "device-busy, not always": (of_device(busy_percent=68.89), Weight.NOTE, ("68.89 %", "no measure of what is")),
    "device-busy": (of_device(busy_percent=99.9), Weight.NOTE, ("99.9 %", "does not prove saturation")),
    "contradiction, options": (
        of_load(options=(("rw", "randwrite"), ("ioengine", "libaio"), ("iodepth", "8"))),
        Weight.WARNING,
        ("rw=randwrite", "2,400,000 reads"),
    ),
    "misnamed": (of_load(name="random-write-test"), Weight.WARNING, ("random-write-test", "2,400,000 reads")),
    "device-share": (GOOD, Weight.NOTE, ("100 us mean latency", "79.3 us (79 %)", "vda")),
}  # fmt: skip

SILENT: dict[str, FioResult] = {
    "contradiction, options not known": of_load(options=None),
    "misnamed": GOOD,
    "misnamed, a thread": of_load(name="thread-1", streams=(replace(READ, direction="write"),)),
    "page-cache": GOOD,
    "cut-short": of_load(options=(("rw", "randread"), ("number_ios", "2400000"))),
    "page-cache, not through the kernel": replace(of_load(engine="nbd", direct=False), devices=()),
    "page-cache, nothing known": replace(of_load(direct=None), devices=()),
    "unserved, sequential": replace(of_load(pattern="read"), devices=(replace(DEVICE, reads=100),)),
    "unserved, too short to count": replace(of_flow(seconds=1.0), devices=(replace(DEVICE, reads=100),)),
    "unserved, no device known": replace(GOOD, devices=()),
    "cached-sync": GOOD,
    "no-io": GOOD,
    "contradiction": GOOD,
    "errors": GOOD,
    "short-ios": GOOD,
    "depth": GOOD,
    "depth, not known": of_load(depth=None),
    "depth, held back by its rate": of_load(rate_asked_iops=100, depth_levels=(("1", 1.0),)),
    "little": GOOD,
    "little, held back by its rate": of_load(options=(("rate_iops", "100"),), depth=100),
    "little, without latency": of_load(depth=100, streams=(replace(READ, lat=None),)),
    "little, fsync counted": read_result(recorded("fsync.both")),
    "rate-unmet": of_load(rate_asked_iops=80_500),
    "spread": GOOD,
    "spread, too few samples": of_flow(iops_samples=3, iops_stddev=50_000),
    "spread, not known": of_flow(iops_stddev=None),
    "short-run": GOOD,
    "saturated-cpu": GOOD,
    "saturated-cpu, not known": of_load(usr_percent=None, sys_percent=99),
    "latency-parts": of_flow(slat=None),
    "jitter": of_flow(clat=Latency(mean_ns=97e3)),
    "jitter, too few": of_flow(ios=500),
    "tail-unresolved": GOOD,
    "sync-share": GOOD,
    "kernel-cpu": of_load(usr_percent=30, sys_percent=20),
    "device-busy": of_device(busy_percent=2.0),
    "device-share": of_device(reads=1_000_000),
    "device-share, not timed": of_device(read_seconds=0.0),
    "device-share, buffered": of_load(direct=False),
}


@pytest.mark.parametrize("case", list(FIRES))
def test_a_rule_speaks_with_its_numbers(case: str) -> None:
    result, weight, numbers = FIRES[case]
    remarks = said(result, case.partition(",")[0])
    assert remarks, [remark.id for remark in explain(result)]
    text = " | ".join(remark.text for remark in remarks if remark.weight is weight)
    for number in numbers:
        assert number in text


@pytest.mark.parametrize("case", list(SILENT))
def test_a_rule_is_silent_where_there_is_nothing_to_say(case: str) -> None:
    assert said(SILENT[case], case.partition(",")[0]) == []


TURNED = {"read": "write", "write": "read", "randread": "randwrite", "randwrite": "randread"}


def turned(result: FioResult) -> FioResult:
    """The same result of the other direction: what was read is written, by fio and on its devices."""
    loads = tuple(
        replace(
            load,
            pattern=TURNED.get(load.pattern or "", load.pattern),
            streams=tuple(replace(one, direction=TURNED.get(one.direction, one.direction)) for one in load.streams),
            options=load.options and tuple((name, TURNED.get(value, value)) for name, value in load.options),
        )
        for load in result.loads
    )
    devices = tuple(
        replace(
            one,
            reads=one.writes, writes=one.reads, read_bytes=one.written_bytes, written_bytes=one.read_bytes,
            read_seconds=one.write_seconds, write_seconds=one.read_seconds,
        )
        for one in result.devices
    )  # fmt: skip
    return replace(result, loads=loads, devices=devices)


OF_WRITES = {"cached-sync", "misnamed"}
"""What is said of writes only, and of a name."""


def test_what_is_said_of_reads_is_said_of_as_many_writes() -> None:
    for case, result in {**{case: fires[0] for case, fires in FIRES.items()}, **SILENT}.items():
        here, there = ({(one.id, one.weight) for one in explain(told)} for told in (result, turned(result)))
        assert {one for one in here ^ there if one[0] not in OF_WRITES} == set(), case


def test_a_good_run_gives_notes_only() -> None:
    assert {remark.weight for remark in explain(GOOD)} == {Weight.NOTE}


def test_every_rule_judges_by_a_kind_of_remark_and_has_both_cases() -> None:
    rules: tuple[Callable[..., object], ...] = (*RESULT_RULES, *LOAD_RULES)
    by = {(rule.__doc__ or "").removeprefix("Judge by `").removesuffix("`.") for rule in rules}
    shared = {"page-cache", "rate-unmet", "saturated-cpu"}  # gates of a trial, too
    assert by == {one.id for one in (*OF_RESULTS, *OF_LOADS)} - {"not-added", "unserved"} | shared
    for name in by:
        assert any(case.partition(",")[0] == name for case in FIRES), name
        assert any(case.partition(",")[0] == name for case in SILENT), name


def test_every_remark_rests_on_a_number() -> None:
    for result, _, _ in FIRES.values():
        for remark in explain(result):
            assert any(character.isdigit() for character in remark.text), remark


def test_jobs_are_named_where_there_are_several_and_clones_are_said_once() -> None:
    sections = said(read_result(recorded("sections.both")), "short-run")
    assert [remark.text[:8] for remark in sections] == ["`reader`", "`writer`"]
    (clones,) = said(read_result(recorded("clones.both")), "short-run")
    assert clones.text.endswith("(One of 2 such jobs.)")


def test_jobs_reported_together_spread_less_than_one() -> None:
    """fio adds the means of 4 jobs and pools their deviations: 10 % of each is 5 % of the sum when independent."""
    four = of_load(jobs=4, streams=(replace(READ, iops_stddev=2_000, iops_samples=240),))
    assert said(four, "spread") == []
    (remark,) = said(of_load(jobs=4, streams=(replace(READ, iops_stddev=8_000, iops_samples=240),)), "spread")
    assert "20 %" in remark.text
    assert "8,000 a job" in remark.text


def test_two_runs_further_apart_than_their_spread_are_still_one_run_each() -> None:
    remark = beside(GOOD, of_flow(iops=120_000, iops_mean=120_000))
    assert remark is not None
    assert "+50.0 %" in remark.text
    assert "one run each cannot show" in remark.text


def test_two_runs_without_samples_are_said_to_show_nothing() -> None:
    remark = beside(GOOD, of_flow(iops_stddev=None))
    assert remark is not None
    assert "nothing here shows how far apart" in remark.text
    assert beside(GOOD, of_load(streams=())) is None


@pytest.mark.parametrize(
    ("options", "block_size", "rate"),
    [
        ({"bs": "4k"}, 4096, None),
        ({"bs": "4096B-4096B"}, 4096, None),
        ({"bs": "4KiB"}, None, None),  # 4000 to fio
        ({"bs": "4k-64k", "rate": "100m"}, None, None),
        ({"bsrange": "4k-64k", "rate": "100m"}, None, None),
        ({"bssplit": "4k/50:8k/50"}, None, None),
        ({"rate_iops": "10k"}, 4096, 10240.0),
        ({"bs": "8k", "rate": "80k"}, 8192, 10.0),
    ],
)
def test_a_size_is_known_where_there_is_one_and_as_fio_reads_it(
    options: dict[str, str], block_size: int | None, rate: float | None
) -> None:
    facts = facts_of({"rw": "randread", **options})
    assert (facts.block_size, facts.rate_iops) == (block_size, rate)
