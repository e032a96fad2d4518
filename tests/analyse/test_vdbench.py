# SPDX-License-Identifier: Apache-2.0
"""Vdbench's tables and its flatfile, written as its sources print them, are read alike, and refused where broken."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analyse.vdbench_reports import RUN, as_flat, as_table
from tests.conftest import User

from virtune.fio.results import read_result, read_runs
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult

Facts = dict[str, Any]
Form = Callable[..., str]


def both(*runs: Facts) -> FioResult:
    """Read both reports of the same figures, which must say the same of what was done; return the flatfile's."""
    table, flat = read_result(as_table(*runs)), read_result(as_flat(*runs))
    assert (table.version, flat.version) == ("Vdbench 5.04.07", "Vdbench")
    for mine, theirs in zip(table.loads, flat.loads, strict=True):
        assert (mine.name, mine.group, mine.rate_asked_iops) == (theirs.name, theirs.group, theirs.rate_asked_iops)
        for one, other in zip(mine.streams, theirs.streams, strict=True):
            assert without_spread(one) == without_spread(other)
    assert read_result(as_table(*runs, html=True)) == dataclasses.replace(table, version="Vdbench")
    return flat


def without_spread(stream: Any) -> Any:
    """The table rounds the greatest latency, and has one deviation for both directions."""
    return dataclasses.replace(stream, lat=dataclasses.replace(stream.lat, stddev_ns=None, max_ns=None))


def test_the_average_is_read_and_not_the_warm_up() -> None:
    (load,) = both(RUN).loads
    assert (load.name, load.pattern, load.block_size, load.direct, load.jobs) == ("run1", "randrw", 4096, None, 1)
    assert (load.rate_asked_iops, load.engine, load.options) == (None, None, None)
    read, write = load.streams
    assert (read.direction, read.ios, read.seconds) == ("read", round(5000 * 0.7 * 29), 29)
    assert read.iops == pytest.approx(3500)
    assert read.bytes == round(5000 * 0.7 * 29) * 4096
    assert read.bandwidth_bps == pytest.approx(3500 * 4096)
    assert write.lat is not None
    assert (write.lat.count, write.lat.mean_ns, write.lat.max_ns) == (write.ios, 2_500_000, 22_500_000)
    assert (write.lat.stddev_ns, write.lat.percentiles) == (1_250_000, ())


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"reads": 100}, {"pattern": "randread", "depth": None}),
        ({"reads": 0, "seek": 0}, {"pattern": "write"}),
        ({"seek": 20}, {"pattern": None}),
        ({"asked": 4800}, {"rate_asked_iops": 4800.0, "depth": None}),
        ({"rate": 4900.0}, {"depth": 8}),  # 8 threads of one disk: 4900 x 1.625 ms
        ({"rate": 14700.0}, {"depth": 24}),  # and of three
        ({"rate": 7000.0}, {"depth": None}),  # neither
        ({"first": 11}, {"seconds": 20}),
        ({"interval": 5}, {"seconds": 145}),
        ({"interval": 5, "first": 7, "begin": 86_390}, {"seconds": 120}),  # past midnight
    ],
)
def test_what_was_asked_for_and_how_long(asked: Facts, found: Facts) -> None:
    (load,) = both(RUN | asked).loads
    assert {name: getattr(load, name) for name in found} == found
    (other,) = read_result(as_table(RUN | asked, steps=False)).loads  # its totals
    assert other.seconds == load.seconds
    assert (other.block_size, other.depth, other.pattern) == (None, None, None)


def test_a_run_of_more_than_a_day_is_as_long_as_it_says() -> None:
    run = RUN | {"interval": 3600, "count": 40}
    assert read_result(as_table(run)).seconds == both(run).seconds == 39 * 3600


def test_the_older_table_has_one_maximum_for_both() -> None:
    (load,) = read_result(as_table(RUN, version="50406")).loads
    assert [stream.lat.max_ns for stream in load.streams if stream.lat] == [None, None]
    (load,) = read_result(as_table(RUN | {"reads": 100}, version="50406")).loads
    assert [stream.lat.max_ns for stream in load.streams if stream.lat] == [11_250_000]


def test_requests_of_several_sizes_have_no_size_and_their_reads_no_bytes() -> None:
    for text in (
        as_table(RUN | {"jitter": 512}),
        as_flat(RUN | {"jitter": 512}),
        as_flat(RUN | {"size": 7832}).replace(" 7832 8 ", " 512 8 "),
    ):
        (load,) = read_result(text).loads
        assert (load.block_size, [stream.direction for stream in load.streams]) == (None, ["mixed"])
        assert load.iops == 5000


def test_runs_are_loads_one_after_the_other_and_preparations_none() -> None:
    formatted = RUN | {"name": "SD_format", "count": 1}
    loads = both(formatted, RUN | {"name": "a"}, RUN | {"name": "b"}, RUN | {"name": "b", "threads": 4}).loads
    assert [(load.name, load.group) for load in loads] == [("a", 0), ("b~1", 1), ("b~2", 2)]


def test_a_run_of_one_interval_measured_nothing() -> None:
    (load,) = both(RUN | {"count": 1}).loads
    assert load.streams == ()


