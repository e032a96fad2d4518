# SPDX-License-Identifier: Apache-2.0
"""The rig `simulated`: no disk and no load; figures come from a formula and a seed, in fio's format.

It serves to test virtune itself with known effects, noise and failures. Every result of it is labelled as simulated.
`rig=simulated` is the scenario `quiet`; `rig=simulated:noisy` and the others of SCENARIOS disturb the trials. No time
passes in a simulated trial.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from random import Random
from statistics import NormalDist

from virtune.bench.load import Loaded
from virtune.bench.port import DiskImageSpec, Keep, LoadJob, LoadOutput, Surroundings, Window
from virtune.model.errors import LoadError, RigError
from virtune.model.evidence import UNDER_LOAD, Changeover, Check, InForce, to_verify
from virtune.model.knobs import KNOBS
from virtune.model.stack import FileTarget, Stack, setting_of
from virtune.model.text import did_you_mean, setting_text
from virtune.model.workload import BACKGROUND, Job

VERSION = "simulated"
"""The text in results instead of fio's version."""

EFFECTS: Mapping[tuple[str, str], float] = {
    ("disk.aio", "native"): 1.20,
    ("disk.aio", "io_uring"): 1.25,
    ("disk.cache", "writeback"): 0.90,
    ("disk.cache", "writethrough"): 0.60,
    ("disk.cache", "directsync"): 0.65,
    ("disk.cache", "unsafe"): 1.10,
    ("disk.format", "qcow2"): 0.95,
    ("disk.discard", "unmap"): 1.00,
    ("device.iothread", ""): 1.15,
    ("device.bus", "virtio-scsi"): 0.92,
    ("device.bus", "nvme"): 0.70,
    ("device.bus", "ahci"): 0.40,
    ("device.bus", "ide"): 0.20,
    ("disk.during", "backup"): 0.70,
    ("disk.during", "mirror"): 0.75,
    ("disk.during", "snapshot"): 0.60,
    ("disk.during", "discard"): 0.50,
    ("disk.during", "migration"): 0.90,
    ("disk.export", "fuse"): 0.80,
    ("disk.export", "vhost-user-blk"): 1.30,
}
"""The factor of a setting on the disk's capacity in IOPS; an empty value means any. All others have no effect."""

CAPACITY_IOPS = 40_000.0
"""The limit of the base stack's IOPS in 4 KiB blocks, however many requests are in flight."""

BANDWIDTH_BPS = 1e9
"""Its capacity in bytes a second."""

ALONE_NS = 80_000.0
"""The latency of a single request."""

SHAPE = 0.35
"""The standard deviation of the logarithm of a latency: p99 is 2.1 times the mean."""

_ROWS = 200
"""The number of equal parts of the distribution that become fio's bins."""

_LOG_MS = 250

DRIFT_ROUNDS = 1_000
"""The drift restarts after so many rounds: each phase of a search begins at a multiple of it."""

FORGOTTEN = 1e-12
"""The weight below which earlier rounds no longer matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The disturbances of trials. Spreads are standard deviations of the logarithm; the others are shares or
    probabilities.

    `noise` is each trial's own, `round_noise` is shared by all arms of a round, `alike` is the lag-1 autocorrelation
    of a trial's own noise from round to round, `drift` the loss with each round, `dips` the probability that a trial
    loses a third of its figures, `failures` that its load fails, `hangs` that it never ends.
    """

    noise: float = 0.01
    round_noise: float = 0.02
    alike: float = 0.0
    drift: float = 0.0
    dips: float = 0.0
    failures: float = 0.0
    hangs: float = 0.0


SCENARIOS: Mapping[str, Scenario] = {
    "quiet": Scenario(),
    "exact": Scenario(noise=0.0, round_noise=0.0),
    "noisy": Scenario(noise=0.15, round_noise=0.10),
    "alike": Scenario(noise=0.03, alike=0.7),
    "drifting": Scenario(drift=0.02),
    "dipping": Scenario(dips=0.15),
    "failing": Scenario(failures=0.25),
    "hanging": Scenario(hangs=0.10),
    "lost": Scenario(failures=1.0),
}
"""The scenarios by their names."""


