# SPDX-License-Identifier: Apache-2.0
"""Does a layer grow by the delay that is planted in it? With and without it in turns, and the device measured alone.

    python benchmarks/sizes.py DIRECTORY [ROUNDS] [ONLY]

The delay of QEMU's null-co is a timer, and a request also waits for the thread that the timer wakes. Nobody knows
that wait beforehand, but it is the same for a longer delay. So each kind has two arms that differ by a known delay,
and the layer's difference within a round is compared with it. A limit on IOPS is known by Little's law: a load with
a fixed number of requests in flight takes that number divided by the limit for each. The last rows show the wait
itself: the time of one request at a time, with the delay and without it, in QEMU's block layer below a guest, and
through a storage daemon without a guest, as its client measures it. These must agree. Prints the difference with its
95 % interval over rounds, and whether the planted delay is in it. Needs root. With ONLY the kinds that begin with
it.
"""

import contextlib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.layers import DAEMON_FILE, EXPORT, GUEST, latency, loop_device, reads
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Two arms whose layer differs by a known delay.

    `target_ns` are the latencies of the loop devices that the two arms load, where they do. `below` are the metrics
    of the boundaries at which the layer begins and ends, the end empty for all that is below. `limit` is the limit
    on requests a second of the second arm, which makes a request take `depth / limit` altogether.
    """

    name: str
    arms: tuple[tuple[str, ...], tuple[str, ...]]
    depth: int
    below: tuple[str, str] = ("below.backend", "")
    planted_ns: float = 0.0
    target_ns: tuple[int, int] | None = None
    limit: int | None = None

    def size(self, measured: Measurement) -> float | None:
        """The layer's time, in ns."""
        begin, end = (measured.get(name) if name else 0.0 for name in self.below)
        return None if begin is None or end is None else begin - end

    def planted(self, without: Measurement) -> float:
        """By how much it must grow, in ns."""
        whole = without.get("latency.mean")
        return self.planted_ns if self.limit is None or whole is None else self.depth / self.limit * 1e9 - whole


def null_co(base: Sequence[str], first: int, second: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arms with these latencies, in us."""
    return (*base, latency(first)), (*base, latency(second))


METAL = ("rig=metal",)
KINDS = (
    Kind(name="guest, null-co 500 us more", arms=null_co(GUEST, 500, 1000), depth=4, planted_ns=5e5),
    Kind(name="guest, null-co 5 ms more", arms=null_co(GUEST, 500, 5500), depth=8, planted_ns=5e6),
    Kind(name="export, null-co 500 us more", arms=null_co(EXPORT, 500, 1000), depth=4, planted_ns=5e5),
    Kind(name="export, null-co 5 ms more", arms=null_co(EXPORT, 500, 5500), depth=8, planted_ns=5e6),
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
    Kind(
        name="guest, one at a time, null-co 500 us", arms=null_co(GUEST, 0, 500), depth=1, planted_ns=5e5,
    ),
    Kind(
        name="guest, one at a time, null-co 5 ms", arms=null_co(GUEST, 0, 5000), depth=1, planted_ns=5e6,
    ),
    Kind(
        name="device alone: export, one at a time, null-co 500 us", arms=null_co(EXPORT, 0, 500), depth=1,
        below=("latency.mean", ""), planted_ns=5e5,
    ),
    Kind(
        name="device alone: export, one at a time, null-co 5 ms", arms=null_co(EXPORT, 0, 5000), depth=1,
        below=("latency.mean", ""), planted_ns=5e6,
    ),
)  # fmt: skip


def study_of(kind: Kind, directory: Path, arms: Sequence[int], rounds: int, target: Path | None) -> Study:
    """The study of these arms."""
    made = []
    for number in arms:
        stack, settings = base_stack([one for one in kind.arms[number] if not one.endswith("latency_ns=0")])
        made.append(make_arm(("without", "with")[number], (), stack, settings=settings))
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


def measured(kind: Kind, directory: Path, rounds: int) -> Iterator[Mapping[str, Measurement]]:
    """Run a kind; yields both arms of every round in which both were measured."""
    found: dict[int, dict[str, Measurement]] = defaultdict(dict)
    if kind.target_ns is None:
        for arm, number, one in trials(study_of(kind, directory, (0, 1), rounds, None)):
            found[number][arm] = one
    else:
        with contextlib.ExitStack() as ends:
            for place in ("first", "second"):
                (directory / place).mkdir(exist_ok=True)
            devices = [
                ends.enter_context(loop_device(directory / place, one))
                for place, one in zip(("first", "second"), kind.target_ns, strict=True)
            ]
            for number in range(rounds):
                for index in random.sample((0, 1), 2):
                    for name, _, one in trials(study_of(kind, directory, (index,), 1, devices[index])):
                        found[number][name] = one
    yield from (one for one in found.values() if len(one) == 2)


def main() -> None:
    """Measure all kinds."""
    directory, rounds = Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 12
    (directory / "scratch").mkdir(parents=True, exist_ok=True)
    print("| what grows | planted | measured, 95 % interval | rounds | planted is in it | whole layer |")
    print("|---|---|---|---|---|---|", flush=True)
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    for kind in (one for one in KINDS if one.name.startswith(only)):
        differences, planted, whole = [], [], []
        for one in measured(kind, directory, rounds):
            first, second = kind.size(one["without"]), kind.size(one["with"])
            if first is not None and second is not None:
                planted.append(kind.planted(one["without"]))
                differences.append(second - first - planted[-1])
                whole.append(second)
        with (directory / "sizes.jsonl").open("a") as kept:
            print(json.dumps({"kind": kind.name, "planted": planted, "too_large": differences}), file=kept)
        if len(differences) < 2:
            print(f"| {kind.name} | | not measured | {len(differences)} | | |", flush=True)
            continue
        (wrong, radius), (meant, _), (size, size_radius) = (
            mean_and_radius(values, 0.95) for values in (differences, planted, whole)
        )
        assert radius is not None
        assert size_radius is not None
        low, high = ((meant + wrong + sign * radius) / 1e3 for sign in (-1, 1))
        held = "yes" if abs(wrong) <= radius else "no"
        layer = f"[{(size - size_radius) / 1e3:.0f}, {(size + size_radius) / 1e3:.0f}] us"
        said = f"{meant / 1e3:.0f} us | [{low:.0f}, {high:.0f}] us"
        print(f"| {kind.name} | {said} | {len(differences)} | {held} | {layer} |", flush=True)


if __name__ == "__main__":
    main()
