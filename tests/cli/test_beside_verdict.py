# SPDX-License-Identifier: Apache-2.0
"""A comparison says what its verdict hides: a tail that became worse at the same IOPS, or at more."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.analyse.recordings import FOLDER
from tests.cli.kept_results import Capture, Kept
from tests.published import strictly

RATE = 500
RUNS = 8


@pytest.fixture
def kept(tmp_path: Path, capsys: Capture) -> Kept:
    return Kept(tmp_path, capsys)


def runs(folder: Path, *, iops: float = 1.0, tail: float = 1.0, body: float = 1.0, rated: bool = True) -> str:
    """Runs that a real one of 500 IOPS was made into, ten times as long: the factors are of its I/Os, of the slowest
    twentieth, and of the others; each run is 1 % off, its IOPS less.
    """
    chance, text = Random(folder.name), (FOLDER / "rate-met.both").read_text()
    folder.mkdir()
    for number in range(RUNS):
        document, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        document["timestamp_ms"] += 60_000 * number
        document.pop("disk_util")  # it counted the I/Os of the real run
        (job,) = document["jobs"]
        job["job options"] |= {"rate_iops": str(RATE)} if rated else {}
        if not rated:
            del job["job options"]["rate_iops"]
        read, slow = job["read"], chance.gauss(1, 0.01)
        cut = read["clat_ns"]["percentile"]["95.000000"]
        times = 10 * iops * chance.gauss(1, 0.0005 if rated else 0.005)

        def moved(value: float, tail: float = tail * slow, body: float = body * slow, cut: float = cut) -> int:
            return round(value * (tail if value > cut else body))

        read["total_ios"] = round(read["total_ios"] * times)
        read["runtime"] *= 10
        job["job_runtime"] *= 10
        read["io_bytes"] = read["total_ios"] * 4096
        read["io_kbytes"] = read["total_ios"] * 4
        read["iops"] = read["total_ios"] / read["runtime"] * 1000
        read["bw_bytes"] = round(read["iops"] * 4096)
        read["bw"] = read["bw_bytes"] // 1024
        for kind in ("lat_ns", "clat_ns"):
            _slower(read[kind], moved, times)
        read["lat_ns"]["mean"] = read["clat_ns"]["mean"] + read["slat_ns"]["mean"]
        read["slat_ns"]["N"] = read["clat_ns"]["N"]
        (folder / f"{number}.json").write_text(json.dumps(document))
    return str(folder)


def _slower(found: dict[str, Any], moved: Callable[[float], int], times: float) -> None:
    """Give a kind of latency other values, and so many times as many of them."""
    for key in ("min", "max"):
        found[key] = moved(found[key])
    found["N"] = round(found["N"] * times)
    if "bins" not in found:
        return
    bins: dict[str, int] = {}
    for value, count in found["bins"].items():
        bins[str(moved(float(value)))] = bins.get(str(moved(float(value))), 0) + round(count * times)
    found["bins"], found["N"] = bins, sum(bins.values())
    found["mean"] = sum(float(value) * count for value, count in bins.items()) / found["N"]
    found["percentile"] = {percent: moved(value) for percent, value in found["percentile"].items()}


def beside(kept: Kept, *words: str) -> str:
    """What stands beside the verdict: the same in the text, in Markdown, on the page and in JSON."""
    report = kept.store.parent / "report.html"
    told = strictly(kept("compare", *words, "--json"))["patterns"]
    line = next((one for one in told if one.startswith("beside ")), "")
    shown = kept("compare", *words, "--markdown", "-", "--report", str(report))
    text = " ".join(kept("compare", *words).split())
    for page in (shown, text, report.read_text()):
        assert (line or "beside IOPS") in page if line else "beside IOPS" not in page
    return line


def test_a_tail_that_is_worse_at_the_rate_that_the_job_asks_for_is_said(kept: Kept, tmp_path: Path) -> None:
    before, after = runs(tmp_path / "rlA"), runs(tmp_path / "rlB", tail=2.5)
    line = beside(kept, before, after)
    assert "rlB measured the same as rlA" in kept("compare", before, after)
    assert line.startswith("beside IOPS: rlB: clat p99 +1"), line
    assert "(worse)" in line
    assert line.endswith("; IOPS are those the job asks for")
    assert "(better)" in beside(kept, after, before)


def test_a_tail_that_is_worse_at_more_iops_is_said(kept: Kept, tmp_path: Path) -> None:
    before, after = runs(tmp_path / "slow", rated=False), runs(tmp_path / "fast", iops=1.099, tail=2.0, rated=False)
    line = beside(kept, before, after)
    assert "fast measured better than slow" in kept("compare", before, after)
    assert "fast: clat p99 +" in line
    assert "better" not in line
    assert "asks for" not in line


def test_nothing_is_said_where_the_verdict_says_it(kept: Kept, tmp_path: Path) -> None:
    before, worse = runs(tmp_path / "one", rated=False), runs(tmp_path / "two", iops=0.8, tail=2.0, rated=False)
    assert beside(kept, before, worse) == ""
    better = runs(tmp_path / "three", iops=1.2, tail=0.5, body=0.8, rated=False)
    assert beside(kept, before, better) == ""
    # what is judged by is no longer beside it
    assert "clat p99" not in beside(kept, before, worse, "--metric", "latency.p99")


def test_nothing_is_said_of_a_percentile_that_is_uncertain(kept: Kept, tmp_path: Path) -> None:
    before, after = Path(runs(tmp_path / "rlA")), Path(runs(tmp_path / "rlB", tail=2.5))
    for one in (*before.iterdir(), *after.iterdir()):
        document = json.loads(one.read_text())
        for kind in ("lat_ns", "clat_ns"):
            document["jobs"][0]["read"][kind].pop("bins", None)
        one.write_text(json.dumps(document))
    assert "~" in kept("compare", str(before), str(after), "-v")
    line = beside(kept, str(before), str(after))
    assert "latency mean +" in line
    assert "clat p99" not in line


def test_arms_measured_in_turn_say_it_as_well(kept: Kept) -> None:
    words = ("--rig", "simulated", "--arm", "a:", "--arm", "b:disk.aio=native", "--rounds", "6", "--quiet")
    shown = kept("compare", *words, "--workload", "rw=randread,bs=4k,iodepth=64,rate_iops=36000")
    assert "beside IOPS: b: latency" in shown
    assert "(better)" in shown
