# SPDX-License-Identifier: Apache-2.0
"""Of real fio: jobs, and the reads of a verification, that ran one after another have no sum."""

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest
from tests.conftest import User, eventually

from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.gates import flush_ns
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


@pytest.mark.parametrize("engine", ["libaio", "psync", "io_uring"])
def test_a_flush_at_depth_1_is_not_the_write_before_it_too(engine: str, tmp_path: Path) -> None:
    """fio's libaio counts it from when that was sent, and more was in flight than can be."""
    words = ("--name=one", "--rw=randwrite", "--fdatasync=1", f"--ioengine={engine}", "--iodepth=1", "--bs=64k")
    result = ran(tmp_path, *words, "--time_based", "--runtime=1500ms")
    (load,) = result.loads
    assert "little" not in {one.id for one in explain(result)}
    assert load.sync is not None
    assert 0 < flush_ns(load) <= load.sync.mean_ns
    assert (flush_ns(load) < load.sync.mean_ns) is (engine == "libaio")


def test_without_lat_the_time_of_submission_is_none(tmp_path: Path) -> None:
    """fio counts it from the run's begin then."""
    words = ("--name=one", "--rw=randread", "--disable_lat=1", "--iodepth=1")
    (load,) = ran(tmp_path, *words).loads
    assert (load.streams[0].slat, load.streams[0].lat) == (None, None)
    assert load.streams[0].clat is not None
    command = ["fio", f"--directory={tmp_path}", *COMMON, *words, "--output-format=normal"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert read_result(text).loads[0].streams[0].slat is None


@pytest.mark.parametrize(("mapped", "of"), [((), "map"), (("--norandommap",), "draw")])
def test_blocks_that_run_into_others_are_cut_by_the_map_of_a_random_load(
    mapped: tuple[str, ...], of: str, tmp_path: Path
) -> None:
    words = ("--name=one", "--rw=randwrite", "--bssplit=4k/50:64k/50", "--size=16M")
    result = ran(tmp_path, *words, *mapped)
    (stream,) = result.loads[0].streams
    assert stream.bytes is not None
    each = stream.bytes / (stream.ios or 1)
    assert (each < 28 * 1024) is (of == "map")
    assert "contradiction" not in {one.id for one in explain(result)}


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
    ("asked", "told"),
    [("--runtime=30", True), ("--runtime=400ms", False), ("--loops=2", False), ("--verify=md5", False)],
)
def test_a_run_that_was_ended_is_known_where_fio_does_not_echo_that_it_was_timed(
    asked: str, told: bool, tmp_path: Path
) -> None:
    """It does not where the option came by the command line."""
    timed = ("--time_based",) if "runtime" in asked else ("--runtime=30", "--rw=randrw")
    command = ["fio", f"--directory={tmp_path}", f"--output={tmp_path}/out.json", *COMMON, "--name=one", "--rw=read"]
    with subprocess.Popen([*command, asked, *timed], cwd=tmp_path) as fio:
        assert eventually(lambda: any(tmp_path.glob("one*"))), "a busy host starts it late"
        with contextlib.suppress(subprocess.TimeoutExpired):
            fio.wait(2)
        fio.send_signal(signal.SIGINT)
    result = read_result((tmp_path / "out.json").read_text())
    assert ("cut-short" in {one.id for one in explain(result)}) is told
    assert result.loads[0].option("time_based") is None


def test_what_is_said_of_reads_and_of_writes_is_of_one_round(tmp_path: Path, user: User) -> None:
    ran(tmp_path, "--name=one", "--rw=randrw")
    edited = json.loads((tmp_path / "out.json").read_text())
    for direction in ("read", "write"):
        edited["jobs"][0][direction]["lat_ns"]["min"] = 10**12
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    said = " ".join(user.run("explain", "import", str(tmp_path / "edited.json"), status=None).stdout.split())
    assert "contradict each other" in said
    assert "in 1 of 1 round" in said


@pytest.mark.parametrize(
    ("job", "seconds", "ended", "times"),
    [
        ("io_size=8k", "1", "`a` was done, by its io_size=8k", "x at most 1.0 s"),
        ("loops=1\nsize=64k", "300ms", "`a` was done, by its loops=1", "x at most 0.3 s"),
        ("loops=1000000\nrate_iops=50", "500ms", "", "x at most 0.5 s"),
        ("rate_iops=50", "500ms", "", "x 0.5 s"),
    ],
)
def test_a_trial_that_was_over_before_its_time_says_how_long_it_ran(
    job: str, seconds: str, ended: str, times: str, tmp_path: Path, user: User
) -> None:
    (tmp_path / "own.fio").write_text(f"[a]\nrw=randread\n{job}\n")
    asked = ("--rig", "metal", "--rounds", "1", "--seconds", seconds, "--ramp", "0", "--span", "64M")
    ran_ = user.run("compare", "measure", *asked, "--workload", str(tmp_path / "own.fio"), "--json", "-q").json()
    (workload,) = ran_["arms"][0]["workloads"]
    told = [one["text"] for one in workload["remarks"] if one["id"] == "cut-short"]
    assert [ended in one for one in told] == ([True] if ended else [])
    assert not any("after 0.0 s" in one for one in told)
    page = " ".join(user.run("show", "last").stdout.split())
    assert times in page
    assert ended in page
