# SPDX-License-Identifier: Apache-2.0
"""The limits of the gates: each is in its unit's range, a warning comes before a rejection, and sources are kept."""

import pytest

from virtune.model.remark import GATE_BY_ID, GATES, Gate

PAGE_BYTES = 4096


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.id)
def test_a_trial_is_warned_of_before_it_is_rejected(gate: Gate) -> None:
    limits = [limit for limit in (gate.flag, gate.invalid) if limit is not None]
    assert limits, "a gate without a limit says nothing"
    assert limits == sorted(set(limits)) or len(limits) == 1
    if gate.unit == "share":
        assert all(0 <= limit < 1 for limit in limits), "no share is beyond 1, so such a limit is never passed"


def test_swapping_is_a_load_of_its_own_from_one_mebibyte_a_second() -> None:
    limit = GATE_BY_ID["swap"].invalid
    assert limit is not None
    assert limit * PAGE_BYTES == 2**20
