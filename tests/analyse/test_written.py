# SPDX-License-Identifier: Apache-2.0
"""What of a load's writes reached this host's device: planted counters beside a recorded result of fio."""

import json
from random import Random

import pytest
from tests.analyse.edited_trials import HEADER, sample
from tests.analyse.recordings import recorded

from virtune.analyse.trial.derive import derive
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.measurement import Measurement
from virtune.model.stack import Stack


def trial(result: str, words: str, *, writes: int, sectors: int, seconds: int = 2, last: str = "stop") -> Measurement:
    (workload,) = parse_workload(words)
    begin, end = sample(1, "begin"), sample(1 + seconds, last)
    begin["diskstats"] = ["254 0 vda 0 0 0 0 7 0 70 0 0 0 0"]
    end["diskstats"] = [f"254 0 vda 0 0 0 0 {7 + writes} 0 {70 + sectors} 0 0 500 0"]
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in (HEADER, begin, end))
    return derive({"fio.json": result.encode(), "counters.jsonl": lines}, stack=Stack(rig="metal"), workload=workload)


def test_writes_bytes_and_their_share_are_those_that_were_planted() -> None:
    chance, result = Random(512), recorded("randwrite.both")
    (load,) = read_result(result).loads
    asked = sum(stream.bandwidth_bps for stream in load.streams)
    for _ in range(20):
        share, seconds = chance.uniform(0, 1.3), chance.randint(2, 30)
        sectors, writes = round(share * asked * seconds / 512), chance.randint(1, 10**6)
        found = trial(result, "randwrite-4k", writes=writes, sectors=sectors, seconds=seconds)
        assert found.get("device.writes") == pytest.approx(writes / seconds, rel=1e-6)
        assert found.get("device.written_bytes") == pytest.approx(sectors * 512 / seconds, rel=1e-6)
        assert found.get("device.reached") == pytest.approx(100 * share, abs=0.1)


def test_where_the_end_of_a_load_was_not_looked_at_nothing_is_counted_until_a_later_look() -> None:
    """The sampler's own last look comes after the load, and counts what others do until then."""
    found = trial(recorded("randwrite.both"), "randwrite-4k", writes=1000, sectors=8000, last="end")
    values = dict(found.values)
    assert values["iops"] > 0
    assert not {"device.writes", "device.reached", "cpu_per_io", "device.util", "cpu.host.usr"} & values.keys()
    assert "foreign-io" in dict(found.gates), "who disturbed it is told all the same"


def test_a_load_that_only_reads_has_none_of_them() -> None:
    found = trial(recorded("randread.both"), "randread-4k", writes=5, sectors=40)
    assert [name for name, _ in found.values if name.startswith("device.")] == ["device.util"]


def test_what_went_through_the_page_cache_says_what_reached_the_device() -> None:
    result = recorded("randwrite.both").replace('"direct" : "1"', '"direct" : "0"')
    told = trial(result, "rw=randwrite,bs=4k,direct=0", writes=1000, sectors=8000)
    said = " ".join(one.text for one in told.remarks if one.id == "page-cache")
    assert "Meanwhile vda moved" in said
    assert "in requests of 4 KiB" in said
    assert "Nothing shows" not in said
