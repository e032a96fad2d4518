# SPDX-License-Identifier: Apache-2.0
"""Does a layer grow by the delay that is planted in it? With and without it in turns, and the device measured alone.

    python benchmarks/sizes.py DIRECTORY [ROUNDS] [ONLY] [--shares SHARES]

The delay of QEMU's null-co is a timer, and a request also waits for the thread that the timer wakes. Nobody knows
that wait beforehand, but it is the same for a longer delay. So each kind has two arms that differ by a known delay,
and the layer's difference within a round is compared with it. A limit on IOPS is known by Little's law: a load with
a fixed number of requests in flight takes that number divided by the limit for each. The last rows show the wait
itself: the time of one request at a time, with the delay and without it, in QEMU's block layer below a guest, and
through a storage daemon without a guest, as its client measures it.

What the device itself takes is measured after each trial, without any of virtune's parts and without a guest. Of a
null-co it is how long a thread sleeps that asks for the same delay, with the timer slack that QEMU gives itself
(`qemu-img bench` is no measure: its main loop waits for whole milliseconds, an IOThread does not). Of a loop device
it is what fio measures on the FUSE file below it. The layer must agree with that.

Prints the layer's difference with its 95 % interval over rounds, whether the planted delay is in it, the difference
of the device itself, and whether the two agree: whether their difference within a round may be 0. Needs root. With
ONLY the kinds that begin with it. SHARES: so many CPU shares for all of it (everybody has 1024).
"""

import argparse
import contextlib
import ctypes
import json
import random
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.layers import DAEMON_FILE, EXPORT, GUEST, group, latency, loop_device, reads
from virtune.analyse.stats.student import mean_and_radius
from virtune.fio.workloads import parse_workload
from virtune.flows.run.preconditions import Leave
from virtune.flows.run.study import new_study, prepared
from virtune.flows.run.trial import run_trial
from virtune.model.measurement import Measurement
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import base_stack, make_arm

SPAN = 256 << 20
SECONDS = 0.6
PR_SET_TIMERSLACK = 29
PLACES, NAMES = ("first", "second"), ("without", "with")
BACKEND = "below.backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Two arms whose layer differs by a known delay.

    `target_ns` are the latencies of the loop devices that the two arms load, where they do. `below` are the metrics
    of the boundaries at which the layer begins and ends, the end empty for all that is below. `limit` is the limit
    on requests a second of the second arm, which makes a request take `depth / limit` altogether. `null_us` are the
    delays of the arms' null-co, in us.
    """

    name: str
    arms: tuple[tuple[str, ...], tuple[str, ...]]
    depth: int
    below: tuple[str, str] = (BACKEND, "")
    planted_ns: float = 0.0
    target_ns: tuple[int, int] | None = None
    limit: int | None = None
    null_us: tuple[int, int] | None = None

    def size(self, measured: Measurement) -> float | None:
        """The layer's time, in ns."""
        begin, end = (measured.get(name) if name else 0.0 for name in self.below)
        return None if begin is None or end is None else begin - end

    def planted(self, without: Measurement) -> float:
        """By how much it must grow, in ns."""
        whole = without.get("latency.mean")
        return self.planted_ns if self.limit is None or whole is None else self.depth / self.limit * 1e9 - whole

    def device(self, number: int, directory: Path) -> float | None:
        """What the device of an arm takes for a request, in ns, as its own client measures it; None for a limit."""
        if self.null_us is not None:
            return slept(self.null_us[number] * 1000)
        return None if self.target_ns is None else fuse_alone(directory / PLACES[number] / "slow", self.depth)


def slept(latency_ns: int) -> float:
    """The mean time, in ns, that a thread sleeps which asks for so long; 0 for none."""
    found: list[float] = []

    def sleep() -> None:
        if ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0):
            raise OSError("no timer slack can be set")
        for _ in range(int(SECONDS * 1e9 / latency_ns)):
            begun = time.perf_counter_ns()
            time.sleep(latency_ns / 1e9)
            found.append(time.perf_counter_ns() - begun)

    if latency_ns:
        thread = threading.Thread(target=sleep)  # the slack is a thread's own
        thread.start()
        thread.join()
    return fmean(found) if found else 0.0


