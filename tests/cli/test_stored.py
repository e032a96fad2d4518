# SPDX-License-Identifier: Apache-2.0
"""Looking at a store: damage stays where it is, stored text does nothing to a terminal, nothing is made or cut."""

import io
import shlex
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.kept_results import Capture, Kept, result
from tests.published import complaints, strictly

from virtune.cli import run
from virtune.cli.common.output import Clean
from virtune.flows.stored.show import current
from virtune.model.evidence import Listed
from virtune.model.result import Result
from virtune.report.pages.result import render
from virtune.report.reproduce import fleet_again
from virtune.store.store import Store


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def change(store: Path, sql: str, *values: object) -> None:
    db = sqlite3.connect(store)
    with db:
        db.execute(sql, values)
    db.close()


@pytest.mark.parametrize("damage", ["{", "{}", b"\x00\xff", 7, '{"id": "x", "strange": 1}'])
def test_a_damaged_study_is_named_and_the_others_are_listed(kept: Kept, tmp_path: Path, damage: object) -> None:
    kept("explain", "import", str(result(tmp_path, "one.json")), "--quiet")
    (good,) = [one["id"] for one in strictly(kept("show", "list", "--json"))["studies"]]
    kept("explain", "import", str(result(tmp_path, "two.json")), "--quiet")
    change(kept.store, "update studies set study = ?, id = 'x' || id where id != ?", damage, good)
    shown = " ".join(kept("list").split())
    assert good in shown
    assert f"damaged in {kept.store}"[:40] in shown
    listed = strictly(kept("show", "list", "--json"))
    assert complaints("list", listed) == []
    assert [one["id"] for one in listed["studies"]] == [good]
    (bad,) = listed["damaged"]
    assert bad["id"].startswith("x")
    kept("show", "x", status=1)
    assert f"study {bad['id']} in {kept.store} is damaged" in kept.err
    kept("show", good)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("list",), "no store"),
        (("show",), "no store"),
        (("show", "last"), "no store"),
        (("resume",), "no store"),
        (("explain", "last"), "no file and no study 'last'"),
    ],
)
def test_reading_makes_no_store(tmp_path: Path, capsys: Capture, words: tuple[str, ...], says: str) -> None:
    missing = tmp_path / "deep" / "nosuch.sqlite"
    assert run([*words, "--store", str(missing)]) == 2
    assert says in capsys.readouterr().err
    assert not missing.parent.exists()


def test_without_a_store_of_their_own_users_are_told_how_to_begin(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run(["show", "list"]) == 0
    assert "no studies yet" in capsys.readouterr().err
    assert strictly_listed(capsys) == []
    assert run(["show"]) == 2
    assert "no studies yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def strictly_listed(capsys: Capture) -> list[object]:
    assert run(["show", "list", "--json"]) == 0
    found: list[object] = strictly(capsys.readouterr().out)["studies"]
    return found


def test_text_in_an_untrusted_store_does_nothing_to_a_terminal(kept: Kept, tmp_path: Path) -> None:
    kept("explain", "import", str(result(tmp_path, "one.json")), "--quiet")
    change(kept.store, "update studies set study = replace(study, '\"one\"', '\"a\\u001b]0;x\\u0007\\r[b]\"')")
    change(kept.store, "update trials set arm = 'a' || char(27) || ']0;x' || char(7) || char(13) || '[b]'")
    change(kept.store, "update trials set failure = 'broke' || char(27) || '[2J'")
    report = tmp_path / "report.txt"
    for words in (("list",), ("show", "--report", str(report))):
        shown = kept(*words)
        assert "a?]0;x[b]" in shown
        assert not {"\x1b", "\x07", "\r"} & set(shown)
    assert "broke?[2J" in report.read_text()


def figures(found: Result, columns: int, label: str) -> set[str]:
    """Every cell of the rows of that label in a terminal of that width, which none of its lines may exceed."""
    out = io.StringIO()
    Console(file=out, width=columns, markup=False).print(Clean(render(found)))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert "\u2026" not in out.getvalue()
    return {cell.strip() for line in lines if line.startswith(f"{label}  ") for cell in line.split("  ")}


def test_every_figure_is_shown_however_narrow_the_terminal(kept: Kept, tmp_path: Path) -> None:
    for index, name in enumerate("abcde"):
        for number in range(4):
            result(tmp_path / "r" / f"arm-{name}", f"run-{number}.json", scale=1 + index / 5 + number / 100)
    kept("explain", "import", str(tmp_path / "r"), "--quiet")
    with Store(kept.store) as store:
        _, found = current(store, store.find("last"))
    for label, least in (("IOPS", 9), ("bandwidth", 1)):  # five values and four differences; equal bandwidths
        widest = figures(found, 1000, label)
        assert len(widest) >= least
        for columns in (48, 60, 80, 100):
            assert figures(found, columns, label) == widest, columns


def test_the_captures_of_a_trial_are_listed_with_their_sizes_and_printed_one_by_one(
    kept: Kept, tmp_path: Path
) -> None:
    path = result(tmp_path, "one.json")
    kept("explain", "import", str(path), "--quiet")
    listed = kept("show", "--trial", "1")
    name, size, unit = listed.splitlines()[1].split()
    assert (int(size.replace(",", "")), unit) == (path.stat().st_size, "bytes")
    assert "IOPS" not in listed
    assert "--capture NAME` prints one" in kept.err
    assert kept("show", "--trial", "1", "--capture", name) == path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trial", "1", "--json"), "--trial lists raw captures, which have no --json"),
        (("--trial", "1", "--fail-if", "iops < -3%"), "which have no --fail-if"),
        (("--capture", "fio.json"), "--capture needs the number of its trial"),
        (("--capture", "fio.json", "--json"), "--capture prints raw captures, which have no --json"),
    ],
)
def test_what_captures_do_not_have_is_refused(words: tuple[str, ...], said: str, kept: Kept, tmp_path: Path) -> None:
    kept("explain", "import", str(result(tmp_path, "one.json")), "--quiet")
    assert kept("show", *words, status=2) == ""
    assert said in kept.err


def test_the_command_that_repeats_a_study_runs_its_own_job_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "; as it was\r\n[global]\r\ndirect=1\r\n[a]\r\nrw=randread\r\n"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "load.fio").write_bytes(text.encode())
    (tmp_path / "load.fio").write_text("[b]\nrw=randwrite\n")  # another one of that name
    monkeypatch.chdir(tmp_path)
    asked = ("--rig", "simulated", "--workload", "jobs/load.fio", "--rounds", "1", "--seconds", "1", "--span", "64M")
    store = ("--store", str(tmp_path / "kept.db"))
    assert run(["compare", "measure", *asked, *store]) == 0
    capsys.readouterr()
    assert run(["show", "last", "--json", *store]) == 0
    steps = strictly(capsys.readouterr().out)["basis"]["command"].split(" && ")
    for step in steps:
        words, _, written = step.partition(" > ")
        command = shlex.split(words)
        if command[0] == "mkdir":
            Path(command[-1]).mkdir()
            continue
        assert run([*command[1:], *store]) == 0
        said = capsys.readouterr().out
        if written:
            Path(written).write_bytes(said.encode())
    with Store(tmp_path / "kept.db") as kept_in:
        rows = kept_in.page(words="", kind="", limit=9, offset=0).rows
        first, again = (kept_in.get(one.study.id).study for one in rows if isinstance(one, Listed))
    assert first.id != again.id
    assert first.workloads == again.workloads
    assert first.workloads[0].verbatim == text
    assert fleet_again(first).split(" && ")[-1].startswith("virtune fleet run -i hosts.txt compare measure")
