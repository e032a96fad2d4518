# SPDX-License-Identifier: Apache-2.0
"""Derived figures change only with the number of their method."""

from tests.tidy.figures import Figures, changed, derived, written

from virtune.model.measurement import METHOD

AGAIN = "then write the figures down with `python -m tests.tidy.figures`"


def test_figures_that_change_raise_the_number_of_their_method() -> None:
    method, before = written()
    now = dict(derived())
    lines = changed(before, now)
    assert not (lines and method == METHOD), f"raise METHOD in model/measurement.py, {AGAIN}: {lines[:5]}"
    assert method == METHOD, f"METHOD was raised: say why beside it, {AGAIN}"
    assert now.keys() == before.keys(), f"evidence was added or removed: {AGAIN}"


def test_a_figure_that_changed_is_named_and_rounding_is_not() -> None:
    before: Figures = {"a": {"iops": 100.0, "remark steal": "warning"}}
    assert changed(before, {"a": {"iops": 100.0 * (1 + 1e-12), "remark steal": "warning"}, "b": {}}) == []
    assert changed(before, {"a": {"iops": 101.0}}) == [
        "a: iops was 100.0 and is 101.0",
        "a: remark steal was warning and is None",
    ]
