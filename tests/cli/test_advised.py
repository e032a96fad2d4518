# SPDX-License-Identifier: Apache-2.0
"""Every command that a rule of the audit prints is one that virtune takes, and a study that can be carried."""

import shlex

import pytest
from tests.advise.cases import CASES

from virtune.advise.audit import audit
from virtune.cli.compare import compare as command
from virtune.fio.generator import Clients
from virtune.fio.workloads import parse_workload
from virtune.model.study import Study, StudyKind
from virtune.plan.arms import arm_from_text, arms_from_vary, base_stack
from virtune.plan.guests import require_fit

ENGINES = frozenset({"io_uring", "libaio", "psync", "nbd"})

MEASURED = sorted(
    {finding.seen.measure for fires, _ in CASES.values() for finding in audit(fires.subject) if finding.seen.measure}
)


def test_there_are_such_commands() -> None:
    assert len(MEASURED) > 6
    assert any("num_queues" in text for text in MEASURED)
    assert any("poll_max_ns" in text for text in MEASURED)


@pytest.mark.parametrize("text", MEASURED)
def test_a_command_that_a_rule_prints_can_be_run(text: str) -> None:
    program, verb, *words = shlex.split(text)
    assert (program, verb) == ("virtune", "compare")
    asked = command.make_context(verb, words).params
    rig = [f"rig={asked['rig']}"] if asked["rig"] else []
    base, settings = base_stack([*rig, *asked["settings"]])
    arms = list(arms_from_vary(base, asked["vary"], settings=settings)) if asked["vary"] else []
    arms += [arm_from_text(one, base, settings=settings) for one in asked["arms"]]
    assert len(arms) == 2
    workloads = [one for words in asked["workloads"] or ("randread-4k",) for one in parse_workload(words)]
    study = Study(
        id="s", created="", kind=StudyKind.COMPARE, arms=tuple(arms), baseline=arms[0].name,
        workloads=tuple(workloads), rounds=1, seconds=1, ramp_seconds=0, seed=1, scratch="/s", span_bytes=2**30,
    )  # fmt: skip
    require_fit(study, clients=Clients(engines=ENGINES))
