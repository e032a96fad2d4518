# SPDX-License-Identifier: Apache-2.0
"""Read what DiskSpd reports, the load generator of Windows: its text and its XML (`-Rtext`, `-Rxml`), of 2.0 to 2.2.

Each time span is a load. DiskSpd measures latency only with `-L`, from the call that submits an I/O to its
completion, and gives percentiles of all targets together. What a report asks of a target comes from its echo of the
parameters, the figures from the totals; how busy the CPUs were is of the whole system, so it is no load's.
(ResultParser.cpp, XmlResultParser.cpp and Common.cpp of DiskSpd 2.2 have both forms.)
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from virtune.fio.results_text import agreed, size
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult, Latency, LoadResult, Stream
from virtune.model.text import printable

IN_TEXT = re.compile(r"^Results for timespan \d{1,6}:[ \t]*\r?$", re.MULTILINE)
"""A line that only DiskSpd's text has; where a text has none it holds no figures of it."""

_IN_XML = re.compile(r"\s*(?:<\?xml[^>]{0,200}\?>\s*)?<Results>\s*<System>")
_HINT = "DiskSpd writes the whole result: diskspd -L -Rxml ... > result.xml"
_CUT = "this DiskSpd result ends before all of its figures"
_MS = 1e6
_NAMED = re.compile(r"(\d+(?:\.\d+)?)(?:st|nd|rd|th)|(\d)-nines")
_MOST_SPANS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a time span asked of one target; None where the report does not say. `rate` is in I/Os a second."""

    path: str
    block: int | None
    writes: float
    random: float
    cached: bool | None
    depth: int
    threads: int
    rate: float | None


def is_diskspd(text: str) -> bool:
    """Whether a text is what DiskSpd reports."""
    return _IN_XML.match(text) is not None or IN_TEXT.search(text) is not None


def split_reports(text: str) -> list[str]:
    """Return each report of a text that has several, one after the other."""
    if _IN_XML.match(text):
        parts = re.split(r"(?<=</Results>)", text)
        return [part for part in parts if part.strip()]
    begins = [
        found.start() for found in re.finditer(r"^(?:Command Line:.*\s{1,8})?Input parameters:", text, re.MULTILINE)
    ]
    ends = [*begins[1:], len(text)]
    parts = [text[begin:end] for begin, end in zip([0, *begins[1:]], ends, strict=True)] if begins else [text]
    return [part for part in parts if IN_TEXT.search(part)]


def read_diskspd(text: str) -> FioResult:
    """Read one report; raises ReadError where DiskSpd cannot have written it, or wrote no figures."""
    version, loads = _of_xml(text) if _IN_XML.match(text) else _of_text(text)
    host = re.search(r"<ComputerName>([^<\n]{1,200})<|^[ \t]*computer name: ([^\r\n]{1,200})", text, re.MULTILINE)
    if not loads:
        raise ReadError("this DiskSpd result has no figures", hint=_HINT)
    return FioResult(
        source="diskspd",
        version=f"DiskSpd {version}" if version else "DiskSpd",
        loads=tuple(loads),
        host=printable(host[1] or host[2]) if host else None,
    )


def _load(
    group: int, seconds: float, threads: int, targets: list[_Asked], totals: Mapping[str, tuple[int, int]],
    latencies: Mapping[str, Latency | None],
) -> LoadResult:  # fmt: skip
    if not 0 < seconds < 1e9:
        raise ReadError(f"a time span of {seconds:g} s has no figures", hint=_HINT)
    streams = [
        Stream(
            direction=direction, ios=ios, bytes=size, seconds=seconds, iops=ios / seconds,
            bandwidth_bps=size / seconds, lat=latencies.get(direction),
        )
        for direction, (ios, size) in totals.items()
        if ios
    ]  # fmt: skip
    names = {target.path for target in targets}
    # one thread pool serves all targets, else each has threads of its own
    all_told = threads == sum(one.threads for one in targets) or {one.threads for one in targets} == {threads}
    rates = [None if one.rate is None else one.rate * one.threads for one in targets]
    return LoadResult(
        name=printable(names.pop(), most=100) if len(names) == 1 else f"{len(names)} targets" if names else "DiskSpd",
        engine=None,
        pattern=agreed({_pattern(one) for one in targets}),
        block_size=agreed({one.block for one in targets}),
        direct=agreed({None if one.cached is None else not one.cached for one in targets}),
        jobs=threads,
        depth=sum(one.depth * one.threads for one in targets) or None if all_told else None,
        error=0,
        streams=tuple(streams),
        usr_percent=None,
        sys_percent=None,
        rate_asked_iops=math.fsum(rate or 0 for rate in rates) if all_told and None not in rates else None,
        group=group,
    )


def _pattern(target: _Asked) -> str | None:
    """fio's word for what a target was asked for; None where a share of it is random."""
    if target.random not in (0, 100):
        return None
    kind = "read" if target.writes == 0 else "write" if target.writes == 100 else "rw"
    return f"rand{kind}" if target.random else kind


