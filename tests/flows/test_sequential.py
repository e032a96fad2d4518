# SPDX-License-Identifier: Apache-2.0
"""A comparison that stops when it knows: early where it can, at its budget else, and exactly on after a kill."""

from datetime import datetime
from typing import Any

import pytest
from tests.conftest import User

from virtune.plan.trials import trials

pytestmark = pytest.mark.real

NULL = ("--set", "disk.backend=null-co", "--workload", "rw=randread,bs=4k,iodepth=16", "--span", "64M")
SHORT = ("--seconds", "300ms", "--ramp", "0", "-q")
EQUAL = ("--set", "disk.null_latency_ns=2000000", "--arm", "a:", "--arm", "b:")
"""Two arms that wait most of the time, and leave the CPUs to others."""

SURE = ("--margin", "0.001", "--confidence", "0.999")
"""Two equal arms are told apart once in a thousand times, so that a study of them runs to its end."""


def order_of(document: Any) -> list[tuple[int, int, str]]:
    return sorted((one["number"], one["round"], arm["name"]) for arm in document["arms"] for one in arm["rounds"])


def test_it_stops_when_every_pair_is_decided(user: User) -> None:
    arms = ("--arm", "full:disk.throttle_iops=2000", "--arm", "less:disk.throttle_iops=1000")
    found = user.run("compare", *NULL, *arms, "--rounds", "40", *SHORT, "--json").json()
    study, verdict = found["study"], found["comparisons"][0]
    assert (study["stopped"], study["finished"], verdict["verdict"]) == ("decided", True, "worse")
    assert 6 <= verdict["rounds"] < 40
    assert study["trials"] == study["trials_done"] == 2 * verdict["rounds"]
    assert verdict["noise"] > 0
    assert [one["round"] for one in study["looks"]] == list(range(6, verdict["rounds"] + 1))
    assert study["looks"][-1]["share"] == verdict["rounds"] / 40
    assert found["basis"]["workloads"][0]["seconds_left"] == 0
    assert "--rounds 40" in found["basis"]["command"]
    text = user.run("show").stdout
    assert "stopped: every arm against full is decided" in " ".join(text.split())


def test_it_ends_within_its_budget_and_says_what_going_on_would_take(user: User) -> None:
    # short trials, so that a host on which each takes three times as long has room for two looks
    words = (*SURE, "--budget", "12s", *SHORT, "--seconds", "50ms")
    user.run("compare", *NULL, *EQUAL, *words)
    found = user.run("show", "--json").json()
    study, rounds = found["study"], [one for arm in found["arms"] for one in arm["rounds"]]
    ends = sorted(datetime.fromisoformat(one["ended"]) for one in rounds)
    assert (ends[-1] - ends[0]).total_seconds() < 18, "how long programs take to start and to print is not in it"
    shares = [one["share"] for one in study["looks"]]
    assert shares == sorted(shares)
    assert (study["stopped"], shares[-1], shares[-2] < 1) == ("budget", 1.0, True)  # the last look has all the rest
    said = " ".join(user.run("show").stdout.split())
    assert "stopped: time budget reached" in said
    # on a quiet host the rest needs so much less than an hour that its time is said
    assert any(one in said for one in ("decide the rest", "rounds will not decide", "more than an hour")), said


@pytest.mark.long(always="test_simulated_resume.py has this in each run, on a simulated rig")
def test_killed_between_looks_it_goes_on_in_the_order_that_its_seed_draws(user: User) -> None:
    words = ("compare", *NULL, *EQUAL, *SURE, "--rounds", "9", "--seed", "11")
    process = user.start(*words, "--fail-if", "iops < -80%", "--seconds", "300ms", "--ramp", "0")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("round 8 of at most"):  # in the eighth round: six were proposed at once, then one by one
            break
    process.kill()
    process.communicate(timeout=90)
    before = order_of(user.run("show", "--json").json())
    found = user.run("compare", "resume", "-q", "--json").json()
    drawn = trials(["a", "b"], ["inline"], rounds=9, seed=11)
    assert order_of(found) == [(one.number, one.round, one.arm) for one in drawn]
    assert before == order_of(found)[: len(before)]
    assert found["study"]["stopped"] == "rounds"
    assert [(one["condition"], one["outcome"]) for one in found["conditions"]] == [("iops < -80%", "held")]
    assert "--fail-if 'iops < -80%'" in found["basis"]["command"]


def test_a_budget_without_room_for_a_round_is_refused(user: User) -> None:
    ran = user.run("compare", *NULL, "--arm", "a:", "--arm", "b:", "--budget", "1s", status=2)
    assert "the budget is shorter than one round" in ran.stderr
