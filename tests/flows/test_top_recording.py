# SPDX-License-Identifier: Apache-2.0
"""A recording of `virtune top` gives the same frames again; what is damaged or cut off is said."""

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from tests.live_samples import HEADER, UNPLUGGED, live

from virtune.analyse.layers.path import frame
from virtune.cli import run
from virtune.flows.live.top import RECORDING, Recorder, Recording
from virtune.model.errors import StoreError
from virtune.model.live import LiveSample
from virtune.report.top import CSV_COLUMNS

SECONDS = range(1, UNPLUGGED + 3)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "night.jsonl"
    with Recorder(path, HEADER) as file:
        for second in SECONDS:
            file.add(live(second))
    return path


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_what_was_recorded_comes_again_sample_by_sample(recorded: Path) -> None:
    with Recording(recorded) as samples:
        assert len(samples) == len(SECONDS)
        for index in (5, 0, len(SECONDS) - 1, -1):
            second = SECONDS[index]
            assert samples[index] == live(second)
        assert list(samples[2:4]) == [live(3), live(4)]
        assert frame(samples[0], samples[1]) == frame(live(1), live(2))
    kinds = [next(iter(json.loads(line))) for line in recorded.read_bytes().splitlines()]
    assert kinds.count("vms") == 2, "which VMs run is written only when that changes"


def test_a_recording_that_was_killed_ends_with_its_last_whole_sample(recorded: Path) -> None:
    whole = recorded.read_bytes()
    recorded.write_bytes(whole[:-10])
    with Recording(recorded) as samples:
        assert len(samples) == len(SECONDS) - 1
        assert samples[-1] == live(SECONDS[-2])


@pytest.mark.parametrize(
    ("line", "content", "says"),
    [
        (1, b"{}", "no recording"),
        (1, b'{"schema":"virtune/other/1","kernel":{}}', "of the kind 'virtune/other/1'"),
        (2, b'{"vms":7}', "line 2 does not say which VMs run"),
        (3, b'{"kernel":{"t":-1}}', "line 3 is no sample"),
        (3, b'{"counts":{"sql1":{"vda":[1,2]}},"kernel":{"t":1,"wall":1.0}}', "line 3 is no sample"),
        (3, b'{"counts":{"a":{"b":[1,null,3,4,5,6,7,8,9]}},"kernel":{"t":1,"wall":1.0}}', "line 3 is no sample"),
        (3, b'{"rings":{"a":{"b":[[1.5,2,3,4,5,6]]}},"kernel":{"t":1,"wall":1.0}}', "line 3 is no sample"),
    ],
)
def test_a_damaged_line_is_named(recorded: Path, line: int, content: bytes, says: str) -> None:
    lines = recorded.read_bytes().splitlines()
    lines[line - 1] = content
    recorded.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(StoreError, match=says):  # noqa: SIM117 - opening it is part of it
        with Recording(recorded) as samples:
            assert samples[0] is None


def test_a_recording_as_csv_has_a_row_for_each_disk_and_interval(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--replay", str(recorded), "--csv"]) == 0
    found = rows(capsys.readouterr().out)
    assert tuple(found[0]) == CSV_COLUMNS
    before = 3 * (UNPLUGGED - 2)
    assert len(found) == before + 2 * (len(SECONDS) - UNPLUGGED + 1), "vdb has no row after it was unplugged"
    vda = found[0]
    assert (vda["time"], vda["vm"], vda["disk"], vda["cause"]) == ("1700000002.000", "sql1", "vda", "device")
    assert float(vda["iops"]) == float(vda["read_iops"]) == 12_000
    assert [round(float(vda[name] or 0)) for name in ("virtqueue_ns", "qemu_ns", "device_ns")] == [
        0,
        100_000,
        300_000,
    ]
    assert found[2]["disk"] == "disk0"
    assert float(found[2]["virtqueue_ns"]) == pytest.approx(500e3)


def test_the_end_of_a_recording_is_shown_once_as_text_and_as_json(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", "--replay", str(recorded), "--once"]) == 0
    assert "sql1:vda" in capsys.readouterr().out
    assert run(["top", "--replay", str(recorded), "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time"] == 1.7e9 + SECONDS[-1]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--replay", "{}", "--record", "x.jsonl"], 2, "takes no --record"),
        (["--replay", "{}", "--qmp", "/x"], 2, "takes no --record"),
        (["--replay", "/nowhere/x.jsonl", "--once"], 3, "cannot read /nowhere/x.jsonl: No such file"),
        (["--replay", "/dev/zero", "--once"], 3, "not a regular file"),
        (["--once", "--csv"], 2, "takes no --csv"),
        (["--once", "--csv", "--count", "3"], 2, "takes no --csv and --count"),
        (["--count", "3"], 2, "--count needs --csv or --record"),
    ],
)
def test_words_that_do_not_go_together_are_said(
    recorded: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], status: int, says: str
) -> None:
    assert run(["top", *(word.format(recorded) for word in words)]) == status
    assert says in capsys.readouterr().err


