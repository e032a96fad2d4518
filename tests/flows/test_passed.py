# SPDX-License-Identifier: Apache-2.0
"""The drive that arms have for themselves: which one is meant, and what happens where there is none. This host may
have an IOMMU or not: the files here are no drives on any.
"""

from pathlib import Path

import pytest

from virtune.cli import run
from virtune.flows.run.preconditions import with_drive
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.study import Arm
from virtune.plan.arms import make_arm

METAL = make_arm("bare", ["rig=metal"])
NOWHERE = "0000:ff:1f.7"


def passed(word: str, rig: str = "qemu") -> Arm:
    return make_arm("own", [f"rig={rig}", f"storage.vfio_pci={word}"])


def test_a_study_without_such_an_arm_keeps_its_target(tmp_path: Path) -> None:
    for target in (None, tmp_path):
        given = with_drive([METAL], target, builtin=True)
        assert (given.arms, given.target, given.options) == ((METAL,), target, ())


def test_a_built_in_study_goes_without_the_arm_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for target, why in ((None, "there is no --target"), (file, f"{file} is no NVMe drive of this host's PCI bus")):
        given = with_drive([METAL, passed("target")], target, builtin=True)
        assert (given.arms, given.target) == ((METAL,), target)
        assert [one.name for one in given.options] == ["storage.vfio_pci"]
        said = given.options[0].value
        assert said.startswith("own is left out: ")
        assert why in said


def test_who_asks_for_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="target is the drive of --target, and there is no --target"):
        with_drive([METAL, passed("target")], None, builtin=False)
    with pytest.raises(PreconditionError, match=r"arm 'own' cannot be here: .* is no NVMe drive"):
        with_drive([METAL, passed("target")], tmp_path, builtin=False)
    with pytest.raises(PreconditionError, match="arm 'own' cannot be here: this host has no"):
        with_drive([METAL, passed(NOWHERE)], None, builtin=False)
    with pytest.raises(PlanError, match=r"the arms have several drives: 0000:01:00\.0, 0000:ff:1f\.7"):
        with_drive([passed("0000:01:00.0"), passed(NOWHERE)], None, builtin=False)


def test_a_simulation_needs_no_drive() -> None:
    arm = passed(NOWHERE, rig="simulated")
    assert with_drive([arm], None, builtin=False).arms == (arm,)
    assert with_drive([METAL, arm], None, builtin=True).arms == (METAL,)


def test_a_comparison_on_it_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rig", "qemu", "--scratch", str(tmp_path), "--store", str(tmp_path / "store")]
    assert run(["compare", *words, "--arm", f"it:storage.vfio_pci={NOWHERE}", "--arm", "now:"]) == 3
    assert "arm 'it' cannot be here: this host has no" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
