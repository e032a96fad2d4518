# SPDX-License-Identifier: Apache-2.0
"""Conditions on what is measured now: a planted throttle is a breach, and a study's arms stay paired afterwards."""

import pytest
from junitparser import JUnitXml
from tests.conftest import User
from tests.published import complaints, strictly

from virtune.cli import run

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cli")]


@pytest.mark.parametrize("rig", ["simulated", pytest.param("storage-daemon", marks=pytest.mark.long)])
def test_a_throttled_arm_breaches_and_is_paired_by_rounds_ever_after(
    rig: str, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = (
        "--rig",
        rig,
        "--arm",
        "free:",
        "--arm",
        "slow:disk.throttle_iops=500",
        "--workload",
        "rw=randread,bs=4k,iodepth=4",
    )
    short = ("--rounds", "6", "--seconds", "200ms", "--ramp", "100ms", "--json")
    ran = user.run("compare", *arms, *short, "--fail-if", "iops < -50%", "--junit", "junit.xml", status=4)
    found = strictly(ran.stdout)
    assert complaints("result", found) == []
    assert [one["outcome"] for one in found["conditions"]] == ["breached"]
    (case,) = next(iter(JUnitXml.fromfile(str(user.home / "junit.xml"))))
    assert len(case.result) == 1
    again = strictly(user.run("show", "last", "--json", "--fail-if", "iops > +50%").stdout)
    assert [one["outcome"] for one in again["conditions"]] == ["held"]
    assert strictly(user.run("compare", "resume", "last", "--json", "--fail-if", "iops < -50%", status=4).stdout)[
        "conditions"
    ]
    store = str(user.home / "virtune" / "virtune.sqlite")
    asked = ("last:slow", "last:free", "--json", "--fail-if", "iops > +50%", "--store", store)
    assert run(["compare", *asked]) == 4
    document = strictly(capsys.readouterr().out)
    assert complaints("result", document) == []
    assert (document["study"]["paired"], document["study"]["baseline"]) == (True, "slow")
    assert document["comparisons"][0]["rounds"] == 6
    user.run("compare", "--arm", "a:", "--arm", "b:", "--fail-if", "iops < 5%", status=2)
