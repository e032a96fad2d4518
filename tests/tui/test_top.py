# SPDX-License-Identifier: Apache-2.0
"""The screen of `virtune top` in a terminal of 80x24, by keys, over a recording: no clock and no VM is needed."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

import pytest
from tests.conftest import eventually
from tests.live_samples import HEADER, NO_RINGS, UNPLUGGED, live

from virtune.flows.live.top import Recorder, Recording
from virtune.model.errors import PreconditionError, StoreError
from virtune.model.live import LiveSample
from virtune.tui.app import TopApp
from virtune.tui.session import JUMP, KEPT, KEYS, TopSession, screen

LAST = 70
SIZE = (80, 24)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("top") / "night.jsonl"
    with Recorder(path, HEADER) as file:
        for second in range(1, LAST + 1):
            file.add(live(second))
    return path


def shown(recorded: Path, keys: Sequence[str], *, size: tuple[int, int] = SIZE) -> list[str]:
    """Press keys in the real application and return the lines of its terminal."""

    async def work() -> list[str]:
        with Recording(recorded) as samples:
            app = TopApp(TopSession(samples=samples, position=1, replay=True, paused=True, zone=UTC, plain=True))
            async with app.run_test(size=size) as pilot:
                await pilot.press(*keys)
                await pilot.pause()
                return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]

    return asyncio.run(work())


def names(lines: Sequence[str]) -> list[str]:
    """The first word of each row of the table; the one with the cursor begins with `>`."""
    return [line.strip().split(" ")[0] for line in lines[2:-1] if line]


DISKS = """\
virtune top  2 VMs, 3 disks  22:13:22  over 1.0 s  sample 2 of 70  PAUSED
 DISK            IOPS   MB/s LATENCY BY LAYER      CPU/IO  FLY LIMITED BY    CAP
>sql1:vda         12k   49.2  400 us qqqddddddddd 16.7 us 4.80 device
 mail:disk0     2,000   16.4 1.50 ms vvvv========   50 us 3.00 throttle    100 %
 sql1:vdb           0    0.0       -                    -    - no I/O"""

DISK = """\
 sql1:vda  12k IOPS (12k reads), 49.2 MB/s, 400 us, 4.80 in flight
 limited by the device
   75 % of the time below the guest, 3.60 in flight: host block layer and device
   it had a request 90 % of the time
   thread 'IO iothread1': 16.7 us of CPU for each I/O at this rate
   next: look at the device itself (`iostat -x 1`, its health): no setting of
   QEMU makes it faster
 where the time of a request goes
   QEMU block layer and engine            100 us  25 % qqqqqq
   host block layer and device            300 us  75 %       ddddddddddddddddd
 its last 6 samples
   IOPS       %%#**% 12k, most 14k"""


def test_the_first_screen_has_a_row_for_each_disk(recorded: Path) -> None:
    lines = shown(recorded, [])
    assert lines[: len(DISKS.splitlines())] == DISKS.splitlines()
    assert len(lines) == 24
    assert "q quit" in lines[-1]


def test_enter_looks_into_a_disk_and_escape_returns(recorded: Path) -> None:
    lines = shown(recorded, [*["t"] * 5, "enter"])
    assert lines[0].startswith("virtune top  2 VMs, 3 disks  22:13:27")
    assert lines[1 : 1 + len(DISK.splitlines())] == DISK.splitlines()
    assert any("IO iothread1" in line and "20 %" in line for line in lines)
    assert shown(recorded, ["enter", "escape"]) == shown(recorded, [])
    lines = shown(recorded, ["down", "down", "enter", "j"])
    assert lines[1] == " sql1:vdb is not there any more"


@pytest.mark.parametrize(
    ("keys", "first", "rows"),
    [
        (["2"], "VM ", [">sql1", "mail"]),
        (["3"], "VM ", [">sql1", "sql1", "mail", "sql1"]),
        (["4"], "CPU usr", None),
        (["right", "right"], "DISK", [">mail:disk0", "sql1:vda", "sql1:vdb"]),
        (["left"], "DISK", [">mail:disk0", "sql1:vda", "sql1:vdb"]),
        (["L"], "DISK", [">mail:disk0", "sql1:vda", "sql1:vdb"]),
        (["L", "r"], "DISK", [">sql1:vda", "mail:disk0", "sql1:vdb"]),
        (["o"], "DISK", [">sql1:vda", "mail:disk0"]),
        (["down", "r"], "DISK", ["sql1:vdb", ">mail:disk0", "sql1:vda"]),
        (["end"], "DISK", ["sql1:vda", "mail:disk0", ">sql1:vdb"]),
        (["slash", "m", "a", "i", "l", "enter"], "DISK", [">mail:disk0"]),
        (["slash", "m", "x", "backspace", "enter", "escape"], "DISK", [">sql1:vda", "mail:disk0", "sql1:vdb"]),
        (["slash", "n", "o", "n", "e", "enter"], "DISK", ["nothing"]),
        (["2", "1"], "DISK", [">sql1:vda", "mail:disk0", "sql1:vdb"]),
    ],
)
def test_keys_choose_the_table_its_order_and_its_rows(
    recorded: Path, keys: list[str], first: str, rows: list[str] | None
) -> None:
    lines = shown(recorded, keys)
    assert lines[1].strip().startswith(first), lines
    assert rows is None or names(lines) == rows


def test_units_are_both_requests_or_bytes(recorded: Path) -> None:
    assert "READ/s WRIT/s" in shown(recorded, ["b"])[1]
    assert "R MB/s W MB/s" in shown(recorded, ["b", "b"])[1]
    assert "IOPS   MB/s" in shown(recorded, ["b", "b", "b"])[1]


