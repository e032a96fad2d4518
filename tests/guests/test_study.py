# SPDX-License-Identifier: Apache-2.0
"""Studies in a guest, as a user asks for them: measured, marked, and whole again after whatever is killed."""

import json
import os
import random
import signal
import time
from typing import Any

import pytest
from tests.conftest import SPAN, User, bare_guest, eventually, marked_processes

from virtune.model.remark import GATE_BY_ID
from virtune.probe.devices import backing_of

pytestmark = [pytest.mark.real, pytest.mark.once, pytest.mark.xdist_group("guests")]

SHORT = ("--rig", "qemu", "--seconds", "1", "--ramp", "0.2", "-q")


def vms_of_tests() -> list[int]:
    return [int(line.split()[0]) for line in marked_processes() if "qemu-system" in line]


def test_engines_are_compared_in_one_guest_and_marked(user: User) -> None:
    engines, linux = ("--vary", "disk.aio=threads,io_uring"), ("--set", "guest.system=linux")
    words = ("compare", *engines, *linux, "--rounds", "1", "--json", *SHORT[:-1])
    done = user.run(*words, timeout=170)
    found = done.json()
    assert [arm["stack"]["rig"] for arm in found["arms"]] == ["qemu"] * 2
    accelerator = user.run("show", "last", "--trial", "1", "--capture", "accelerator.txt").stdout
    for arm in found["arms"]:
        (trial,) = arm["rounds"]
        assert trial["measurement"]["values"]["iops"] > 0
        assert trial["measurement"]["values"]["latency.p99"] > 0
        seen = {check["setting"]: check["found"] for check in arm["in_force"]}
        assert seen["guest.write_cache"] == "write back"
        if accelerator.startswith("tcg"):
            assert "figures of the emulator (TCG) and of no VM" in done.stderr.partition("round 1 of 1")[0], "before"
            assert "functional-only" in {remark["id"] for remark in trial["measurement"]["remarks"]}
    changes = [user.run("show", "last", "--trial", str(n), "--capture", "changeover.txt").stdout for n in (1, 2)]
    assert len({change.partition("process ")[2].split()[0] for change in changes}) == 1, "one guest for all arms"
    assert all(change.startswith("nodes swapped") for change in changes), changes
    assert "functional only: a guest under emulation" in user.run("show", "last").stdout or accelerator.startswith(
        "kvm"
    )
    rounds = {one["number"]: one for arm in found["arms"] for one in arm["rounds"]}
    looked = [n for n in rounds if "threads.json" in user.run("show", "last", "--trial", str(n)).stdout]
    # on a busy host a load may be over before its end was looked at, and what takes that look is unknown then
    flag = GATE_BY_ID["cpu-wait"].flag
    assert flag is not None
    assert looked or all(one["measurement"]["gates"]["cpu-wait"] > flag for one in rounds.values()), "nobody had them"
    assert {n for n, one in rounds.items() if "below.backend" in one["measurement"]["values"]} == set(looked)
    for arm in found["arms"]:
        (summary,), (trial,) = arm["workloads"], arm["rounds"]
        if trial["number"] in looked:
            require_layers(user, trial, summary["layers"]["layers"])
    assert not vms_of_tests()


def test_the_scheduler_that_comes_with_the_queues_is_said_of_the_comparison(user: User) -> None:
    words = ("--vary", "device.num_queues=1,2", "--set", "guest.system=linux", "--rounds", "1", "--json", *SHORT[:-1])
    found = user.run("compare", *words, timeout=170).json()
    (said,) = (text for text in found["patterns"] if "which none asks for" in text)
    assert "mq-deadline in num_queues=1; none in num_queues=2" in said
    assert "which none asks for: mq-deadline in num_queues=1" in " ".join(user.run("show", "last").stdout.split())