def effect_of(stack: Stack) -> float:
    """Return the factor by which this stack's capacity differs from the base stack's: the true effect in the
    simulation.
    """
    factor = 1.0
    for knob in KNOBS:
        if knob.place and (value := setting_of(stack, knob)) is not None:
            factor *= EFFECTS.get((knob.id, str(value)), EFFECTS.get((knob.id, ""), 1.0))
    return factor


@dataclass(kw_only=True)
class SimulatedBench(Loaded):
    """A simulated stack."""

    scenario: Scenario
    attempts: dict[tuple[str, int], int]

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        # settings that are not in the stack's text are added, so that a later one changes no other arm's chance
        mine = ((one.name, getattr(self.stack, one.name)) for one in fields(self.stack) if not one.repr)
        newer = "" if self.stack.pins.load is None else f" load.pin={self.stack.pins.load}"
        newer += "".join(f" {name}={value}" for name, value in mine if value != getattr(Stack(), name))
        place = f"{self.stack!r}{newer} {jobs[0].workload.name}"
        key = place, window.round
        self.attempts[key] = self.attempts.get(key, 0) + 1
        chance = _drawn(f"{window.seed} {window.round} {self.attempts[key]} {place}")
        fate = chance.random()
        if fate < self.scenario.failures:
            raise LoadError("the simulated load failed", hint="this scenario has loads fail now and then")
        if fate < self.scenario.failures + self.scenario.hangs:
            raise LoadError("the simulated load did not end 30 s after its run time: it is stuck")
        dipped = chance.random() < self.scenario.dips
        factor = effect_of(self.stack) * self._disturbed(window, place)
        keep.capture("simulated.txt", f"{self.scenario}\nfactor {factor:.6f}\n{'dipped' if dipped else 'steady'}\n")
        outputs = [_document(one, self.stack, window, factor * (2 / 3 if dipped else 1.0)) for one in jobs]
        return LoadOutput(
            output=outputs[0][0],
            beside=tuple(output for output, _ in outputs[1:]),
            log=_log(math.fsum(iops for _, iops in outputs), window, chance, dipped=dipped),
            command=self.command,
            checks=(
                Check("load.program", VERSION, VERSION, "the result is simulated"),
                *_checks(self.stack, f"simulated {UNDER_LOAD}"),
            ),
        )

    def _disturbed(self, window: Window, place: str) -> float:
        """Return the factor of this round's noise and drift, a function of seed, round and arm."""
        own = _autocorrelated(f"{window.seed} {place}", window.round, self.scenario.alike)
        shared = _drawn(f"{window.seed} {window.round}").gauss(0, 1)
        noise = self.scenario.noise * own + self.scenario.round_noise * shared
        return math.exp(noise) * (1 - self.scenario.drift) ** ((window.round - 1) % DRIFT_ROUNDS)


