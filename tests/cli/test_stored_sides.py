# SPDX-License-Identifier: Apache-2.0
"""Two studies of the store compared with each other: settings stay verified, and what else changed is said."""

import gzip
import json
import sqlite3
from pathlib import Path

import pytest
from tests.cli.kept_results import Capture, Kept, result
from tests.conftest import User
from tests.published import strictly

from virtune.model.measurement import METHOD

FIRST, SECOND = "20261124-034747-4bf1", "20261124-034900-1b01"
KEPT = Path(__file__).parents[1] / "golden" / "studies.sqlite.gz"


@pytest.fixture
def sides(user: User) -> tuple[str, str]:
    """An arm of one measured study, and another study."""
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    arms = strictly(user.run("show", FIRST, "--json", "--store", str(user.store)).stdout)["arms"]
    return f"{FIRST}:{arms[0]['name']}", SECOND


def changed(user: User, **facts: str | None) -> None:
    """Change facts of the second study's host by their paths; None for all of them takes them away."""
    with sqlite3.connect(user.store) as db:
        (text,) = db.execute("SELECT facts FROM studies WHERE id = ?", (FIRST,)).fetchone()
        for path, value in facts.items():
            (text,) = db.execute("SELECT json_set(?, ?, ?)", (text, f"$.host.{path}", value)).fetchone()
        db.execute("UPDATE studies SET facts = ? WHERE id = ?", (text, SECOND))
    json.loads(text)


def test_what_took_another_way_to_the_disk_is_no_comparison(user: User, sides: tuple[str, str]) -> None:
    refused = user.run("compare", *sides, "--store", str(user.store), exactly=True, status=2)
    assert "took different ways to the disk" in refused.stderr
    assert f"{SECOND} on rig=metal" in refused.stderr
    assert "--different-jobs" in refused.stderr


def held(user: User, sides: tuple[str, str], *words: str) -> str:
    ran = user.run("compare", *sides, "--different-jobs", "--store", str(user.store), *words, exactly=True)
    return " ".join(ran.stdout.split())


def test_what_changed_between_two_studies_is_said_and_their_settings_stay_verified(
    user: User, sides: tuple[str, str]
) -> None:
    changed(user)
    same = held(user, sides)
    assert "measured elsewhere" not in same
    assert "no setting was verified" not in same
    assert "not measured in turn" in same
    changed(user, **{"kernel.release": "9.9.9", "scratch.mount": "/elsewhere"})
    told = held(user, sides)
    assert "kernel release 6.18" in told
    assert "-> 9.9.9" in told
    assert "/elsewhere" not in told, "of what is no version there is a count"
    study = strictly(held(user, sides, "--json"))["study"]
    assert [one.rpartition(":")[0] or one for one in study["sources"]] == [FIRST, SECOND]
    assert study["differing"]["scratch.mount"][1] == "/elsewhere", study["differing"]
    whole = held(user, sides, "-v")
    assert "-> /elsewhere" in whole
    assert f"{FIRST} and {SECOND}" in whole
    assert "virtune did not verify" not in whole


def test_a_host_that_was_not_probed_is_not_called_the_same(user: User, sides: tuple[str, str]) -> None:
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET facts = '' WHERE id = ?", (SECOND,))
    assert "what changed on the host between them is not known" in held(user, sides)


NIGHTLY = "20261124-034940-a83b"
"""A measurement of one stack with six rounds."""


BUSY = {"id": "cpu-wait", "weight": "invalid", "text": "CPU contention", "advice": "stop other work"}


def night(
    user: User, number: int, level: float, *, busy: bool = False, gates: tuple[tuple[str, float], ...] = ()
) -> str:
    """Keep a run that asks what the kept one did, with its IOPS times a level; returns its id. It was undisturbed, or
    disturbed in every round, in which its gates read these values.
    """
    copy = f"20261125-00000{number}-{number:04x}"
    with sqlite3.connect(user.store) as db:
        (study, facts) = db.execute("SELECT study, facts FROM studies WHERE id = ?", (NIGHTLY,)).fetchone()
        db.execute(
            "INSERT INTO studies (id, created, kind, study, facts, finished) VALUES (?, ?, 'measure', ?, ?, 1)",
            (copy, f"2026-11-25T00:00:0{number}+00:00", study.replace(NIGHTLY, copy), facts),
        )
        for row, text in db.execute(
            "SELECT id, measurement FROM trials JOIN measurements ON id = trial_id WHERE study_id = ?", (NIGHTLY,)
        ).fetchall():
            (new,) = db.execute(
                "INSERT INTO trials (study_id, number, attempt, round, arm, workload, ended, failure, in_force)"
                " SELECT ?, number, attempt, round, arm, workload, ended, failure, in_force FROM trials WHERE id = ?"
                " RETURNING id",
                (copy, row),
            ).fetchone()
            found = json.loads(text)
            values = [[name, value * (level if name == "iops" else 1)] for name, value in found["values"]]
            now = json.dumps({**found, "method": METHOD, "values": values, "gates": gates, "remarks": [BUSY] * busy})
            db.execute(
                "INSERT INTO measurements (trial_id, method, measurement) VALUES (?, ?, ?)", (new, METHOD, now)
            )
    return copy


