# SPDX-License-Identifier: Apache-2.0
"""Arms switched in one process: what they measure is right, and each trial says how it came to run."""

from typing import Any

import pytest
from tests.conftest import User, generator

pytestmark = pytest.mark.real

ARMS = ("free:", "limited:disk.throttle_iops=5000", "slow:disk.null_latency_ns=2000000")


def rounds_of(document: Any, arm: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(one["rounds"] for one in document["arms"] if one["name"] == arm)
    return found


def compare(user: User, *words: str, seconds: str = "1") -> Any:
    arms = [word for arm in ARMS for word in ("--arm", arm)]
    base = ("--rig", "vhost-user", "--set", "disk.backend=null-co", "--workload", "rw=randread,bs=4k,iodepth=4")
    times = ("--rounds", "1", "--seconds", seconds, "--ramp", "0", "--json", "-q")
    return user.run("compare", *base, *arms, *times, *words).json()


@pytest.mark.first
def test_known_numbers_come_out_of_arms_that_were_switched_in_one_process(user: User) -> None:
    generator()
    document = compare(user)
    for one in rounds_of(document, "limited"):  # 5000 a second, and the bucket of a tenth of a second's worth
        assert 0.95 * 5500 <= one["measurement"]["values"]["iops"] <= 1.01 * 5500
    for one in rounds_of(document, "slow"):
        assert 2.0e6 <= one["measurement"]["values"]["latency.mean"] <= 3.5e6
        assert one["measurement"]["values"]["iops"] <= 2000
    assert all(one["measurement"]["values"]["iops"] > 10_000 for one in rounds_of(document, "free"))
    ways = sorted((one["number"], one["changeover"]) for arm in document["arms"] for one in arm["rounds"])
    assert {way["swapped"] for _, way in ways} == {"export"}
    assert len({way["process"] for _, way in ways}) == 1
    carried = [way["carried"] for _, way in ways]
    assert carried == sorted(set(carried))
    assert carried[0] >= 3  # every arm came up once before
    assert all(0 < way["seconds"] < 60 for _, way in ways)
    shown = user.run("show", "last", "--trial", "2", "--capture", "changeover.txt").stdout
    assert shown == f"{ways[1][1]['text']}\n"
    report = user.home / "report.txt"
    user.run("show", "last", "--report", str(report))
    assert "3 of 3 trials were switched within a running process, in " in report.read_text()
    _, again = report.read_text().split("to repeat it")
    assert "--arm" in again
    assert "--restart" not in again


def test_a_new_process_for_every_trial_when_it_is_asked_for(user: User) -> None:
    generator()
    document = compare(user, "--restart", seconds="300ms")
    ways = [one["changeover"] for arm in document["arms"] for one in arm["rounds"]]
    assert {(way["swapped"], way["why"], way["carried"]) for way in ways} == {(None, "asked for", 0)}
    assert len({way["process"] for way in ways}) == 3
    report = user.home / "report.txt"
    user.run("show", "last", "--report", str(report))
    assert "New processes: 3 (asked for)." in report.read_text()
    assert "--restart" in report.read_text()


def test_metal_has_no_process_to_switch(user: User) -> None:
    words = ("--rig", "metal", "--workload", "randread-4k", "--rounds", "1", "--seconds", "300ms", "--json", "-q")
    document = user.run("compare", "measure", *words).json()
    assert [one["changeover"] for one in document["arms"][0]["rounds"]] == [None]
