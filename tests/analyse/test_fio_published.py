# SPDX-License-Identifier: Apache-2.0
"""The published results of studies 1 and 2: their figures come back as published, and a careful reader's doubts."""

import re
from collections.abc import Callable

import pytest
from tests.analyse.recordings import recorded

from virtune.analyse.trial.explain import beside, explain
from virtune.analyse.trial.measure import measurement_of
from virtune.fio.results import read_result
from virtune.model.measurement import FioResult
from virtune.model.remark import Remark, Weight

MIB = 1024**2
Variant = Callable[[str], str]

BEFORE: dict[str, float] = {
    "iops": 8213,
    "bandwidth": 32.1 * MIB,
    "latency.mean": 3.89e6,
    "clat.p50": 3_490_000,
    "clat.p70": 6_194_000,
    "clat.p90": 8_455_000,
    "clat.p95": 9_503_000,
    "clat.p99": 12_125_000,
    "cpu.load.sys": 18.29,
}
AFTER: dict[str, float] = {
    "iops": 9425,
    "bandwidth": 36.8 * MIB,
    "latency.mean": 3.39e6,
    "clat.p50": 2_933_000,
    "clat.p70": 5_538_000,
    "clat.p90": 7_767_000,
    "clat.p95": 8_717_000,
    "clat.p99": 11_207_000,
    "cpu.load.sys": 28.70,
}
ENGINES: dict[str, float] = {
    "iops": 934_000,
    "bandwidth": 3648 * MIB,
    "slat.mean": 1656,
    "clat.mean": 256,
    "latency.mean": 1913,
    "cpu.load.usr": 8.91,
    "cpu.load.sys": 78.87,
}


LATENCY = re.compile(r"(?m)^ +(slat|clat| lat|lat) \((?:nsec|usec)\):.*$")


def to_nsec(text: str) -> str:
    """Study 1's latencies in nsec, as fio prints them when the smallest are small."""

    def line(match: re.Match[str]) -> str:
        return re.sub(r"=\s*([\d.]+)", lambda m: f"={float(m[1]) * 1000:.2f}", match[0]).replace("usec", "nsec")

    return LATENCY.sub(line, text)


def to_usec(text: str) -> str:
    """Study 2's latencies in usec, with all the digits that were published."""

    def line(match: re.Match[str]) -> str:
        number = re.compile(r"=\s*([\d.]+)(?=[, ]|$)")
        return number.sub(lambda m: f"={float(m[1]) / 1000:.3f}", match[0]).replace("nsec", "usec")

    return LATENCY.sub(line, text)


def with_prompt(text: str) -> str:
    return "Last login: Mon Jan  6 09:58:11 2025 from 192.0.2.7\n$ sudo sync\n" + text


def with_trailing_text(text: str) -> str:
    return text + "\n$ cat /proc/loadavg\n0.42 0.33 0.20 1/234 5678\nAs we can see, IOPS=9999 is wrong { not JSON }\n"


def without_indentation(text: str) -> str:
    return "\r\n".join(line.strip() for line in text.splitlines())


def with_status_lines(text: str) -> str:
    status = "".join(
        f"Jobs: 1 (f=1): [r(1)][{n}.0%][r=32.0MiB/s][r=8192 IOPS][eta 00m:{60 - n}s]\r" for n in range(50)
    )
    return text.replace("\nrand", f"\n{status}\nrand", 2)


def in_colour(text: str) -> str:
    return re.sub(r"(?m)^(.*IOPS=.*)$", "\x1b[1;32m\\1\x1b[0m", text)


VARIANTS: tuple[Variant, ...] = (
    str,
    with_prompt,
    with_trailing_text,
    without_indentation,
    with_status_lines,
    in_colour,
)


def agree(result: FioResult, published: dict[str, float]) -> None:
    measurement = measurement_of(result)
    for metric, value in published.items():
        assert measurement.get(metric) == value, metric


def found(result: FioResult, name: str) -> Remark:
    remarks = [remark for remark in explain(result) if remark.id == name]
    assert len(remarks) == 1, [remark.id for remark in explain(result)]
    return remarks[0]


@pytest.mark.parametrize("variant", [*VARIANTS, to_nsec])
@pytest.mark.parametrize(
    ("name", "published", "stdev", "util"),
    [("study1-before.txt", BEFORE, 6368, 99.88), ("study1-after.txt", AFTER, 3951, 99.90)],
)
def test_study_1_comes_back_as_published(
    variant: Variant, name: str, published: dict[str, float], stdev: float, util: float
) -> None:
    result = read_result(variant(recorded(name)))
    agree(result, published)
    assert result.loads[0].streams[0].iops_stddev == stdev
    assert [device.busy_percent for device in result.devices] == [util]
    load = result.loads[0]
    assert (load.engine, load.pattern, load.depth, load.block_size) == ("libaio", "randread", 32, 4096)
    assert (load.direct, load.error) == (True, 0)


