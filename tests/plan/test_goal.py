# SPDX-License-Identifier: Apache-2.0
"""Goals read from words."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model.errors import PlanError
from virtune.model.metric import METRICS
from virtune.model.search import Goal, Limit
from virtune.plan.goal import parse_goal, parse_limit


def test_a_goal_is_a_metric_that_gets_better_and_its_limits() -> None:
    assert parse_goal(None, None, ()) == Goal()
    goal = parse_goal(None, "latency.p99", ("iops>=50k", " cpu_per_io <= 20us "))
    assert goal.metric == "latency.p99"
    assert goal.limits == (
        Limit(metric="iops", sense=">=", value=50_000.0, text="iops>=50k"),
        Limit(metric="cpu_per_io", sense="<=", value=20e-6, text="cpu_per_io<=20us"),
    )
    assert goal.words == "minimize latency.p99 subject to iops>=50k subject to cpu_per_io<=20us"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("latency.p99<=1ms", 1e6),
        ("latency.mean<=250us", 250e3),
        ("latency.p50<=1.5s", 1.5e9),
        ("bandwidth>=200MB/s", 200e6),
        ("bandwidth>=1kB/s", 1000),
        ("bandwidth>=1KiB/s", 1024),
        ("bandwidth>=1MiB/s", 1024**2),
        ("bandwidth>=1GiB/s", 1024**3),
        ("iops>=1234", 1234),
        ("device.util<=80%", 80),
    ],
)
def test_units_are_read(text: str, value: float) -> None:
    limit = parse_limit(text)
    assert limit.value == pytest.approx(value)
    assert limit.kept_by(value)
    better = value * (0.9 if limit.sense == "<=" else 1.1)
    worse = value * (1.1 if limit.sense == "<=" else 0.9)
    assert limit.kept_by(better)
    assert not limit.kept_by(worse)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("latency.p98<=1ms", "no metric 'latency.p98'", "did you mean `latency.p9"),
        ("latency.p99<=1", "'1' is not a value of latency.p99", "write 1ms; units: ns, us, ms, s"),
        ("latency.p99<=1kB", "is not a value", "units"),
        ("latency.p99>=1ms", "is better lower", "'latency.p99<=1ms'"),
        ("iops<=5k", "is better higher", "'iops>=5k'"),
        ("iops=5k", "not a limit", "METRIC<=VALUE"),
        ("iops>=0", "can never be kept", None),
        ("nonsense", "not a limit", "METRIC<=VALUE"),
    ],
)
def test_a_wrong_limit_is_one_sentence_and_a_hint(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(PlanError) as caught:
        parse_limit(text)
    assert message in caught.value.message
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_a_goal_the_wrong_way_round_is_refused() -> None:
    cases: tuple[tuple[tuple[str | None, str | None], str], ...] = (
        (("latency.p99", None), "--minimize latency.p99"),
        ((None, "iops"), "--maximize iops"),
        (("iops", "latency.p99"), "--subject-to"),
        ((None, "cpu.rig"), "cpu_per_io"),
        (("iosp", None), "did you mean `iops`?"),
    )
    for (maximize, minimize), hint in cases:
        with pytest.raises(PlanError) as caught:
            parse_goal(maximize, minimize, ())
        assert hint in (caught.value.hint or "")
    with pytest.raises(PlanError, match="two limits"):
        parse_goal(None, None, ("latency.p99<=1ms", "latency.p99<=2ms"))


@given(st.text(max_size=60))
def test_any_text_is_a_limit_or_one_sentence(text: str) -> None:
    with contextlib.suppress(PlanError):
        limit = parse_limit(text)
        assert limit.metric in {metric.id for metric in METRICS}
        assert limit.value > 0