def _of_text(text: str) -> tuple[str | None, list[LoadResult]]:
    head, *spans = re.split(
        r"^Results for timespan \d{1,6}:[ \t]*\r?$", text, maxsplit=_MOST_SPANS, flags=re.MULTILINE
    )
    echoes = re.split(r"^[ \t]*timespan:[ \t]*\d+[ \t]*\r?$", head, flags=re.MULTILINE)[1:]
    loads = []
    for group, span in enumerate(spans):
        targets = list(_asked_in(echoes[group])) if group < len(echoes) else []
        found = re.search(r"^actual test time:\s*(\d{1,12}\.?\d{0,9})s", span, re.MULTILINE)
        threads = re.search(r"^thread count:\s*(\d{1,9})", span, re.MULTILINE)
        if found is None or threads is None:
            raise ReadError(_CUT, hint=_HINT)
        chart = [line.split("|") for line in span[max(0, span.rfind("%-ile")) :].splitlines()]
        totals, latencies = dict[str, tuple[int, int]](), dict[str, Latency | None]()
        for number, direction in enumerate(("read", "write"), 1):
            row = _totals(span, f"{direction.title()} IO")
            totals[direction] = int(row["I/Os"]), int(row["bytes"])
            printed = {cells[0].strip(): cells[number].strip() for cells in chart if len(cells) == 4}
            if "AvgLat" in row and totals[direction][0] and not re.search(r"\d", printed.get("max", "")):
                raise ReadError(_CUT, hint=_HINT)
            latencies[direction] = _latency(totals[direction][0], row.get("AvgLat"), row.get("LatStdDev"), printed)
        loads.append(_load(group, float(found[1]), int(threads[1]), targets, totals, latencies))
    return None, loads


def _asked_in(echo: str) -> Iterator[_Asked]:
    """Yield what the echo of a time span's parameters says of each target."""
    pool = re.search(r"thread pool with (\d{1,9}) threads", echo)
    for part in re.split(r"^[ \t]*path:", echo, flags=re.MULTILINE)[1:]:

        def said(pattern: str, part: str = part) -> str | None:
            found = re.search(pattern, part)
            return None if found is None else found[1]

        writes = said(r"read/write ratio: \d{1,3}/(\d{1,3})") or ("100" if "performing write test" in part else "0")
        mixed = said(r"\((\d{1,3})% random\)") or ("100" if "using random I/O" in part else "0")
        rate = said(r"rate-limited to (\d{1,12}) IOPS")
        block = int(size(said(r"block size: ([\d.]+\w*)") or "", old=False) or 0) or None
        slow = said(r"rate-limited to (\d{1,12}) B/ms")
        limit = float(rate) if rate else float(slow) * 1000 / block if slow and block else None
        cached = False if "software cache disabled" in part else True if "using software cache" in part else None
        yield _Asked(
            path=part.splitlines()[0].strip().strip("'"), block=block, writes=float(writes), random=float(mixed),
            cached=cached, depth=int(said(r"outstanding I/O operations(?: per thread)?: (\d{1,9})") or 0),
            threads=int(said(r"threads per file: (\d{1,9})") or (pool[1] if pool else 0)), rate=limit,
        )  # fmt: skip


def _totals(span: str, section: str) -> dict[str, str]:
    """Return the last row of a section's table by the names of its columns."""
    _, _, rest = span[span.find(f"\n{section}") + 1 :].partition("\nthread |")
    names, values = (
        [cell.strip() for cell in row.partition("\n")[0].split("|")] for row in (rest, rest.partition("\ntotal:")[2])
    )
    if f"\n{section}" not in span or len(values) < max(4, len(names) - 1):
        raise ReadError(_CUT, hint=_HINT)
    row = dict(zip(names, values, strict=False))
    if not all(re.fullmatch(r"\d{1,20}", row.get(name, "")) for name in ("bytes", "I/Os")):
        raise ReadError(f"the totals of {section!r} in this DiskSpd result are no numbers", hint=_HINT)
    return row


