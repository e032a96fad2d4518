# SPDX-License-Identifier: Apache-2.0
"""Searches over configurations whose truth is known."""

import math
from dataclasses import replace
from random import Random

from virtune.analyse.search.tuning import tuning
from virtune.model.durability import Promise
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark
from virtune.model.search import Goal, Phase, Search, phase_of
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.tuning import Tuning
from virtune.model.workload import Workload, job
from virtune.plan.space import next_block

WORKLOAD = Workload(name="reads", meaning="", jobs=(job("reads", {"rw": "randread"}),))


def study_of(arms: list[str], *, goal: Goal | None = None, seed: int = 1, **search: object) -> Study:
    goal = goal or Goal()
    asked = Search(goal=goal, mode="quick", promise=Promise.FLUSH, ranked=tuple(arms), slice_seconds=1.0)
    return Study(
        id="made-up",
        created="2026-01-01T00:00:00+00:00",
        kind=StudyKind.TUNE,
        arms=tuple(Arm(name=name, stack=Stack()) for name in arms),
        baseline=arms[0],
        workloads=(WORKLOAD,),
        rounds=1,
        seconds=1.0,
        ramp_seconds=0.5,
        seed=seed,
        scratch="/nowhere",
        span_bytes=1,
        metric=goal.metric,
        confidence=0.95,
        search=replace(asked, **search),  # type: ignore[arg-type]
    )


class World:
    """What arms give: their rate, a drift that all share, noise of each slice, and of each restart."""

    def __init__(
        self,
        rates: dict[str, float],
        *,
        noise: float = 0.03,
        restarts: float = 0.0,
        seed: int = 1,
        cpu: dict[str, float] | None = None,
    ) -> None:
        self.cpu = cpu or dict.fromkeys(rates, 1e-6)
        self.rates, self.noise, self.restarts = rates, noise, restarts
        self.chance = Random(seed)
        self.drift = 0.0
        self.remarks: tuple[Remark, ...] = ()
        self.profile: tuple[float, ...] = ()

    def value(self, trial: Trial) -> float:
        self.drift = 0.9 * self.drift + self.chance.gauss(0, 0.02)
        anew = self.chance.gauss(0, self.restarts) if phase_of(trial.round) is Phase.CONFIRM else 0.0
        return self.rates[trial.arm] * math.exp(self.drift + anew + self.chance.gauss(0, self.noise))

    def run(self, trial: Trial) -> TrialRecord:
        value = self.value(trial)
        values = (("iops", value), ("cpu_per_io", self.cpu[trial.arm] * math.exp(self.chance.gauss(0, 0.02))))
        profile = tuple(value * one * math.exp(self.chance.gauss(0, 0.01)) for one in self.profile)
        measurement = (
            Measurement(values=values, remarks=self.remarks, profile=profile)
            if math.isfinite(value) and value > 0
            else None
        )
        failure = None if measurement else "made up to fail"
        ended = "2026-01-01T00:00:00+00:00"
        return TrialRecord(trial=trial, ended=ended, in_force=InForce(), measurement=measurement, failure=failure)


def searched(study: Study, world: World) -> tuple[Tuning, StudyRecord]:
    record = StudyRecord(study=study, facts="", finished=False, trials=())
    for _ in range(2000):
        known = tuning(record)
        rounds = {one.trial.round for one in record.trials if phase_of(one.trial.round) is known.phase}
        block = next_block(study, known, rounds=len(rounds), trials=len(record.trials))
        if not block:
            return known, record
        record = replace(record, trials=(*record.trials, *(world.run(trial) for trial in block)))
    raise AssertionError("it does not end")


def landscape(seed: int) -> dict[str, float]:
    chance = Random(seed)
    return {f"a{index}": 50_000 * math.exp(chance.uniform(-0.3, 0)) for index in range(8)}
