# SPDX-License-Identifier: Apache-2.0
"""DiskSpd's two reports, written as its sources print them, are read alike, and refused where they are broken."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from tests.conftest import User

from virtune.fio.results import read_result, read_runs, text_of
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult

Facts = dict[str, Any]
Form = Callable[..., str]

PATH = r"C:\test one.dat"
TARGET: Facts = {
    "path": PATH, "block": 8192, "writes": 30, "random": 100, "cached": False, "requests": 4, "threads": 2, "rate": 0,
}  # fmt: skip
SPAN: Facts = {
    "seconds": 30.01,
    "threads": 2,
    "pool": 0,
    "read": (70_000, 0.512),
    "write": (30_000, 1.25),
    "latency": True,
}
LABELS = {"25th": 25, "50th": 50, "99th": 99, "3-nines": 99.9, "5-nines": 99.999}
WAYS = ("read", "write")


def as_text(targets: list[Facts], *spans: Facts) -> str:
    lines = ["", r"Command Line: diskspd.exe -L C:\test.dat", "", "Input parameters:", ""]
    for number, span in enumerate(spans, 1):
        lines += [f"\ttimespan: {number:3}", "\t-------------", "\tduration: 30s", "\twarm up time: 5s"]
        if span["pool"]:
            lines.append(f"\tthread pool with {span['pool']} threads")
        for target in targets:
            lines += echo_in_text(target, span)
    lines += ["", "System information:", "", "\tcomputer name: vm", "\tstart time: 2026/11/30 11:00:00 UTC", ""]
    for number, span in enumerate(spans, 1):
        lines += figures_in_text(number, span)
    return "\n".join(lines)


def echo_in_text(target: Facts, span: Facts) -> list[str]:
    writes, random = target["writes"], target["random"]
    mix = f"performing mix test (read/write ratio: {100 - writes}/{writes})"
    mixed = f"using mixed random/sequential I/O ({random}% random) (alignment/stride: 8KiB)"
    own = [f"threads per file: {target['threads']}", "using I/O Completion Ports"]
    words = [
        "think time: 0ms", "using software cache" if target["cached"] else "software cache disabled",
        {0: "performing read test", 100: "performing write test"}.get(writes, mix),
        f"block size: {target['block'] // 1024}KiB",
        {0: "using sequential I/O (stride: 8KiB)", 100: "using random I/O (alignment: 8KiB)"}.get(random, mixed),
        f"number of outstanding I/O operations per thread: {target['requests']}",
        *([] if span["pool"] else own), "IO priority: normal",
        *([f"throughput rate-limited to {target['rate']} IOPS"] if target["rate"] else []),
    ]  # fmt: skip
    return [f"\tpath: '{target['path']}'", *(f"\t\t{word}" for word in words)]


def figures_in_text(number: int, span: Facts) -> list[str]:
    lines = [
        f"Results for timespan {number}:", "*" * 79, "", f"actual test time:\t{span['seconds']:.2f}s",
        f"thread count:\t\t{span['threads']}", "", "CPU |  Usage |  User  | Kernel |  Idle", "-" * 40,
        "   0|   9.02%|   1.36%|   7.65%|  90.98%", "",
    ]  # fmt: skip
    tables = {
        "Total IO": (sum(span[way][0] for way in WAYS), 0.7),
        **{f"{way.title()} IO": span[way] for way in WAYS},
    }
    for title, (count, mean) in tables.items():
        names, row = ["thread", "bytes", "I/Os", "MiB/s", "I/O per s"], [f"{count * 8192:15}", f"{count:12}"]
        row += [f"{count / 128 / span['seconds']:10.2f}", f"{count / span['seconds']:10.2f}"]
        if span["latency"]:
            names += ["AvgLat", "LatStdDev"]
            row += [f"{mean:8.3f}", f"{mean / 2:8.3f}" if count else "      N/A"]
        lines += [title, " | ".join([*names, "file"]), "-" * 90]
        lines += [" | ".join(["     0", *row, f"{PATH} (1GiB)"]), "-" * 90, "total:   " + " | ".join(row), ""]
    if span["latency"]:
        lines += ["Total latency distribution:", "  %-ile |  Read (ms) | Write (ms) | Total (ms)", "-" * 46]
        factors = {"min": 0.1, **{label: 1 + at / 100 for label, at in LABELS.items()}, "max": 9.0}
        for label, factor in factors.items():
            cells = [f"{span[way][1] * factor:.3f}" if span[way][0] else "N/A" for way in WAYS]
            lines.append(f"{label:>7} | {cells[0]:>10} | {cells[1]:>10} | {factor:10.3f}")
    return [*lines, "", ""]


def tag(name: str, *inner: object) -> str:
    return f"<{name}>{''.join(one if isinstance(one, str) else str(one) for one in inner)}</{name}>\n"


def as_xml(targets: list[Facts], *spans: Facts) -> str:
    asked = "".join(
        tag(
            "TimeSpan", tag("ThreadCount", span["pool"]), tag("RequestCount", 0),
            tag("Targets", *(echo_in_xml(target) for target in targets)),
        )
        for span in spans
    )  # fmt: skip
    system = tag("System", tag("ComputerName", "vm"), tag("Tool", tag("Version", "2.2.0")))
    found = "".join(figures_in_xml(span) for span in spans)
    return tag("Results", "\n", system, tag("Profile", tag("TimeSpans", asked)), found)


def echo_in_xml(target: Facts) -> str:
    random = target["random"]
    limit = f'<Throughput unit="IOPS">{target["rate"]}</Throughput>' if target["rate"] else tag("Throughput", 0)
    return tag(
        "Target", tag("Path", escape(target["path"])), tag("BlockSize", target["block"]),
        "" if target["cached"] else tag("DisableOSCache", "true"), tag("Random", 8192) if random else "",
        tag("RandomRatio", random) if 0 < random < 100 else "", tag("RequestCount", target["requests"]),
        tag("WriteRatio", target["writes"]), limit, tag("ThreadsPerFile", target["threads"]),
    )  # fmt: skip


def figures_in_xml(span: Facts) -> str:
    ways = [way for way in WAYS if span[way][0]]
    latency = [
        tag(f"Average{way.title()}Milliseconds", f"{span[way][1]:.3f}")
        + tag(f"{way.title()}LatencyStdev", f"{span[way][1] / 2:.3f}")
        for way in ways
    ]
    for at, factor in {0: 0.1, **{at: 1 + at / 100 for at in LABELS.values()}, 100: 9.0}.items():
        values = [tag(f"{way.title()}Milliseconds", f"{span[way][1] * factor:.3f}") for way in ways]
        latency.append(tag("Bucket", tag("Percentile", at), *values))
    counts = [
        tag(f"{way.title()}Count", span[way][0]) + tag(f"{way.title()}Bytes", span[way][0] * 8192) for way in WAYS
    ]
    return tag(
        "TimeSpan", tag("TestTimeSeconds", f"{span['seconds']:.2f}"), tag("ThreadCount", span["threads"]),
        tag("Latency", *latency) if span["latency"] else "", tag("Thread", tag("Target", tag("Path", PATH), *counts)),
    )  # fmt: skip


def both(targets: list[Facts], *spans: Facts) -> FioResult:
    """Read both reports of the same figures, which must say the same, and return what they say."""
    text, xml = read_result(as_text(targets, *spans)), read_result(as_xml(targets, *spans))
    assert (text.version, xml.version) == ("DiskSpd", "DiskSpd 2.2.0")
    assert dataclasses.replace(text, version=xml.version) == xml
    return xml


def test_the_figures_are_those_of_the_report() -> None:
    result = both([TARGET], SPAN)
    assert result.host == "vm"
    (load,) = result.loads
    assert (load.name, load.pattern, load.block_size, load.direct) == (PATH, "randrw", 8192, True)
    assert (load.jobs, load.depth, load.rate_asked_iops, load.engine, load.options) == (2, 8, None, None, None)
    read, write = load.streams
    assert (read.direction, read.ios, read.bytes, read.seconds) == ("read", 70_000, 70_000 * 8192, 30.01)
    assert read.iops == pytest.approx(70_000 / 30.01)
    assert read.clat is read.slat is None
    assert write.lat is not None
    assert (write.lat.count, write.lat.mean_ns, write.lat.stddev_ns) == (30_000, 1_250_000, 625_000)
    assert (write.lat.min_ns, write.lat.max_ns) == (125_000, 11_250_000)
    printed = {at: float(f"{1.25 * (1 + at / 100):.3f}") * 1e6 for at in LABELS.values()}
    assert dict(write.lat.percentiles) == pytest.approx(printed)


@pytest.mark.parametrize(
    ("asked", "span", "found"),
    [
        ({"writes": 0}, {"write": (0, 0.0)}, {"pattern": "randread"}),
        ({"writes": 100, "random": 0}, {"read": (0, 0.0)}, {"pattern": "write"}),
        ({"random": 30}, {}, {"pattern": None}),
        ({"cached": True}, {}, {"direct": False}),
        ({"rate": 500}, {}, {"rate_asked_iops": 1000.0}),
        ({}, {"latency": False}, {}),
        ({}, {"threads": 6, "pool": 6}, {"jobs": 6, "depth": 24}),
        ({}, {"threads": 6}, {"jobs": 6, "depth": None}),
    ],
)
def test_what_was_asked_for_is_read_of_both_reports(asked: Facts, span: Facts, found: Facts) -> None:
    (load,) = both([TARGET | asked], SPAN | span).loads
    assert {name: getattr(load, name) for name in found} == found
    assert {stream.lat is not None for stream in load.streams} == {(SPAN | span)["latency"]}
    assert all(stream.ios for stream in load.streams)


def test_targets_that_differ_are_one_load_of_what_they_share() -> None:
    other = TARGET | {"path": r"D:\two.dat", "block": 4096, "requests": 1}
    (load,) = both([TARGET, other], SPAN | {"threads": 4}).loads
    assert (load.name, load.block_size, load.pattern, load.depth) == ("2 targets", None, "randrw", 10)


def test_time_spans_are_loads_one_after_the_other() -> None:
    loads = both([TARGET], SPAN, SPAN | {"read": (7, 0.1)}).loads
    assert [(load.group, load.streams[0].ios) for load in loads] == [(0, 70_000), (1, 7)]


@pytest.mark.parametrize("form", [as_text, as_xml])
def test_several_reports_in_one_file_are_several_runs(form: Form) -> None:
    whole = form([TARGET], SPAN) + "\n" + form([TARGET], SPAN | {"read": (7, 0.1)})
    runs = read_runs(text_of(b"\xff\xfe" + whole.encode("utf-16-le")))  # as PowerShell redirects it
    assert [run.result.streams[0].ios for run in runs] == [70_000, 7]
    assert [read_result(run.text) for run in runs] == [run.result for run in runs]


@pytest.mark.parametrize("form", [as_text, as_xml])
def test_what_is_cut_anywhere_is_a_sentence_or_a_result_of_what_is_there(form: Form) -> None:
    whole = form([TARGET], SPAN)
    for end in range(0, len(whole), 7):
        try:
            found = read_result(whole[:end])
        except ReadError:
            continue
        assert [stream.ios for stream in found.streams] == [70_000, 30_000], end


@pytest.mark.parametrize(
    ("pattern", "by", "says"),
    [
        (r"<TestTimeSeconds>.*?<", "<TestTimeSeconds>0.00<", "a time span of 0 s has no figures"),
        (r"<ReadCount>.*?<", "<ReadCount>-7<", "ReadCount of this DiskSpd result is '-7', no number"),
        (r"<ReadBytes>.*?<", "<ReadBytes>1e9<", "ReadBytes of this DiskSpd result is '1e9', no number"),
        (r"<TimeSpan>\s*<TestTime.*</TimeSpan>", "", "has no figures"),
        (r"</Profile>", "", "is no XML"),
        (r"<Profile>", "<!-- --><Profile>", "more than the XML of a DiskSpd result"),
    ],
)
def test_what_diskspd_cannot_have_written_is_refused(pattern: str, by: str, says: str) -> None:
    broken = re.sub(pattern, lambda _: by, as_xml([TARGET], SPAN), count=1, flags=re.DOTALL)
    with pytest.raises(ReadError, match=says):
        read_result(broken)


def test_results_of_two_machines_are_explained_and_compared(user: User, tmp_path: Path) -> None:
    for side, more in (("before", 1.0), ("after", 1.5)):
        (tmp_path / side).mkdir()
        for number in range(4):
            reads, writes = (round(count * more * (1 + number / 500)) for count in (70_000, 30_000))
            text = as_text([TARGET], SPAN | {"read": (reads, 2.0 / more), "write": (writes, 2.0 / more)})
            (tmp_path / side / f"{number}.txt").write_text(text)
    said = user.run("explain", str(tmp_path / "before" / "0.txt")).stdout
    assert "DiskSpd, read from its report" in said
    assert "randrw of 8 KiB, 2 jobs, depth 8 in all, direct=1, 30.0 s" in said
    said = user.run("compare", str(tmp_path / "before"), str(tmp_path / "after"), exactly=True).stdout
    assert re.search(r"after +better +\+(?:49\.\d|50\.\d) %", said), said
