# SPDX-License-Identifier: Apache-2.0
"""`virtune explain import`: what was measured elsewhere becomes a study, with its files as they were."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.analyse.recordings import FOLDER, RESULTS, recorded
from tests.cli.kept_results import BENCH, Capture, Kept, result
from tests.published import complaints, strictly

from virtune.store.store import Store


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def arms(document: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
    return {arm["name"]: [(one["workload"], one["round"]) for one in arm["rounds"]] for arm in document["arms"]}


def test_a_folder_of_bench_fio_is_one_arm_with_a_workload_for_each_of_its_jobs(kept: Kept) -> None:
    shown = kept("explain", "import", str(BENCH))
    assert "4 results, and 6 other files" in kept.err
    assert "4 of 4 results" in shown
    assert "randrw, 4 KiB, 8 in flight, rwmixread=75" in shown
    document = kept.document("last")
    assert complaints("result", document) == []
    assert arms(document) == {
        "bench-fio": [
            ("FIOJOB-randread-4k-qd1", 1),
            ("FIOJOB-randread-4k-qd8", 1),
            ("FIOJOB-randrw-4k-qd1-rwmixread_75", 1),
            ("FIOJOB-randrw-4k-qd8-rwmixread_75", 1),
        ]
    }
    said = json.loads((BENCH / "ssd/4k/randread-8-1.json").read_text())["jobs"][0]["read"]
    found = document["arms"][0]["rounds"][1]["measurement"]["values"]["iops"]
    assert found == pytest.approx(said["lat_ns"]["N"] / said["runtime"] * 1000)
    listed = strictly(kept("show", "list", "--json"))
    assert complaints("list", listed) == []
    assert listed["studies"][0]["kind"] == "import"


def test_what_files_do_not_say_is_null_and_what_they_say_is_there(kept: Kept) -> None:
    kept("explain", "import", str(FOLDER / "study1-before.txt"), str(BENCH / "ssd/4k/randread-8-1.json"))
    document = kept.document("last")
    assert complaints("result", document) == []
    study = document["study"]
    assert [study[key] for key in ("seconds", "ramp_seconds", "seed", "span_bytes", "scratch", "target")] == [
        None
    ] * 6
    assert document["facts"] is None
    text, bench = document["arms"]
    assert (text["stack"], text["rounds"][0]["ended"], text["options"]["size"]) == (None, None, "4G")
    assert bench["rounds"][0]["ended"].startswith("2026-11-22T01:13")
    assert bench["options"]["direct"] == "1"


@pytest.mark.parametrize("name", [name for name in RESULTS if name not in ("terse.txt", "status-interval.txt")])
def test_every_recorded_result_is_kept_byte_for_byte_and_explained_from_the_store(
    kept: Kept, tmp_path: Path, name: str
) -> None:
    path = tmp_path / f"{Path(name).stem}.result"
    path.write_text(recorded(name))
    kept("explain", "import", str(path), "--quiet")
    assert kept.err == ""
    with Store(kept.store) as store:
        captures = {one.name: one.content for one in store.captures(store.find("last"), 1)}
    assert captures.keys() in ({"fio.json", "import.json"}, {"fio.txt", "import.json"})
    assert path.read_bytes() in captures.values()
    kept("explain", "last", status=1 if name == "missing.both" else 0)  # that one failed, and measured nothing


def test_names_tell_repeats_from_arms(kept: Kept, tmp_path: Path) -> None:
    files = [result(tmp_path, name) for name in ("before-1.json", "before-2.json", "after-1.json", "nvme0.json")]
    kept("explain", "import", *map(str, files))
    assert arms(kept.document("last")) == {
        "before": [("job", 1), ("job", 2)],
        "after": [("job", 1)],
        "nvme0": [("job", 1)],  # a name, not a counter
    }
    kept("explain", "import", *map(str, files[:3]), "--arm", "mine")
    assert arms(kept.document("last")) == {"mine": [("job", 1), ("job", 2), ("job", 3)]}
    kept("explain", "import", *map(str, files[:2]), "--arm", "x", "--arm", "y", "--arm", "z", status=2)
    assert "3 names for 2 files" in kept.err


def test_subfolders_are_arms_where_they_hold_the_same_job_and_runs_are_not(kept: Kept, tmp_path: Path) -> None:
    for arm in ("old", "new"):
        for number in (1, 2, 10):
            result(tmp_path / "r", f"{arm}/run-{number}/x.json", scale=float(number))
    kept("explain", "import", str(tmp_path / "r"))
    document = kept.document("last")
    assert arms(document) == {name: [("job", n) for n in (1, 2, 3)] for name in ("new", "old")}
    iops = [one["measurement"]["values"]["iops"] for one in document["arms"][0]["rounds"]]
    assert [round(value / iops[0], 2) for value in iops] == [1, 2, 10]  # as people count
    for job in ("reads", "writes"):
        result(tmp_path / "s", f"{job}/x.json", jobname=job)
    kept("explain", "import", str(tmp_path / "s"))
    assert arms(kept.document("last")) == {"s": [("reads", 1), ("writes", 1)]}


def test_jobs_behind_a_stonewall_are_workloads_of_their_own(kept: Kept, tmp_path: Path) -> None:
    path = result(tmp_path, "walled.json")
    document = json.loads(path.read_text())
    document["jobs"].append(document["jobs"][0] | {"jobname": "second", "groupid": 1})
    path.write_text(json.dumps(document))
    kept("explain", "import", str(path))
    found = kept.document("last")
    assert arms(found) == {"walled": [("job", 1), ("second", 1)]}
    first, second = (one["measurement"]["values"]["iops"] for one in found["arms"][0]["rounds"])
    assert first == second == pytest.approx(49_349, rel=1e-3)  # each its own, not the sum of both


def test_a_failed_load_is_kept_with_its_reason_and_a_hostile_name_does_no_harm(kept: Kept, tmp_path: Path) -> None:
    path = result(tmp_path, "x.json", jobname="[/red]\x1b[31m evil\n", ioengine="[bold]\x00")
    document = json.loads(path.read_text())
    document["jobs"][0]["error"] = 5
    path.write_text(json.dumps(document))
    shown = kept("explain", "import", str(path), str(result(tmp_path, "y.json", jobname="[/red]\x1b[31m evil\n")))
    assert "fio reports error 5" in shown
    assert "[/red]?[31m evil?" in shown
    assert "\x1b" not in shown
    assert complaints("result", kept.document("last")) == []
    kept("compare", "resume", "last", status=2)
    assert "was imported and cannot be run" in kept.err


def test_what_is_no_result_is_refused_by_name(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme.md").write_text("nothing")
    kept("explain", "import", str(tmp_path / "notes"), status=2)
    assert "no file in it holds a fio result" in kept.err
    kept("explain", "import", str(tmp_path / "notes" / "readme.md"), status=2)
    assert "readme.md: there is no fio result in this" in kept.err
    kept("explain", "import", str(tmp_path / "nowhere"), status=2)
    assert "cannot read" in kept.err
    twice = str(result(tmp_path, "x.json"))
    kept("explain", "import", twice, twice, status=2)
    assert "the same file is given twice" in kept.err
    assert not kept.store.exists()
    shutil.copy(BENCH / "ssd/4k/randread-8-1.json", tmp_path / "notes" / "cut.json")
    whole = (tmp_path / "notes" / "cut.json").read_bytes()
    (tmp_path / "notes" / "cut.json").write_bytes(whole[:3000])
    result(tmp_path / "notes", "good.json")
    kept("explain", "import", str(tmp_path / "notes"))
    assert "left out" in kept.err
    assert "cut.json: the JSON is broken" in kept.err


@pytest.mark.parametrize("verb", ["import", "compare"])
def test_what_of_a_folder_could_not_be_read_is_named(kept: Kept, tmp_path: Path, verb: str) -> None:
    head = next(line for line in recorded("study2.txt").splitlines() if "(groupid=" in line)
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        folder.mkdir()
        (folder / "a.txt").write_text(recorded("study2.txt"))
        (folder / "cut.txt").write_text(f"{head}\n...\n")
        (folder / "notes.md").write_text("none\n")
    kept(verb, *map(str, folders))
    for folder in folders:
        assert f"{folder}: 1 result, and 2 other files that hold none: cut.txt, notes.md" in kept.err
    assert kept.err.count("cut.txt: no figures could be read of the job") == 2
