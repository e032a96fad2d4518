# SPDX-License-Identifier: Apache-2.0
"""Several monitors are asked at once: none waits for another's answer, and the others answer where one is gone."""

import contextlib
import gc
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from virtune.bench.qmp import BriefMonitor, Monitor, MonitorAnswer, event_loop, execute_all
from virtune.model.errors import RigError

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}


@dataclass
class Speaker:
    """The other end of a monitor, in a thread of its own: it answers `query-name` by its number once all have been
    asked, or goes away instead. The first answer is as late as `slow_seconds`.
    """

    number: int
    all_asked: threading.Barrier
    leaves: bool = False
    slow_seconds: float = 0.0
    asked: list[int] = field(default_factory=list)
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __post_init__(self) -> None:
        ours, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.ends.enter_context(ours)
        self.ends.enter_context(self.client)
        self._socket = ours
        thread = threading.Thread(target=self._speak, daemon=True)
        thread.start()
        self.ends.callback(thread.join, 60)
        self.ends.callback(self._end)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _say(self, words: Mapping[str, object], asked: Mapping[str, object]) -> None:
        with_id = {**words, "id": asked["id"]} if "id" in asked else words
        self._socket.sendall(json.dumps(with_id).encode() + b"\n")

    def _heard(self) -> Iterator[Mapping[str, object]]:
        """Commands come without an end of line."""
        text = ""
        while part := self._socket.recv(65536):
            text += part.decode()
            with contextlib.suppress(ValueError):
                while text:
                    command, end = json.JSONDecoder().raw_decode(text)
                    text = text[end:]
                    yield command

    def _speak(self) -> None:
        with contextlib.suppress(OSError, ValueError, threading.BrokenBarrierError):
            self._say(GREETING, {})
            for asked in self._heard():
                if asked["execute"] == "query-name":
                    if not self.asked:  # one that is slow is asked again
                        self.all_asked.wait(60)
                        time.sleep(self.slow_seconds)
                    if self.leaves:
                        self._end()
                        return
                    self.asked.append(time.monotonic_ns())
                    self._say({"return": {"name": f"vm{self.number}"}}, asked)
                elif asked["execute"] == "interrupted":
                    os.kill(os.getpid(), signal.SIGINT)
                elif asked["execute"] == "refused":
                    self._say({"error": {"class": "GenericError", "desc": "no"}}, asked)
                else:
                    self._say({"return": {}}, asked)


@contextlib.contextmanager
def monitors(count: int, *, leaves: int | None = None) -> Iterator[list[Monitor]]:
    """Monitors that share an event loop; the one of number `leaves` goes away when it is asked."""
    barrier = threading.Barrier(count)
    with contextlib.ExitStack() as ends:
        ends.callback(barrier.abort)
        speakers = [Speaker(number, barrier, leaves=number == leaves) for number in range(count)]
        for one in speakers:
            ends.enter_context(one.ends)
        loop = ends.enter_context(event_loop())
        yield [ends.enter_context(Monitor(one.client, loop)) for one in speakers]


def test_all_are_asked_before_the_first_one_answers() -> None:
    with monitors(3) as some:
        answers = execute_all(some, "query-name")  # one after the other none would ever answer
        assert all(isinstance(one, MonitorAnswer) for one in answers)
        assert [one.said["name"] for one in answers if isinstance(one, MonitorAnswer)] == ["vm0", "vm1", "vm2"]
        assert all(isinstance(one, MonitorAnswer) and one.t_ns > 0 for one in answers)


def test_one_that_goes_away_or_refuses_is_an_error_in_its_place() -> None:
    with monitors(3, leaves=1) as some:
        answers = execute_all(some, "query-name")
        assert [isinstance(one, RigError) for one in answers] == [False, True, False]
        assert "went away" in str(answers[1])
        refused = execute_all([some[0], some[2]], "refused")
        assert all(isinstance(one, RigError) and "refused `refused`" in one.message for one in refused)
    assert execute_all([], "query-name") == []


def test_a_slow_answer_is_asked_for_again_since_its_moment_is_unknown() -> None:
    with contextlib.ExitStack() as ends:
        slow = Speaker(0, threading.Barrier(1), slow_seconds=0.5)
        ends.enter_context(slow.ends)
        monitor = ends.enter_context(Monitor(slow.client, ends.enter_context(event_loop())))
        (answer,) = execute_all([monitor], "query-name")
        assert isinstance(answer, MonitorAnswer)
        assert len(slow.asked) > 1
        assert answer.t_ns > slow.asked[0], "half-way to the first answer is 0.25 s before that"


def test_a_monitor_alone_has_a_loop_of_its_own() -> None:
    with monitors(1) as some, pytest.raises(RigError, match="refused"):
        some[0].execute("refused")


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.filterwarnings("error")
def test_an_interrupt_leaves_nothing_that_fails_when_the_monitor_is_closed(
    caplog: pytest.LogCaptureFixture, *, at_once: bool
) -> None:
    with pytest.raises(KeyboardInterrupt), monitors(1) as (one,):
        execute_all([one], "interrupted") if at_once else one.execute("interrupted")
    gc.collect()  # asyncio logs what was left when it goes
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


GREETS_SECONDS = 0.5


class SlowGreeter(Speaker):
    """One that is greeted late, as a QEMU does whose main loop has no CPU, and notes when it answers."""

    answered_ns: int = 0

    def _speak(self) -> None:
        time.sleep(GREETS_SECONDS)
        super()._speak()

    def _say(self, words: Mapping[str, object], asked: Mapping[str, object]) -> None:
        self.answered_ns = time.monotonic_ns()
        super()._say(words, asked)


def test_connecting_again_is_no_part_of_when_an_answer_was_given() -> None:
    """Rates are what was counted by the time between two answers, and came out too high by what connecting took."""
    with contextlib.ExitStack() as ends:
        speakers: list[SlowGreeter] = []

        def connect() -> socket.socket:
            speakers.append(SlowGreeter(len(speakers), threading.Barrier(1)))
            ends.callback(speakers[-1].ends.close)
            return speakers[-1].client

        loop = ends.enter_context(event_loop())
        with BriefMonitor(connect, loop) as monitor:
            for _ in range(2):
                monitor.rest()
                begun = time.monotonic_ns()
                (answer,) = execute_all([monitor], "query-name")
                assert isinstance(answer, MonitorAnswer)
                assert answer.t_ns - begun > 0.9 * GREETS_SECONDS * 1e9
                assert abs(answer.t_ns - speakers[-1].answered_ns) < GREETS_SECONDS * 1e9 / 4
        assert len(speakers) == 3