def _of_xml(text: str) -> tuple[str | None, list[LoadResult]]:
    if "<!" in text:  # DiskSpd writes no document type, which may hold entities without end
        raise ReadError("this holds more than the XML of a DiskSpd result", hint=_HINT)
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ElementTree.ParseError as error:
        raise ReadError(f"this DiskSpd result is no XML: {error}", hint=_HINT) from None
    echoes = root.findall("Profile/TimeSpans/TimeSpan")
    loads = []
    for group, span in enumerate(root.findall("TimeSpan")[:_MOST_SPANS]):
        targets = list(_asked_of(echoes[group])) if group < len(echoes) else []
        every = span.findall("Thread/Target")
        totals, latencies = dict[str, tuple[int, int]](), dict[str, Latency | None]()
        for direction in ("Read", "Write"):
            ios, size = (sum(_whole(one, f"{direction}{what}") for one in every) for what in ("Count", "Bytes"))
            totals[direction.lower()] = ios, size
            printed = {
                f"{bucket.findtext('Percentile')}th": bucket.findtext(f"{direction}Milliseconds") or ""
                for bucket in span.findall("Latency/Bucket")
            }
            printed |= {"min": printed.pop("0th", ""), "max": printed.pop("100th", "")}
            mean = span.findtext(f"Latency/Average{direction}Milliseconds")
            spread = span.findtext(f"Latency/{direction}LatencyStdev")
            latencies[direction.lower()] = _latency(ios, mean, spread, printed)
        seconds, threads = number_in(span.findtext("TestTimeSeconds")), _whole(span, "ThreadCount")
        loads.append(_load(group, seconds or 0.0, threads, targets, totals, latencies))
    return root.findtext("System/Tool/Version"), loads


def _asked_of(echo: ElementTree.Element) -> Iterator[_Asked]:
    pool = _whole(echo, "ThreadCount")
    for target in echo.findall("Targets/Target"):
        block, rate = _whole(target, "BlockSize"), number_in(target.findtext("Throughput")) or 0.0
        unit = target.find("Throughput")
        if rate and (unit is None or unit.get("unit") != "IOPS"):
            rate = rate * 1000 / block if block else 0.0
        ratio = 0 if target.find("Random") is None else number_in(target.findtext("RandomRatio", "100"))
        yield _Asked(
            path=target.findtext("Path", ""), block=block or None, random=ratio or 0,
            writes=number_in(target.findtext("WriteRatio")) or 0, cached=target.findtext("DisableOSCache") != "true",
            depth=_whole(echo, "RequestCount") or _whole(target, "RequestCount"),
            threads=pool or _whole(target, "ThreadsPerFile"), rate=rate or None,
        )  # fmt: skip


def _latency(count: int, mean: str | None, spread: str | None, printed: Mapping[str, str]) -> Latency | None:
    """Return a latency by what is printed in milliseconds; None where none was measured."""
    average = number_in(mean)
    if not count or average is None:
        return None
    known = {name: round(value * _MS) for name, text in printed.items() if (value := number_in(text)) is not None}
    percentiles = []
    for name, value in known.items():
        if found := _NAMED.fullmatch(name):
            percentiles.append((float(found[1] or f"99.{'9' * (int(found[2]) - 2)}"), value))
    deviation = number_in(spread)
    return Latency(
        count=count, mean_ns=round(average * _MS), min_ns=known.get("min"), max_ns=known.get("max"),
        stddev_ns=None if deviation is None else round(deviation * _MS), percentiles=tuple(sorted(percentiles)),
    )  # fmt: skip


def number_in(text: str | None) -> float | None:
    """A number that is none below zero; None for what is none, as N/A."""
    return float(text) if text is not None and re.fullmatch(r"\d{1,20}(?:\.\d{1,12})?", text.strip()) else None


def _whole(at: ElementTree.Element, name: str) -> int:
    text = at.findtext(name, "0").strip()
    if not re.fullmatch(r"\d{1,20}", text):
        raise ReadError(f"{name} of this DiskSpd result is {printable(text, most=40)!r}, no number", hint=_HINT)
    return int(text)
