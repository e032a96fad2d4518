# SPDX-License-Identifier: Apache-2.0
"""Differences beside the verdicts: seldom said of arms that are alike, and only where the verdict hides them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

import pytest
from tests.analyse.interim_studies import measured, study, workload

from virtune.analyse.study.verdicts import BESIDE, beside_verdicts, evidence_of, verdicts_of
from virtune.model.evidence import StudyRecord
from virtune.model.result import ArmSummary, Value
from virtune.model.study import StudyKind, Trial
from virtune.model.verdict import Comparison, Verdict
from virtune.plan.trials import looked_at, propose

ROUNDS, LOOKED = 8, ("iops", "latency.mean", "latency.p99", "latency.p99.9", "sync.p99")


NONE: Mapping[str, float] = MappingProxyType({})


def said(
    seed: int,
    changes: Mapping[str, float] = NONE,
    *,
    paired: bool,
    margin: float = 0.03,
    resolved: bool = True,
    bound: bool = False,
    flushes: bool = False,
) -> list[Comparison]:
    """What is said of two arms with 5 % of noise on each metric by itself, of which the second has these changes."""
    chance, asked = Random(seed), replace(study(workload("w"), rounds=ROUNDS), margin=margin)
    if not paired:
        asked = replace(asked, kind=StudyKind.IMPORT, sequential=False, paired=False)
    for number in range(1, ROUNDS + 1):
        asked = replace(asked, trials=(*asked.trials, *propose(asked, rounds=1, workloads={"w"})))
        asked = looked_at(asked, number / ROUNDS) if paired else asked

    def disk(trial: Trial) -> dict[str, float]:
        levels = {name: changes.get(name, 1.0) if trial.arm == "b" else 1.0 for name in LOOKED}
        return {name: 1e4 * level * math.exp(chance.gauss(0, 0.05)) for name, level in levels.items()}

    trials = tuple(measured(trial, disk) for trial in asked.trials)
    evidence = evidence_of(StudyRecord(study=asked, facts="", finished=True, trials=trials))
    names = (*LOOKED, "sync.mean") if flushes else LOOKED
    low = 1.0 if bound else None
    values = tuple(
        Value(metric=name, value=1e4, rounds=ROUNDS, spread=None, resolved=resolved, low=low) for name in names
    )
    arms = [
        ArmSummary(
            arm=name, workload="w", rounds=ROUNDS, values=values, histogram=None, in_force=(), remarks=(), failures=()
        )
        for name in "ab"
    ]
    return list(beside_verdicts(evidence, list(verdicts_of(evidence)), arms))


@pytest.mark.parametrize("paired", [True, False])
def test_arms_that_are_alike_are_seldom_said_to_differ_beside_the_verdict(*, paired: bool) -> None:
    # without a margin to speak of, so that nothing but the shared error keeps it quiet
    wrong = sum(bool(said(seed, paired=paired, margin=1e-9)) for seed in range(300))
    assert wrong <= 15
    assert set(BESIDE) == set(LOOKED)


@pytest.mark.parametrize("paired", [True, False])
def test_what_the_verdict_hides_is_said_and_what_it_says_is_not(*, paired: bool) -> None:
    def told(**changes: float) -> dict[str, Verdict]:
        named = {name.replace("_", "."): change for name, change in changes.items()}
        return {one.metric: one.verdict for one in said(1, named, paired=paired)}

    assert told(latency_p99=2.0) == {"latency.p99": Verdict.WORSE}
    assert told(latency_p99=0.5) == {"latency.p99": Verdict.BETTER}
    assert told(iops=1.5, latency_p99=2.0, latency_mean=0.5) == {"latency.p99": Verdict.WORSE}
    assert told(iops=0.5, latency_p99=2.0, latency_mean=0.5) == {}
    assert told() == {}


def test_nothing_is_said_of_what_is_small_or_uncertain() -> None:
    assert said(1, {"latency.p99": 1.6}, paired=True, margin=0.5) == []
    assert said(1, {"latency.p99": 2.0}, paired=True, resolved=False) == []
    assert said(1, {"latency.p99": 2.0}, paired=True, bound=True) == []


def test_a_load_that_flushes_is_not_said_to_be_faster_by_its_latency() -> None:
    found = said(1, {"latency.mean": 0.5, "sync.p99": 2.0}, paired=True, flushes=True)
    assert [one.metric for one in found] == ["sync.p99"]


def test_the_intervals_are_wider_the_more_is_looked_at() -> None:
    (found,) = said(1, {"latency.p99": 2.0}, paired=True)
    assert found.ratio is not None
    assert found.ratio.confidence == pytest.approx(1 - 0.05 / (len(LOOKED) - 1))