@pytest.mark.parametrize("variant", [*VARIANTS, to_usec])
def test_study_2_comes_back_as_published(variant: Variant) -> None:
    result = read_result(variant(recorded("study2.txt")))
    agree(result, ENGINES)
    assert [(device.name, device.writes, device.busy_percent) for device in result.devices] == [
        ("nvme0n1", 218_827, 68.89)
    ]
    assert (result.loads[0].jobs, result.loads[0].depth, result.loads[0].direct) == (4, 4, None)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("study1-before.txt", ("78 %", "6,368", "8,213", "119 samples", "below 20 %")),
        ("study1-after.txt", ("42 %", "3,951", "9,425", "119 samples", "below 11 %")),
    ],
)
def test_study_1_is_doubted_for_its_spread(name: str, numbers: tuple[str, ...]) -> None:
    remark = found(read_result(recorded(name)), "spread")
    assert remark.weight is Weight.WARNING
    for number in numbers:
        assert number in remark.text
    assert "interleaved rounds" in remark.advice


def test_the_15_percent_of_study_1_are_within_chance() -> None:
    before, after = read_result(recorded("study1-before.txt")), read_result(recorded("study1-after.txt"))
    remark = beside(before, after)
    assert remark is not None
    assert remark.weight is Weight.WARNING
    assert "+14.8 %" in remark.text
    assert "up to 15.8 % apart by chance: this shows no difference" in remark.text


def test_study_1_gives_no_other_doubt() -> None:
    for name in ("study1-before.txt", "study1-after.txt"):
        doubts = [r.id for r in explain(read_result(recorded(name))) if r.weight is not Weight.NOTE]
        assert doubts == ["spread"]


def test_study_2_has_the_page_cache_s_latency_and_the_drive_s_bandwidth() -> None:
    remark = found(read_result(recorded("study2.txt")), "page-cache")
    assert remark.weight is Weight.WARNING
    assert remark.text.startswith("The latencies and the operations a second are the page cache's")
    for number in ("256 ns", "2 us", "28,019,620", "218,827 requests", "99 % of the bytes", "509 KiB"):
        assert number in remark.text
    assert "bandwidth is that of nvme0n1" in remark.text


def test_without_what_the_drive_wrote_study_2_measured_the_page_cache() -> None:
    remark = found(read_result(recorded("study2.txt").replace(" sectors=0/222737912,", "")), "page-cache")
    assert remark.weight is Weight.INVALID
    assert remark.text.startswith("This measured the page cache, not the disk")
    few = recorded("study2.txt").replace("sectors=0/222737912", "sectors=0/2227379")
    assert found(read_result(few), "page-cache").weight is Weight.INVALID


def test_p99_95_of_study_2_is_what_was_published() -> None:
    (stream,) = read_result(recorded("study2.txt")).loads[0].streams
    assert stream.clat is not None
    assert stream.clat.percentile(99.95) == 612


@pytest.mark.parametrize("split", [False, True])
def test_the_command_line_adds_that_study_2_was_buffered(split: bool) -> None:
    words = ["$ fio --name=randwrite --ioengine=libaio --rw=randwrite", "--bs=4k --size=1G --numjobs=4"]
    words += ["--time_based --runtime=30s --group_reporting"]
    command = (" \\\n    " if split else " ").join(words)
    result = read_result(f"{command}\n{recorded('study2.txt')}")
    assert result.loads[0].direct is False
    text = found(result, "page-cache").text
    assert "the job is buffered (direct=1 was not set)" in text


def test_study_2_was_paced_by_its_load_generator() -> None:
    remark = found(read_result(recorded("study2.txt")), "little")
    assert remark.weight is Weight.WARNING
    for number in ("1.79", "4 asked for", "55 %", "8.91 %", "78.87 %"):
        assert number in remark.text


def test_the_most_severe_comes_first() -> None:
    text = recorded("study2.txt").replace(" sectors=0/222737912,", "")
    weights = [remark.weight for remark in explain(read_result(text))]
    assert weights[0] is Weight.INVALID
    assert weights == sorted(weights, key=[Weight.INVALID, Weight.WARNING, Weight.NOTE].index)
