# SPDX-License-Identifier: Apache-2.0
"""Landscapes whose best is known: throttles on a disk that does nothing else, so that a search can be judged."""

import contextlib
import itertools
import json
import math
import sqlite3
import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.conftest import Ran, User, bare_guest
from tests.published import complaints, strictly

from virtune.analyse.search.tuning import tuning
from virtune.model.search import phase_of
from virtune.model.tuning import UNSTABLE
from virtune.plan.space import next_block
from virtune.store.store import Store

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("tune")]

NULL = ("--fix", "disk.backend=null-co", "--workload", "rw=randread,bs=4k,iodepth=16")
SHORT = ("--seconds", "200ms", "--ramp", "0", "--confirm-seconds", "200ms", "--seed", "7", "--budget", "120s")
"""Room for the fewest blocks that there may be, also on a host so busy that a slice takes four times as long."""


PAIRS = 10
"""Of six, the default, not one may be disturbed or an outlier; of ten two may."""

BEST, FIRST = 2000, 500
"""The best configuration and the baseline: a start of the best that loses two thirds to others is still better."""


def tune(user: User, *words: str) -> Ran:
    return user.run("tune", *NULL, *SHORT, *words, "--json", "-q")


def throttles(*iops: int) -> str:
    return f"disk.throttle_iops={','.join(map(str, iops))}"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, scratch_directory: Any) -> tuple[User, Any]:
    """Configurations from 5 to 20 % below the best, at rates that need a small part of a CPU that others use too."""
    user = User(tmp_path_factory.mktemp("user"), scratch_directory)
    words = ("--vary", throttles(1600, 1800, 1900, BEST), "--baseline", f"disk.throttle_iops={FIRST}")
    return user, strictly(tune(user, *words, "--confirm", str(PAIRS), "--confirm-seconds", "400ms").stdout)


def test_the_planted_best_or_one_within_3_percent_wins(planted: tuple[User, Any]) -> None:
    _, found = planted
    assert complaints("tune", found) == []
    won = {arm["name"]: int(arm["settings"]["disk.throttle_iops"]) for arm in found["arms"]}[found["winner"]]
    assert won >= 0.97 * BEST or found["distance"] > 0.03, "unless it says itself that it may be further below"
    assert 1 - won / BEST <= found["distance"] + 0.005  # what it says of its distance is true
    assert found["study"]["finished"]
    # both let pass what the throttle's bucket holds besides, so the ratio stays
    confirmed = found["confirmation"]
    assert 6 <= confirmed["pairs"] <= PAIRS
    assert confirmed["ratio"]["low"] < won / FIRST * 1.03
    assert confirmed["ratio"]["high"] > won / FIRST * 0.97
    assert confirmed["verdict"] == "better", confirmed
    # one start of ten that others held up makes the spread too large, and then nothing may be recommended
    unstable = confirmed["spread"] > UNSTABLE
    said = ("undecided", "unstable") if unstable else ("change", "confirmed")
    assert (found["recommendation"], found["reason"]) == said, confirmed
    assert found["cost"]["elapsed_seconds"] < found["cost"]["grid_seconds"] / 10


def test_it_is_listed_and_shown_again_as_it_was(planted: tuple[User, Any]) -> None:
    user, found = planted
    assert strictly(user.run("show", "last", "--json").stdout) == found
    listed = strictly(user.run("show", "list", "--json").stdout)
    assert complaints("list", listed) == []
    assert listed["studies"][0]["kind"] == "tune"
    assert "results of tune and sweep have no" in user.run("show", "--fail-if", "iops < -3%", status=2).stderr
    report = user.home / "report.txt"
    user.run("show", "--report", str(report))
    assert "to repeat it" in report.read_text()
    page = user.run("show").stdout
    assert found["winner"] in page
    # there is nothing to copy where a start that others held up leaves it undecided
    assert ('-device \'{"driver":"virtio-blk-pci"' in page) is (found["recommendation"] == "change")
    assert "(95 % confidence)" in page


@pytest.mark.long(always="analyse/test_tuning.py searches among equals in each run")
def test_among_equals_none_is_called_better(user: User) -> None:
    # 1 ns apart: two configurations by name, one by speed
    words = ("--vary", "disk.null_latency_ns=500001", "--baseline", "disk.null_latency_ns=500003")
    found = tune(user, *words, "--fix", "disk.throttle_iops=6000", "--budget", "25s").json()
    assert found["recommendation"] != "change"
    # a throttle is so even that a difference of one in a thousand can be certain; one that counts cannot
    shortfalls = [arm["against_leader"]["high"] for arm in found["arms"] if arm["against_leader"]]
    assert all(high is None or math.exp(high) > 1 / 1.03 for high in shortfalls)


@pytest.mark.long(always="plan/test_depth.py has a limit in each run, analyse/test_tuning.py one that none keeps")
def test_what_breaks_a_limit_does_not_win_however_fast(user: User) -> None:
    # at a fixed depth of 16 the one with less latency is the faster one, so the limit is on what it costs: none can
    # do more than its throttle lets it
    words = ("--vary", throttles(6000), "--baseline", "disk.throttle_iops=3100")
    found = tune(user, *words, "--confirm", "0", "--budget", "25s", "--subject-to", "iops>=20k").json()
    assert found["winner"] is None
    assert {one["arm"] for one in found["broken"]} == {"baseline", "throttle_iops=6000"}
    assert found["recommendation"] == "undecided"
    assert found["spelled"] == {}


