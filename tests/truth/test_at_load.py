# SPDX-License-Identifier: Apache-2.0
"""Latency at equal offered load: known service times come out, and an arm that cannot keep up gets no verdict."""

import re
import signal
from typing import Any

import pytest
from tests.conftest import User, generator

pytestmark = pytest.mark.real

ARMS = (
    "--set", "disk.backend=null-co",
    "--arm", "base:disk.null_latency_ns=2000000,disk.throttle_iops=4000",
    "--arm", "slow:disk.null_latency_ns=4000000,disk.throttle_iops=4000",
    "--arm", "weak:disk.null_latency_ns=2000000,disk.throttle_iops=1800",
)  # fmt: skip
WORKLOAD = ("--workload", "deep: rw=randread,bs=4k,iodepth=64")


def verdicts(found: Any, workload: str) -> dict[tuple[str, str], Any]:
    return {(c["candidate"], c["metric"]): c for c in found["comparisons"]
            if c["workload"] == workload and c["baseline"] == "base"}  # fmt: skip


@pytest.mark.first
@pytest.mark.long(always="other loads are offered in each run, below, and latencies are known in test_truth.py")
def test_known_service_times_come_out_and_what_cannot_keep_up_is_called_saturated(user: User) -> None:
    generator()
    # five rounds must count, and two may be invalid after three attempts; the bucket is empty after 20 ms of the ramp
    words = ("--at-load", "70%", "--rounds", "7", "--seconds", "400ms", "--ramp", "100ms")
    found = user.run("compare", "--rig", "vhost-user", *ARMS, *WORKLOAD, *words, "--json", "-q").json()
    assert found["study"]["sequential"]
    assert found["study"]["stopped"] in ("decided", "rounds")
    workloads = {workload["name"]: workload for workload in found["study"]["workloads"]}
    assert list(workloads) == ["deep", "deep-qd1", "deep-at-70pct"]
    assert workloads["deep"]["probe"]
    assert workloads["deep-at-70pct"]["offered_iops"] == pytest.approx(2800, rel=0.05)
    one, offered = verdicts(found, "deep-qd1"), verdicts(found, "deep-at-70pct")
    assert one["slow", "latency.mean"]["verdict"] == "worse"
    # medians are those of bins of 16 us, so that on a quiet machine every round may give the very same ones
    median = one["slow", "latency.p50"]
    assert median["verdict"] == "worse" or median["reason"] == "no-noise", median
    assert one["slow", "latency.p50"]["ratio"]["estimate"] == pytest.approx(2, abs=0.3)
    # a busy machine may stall an offered load in a round, so of the verdict only this is sure
    assert offered["slow", "latency.p50"]["verdict"] in ("worse", "undecided")
    medians = {
        arm["name"]: one["values"]["latency.p50"]["value"]
        for arm in found["arms"] for one in arm["workloads"] if one["workload"] == "deep-at-70pct"
    }  # fmt: skip
    assert medians["base"] >= 2e6
    assert medians["slow"] >= 4e6
    assert one["weak", "latency.p50"]["verdict"] in ("same", "undecided")
    assert offered["weak", "latency.p50"]["verdict"] == "undecided"
    assert offered["weak", "latency.p50"]["ratio"] is None
    assert "weak is saturated at this load: latency not comparable" in offered["weak", "latency.p50"]["why"]
    of_weak = [c for c in found["differences"] if c["workload"] == "deep-at-70pct" and c["candidate"] == "weak"]
    assert {c["metric"] for c in of_weak if c["metric"].startswith("latency") and c["ratio"]} == set()
    # at 0.4 s a throttle may give every round the very same number of I/Os, which is undecided for another reason
    assert {c["metric"] for c in of_weak if "saturated" not in c["why"]} >= {"iops", "bandwidth", "cpu_per_io"}


def until(user: User, line: str, *words: str) -> None:
    """Start virtune and interrupt it when a line has these words."""
    process = user.start(*words)
    assert process.stderr is not None
    for said in process.stderr:
        if line in said:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130


@pytest.mark.once  # each is measured once, whatever disturbs it
@pytest.mark.xdist_group("tune")  # groups begin first, and it is the longest of those in none
def test_the_saturation_is_measured_once_however_often_the_study_is_interrupted(user: User) -> None:
    words = (
        *ARMS[:6],
        *WORKLOAD,
        "--at-load",
        "50%,1kiops",
        "--rounds",
        "3",
        "--seconds",
        "200ms",
        "--ramp",
        "200ms",
    )
    until(user, "round 1 of", "compare", *words)
    assert "saturat" in user.run("show", "last").stdout
    until(user, ", trial 3 of ", "resume", "-v")
    begun = user.run("show", "last", "--json").json()
    found = user.run("compare", "resume", "-q", "--json").json()
    assert found["study"]["workloads"] == begun["study"]["workloads"]
    offered = {workload["name"]: workload["offered_iops"] for workload in found["study"]["workloads"]}
    assert set(offered) == {"deep", "deep-qd1", "deep-at-50pct", "deep-at-1kiops"}
    assert offered["deep-at-1kiops"] == 1000
    probes = [(one["round"], one["attempt"]) for one in found["arms"][0]["rounds"] if one["workload"] == "deep"]
    assert sorted(probes) == [(1, 1), (2, 1), (3, 1)]
    assert not [one for one in found["arms"][1]["rounds"] if one["workload"] == "deep"]
    assert found["study"]["finished"]
    assert found["study"]["judged"] == ["latency.p99", "latency.p50", "latency.mean"]
    report = user.home / "report.txt"
    user.run("show", "last", "--report", str(report))
    again = " ".join(report.read_text().split())
    assert "--at-load 50% --at-load 1kiops" in again
    assert re.search(r"base is saturated at [0-9.,k]+ a second \(3 rounds, before the others\)", again)
