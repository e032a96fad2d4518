# SPDX-License-Identifier: Apache-2.0
"""What is exported is what is kept: CSV, a bundle, Prometheus' text file; nothing that is there is overwritten."""

import contextlib
import csv
import gzip
import io
import json
import subprocess
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from virtune.cli import run
from virtune.cli.show import MARK
from virtune.flows.reports.export import measurements_csv
from virtune.flows.stored.show import current
from virtune.model.evidence import Damaged
from virtune.store.store import Store

KEPT = Path(__file__).parents[1] / "store" / "data" / "older-method.sqlite.gz"
GOLDEN = Path(__file__).parents[1] / "golden" / "studies.sqlite.gz"
COMPARE = "20261122-184255-3883"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "before.sqlite"
    place.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return place


def test_the_csv_holds_every_value_of_the_document(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "export", COMPARE, "--store", str(store)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert run(["show", COMPARE, "--json", "--store", str(store)]) == 0
    document = json.loads(capsys.readouterr().out)
    counted = {(row["arm"], row["round"], row["metric"]): float(row["value"]) for row in rows}
    for arm in document["arms"]:
        for one in arm["rounds"]:
            for metric, value in one["measurement"]["values"].items():
                assert counted[arm["name"], str(one["round"]), metric] == value
    assert {row["unit"] for row in rows if row["metric"] == "iops"} == {"1/s"}


def test_what_counts_in_an_export_is_what_counts_in_the_figures(tmp_path: Path) -> None:
    place, disturbed = tmp_path / "kept.sqlite", 0
    place.write_bytes(gzip.decompress(GOLDEN.read_bytes()))
    with Store(place) as kept:
        for one in (one for one in [*kept.list()] if not isinstance(one, Damaged)):
            record, result = current(kept, one.study.id)
            rows = csv.DictReader(io.StringIO(measurements_csv(kept, one.study.id)))
            counted = sum(int(row["counts"]) for row in rows if row["metric"] == result.study.metric)
            figures = (arm.get(result.study.metric) for arm in result.arms)
            assert counted == sum(value.rounds for value in figures if value is not None), one.study.id
            disturbed += sum(bool(trial.measurement and trial.measurement.causes) for trial in record.trials)
    assert disturbed > 100, "most were measured on a busy host"


def test_the_parquet_file_holds_the_rows_of_the_csv_with_types(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import parquet

    place = tmp_path / "m.parquet"
    assert run(["show", "export", COMPARE, "--parquet", str(place), "--store", str(store)]) == 0
    assert (
        run(["show", "export", COMPARE, "--parquet", str(place), "--store", str(store)]) == 2
    )  # what is there stays
    capsys.readouterr()
    assert run(["show", "export", COMPARE, "--store", str(store)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    table = parquet.read_table(place)
    assert table.column_names == list(rows[0])
    assert {name: str(table.schema.field(name).type) for name in ("round", "counts", "value", "ended")} == {
        "round": "int32", "counts": "bool", "value": "double", "ended": "timestamp[us, tz=UTC]",
    }  # fmt: skip
    read = table.to_pylist()
    assert len(read) == len(rows)
    for mine, theirs in zip(read, rows, strict=True):
        assert mine["value"] == float(theirs["value"])
        assert mine["ended"] == datetime.fromisoformat(theirs["ended"])
        assert (str(mine["round"]), str(int(mine["counts"])), mine["arm"], mine["metric"], mine["unit"]) == tuple(
            theirs[name] for name in ("round", "counts", "arm", "metric", "unit")
        )


def test_on_a_full_disk_no_new_file_is_left_and_an_old_one_stays(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=True)
    try:
        older = {small / "old.html": f"{MARK.decode()} older".encode(), small / "old.txt": b"older"}
        for path, content in older.items():
            path.write_bytes(content)
        with contextlib.suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        there = {one.name for one in small.iterdir()}
        for words in (
            ["report", COMPARE, "-o", "new.html"], ["report", COMPARE, "-o", "old.html"],
            ["export", COMPARE, "--csv", "new.csv"], ["export", COMPARE, "--bundle", "new.zip"],
            ["export", "--textfile", ""],
            [COMPARE, "--report", "new.txt"], [COMPARE, "--report", "old.txt"],
        ):  # fmt: skip
            path = small / words.pop()
            capsys.readouterr()
            assert run(["show", *words, str(path), "--store", str(store)]) == 3
            said = capsys.readouterr().err
            assert f"cannot write {path}" in said
            assert "No space left on device" in said
            assert "name another place" in said
        assert {one.name for one in small.iterdir()} == there
        assert {path: path.read_bytes() for path in older} == older
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_name_that_is_a_formula_is_none_in_a_spreadsheet(store: Path) -> None:
    import sqlite3

    with sqlite3.connect(store) as db:
        (text,) = db.execute("select study from studies where id = ?", (COMPARE,)).fetchone()
        db.execute("update studies set study = ? where id = ?", (text.replace('"slow"', '"=1+1"'), COMPARE))
        db.execute("update trials set arm = '=1+1' where arm = 'slow' and study_id = ?", (COMPARE,))
    with Store(store, reading=True) as kept:
        arms = {row["arm"] for row in csv.DictReader(io.StringIO(measurements_csv(kept, COMPARE)))}
    assert "'=1+1" in arms
    assert "=1+1" not in arms


def test_a_bundle_holds_all_and_replaces_nothing(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "study.zip"
    assert run(["show", "export", COMPARE, "--bundle", str(place), "--store", str(store)]) == 0
    before = place.read_bytes()
    with zipfile.ZipFile(place) as packed:
        names = [name.removeprefix(f"{COMPARE}/") for name in packed.namelist()]
        with Store(store, reading=True) as kept:
            raw = {one.name: one.content for one in kept.captures(COMPARE, 1)}
        for name, content in raw.items():
            assert packed.read(f"{COMPARE}/captures/00001-1/{name}") == content
    assert {"result.json", "measurements.csv", "facts.json", "report.html"} <= set(names)
    assert not any(name.startswith(("/", "..")) for name in names)
    assert run(["show", "export", COMPARE, "--bundle", str(place), "--store", str(store)]) == 2
    assert place.read_bytes() == before


def test_the_text_file_is_whole_and_prometheus_reads_it(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "collector"
    folder.mkdir()
    for _ in range(2):
        assert run(["show", "export", "--textfile", str(folder), "--store", str(store)]) == 0
    assert [path.name for path in folder.iterdir()] == ["virtune.prom"]
    names = {one.name for one in text_string_to_metric_families((folder / "virtune.prom").read_text())}
    assert "virtune_study_verdict" in names
