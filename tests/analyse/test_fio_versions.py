# SPDX-License-Identifier: Apache-2.0
"""Real results of fio 2.1.4 to 3.42: one meaning, however each of them writes it."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from virtune.analyse.trial.measure import measurement_of, phases_of
from virtune.cli.explain import explained
from virtune.fio.results import read_result
from virtune.fio.results_text import read_text
from virtune.model.measurement import FioResult, Latency
from virtune.model.metric import BY_ID
from virtune.report.json.explain import explained_document
from virtune.report.pages.explain import render
from virtune.report.words import quantity

FOLDER = Path(__file__).parents[1] / "captures" / "fio-versions"
BOTH = ("fio-2.21.both", "fio-3.1-lat.both", "fio-3.1-group.both", "fio-3.42.both")
SEQUENCES = ("fio-2.1.4.json", "fio-2.21.both", "fio-3.1-lat.both", "fio-3.42.both")


def read(name: str) -> FioResult:
    return read_result((FOLDER / name).read_text())


def document(name: str) -> Mapping[str, object]:
    return explained_document([explained(name, read(name))])["results"][0]


@pytest.mark.parametrize("name", BOTH)
def test_text_and_json_of_one_run_say_the_same_latencies_and_bytes(name: str) -> None:
    both = (FOLDER / name).read_text()
    exact, printed = read_result(both), read_text(both[: both.index("\n{\n")] + both[both.index("\n}\n") + 2 :])
    assert [load.name for load in exact.loads] == [load.name for load in printed.loads]
    for one, other in zip(exact.loads, printed.loads, strict=True):
        assert [stream.direction for stream in one.streams] == [stream.direction for stream in other.streams]
        for mine, theirs in zip(one.streams, other.streams, strict=True):
            assert mine.bytes == pytest.approx(theirs.bytes, rel=0.01)
            assert mine.bandwidth_bps == pytest.approx(theirs.bandwidth_bps, rel=0.01)
            for kind in ("clat", "lat"):
                alike(getattr(mine, kind), getattr(theirs, kind))


@pytest.mark.parametrize("name", ["read", "write", "trim", "mixed"])
def test_a_job_may_be_called_as_a_direction_is(name: str) -> None:
    both = (FOLDER / "fio-3.42.both").read_text()
    text = both[: both.index("\n{\n")] + both[both.index("\n}\n") + 2 :]
    renamed = read_text(text.replace("mixed: (", f"{name}: ("))
    assert [load.name for load in renamed.loads] == ["reader", name, "writer"]
    assert [len(load.streams) for load in renamed.loads] == [1, 2, 1]
    assert renamed.loads[1].pattern == "randrw"


def alike(exact: Latency | None, printed: Latency | None) -> None:
    assert exact is not None
    assert printed is not None
    assert exact.mean_ns == pytest.approx(printed.mean_ns, rel=0.001, abs=10)
    assert exact.max_ns == pytest.approx(printed.max_ns, rel=0.01, abs=1000)
    assert bool(exact.percentiles) == bool(printed.percentiles)
    for percent, value in printed.percentiles:
        assert exact.percentile(percent) == pytest.approx(value, rel=0.01, abs=1000)


@pytest.mark.parametrize("name", ["fio-2.21.both", "fio-3.1-lat.both", "fio-3.42.both"])
def test_bins_add_up_to_every_io_and_give_the_printed_percentiles(name: str) -> None:
    checked = 0
    for load in read(name).loads:
        for stream in load.streams:
            for kind in (stream.clat, stream.lat):
                if kind is not None and kind.histogram is not None:
                    assert kind.histogram.count == stream.ios
                    assert all(kind.histogram.percentile(percent) == value for percent, value in kind.percentiles)
                    checked += len(kind.percentiles)
    assert checked >= 4 * 17


@pytest.mark.parametrize("name", SEQUENCES)
def test_bytes_are_bytes_in_every_version(name: str) -> None:
    """Reads and writes of 4 KiB at 100 and 300 a second and writes of 16 KiB at 200, each for a second."""
    reader, mixed, writer = read(name).loads
    moved = [stream.bytes or 0 for load in (reader, mixed, writer) for stream in load.streams]
    assert moved == pytest.approx([100 * 4096, 300 * 4096, 300 * 4096, 200 * 16384], rel=0.1)
    for load in (reader, mixed, writer):
        for stream in load.streams:
            assert stream.bandwidth_bps == pytest.approx((stream.bytes or 0) / (stream.seconds or 1), rel=0.01)


def test_fio_2_1_had_no_count_of_ios_and_no_options() -> None:
    load = read("fio-2.1.4.json").loads[0]
    assert (load.streams[0].ios, load.options, load.direct) == (None, None, None)
    assert load.streams[0].clat is not None
    assert load.streams[0].clat.percentile(50.0) is not None


def test_percentiles_of_the_total_latency_are_not_taken_for_completion() -> None:
    loads = read("fio-3.1-lat.both").loads
    for stream in (stream for load in loads for stream in load.streams):
        assert stream.clat is not None
        assert stream.lat is not None
        assert (stream.clat.histogram, stream.clat.percentiles) == (None, ())
        assert stream.lat.histogram is not None
    measured = measurement_of(phases_of(read("fio-3.1-lat.both"))[0])
    assert measured.get("latency.p50") is not None
    assert measured.get("clat.p50") is None


def test_two_sections_in_one_entry_are_told_without_a_job_runtime() -> None:
    (load,) = read("fio-3.1-group.both").loads
    assert load.sections
    assert (load.pattern, load.rate_asked_iops, load.depth, load.options) == (None, None, None, None)
    assert (load.direct, load.engine) == (True, "psync")  # what the global section says of both


@pytest.mark.parametrize("name", SEQUENCES)
def test_jobs_that_ran_one_after_another_are_not_added(name: str) -> None:
    result = document(name)
    assert result["metrics"] == {}
    parts = result["parts"]
    assert isinstance(parts, list)
    assert [part["jobs"] for part in parts] == [["reader"], ["mixed"], ["writer"]]
    assert [part["metrics"]["iops"] for part in parts] == pytest.approx([100, 600, 200], rel=0.1)


def test_when_jobs_began_tells_what_ran_at_once() -> None:
    def began(load: dict[str, object], seconds: float) -> dict[str, object]:
        return {**load, "job_start": int((1_700_000_000 + seconds) * 1000)}

    both = (FOLDER / "fio-3.42.both").read_text()
    whole, _ = json.JSONDecoder().raw_decode(both[both.index("{\n") :])
    at_once = [began(load, 0.1 * number) for number, load in enumerate(whole["jobs"])]
    (part,) = phases_of(read_result(json.dumps({**whole, "jobs": at_once})))
    assert len(part.loads) == 3
    two = [began(load, second) for load, second in zip(whole["jobs"], (0, 0.1, 1.3), strict=True)]
    parts = phases_of(read_result(json.dumps({**whole, "jobs": two})))
    assert [[load.name for load in part.loads] for part in parts] == [["reader", "mixed"], ["writer"]]


def test_a_run_too_short_for_one_after_another_ran_at_once() -> None:
    both = (FOLDER / "fio-2.21.both").read_text()
    whole, _ = json.JSONDecoder().raw_decode(both[both.index("{\n") :])
    jobs = [{**load, "elapsed": 1} for load in whole["jobs"]]
    assert len(phases_of(read_result(json.dumps({**whole, "jobs": jobs})))) == 1


def test_the_figures_of_a_column_are_those_of_the_whole() -> None:
    """fio's own IOPS leave out what was in flight when the ramp ended; beside a sum of completions they mislead."""
    both = (FOLDER / "fio-3.42.both").read_text()
    whole, _ = json.JSONDecoder().raw_decode(both[both.index("{\n") :])
    job = whole["jobs"][1]
    for direction in ("read", "write"):
        job[direction]["iops"] *= 0.7
    found = explained("mixed", read_result(json.dumps({**whole, "jobs": [job]})))
    (part,) = found.parts
    columns = [flow.measurement.get("iops") or 0 for flow in part.flows]
    assert sum(columns) == pytest.approx(part.measurement.get("iops"))
    assert columns == pytest.approx([300, 300], rel=0.1)