def test_a_recording_of_one_sample_tells_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "short.jsonl"
    with Recorder(path, HEADER) as file:
        file.add(live(1))
    assert run(["top", "--replay", str(path), "--once"]) == 3
    assert "has 1 samples, and two are the fewest" in capsys.readouterr().err


def test_a_recording_replaces_nothing(tmp_path: Path, recorded: Path) -> None:
    before = recorded.read_bytes()
    for path, says in ((recorded, "exists"), (tmp_path / "none" / "x", "No such file")):
        with pytest.raises(Exception, match=says):
            Recorder(path, HEADER)
    assert recorded.read_bytes() == before


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    path = tmp_path / "full"
    with Recorder(path, HEADER) as file:
        os.dup2(os.open("/dev/full", os.O_WRONLY), file._file.fileno())
        with pytest.raises(Exception, match="No space left on device"):
            file.add(live(1))


def test_names_are_no_formulas_in_a_spreadsheet() -> None:
    from dataclasses import replace

    from virtune.report.top import csv_rows

    def called(sample: LiveSample) -> LiveSample:
        vms = tuple(replace(one, name=f"=1+{one.name}") for one in sample.vms)
        return replace(sample, vms=vms, counts={f"=1+{vm}": disks for vm, disks in sample.counts.items()})

    found = frame(called(live(1)), called(live(2)))
    assert found is not None
    assert csv_rows(found).splitlines()[0].split(",")[2] == "'=1+sql1"


def test_the_first_line_says_what_the_file_is(recorded: Path) -> None:
    first = json.loads(recorded.read_bytes().splitlines()[0])
    assert first["schema"] == RECORDING
    assert first["kernel"]["ticks_per_second"] == 100


def test_whatever_a_number_of_a_recording_became_it_is_shown_or_refused_in_a_sentence(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, chance = recorded.read_bytes(), Random(4)
    places = list(re.finditer(rb"(?<=[\[:, ])-?\d+(\.\d+)?(?=[\],} ])", whole))
    others = (b"0", b"-1", b"9" * 30, b"9" * 400, b"1e999", b"-1e300", b"NaN", b"1.7e308", b"18446744073709551615")
    path, refused = tmp_path / "changed.jsonl", 0
    for _ in range(250):
        found, other = chance.choice(places), chance.choice(others)
        path.write_bytes(whole[: found.start()] + other + whole[found.end() :])
        words = chance.choice((["--csv"], ["--once"], ["--once", "--json"]))
        status = run(["top", "--replay", str(path), *words])
        err = capsys.readouterr().err
        assert status in (0, 1, 3), (found, other, err)
        assert "internal error" not in err, (found, other, err)
        refused += status != 0
    assert refused > 25


def test_a_recording_whose_time_stands_still_is_said(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = recorded.read_bytes().splitlines(keepends=True)
    path = tmp_path / "still.jsonl"
    path.write_bytes(b"".join([*lines[:3], lines[2]]))
    assert run(["top", "--replay", str(path), "--once"]) == 3
    assert "no time passes between the last two samples" in capsys.readouterr().err
