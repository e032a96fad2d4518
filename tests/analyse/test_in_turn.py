# SPDX-License-Identifier: Apache-2.0
"""Of real fio: jobs, and the reads of a verification, that ran one after another have no sum."""

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import parts_of, phases_of
from virtune.fio.results import read_result
from virtune.model.measurement import FioResult
from virtune.model.remark import Weight

pytestmark = pytest.mark.real

COMMON = ("--ioengine=libaio", "--direct=1", "--bs=4k", "--iodepth=4", "--size=4M", "--output-format=json")


def ran(place: Path, *words: str) -> FioResult:
    command = ["fio", f"--directory={place}", f"--output={place}/out.json", *COMMON, *words]
    subprocess.run(command, check=True, timeout=60, cwd=place)  # where it leaves the state of a verification
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
    assert "in none of these figures" in said["not-added"]


def test_the_reads_of_a_verification_are_told_where_fio_counts_them_with_the_load(tmp_path: Path) -> None:
    words = ("--name=one", "--rw=randrw", "--verify=crc32c", "--rate_iops=2k")  # long enough for Little's law
    result = ran(tmp_path, *words, "--numjobs=2", "--size=8M")
    assert {stream.direction for stream in result.streams} == {"read", "write"}
    (told,) = (one for one in explain(result) if one.id in ("not-added", "little", "contradiction"))
    assert (told.id, told.weight) == ("not-added", Weight.WARNING)
    assert "counts them with those of the load" in told.text


def test_sections_that_are_reported_as_one_are_known_by_their_times_together(tmp_path: Path) -> None:
    words = ("--group_reporting", "--name=first", "--rw=randread", "--runtime=600ms", "--time_based", "--name=second")
    short = ran(tmp_path, *words, "--rw=randread", "--time_based", "--runtime=2s", "--rate_iops=100", "--iodepth=1")
    assert [(load.sections, load.depth, load.options) for load in short.loads] == [(True, None, None)]
    assert "contradiction" not in {one.id for one in explain(short)}
    paced = ("--rate_iops=1k", "--group_reporting", "--numjobs=2")  # each phase lasts a second
    verified = ran(tmp_path, "--name=one", "--rw=write", "--verify=crc32c", *paced)
    assert [(load.jobs, load.depth, load.sections) for load in verified.loads] == [(2, 8, False)]


@pytest.mark.parametrize(
    ("asked", "told"), [("--runtime=30", True), ("--runtime=400ms", False), ("--loops=2", False)]
)
def test_a_run_that_was_ended_is_known_where_fio_does_not_echo_that_it_was_timed(
    asked: str, told: bool, tmp_path: Path
) -> None:
    """It does not where the option came by the command line."""
    timed = () if "loops" in asked else ("--time_based",)
    command = ["fio", f"--directory={tmp_path}", f"--output={tmp_path}/out.json", *COMMON, "--name=one", "--rw=read"]
    with subprocess.Popen([*command, asked, *timed]) as fio:
        with contextlib.suppress(subprocess.TimeoutExpired):
            fio.wait(2)
        fio.send_signal(signal.SIGINT)
    result = read_result((tmp_path / "out.json").read_text())
    assert ("cut-short" in {one.id for one in explain(result)}) is told
    assert result.loads[0].option("time_based") is None
