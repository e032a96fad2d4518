# SPDX-License-Identifier: Apache-2.0
"""On metal an image of any name is loaded: one that a job file cannot hold goes by the kernel's name of it."""

from pathlib import Path

import pytest
from tests.bench.place_names import NAMES

from virtune.bench.metal import MetalSession
from virtune.bench.port import DiskImageSpec
from virtune.fio.job import can_name
from virtune.model.stack import FileTarget, Stack
from virtune.shell import Warden


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "not text"])
def test_the_target_s_name_is_one_that_a_job_file_can_hold(kind: str, tmp_path: Path) -> None:
    image = tmp_path / NAMES[kind]
    image.write_bytes(b"x")
    ground = DiskImageSpec(image=image, size_bytes=1, writes=False)
    with MetalSession(Warden("never-entered")).up(Stack(rig="metal"), ground) as bench:
        assert isinstance(bench.target, FileTarget)
        assert can_name(bench.target.path)
        assert Path(bench.target.path).samefile(image)
