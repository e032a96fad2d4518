# SPDX-License-Identifier: Apache-2.0
"""What is said of a study's rounds names only words that the study's rig knows."""

from dataclasses import replace

import pytest
from tests.report.test_documents import study

from virtune.model.result import Basis
from virtune.model.stack import Rig
from virtune.report.basis import steadiness


@pytest.mark.parametrize(("rig", "names"), [("storage-daemon", True), ("qemu", True), ("libvirt", False)])
def test_a_restart_is_offered_where_the_rig_can_restart(rig: Rig, names: bool) -> None:
    asked = study(2)
    asked = replace(asked, arms=tuple(replace(arm, stack=replace(arm.stack, rig=rig)) for arm in asked.arms))
    basis = Basis(workload="randread-4k", rounds=2, noise=None, lag1=None, seconds_left=None, starts=1)
    said = " ".join(steadiness(basis, asked))
    assert "one process" in said
    assert ("--restart" in said) is names