def test_operations_on_files_are_read_of_the_flatfile_alone() -> None:
    files = """         tod               timestamp Run Interval Reqrate Rate Resp Read_rate Read_resp Read_resp_std \
Read_resp_max Write_rate Write_resp MB_read MB_write Open_rate
09:56:45.032 04/12/2019-09:56:45-ICT rd1 1 9999988 158528 0.19 158528 0.192 3.0 342.0 0 0 19589.7 0 6328
09:56:46.009 04/12/2019-09:56:46-ICT rd1 2 9999988 161840 0.19 161840 0.190 2.9 342.0 0 0 20000.6 0 6361
09:56:46.076 04/12/2019-09:56:46-ICT rd1  avg_2-2 9999988 160000 0.19 150000 0.190 2.9 342.0 10 0.5 20480 2 63
"""
    (load,) = read_result(files).loads
    assert [(one.direction, one.iops, one.bandwidth_bps) for one in load.streams] == [
        ("read", 150_000, 20480 * 2**20),
        ("write", 10, 2 * 2**20),
    ]
    assert [one.lat and (one.lat.mean_ns, one.lat.max_ns) for one in load.streams] == [
        (190_000, 342e6),
        (500_000, None),
    ]
    table = """09:55:51.001 Starting RD=rd1; elapsed=60; fwdrate=max. For loops: None
Apr 12, 2019 ..Interval.. .ReqstdOps... ...cpu%...  read ....read..... ....write.... ..mb/sec... mb/sec .xfer..
                            rate   resp total  sys   pct   rate   resp   rate   resp  read write  total    size
09:56:51.045     avg_2-60 166252  0.180  96.1 94.5 100.0 166252  0.180    0.0  0.000 20544  0.00  20544  129577
"""
    with pytest.raises(ReadError, match="run rd1 of this Vdbench result is no load of disks") as refused:
        read_result(table)
    assert "flatfile" in (refused.value.hint or "")


def test_what_was_printed_again_and_again_are_several_runs() -> None:
    failed = "Vdbench distribution: vdbench504\n\n* Minimum required Java version for Vdbench is 1.5.0;\n"
    runs = read_runs(as_table(RUN) + failed + as_table(RUN | {"rate": 4000.0}))
    assert [round(run.result.loads[0].iops) for run in runs] == [5000, 4000]
    assert [read_result(run.text) for run in runs] == [run.result for run in runs]


@pytest.mark.parametrize("form", [as_table, as_flat])
def test_what_is_cut_anywhere_is_a_sentence_or_a_result_of_what_is_there(form: Form) -> None:
    runs = [RUN | {"name": "a", "count": 6}, RUN | {"name": "b", "count": 6, "rate": 4000.0}]
    whole = form(*runs)
    kept = set()
    for end in range(0, len(whole), 7):
        try:
            found = read_result(whole[:end])
        except ReadError:
            continue
        kept.add(len(found.loads))
        assert [round(load.iops) for load in found.loads] == [5000, 4000][: len(found.loads)], end
        assert {load.seconds for load in found.loads} == {5}
    assert kept == {1, 2}


@pytest.mark.parametrize(
    ("form", "pattern", "by", "says"),
    [
        (as_table, r"avg_2-30 +5000.0", "avg_2-30  -5000.0", "the rate of run run1 in this Vdbench result is no num"),
        (as_table, r"(avg_2-30 .{20}).*", r"\1", "the average of run run1 in this Vdbench result is cut"),
        (as_table, r"\n.*avg_2-30.*", "", "ends before the average of run run1"),
        (as_table, r"\n.*rate 1024.*", "", "the rate of run run1 in this Vdbench result is no number"),
        (as_table, r"RD=run1", "RD=format_for_run1", "no run that measured"),
        (as_flat, r"\n.* run1 7 .*", "", "ends, or lacks lines, before the average of a run"),
        (as_flat, r" avg_2-30 \d+ [\d.]+", " avg_2-30 9 nan", "the rate of run run1 in this Vdbench result is no n"),
        (as_flat, r" avg_2-30 ", " avg_2-9999 ", "ends, or lacks lines"),
    ],
)
def test_what_vdbench_cannot_have_written_is_refused(form: Form, pattern: str, by: str, says: str) -> None:
    broken = re.sub(pattern, by, form(RUN), count=1)
    assert broken != form(RUN)
    with pytest.raises(ReadError, match=says) as refused:
        read_result(broken)
    assert refused.value.hint


@pytest.mark.parametrize("form", [as_table, as_flat])
def test_more_runs_than_anybody_starts_are_refused(form: Form) -> None:
    with pytest.raises(ReadError, match="more than 1,000 runs"):
        read_result(form(*[RUN | {"count": 2}] * 1001))


def test_folders_of_two_sides_are_compared_by_their_flatfiles(user: User, tmp_path: Path) -> None:
    for side, more in (("before", 1.0), ("after", 1.5)):
        for number in range(4):
            folder = tmp_path / side / f"output-{number}"
            folder.mkdir(parents=True)
            run = RUN | {
                "rate": 4900.0 * more * (1 + number / 500),
                "resp": {"read": 1.5 / more, "write": 1.5 / more},
            }
            (folder / "flatfile.html").write_text(as_flat(run))
            for page in ("summary.html", "totals.html", "logfile.html", "localhost-0.html"):
                (folder / page).write_text(as_table(run, html=True))
    said = user.run("explain", str(tmp_path / "before" / "output-0" / "flatfile.html")).stdout
    assert "Vdbench, read from its report" in said
    assert "run1: randrw of 4 KiB, 1 job, depth 8 in all, direct= not known, 29 s" in said
    done = user.run("compare", str(tmp_path / "before"), str(tmp_path / "after"), exactly=True)
    assert re.search(r"after +better +\+(?:49\.\d|50\.\d) %", done.stdout), done.stdout
    assert "other file" not in done.stderr
