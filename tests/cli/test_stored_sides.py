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


def test_two_studies_with_an_arm_of_one_name_are_called_as_they_were_named(tmp_path: Path, capsys: Capture) -> None:
    kept = Kept(tmp_path, capsys)
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        kept("explain", "import", str(result(tmp_path / day, "disk.json")), "--quiet")
    _, oldest = (one["id"] for one in strictly(kept("show", "list", "--json"))["studies"])
    assert f"last against {oldest}:" in kept("compare", oldest, "last")
