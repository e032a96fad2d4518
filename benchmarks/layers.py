# SPDX-License-Identifier: Apache-2.0
"""Is the limit named that was planted? Each cause on a storage daemon at two doses, again and again.

    python benchmarks/layers.py [REPETITIONS] [SECONDS]

Every repetition is a trial of its own, in a random order, diagnosed as `virtune diagnose --run` does. Prints a
confusion matrix: what was planted, what was named. `host-cpu` is no wrong answer on a host whose CPUs others use, so
it is counted by itself; `undecidable` is an answer too. A quiet machine with two CPUs takes REPETITIONS minutes.
"""

import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.cli import run
from virtune.flows.diagnose import diagnose_study
from virtune.model.bottleneck import Cause
from virtune.store.store import Store

NULL = ("--set", "disk.backend=null-co")
HOG = "while True: pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A cause as it is planted: the words of `measure`, and how many hogs run beside it on the same CPU."""

    cause: Cause
    words: tuple[str, ...]
    load: str
    hogs: int = 0


def null(latency_us: int) -> tuple[str, ...]:
    """A device of null-co's that answers after so long."""
    return (*NULL, "--set", f"disk.null_latency_ns={latency_us * 1000}")


def reads(depth: int, more: str = "") -> str:
    """Random reads of 4 KiB."""
    return f"rw=randread,bs=4k,iodepth={depth}{more}"


PLANTED: tuple[Planted, ...] = (
    Planted(cause=Cause.DEVICE, words=null(500), load=reads(4)),
    Planted(cause=Cause.DEVICE, words=null(5000), load=reads(8)),
    Planted(cause=Cause.DEPTH, words=null(500), load=reads(1)),
    Planted(cause=Cause.DEPTH, words=null(5000), load=reads(1)),
    Planted(cause=Cause.THROTTLE, words=(*NULL, "--set", "disk.throttle_iops=500"), load=reads(8)),
    Planted(cause=Cause.THROTTLE, words=(*NULL, "--set", "disk.throttle_iops=5000"), load=reads(16)),
    Planted(cause=Cause.THROTTLE, words=(*NULL, "--set", "disk.throttle_bps=4M"), load=reads(8)),
    Planted(cause=Cause.PAGE_CACHE, words=("--set", "disk.cache=writeback"), load=reads(4)),
    Planted(cause=Cause.PAGE_CACHE, words=("--set", "disk.cache=writeback"), load=reads(16)),
    Planted(cause=Cause.NOT_BOUND, words=null(100), load=reads(4, ",rate_iops=200")),
    Planted(cause=Cause.NOT_BOUND, words=null(100), load=reads(4, ",rate_iops=1000")),
    Planted(cause=Cause.MAIN_LOOP, words=NULL, load=reads(32, ",numjobs=2")),
    Planted(cause=Cause.HOST_CPU, words=NULL, load=reads(8), hogs=1),
    Planted(cause=Cause.HOST_CPU, words=null(200), load=reads(8), hogs=4),
)


@contextlib.contextmanager
def beside(hogs: int) -> Iterator[None]:
    """Run hogs on one CPU, and all that is measured meanwhile on the same one."""
    allowed = os.sched_getaffinity(0)
    if hogs:
        os.sched_setaffinity(0, {min(allowed)})
    children = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(hogs)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()
        os.sched_setaffinity(0, allowed)


def named(planted: Planted, directory: Path, seconds: str) -> Cause | None:
    """Measure once and return what is named; None where the trial failed."""
    store = directory / "layers.sqlite"
    store.unlink(missing_ok=True)
    words = ["measure", *planted.words, "--workload", planted.load, "--rounds", "1", "--seconds", seconds]
    words += ["--ramp", "0.2", "-q", "--span", "64M", "--scratch", str(directory), "--store", str(store)]
    with beside(planted.hogs), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        status = run(words)
    if status:
        return None
    with Store(store, reading=True) as kept:
        return diagnose_study(kept, kept.find("last"))[0].found.cause


def main() -> None:
    """Plant, name, count."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = sys.argv[2] if len(sys.argv) > 2 else "2"
    order = [planted for planted in PLANTED for _ in range(repetitions)]
    random.Random(1).shuffle(order)
    found: dict[Planted, Counter[str]] = {planted: Counter() for planted in PLANTED}
    with tempfile.TemporaryDirectory(prefix="layers-", dir="/var/tmp") as directory:
        for planted in order:
            answer = named(planted, Path(directory), seconds)
            found[planted]["failed" if answer is None else answer.value] += 1
    for planted, counts in found.items():
        told = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        right = counts[planted.cause.value]
        wrong = sum(counts.values()) - right - counts[Cause.HOST_CPU] * (planted.cause is not Cause.HOST_CPU)
        wrong -= counts[Cause.UNDECIDED.value] + counts["failed"]
        print(f"{planted.cause.value:12} {' '.join(planted.words)} {planted.load} hogs={planted.hogs}")
        print(f"{'':12} right {right}, wrong {max(0, wrong)}: {told}")


if __name__ == "__main__":
    main()
