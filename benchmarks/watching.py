# SPDX-License-Identifier: Apache-2.0
"""What watching costs: IOPS of seconds with a sample of the counters in them, against seconds without.

    python benchmarks/watching.py [PAIRS] [SAMPLES]

One fio loads a null device behind the storage daemon all the time, because nothing there hides the CPU that the
sampler takes: the load is bound by the CPU alone. Of every two neighbouring seconds one, drawn at random, is
sampled, so that the host's own ups and downs fall on both alike. Trials are sampled once a second; what that costs is
far below what a shared machine's noise lets anybody see, so a sampled second gets SAMPLES of them, evenly spread, and
the change is divided by their number. Prints the ratio of IOPS, sampled to not sampled, with its 95 % interval, what
that makes for one sample a second, and the CPU time of a sample.
"""

import statistics
import sys
import time
from pathlib import Path
from random import Random

from virtune.analyse.stats.paired import interval_of
from virtune.bench.counters import Sampler
from virtune.bench.daemon import DaemonBench
from virtune.bench.port import DiskImageSpec, Surroundings, session
from virtune.model.stack import Disk, NbdTarget, Stack
from virtune.probe.devices import backing_of
from virtune.shell import Warden


def per_second(log: Path) -> dict[int, float]:
    """Read fio's IOPS log (ms since the epoch, I/Os a second over the last 100 ms) into means of whole seconds."""
    found: dict[int, list[float]] = {}
    for line in log.read_text().splitlines():
        milliseconds, value = line.split(",")[:2]
        found.setdefault((int(milliseconds) - 50) // 1000, []).append(float(value))
    return {second: statistics.fmean(values) for second, values in found.items() if len(values) >= 9}


def watch(sampler: Sampler, pairs: int, samples: int) -> tuple[list[tuple[int, int]], list[float]]:
    """Sample one second of each pair; returns (not sampled, sampled) and the CPU seconds of each sample."""
    chance = Random(1)
    found, cost = [], []
    start = int(time.time()) + 2
    for number in range(pairs):
        seconds = [start + 2 * number, start + 2 * number + 1]
        sampled = chance.choice(seconds)
        for sample in range(samples):
            time.sleep(max(0.0, sampled + (sample + 0.5) / samples - time.time()))
            begun = time.thread_time()
            sampler.sample()
            cost.append(time.thread_time() - begun)
        found.append((seconds[0] + seconds[1] - sampled, sampled))
    return found, cost


def main() -> None:
    """Load, sample, compare."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 25
    stack = Stack(disk=Disk(backend="null-co"))
    with (
        Warden("watching") as warden,
        session(Surroundings(warden=warden, scratch=warden.directory)) as rigs,
        rigs.up(stack, DiskImageSpec(image=None, size_bytes=1024**3, writes=False)) as bench,
    ):
        assert isinstance(bench, DaemonBench)
        assert isinstance(bench.target, NbdTarget)
        job = f"[load]\nthread=1\nioengine=nbd\nuri={bench.target.uri}\nrw=randread\nbs=4k\niodepth=32\ntime_based\n"
        job += f"runtime={2 * pairs + 6}s\nwrite_iops_log=load\nlog_avg_msec=100\nlog_unix_epoch=1\nper_job_logs=0\n"
        (warden.directory / "load.fio").write_text(job)
        sampler = Sampler(
            devices=backing_of(Path.cwd()).names, processes=bench.processes, files={"image": Path(__file__)}
        )
        with warden.running(["fio", "--eta=never", "load.fio"], name="load") as fio:
            time.sleep(1)
            sampler.add_process("load", fio.pid)
            seconds, cost = watch(sampler, pairs, samples)
            fio.wait(30)
        iops = per_second(warden.directory / "load_iops.log")
    found = [(iops[off], iops[on]) for off, on in seconds if off in iops and on in iops]
    ratio = interval_of(found, confidence=0.95)
    assert ratio is not None
    change, low, high = ((value - 1) * 100 for value in (ratio.estimate, ratio.low, ratio.high))
    print(f"{len(found)} pairs: {samples} samples a second change IOPS by {change:+.2f} % [{low:+.2f}, {high:+.2f}]")
    each = (value / samples for value in (change, low, high))
    print("one a second: {:+.3f} % [{:+.3f}, {:+.3f}] (95 %)".format(*each))
    print(f"CPU time of a sample: median {statistics.median(cost) * 1e3:.2f} ms, of 1000 ms of each CPU")


main()
