# SPDX-License-Identifier: Apache-2.0
"""The page of a run that goes on in another process: what it shows, how it follows, and what a killed run leaves."""

import contextlib
import math
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.web.pages import HOSTILE, Page, served
from tests.web.paused_run import run_until, simulated
from tests.web.streams import following

from virtune.cli.common.progress import PAIRS_MAX, POINTS_MAX, with_point
from virtune.model.errors import PreconditionError
from virtune.model.verdict import Interval
from virtune.store.progress import ProgressFile, RunProgress, run_of, runs_of

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def paused(store: Path, number: int) -> Iterator["subprocess.Popen[str]"]:
    """A run in a process of its own that waits after a round."""
    argv = [sys.executable, "-m", "tests.web.paused_run", str(store), str(number)]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == "paused\n"
            yield run
        finally:
            run.kill()


def test_a_run_of_another_process_is_shown_and_followed_until_it_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "store [1].sqlite"
    with paused(store, 8) as run, served(store) as page:
        (found,) = runs_of(store)
        _, listed, _ = page.get("/")
        assert f'href="/live/{found.study}"' in listed
        status, text, headers = page.get(f"/live/{found.study}")
        assert status == 200
        assert "<b>running</b>" in text
        assert re.search(r"<dt>left</dt><dd>at most about ", text)
        assert "<dt>done</dt><dd>16 trials</dd>" in text
        assert "0 of 1 pair" in text
        assert "round 6: " in text
        assert '<noscript><meta http-equiv="refresh"' in text, "without a script the page asks again by itself"
        assert "script-src 'self'; connect-src 'self'; default-src 'none'" in headers["content-security-policy"]
        for script in re.findall(r'<script src="([^"]+)"', text):
            got = page.get(script)
            assert (got[0], got[2]["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert page.get("/static/app.py")[0] == 404
        with following(page, found.study) as stream:
            assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
            assert "16 trials" in stream.event()[1]
            run.kill()
            told = [stream.event()]
            while told[-1][0] != "over":
                told.append(stream.event())
            assert "<b>not running</b>" in told[-2][1]
            assert f"`virtune compare resume {found.study}` continues it" in told[-2][1]
        assert list(runs_of(store)) == []
        assert "unfinished" in page.get("/")[1]
        _, text, _ = page.get(f"/live/{found.study}")
        assert "<script" not in text, "nothing is to be followed any more"


def test_a_run_of_hostile_names_goes_on_to_its_end_and_leaves_no_file(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    study = simulated(tmp_path, candidate=HOSTILE + "x" * 10_000 + "\r\ndata: y\u2028z")
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go_on.wait(60)

    work = threading.Thread(target=run_until, args=(study, store, 7, wait))
    work.start()
    try:
        assert reached.wait(60)
        with served(store) as page, following(page, study.id) as stream:
            name, text = stream.event()
            assert name == ""
            _, whole, _ = page.get(f"/live/{study.id}")
            for shown in (text, whole):
                assert "alert(1)" in shown
                assert "<script>alert" not in shown
                assert "\x1b" not in shown
                assert "{{7*7}}" in shown
            assert len(text) < 10_000
            go_on.set()
            told = [stream.event()]
            while told[-1][0] != "over":
                told.append(stream.event())
            assert "<b>finished</b>: 28 trials measured" in told[-2][1]
            assert page.get("/live/none-of-them")[0] == 404
            assert page.get("/live/none-of-them/events")[0] == 404
    finally:
        go_on.set()
        work.join(60)
    assert sorted(one.name for one in tmp_path.iterdir() if "-run-" in one.name) == []


def test_the_server_ends_although_a_page_of_a_run_is_open(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    study = simulated(tmp_path)
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go_on.wait(60)

    work = threading.Thread(target=run_until, args=(study, store, 7, wait))
    work.start()
    try:
        assert reached.wait(60)
        argv = [sys.executable, "-m", "virtune", "serve", "--store", str(store), "--port", "0"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
            try:
                assert server.stderr is not None
                address = urlsplit(server.stderr.readline().strip())
                assert address.port is not None
                with following(Page(address.port, store, address.query.partition("=")[2]), study.id) as stream:
                    assert "running" in stream.event()[1]
                    server.terminate()
                    assert server.wait(60) in (0, -15)
                assert server.stderr.read() == "", "nothing is complained of"
            finally:
                server.kill()
    finally:
        go_on.set()
        work.join(60)


def test_only_a_file_of_a_living_run_is_believed_and_no_other_is_touched(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    place = tmp_path / "s.sqlite-run-x"
    run = RunProgress(study="x", title="compare")
    place.write_text("a file of the user's")
    with ProgressFile(store, "x") as file:
        file.write(run)
        assert run_of(store, "x") is None
    assert place.read_text() == "a file of the user's"
    place.unlink()
    os.mkfifo(place)
    assert list(runs_of(store)) == []
    place.unlink()
    place.symlink_to(tmp_path / "elsewhere")
    with ProgressFile(store, "x") as file:
        file.write(run)
    assert not (tmp_path / "elsewhere").exists()
    place.unlink()
    with ProgressFile(store, "x") as file:
        file.write(run)
        assert run_of(store, "x") == run
        with pytest.raises(PreconditionError, match="another process runs study x"), ProgressFile(store, "x"):
            pytest.fail("it ran twice")
        assert run_of(store, "x") == run
        kept = place.read_bytes()
    assert not place.exists()
    place.write_bytes(kept)  # as a killed run leaves it: nobody holds its lock
    assert run_of(store, "x") is None
    assert run_of(store, "../x") is None
    os.utime(place, (0, 0))
    with ProgressFile(store, "y") as file:
        file.write(replace_study(run, "y"))
        assert not place.exists(), "what a killed run left goes after a day"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(place))
            assert [one.study for one in runs_of(store)] == ["y"]


def test_a_run_is_shown_without_opening_its_store(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with ProgressFile(store, "x") as file, served(store) as page:
        file.write(RunProgress(study="x", title="compare", done=3))
        status, text, _ = page.get("/live/x")
        assert status == 200
        assert "<b>running</b>" in text
    assert not store.exists()


def replace_study(run: RunProgress, study: str) -> RunProgress:
    return RunProgress(study=study, title=run.title)


@pytest.mark.parametrize("ends", [(0.0, math.inf), (math.nan, math.nan), (0.9, 1.1)])
def test_a_history_stays_small_and_holds_numbers_that_can_be_drawn(ends: tuple[float, float]) -> None:
    points = with_point((), 1, None)
    assert points == ()
    for number in range(6, 1_000):
        ratio = Interval(low=ends[0], estimate=1.0, high=ends[1], confidence=0.95)
        points = with_point(points, number, ratio)
    assert len(points) <= POINTS_MAX
    assert points[-1].round == 999
    assert all(0 < one.low <= one.estimate <= one.high < math.inf for one in points)
    assert PAIRS_MAX * POINTS_MAX < 2_000
