# SPDX-License-Identifier: Apache-2.0
"""fio's output as people paste it: quoted, numbered, out of a log, in colours: the figures are the same."""

import random
import re

import pytest
from tests.analyse.recordings import BOTH, recorded, text_of
from tests.pasted import PREFIXES, WRAPS, pasted

from virtune.fio.results import read_runs
from virtune.model.errors import ReadError

TEXTS = [*(name for name in BOTH if name != "missing.both"), "study2.txt", "study1-after.txt", "terminal.txt"]


def plain_of(name: str) -> str:
    return text_of(name) if name.endswith(".both") else recorded(name)


def drawn(seed: str) -> tuple[list[str], str]:
    """One or two things before each line, and what ends it."""
    chance = random.Random(seed)
    return chance.sample(sorted(PREFIXES), chance.choice((1, 1, 2))), chance.choice(("\n", "\n", "\r\n"))


@pytest.mark.parametrize("before", PREFIXES)
def test_the_figures_are_those_without_what_stands_before_the_lines(before: str) -> None:
    chance = random.Random(before)
    for name in chance.sample(TEXTS, 4):
        plain = plain_of(name)
        read = [run.result for run in read_runs(pasted(plain, [PREFIXES[before]], "\n"))]
        assert read == [run.result for run in read_runs(plain)], name


@pytest.mark.parametrize("name", TEXTS)
def test_every_recording_is_read_out_of_a_log(name: str) -> None:
    plain = [run.result for run in read_runs(plain_of(name))]
    for number in range(3):
        befores, end = drawn(f"{name} {number}")
        text = pasted(plain_of(name), [PREFIXES[one] for one in befores], end)
        assert [run.result for run in read_runs(text)] == plain, (befores, end)


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_figures_are_those_before_a_page_or_a_list_took_the_text(wrap: str) -> None:
    for name in (*TEXTS, "two-clients.txt", "status-interval.txt"):
        plain = plain_of(name)
        read = [run.result for run in read_runs(WRAPS[wrap](plain))]
        assert read == [run.result for run in read_runs(plain)], name


@pytest.mark.parametrize("before", PREFIXES)
@pytest.mark.parametrize("pretty", [True, False])
def test_json_is_read_out_of_a_log(before: str, pretty: bool) -> None:
    whole = recorded("plain.json")
    text = whole if pretty else " ".join(whole.split())
    log = f"starting\n{text}\ndone"
    read = [run.result for run in read_runs(pasted(log, [PREFIXES[before]], "\n"))]
    assert read == [run.result for run in read_runs(whole)]


def test_only_some_of_the_lines_are_of_the_log() -> None:
    plain = plain_of("randread.both")
    log = pasted(plain, [PREFIXES["ISO"]], "\n").replace("\n", "\nanother line of another job\n")
    assert [run.result for run in read_runs(log)] == [run.result for run in read_runs(plain)]


@pytest.mark.parametrize("before", ["> ", "12:00:01 ", "", "{} "])
def test_a_head_without_figures_is_no_run_without_io(before: str) -> None:
    lines = plain_of("randread.both").split("\n")
    head = next(number for number, line in enumerate(lines) if "(groupid=" in line)
    cut = [*lines[: head + 1], *("..." for _ in lines[head + 1 :]), "Run status group 0 (all jobs):"]
    if before == "{} ":  # what differs from line to line is no prefix, and nothing is guessed
        cut = [f"{'abcdefghijklmnopqrstuvwxyz'[number % 26]}{number} x" + line for number, line in enumerate(lines)]
    with pytest.raises(ReadError, match="no figures could be read of the job"):
        read_runs("\n".join(f"{before}{line}" if before != "{} " else line for line in cut))


def test_prose_with_figures_in_it_is_not_taken_for_lines_of_fio() -> None:
    plain = plain_of("randread.both")
    prose = "Before we had read: IOPS=1k, BW=4MiB/s\nBefore we had read: IOPS=2k, BW=4MiB/s (4MB/s)(4MiB/1000msec)\n"
    for text in (prose + plain, plain + prose, plain.replace("\n", "\n" + prose)):
        assert [run.result for run in read_runs(text)] == [run.result for run in read_runs(plain)]


def test_statistics_are_read_in_any_order() -> None:
    plain = recorded("study2.txt")
    line = next(line for line in plain.splitlines() if line.strip().startswith("clat ("))
    head, _, rest = line.partition(": ")
    parts = [one.strip() for one in rest.split(",")]
    for seed in range(5):
        random.Random(seed).shuffle(parts)
        other = plain.replace(line, f"{head}: {', '.join(parts)}")
        assert read_runs(other)[0].result == read_runs(plain)[0].result


def test_whose_lines_they_are_changes_no_figure() -> None:
    said = recorded("two-clients.txt")
    plain = re.sub(r"(?m)^<[^>]*> ?", "", said)
    assert plain != said
    assert [run.result for run in read_runs(plain)] == [run.result for run in read_runs(said)]