def fuse_alone(file: Path, depth: int) -> float:
    """The mean time of a request on a FUSE file, in ns, by fio with so many jobs."""
    words = ["fio", "--name=alone", f"--filename={file}", "--ioengine=psync", "--direct=1", f"--numjobs={depth}"]
    words += ["--thread", "--rw=randread", "--bs=4k", "--time_based", f"--runtime={int(SECONDS * 1000)}ms"]
    words += ["--group_reporting", "--output-format=json"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    (job,) = json.loads(said[said.index("{") :])["jobs"]
    return float(job["read"]["lat_ns"]["mean"])


def null_co(name: str, base: Sequence[str], first: int, second: int, *, depth: int, below: str = BACKEND) -> Kind:
    """A kind whose arms have a null-co of these delays, in us."""
    arms = (*base, latency(first)), (*base, latency(second))
    planted = (second - first) * 1e3
    return Kind(name=name, arms=arms, depth=depth, null_us=(first, second), planted_ns=planted, below=(below, ""))


METAL = ("rig=metal",)
KINDS = (
    null_co("guest, null-co 500 us more", GUEST, 500, 1000, depth=4),
    null_co("guest, null-co 5 ms more", GUEST, 500, 5500, depth=8),
    null_co("export, null-co 500 us more", EXPORT, 500, 1000, depth=4),
    null_co("export, null-co 5 ms more", EXPORT, 500, 5500, depth=8),
    Kind(
        name="guest, limited to 2,000 IOPS", depth=16, limit=2000,
        arms=((*GUEST, latency(500)), (*GUEST, latency(500), "disk.throttle_iops=2000")),
    ),
    Kind(
        name="metal, loop device 1 ms slower", arms=(METAL, METAL), depth=4, below=("below.device", ""),
        planted_ns=1e6, target_ns=(1_000_000, 2_000_000),
    ),
    Kind(
        name="daemon, loop device 5 ms slower", arms=(DAEMON_FILE, DAEMON_FILE), depth=4, below=("below.device", ""),
        planted_ns=5e6, target_ns=(1_000_000, 6_000_000),
    ),
    null_co("guest, one at a time, null-co 500 us", GUEST, 0, 500, depth=1),
    null_co("guest, one at a time, null-co 5 ms", GUEST, 0, 5000, depth=1),
    null_co("client of an export, one at a time, null-co 500 us", EXPORT, 0, 500, depth=1, below="latency.mean"),
    null_co("client of an export, one at a time, null-co 5 ms", EXPORT, 0, 5000, depth=1, below="latency.mean"),
)  # fmt: skip


def study_of(kind: Kind, directory: Path, arms: Sequence[int], rounds: int, target: Path | None) -> Study:
    """The study of these arms."""
    made = []
    for number in arms:
        stack, settings = base_stack([one for one in kind.arms[number] if not one.endswith("latency_ns=0")])
        made.append(make_arm(NAMES[number], (), stack, settings=settings))
    return new_study(
        Study(
            id="",
            created="",
            kind=StudyKind.MEASURE,
            arms=tuple(made),
            baseline=made[0].name,
            workloads=parse_workload(reads(kind.depth)),
            rounds=rounds,
            seconds=SECONDS,
            ramp_seconds=0.2,
            seed=random.randrange(1_000_000),
            scratch=str(directory / "scratch"),
            span_bytes=SPAN,
            target=None if target is None else str(target),
            title=kind.name,
        )
    )


def trials(study: Study) -> Iterator[tuple[str, int, Measurement]]:
    """Run a study; yields arm, round and measurement of each trial that has one."""
    with prepared(study, lambda _: None, Leave()) as tools:
        for trial in study.trials:
            record, _ = run_trial(study, trial, tools)
            if record.measurement is not None:
                yield trial.arm, trial.round, record.measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A trial, and what its device took for a request alone, in ns, right after it."""

    trial: Measurement
    device_ns: float | None


def measured(kind: Kind, directory: Path, rounds: int) -> Iterator[tuple[Seen, Seen]]:
    """Run a kind; yields the trials without and with the delay of every round in which both were measured."""
    found: dict[int, dict[str, Seen]] = defaultdict(dict)

    def keep(number: int, arm: str, one: Measurement) -> None:
        found[number][arm] = Seen(trial=one, device_ns=kind.device(NAMES.index(arm), directory))

    if kind.target_ns is None:
        for arm, number, one in trials(study_of(kind, directory, (0, 1), rounds, None)):
            keep(number, arm, one)
    else:
        with contextlib.ExitStack() as ends:
            for place in PLACES:
                (directory / place).mkdir(exist_ok=True)
            devices = [
                ends.enter_context(loop_device(directory / place, one))
                for place, one in zip(PLACES, kind.target_ns, strict=True)
            ]
            for number in range(rounds):
                for index in random.sample((0, 1), 2):
                    for name, _, one in trials(study_of(kind, directory, (index,), 1, devices[index])):
                        keep(number, name, one)
    yield from ((one[NAMES[0]], one[NAMES[1]]) for one in found.values() if len(one) == 2)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean."""
    mean, radius = mean_and_radius(values, 0.95)
    assert radius is not None
    return mean - radius, mean + radius


def written(values: Sequence[float]) -> str:
    """The 95 % interval of a mean in us; empty without two values."""
    return "[{:.0f}, {:.0f}] us".format(*(end / 1e3 for end in interval(values))) if len(values) > 1 else ""


def row(kind: Kind, directory: Path, rounds: int) -> str:
    """Measure a kind, keep its rounds, and return its line of the table."""
    layer, planted, whole, device = [], [], [], []
    for without, beside in measured(kind, directory, rounds):
        first, second = kind.size(without.trial), kind.size(beside.trial)
        if first is None or second is None:
            continue
        layer.append(second - first)
        whole.append(second)
        planted.append(kind.planted(without.trial))
        if without.device_ns is not None and beside.device_ns is not None:
            device.append(beside.device_ns - without.device_ns)
    with (directory / "sizes.jsonl").open("a") as kept:
        line = {"kind": kind.name, "planted": planted, "layer": layer, "whole": whole, "device": device}
        print(json.dumps(line), file=kept)
    if len(layer) < 2:
        return f"| {kind.name} | | not measured | {len(layer)} | | | | |"
    apart = [one - other for one, other in zip(layer, planted, strict=True)]
    beyond = [one - other for one, other in zip(layer, device, strict=True)] if device else []
    cells = [f"{fmean(planted) / 1e3:.0f} us", written(layer), str(len(layer)), held(apart), written(whole)]
    return f"| {kind.name} | {' | '.join((*cells, written(device), held(beyond), written(beyond)))} |"


def held(values: Sequence[float]) -> str:
    """Whether differences may be 0."""
    if len(values) < 2:
        return ""
    low, high = interval(values)
    return "yes" if low <= 0 <= high else "no"


def main() -> None:
    """Measure all kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("rounds", type=int, nargs="?", default=12)
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--shares", type=int, default=0)
    asked = parser.parse_args()
    directory: Path = asked.directory.absolute()
    (directory / "scratch").mkdir(parents=True, exist_ok=True)
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    with group("cpu", {"cpu.shares": str(asked.shares)}) if asked.shares else contextlib.nullcontext():
        for kind in (one for one in KINDS if one.name.startswith(asked.only)):
            print(row(kind, directory, asked.rounds), flush=True)


HEADS = ("what grows", "planted", "the layer, 95 % interval", "rounds", "planted is in it", "whole layer",
         "the device itself", "they agree", "the layer takes longer by")  # fmt: skip


if __name__ == "__main__":
    main()
