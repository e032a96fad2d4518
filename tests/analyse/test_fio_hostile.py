# SPDX-License-Identifier: Apache-2.0
"""What is not a fio result, or a broken one, ends in one sentence, soon."""

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analyse.recordings import RESULTS, recorded, text_of

from virtune.analyse.trial.explain import explain
from virtune.analyse.trial.measure import measurement_of
from virtune.fio.results import LIMIT, read_result
from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult

SOME = ("randrw-group.both", "sections.both", "fsync.both", "status-interval.txt", "study2.txt", "two-clients.txt")
ORIGINALS = {name: recorded(name) for name in SOME} | {"text": text_of("randrw-group.both")}
CHARACTERS = st.text(alphabet='0123456789.,:=%[](){}"- kMunsec\n\r\x00\x1b\\', max_size=6)


def check(error: ReadError) -> None:
    assert 10 < len(error.message) < 200
    assert error.message.isprintable()
    assert not error.message[0].isupper()
    assert not error.message.endswith(".")
    assert error.exit_code == 2


def survive(text: str) -> FioResult | None:
    """Read and explain a text; nothing but ReadError may come of it."""
    try:
        result = read_result(text)
    except ReadError as error:
        check(error)
        return None
    assert all(value >= 0 for _, value in measurement_of(result).values)
    assert all(remark.text.isprintable() for remark in explain(result))
    return result


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(ORIGINALS)), start=st.integers(0, 40_000), end=st.integers(0, 40_000))
def test_a_part_of_a_result_is_read_or_refused(name: str, start: int, end: int) -> None:
    text = ORIGINALS[name]
    survive(text[:end])
    survive(text[start:])
    survive(text[: min(start, end)] + text[max(start, end) :])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(ORIGINALS)), cuts=st.lists(st.tuples(st.integers(0, 40_000), CHARACTERS), max_size=8)
)
def test_a_result_with_other_characters_in_it_is_read_or_refused(name: str, cuts: list[tuple[int, str]]) -> None:
    text = ORIGINALS[name]
    for place, put in cuts:
        text = text[:place] + put + text[place + len(put) :]
    survive(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, entry in inner for place in places(entry, (*path, key))]


DOCUMENT = recorded("fsync.both")
DOCUMENT = DOCUMENT[DOCUMENT.index("\n{\n") : DOCUMENT.index("\n}\n") + 2]
PLACES = [place for place in places(json.loads(DOCUMENT)) if place and "bins" not in place[:-1]]


@settings(max_examples=150, deadline=None)
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_json_with_any_value_anywhere_is_read_or_refused(place: tuple[Any, ...], value: object) -> None:
    document = json.loads(DOCUMENT)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    survive(json.dumps(document))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_anything_else_is_refused(content: bytes) -> None:
    assert survive(content.decode(errors="replace")) is None


@pytest.mark.parametrize("word", ["nan", "-nan", "inf", "-inf", "NaN", "-Infinity", "null"])
@pytest.mark.parametrize("key", ["iops_stddev", "mean", "usr_cpu", "util"])
def test_numbers_that_json_does_not_have_are_numbers_that_fio_did_not_have(word: str, key: str) -> None:
    text = recorded("plain.json")
    lines = [f"{line[: line.index(':')]} : {word}," if f'"{key}"' in line else line for line in text.splitlines()]
    mended = "\n".join(lines).replace(f"{word},\n    }}", f"{word}\n    }}")
    result = survive(mended)
    assert result is not None
    assert result.loads[0].streams[0].ios == 80_361


def test_nan_in_a_string_stays_there() -> None:
    text = recorded("plain.json").replace('"jobname" : "plain"', '"jobname" : "a nan, \\"inf\\" b"')
    result = survive(text.replace('"usr_cpu" : ', '"usr_cpu" : -nan, "was" : '))
    assert result is not None
    assert result.loads[0].name == 'a nan, "inf" b'
    assert result.loads[0].usr_percent is None


