# SPDX-License-Identifier: Apache-2.0
"""Of real fio: jobs, and the reads of a verification, that ran one after another have no sum."""

import subprocess
from pathlib import Path

import pytest

from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import parts_of, phases_of
from virtune.fio.results import read_result
from virtune.model.measurement import FioResult

pytestmark = pytest.mark.real

COMMON = ("--ioengine=libaio", "--direct=1", "--bs=4k", "--iodepth=4", "--size=4M", "--output-format=json")


def ran(place: Path, *words: str) -> FioResult:
    command = ["fio", f"--directory={place}", f"--output={place}/out.json", *COMMON, *words]
    subprocess.run(command, check=True, timeout=60)
    return read_result((place / "out.json").read_text())


@pytest.mark.parametrize(
    ("later", "groups"),
    [
        (("--wait_for=first",), [0, 1]),
        (("--startdelay=1",), [0, 1]),
        ((), [0, 0]),
        (("--startdelay=0",), [0, 0]),
        (("--stonewall",), [0, 1]),
    ],
)
def test_a_job_that_waits_or_begins_later_is_a_part_of_its_own(
    later: tuple[str, ...], groups: list[int], tmp_path: Path
) -> None:
    timed = ("--time_based", "--runtime=500ms")
    result = ran(tmp_path, "--name=first", "--rw=randwrite", *timed, "--name=second", "--rw=randread", *timed, *later)
    assert [load.group for load in result.loads] == groups
    assert len(parts_of(result)) == len(phases_of(result)) == len({*groups})


def test_clones_that_wait_together_stay_together(tmp_path: Path) -> None:
    words = ("--name=first", "--rw=randwrite", "--name=second", "--rw=randread", "--numjobs=2", "--wait_for=first")
    result = ran(tmp_path, *words, "--name=third", "--rw=randread", "--wait_for=second")
    assert [load.group for load in result.loads] == [0, 1, 1, 2]


def test_the_reads_of_a_verification_are_in_no_figure_of_the_writes(tmp_path: Path) -> None:
    result = ran(tmp_path, "--name=one", "--rw=write", "--verify=crc32c")
    assert [(stream.direction, stream.ios) for stream in result.streams] == [("write", 1024)]
    said = {one.id: one.text for one in explain(result)}
    assert "contradiction" not in said
    assert said["not-added"].startswith("The reads of verify= ran after the writes")
    result = ran(tmp_path, "--name=one", "--rw=randrw", "--verify=crc32c")
    assert {stream.direction for stream in result.streams} == {"read", "write"}
