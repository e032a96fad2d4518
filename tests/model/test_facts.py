# SPDX-License-Identifier: Apache-2.0
"""Small answers that much rests on: is an image sparse, is a limit kept, whose is a round, who may be better."""

import math

import pytest

from virtune.model.finding import ImageView
from virtune.model.search import FIRST_ROUND, Limit, Phase, phase_of
from virtune.model.tuning import Contrast, Place, Runner


@pytest.mark.parametrize(
    ("allocated", "sparse"), [(None, None), (0, True), (600, True), (989, True), (990, False), (1000, False)]
)
def test_an_image_is_sparse_while_a_hundredth_of_it_is_missing(allocated: int | None, sparse: bool | None) -> None:
    assert ImageView(size_bytes=1000, allocated_bytes=allocated).sparse is sparse


def test_a_limit_is_kept_on_its_own_side_and_at_its_value() -> None:
    most = Limit(metric="latency.p99", sense="<=", value=10.0, text="p99<=10ns")
    least = Limit(metric="iops", sense=">=", value=10.0, text="iops>=10")
    assert [most.kept_by(value) for value in (9.0, 10.0, 11.0)] == [True, True, False]
    assert [least.kept_by(value) for value in (9.0, 10.0, 11.0)] == [False, True, True]


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_begins_with_its_first_round(phase: Phase) -> None:
    first = FIRST_ROUND[phase]
    assert phase_of(first) is phase
    assert phase_of(first + 99_999 if phase is not Phase.PROBE else first + 999) is phase
    assert first == 1 or phase_of(first - 1) is not phase


def test_how_much_better_an_arm_may_be_is_the_far_end_of_its_interval() -> None:
    behind = Contrast(mean=0.02, radius=0.05, blocks=9)
    one = Runner(arm="b", place=Place.OPEN, blocks=9, against_leader=behind)
    assert one.better_at_most == pytest.approx(math.expm1(0.03))
    surely = Runner(arm="c", place=Place.PARKED, blocks=9, against_leader=Contrast(mean=0.2, radius=0.05, blocks=9))
    assert surely.better_at_most == 0.0
    assert Runner(arm="a", place=Place.LEADER, blocks=9).better_at_most == 0.0
    assert Runner(arm="d", place=Place.OPEN, blocks=0).better_at_most is None
