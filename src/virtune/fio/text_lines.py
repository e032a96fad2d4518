# SPDX-License-Identifier: Apache-2.0
"""The lines of fio's normal output: their forms, and the notation of their numbers.

fio 3 writes `IOPS=35.3k, BW=138MiB/s (145MB/s)(276MiB/2001msec)`, fio 2 wrote `io=276MB, bw=138MB/s, iops=35300,
runt=2001msec` and meant 1024 by its k. Units of time stand in parentheses and change from line to line.
"""

import re
from collections.abc import Iterator

from virtune.model.errors import ReadError
from virtune.model.text import ESCAPE, prefix_of

MOST_LINES = 1_000_000
"""A day of fio's status line, one a second, is 86,400. A text of more lines than this is not one fio result."""

LONGEST_LINE = 4000
"""fio's own lines are shorter than 200 characters, a command line seldom longer than 1000."""

_NUMBER = r"\d{1,20}(?:\.\d{1,12})?"
_AMOUNT = rf"{_NUMBER}[kKMGTPE]?"
_UNIT = r"\((?P<unit>nsec|usec|msec|sec)\)"
_STATISTICS = "".join(
    rf"(?=.*?\b{name}=\s*(?P<{name}>{form})(?:,|\s|$))"
    for name, form in (("min", _AMOUNT), ("max", _AMOUNT), ("avg", _NUMBER), ("stdev", _NUMBER))
)
"""In any order: other versions have had another one."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


VERSION = _pattern(r"(?P<version>fio-\d[\w.+-]{0,60})$")
CLIENT = _pattern(r"hostname=[^,]{0,100}, be=\d")
DEFINITION = _pattern(
    r"(?P<name>.{1,200}?): \(g=(?P<group>\d{1,6})\): rw=(?P<rw>[a-z]{1,20}), "
    r"bs=(?:\(R\) )?(?P<bs>[\w.-]{1,60}).*?\bioengine=(?P<engine>[\w.-]{1,80}).*?, iodepth=(?P<depth>\d{1,7})"
)
CLONES = _pattern(r"\.\.\.$")
HEADER = _pattern(
    r"(?P<name>.{0,200}?): ?\(groupid=(?P<group>\d{1,6}), jobs=(?P<jobs>\d{1,6})\): err=\s*(?P<error>\d{1,6})"
    r"(?: \(.*?\))?: pid=(?P<pid>\d{1,10})"
)
FLOW = _pattern(
    rf"(?P<direction>read|write|trim|mixed)\s*: IOPS=(?P<iops>{_AMOUNT}), BW=(?P<bw>[\w.]{{1,30}}(?:/s)?)"
    r"(?: \([^)]{1,40}\))?(?:\((?P<io>[\w.]{1,30})/(?P<runtime>\d{1,15})msec\))?"
)
FLOW_2 = _pattern(
    rf"(?P<direction>read|write|trim|mixed)\s*: io=(?P<io>[\w.]{{1,30}}), bw=(?P<bw>[\w.]{{1,30}}/s), "
    rf"iops=(?P<iops>{_AMOUNT}), runt=\s*(?P<runtime>\d{{1,15}})msec"
)
FLOW_UNREAD = _pattern(r"(?:read|write|trim|mixed)\s*: (?!\(g(?:roupid)?=\d)")
"""A direction in a form that is not known; a job of that name begins with its group."""

LATENCY = _pattern(rf"(?P<kind>slat|clat|lat|sync)\s*{_UNIT}\s*: {_STATISTICS}")
PERCENTILES = _pattern(rf"(?P<kind>slat|clat|lat|sync) percentiles {_UNIT}")
PERCENTILE = _pattern(r"(?P<percent>\d{1,3}\.\d{1,12})th=\[\s*(?P<value>\d{1,20})\]")
SAMPLES = _pattern(rf"iops\s*: {_STATISTICS}(?:.*, samples=\s*(?P<samples>\d{{1,15}}))?")
CPU = _pattern(
    rf"cpu\s*: usr=\s*(?P<usr>{_NUMBER})%, sys=\s*(?P<sys>{_NUMBER})%(?:, ctx=(?P<ctx>\d{{1,20}}))?"
    r"(?:, majf=(?P<majf>\d{1,20}), minf=(?P<minf>\d{1,20}))?"
)
DEPTHS = _pattern(r"(?P<of>IO depths|submit|complete)\s*:")
DEPTH = _pattern(rf"(?P<level>(?:>=)?\d{{1,4}})=\s*(?P<share>{_NUMBER})%")
ISSUED = _pattern(r"issued[\w ]{0,10}:.*?total=(?P<total>.{1,200}?)\s*,?\s*short=(?P<short>.{1,200}?),?\s*drop")
DROPPED = _pattern(r".*\bdrop(?:ped)?=(?P<dropped>.{1,200})")
FAILED = _pattern(r"errors\s*: total=(?P<total>\d{1,20})")
STATUS = _pattern(r"Run status group (?P<group>\d{1,6})")
DEVICE = _pattern(
    r"(?P<name>[\w.!/:-]{1,100}): ios=(?P<reads>\d{1,20})/(?P<writes>\d{1,20}),"
    r"(?: sectors=(?P<read_sectors>\d{1,20})/(?P<write_sectors>\d{1,20}),)?"
    r" merge=(?P<read_merges>\d{1,20})/(?P<write_merges>\d{1,20}),"
    r" ticks=(?P<read_ticks>\d{1,20})/(?P<write_ticks>\d{1,20}),"
    rf" in_queue=\d{{1,20}}, util=\s*(?P<util>{_NUMBER})%"
)
FAILURE = _pattern(r"fio: .{0,400}\berror=(?P<why>[^\x00-\x1f]{1,120})")

_MARKS = _pattern(
    r"\b(?:(?:read|write|trim|mixed)\s*: ?(?:IOPS=|io=)|(?:slat|clat|lat) \((?:nsec|usec|msec|sec)\)\s*:"
    r"|cpu\s*: usr=|IO depths\s*:|Run status group \d|iops\s*: min=)"
)
"""What fio begins lines with that every result has."""

_LINE = re.compile(r"[^\r\n]+")
_HOST = re.compile(r"<[^<>]{1,80}> ?")
_SIZE = _pattern(rf"(?P<number>{_NUMBER})(?P<prefix>[kKMGTPE]?)(?P<binary>i?)(?P<unit>B|bit)?(?:/s)?")
_PREFIXES = "kMGTPE"


def lines_of(text: str) -> Iterator[str]:
    """Every line that may mean something, bare: without colours, blanks around it, `<host>` of fio --client, and what
    a log or a quotation puts before each line.

    A status line rewrites itself with carriage returns; each state of it counts as a line.
    """
    return (line for _, line in placed_lines(text))


def placed_lines(text: str) -> Iterator[tuple[int, str]]:
    """Every line that may mean something, as in `lines_of`, with where it begins in the text."""
    if text.count("\n") + text.count("\r") > MOST_LINES:
        raise ReadError(
            f"this has more than {MOST_LINES:,} lines", hint="give fio's own output, without logs around it"
        )
    prefix = prefix_of(text, _MARKS)
    for match in _LINE.finditer(text):
        if match.end() - match.start() <= LONGEST_LINE:
            line = ESCAPE.sub("", match[0]) if "\x1b" in match[0] else match[0]
            if prefix is not None and (before := prefix.match(line)):
                line = line[before.end() :]
            bare = _HOST.sub("", line.strip(), count=1) if line.startswith("<") else line.strip()
            yield match.start(), bare


def amount(text: str) -> float:
    """A count as fio shortens it: `934k` -> 934000, `1.2M` -> 1200000."""
    if text[-1].isdigit():
        return float(text)
    return float(_scaled(text[:-1], 1000, text[-1]))


def size(text: str, *, old: bool) -> float | None:
    """Bytes out of `138MiB/s`, `145MB/s` or `290MB`. fio 2 (`old`) wrote MB for 1024 * 1024 bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    base = 1024 if match["binary"] or old else 1000
    value = _scaled(match["number"], base, match["prefix"])
    return value / 8 if match["unit"] == "bit" else value


def nanoseconds(text: str, unit: str) -> float:
    """A time in its printed unit as nanoseconds, without the dust of binary fractions: 3.89 msec -> 3890000."""
    return round(amount(text) * {"nsec": 1, "usec": 1e3, "msec": 1e6, "sec": 1e9}[unit], 6)


def _scaled(number: str, base: int, prefix: str) -> float:
    power = _PREFIXES.upper().index(prefix.upper()) + 1 if prefix else 0
    return round(float(number) * float(base**power), 6)
