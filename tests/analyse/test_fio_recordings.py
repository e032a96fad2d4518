# SPDX-License-Identifier: Apache-2.0
"""Real fio results, in every form that fio gives them."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.analyse.recordings import BOTH, recorded, text_of

from virtune.analyse.trial.measure import measurement_of
from virtune.fio.results import read_result, read_runs
from virtune.fio.results_text import read_text
from virtune.model.errors import ReadError
from virtune.model.measurement import Latency, LoadResult, Stream

COUNTS = ("context_switches", "major_faults", "minor_faults")

WITH_IO = [name for name in BOTH if name != "missing.both"]


def only(name: str) -> LoadResult:
    loads = read_result(recorded(name)).loads
    assert len(loads) == 1
    return loads[0]


@pytest.mark.parametrize("name", WITH_IO)
def test_percentiles_from_bins_are_those_fio_prints(name: str) -> None:
    checked = 0
    for load in read_result(recorded(name)).loads:
        kinds = [kind for stream in load.streams for kind in (stream.slat, stream.clat, stream.lat)]
        for latency in [*kinds, load.sync]:
            if latency is not None and latency.histogram is not None:
                assert latency.histogram.count == latency.count
                for percent, printed in latency.percentiles:
                    assert latency.histogram.percentile(percent) == printed
                    checked += 1
    assert checked


@pytest.mark.parametrize("name", WITH_IO)
def test_text_and_json_of_one_run_agree_as_far_as_the_text_goes(name: str) -> None:
    exact, printed = read_result(recorded(name)), read_text(text_of(name))
    assert exact.version == printed.version == "fio-3.33"
    assert (exact.source, printed.source) == ("json+", "text")
    assert len(exact.loads) == len(printed.loads)
    for one, other in zip(exact.loads, printed.loads, strict=True):
        for field in ("name", "engine", "pattern", "block_size", "jobs", "error", "errors", *COUNTS):
            assert getattr(one, field) == getattr(other, field), field
        assert one.depth in (other.depth, None)
        assert one.usr_percent == pytest.approx(other.usr_percent, abs=0.006)
        assert one.sys_percent == pytest.approx(other.sys_percent, abs=0.006)
        for levels in ("depth_levels", "submit_levels", "complete_levels"):
            assert dict(getattr(one, levels)) == pytest.approx(dict(getattr(other, levels)), abs=0.0006), levels
        assert [stream.direction for stream in one.streams] == [stream.direction for stream in other.streams]
        for mine, theirs in zip(one.streams, other.streams, strict=True):
            agree(mine, theirs)
        latencies_agree(one.sync, other.sync)
    devices = [(d.name, d.reads, d.writes, d.read_merges, d.read_seconds) for d in exact.devices]
    assert devices == [(d.name, d.reads, d.writes, d.read_merges, d.read_seconds) for d in printed.devices]
    for device, shown in zip(exact.devices, printed.devices, strict=True):
        assert device.busy_percent == pytest.approx(shown.busy_percent, abs=0.006)


def agree(exact: Stream, printed: Stream) -> None:
    assert exact.ios == printed.ios
    assert exact.seconds == printed.seconds
    assert (exact.short_ios, exact.dropped_ios) == (printed.short_ios, printed.dropped_ios)
    assert exact.iops_samples in (printed.iops_samples, 0)
    # four characters, one of which may be the point
    assert exact.iops == pytest.approx(printed.iops, rel=0.01)
    assert exact.bandwidth_bps == pytest.approx(printed.bandwidth_bps, rel=0.01)
    assert exact.bytes == pytest.approx(printed.bytes, rel=0.01)
    for field in ("iops_min", "iops_max", "iops_mean", "iops_stddev"):
        if getattr(printed, field) is not None:
            assert getattr(exact, field) == pytest.approx(getattr(printed, field), abs=0.006), field
    for field in ("slat", "clat", "lat"):
        latencies_agree(getattr(exact, field), getattr(printed, field))


def latencies_agree(exact: Latency | None, printed: Latency | None) -> None:
    if exact is None or printed is None:
        assert exact is printed
        return
    assert exact.count == printed.count
    # printed to two places of a unit that is a microsecond here, rounded up in percentiles
    assert exact.mean_ns == pytest.approx(printed.mean_ns, abs=6)
    assert exact.stddev_ns == pytest.approx(printed.stddev_ns, abs=6)
    assert dict(exact.percentiles).keys() == dict(printed.percentiles).keys() or not printed.percentiles
    for percent, value in printed.percentiles:
        assert 0 <= value - (exact.percentile(percent) or 0) < 1000


def test_what_was_asked_is_read_from_the_options() -> None:
    load = only("randrw-group.both")
    assert (load.engine, load.pattern, load.block_size, load.direct) == ("libaio", "randrw", 4096, True)
    assert (load.jobs, load.depth) == (2, 16)
    assert [stream.direction for stream in load.streams] == ["read", "write"]
    assert dict(load.depth_levels)["8"] > 0.99
    assert load.option("iodepth") == "8"


def test_clones_are_one_job_each_and_a_group_is_all_of_them() -> None:
    clones = read_result(recorded("clones.both")).loads
    assert [(load.name, load.jobs, load.depth) for load in clones] == [("clone", 1, 1)] * 2
    group = only("sections-group.both")
    assert (group.name, group.jobs, group.pattern, group.depth) == ("reader", 3, None, None)
    # fio echoes the options of one section only; what the global section says holds for all
    assert (group.engine, group.direct, group.block_size, group.options) == ("psync", True, 4096, None)
    # the text says more: no section has clones that are not announced, and all have depth 1
    assert read_text(text_of("sections-group.both")).loads[0].depth == 3


def test_sections_keep_their_own_options() -> None:
    reader, writer = read_result(recorded("sections.both")).loads
    assert (reader.name, reader.pattern, reader.block_size, reader.depth) == ("reader", "randread", 4096, 4)
    assert (writer.name, writer.pattern, writer.block_size, writer.depth) == ("writer", "write", 16384, 2)
    shown = read_text(text_of("sections.both")).loads
    assert [(load.block_size, load.depth) for load in shown] == [(4096, 4), (16384, 2)]


def test_fsync_has_a_latency_of_its_own() -> None:
    load = only("fsync.both")
    assert load.sync is not None
    assert load.sync.count == 10698
    assert load.sync.mean_ns == pytest.approx(164_613.28, abs=0.01)
    assert measurement_of(read_result(recorded("fsync.both"))).get("sync.mean") == load.sync.mean_ns


def test_the_rate_asked_for_is_known() -> None:
    assert only("rate-met.both").rate_asked_iops == 500
    assert only("rate-unmet.both").rate_asked_iops == 500_000
    assert only("randread.both").rate_asked_iops is None


def test_mixed_directions_are_read_and_never_counted_twice() -> None:
    assert [stream.direction for stream in only("unified-mixed.both").streams] == ["mixed"]
    assert [stream.direction for stream in only("unified-both.both").streams] == ["read", "write"]


def test_bins_of_the_total_latency_stand_in_where_completion_has_none() -> None:
    stream = only("lat-percentiles.both").streams[0]
    assert stream.clat is not None
    assert stream.lat is not None
    assert stream.clat.histogram is None
    assert stream.lat.histogram is not None
    assert measurement_of(read_result(recorded("lat-percentiles.both"))).get("latency.p99") == 183_296


def test_plain_json_has_percentiles_and_no_bins() -> None:
    result = read_result(recorded("plain.json"))
    assert result.source == "json"
    assert measurement_of(result).histogram is None
    assert measurement_of(result).get("clat.p99") == 156_672
    assert measurement_of(result).get("latency.p99") is None  # fio printed none of the total latency


def test_chatter_before_the_json_is_passed_over() -> None:
    text = recorded("nbd-stdout.txt")
    assert text.startswith("fio: connected to NBD server")
    assert read_result(text).loads[0].engine == "nbd"


@pytest.mark.parametrize("name", ["two-clients.json", "two-clients.txt"])
def test_the_sum_of_all_clients_is_not_counted_again(name: str) -> None:
    text = recorded(name)
    assert "All clients" in text
    result = read_result(text)
    assert [load.name for load in result.loads] == ["remote", "remote"]
    ios = sum(stream.ios or 0 for load in result.loads for stream in load.streams)
    assert ios == {"two-clients.json": 24_783 + 24_792, "two-clients.txt": 22_837 + 22_775}[name]


def test_the_several_jobs_of_two_clients_are_one_run_whose_sum_fio_says() -> None:
    text = recorded("two-clients-three-jobs.txt")
    loads = read_result(text).loads
    assert [load.name for load in loads] == ["x", "y", "z", "x", "y", "z"]
    assert sum(stream.ios or 0 for load in loads for stream in load.streams) == 85_817
    assert "issued rwts: total=85817," in text.partition("All clients")[2]


def test_of_status_intervals_the_last_holds() -> None:
    text = recorded("status-interval.txt")
    assert text.count("groupid=0") == 3
    assert [stream.ios for load in read_result(text).loads for stream in load.streams] == [84_370]


def test_a_recorded_terminal_is_read() -> None:
    text = (recorded("terminal.txt")).replace("read:", "\x1b[32mread\x1b[0m:")
    assert text.count("\r") > 5
    assert read_result(text).loads[0].streams[0].iops == 41_900


def test_terse_output_is_refused_in_words() -> None:
    with pytest.raises(ReadError, match="terse format") as caught:
        read_result(recorded("terse.txt"))
    assert caught.value.exit_code == 2
    assert "json+" in (caught.value.hint or "")


def test_a_run_without_io_is_a_result_in_json_and_none_in_text() -> None:
    load = only("missing.both")
    assert load.streams == ()
    assert measurement_of(read_result(recorded("missing.both"))).values == ()
    with pytest.raises(ReadError, match="did no I/O at all"):
        read_text(text_of("missing.both"))


SEVERAL = (
    ("study1-before.txt", "study1-after.txt"),
    ("randread.both", "randwrite.both", "randread.both"),
    ("sections.both", "sections-group.both"),
    ("two-clients.txt", "two-clients.txt"),
    ("two-clients-three-jobs.txt", "two-clients.txt", "two-clients-three-jobs.txt"),
    ("status-interval.txt", "terminal.txt"),
    ("clones.both", "clones.both"),
)


@pytest.mark.parametrize("names", SEVERAL, ids="+".join)
def test_runs_in_one_text_are_read_one_by_one(names: tuple[str, ...]) -> None:
    texts = [text_of(name) if name.endswith(".both") else recorded(name) for name in names]
    together = "\nThe next one, with fio from the same machine:\n\n".join(texts)
    assert [run.result for run in read_runs(together)] == [read_text(text) for text in texts]
    with pytest.raises(ReadError, match=f"holds {len(names)} fio runs"):
        read_result(together)


def test_runs_whose_json_was_appended_to_one_file_are_read_one_by_one() -> None:
    names = ("randread.both", "plain.json", "randread.both", "two-clients.json")
    runs = read_runs("\n".join(map(recorded, names)))
    assert [run.result for run in runs] == [read_result(recorded(name)) for name in names]
    assert [read_result(run.text) for run in runs] == [run.result for run in runs]
    with pytest.raises(ReadError, match="holds 4 fio runs"):
        read_result("".join(map(recorded, names)))


def later(document: dict[str, Any], seconds: float, factor: float) -> dict[str, Any]:
    """The same result as fio would have written it that much later, with so many times the I/Os and the time."""
    document = json.loads(json.dumps(document))
    document["timestamp_ms"] += round(seconds * 1000)
    for job in document["jobs"]:
        job["elapsed"] = math.ceil(job["read"]["runtime"] * factor / 1000)
        for direction in ("read", "write"):
            for key in ("total_ios", "io_bytes", "runtime"):
                job[direction][key] = round(job[direction][key] * factor)
            job[direction]["lat_ns"]["N"] = round(job[direction]["lat_ns"]["N"] * factor)
    return document


def test_states_of_one_run_are_not_taken_for_runs() -> None:
    first = json.loads("{\n" + recorded("randread.both").partition("\n{\n")[2].partition("\n}\n")[0] + "\n}")
    took = first["jobs"][0]["read"]["runtime"] / 1000
    states = [later(first, took * (n - 1), n) for n in (1, 2, 3)]
    (run,) = read_runs("\n".join(map(json.dumps, states)))
    assert (run.states, run.result) == (3, read_result(json.dumps(states[-1])))
    # the same job again, begun when the first was over
    again = later(states[-1], took * 3 + 1, 1)
    assert [one.states for one in read_runs("\n".join(map(json.dumps, [*states, again])))] == [3, 1]


def test_a_fio_that_says_when_a_job_began_tells_runs_from_states() -> None:
    document = json.loads(recorded("plain.json"))
    for job in document["jobs"]:
        job["job_start"] = 1_795_000_000_000
    another = json.loads(json.dumps(document))
    another["jobs"][0]["job_start"] += 1
    same, other = json.dumps(document), json.dumps(another)
    assert [run.states for run in read_runs(f"{same}\n{same}\n{other}")] == [2, 1]


def test_of_several_runs_a_bad_one_is_named() -> None:
    bad = json.loads(recorded("plain.json"))
    bad["jobs"][0]["read"]["bw_bytes"] *= 1000
    with pytest.raises(ReadError, match="run 2 of 2: this fio result contradicts itself"):
        read_runs(recorded("randread.both") + json.dumps(bad))


def test_means_of_several_jobs_are_weighted_and_counts_add_up() -> None:
    result = read_result(recorded("sections.both"))
    streams = [stream for load in result.loads for stream in load.streams]
    measurement = measurement_of(result)
    ios = [stream.ios or 0 for stream in streams]
    added = measurement.histogram_of("clat")
    assert added is not None
    assert added.count == sum(ios)
    assert measurement.get("iops") == pytest.approx(sum(stream.iops for stream in streams))
    expected = sum(stream.clat.mean_ns * n for stream, n in zip(streams, ios, strict=True) if stream.clat) / sum(ios)
    assert measurement.get("clat.mean") == pytest.approx(expected)
    # percentiles of several distributions need their bins: the text has none, so it has no percentile of the whole
    assert measurement_of(read_text(text_of("sections.both"))).get("clat.p99") is None


def test_bins_of_some_of_the_jobs_are_not_those_of_all() -> None:
    result = read_result(recorded("sections.both"))
    first, second = result.loads
    (stream,) = second.streams
    assert stream.clat is not None
    without = replace(second, streams=(replace(stream, clat=replace(stream.clat, histogram=None)),))
    measurement = measurement_of(replace(result, loads=(first, without)))
    assert measurement.histogram_of("clat") is None
    assert measurement.get("clat.p99") is None


def test_a_kind_of_latency_that_only_some_have_has_no_mean() -> None:
    synchronous, asynchronous = read_result(recorded("clones.both")), read_result(recorded("sections.both"))
    assert measurement_of(synchronous).get("slat.mean") is None
    assert measurement_of(asynchronous).get("slat.mean") is not None
