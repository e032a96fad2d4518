# SPDX-License-Identifier: Apache-2.0
"""What watching costs: IOPS with and without the counters, in alternation, on one stack that is up all the time.

    python benchmarks/watching.py [PAIRS] [SECONDS]

A null device behind the storage daemon is loaded, because nothing there hides the CPU that the sampler takes: the
load is bound by the CPU alone. Prints the ratio of IOPS, watched to unwatched, with its 95 % interval.
"""

import sys
from pathlib import Path
from random import Random

from virtune.analyse.compare import interval_of
from virtune.analyse.fio import read_result
from virtune.bench.counters import Sampler
from virtune.bench.load import Moments, run_load
from virtune.bench.rig import Bench, Ground, up
from virtune.model.stack import Disk, Stack
from virtune.model.target import NbdTarget
from virtune.probe.devices import backing_of
from virtune.shell import Warden


def iops(bench: Bench, warden: Warden, seconds: float, *, watched: bool) -> float:
    """Load the bench once and return what fio says."""
    assert isinstance(bench.target, NbdTarget)
    job = f"[load]\nthread=1\nioengine=nbd\nuri={bench.target.uri}\nrw=randread\nbs=4k\niodepth=32\ntime_based\n"
    job += f"runtime={round(seconds * 1000)}ms\nramp_time=300ms\n"

    def load(sampler: Sampler | None) -> bytes:
        moments = Moments(
            begin_seconds=0.4,
            end_seconds=0.3 + seconds,
            on_begin=lambda pid: sampler.add_process("load", pid) if sampler else None,
            on_end=lambda: None,
        )
        return run_load("fio", job, (), bench=bench, warden=warden, moments=moments, flushes=False).output

    if not watched:
        return sum(part.iops for part in read_result(load(None).decode()).loads)
    with Sampler(
        devices=backing_of(Path.cwd()).names, processes=bench.processes, files={"image": Path(__file__)}
    ) as sampler:
        return sum(part.iops for part in read_result(load(sampler).decode()).loads)


def main() -> None:
    """Run the pairs and print the ratio."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    chance = Random(1)
    stack = Stack(disk=Disk(backend="null-co"))
    found = []
    with (
        Warden("watching") as warden,
        up(stack, Ground(image=None, size_bytes=1024**3, writes=False), warden) as bench,
    ):
        for number in range(1, pairs + 1):
            order = chance.sample([False, True], 2)
            by_kind = {watched: iops(bench, warden, seconds, watched=watched) for watched in order}
            found.append((by_kind[False], by_kind[True]))
            print(f"{number:3}  unwatched {by_kind[False]:9.0f}  watched {by_kind[True]:9.0f}", flush=True)
    ratio = interval_of(found, confidence=0.95)
    assert ratio is not None
    change, low, high = ((value - 1) * 100 for value in (ratio.estimate, ratio.low, ratio.high))
    print(f"\n{pairs} pairs of {seconds:g} s: watching changes IOPS by {change:+.2f} % [{low:+.2f}, {high:+.2f}]")


main()