def require_layers(user: User, trial: dict[str, Any], layers: list[dict[str, Any]]) -> None:
    """Compare what was seen of the path in a guest with what its load measured."""
    of_trial = ("show", "last", "--trial", str(trial["number"]), "--capture")
    threads = json.loads(user.run(*of_trial, "threads.json").stdout)
    assert threads["ns_by_role"]["vcpu"] > 50_000_000, "a guest under load"
    assert sum(threads["ns_by_vcpu"].values()) == threads["ns_by_role"]["vcpu"]
    seen = trial["measurement"]["values"]
    counted = json.loads(user.run(*of_trial, "qemu-blockstats.json").stdout)
    served = counted["stop"]["stats"]["rd_operations"] - counted["begin"]["stats"]["rd_operations"]
    seconds = (counted["stop"]["t"] - counted["begin"]["t"]) / 1e9
    assert served / seconds == pytest.approx(seen["iops"], rel=0.5), "what the guest asked for, as QEMU counted it"
    assert sum(one["mean_ns"] for one in layers) == pytest.approx(seen["latency.mean"], rel=0.05)
    assert all(one["mean_ns"] > 0 for one in layers)
    assert 0 < seen["below.backend"] < seen["latency.mean"]
    assert seen["below.ring"] > 0, "the virtqueue was seen from outside"
    assert seen["cpu.io.vcpu"] > 0
    counters = user.run(*of_trial, "guest-counters.jsonl").stdout.splitlines()
    marks = [json.loads(line).get("mark") for line in counters[1:]]
    assert {"start", "begin", "stop"} <= set(marks)
    assert "vda" in json.loads(counters[1])["text"]


def test_a_guest_keeps_its_data_however_little_of_a_cpu_it_gets(user: User) -> None:
    words = ("compare", "measure", "--rig", "qemu", "--set", "guest.system=linux", "--check-data", "--rounds", "1")
    load = ("--workload", "randread-4k", "--seconds", "0.2", "--ramp", "0", "--span", "64M")
    assert "data checked" in " ".join(user.run(*words, *load, exactly=True).stdout.split())


def test_one_load_in_one_guest_and_shared_by_two_beside_bare_metal(user: User) -> None:
    elsewhere = str(user.home / "elsewhere")
    (user.home / "elsewhere").mkdir()
    two = f"two:guests.count=2,disk.aio=native,guests.spread={elsewhere}"
    bare_guest()
    words = ("compare", "--arm", "one:", "--arm", two, "--arm", "metal:rig=metal")
    load = ("--workload", "rw=randread,bs=4k,iodepth=4,numjobs=2", "--rounds", "1", "--json")
    found = user.run(*words, *load, *SHORT, timeout=170).json()
    (skew,) = [round_["measurement"]["values"]["guests.skew"] for round_ in found["arms"][1]["rounds"]]
    assert 0 <= skew < 1e9, "a load lasts 1.2 s, and one after the other would begin that much later"
    seen = {check["setting"]: check["found"] for check in found["arms"][1]["in_force"]}
    assert (seen["guests.count"], seen["disk.aio"], seen["guests.spread"]) == ("2", "native", elsewhere)
    for arm in found["arms"]:
        (summary,) = arm["workloads"]
        assert summary["values"]["iops"]["value"] > 0
    remarks = {remark["id"] for round_ in found["arms"][1]["rounds"] for remark in round_["measurement"]["remarks"]}
    assert ("one-disk" in remarks) is bool(backing_of(user.scratch).disks), "both are on the tests' own disk"
    (number,) = [round_["number"] for round_ in found["arms"][1]["rounds"]]
    of_trial = ("show", "last", "--trial", str(number))
    parts = user.run(*of_trial).stdout
    jobs = [user.run(*of_trial, "--capture", name).stdout for name in ("job.fio", "job-2.fio")]
    assert all("numjobs=1" in job for job in jobs), "a clone for each"
    assert jobs[0] != jobs[1], "at places of its own"
    assert all(f"{name} " in parts for name in ("fio.json", "fio-2.json", "guest-counts-2.json", "barrier.json"))
    assert [arm["settings"].get("guest.system") for arm in found["arms"]] == ["bare", "bare", None], (
        "none needs Linux"
    )
    assert not vms_of_tests()
    itself = f"two:guests.count=2,guests.spread={user.scratch}/."
    words = ("compare", "--arm", "one:", "--arm", itself, "--workload", "rw=randread,numjobs=2")
    assert "guests.spread names the scratch directory itself" in user.run(*words, *SHORT, status=3).stderr
    words = ("compare", "--arm", "a:guests.count=2", "--arm", "b:", "--workload", "randread-4k")
    assert "cannot share evenly" in user.run(*words, *SHORT, status=2).stderr