def test_constants_and_empty_bins_of_early_fio_3_are_left_out() -> None:
    document = json.loads(DOCUMENT)
    bins = document["jobs"][0]["write"]["clat_ns"]["bins"]
    before = dict(bins)
    bins |= {"FIO_IO_U_PLAT_BITS": 6, "FIO_IO_U_PLAT_NR": 1856, "7": 0}
    document["jobs"][0]["write"]["clat_ns"]["percentile"]["0.00"] = 0
    stream = read_result(json.dumps(document)).loads[0].streams[0]
    assert stream.clat is not None
    assert stream.clat.histogram is not None
    assert dict(stream.clat.histogram.bins) == {int(value): count for value, count in before.items()}


def test_control_characters_in_names_do_not_reach_a_terminal() -> None:
    result = survive(recorded("plain.json").replace('"plain"', '"\\u001b[2Jgone\\u0007"'))
    assert result is not None
    assert result.loads[0].name == "?[2Jgone?"


HOSTILE = {
    "empty": "",
    "blank": " \n\t\n",
    "deep": "{\n" + '"a":[' * 100_000,
    "deep, closed": '{\n"jobs":' + "[" * 50_000 + "]" * 50_000 + "}",
    "long number": '{"jobs": [{"read": {"iops": ' + "9" * 5000 + "}}]}",
    "large number": '{"jobs": [{"read": {"iops": 1' + "0" * 400 + "}}]}",
    "negative": '{"jobs": [{"read": {"iops": -1}}]}',
    "no jobs": '{"jobs": []}',
    "jobs of text": '{"jobs": ["a"]}',
    "jobs is text": '{"jobs": "a"}',
    "too many jobs": '{"jobs": [' + "{}," * 5000 + "{}]}",
    "binary": "\x7fELF" + "\x00\x01" * 1000,
    "json of another program": '{"a": 1}',
    "broken": recorded("plain.json")[:-100],
    "a log": "2026-01-01 12:00:00 INFO started\n" * 1000,
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_what_is_no_result_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(ReadError) as caught:
        read_result(HOSTILE[name])
    check(caught.value)


LARGE = {
    "newlines": ("", "\n"),
    "one line": ("", "x"),
    "blanks": ("", " "),
    "quotes": ('{"jobs": nan', '\\"'),
    "braces": ("", "{\n"),
    "starts": ("", '{"jobs"\n'),
    "nested with numbers": ('{"a": [\n' * 600, "0,"),
    "percentiles": (text_of("randread.both"), "| 1.00th=[ 1],\n"),
    "streams": (
        text_of("randread.both").partition("Run status")[0],
        (
            "  read: IOPS=1, BW=1MiB/s (1MB/s)(1MiB/1msec)\n"
            "     issued rwts: total=1,1,1,1 short=0,0,0,0 dropped=0,0,0,0\n"
        ),
    ),
    "jobs": ("", "a: (groupid=0, jobs=1): err= 0: pid=1: x\nb: (groupid=1, jobs=1): err= 0: pid=2: x\n"),
    "commands": ("", "$ fio --name=a \\\n"),
}
"""How a large text begins, and what it goes on with."""


@pytest.mark.parametrize("share", [16, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", list(LARGE))
def test_what_is_large_takes_seconds_at_most(name: str, share: int) -> None:
    """A sixteenth of what is let in shows as well as all of it whether the work grows by more than the text."""
    head, more = LARGE[name]
    text = head + more * ((LIMIT // share - len(head)) // len(more))
    begun = time.process_time()
    survive(text)
    assert time.process_time() - begun < 3 + 48 / share


def test_what_is_too_large_is_refused_at_the_door() -> None:
    with pytest.raises(ReadError, match="longer than 32 MiB"):
        read_result("x" * (LIMIT + 1))


@pytest.mark.parametrize("name", RESULTS)
def test_every_recording_survives_a_changed_line_end(name: str) -> None:
    whole, changed = survive(recorded(name)), survive(recorded(name).replace("\r", "").replace("\n", "\r\n"))
    assert whole == changed


@pytest.mark.parametrize("level", ["abc", "\u00b2", "", ">=", "9" * 400])
def test_a_depth_that_is_none_is_passed_over(level: str) -> None:
    job = {"jobname": "a", "iodepth_level": {level: 100}, "job options": {"iodepth": "8", "ioengine": "libaio"},
           "read": {"total_ios": 5, "iops": 5}}  # fmt: skip
    explain(read_result(json.dumps({"jobs": [job]})))
