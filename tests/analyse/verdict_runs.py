# SPDX-License-Identifier: Apache-2.0
"""Comparisons whose verdicts are known."""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from tests.analyse.interim_studies import measured, study, workload

from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.study import Study
from virtune.model.study_options import Pairs
from virtune.model.verdict import fewest_planned
from virtune.plan.trials import looked_at, propose


def run(
    asked: Study,
    count: int,
    *,
    better: float = 1.0,
    noise: float = 0.05,
    seed: int = 1,
    odd: Mapping[tuple[str, int], float] | None = None,
) -> StudyRecord:
    """So many rounds of a study, looked at after each; the last arm is better by a factor, and an arm in a round by
    another one where `odd` has it.
    """
    chance, made = Random(seed), tuple[TrialRecord, ...]()
    for number in range(1, count + 1):
        trials = propose(asked, rounds=1, workloads={one.name for one in asked.workloads})
        asked = replace(asked, trials=(*asked.trials, *trials))
        asked = looked_at(asked, number / asked.rounds)
        for trial in trials:
            level = better if trial.arm == asked.arms[-1].name else 1.0
            level *= (odd or {}).get((trial.arm, number), 1.0)
            iops, p99 = (1e4 * level * math.exp(chance.gauss(0, noise / math.sqrt(2))) for _ in range(2))
            made = (*made, measured(trial, lambda _, found={"iops": iops, "latency.p99": 1e10 / p99}: found))  # type: ignore[misc]
    return StudyRecord(study=asked, facts="", finished=True, trials=made)


def asked_of(arms: str = "abcd", *, pairs: Pairs = "baseline", rounds: int = 20) -> Study:
    return replace(
        study(workload("w"), arms=arms, rounds=rounds), pairs=pairs, looks=(), fewest_rounds=fewest_planned(len(arms))
    )
