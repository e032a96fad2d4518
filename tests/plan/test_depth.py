# SPDX-License-Identifier: Apache-2.0
"""The depth of a load as a setting of an arm, and the most IOPS that keep a latency: a search over both."""

import json
from pathlib import Path

import pytest

from virtune.cli import run
from virtune.fio.as_asked import depth_check
from virtune.fio.workloads import parse_workload
from virtune.model.stack import Stack
from virtune.model.study import Arm

DEEP = Arm(name="deep", stack=Stack(rig="metal", load_depth=7))


def depths(text: str) -> list[str]:
    return [job.get("iodepth", "1") for job in DEEP.load_of(parse_workload(text)[0])]


def test_an_arm_sets_the_depth_of_every_job_but_a_background() -> None:
    assert depths("randread-4k") == ["7"]
    assert depths("name=a,rw=randread + name=background,rw=randread,iodepth=2") == ["7", "2"]


@pytest.mark.parametrize("words", [("compare", "--vary", "workload.iodepth=4,16", "--at-load", "50%"),
                                   ("sweep", "--set", "workload.iodepth=4")])  # fmt: skip
def test_a_depth_is_refused_where_a_rate_decides_it(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was accepted, and the study ended when the first offered load was seen with another depth."""
    place = ("--store", str(tmp_path / "store.sqlite"), "--scratch", str(tmp_path / "scratch"))
    assert run([*words, "--rig", "simulated:quiet", "-q", *place]) == 2
    assert "is as deep as that rate needs" in capsys.readouterr().err


def test_the_depth_is_seen_in_the_loads_result() -> None:
    def result(*depth: str) -> bytes:
        jobs = [
            {"jobname": f"job{number}", "job options": {"iodepth": one}, "read": {}, "write": {}}
            for number, one in enumerate(depth)
        ]
        return json.dumps({"fio version": "fio-3.33", "jobs": jobs}).encode()

    assert depth_check(result("7", "7"), 7).agrees is True
    assert depth_check(result("7", "8"), 7).agrees is False
    assert depth_check(b"broken", 7).found is None


@pytest.mark.real
def test_the_depth_of_an_arm_reaches_the_load_and_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rig", "metal", "--set", "workload.iodepth=4", "--seconds", "0.3", "--ramp", "0", "--rounds", "1")
    store = ("--store", str(tmp_path / "store.sqlite"))
    assert (
        run(
            [
                "compare",
                "measure",
                *words,
                "--attempts",
                "1",
                "--span",
                "8M",
                "-q",
                *store,
                "--scratch",
                str(tmp_path),
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "settings verified" in said
    assert run(["show", "last", "--trial", "1", "--capture", "fio.json", *store]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["job options"]["iodepth"] == "4"


def test_tune_finds_the_most_iops_that_keep_a_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The truth of this rig: at depth d a disk of capacity C takes 80 us + d / C in the mean, and 2.1 times that at
    p99. With io_uring (C = 50k) the depths up to 19 keep 1 ms, with threads (40k) those up to 15.
    """
    words = ("--rig", "simulated:quiet", "--vary", "disk.aio=threads,io_uring", "--vary", "workload.iodepth=4,16,24")
    limit = ("--maximize", "iops", "--subject-to", "latency.p99<=1ms", "--seed", "3", "-q", "--json")
    place = ("--store", str(tmp_path / "store.sqlite"), "--scratch", str(tmp_path / "scratch"))
    assert run(["tune", *words, *limit, *place]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["winner"] == "aio=io_uring+iodepth=16"
    dense = max(depth / (80e-6 + depth / 50e3) for depth in range(1, 33) if 2.1 * (80e-6 + depth / 50e3) <= 1e-3)
    found = 16 / (80e-6 + 16 / 50e3)
    assert found > 0.9 * dense
    sweep_seconds = 2 * 32 * 6 * (2 + 0.5)  # both engines at each of those depths, six rounds of a default trial
    assert document["cost"]["measured_seconds"] < 0.25 * sweep_seconds