class SimulatedSession:
    """A session without processes; it counts the attempts at a trial, so that a repeated one can end differently."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, int], int] = {}
        self._count = 0

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[SimulatedBench]:
        name = stack.domain or "quiet"
        if name not in SCENARIOS:
            hint = did_you_mean(name, SCENARIOS) or f"one of {', '.join(SCENARIOS)}"
            raise RigError(f"there is no scenario {name!r} to simulate", hint=hint)
        fresh = restart or self._count == 0
        changeover = Changeover(
            swapped=None if fresh else "disk",
            seconds=0.001,
            process=1,
            carried=0 if fresh else self._count,
            why="simulated" if fresh else "",
        )
        self._count += 1
        yield SimulatedBench(
            target=FileTarget(path="/simulated", size_bytes=ground.size_bytes),
            in_force=InForce(checks=_checks(stack, "simulated"), changeover=changeover),
            command=f"simulated: scenario {name}, capacity x {effect_of(stack):.3f}\n",
            stack=stack,
            scenario=SCENARIOS[name],
            attempts=self._attempts,
            changeover=changeover,
        )


def session(stack: Stack, place: Surroundings) -> AbstractContextManager[SimulatedSession]:  # noqa: ARG001 - no need
    """Return the rig, which needs no preparation."""
    return contextlib.nullcontext(SimulatedSession())


def _checks(stack: Stack, proof: str) -> tuple[Check, ...]:
    """Return a check for each setting that equals the request, as befits a simulated stack."""
    values = {knob.id: setting_of(stack, knob) for knob in KNOBS if knob.place}
    return tuple(
        Check(name, setting_text(values[name]), setting_text(values[name]), proof, guest=guest)
        for guest in range(stack.guests)
        for name in to_verify(stack)
    )


def _drawn(seed: str) -> Random:
    return Random(seed)  # noqa: S311 - the same chance again, not a secret


def _autocorrelated(seed: str, count: int, alike: float) -> float:
    """Return the value of a stationary AR(1) process of variance 1 at a round, a function of its arguments only.

    It starts where earlier rounds have a weight below FORGOTTEN, since the rounds of a search are numbered by the
    million.
    """
    memory = math.ceil(math.log(FORGOTTEN) / math.log(alike)) if alike > 0 else 1
    first = max(0, count - memory)
    weight = math.sqrt(1 - alike**2)
    value = _drawn(f"{seed} {first}").gauss(0, 1)
    for number in range(first + 1, count + 1):
        value = alike * value + weight * _drawn(f"{seed} {number}").gauss(0, 1)
    return value


def _document(load: LoadJob, stack: Stack, window: Window, factor: float) -> tuple[bytes, float]:
    """Return the result of one load in fio's format, and its IOPS without those of a background job."""
    jobs = load.workload.jobs
    depth = sum(job.depth for job in jobs)
    entries, total = [], 0.0
    for group, job in enumerate(jobs):
        iops = _iops(job, stack, factor / stack.guests, share=job.depth / depth, in_flight=depth)
        mean = _mean_ns(job, stack, iops, factor / stack.guests)
        total += 0.0 if job.name == BACKGROUND else iops
        entries.append(_entry(job, window, iops, mean, group))
    document = {"fio version": VERSION, "global options": {}, "jobs": entries, "disk_util": []}
    return json.dumps(document).encode(), total


def _capacity(job: Job) -> float:
    """The base stack's capacity in IOPS for such blocks."""
    return min(CAPACITY_IOPS, BANDWIDTH_BPS / job.block_size)


def _iops(job: Job, stack: Stack, factor: float, *, share: float, in_flight: int) -> float:
    """A closed loop on a disk with a capacity: each request waits for the others in flight."""
    capacity = _capacity(job) * factor
    iops = share * in_flight / (ALONE_NS / 1e9 + in_flight / capacity)
    offered = _offered(job)
    return min([iops, *_limits(job, stack), *([] if offered is None else [offered])])


def _limits(job: Job, stack: Stack) -> Iterator[float]:
    """The disk's capacity under the requested limits, in IOPS of the whole job."""
    for name, limit in stack.disk.limits.items():
        of, per = name.partition("-")[2], job.block_size if name.startswith("bps") else 1
        share = _parts(job).get(of, 1.0)
        if share:
            yield limit / per / share


def _offered(job: Job) -> float | None:
    """The IOPS that a job with a rate offers, all its clones together; None for a closed loop."""
    rate = job.get("rate_iops", "")
    return sum(float(part) for part in rate.split(",")) * int(job.get("numjobs", "1")) if rate else None


def _parts(job: Job) -> dict[str, float]:
    reads = 1.0 if not job.writes else int(job.get("rwmixread", "50")) / 100 if job.reads else 0.0
    return {"read": reads, "write": 1 - reads}


