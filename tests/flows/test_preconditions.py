# SPDX-License-Identifier: Apache-2.0
"""What a plan or a kept study names is looked at before it is started."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.analyse.threshold_studies import study

from virtune.flows.run.preconditions import Leave, admitted, require_programs
from virtune.model.errors import PreconditionError, RefusedTargetError
from virtune.model.event import Event, Noticed
from virtune.model.stack import Machine, Stack
from virtune.model.study import Study

STRANGER = 65534


def with_emulator(path: Path) -> Study:
    found = study([1.0], [1.0]).study
    stack = Stack(rig="qemu", machine=Machine(emulator=str(path)))
    return replace(found, arms=tuple(replace(arm, stack=stack) for arm in found.arms))


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user are made by root")
@pytest.mark.parametrize("what", ["program", "directory", "writable"])
def test_a_qemu_that_another_user_could_exchange_is_never_started(what: str, tmp_path: Path) -> None:
    program, witness = tmp_path / "theirs" / "qemu", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {witness}\n")
    program.chmod(0o777 if what == "writable" else 0o755)
    if what != "writable":
        os.chown(program if what == "program" else program.parent, STRANGER, -1)
    said: list[Event] = []
    with pytest.raises(PreconditionError, match=r"machine\.emulator=.* is not started: ") as caught:
        require_programs(with_emulator(program), said.append)
    assert "nobody" in caught.value.message or "others may write" in caught.value.message
    assert not witness.exists()
    assert not any(isinstance(one, Noticed) for one in said)


def test_a_neighbour_of_a_scratch_volume_would_load_another_disk() -> None:
    kept = study([1.0], [1.0]).study
    arms = tuple(replace(arm, stack=replace(arm.stack, neighbour="io")) for arm in kept.arms)
    with (
        pytest.raises(RefusedTargetError, match=r"host\.neighbour=io loads the disk below scratch images"),
        admitted(replace(kept, target=None, scratch="lvm:pve/data", arms=arms), Leave(), lambda _: None),
    ):
        pass
