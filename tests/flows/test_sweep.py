# SPDX-License-Identifier: Apache-2.0
"""`virtune sweep`: found what was planted, said in a table and a document, gone on with after an interrupt."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.conftest import User, generator
from tests.published import invalid_variants, schema

from virtune.bench.simulated import CAPACITY_IOPS
from virtune.cli import run


def called(capsys: pytest.CaptureFixture[str], store: Path, *words: str, status: int = 0) -> str:
    found = run([*words, "--store", str(store)])
    said = capsys.readouterr()
    assert found == status, said.err
    return said.out


def swept(capsys: pytest.CaptureFixture[str], store: Path, *words: str, status: int = 0) -> str:
    return called(capsys, store, "sweep", "--rig", "simulated", "--seed", "3", "-q", *words, status=status)


def test_the_curve_of_a_known_disk_is_found_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store.sqlite"
    found: Any = json.loads(swept(capsys, store, "--rounds", "2", "--json"))
    judge = Draft202012Validator(schema("sweep"))
    judge.validate(found)
    short = found | {"facts": None, "points": found["points"][:1]}
    missed = {what for what, changed in invalid_variants(short) if judge.is_valid(changed)}
    assert missed <= {"facts: {'stranger': 1} for None", "study.settings: stranger", "points.0.values: stranger"}
    assert found["saturation"]["iops"] == pytest.approx(CAPACITY_IOPS, rel=0.05)
    assert found["knee"]["iops"] < found["saturation"]["iops"]
    assert found["study"]["finished"]
    assert found["study"]["simulated"]
    offered = [one["offered_iops"] for one in found["points"]]
    assert offered == sorted(offered)
    assert [one["met"] for one in found["points"]] == sorted((one["met"] for one in found["points"]), reverse=True)
    text = called(capsys, store, "show", "last")
    assert text.startswith("SIMULATED sweep")
    assert "saturation: it carries at most" in text
    assert "knee: " in text
    assert json.loads(called(capsys, store, "show", "list", "--json"))["studies"][0]["kind"] == "sweep"
    again = found["command"].split()
    assert again[:2] == ["virtune", "sweep"]
    page = tmp_path / "page.html"
    called(capsys, store, "show", "report", "last", "-o", str(page))
    assert "Each mark is an offered load" in page.read_text()
    same, plain = tmp_path / "same.html", tmp_path / "plain.txt"
    called(capsys, store, "show", "last", "--report", str(same))
    assert same.read_text() == page.read_text()
    called(capsys, store, "show", "last", "--json", "--report", str(plain))
    assert plain.read_text().startswith("SIMULATED sweep")


@pytest.mark.parametrize("beyond", ["125%", "150%,400%"])
def test_loads_beyond_saturation_are_carried_up_to_it_and_move_no_knee(
    beyond: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--rounds", "2", "--json", "--loads", f"25%,50%,75%,100%,{beyond}")
    found: Any = json.loads(swept(capsys, tmp_path / "store.sqlite", *words))
    for one in found["points"][4:]:
        assert not one["met"]
        assert one["achieved_iops"] == pytest.approx(CAPACITY_IOPS, rel=0.1), "what it carries, not what is offered"
    assert found["saturation"]["iops"] == pytest.approx(CAPACITY_IOPS, rel=0.1)
    assert found["knee"]["iops"] < found["saturation"]["iops"]


@pytest.mark.parametrize(("share", "status", "word"), [(0.5, 0, "PASSED"), (2, 4, "FAILED"), (1, 5, "UNDECIDED")])
def test_the_first_line_and_the_exit_code_say_whether_an_asked_load_is_carried(
    share: float, status: int, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, condition = tmp_path / "store.sqlite", f"iops < {share * CAPACITY_IOPS:.0f}"
    page = tmp_path / "page.html"
    text = swept(capsys, store, "--rounds", "2", "--fail-if", condition, "--report", str(page), status=status)
    assert text.startswith(word)
    assert f"<h1>{word}" in page.read_text()
    assert condition in text
    (told,) = json.loads(called(capsys, store, "show", "last", "--json"))["conditions"]
    assert told["outcome"] == {0: "held", 4: "breached", 5: "undecided"}[status]
    assert condition in called(capsys, store, "show", "last")
    called(capsys, store, "show", "last", "--fail-if", condition, status=2)


@pytest.mark.parametrize("condition", ["latency.p99 > 2ms", "iops > 20k", "iops < -3%"])
def test_a_sweep_is_judged_by_a_load_alone(
    condition: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(["sweep", "--rig", "simulated", "--fail-if", condition, "--store", str(tmp_path / "store.sqlite")])
    assert found == 2
    assert "judged by the load" in capsys.readouterr().err


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rounds", "1", "--subject-to", "latency.p99<=400us", "--json")
    whole = json.loads(swept(capsys, tmp_path / "whole.sqlite", *words))
    cut = tmp_path / "cut.sqlite"
    swept(capsys, cut, *words)
    with sqlite3.connect(cut) as kept:  # as a kill after the fourth trial leaves it
        kept.execute("PRAGMA foreign_keys = ON")
        kept.execute("DELETE FROM trials WHERE number > 4")
        kept.execute("UPDATE studies SET finished = 0")
    gone_on = json.loads(called(capsys, cut, "compare", "resume", "last", "-q", "--json"))
    assert gone_on["most"] == whole["most"]
    assert [one["offered_iops"] for one in gone_on["points"]] == [one["offered_iops"] for one in whole["points"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workload", "four-corners"), "a sweep has one workload"),
        (("--workload", "rw=write,bs=4k,ioengine=psync"), "cannot be offered at a rate"),
        (("--subject-to", "iops>=50k"), "a limit on a latency"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sweep", "--rig", "simulated", "-q", *words, "--store", str(tmp_path / "s")]) == 2
    assert said in capsys.readouterr().err


LIMITED = (
    "sweep", "--rig", "vhost-user", "--set", "disk.backend=null-co", "--set", "disk.throttle_iops=3000",
    "--set", "disk.null_latency_ns=20000000", "--workload", "rw=randread,bs=4k,iodepth=128", "--json", "-q",
)  # fmt: skip
"""A disk of 20 ms: what waits after a stall, at a load close to the limit, must not double the latency."""


@pytest.mark.real
@pytest.mark.once
def test_a_limit_of_the_daemon_is_found(user: User) -> None:
    generator()
    found = user.run(*LIMITED, "--loads", "1000iops,5000iops", "--rounds", "1", "--seconds", "500ms").json()
    assert [one["met"] for one in found["points"]] == [True, False]
    assert found["points"][0]["offered_iops"] == 1000
    assert 2000 < found["saturation"]["iops"] < 4000, "a bucket of 300 for a short load"


@pytest.mark.real
@pytest.mark.first
@pytest.mark.long(always="where exactly it bends takes twelve loads")
def test_a_limit_of_the_daemon_is_where_the_curve_bends(user: User) -> None:
    generator()
    loads = ("--loads", "1500iops,2850iops,3600iops,4500iops")
    found = user.run(*LIMITED, *loads, "--rounds", "3", "--seconds", "1s").json()
    assert found["saturation"]["iops"] == pytest.approx(3000, rel=0.05)
    assert found["knee"]["iops"] == pytest.approx(3000, rel=0.055)
    assert found["knee"]["high"] is None or found["knee"]["high"] >= 3000 * 0.95
    assert [one["met"] for one in found["points"]] == [True, True, False, False]