def verdicts(user: User, *sides: str) -> set[str]:
    """Return the verdicts on IOPS under all workloads, with their reasons."""
    found = strictly(user.run("compare", *sides, "--store", str(user.store), "--json", exactly=True).stdout)
    return {f"{one['verdict']}: {one['reason']}" for one in found["comparisons"]}


def test_two_runs_of_different_times_differ_if_by_more_than_such_runs_do_among_themselves(user: User) -> None:
    """What the hour and the state of the host give a run, its rounds have in common: their spread tells nothing."""
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    first, slow = (night(user, number, level) for number, level in enumerate((1.0, 0.5), 1))
    assert verdicts(user, first, slow) == {"undecided: between-runs"}, "half as fast, and one such run is known"
    told = user.run("compare", first, slow, "--store", str(user.store), exactly=True).stdout
    assert "undecided" in told.splitlines()[0]
    assert "are needed, and beside the one that is compared the store has 1;" in " ".join(told.split())
    steady = night(user, 3, 1.05)
    assert verdicts(user, first, slow).isdisjoint({"worse: worse-side"}), "two tell little"
    for number, level in enumerate((0.99, 1.02), 4):
        night(user, number, level)
    assert verdicts(user, first, slow) == {"worse: worse-side"}
    told = user.run("compare", first, slow, "-v", "--store", str(user.store), exactly=True).stdout
    named = " ".join(told.split()).partition("usually vary by is told by ")[2].split(", ")[:4]
    assert (named[:2], named[3][:17]) == ([first, steady], "20261125-000005-0"), (
        "all of this question, but the slow one"
    )
    assert verdicts(user, first, steady).isdisjoint({"worse: worse-side", "better: better-side"})


def test_a_bad_night_neither_excuses_the_next_nor_blames_a_good_one(user: User) -> None:
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    first, *_ = (night(user, number, level) for number, level in enumerate((1.0, 1.05, 0.99, 1.02), 1))
    for number in (5, 6, 7):
        bad = night(user, number, 0.4)
        assert verdicts(user, first, bad) == {"worse: worse-side"}
    good = night(user, 8, 1.01)
    assert verdicts(user, first, good).isdisjoint({"worse: worse-side", "better: better-side"})


def test_what_came_after_a_reference_with_enough_before_it_does_not_tell(user: User) -> None:
    """Levels that are within what the earlier ones let one expect, one after another: a decline."""
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    *_, good = (night(user, number, level) for number, level in enumerate((1.0, 1.02, 0.99), 1))
    nights = [night(user, number, level) for number, level in enumerate((0.8, 0.6, 0.45, 0.3), 4)]
    assert verdicts(user, good, nights[-1]) == {"worse: worse-side"}
    assert verdicts(user, nights[1], nights[-1]) != {"worse: worse-side"}, (
        "of that reference's own past they are usual"
    )


def test_of_nights_that_were_disturbed_one_that_is_far_slower_is_worse(user: User) -> None:
    """A host that others use at night can be a gate: how far its nights lie apart holds what disturbs them."""
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    first, slow = night(user, 1, 1.0, busy=True), night(user, 2, 0.1, busy=True)
    assert verdicts(user, first, slow) == {"undecided: between-runs"}
    told = " ".join(user.run("compare", first, slow, "--store", str(user.store), exactly=True).stdout.split())
    assert "too few earlier runs to tell how far runs of different times lie apart" in told
    assert f"2 of one configuration, disturbed as {first} and {slow}," in told
    quiet = night(user, 3, 1.03)
    told = " ".join(user.run("compare", first, slow, "--store", str(user.store), exactly=True).stdout.split())
    assert "beside the one that is compared the store has 1 (1 more was not);" in told
    assert verdicts(user, first, slow) == {"undecided: between-runs"}, "a quiet night tells nothing of busy ones"
    assert verdicts(user, quiet, slow) == {"undecided: between-runs"}
    night(user, 4, 1.02, busy=True)
    assert verdicts(user, first, slow) == {"worse: worse-side"}
    night(user, 5, 0.3, busy=True)  # what disturbs them may cost so much
    assert verdicts(user, first, slow) == {"undecided: not-settled"}


DISTURBANCES = [("cpu-wait", 0.18), ("steal", 0.03), ("foreign-io", 0.06)]
"""What others took, each above the limit of a warning, and below that of an invalid trial."""


def kept_nights(user: User, **gates: float) -> str:
    """Keep four nights at one level, in which the gates read these values, or next to nothing; returns one's id."""
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    every = {name.replace("-", "_"): 0.001 for name, _ in DISTURBANCES} | gates
    read = tuple((name.replace("_", "-"), value) for name, value in every.items())
    first, *_ = (night(user, number, level, gates=read) for number, level in enumerate((1.0, 1.05, 0.99, 1.02), 1))
    return first