@pytest.mark.long(always="each I/O on metal is in each run (plan/test_with_real_fio.py), several guests are above")
def test_each_io_is_kept_at_the_same_places_everywhere_beside_others_that_count_nothing(user: User) -> None:
    each = "each: name=each,rw=randread,bs=4k,number_ios=100,randseed=7 + name=background,rw=randread,bs=4k,numjobs=2"
    words = ("compare", "--arm", "bare:rig=metal", "--arm", "guest:guests.idle=1", "--workload", each)
    found = user.run(*words, "--rounds", "1", "--json", *SHORT, timeout=170).json()
    places = []
    for arm in found["arms"]:
        (trial,) = arm["rounds"]
        values = trial["measurement"]["values"]
        said = user.run("show", "last", "--trial", str(trial["number"]), "--capture", "operations.log").stdout
        rows = [[int(field) for field in line.split(",")] for line in said.splitlines()]
        assert len(rows) == 100, "of the background none"
        times = [row[1] for row in rows]
        assert values["latency.min"] == pytest.approx(min(times), abs=1)
        assert values["latency.max"] == pytest.approx(max(times), abs=1)
        assert values["latency.mean"] == pytest.approx(sum(times) / 100, rel=1e-3)
        places.append([row[4] for row in rows])
        assert "unserved" not in {remark["id"] for remark in trial["measurement"]["remarks"]}, (
            "it ends too soon for that"
        )
    assert places[0] == places[1]
    assert len(set(places[0])) > 90, "and these lie apart"
    seen = {check["setting"]: check["found"] for check in found["arms"][1]["in_force"]}
    assert seen["guests.idle"] == "1"


@pytest.mark.long(always="flows/test_builtin_studies.py runs two others, and the test above this rig")
def test_the_first_study_ends_in_its_table(user: User) -> None:
    words = (
        "compare",
        "study",
        "run",
        "io-engine",
        "--rounds",
        "1",
        "--span",
        str(SPAN),
        "--scratch",
        str(user.scratch),
    )
    said = user.run(*words, *SHORT[2:], timeout=170).stdout
    ending = said.partition("study io-engine")[2]
    assert "before" in ending.splitlines()[1]
    for row in ("IOPS", "latency p95", "load CPU sys", "disk util"):
        assert any(line.startswith(row) for line in ending.splitlines()), row
    accelerator = user.run("show", "last", "--trial", "1", "--capture", "accelerator.txt").stdout
    assert ("functional only" in ending.splitlines()[0]) == accelerator.startswith("tcg")


@pytest.mark.long(always="test_stall.py has the same fault in each run, by the flow instead of the command line")
def test_a_guest_that_is_killed_costs_one_attempt(user: User) -> None:
    words = ("compare", "--arm", "a:", "--arm", "b:disk.aio=native", "--rounds", "2", *SHORT)
    child = user.start(*words, "--seconds", "3")
    assert eventually(lambda: bool(vms_of_tests()), seconds=60)
    # its pid changes only when it is replaced; a load is on once the study is in the store, which a look may miss

    def begun() -> bool:
        listed = user.run("show", "list", status=None).stdout
        return any(f" {done}/4" in listed for done in (0, 1, 2))

    assert eventually(begun, seconds=100)
    time.sleep(2.5)
    (victim,) = vms_of_tests()
    os.kill(victim, signal.SIGKILL)
    out, err = child.communicate(timeout=170)
    assert child.returncode == 0, err
    assert "Traceback" not in err
    assert " trials count" in out
    shown = user.run("show", "last", "--json").json()
    assert all(round_["measurement"] for arm in shown["arms"] for round_ in arm["rounds"])
    assert not vms_of_tests()


PAIR = ("compare", "--arm", "a:", "--arm", "b:disk.aio=native", "--rounds", "1", *SHORT)


def test_a_virtune_that_is_killed_in_mid_trial_leaves_nothing_and_the_study_goes_on(user: User) -> None:
    bare_guest()  # it boots at once, and what is left of a killed run is the same QEMU
    child = user.start(*PAIR, "--seconds", "2")

    def begun() -> bool:
        listed = user.run("show", "list", status=None).stdout
        return " 0/2" in listed or " 1/2" in listed

    assert eventually(begun, seconds=100)
    child.kill()
    child.communicate(timeout=90)
    assert begun(), "killed in the middle"
    assert eventually(lambda: not marked_processes()), marked_processes()
    assert "2 of " in user.run("compare", "resume", "-q", timeout=170).stdout


@pytest.mark.timeout(600)
@pytest.mark.long(always="most of these instants are in a boot, and cost one each")
def test_whenever_virtune_is_killed_nothing_is_left(user: User) -> None:
    chance = random.Random(5)
    for _ in range(8):
        child = user.start(*PAIR)
        time.sleep(chance.uniform(0.5, 10))
        child.kill()
        child.communicate(timeout=90)
        assert eventually(lambda: not marked_processes()), marked_processes()
    user.run("host", "clean", "--scratch", str(user.scratch))
    assert "nothing was left behind" in user.run("host", "clean", "--scratch", str(user.scratch)).stdout