@pytest.mark.parametrize("rig", ["simulated", pytest.param("storage-daemon", marks=pytest.mark.long)])
def test_what_drops_flushes_is_shown_apart_and_never_ranked_even_for_reads(rig: str, user: User) -> None:
    words = ("--vary", "disk.cache", "--fix", "disk.aio=threads", "--workload", "randread-4k")
    ran = user.run("tune", "--rig", rig, *words, *SHORT, "--margin", "0.5", "--confirm", "0", "--json", "-q")
    found = strictly(ran.stdout)
    assert complaints("tune", found) == []
    assert {arm["settings"].get("disk.cache", "none") for arm in found["arms"]} == {"none", "writeback"}
    apart = {name: one for one in found["study"]["apart"] for name in one["arms"]}
    assert apart["cache=unsafe"]["weaker"]
    assert not apart["cache=directsync"]["weaker"]
    assert "unsafe" not in json.dumps(found["spelled"])
    assert "<disk type='file'" in found["spelled"]["libvirt"]


@pytest.mark.long(always="the bare guest keeps the contract of a rig in each run (contract/test_rigs.py)")
def test_the_disk_of_a_guest_is_tuned_and_what_won_was_seen_on_it(user: User) -> None:
    bare_guest()
    kept_in = ("--store", str(user.store))
    words = ("--rig", "qemu", "--vary", throttles(1000, 4000), *kept_in)
    found = tune(user, *words, "--baseline", "disk.throttle_iops=2000", "--confirm", "1").json()
    assert complaints("tune", found) == []
    assert found["winner"] == "throttle_iops=4000"
    arms = {arm["name"]: arm for arm in found["arms"]}
    assert {arm["settings"]["rig"] for arm in arms.values()} == {"qemu"}
    assert {arm["settings"]["guest.system"] for arm in arms.values()} == {"bare"}
    with Store(user.store) as store:
        trials = {one.trial.arm: one.trial.number for one in store.get(store.find("last")).trials}
    for name, arm in arms.items():
        started = user.run("show", "last", "--trial", str(trials[name]), "--capture", "rig.txt", *kept_in).stdout
        assert "virtune-guest" in started
        assert f"'iops-total': {arm['settings']['disk.throttle_iops']}" in started
    assert found["confirmation"]["why"] == "too few pairs of starts (1) for an interval at 95 % confidence"


@pytest.mark.first
@pytest.mark.long(always="a comparison keeps its budget in each run (flows/test_sequential.py)")
def test_a_budget_holds_on_the_clock_and_blocks_are_apart_within_it(user: User) -> None:
    budget, spread = 20, 3
    # two configurations, so that four blocks fit also where a slice of 0.5 s takes 1.4 s
    words = ("--vary", throttles(6000), "--baseline", "disk.throttle_iops=6010", "--mode", "certify")
    ends = ("--margin", "0.001", "--confirm", "0", "--budget", f"{budget}s", "--spread", f"{spread}s")
    found = tune(user, *words, *ends, "--store", str(user.store)).json()
    cost, study = found["cost"], found["study"]
    assert study["budget_seconds"] == budget
    # from when the study was made, after the start of the program, to its end
    assert time.time() - datetime.fromisoformat(study["created"]).timestamp() < cost["elapsed_seconds"] + 6
    with Store(user.store) as store:
        attempts = store.get(store.find("last")).attempts
    again = sum(one.trial.round == attempts[-1].trial.round and one.attempt > 1 for one in attempts)
    each = cost["elapsed_seconds"] / len(attempts)
    assert budget - 6 <= cost["elapsed_seconds"] <= budget + 1 + again * each  # what is disturbed runs again
    assert cost["blocks"] >= 4
    assert (cost["blocks"] - 1) * spread <= cost["elapsed_seconds"], "without waiting there is room for twelve"


@pytest.mark.long(always="flows/test_simulated_resume.py has this in each run, on a simulated rig")
def test_a_killed_search_goes_on_in_the_order_that_it_would_have_had(user: User) -> None:
    words = ("--vary", throttles(3000, 3050), "--confirm", "2", "--store", str(user.store))
    process = user.start("tune", *words, *NULL, *SHORT, "-q")
    for wanted in (8, 15):  # in the midst of a block each
        deadline = time.monotonic() + 60
        while kept(user) < wanted and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.kill()
        process.communicate()
        process = user.start("compare", "resume", "last", "--store", str(user.store), "-q")
    _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    with Store(user.store) as store:
        record = store.get(store.find("last"))
    ran = [one.trial for one in sorted(record.trials, key=lambda one: one.trial.number)]
    assert [trial.number for trial in ran] == list(range(1, len(ran) + 1))
    for number, block in itertools.groupby(ran, key=lambda trial: trial.round):
        trials = tuple(block)
        before = [one for one in record.trials if one.trial.number < trials[0].number]
        known = tuning(replace(record, trials=tuple(before)))
        rounds = len({one.trial.round for one in before if phase_of(one.trial.round) is known.phase})
        assert next_block(record.study, known, rounds=rounds, trials=len(before)) == trials, number


def kept(user: User) -> int:
    """How many trials are in the store."""
    if not user.store.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{user.store}?mode=ro", uri=True, timeout=30)) as db:
        try:
            found: tuple[int] = db.execute("SELECT count(*) FROM trials").fetchone()
        except sqlite3.OperationalError:  # it is being made
            return 0
    return found[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--maximize", "iosp"), "did you mean `iops`?"),
        (("--subject-to", "latency.p99<=1"), "units: ns, us, ms, s"),
        (("--vary", "disk.iao"), "did you mean `disk.aio`?"),
        (("--vary", "disk.cache=unsafe"), "--durability"),
        (("--durability", "some"), "is not one of"),
    ],
)
def test_a_slip_is_one_sentence_and_a_hint(words: tuple[str, ...], said: str, user: User) -> None:
    ran = user.run("tune", *words, "-q", status=2)
    assert said in ran.stderr
    assert ran.stdout == ""
