# SPDX-License-Identifier: Apache-2.0
"""Trouble made on this machine is found in real trials: repeated, kept, counted, and gone on with after a kill."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import User, eventually, fork_server, quota_group

from virtune.probe.devices import backing_of

pytestmark = pytest.mark.real

SHORT = ("--rounds", "1", "--seconds", "1", "--ramp", "0.1")
METAL = ("--rig", "metal", "--workload", "rw=randread,bs=4k,iodepth=16")


@contextlib.contextmanager
def neighbours(*commands: list[str]) -> Iterator[list[int]]:
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for words in commands]
    try:
        yield [one.pid for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()


@contextlib.contextmanager
def reading(user: User) -> Iterator[None]:
    """Another who reads from the disk of the scratch directory."""
    user.scratch.mkdir(parents=True, exist_ok=True)
    if not backing_of(user.scratch).disks:
        pytest.skip(f"{user.scratch} has no block device: {backing_of(user.scratch).gap}; set TMPDIR to a disk")
    other = user.scratch / "neighbour.bin"
    other.write_bytes(os.urandom(1 << 20) * 64)
    os.sync()
    # --thread: a worker process of its own would outlive the fio that is killed
    words = ["fio", "--thread", "--name=n", f"--filename={other}", "--rw=randread", "--bs=1M", "--direct=1"]
    with neighbours(
        [*words, "--size=64M", "--time_based", "--runtime=100", "--ioengine=psync", "--allow_file_create=0"]
    ) as (pid,):
        assert eventually(lambda: read_by(pid) > 32 * 2**20), "it has begun"
        yield
    other.unlink()


def read_by(pid: int) -> int:
    """How many bytes a process has read from disks."""
    counted = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counted["read_bytes"])


def only(document: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the summary and the single trial of a document of one arm."""
    (arm,) = document["arms"]
    return arm["workloads"][0], arm["rounds"][0]


@pytest.mark.alone
@pytest.mark.xdist_group("CPUs")
def test_another_who_reads_from_the_same_disk_is_seen_waited_for_twice_and_counted(user: User) -> None:
    with reading(user):
        ran = user.run("compare", "measure", *METAL, *SHORT, "--json", "-v")
    summary, trial = only(ran.json())
    assert trial["measurement"]["gates"]["foreign-io"] > 0.10
    assert (trial["attempt"], summary["attempts"], summary["invalid"]["foreign-io"]) == (3, 3, 3)
    assert ran.stderr.count("disturbed (") == 2
    text = " ".join(user.run("show").stdout.split())
    assert "3 ran, 2 of them to repeat a disturbed or failed one; used: 1; disturbed: " in text
    assert "foreign I/O in 3" in text


@pytest.mark.alone
@pytest.mark.xdist_group("CPUs")
def test_neighbours_on_the_cpus_are_seen(user: User) -> None:
    # the last of its group, when the other worker has nothing to measure any more
    # a load that sleeps for its disk most of the time loses nothing by them: this one wants every CPU
    wanting = ("--rig", "metal", "--workload", f"rw=randread,bs=4k,iodepth=16,numjobs={2 * (os.cpu_count() or 1)}")
    busy = ["nice", "-n", "-10", sys.executable, "-c", "while True: pass"]
    with neighbours(*[busy] * (os.cpu_count() or 1)):
        looks = 0
        trial: dict[str, Any] = {}
        while looks < 4 and not (trial and trial["measurement"]["gates"]["cpu-wait"] > 0.05):
            _, trial = only(user.run("compare", "measure", *wanting, *SHORT, "--json").json())
            looks += 1
    assert trial["measurement"]["gates"]["cpu-wait"] > 0.05
    assert "cpu-wait" in {remark["id"] for remark in trial["measurement"]["remarks"]}


