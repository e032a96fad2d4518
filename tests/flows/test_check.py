# SPDX-License-Identifier: Apache-2.0
"""`virtune host check` as a user calls it: a quiet stack is called fit, a noisy one not, and it ends cleanly."""

import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from tests.conftest import User, eventually, marked_processes
from tests.published import complaints

pytestmark = pytest.mark.real

QUIET = ("--rig", "storage-daemon", "--set", "disk.backend=null-co", "--set", "disk.throttle_iops=2000", "--workload",
         "rw=randread,bs=4k,iodepth=16")  # fmt: skip


@pytest.mark.alone  # or others use the CPUs more than the neighbour that is planted
@pytest.mark.first
@pytest.mark.xdist_group("CPUs")
def test_a_stack_that_a_throttle_keeps_steady_is_fit_and_a_neighbour_is_named(user: User) -> None:
    burn = [sys.executable, "-c", "import time\nwhile True: sum(range(10**5)); time.sleep(0.01)"]
    neighbour = subprocess.Popen(burn)
    try:
        found, smallest = checked(user)
        looks = 1
        while looks < 6 and smallest is None:  # a machine that steals CPU disturbs a whole check: nothing is promised
            assert "too-few-trials" in found["unfit_reasons"]
            found, smallest = checked(user)
            looks += 1
    finally:
        neighbour.kill()
        neighbour.wait()
    assert complaints("check", found) == []
    assert found["iops"] == pytest.approx(2000, rel=0.1)
    assert smallest is not None
    assert smallest < 0.10
    assert neighbour.pid in {one["pid"] for one in found["neighbours"]}
    assert {gate["id"] for gate in found["gates"]} >= {"generator", "cpu-wait", "steal"}
    again = user.run("show", "last", "--json").json()
    assert complaints("check", again) == []
    assert again | {"neighbours": None} == found | {"neighbours": None}
    text = user.run("show").stdout
    for words in ("FIT: ", "noise", "minimum detectable effect", "disturbances"):
        assert words in text
    assert user.run("show", "list", "--json").json()["studies"][0]["kind"] == "check"
    once = ("--arm", "a:", "--arm", "b:", "--rounds", "1", "--seconds", "200ms", "--ramp", "0")
    basis = user.run("compare", *QUIET, *once, "-q", "--json").json()["basis"]
    assert basis["checked"]["study"] == found["study"]
    said = " ".join(user.run("show").stdout.split())
    assert f"`virtune host check` ({found['study']}) compared one arm with itself" in said


def checked(user: User) -> tuple[Any, float | None]:
    """Return the document of a check of 20 s, and the least difference that five minutes are promised to find."""
    found = user.run("host", "check", *QUIET, "--seconds", "20s", "-q", "--json").json()
    return found, {one["minutes"]: one["smallest"] for one in found["reaches"]}[5]


def test_a_limit_that_is_not_kept_ends_with_4_and_an_undecided_one_with_5(user: User) -> None:
    asked = ("host", "check", "--rig", "simulated", "--seconds", "10s", "--seed", "1", "-q", "--fail-if-noisier")
    said = user.run(*asked, "0.001", status=4).stdout
    assert "finds: " in said
    assert said.startswith("FAILED: --fail-if-noisier 0.001: the smallest difference that 5 minutes detect is ")
    five = next(one for one in user.run(*asked, "0.9", "--json").json()["reaches"] if one["minutes"] == 5)
    between = (five["smallest"] + five["at_most"]) / 2
    said = " ".join(user.run(*asked, f"{between:.5f}", status=5).stdout.split())
    assert said.startswith("UNDECIDED whether it passes: --fail-if-noisier ")
    assert f"6 trials do not exclude that it is {100 * five['at_most']:.1f} %" in said


def test_ctrl_c_ends_it_with_130(user: User) -> None:
    light = ("--rig", "metal", "--workload", "rw=randread,bs=256k")  # others need the CPUs that small requests take
    process = user.start("host", "check", *light, "--seconds", "60s")
    assert eventually(lambda: is_measuring(user))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert marked_processes() == []


def is_measuring(user: User) -> bool:
    """Whether a study has begun, and its load runs."""
    if not any(one.endswith(" fio") for one in marked_processes()):
        return False
    listed = user.run("show", "list", "--json", status=None)  # while the store is being made it cannot be read
    return listed.status == 0 and bool(listed.json()["studies"])


def test_a_check_says_what_those_before_it_found_and_a_damaged_one_does_not_stop_it(user: User) -> None:
    words = ("host", "check", "--rig", "simulated", "--seconds", "10s", "--seed", "1", "--quiet")
    assert "such check" not in user.run(*words).stdout
    assert "1 such check here found" in " ".join(user.run(*words).stdout.split())
    with sqlite3.connect(user.home / "virtune" / "virtune.sqlite") as db:
        (oldest,) = db.execute("SELECT min(id) FROM studies").fetchone()
        changed = db.execute("UPDATE trials SET in_force = 'x' WHERE study_id = ?", (oldest,))
        assert changed.rowcount
    assert "1 such check here found" in " ".join(user.run(*words).stdout.split()), "the one that can be read"
    other = user.run(*words, "--workload", "randwrite-4k").stdout
    assert "such check" not in other, "none of that load"


def test_a_check_too_short_to_say_anything_is_refused(user: User) -> None:
    assert (
        "--seconds of a check must be between 10 s and one day"
        in user.run("host", "check", "--seconds", "2s", status=2).stderr
    )