@pytest.mark.parametrize("read", DISTURBANCES)
def test_a_night_that_others_took_a_part_of_is_not_worse_than_one_that_nobody_did(
    user: User, read: tuple[str, float]
) -> None:
    """No trial of it was invalid, and all of them were slower for what took place beside them."""
    first = kept_nights(user)
    assert verdicts(user, first, night(user, 5, 0.3)) == {"worse: worse-side"}
    assert verdicts(user, first, night(user, 6, 0.3, gates=(read,))) == {"undecided: between-runs"}
    told = user.run("compare", first, "last", "--store", str(user.store), exactly=True).stdout
    assert "disturbed as last" in " ".join(told.split()), "which of the two it was"
    assert verdicts(user, first, night(user, 7, 3.0, gates=(read,))) == {"better: better-side"}, "all the same"


@pytest.mark.parametrize("read", DISTURBANCES)
def test_of_a_reference_that_others_took_a_part_of_only_what_is_slower_tells(
    user: User, read: tuple[str, float]
) -> None:
    kept_nights(user)
    reference, calm = night(user, 5, 0.5, gates=(read,)), ((read[0], 0.001),)
    assert verdicts(user, reference, night(user, 6, 0.1, gates=calm)) == {"worse: worse-side"}
    found = verdicts(user, reference, night(user, 7, 1.0, gates=calm))
    assert found.isdisjoint({"better: better-side"}), "as all the others"


@pytest.mark.parametrize("read", [("swap", 20.0), ("cpu-throttled", 0.005), ("drive-heat", -4.0), ("frequency", 0.2)])
def test_what_is_the_host_s_own_is_no_excuse(user: User, read: tuple[str, float]) -> None:
    first = kept_nights(user)
    assert verdicts(user, first, night(user, 5, 0.3, gates=(read,))) == {"worse: worse-side"}
    hot = kept_nights(user, **{read[0].replace("-", "_"): read[1]})
    assert verdicts(user, hot, night(user, 5, 0.3, gates=(read,))) == {"worse: worse-side"}


def test_what_was_not_read_of_both_excuses_neither(user: User) -> None:
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    first, *_ = (night(user, number, level) for number, level in enumerate((1.0, 1.05, 0.99, 1.02), 1))
    assert verdicts(user, first, night(user, 5, 0.3, gates=(("cpu-wait", 0.18),))) == {"worse: worse-side"}


def test_of_three_one_that_was_disturbed_does_not_excuse_another(user: User) -> None:
    first = kept_nights(user)
    slow = night(user, 5, 0.3, gates=(("cpu-wait", 0.001),))
    hogged = night(user, 6, 0.4, gates=(("cpu-wait", 0.18),))
    words = ("compare", first, slow, hogged, "--store", str(user.store), "--json")
    pairs = strictly(user.run(*words, exactly=True).stdout)["comparisons"]
    assert {one["verdict"] for one in pairs if (one["baseline"], one["candidate"]) == (first, slow)} == {"worse"}


@pytest.mark.parametrize("read", DISTURBANCES)
def test_what_every_night_has_excuses_none(user: User, read: tuple[str, float]) -> None:
    name, value = read
    first = kept_nights(user, **{name.replace("-", "_"): value})
    for number, share in enumerate((0.5, 1.0, 1.5), 5):
        slow = night(user, number, 0.3, gates=((name, share * value),))
        assert verdicts(user, first, slow) == {"worse: worse-side"}, share


def test_a_reference_that_was_disturbed_is_compared_by_how_far_it_lies_from_the_other_nights(user: User) -> None:
    user.store.write_bytes(gzip.decompress(KEPT.read_bytes()))
    with sqlite3.connect(user.store) as db:
        db.execute("UPDATE studies SET finished = 0 WHERE id = ?", (NIGHTLY,))
    reference = night(user, 1, 0.7, busy=True)
    nights = [night(user, number, level) for number, level in enumerate((1.0, 1.02, 0.99, 1.01), 2)]
    slow = night(user, 6, 0.01)
    assert verdicts(user, reference, slow) == {"worse: worse-side"}
    for one in nights:
        found = verdicts(user, reference, one)
        assert found.isdisjoint({"better: better-side", "worse: worse-side"}), "that is what disturbed the reference"


def test_two_studies_with_an_arm_of_one_name_are_called_as_they_were_named(tmp_path: Path, capsys: Capture) -> None:
    kept = Kept(tmp_path, capsys)
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        kept("explain", "import", str(result(tmp_path / day, "disk.json")), "--quiet")
    _, oldest = (one["id"] for one in strictly(kept("show", "list", "--json"))["studies"])
    assert f"last against {oldest}:" in kept("compare", oldest, "last")