@pytest.mark.alone
@pytest.mark.long(always="three attempts are made in each run, above, and a study is killed in test_study.py")
def test_a_study_killed_between_two_attempts_makes_the_others_and_no_more(user: User) -> None:
    with reading(user):
        process = user.start("compare", "measure", *METAL, *SHORT, "-v")
        assert process.stderr is not None
        for line in process.stderr:
            if "disturbed (" in line:
                break
        process.kill()
        process.communicate(timeout=90)
        before, _ = only(user.run("show", "--json").json())
        assert before["attempts"] == 1
        after, trial = only(user.run("compare", "resume", "-q", "--json").json())
    assert (trial["attempt"], after["attempts"], after["invalid"]["foreign-io"]) == (3, 3, 3)
    assert user.run("show", "list", "--json").json()["studies"][0]["finished"]


@contextlib.contextmanager
def started_in(group: Path) -> Iterator[None]:
    """Have the runs that are started meanwhile begin in a control group: what they import they have already."""
    server = str(fork_server().pid)
    groups = (line.split(":", 2) for line in Path(f"/proc/{server}/cgroup").read_text().splitlines())
    (before,) = (
        path
        for _, kinds, path in groups
        if kinds.split(",")[0] == "cpu" or (not kinds and group.parent.name == "cgroup")
    )
    (group / "cgroup.procs").write_text(server)
    try:
        yield
    finally:
        (group.parent / before.lstrip("/") / "cgroup.procs").write_text(server)


def test_a_limit_on_our_cpu_time_is_seen(user: User) -> None:
    group = quota_group()
    try:
        with started_in(group):
            process = user.start("compare", "measure", *METAL, *SHORT, "--attempts", "1", "--json")
        _, said = process.communicate(timeout=90)
        assert process.returncode == 0, said
        summary, trial = only(user.run("show", "--json").json())
        assert trial["measurement"]["gates"]["cpu-throttled"] > 0.01
        assert summary["invalid"]["cpu-throttled"] >= 1
    finally:
        deadline = time.monotonic() + 10
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.05)


@pytest.mark.first
def test_a_load_above_what_the_disk_can_do_is_called_saturated(user: User) -> None:
    null = ("--set", "disk.backend=null-co", "--set", "disk.throttle_iops=1000")
    words = (
        "compare",
        "measure",
        *null,
        "--workload",
        "rw=randread,bs=4k,iodepth=32,rate_iops=2000",
        *SHORT,
        "--json",
    )
    _, trial = only(user.run(*words).json())
    said = {remark["id"]: remark for remark in trial["measurement"]["remarks"]}
    assert said["rate-unmet"]["text"].startswith("saturated: 2")
    assert trial["measurement"]["gates"]["rate-unmet"] > 0.3


THROTTLED = ("--set", "disk.backend=null-co", "--set", "disk.throttle_iops=2000", "--workload",
             "rw=randread,bs=4k,iodepth=16")  # fmt: skip


@pytest.mark.first
def test_a_burst_at_the_begin_is_found_and_the_ramp_grows_over_it(user: User) -> None:
    # the bucket holds a tenth of a second's worth: of three slices of a profile the first has 700 I/Os, the last 500
    words = ("compare", "measure", *THROTTLED, "--rounds", "6", "--seconds", "800ms", "--json")
    ran = user.run(*words, "--ramp", "0")
    found = ran.json()
    (ramp,) = found["ramps"]
    assert (ramp["round"], ramp["before"], ramp["after"]) == (5, 0, 0.25)
    assert 0.6 < ramp["change"] < 0.85
    assert "the ramp of 0" in ran.stderr
    rates = [trial["measurement"]["values"]["iops"] for trial in found["arms"][0]["rounds"]]
    assert sorted(rates[:5])[2] > 1.05 * rates[5], "a burst of a tenth of a second, which the ramp leaves out"
    assert "ramp_time=250ms" in user.run("show", "--trial", "6", "--capture", "job.fio").stdout
    assert "the ramp of 0" in " ".join(user.run("show").stdout.split())


@pytest.mark.first
@pytest.mark.long(always="analyse/test_warm_up.py calls 1,000 steady loads steady in each run")
def test_a_steady_load_keeps_its_ramp(user: User) -> None:
    found = user.run(
        "measure", *THROTTLED, "--rounds", "5", "--seconds", "1", "--ramp", "0.25", "-q", "--json"
    ).json()
    assert found["ramps"] == []
