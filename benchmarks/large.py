# SPDX-License-Identifier: Apache-2.0
"""Spaces too large to race all of them: how good is the winner of a race that Optuna feeds, and of one fed by chance?

    python -m benchmarks.large [--runs 20] [--host quiet drift shared]

Drives the product's own searches block for block (`analyse.search.tuning`, `plan.search`) over a simulated response
surface: real knobs, effects of each value, of each pair of values, and noise of the hosts in `hosts.py`. Seeds are
fixed and the best is known.
"""

import argparse
import itertools
import math
from dataclasses import replace
from random import Random

import numpy as np

from benchmarks.hosts import HOSTS, Host, Stacks
from virtune.analyse.search.pilot import seconds_of
from virtune.analyse.search.tuning import tuning
from virtune.model.durability import Promise
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.knob import Answer, Support
from virtune.model.measurement import Measurement
from virtune.model.search import Goal, Search, phase_of
from virtune.model.study import Study, StudyKind, Trial
from virtune.model.study_options import StudyOptions
from virtune.model.tuning import Space, Tuning
from virtune.model.workload import Workload, job
from virtune.plan import space as planned
from virtune.plan.space import TRIES, proposals, space_of
from virtune.plan.space import HostSupport as What

VARY = (
    "disk.aio=threads,native,io_uring",
    "disk.format=raw,qcow2",
    "disk.cluster_size=64k,256k,2M",
    "disk.l2_cache_size=1M,8M",
    "disk.discard=ignore,unmap",
    "export.num_queues=1,2,4,8",
    "iothread.poll_max_ns=0,8192,32768,131072",
)
PLACE = Workload(name="reads", meaning="", jobs=(job("reads", {"rw": "randread"}),))


def space() -> Space:
    """Return some hundred configurations of one durability."""
    answer = Answer(program="qemu-storage-daemon", standing=Support.VALUES, values=("threads", "native", "io_uring"))
    host = What(answers={"disk.aio": (answer,)}, io_uring=True, cpus=8)
    return space_of(StudyOptions(rig="vhost-user", vary=VARY, fix=("disk.cache=none",)), host)


def surface(arms: list[dict[str, str]], chance: np.random.Generator) -> Stacks:
    """Draw ln of every configuration's rate: of 40 % of the knobs nothing, else of each value, and of pairs."""
    level = np.zeros(len(arms))
    knobs = sorted({knob for arm in arms for knob in arm})
    works = {knob: chance.random() > 0.4 for knob in knobs}
    effects: dict[tuple[str, ...], float] = {}
    for index, arm in enumerate(arms):
        for knob, value in arm.items():
            level[index] += works[knob] * effects.setdefault((knob, value), chance.normal(0, 0.07))
        for pair in itertools.combinations(sorted(arm.items()), 2):
            level[index] += effects.setdefault((*pair[0], *pair[1]), chance.normal(0, 0.012))
    count = len(arms)
    return Stacks(
        level=level + chance.normal(0, 0.008, count),
        sensitivity=chance.uniform(0.7, 1.2, count),
        start_depth=chance.uniform(-0.12, 0.03, count),
        start_seconds=chance.uniform(0.05, 0.35, count),
    )


def study_of(found: Space, seed: int) -> Study:
    """Return a search of a space of which not all is raced."""
    ranked = tuple(arm.name for arm in found.ranked)
    asked = Search(goal=Goal(), mode="quick", promise=Promise.FLUSH, ranked=ranked, factors=found.factors,
                   slice_seconds=1.0, tries=TRIES, confirm_pairs=0)  # fmt: skip
    return Study(id="simulated", created="2026-01-01T00:00:00+00:00", kind=StudyKind.TUNE, arms=found.arms,
                  baseline=found.baseline, workloads=(PLACE,), rounds=1, seconds=1.0, ramp_seconds=0.5, seed=seed,
                  scratch="/nowhere", span_bytes=1, confidence=0.95, search=asked)  # fmt: skip


def searched(found: Space, kind: str, seed: int, mode: str) -> tuple[Tuning, StudyRecord, float, float]:
    """Run one search: what it says, its trials, how far its winner is below the best of all, and of those tried."""
    chance = np.random.default_rng([9, seed])
    stacks = surface([dict(arm.settings) for arm in found.arms], chance)
    places = {arm.name: index for index, arm in enumerate(found.arms)}
    host = Host(kind, chance, seconds=9000)
    study = study_of(found, seed)
    record = StudyRecord(study=study, facts="", finished=False, trials=())
    setattr(planned, "proposals", proposals if mode == "TPE" else at_random)  # noqa: B010
    while True:
        known = tuning(record)
        rounds = {one.trial.round for one in record.trials if phase_of(one.trial.round) is known.phase}
        block = planned.next_block(study, known, rounds=len(rounds), trials=len(record.trials))
        if not block:
            break
        seconds = seconds_of(study, known.probed.slice_seconds, known.phase)
        logs = [host.run(stacks, places[one.arm], seconds=seconds, ramp_seconds=0.5) for one in block]
        slices = (kept(trial, math.exp(log)) for trial, log in zip(block, logs, strict=True))
        record = replace(record, trials=(*record.trials, *slices))
    assert study.search is not None
    level = dict(zip(places, map(float, stacks.truth(kind)), strict=True))
    mine, tried = level[known.winner or found.baseline], {one.trial.arm for one in record.trials}
    ranked = study.search.ranked
    below, behind = (-math.expm1(mine - max(level[name] for name in names)) for names in (ranked, tried))
    return known, record, below, behind


def kept(trial: Trial, iops: float) -> TrialRecord:
    """Return a slice that gave so many I/Os a second."""
    measurement = Measurement(values=(("iops", iops),))
    return TrialRecord(trial=trial, ended="2026-01-01T00:00:00+00:00", in_force=InForce(), measurement=measurement)


def at_random(study: Study, known: Tuning, *, block: int) -> tuple[str, ...]:
    """Propose by chance alone."""
    tried = {one.arm for one in known.standing.runners}
    assert study.search is not None
    left = [arm for arm in study.search.ranked if arm not in tried]
    return tuple(Random(f"{study.seed}/{block}").sample(left, min(known.wanted, len(left))))


def main() -> None:
    """Print one line for each host and each way to propose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--host", nargs="+", choices=list(HOSTS), default=list(HOSTS))
    asked, found = parser.parse_args(), space()
    print(f"{len(found.ranked)} configurations, of which at most {TRIES} are tried")
    for kind, mode in itertools.product(asked.host, ("TPE", "chance")):
        runs = [searched(found, kind, seed, mode) for seed in range(asked.runs)]
        true = [known.distance is None or below <= known.distance + 1e-12 for known, _, _, below in runs]
        gaps = [gap for _, _, gap, _ in runs]
        grid = len(found.ranked) * 300
        print(
            f"{kind}, proposed by {mode}: within 3 % of the best of all {np.mean([gap <= 0.03 for gap in gaps]):.2f},"
            f" within 5 % {np.mean([gap <= 0.05 for gap in gaps]):.2f}, mean {100 * np.mean(gaps):.1f} % below it;"
            f" stated distance to the best tried true {np.mean(true):.2f}; tried"
            f" {np.mean([len(known.standing.runners) for known, _, _, _ in runs]):.0f},"
            f" {np.mean([known.measured_seconds for known, _, _, _ in runs]):.0f} s ="
            f" 1/{grid / np.mean([known.measured_seconds for known, _, _, _ in runs]):.0f} of the grid",
            flush=True,
        )


if __name__ == "__main__":
    main()
