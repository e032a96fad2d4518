# SPDX-License-Identifier: Apache-2.0
"""`virtune explain`: figures and remarks on stdout, errors in a sentence, JSON for machines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.analyse.recordings import FOLDER, RESULTS, recorded

from virtune.cli import run

Capture = pytest.CaptureFixture[str]
READABLE = [name for name in RESULTS if name != "terse.txt"]


def show(capsys: Capture, *words: str) -> str:
    assert run(["explain", *words]) == 0
    out, err = capsys.readouterr()
    assert not err
    return out


def row(out: str, label: str) -> list[str]:
    """The figures of one row, without the label."""
    lines = [line for line in out.splitlines() if line.startswith(f"{label}  ")]
    assert len(lines) == 1, label
    return lines[0].removeprefix(label).split("  ")


def figures(out: str, label: str) -> list[str]:
    return [cell.strip() for cell in row(out, label) if cell.strip()]


def test_study_1_side_by_side_shows_what_was_published(capsys: Capture) -> None:
    out = show(capsys, str(FOLDER / "study1-before.txt"), str(FOLDER / "study1-after.txt"))
    assert figures(out, "IOPS") == ["8,213", "9,425"]
    assert figures(out, "IOPS stdev") == ["6,368", "3,951"]
    assert figures(out, "bandwidth") == ["33.7 MB/s", "38.6 MB/s"]
    assert figures(out, "latency mean") == ["3.89 ms", "3.39 ms"]
    assert figures(out, "clat p50") == ["3.49 ms", "2.93 ms"]
    assert figures(out, "clat p70") == ["6.19 ms", "5.54 ms"]
    assert figures(out, "clat p90") == ["8.46 ms", "7.77 ms"]
    assert figures(out, "clat p95") == ["9.50 ms", "8.72 ms"]
    assert figures(out, "clat p99") == ["12.1 ms", "11.2 ms"]
    assert figures(out, "sys CPU") == ["18.3 %", "28.7 %"]
    assert figures(out, "vda busy") == ["99.9 %", "99.9 %"]
    flat = " ".join(out.split())
    assert flat.count("cannot support a claim of a difference") == 2
    assert "this shows no difference" in flat


def test_runs_of_one_file_are_shown_side_by_side_and_each_by_its_number(capsys: Capture, tmp_path: Path) -> None:
    article = tmp_path / "article.txt"
    article.write_text(f"Before:\n\n{recorded('study1-before.txt')}\nAfter:\n\n{recorded('study1-after.txt')}\n")
    out = show(capsys, str(article))
    assert figures(out, "IOPS") == ["8,213", "9,425"]
    assert "What article.txt:2 says" in out
    assert "this shows no difference" in " ".join(out.split())
    assert figures(show(capsys, f"{article}:2"), "IOPS") == ["9,425"]
    assert run(["explain", f"{article}:3"]) == 2
    assert "article.txt: there is no run 3 in it" in capsys.readouterr().err
    # a file of such a name is that file
    named = tmp_path / "article.txt:2"
    named.write_text(recorded("study2.txt"))
    assert figures(show(capsys, str(named)), "IOPS") == ["934k"]


def test_study_2_shows_what_was_published_and_what_of_it_is_the_drive_s(capsys: Capture) -> None:
    out = show(capsys, str(FOLDER / "study2.txt"))
    assert figures(out, "IOPS") == ["934k"]
    assert figures(out, "bandwidth") == ["3,825 MB/s"]
    assert figures(out, "slat mean") == ["1.66 us"]
    assert figures(out, "clat mean") == ["256 ns"]
    assert figures(out, "latency mean") == ["1.91 us"]
    assert figures(out, "usr CPU") == ["8.9 %"]
    assert figures(out, "sys CPU") == ["78.9 %"]
    assert figures(out, "nvme0n1 writes") == ["218,827"]
    assert figures(out, "nvme0n1 busy") == ["68.9 %"]
    said = " ".join(out.partition("What this says\n")[2].split())
    assert said.startswith(
        "warning The latencies and the operations a second are the page cache's: a write completes"
    )
    assert "The bandwidth is that of nvme0n1, which moved 99 % of the bytes, in requests of 509 KiB." in said


@pytest.mark.parametrize("name", READABLE)
def test_every_recording_is_shown_in_100_columns(capsys: Capture, name: str) -> None:
    out = show(capsys, str(FOLDER / name))
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "What this says" in out


def test_many_files_stay_within_100_columns(capsys: Capture) -> None:
    out = show(capsys, *(str(FOLDER / name) for name in READABLE))
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "…" not in out


@pytest.mark.parametrize("name", READABLE)
def test_json_has_base_units_and_every_remark(capsys: Capture, name: str) -> None:
    document = json.loads(show(capsys, "--json", str(FOLDER / name)))
    assert document["schema"] == "virtune/explain/1"
    (result,) = document["results"]
    assert result["name"] == name
    assert set(result["metrics"]) <= set(document["units"])
    assert all(remark["id"] and remark["text"] for remark in result["remarks"])
    assert "histogram" not in json.dumps(document)


def test_json_of_study_1_is_exact(capsys: Capture) -> None:
    document = json.loads(show(capsys, "--json", str(FOLDER / "study1-before.txt")))
    metrics = document["results"][0]["metrics"]
    assert (metrics["iops"], metrics["latency.mean"], metrics["latency.p99"]) == (8213, 3_890_000, 12_125_000)


def test_standard_input_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "virtune", "explain", "-"],
        input=recorded("nbd-stdout.txt"), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("standard input  fio-3.33, read from fio's JSON+")


def test_utf16_as_some_shells_write_it_is_read(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "result.txt"
    file.write_bytes(recorded("study2.txt").encode("utf-16"))
    assert figures(show(capsys, str(file)), "IOPS") == ["934k"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "result: this is empty"),
        (b"\x00" * 100, "result: there is no fio result in this"),
        (bytes(range(256)), "result: there is no fio result in this"),
        (b"{" * 10_000, "result: there is no fio result in this"),
        (b'{"jobs": [', "result: the JSON is broken"),
        (b"x" * (32 * 1024**2 + 1), "this is longer than 32 MiB"),
    ],
)
def test_what_is_no_result_ends_in_a_sentence_a_hint_and_2(
    capsys: Capture, tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "result"
    file.write_bytes(content)
    assert run(["explain", str(file)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"error: {says}")
    assert "\n\nhint: " in err


@pytest.mark.parametrize("name", ["no-such-file", "/", "", "a\x00b", "x" * 5000])
def test_what_cannot_be_opened_ends_in_a_sentence_and_2(capsys: Capture, name: str) -> None:
    assert run(["explain", name]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert "hint: " in err


def test_without_a_file_the_usage_is_shown(capsys: Capture) -> None:
    assert run(["explain"]) == 2
    assert "missing argument" in capsys.readouterr().err
