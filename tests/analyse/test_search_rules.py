# SPDX-License-Identifier: Apache-2.0
"""The rules of a search, each by itself on made-up figures: limits, the front, budget, end, who joins later."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.analyse.search_worlds import World, searched, study_of

from virtune.analyse.search.pilot import block_fits, confirmed, spent_by
from virtune.analyse.search.tuning import check_limits, standing_after, tuning
from virtune.analyse.stats.anytime import levels
from virtune.analyse.trial.rejection import Ramp
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.reason import Reason
from virtune.model.search import FIRST_ROUND, Goal, Limit, Phase, phase_of
from virtune.model.study import Trial
from virtune.model.tuning import Contrast, LimitState, Place, Probed, RaceRules, Recommendation, Runner
from virtune.model.verdict import Verdict


def test_limits_share_the_error_among_arms_workloads_and_themselves() -> None:
    chance = Random(4)
    limit = Limit(metric="latency.p99", sense="<=", value=1e6, text="latency.p99 <= 1ms")
    values = [{"latency.p99": 1e6 * math.exp(chance.gauss(-0.02, 0.02))} for _ in range(12)]
    widths = []
    for arms in (1, 40):
        (check, *_) = check_limits([limit], {(f"a{arm}", "w"): values for arm in range(arms)}, error=0.05)
        assert check.low is not None
        assert check.high is not None
        widths.append(math.log(check.high / check.low))
    assert widths[1] > 1.3 * widths[0]


def test_a_dip_of_the_host_does_not_put_an_arm_behind() -> None:
    values = np.random.default_rng(2).normal(10, 0.01, (12, 3)) + np.array([0.0, 0.03, 0.0])
    calm = levels(values)[0]
    values[5, 1] -= 0.7
    dipped = levels(values)[0]
    assert int(np.argmax(dipped)) == 1
    assert dipped[1] - dipped[0] == pytest.approx(calm[1] - calm[0], abs=0.01)


def test_the_wait_between_blocks_is_taken_from_the_budget() -> None:
    arms = ["base", "fast"]
    study = study_of(arms, mode="certify", budget_seconds=600.0, spread_seconds=30.0)
    probed = Probed(
        slices=6, iops=1e4, flushes=None, sd=0.05, slice_seconds=1.0, slices_max=None, certificate_seconds=None
    )
    spent = replace(spent_by(study, probed, (), Ramp(seconds=0.5, findings=())), race_left=20.0)
    assert block_fits(study, probed, spent, arms=2, before=0)
    assert not block_fits(study, probed, spent, arms=2, before=2)  # it would begin 26 s from now
    assert block_fits(study, probed, replace(spent, race_left=40.0), arms=2, before=2)


@pytest.mark.parametrize(
    ("ratio", "varies", "verdict"),
    [
        (0.8, 0.001, Verdict.BETTER), (1.25, 0.001, Verdict.WORSE), (1.004, 0.0005, Verdict.SAME),
        (0.996, 0.0005, Verdict.SAME), (0.975, 0.02, Verdict.UNDECIDED), (1.025, 0.02, Verdict.UNDECIDED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("metric", ["latency.mean", "iops"])
def test_a_confirmation_says_better_worse_same_or_undecided_whichever_way_is_better(
    metric: str, ratio: float, varies: float, verdict: Verdict
) -> None:
    study = study_of(["base", "fast"], goal=Goal(metric=metric))
    made = list[TrialRecord]()
    for pair in range(8):
        for arm, mean in (("base", 1000.0), ("fast", 1000 * ratio ** (1 if metric != "iops" else -1))):
            number = FIRST_ROUND[Phase.CONFIRM] + pair
            value = mean * (1 + varies * (pair - 3.5) if arm == "fast" else 1)
            made.append(
                TrialRecord(
                    trial=Trial(number=len(made) + 1, round=number, arm=arm, workload="reads"), ended="",
                    in_force=InForce(), measurement=Measurement(values=((metric, value),)),
                )
            )  # fmt: skip
    found = confirmed(study, "fast", made, ())
    assert found is not None
    assert found.verdict is verdict
    assert found.ratio is not None
    assert found.ratio.low < found.ratio.estimate < found.ratio.high
    assert found.ratio.estimate == pytest.approx(ratio if metric != "iops" else 1 / ratio, rel=0.005)


def test_arms_that_are_still_to_join_have_their_share_of_the_error() -> None:
    chance = Random(6)
    blocks = [{arm: chance.gauss(10, 0.02) for arm in "ab"} for _ in range(8)]
    radius = []
    for arms_max in (None, 60):
        found = standing_after("ab", RaceRules(arms_max=arms_max), blocks)
        (other,) = [one.against_leader for one in found.runners if one.against_leader is not None]
        radius.append(other.radius)
    assert radius[1] > 1.3 * radius[0]


def test_how_much_better_an_arm_may_be_is_the_end_of_its_interval() -> None:
    behind = Contrast(blocks=9, mean=0.02, radius=0.05, sd=0.04, df=8.0)
    assert Runner(arm="a", place=Place.OPEN, blocks=9, against_leader=behind).better_at_most == pytest.approx(
        math.expm1(0.03)
    )


def test_a_phase_begins_with_its_first_round() -> None:
    for phase, first in FIRST_ROUND.items():
        assert phase_of(first) is phase
    assert phase_of(FIRST_ROUND[Phase.RACE] - 1) is Phase.PROBE
    assert phase_of(FIRST_ROUND[Phase.SOAK] - 1) is Phase.CONFIRM


def test_the_distance_is_said_as_below_the_best() -> None:
    """A race bounds how much better the best may be (x); the winner is then x / (1 + x) below it."""
    rates = {f"a{index}": 50_000.0 for index in range(6)}
    found, _ = searched(study_of(list(rates)), World(rates, noise=0.2))
    assert found.standing.distance is not None
    assert found.standing.distance > 0.05
    assert found.distance == pytest.approx(found.standing.distance / (1 + found.standing.distance))


def test_a_winner_that_may_break_a_limit_on_fresh_data_is_not_recommended() -> None:
    """In the race its CPU per I/O keeps the limit, in the confirmation it is twice as much."""
    limit = Limit(metric="cpu_per_io", sense="<=", value=2e-6, text="cpu_per_io <= 2us")
    study = study_of(["base", "fast"], goal=Goal(limits=(limit,)))
    rates = {"base": 40_000.0, "fast": 60_000.0}
    found, record = searched(study, World(rates, noise=0.01))
    assert found.recommendation is Recommendation.CHANGE

    def dearer(one: TrialRecord) -> TrialRecord:
        if phase_of(one.trial.round) is not Phase.CONFIRM or one.trial.arm != "fast" or one.measurement is None:
            return one
        values = tuple((name, 4e-6 if name == "cpu_per_io" else value) for name, value in one.measurement.values)
        return replace(one, measurement=replace(one.measurement, values=values))

    again = tuning(replace(record, trials=tuple(dearer(one) for one in record.trials)))
    assert again.winner == "fast"
    assert again.recommendation is Recommendation.UNDECIDED
    assert again.why.reason is Reason.MAY_BREAK_A_LIMIT


def test_a_winner_of_which_it_is_open_whether_it_keeps_a_limit_is_not_recommended() -> None:
    limit = Limit(metric="cpu_per_io", sense="<=", value=1e-6, text="cpu_per_io <= 1us")  # it uses just that
    study = study_of(["base", "fast"], goal=Goal(limits=(limit,)))
    found, _ = searched(study, World({"base": 40_000.0, "fast": 60_000.0}, noise=0.01))
    states = {check.arm: check.state for check in found.checks}
    assert states["fast"] is LimitState.OPEN
    assert found.recommendation is Recommendation.UNDECIDED


def test_nothing_is_spent_and_nothing_known_before_the_first_trial() -> None:
    study = study_of(["base", "fast"])
    known = tuning(StudyRecord(study=study, facts="", finished=False, trials=()))
    assert (known.phase, known.winner, known.elapsed_seconds) == (Phase.PROBE, None, 0.0)
