# SPDX-License-Identifier: Apache-2.0
"""Sizes and times: what is read, what is refused, how it is written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.model.text import (
    format_bytes,
    format_count,
    format_ns,
    format_seconds,
    format_share,
    parse_bytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4k", 4096), ("4K", 4096), ("1M", 2**20), ("10G", 10 * 2**30), ("1GiB", 2**30), ("2kb", 2048)],
)
def test_sizes_are_read_as_fio_reads_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5k", "4 k", "1e9", "9" * 40, "4kk", "٤k"])
def test_what_is_no_size_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250us", 250e-6),
        ("500ms", 0.5),
        ("5s", 5),
        ("5", 5),
        ("2m", 120),
        ("5min", 300),
        ("9sec", 9),
        ("1h", 3600),
        ("2m50s", 170),
        ("2 min 50 s", 170),
        ("43min29s", 2609),
        ("1h30m", 5400),
        ("1h 0.5s", 3600.5),
    ],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


def test_what_is_no_time_is_refused() -> None:
    for text in ("soon", "", " ", "50s2m", "2m50", "1m1m", "1h-1m"):
        with pytest.raises(ValueError, match="not a time"):
            parse_seconds(text)


@given(st.text(max_size=20))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (parse_bytes, parse_seconds):
        try:
            assert read(text) >= 0
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(4096), "4 KiB"),
        (format_bytes(1.5 * 2**30), "1.50 GiB"),
        (format_count(512), "512"),
        (format_count(9425.4), "9,425"),
        (format_count(93_412), "93.4k"),
        (format_count(1_250_000), "1.25M"),
        (format_ns(880), "880 ns"),
        (format_ns(32_200), "32.2 us"),
        (format_ns(3_890_000), "3.89 ms"),
        (format_ns(2_500_000_000), "2.50 s"),
        (format_seconds(0.44), "0.4 s"),
        (format_seconds(155), "2 min 35 s"),
        (format_seconds(3900), "1 h 05 min"),
        (format_share(0.27), "27 %"),
        (format_share(0.996), "99.6 %"),
        (format_share(0.99999), "99.99 %"),
        (format_share(0.9996, 1), "99.96 %"),
        (format_share(-0.996, signed=True), "-99.6 %"),
        (format_share(0.996, signed=True), "+99.6 %"),
        (format_share(-1.0), "-100 %"),
        (format_share(1.0), "100 %"),
        (format_share(1.004), "100 %"),
    ],
)
def test_numbers_for_people(shown: str, expected: str) -> None:
    assert shown == expected
