# SPDX-License-Identifier: Apache-2.0
"""Disks are in the state of ones in service before the first trial: written in full, and each load steady by fio."""

import os
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SPAN, TEMPORARY, User, eventually, generator, marked_processes

from virtune.model.steady import Steadied
from virtune.store.store import Store

pytestmark = pytest.mark.real

EVEN = "rw=randread,bs=4k,iodepth=1,rate_iops=200"
"""Any disk does so many."""

SHORT = ("--rounds", "1", "--seconds", "200ms", "--ramp", "0")
MEASURE = ("compare", "measure", *SHORT, "--workload", EVEN)
AT_ONCE = ("--steady-rule", "iops:50%/2s", "--steady-limit", "60s")
NEVER = ("--steady-rule", "iops:0.0001%/2s")


def load_pids(mark: str = "/load.fio") -> list[int]:
    """The processes of fio that run now with virtune's job file."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if Path(words[0]).name == "fio" and f"{TEMPORARY}/" in " ".join(words) and mark in " ".join(words):
            found.append(int(place.name))
    return found


def of_study(user: User, *words: str, exactly: bool = False) -> dict[str, Any]:
    return dict(user.run(*words, "--json", exactly=exactly).json()["study"])


@pytest.mark.once
def test_a_load_runs_until_it_is_steady_and_what_was_found_is_told(user: User) -> None:
    ran = user.run("compare", *SHORT, "--workload", EVEN, "--vary", "disk.aio=threads,io_uring", *AT_ONCE)
    assert "running each load until it is steady by iops:50%/2s (at most 60 s each)" in ran.stderr
    assert "loads steady before (iops:50%/2s)" in " ".join(ran.stdout.split())
    study = user.run("show", "last", "--json").json()["study"]
    assert [(one["arm"], one["attained"], one["rule"]) for one in study["steadied"]] == [
        ("threads", True, "iops:50%/2s"),
        ("io_uring", True, "iops:50%/2s"),
    ]
    for one in study["steadied"]:
        assert 1.5 < one["seconds"] < 60
        assert one["iops"] == pytest.approx(200, rel=0.3)
        assert 0 <= one["found_percent"] < 50
    assert "was steady after" in user.run("show", "last").stdout


@pytest.mark.once
def test_a_disk_that_stands_still_now_and_then_is_not_steady_until_it_goes_on(user: User) -> None:
    went_on = list[float]()

    def disturb() -> None:
        eventually(lambda: bool(load_pids()))
        (pid,) = load_pids()
        last = 0.0
        for _ in range(5):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(pid, signal.SIGCONT)
            last = time.monotonic()
            time.sleep(1.0)
        eventually(lambda: pid not in load_pids())
        went_on.append(time.monotonic() - last)

    beside = threading.Thread(target=disturb)
    beside.start()
    words = ("--rig", "metal", "--steady-rule", "iops:40%/3s", "--steady-limit", "60s")
    (one,) = of_study(user, *MEASURE, *words)["steadied"]
    beside.join()
    assert one["attained"]
    (seconds,) = went_on
    assert seconds > 2.0, "no window of three samples with a standstill in it is steady"


@pytest.mark.once
def test_what_is_not_steady_in_time_is_measured_with_a_warning(user: User) -> None:
    words = ("--workload", "randread-4k", "--rig", "metal")
    ran = user.run("compare", "measure", *SHORT, *words, *NEVER, "--steady-limit", "4s")
    assert "was NOT steady after 4" in " ".join(ran.stdout.split())
    document = user.run("show", "last", "--json").json()
    (one,) = document["study"]["steadied"]
    assert not one["attained"]
    assert one["found_percent"] > 0.0001
    assert any("its figures may be of a disk that still changes" in text for text in document["patterns"])


@pytest.mark.once
def test_a_disk_is_written_in_full_twice_before_its_load(user: User) -> None:
    target, mine = user.home / "target", os.urandom(1024**2) * 20
    target.write_bytes(mine)
    words = (*MEASURE, "--scratch", str(user.scratch), "--target", str(target), "--span", "16M", "--precondition")
    refused = user.run(*words, *AT_ONCE, exactly=True, status=3)
    assert f"--allow-write-to {target}" in refused.stderr
    assert target.read_bytes() == mine
    (disk,) = of_study(user, *words, "--allow-write-to", str(target), *AT_ONCE, exactly=True)["preconditioned"]
    assert (disk["size_bytes"], disk["written_bytes"]) == (16 * 1024**2, 32 * 1024**2)
    now = target.read_bytes()
    blocks = [(now[at : at + 4096], mine[at : at + 4096]) for at in range(0, len(mine), 4096)]
    assert all((new != old) == (index < 4096) for index, (new, old) in enumerate(blocks)), "all of 16 MiB, no more"


@pytest.mark.once
def test_each_image_is_written_once_and_limits_of_an_arm_do_not_hold_it_up(user: User) -> None:
    arms = ("--arm", "slow:disk.throttle_iops=100", "--arm", "same:", "--arm", "other:disk.format=qcow2")
    study = of_study(user, "compare", *SHORT, "--workload", EVEN, *arms, "--precondition", *AT_ONCE)
    assert [(one["arm"], one["written_bytes"]) for one in study["preconditioned"]] == [
        ("slow", 2 * SPAN),
        ("other", 2 * SPAN),
    ]
    assert len(study["steadied"]) == 3
    slow = study["steadied"][0]
    assert slow["iops"] == pytest.approx(100, rel=0.3), "the load itself has the arm's limits"


@pytest.mark.once
def test_a_run_that_is_killed_leaves_nothing_and_goes_on_with_what_was_not_finished(user: User) -> None:
    words = ("--rig", "metal", "--workload", "randread-4k", *NEVER, "--steady-limit", "5s", "--precondition")
    user.run(*MEASURE, "--rig", "metal")
    before = sorted(user.scratch.iterdir())
    killed = user.start(*MEASURE, *words)
    assert eventually(lambda: bool(load_pids()))

    def steadied() -> tuple[Steadied, ...]:
        with Store(user.home / "virtune" / "virtune.sqlite", reading=True) as store:
            return store.get(store.find("last")).study.steadied

    assert eventually(lambda: len(steadied()) == 1 and bool(load_pids()))
    killed.send_signal(signal.SIGKILL)
    killed.communicate(60)
    assert eventually(lambda: not marked_processes() and not load_pids())
    assert sorted(user.scratch.iterdir()) == before
    (first,) = steadied()
    study = user.run("compare", "resume", "last", "--json").json()["study"]
    assert study["steadied"][0] == asdict(first)
    assert [one["workload"] for one in study["steadied"]][1:] == ["randread-4k"]
    assert len(study["preconditioned"]) == 1


REFUSED = {
    "virtune-load": ("--rig vhost-user", "use disk.export=nbd or fuse"),
    "a guest without Linux": ("--rig qemu --set guest.system=bare", "--set guest.system=linux"),
    "simulated": ("--rig simulated", "the simulated rig loads nothing"),
    "counted": ("--workload rw=randread,bs=4k,number_ios=100", "ends after an amount of I/O"),
    "no rule": ("--steady-rule iops:5", "it is not a rule such as iops_slope:0.3%/30s"),
    "no window": ("--steady-rule iops:5%/1s", "a whole number of seconds, 2 at least"),
    "no room": ("--steady-limit 10s", "its window of 30 s does not fit into 10 s"),
    "no room beside the ramp": (
        "--steady-rule iops:5%/4s --steady-limit 5s --ramp 3s",
        "4 s are looked at, after a ramp of 3 s",
    ),
    "emptied each time": (
        "--set disk.format=qcow2 --set disk.backing_depth=1 --precondition",
        "nothing that is written before stays",
    ),
    "no limit": ("--steady-rule iops:0%/5s", "more than 0 %"),
    "nothing kept": ("--set disk.backend=null-co --precondition", "nothing to write in full"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_before_anything_runs(case: str, user: User) -> None:
    generator()
    words, said = REFUSED[case]
    refused = user.run("compare", "measure", *SHORT, "--until-steady", *words.split(), status=None)
    assert refused.status in (2, 3)
    assert said in refused.stderr


def test_a_job_file_is_told_of_the_option_that_does_it(user: User) -> None:
    file = user.home / "mine.fio"
    file.write_text("[mine]\nrw=randread\nbs=4k\nsteadystate=iops:5%\n")
    refused = user.run("compare", "measure", "--workload", str(file), status=None)
    assert "`--until-steady` runs the load until it is steady" in refused.stderr
    file.write_text("[mine]\nrw=randread\nbs=4k\n")
    refused = user.run("compare", "measure", "--workload", str(file), "--until-steady", status=None)
    assert "mine is a job file, which runs as it is and not until it is steady" in refused.stderr


def test_its_time_is_part_of_what_a_dry_run_tells(user: User) -> None:
    def told(*words: str) -> str:
        (line,) = [
            one
            for one in user.run(*MEASURE, "--rig", "metal", "--dry-run", *words).stdout.splitlines()
            if "set-up" in one
        ]
        return line

    assert told() != told("--until-steady")
    assert "about 9" in told("--steady-rule", "iops:5%/90s", "--steady-limit", "100s")
