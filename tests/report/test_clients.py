# SPDX-License-Identifier: Apache-2.0
"""A report says by which programs the arms were loaded where that was not one, and only then."""

from dataclasses import replace

import pytest
from tests.analyse.threshold_studies import study

from virtune.analyse.study.summarise import summarise
from virtune.model.evidence import Check, InForce
from virtune.model.stack import Stack
from virtune.report.pages.evidence import loaded_by

METAL, VHOST, NBD = Stack(rig="metal"), Stack(export="vhost-user-blk"), Stack()
SAID = "loaded by different programs: {} by fio; {} by virtune-load; on one file the two agree to about 3 %"


def told(first: tuple[Stack, str], second: tuple[Stack, str]) -> list[str]:
    record = study([100.0] * 6, [110.0] * 6)
    arms = {"a": first, "b": second}
    trials = tuple(replace(one, in_force=InForce(checks=(program(arms[one.trial.arm][1]),))) for one in record.trials)
    named = tuple(replace(arm, stack=arms[arm.name][0]) for arm in record.study.arms)
    return list(loaded_by(summarise(replace(record, study=replace(record.study, arms=named), trials=trials))))


def program(name: str) -> Check:
    return Check(setting="load.program", asked=name, found=name or None, proof="")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((METAL, "virtune-load"), (VHOST, "virtune-load"), []),
        ((METAL, "fio"), (VHOST, "fio"), []),
        ((METAL, "fio"), (VHOST, "virtune-load"), [SAID.format("metal", "vhost-user-blk")]),
        ((NBD, "fio"), (METAL, "virtune-load"), [SAID.format("nbd", "metal")]),
        ((METAL, "fio"), (Stack(rig="qemu"), ""), []),
    ],
)
def test_what_is_said(first: tuple[Stack, str], second: tuple[Stack, str], said: list[str]) -> None:
    assert told(first, second) == said