def test_one_goes_on_and_back_in_time_and_never_beyond(recorded: Path) -> None:
    for keys, place in (
        (["t"], 3),
        (["t", "T"], 2),
        (["j"], 2 + JUMP),
        (["j", "j", "j"], LAST),
        (["j", "J", "T"], 2),
    ):
        assert f"sample {place} of {LAST}" in shown(recorded, keys)[0], keys


def test_a_disk_that_was_unplugged_stays_for_some_samples_marked_as_gone(recorded: Path) -> None:
    def vdb(second: int) -> list[str]:
        return [line for line in shown(recorded, ["t"] * (second - 2)) if "sql1:vdb" in line]

    assert vdb(UNPLUGGED - 1)[0].endswith("no I/O")
    assert vdb(UNPLUGGED)[0].endswith("gone")
    assert vdb(UNPLUGGED + 4)[0].endswith("gone")
    assert vdb(UNPLUGGED + 5) == []


def test_the_means_since_the_begin_are_over_all_samples(recorded: Path) -> None:
    lines = shown(recorded, ["t", "t", "a"])
    assert "mean over 3 s" in lines[0]
    assert lines[2].split()[1] == "13k", "12,000, 13,000 and 14,000"


def test_every_key_stands_in_the_help_with_what_is_not_seen(recorded: Path) -> None:
    lines = "\n".join(shown(recorded, ["question_mark"]))
    assert all(words in lines for _, words in KEYS)
    assert NO_RINGS.split(" ")[-1] in lines
    assert shown(recorded, ["question_mark", "x"]) == shown(recorded, [])


def test_no_line_is_wider_or_more_than_the_terminal_at_any_size(recorded: Path) -> None:
    with Recording(recorded) as samples:
        for width, height in ((80, 24), (120, 40), (40, 10), (20, 5)):
            for keys in ((), ("enter",), ("2",), ("3",), ("4",), ("?",), ("/", "x")):
                session = TopSession(samples=samples, position=20, replay=True, zone=UTC)
                for key in keys:
                    session.press(key)
                lines = screen(session, width, height)
                assert len(lines) == height, keys
                assert all(line.cell_len <= width for line in lines), (width, keys)


def test_the_rows_around_the_cursor_are_shown_when_there_is_no_room_for_all(recorded: Path) -> None:
    assert names(shown(recorded, ["3", "end"], size=(80, 5))) == ["mail", ">sql1"]
    assert names(shown(recorded, ["3", "end", "home"], size=(80, 5))) == [">sql1", "sql1"]


def test_the_list_of_commands_opens(recorded: Path) -> None:
    assert any("reverse the order" in line for line in shown(recorded, [":", *"reverse"], size=(100, 30)))


def test_live_samples_come_from_a_thread_that_ends_with_the_screen() -> None:
    seconds = iter(range(1, 10_000))
    asked = threading.Semaphore(5)  # so many at most that none is dropped for its age, however slow this machine is
    session = TopSession(samples=[], interval=0.01, zone=UTC)

    def take() -> LiveSample:
        asked.acquire()
        return live(next(seconds))

    async def work() -> None:
        app = TopApp(session, take)
        async with app.run_test(size=SIZE) as pilot:
            while len(session.samples) < 5:  # the run of the test has a limit
                await pilot.pause(0.01)
            await pilot.press("space")
            here = session.position
            asked.release(3)
            while len(session.samples) < 5 + 3:
                await pilot.pause(0.01)
            assert session.position == here, "paused: samples come, and the screen stays"
            await pilot.press("q")
            asked.release(1000)  # they come as the screen goes, which takes them without harm
        app.close()

    asyncio.run(work())
    assert eventually(lambda: "samples" not in [one.name for one in threading.enumerate()], seconds=60)


def test_a_source_that_fails_ends_the_screen_with_its_reason() -> None:
    def take() -> LiveSample:
        raise PreconditionError("cannot reach libvirt")

    async def work() -> None:
        app = TopApp(TopSession(samples=[], interval=0.01), take)
        async with app.run_test(size=SIZE) as pilot:
            while app.error is None:
                await pilot.pause(0.01)
        app.close()

    with pytest.raises(PreconditionError, match="cannot reach libvirt"):
        asyncio.run(work())


def test_a_live_session_keeps_the_last_samples_and_follows_unless_it_is_paused() -> None:
    session = TopSession(samples=[])
    assert session.frame() is None
    for second in range(1, KEPT + 3):
        session.push(live(second))
    assert (len(session.samples), session.position) == (KEPT, KEPT - 1)
    session.press("T")
    assert (session.paused, session.position) == (True, KEPT - 2)
    session.push(live(KEPT + 3))
    assert session.position == KEPT - 3, "it stays on its sample"
    session.press("space")
    assert (session.paused, session.position) == (False, KEPT - 1)
    session.press("a")
    found = session.frame()
    assert found is not None
    assert found.seconds == KEPT + 2, "since the very first one, which is no longer kept"


def test_the_interval_is_chosen_in_steps() -> None:
    session = TopSession(samples=[], interval=1.0)
    seen = []
    for key in "++-----":
        session.press(key)
        seen.append(session.interval)
    assert seen == [2.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.2]


def test_a_damaged_line_further_on_ends_the_screen_with_a_sentence(recorded: Path, tmp_path: Path) -> None:
    lines = recorded.read_bytes().splitlines(keepends=True)
    lines[6] = b'{"kernel":7}\n'
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join(lines))

    async def work() -> None:
        with Recording(damaged) as samples:
            app = TopApp(TopSession(samples=samples, position=1, replay=True, paused=True))
            async with app.run_test(size=SIZE) as pilot:
                await pilot.press("t", "t", "t")
            app.close()

    with pytest.raises(StoreError, match="line 7 is no sample"):
        asyncio.run(work())
