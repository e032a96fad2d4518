# SPDX-License-Identifier: Apache-2.0
"""Sizes and times: read from text at the door, written back for people.

Sizes follow fio's default (`kb_base=1024`): `4k` is 4096 bytes. Times need their unit, except that a bare
number means seconds. Numbers meant for people get three to four significant digits, never more than was measured.
"""

import re
from typing import NewType

Bytes = NewType("Bytes", int)

_SIZE = re.compile(r"(?P<n>\d{1,18})(?P<unit>[kmgtpKMGTP]?)(?:i?[bB])?", re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_TIME = re.compile(r"(?P<n>\d{1,12}(?:\.\d{1,9})?)\s*(?P<unit>us|ms|s|m|h)?", re.ASCII)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> Bytes:
    """Read a size: `512`, `4k`, `1M`, `10GiB`; powers of 1024, as in fio, for which only `KiB` is 1000.

    Raises ValueError with a sentence that says what may be written.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size: {text!r} (write 512, 4k, 1M or 10G)")
    return Bytes(int(match["n"]) * 1024 ** _POWER[match["unit"].lower()])


def parse_seconds(text: str) -> float:
    """Read a time: `500ms`, `5s`, `2m`, `1h`; a bare number is seconds.

    Raises ValueError with a sentence that says what may be written.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a time: {text!r} (write 500ms, 5s or 2m)")
    return float(match["n"]) * _SECONDS[match["unit"] or "s"]


def format_bytes(size: float) -> str:
    """Write a size with binary units: `4 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{_digits(size)} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_count(number: float) -> str:
    """Write a count or a rate: `512`, `9,425`, `93.4k`, `1.25M`."""
    if abs(number) < 10_000:
        return f"{number:,.0f}" if abs(number) >= 100 else _digits(number)
    for unit, scale in (("k", 1e3), ("M", 1e6)):
        if abs(number) < scale * 1e3:
            return _digits(number / scale) + unit
    return _digits(number / 1e9) + "G"


def format_bandwidth(bytes_per_second: float) -> str:
    """Write bytes a second in decimal units, as fio does in parentheses and vendors do: `410 kB/s`, `3,825 MB/s`."""
    if 0 < bytes_per_second < 1e6:
        return f"{_digits(bytes_per_second / 1e3)} kB/s"
    megabytes = bytes_per_second / 1e6
    return f"{megabytes:,.0f} MB/s" if megabytes >= 100 else f"{megabytes:,.1f} MB/s"


def format_share(share: float, decimals: int = 0, *, signed: bool = False) -> str:
    """Write a share (1.0 is all of it) as a percentage: `27 %`; with one decimal `26.8 %`, signed `+26.8 %`."""
    return f"{share * 100:{'+' if signed else ''},.{decimals}f} %"


def format_ns(nanoseconds: float) -> str:
    """Write a time measured in nanoseconds with the unit that keeps it readable."""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if abs(nanoseconds) < scale * 1e3:
            return f"{_digits(nanoseconds / scale)} {unit}"
    return f"{_digits(nanoseconds / 1e9)} s"


def format_seconds(seconds: float) -> str:
    """Write a duration a person waits for: `0.4 s`, `95 s`, `2 min 35 s`, `1 h 05 min`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def _digits(number: float) -> str:
    """Three significant digits, without an exponent; a whole number of units is written as one."""
    return _measured(number).removesuffix(".00").removesuffix(".0") if number == round(number) else _measured(number)


def _measured(number: float) -> str:
    """Three significant digits, without an exponent: as many for 6 as for 5.99, so that a column reads as one."""
    magnitude = abs(number)
    if magnitude >= 100 or number == 0:
        return f"{number:.0f}"
    return f"{number:.1f}" if magnitude >= 10 else f"{number:.2f}"
