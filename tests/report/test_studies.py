# SPDX-License-Identifier: Apache-2.0
"""What the tables of built-in studies say beyond figures rests on a test or an interval, and disturbed figures are
marked."""

import io
from dataclasses import replace

import pytest
from rich.console import Console, Group
from tests.report.records import record

from virtune.analyse.study.summarise import summarise
from virtune.flows.run.question import builtins
from virtune.model.remark import Remark, Weight
from virtune.model.result import ArmRemark, ArmSummary, Result, Value
from virtune.model.verdict import ROUNDS_MIN
from virtune.model.workload import Workload, job
from virtune.report.pages.builtin import ending

KINDS = [f"{way}-{size}k" for way in ("randread", "randwrite") for size in (4, 16, 32)]
STEAL = Remark(id="steal", weight=Weight.INVALID, text="CPU steal 30 %", advice="")


def page(result: Result) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(Group(*ending(result)))
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def latencies(higher: int, *, disturbed: bool = False) -> Result:
    """A result of `vmm-latency` in which the greatest latency of so many kinds of I/O is higher beside load."""
    known = summarise(record(2))
    workloads, arms = [], []
    for number, kind in enumerate(KINDS):
        for load, worst in (("load0", 2e6), ("load2", 9e6), ("load4", 3e6 if number < higher else 1e6)):
            workloads.append(Workload(name=f"{kind}-{load}", meaning="", jobs=(job("j", {"rw": "randread"}),)))
            values = tuple(Value(metric=f"latency.{name}", value=worst, rounds=6, spread=None)
                           for name in ("min", "mean", "max"))  # fmt: skip
            remarks = (ArmRemark(remark=STEAL, rounds=6),) if disturbed else ()
            arms += [
                ArmSummary(arm=arm.name, workload=workloads[-1].name, rounds=6, values=values, histogram=None,
                           in_force=(), remarks=remarks, failures=())
                for arm in known.study.arms
            ]  # fmt: skip
    study = replace(known.study, builtin="vmm-latency", workloads=tuple(workloads))
    return replace(known, study=study, arms=tuple(arms), verdicts=(), differences=())


@pytest.mark.parametrize(
    ("higher", "said"),
    [
        (6, "in 6 of 6 kinds of I/O (sign test: p = 0.03)"),
        (5, "in 5 of 6 kinds of I/O (sign test: p = 0.22, so chance may do it)"),
        (3, "in 3 of 6 kinds of I/O (sign test: p = 1.00, so chance may do it)"),
    ],
)
def test_a_count_of_higher_maxima_says_whether_chance_does_as_much(higher: int, said: str) -> None:
    text = page(latencies(higher))
    assert said in text
    assert "parentheses" not in text


def test_figures_of_disturbed_trials_are_marked() -> None:
    text = page(latencies(6, disturbed=True))
    assert "(2 ms / 2 ms / 2 ms)" in text
    assert "in parentheses: every trial of it was disturbed" in text


def test_a_part_of_bare_metal_has_its_interval() -> None:
    result = summarise(record(8))
    study = replace(result.study, builtin="nvme-scaling")
    (found,) = result.verdicts
    assert found.ratio is not None
    text = page(replace(result, study=study, differences=(replace(found, metric="iops"),)))
    assert f"{found.ratio.estimate:.2f} x [{found.ratio.low:.2f}, {found.ratio.high:.2f}]" in text


def test_each_comparison_has_the_rounds_that_can_decide() -> None:
    for one in builtins():
        if one.kind == "compare":
            assert one.plan.rounds is None or one.plan.rounds >= ROUNDS_MIN, one.name