def open_loop_ns(offered: float, capacity: float, *, depth: int, alone_ns: float = ALONE_NS) -> float:
    """Return the mean latency in ns of an open-loop load on a disk of that capacity, the true value of a sweep.

    It is a queue with as many servers as the disk's parallelism and random arrivals (Sakasegawa 1977); an overloaded
    disk has the full queue depth in its queue.
    """
    busy, servers = offered / capacity, max(1.0, capacity * alone_ns / 1e9)
    longest = depth / capacity * 1e9
    if busy >= 1:
        return longest
    waiting = alone_ns / servers * math.pow(busy, math.sqrt(2 * (servers + 1)) - 1) / (1 - busy)
    return min(longest, alone_ns + waiting)


def _mean_ns(job: Job, stack: Stack, iops: float, factor: float) -> float:
    """The mean latency: of a closed loop by Little's law, of an open loop by its queue."""
    offered = _offered(job)
    if offered is None:
        return job.depth / iops * 1e9
    capacity = min([_capacity(job) * factor, *_limits(job, stack)])
    return open_loop_ns(offered, capacity, depth=job.depth, alone_ns=ALONE_NS / factor)


def _entry(job: Job, window: Window, iops: float, mean: float, group: int) -> dict[str, object]:
    parts = _parts(job)
    entry: dict[str, object] = {
        "jobname": job.name,
        "groupid": group,
        "error": 0,
        "job options": {"ioengine": "io_uring", "direct": "1", **job.as_dict()},
        "usr_cpu": 2.0,
        "sys_cpu": 8.0,
        "ctx": round(iops * window.seconds),
        "job_runtime": round(window.seconds * 1000) * int(job.get("numjobs", "1")),
    }
    return entry | {
        direction: _direction(iops * part, mean, job.block_size, window) for direction, part in parts.items() if part
    }


def _direction(iops: float, mean_ns: float, block: int, window: Window) -> dict[str, object]:
    count = max(1, round(iops * window.seconds))
    latency = _latency(count, mean_ns)
    return {
        "io_bytes": count * block,
        "bw_bytes": round(iops * block),
        "iops": iops,
        "runtime": round(window.seconds * 1000),
        "total_ios": count,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": {"min": 800, "max": 20_000, "mean": 2_000.0, "stddev": 300.0, "N": count},
        "clat_ns": latency,
        "lat_ns": latency,
        "iops_min": iops,
        "iops_max": iops,
        "iops_mean": iops,
        "iops_stddev": 0.0,
        "iops_samples": max(1, int(window.seconds * 2)),
    }


def _latency(count: int, mean_ns: float) -> dict[str, object]:
    """Return a log-normal latency of that mean, in bins."""
    quantiles = [NormalDist().inv_cdf((row + 0.5) / _ROWS) for row in range(_ROWS)]
    shapes = [math.exp(SHAPE * one) for one in quantiles]
    scale = mean_ns * _ROWS / math.fsum(shapes)
    ends = [count * (row + 1) // _ROWS for row in range(_ROWS)]
    bins: dict[int, int] = {}
    for row, shape in enumerate(shapes):
        held = ends[row] - (ends[row - 1] if row else 0)
        if held:
            bins[round(scale * shape)] = bins.get(round(scale * shape), 0) + held
    return {
        "min": min(bins),
        "max": max(bins),
        "mean": mean_ns,
        "stddev": mean_ns * SHAPE,
        "N": count,
        "bins": {str(value): held for value, held in bins.items()},
    }


def _log(iops: float, window: Window, chance: Random, *, dipped: bool) -> bytes:
    """Return fio's log of IOPS over the measured time; the middle third is the dip."""
    steps = max(1, round(window.seconds * 1000 / _LOG_MS))
    lines = []
    for step in range(steps):
        low = dipped and steps // 3 <= step < math.ceil(2 * steps / 3)
        level = iops * (0.05 if low else 1.475 if dipped else 1.0) * math.exp(chance.gauss(0, 0.01))
        lines.append(f"{(step + 1) * _LOG_MS}, {round(level)}, 0, 0, 0\n")
    return "".join(lines).encode()