def test_reads_and_writes_of_a_mixed_load_have_metrics_of_their_own() -> None:
    (job,) = [load for load in read("fio-3.42.both").loads if load.name == "mixed"]
    measured = measurement_of(FioResult(source="json+", version=None, loads=(job,)))
    assert measured.get("read.iops") == pytest.approx(300, rel=0.1)
    assert job.streams[1].lat is not None
    assert measured.get("write.latency.mean") == job.streams[1].lat.mean_ns
    for stream, direction in zip(job.streams, ("read", "write"), strict=True):
        assert stream.clat is not None
        assert measured.get(f"{direction}.clat.p99") == stream.clat.percentile(99.0)
    assert {kind for kind, _ in measured.others} == {"clat", "read.clat", "write.clat"}


def test_cpu_time_stands_once_beside_reads_and_writes_of_one_job() -> None:
    (job,) = [load for load in read("fio-3.42.both").loads if load.name == "mixed"]
    found = explained("mixed", FioResult(source="json+", version=None, loads=(job,)))
    written = io.StringIO()
    Console(width=100, file=written).print(render([found]))
    shown = written.getvalue()
    (usr,) = [line for line in shown.splitlines() if line.startswith("usr CPU")]
    assert len(usr.split("%")) == 2  # one value, under "together"
    assert usr.rstrip().endswith("%")


def test_figures_of_explain_and_compare_are_written_alike() -> None:
    assert [quantity(BY_ID["bandwidth"], number) for number in (4.1e5, 1.5e6, 3.825e9)] == [
        "410 kB/s", "1.5 MB/s", "3,825 MB/s",
    ]  # fmt: skip
    assert quantity(BY_ID["latency.p99"], 12_125_000) == "12.1 ms"
    assert quantity(BY_ID["cpu.load.sys"], 18.29) == "18.3 %"
    assert quantity(BY_ID["iops"], 934_000) == "934k"
