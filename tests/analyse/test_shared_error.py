# SPDX-License-Identifier: Apache-2.0
"""Whatever is said together shares one error: each verdict and each condition has a part of it."""

import math
from dataclasses import replace
from random import Random

import pytest
from tests.analyse.threshold_studies import study as two_arms

from virtune.analyse.study.thresholds import rule
from virtune.analyse.study.verdicts import confidence_of_one
from virtune.model.evidence import StudyRecord
from virtune.model.workload import Job, Workload
from virtune.plan.goal import parse_conditions


def drawn(mean: float, rounds: int, *, seed: int, sd: float = 0.02) -> list[float]:
    chance = Random(seed)
    return [math.exp(chance.gauss(mean, sd)) for _ in range(rounds)]


def with_arms_and_workloads(record: StudyRecord, arms: int, workloads: int) -> StudyRecord:
    asked = record.study
    names = [f"w{number}" for number in range(workloads - 1)]
    extra = tuple(Workload(name=name, meaning="", jobs=(Job(name="j", options=()),)) for name in names)
    more = tuple(replace(asked.arms[0], name=f"more{number}") for number in range(arms - 2))
    return replace(record, study=replace(asked, arms=(*asked.arms, *more), workloads=(*asked.workloads, *extra)))


@pytest.mark.parametrize(("arms", "workloads", "conditions"), [(2, 1, 1), (2, 1, 2), (4, 1, 1), (3, 2, 2)])
def test_conditions_share_the_error_with_arms_and_workloads(arms: int, workloads: int, conditions: int) -> None:
    record = with_arms_and_workloads(two_arms(drawn(9, 8, seed=1), drawn(9, 8, seed=2)), arms, workloads)
    asked = parse_conditions(["iops < -3%", "iops < -5%"][:conditions])
    found = [one.comparison.ratio for one in rule(record, asked) if one.comparison.ratio is not None]
    assert len(found) == conditions
    for ratio in found:
        assert 1 - ratio.confidence == pytest.approx(0.1 / (conditions * workloads * (arms - 1)))


@pytest.mark.parametrize(
    ("pairs", "workloads", "judged"), [("all", 1, 1), ("all", 2, 1), ("all", 1, 3), ("all", 3, 2)]
)
def test_verdicts_share_the_error_with_pairs_workloads_and_metrics(pairs: str, workloads: int, judged: int) -> None:
    record = with_arms_and_workloads(two_arms([1.0], [1.0], confidence=0.94), 3, workloads)
    also = ("latency.p99", "bandwidth")[: judged - 1]
    asked = replace(record.study, pairs="all", also=also)
    assert len(asked.judged) == judged
    assert 1 - confidence_of_one(asked) == pytest.approx(0.06 / (3 * workloads * judged))
