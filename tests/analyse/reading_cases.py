# SPDX-License-Identifier: Apache-2.0
"""Results of fio that a rule speaks of, with its numbers, and results that it is silent on."""

from dataclasses import replace

from tests.analyse.recordings import recorded

from virtune.fio.results import read_result
from virtune.model.measurement import DeviceUse, FioResult, Latency, LoadResult, Stream
from virtune.model.remark import Weight

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


TARGET = (("rw", "randread"), ("ioengine", "libaio"), ("iodepth", "64"), ("latency_target", "500us"))
FLUSH = Latency(count=8_182, mean_ns=3.63e6)
"""Nearly always under way."""


GOOD = FioResult(source="json", version="fio-3.33", loads=(LOAD,), devices=(DEVICE,))


def of_load(**changes: object) -> FioResult:
    return replace(GOOD, loads=(replace(LOAD, **changes),))  # type: ignore[arg-type]


def of_flow(**changes: object) -> FioResult:
    return of_load(streams=(replace(READ, **changes),))  # type: ignore[arg-type]


def of_device(**changes: object) -> FioResult:
    return replace(GOOD, devices=(replace(DEVICE, **changes),))  # type: ignore[arg-type]


FIRES: dict[str, tuple[FioResult, Weight, tuple[str, ...]]] = {
    "page-cache, buffered": (
        replace(of_load(direct=False), devices=()),
        Weight.INVALID, ("direct=1 was not set", "Nothing shows how many of its 2,400,000 I/Os"),
    ),
    "page-cache, buffered but cold": (of_load(direct=False), Weight.WARNING, ("99.7 %", "mostly cold")),
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
    "unequal-times": (
        replace(GOOD, loads=(LOAD, replace(LOAD, name="short", streams=(replace(READ, seconds=10.0, ios=800_000),)))),
        Weight.WARNING, ("10 s to 30 s", "160k IOPS", "over the whole 30 s it was 107k"),
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
        Weight.WARNING, ("direct=1 was not set", "800 ns", "vda, which moved 99.5 % of the bytes", "503 KiB"),
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
    "sync-share": (
        read_result(recorded("fsync.both")), Weight.NOTE, ("88 %", "10,698", "165 us", "not in the latencies"),
    ),
    "sync-share, deep": (of_load(sync=FLUSH), Weight.NOTE, ("99 % of the time: 8,182", "in those latencies too")),
    "sync-share, beside": (of_load(sync=FLUSH, engine="io_uring"), Weight.NOTE, ("8,182 fsyncs at 3.63 ms mean.",)),
    "cut-short, ended": (
        of_load(options=(("time_based", "1"), ("runtime", "60"))), Weight.WARNING, ("30 s of the 60 s",),
    ),
    "cut-short, steady": (
        of_load(options=(("time_based", "1"), ("runtime", "60s"), ("steadystate", "iops:1%"))),
        Weight.WARNING, ("once it was steady",),
    ),
    "kernel-cpu": (GOOD, Weight.NOTE, ("sys 30 %", "usr 10 %", "3.75 us of sys per I/O")),
    "device-busy, not always": (of_device(busy_percent=68.89), Weight.NOTE, ("68.89 %", "no measure of what is")),
    "device-busy": (of_device(busy_percent=99.9), Weight.NOTE, ("99.9 %", "does not prove saturation")),
    "contradiction, options": (
        of_load(options=(("rw", "randwrite"), ("ioengine", "libaio"), ("iodepth", "8"))),
        Weight.WARNING,
        ("rw=randwrite", "2,400,000 reads"),
    ),
    "misnamed": (of_load(name="random-write-test"), Weight.WARNING, ("random-write-test", "2,400,000 reads")),
    "device-others": (
        of_device(reads=5_000_000),
        Weight.WARNING, ("vda completed 5,000,000 reads, and fio's jobs did 2,400,000", "others read from it"),
    ),
    "device-share": (GOOD, Weight.NOTE, ("100 us mean latency", "79.3 us (79 %)", "vda")),
}  # fmt: skip


SILENT: dict[str, FioResult] = {
    "contradiction, options not known": of_load(options=None),
    "misnamed": GOOD,
    "misnamed, a thread": of_load(name="thread-1", streams=(replace(READ, direction="write"),)),
    "page-cache": GOOD,
    "cut-short": of_load(options=(("rw", "randread"), ("number_ios", "2400000"))),
    "cut-short, as asked": of_load(options=(("time_based", "1"), ("runtime", "30"))),
    "cut-short, the job's end": of_load(options=(("runtime", "60"),)),
    "latency-parts, behind flushes": of_load(sync=FLUSH),
    "depth, of a latency target": of_load(depth=64, depth_levels=(("1", 1.0),), options=TARGET),
    "little, of a latency target": of_load(depth=64, depth_levels=(("1", 1.0),), options=TARGET),
    "contradiction, of a latency target": of_load(depth=64, depth_levels=(("1", 1.0),), options=TARGET),
    "page-cache, not through the kernel": replace(of_load(engine="nbd", direct=False), devices=()),
    "page-cache, nothing known": replace(of_load(direct=None), devices=()),
    "unserved, sequential": replace(of_load(pattern="read"), devices=(replace(DEVICE, reads=100),)),
    "unserved, too short to count": replace(of_flow(seconds=1.0), devices=(replace(DEVICE, reads=100),)),
    "unserved, no device known": replace(GOOD, devices=()),
    "cached-sync": GOOD,
    "unequal-times": replace(
        GOOD, loads=(LOAD, replace(LOAD, streams=(replace(READ, seconds=29.5, ios=2_360_000),)))
    ),
    "unequal-times, of a moment": replace(
        GOOD, loads=tuple(replace(LOAD, streams=(replace(READ, seconds=ran),)) for ran in (0.2, 0.3))
    ),
    "unequal-times, one after another": replace(
        GOOD,
        loads=tuple(
            replace(LOAD, group=number, began=100.0 * number, streams=(replace(READ, seconds=30.0 / number),))
            for number in (1, 2)
        ),
    ),
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
    "rate-unmet, one is due": replace(
        of_load(rate_asked_iops=40, streams=(replace(READ, ios=40, bytes=40 * 4096, seconds=1.022, iops=39.14),)),
        devices=(),
    ),
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
    "device-others": of_device(reads=4_700_000),
    "device-others, in the ramp": replace(
        of_load(options=(*(LOAD.options or ()), ("ramp_time", "30"))), devices=(replace(DEVICE, reads=5_000_000),)
    ),
    "device-others, divided": replace(of_flow(bytes=2_400_000 * 2**20), devices=(replace(DEVICE, reads=5_000_000),)),
    "device-others, read ahead": replace(of_load(direct=False), devices=(replace(DEVICE, reads=5_000_000),)),
    "device-share": of_device(reads=1_000_000),
    "device-share, not timed": of_device(read_seconds=0.0),
    "device-share, buffered": of_load(direct=False),
}
