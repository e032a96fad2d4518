# SPDX-License-Identifier: Apache-2.0
"""The monitor of a running QEMU: synchronous QMP with a deadline on every command; several can be asked at once."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self, TypeVar

from qemu.qmp import ExecuteError, Message, QMPClient, QMPError

from virtune.dialects.qemu.answers import read_answer
from virtune.model.errors import RigError
from virtune.model.text import printable

logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())
"""The library logs what it also raises; the log would reach the user unfiltered."""

_DEADLINE_SECONDS = 10.0
"""Block nodes open in milliseconds; a monitor that is silent for this long hangs."""

START_SECONDS = 20.0
"""A monitor answers within 20 ms on an idle machine; a QEMU that starts on a busy one may take seconds."""

RUNNING_SECONDS = _DEADLINE_SECONDS
"""One that has long been running answers its first command no later than the others."""

_TROUBLE = (QMPError, OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What the library raises where the other side is gone, or is no QEMU: a line beyond its limit of 10 MiB, an answer
nested too deeply, numbers of 5,000 digits, members of a wrong type come through as Python's own errors."""

_SAID_MAX = 300
"""Characters of the other side's words that a message repeats."""

_END_SECONDS = 1.0
"""What is told to end needs no answer of anybody's."""

_SLOW_NS, _HANGS_NS = 10_000_000, 1_000_000_000
"""An answer takes 1.6 ms; beside eight busy processes on two CPUs 3 ms, and 16 at most of 150. When one was given
that took 10 ms, for each that is asked with it, is not known well enough; who takes a second has no quick one.
"""

_ASKED_MOST = 4

T = TypeVar("T")


class _Client(QMPClient):
    """A client that writes no log: the library formats every message for its debug log whether or not anybody keeps
    it, which took a third of the CPU time of watching ten VMs.
    """

    def _cb_inbound(self, msg: Message) -> Message:
        return msg

    def _cb_outbound(self, msg: Message) -> Message:
        return msg


class MonitorEnded(RigError):  # noqa: N818 - a QEMU that ends is no error of its own
    """The other side closed the connection, as a QEMU does that ends."""


class Monitor:
    """QMP over a connection that the process behind it was started with. Use as a context manager.

    A QEMU may lose the greeting, or crash, if a client connects while its monitor is set up: two of its threads race
    (seen with 7.2, 4 of 2400 starts; 0 of 2000 with a connection handed over).

    Monitors that are to be asked at once share an event loop, which whoever made it closes.
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._start_seconds = start_seconds
        self._connection = connection
        self._ends = contextlib.ExitStack()
        self._loop = loop or self._ends.enter_context(event_loop())
        self._client = _Client("virtune")

    def __enter__(self) -> Self:
        try:
            connecting = self._client.connect(self._connection)
            _completed(self._loop, asyncio.wait_for(connecting, self._start_seconds))
        except _TROUBLE as error:
            self._ends.close()
            if isinstance(error, TimeoutError):
                raise RigError(
                    f"QEMU's monitor did not answer within {self._start_seconds:g} s",
                    hint="a monitor serves one client at a time: give QEMU another `-qmp`",
                ) from None
            raise RigError(f"QEMU's monitor never answered: {_reasons(error)}") from None
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._ends, contextlib.suppress(*_TROUBLE):  # the other side may be gone already
            _completed(self._loop, asyncio.wait_for(self._client.disconnect(), _DEADLINE_SECONDS))

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Execute one command and return its answer, None where nobody reads it; raises RigError with QEMU's message,
        or where the answer is not as QEMU answers.
        """
        return _completed(self._loop, self._answer(command, arguments or {}))

    def unplug(self, device: str, *, last: str) -> None:
        """Unplug a device, and wait until the guest has let go of the `last` one that goes with it."""

        async def work() -> None:
            with self._client.listener(("DEVICE_DELETED",)) as listener:
                await self._client.execute("device_del", {"id": device})
                async for message in listener:
                    data = dict(message).get("data", {})
                    if isinstance(data, Mapping) and data.get("device") == last:
                        return

        _completed(self._loop, self._tried("device_del", work()))

    def rest(self) -> None:
        """Let others have the monitor until it is next asked. Nothing here, where the connection is its own."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    async def answer(self, command: str, *, slow_ns: int) -> "MonitorAnswer | RigError":
        """Execute a command that changes nothing; returns its answer, or the error. One that was slow, as where QEMU
        or virtune has no CPU, is asked for again some times, and the quickest counts.
        """
        found: list[tuple[int, MonitorAnswer]] = []
        try:
            await self._awake()  # connecting is no part of the time at which QEMU answered
            while not found or (len(found) < _ASKED_MOST and slow_ns < found[-1][0] < _HANGS_NS):
                begun = time.monotonic_ns()
                said = await self._answer(command, {})
                took = time.monotonic_ns() - begun
                found.append((took, MonitorAnswer(said=said, t_ns=begun + took // 2)))
        except RigError as error:
            return error
        return min(found, key=itemgetter(0))[1]

    async def _awake(self) -> None:
        """Be connected. Nothing here, where the connection is its own."""

    async def _answer(self, command: str, arguments: Mapping[str, Any]) -> Any:
        await self._awake()
        said = await self._tried(command, self._client.execute(command, dict(arguments)))
        try:
            return read_answer(command, arguments, said)
        except ValueError as error:
            raise RigError(f"the answer to `{command}` is not as QEMU answers: {error}") from None

    async def _tried(self, command: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await asyncio.wait_for(work, _DEADLINE_SECONDS)
        except ExecuteError as refusal:
            raise RigError(f"QEMU refused `{command}`: {printable(str(refusal), most=_SAID_MAX)}") from None
        except TimeoutError:
            raise RigError(f"QEMU's monitor said nothing for {_DEADLINE_SECONDS:g} s") from None
        except _TROUBLE as error:
            if (cause := await self._cause()) is None:
                raise MonitorEnded(f"QEMU's monitor went away: {_reasons(error)}") from None
            raise RigError(f"QEMU's monitor sent what cannot be read: {_reasons(cause)}") from None

    async def _cause(self) -> BaseException | None:
        """Return what was wrong with what came, which whoever waits for an answer is not told; None: nothing."""
        try:
            await asyncio.wait_for(self._client.disconnect(), _END_SECONDS)
        except (OSError, EOFError):
            return None
        except _TROUBLE as error:
            return error
        return None


class BriefMonitor(Monitor):
    """QMP of a QEMU that belongs to others, who may want its monitor, which serves one client at a time: `rest` gives
    it back, and the next command connects again. `connect` raises OSError where nothing listens any more.
    """

    def __init__(self, connect: Callable[[], socket.socket], loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(connect(), loop, start_seconds=RUNNING_SECONDS)
        self._connect = connect
        self._resting = False

    def rest(self) -> None:
        if not self._resting:
            self._resting = True
            with contextlib.suppress(*_TROUBLE):  # the other side may be gone already
                _completed(self._loop, asyncio.wait_for(self._client.disconnect(), _END_SECONDS))

    async def _awake(self) -> None:
        if not self._resting:
            return
        try:
            connecting = self._client.connect(self._connect())
            await asyncio.wait_for(connecting, self._start_seconds)
        except TimeoutError:
            raise RigError(f"its monitor was in use by another client for {self._start_seconds:g} s") from None
        except _TROUBLE as error:
            raise MonitorEnded(f"QEMU's monitor went away: {_reasons(error)}") from None
        self._resting = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorAnswer:
    """An answer of a monitor; `t_ns` is the monotonic time half-way between question and answer."""

    said: Any
    t_ns: int


@contextlib.contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield an event loop for monitors, and close it."""
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        try:
            yield loop
        finally:
            for task in asyncio.all_tasks(loop):  # where a Ctrl-C came before a task took its first step
                _end(loop, task)


def execute_all(monitors: Sequence[Monitor], command: str) -> list[MonitorAnswer | RigError]:
    """Ask all monitors of one event loop at once; returns an answer or an error for each, in their order."""
    if not monitors:
        return []
    (loop,) = {one.loop for one in monitors}
    slow_ns = _SLOW_NS * len(monitors)

    async def work() -> list[MonitorAnswer | RigError]:
        return await asyncio.gather(*(one.answer(command, slow_ns=slow_ns) for one in monitors))

    return _completed(loop, work())


def _completed(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run some work to its end. Where a Ctrl-C interrupts it, it is ended too: what is left in a loop fails when the
    connection is closed, and asyncio would print that failure.
    """
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    finally:
        _end(loop, task)


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """End a task that is not done, and take its error."""
    if not task.done():
        task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until_complete(asyncio.wait([task], timeout=_END_SECONDS))
    if task.done() and not task.cancelled():
        task.exception()


def _reasons(error: BaseException) -> str:
    """Return the error with its causes; the library's own errors only name the step."""
    said: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(said) < 5:
        said.append(" ".join((str(cause) or type(cause).__name__).split()))
        cause = getattr(cause, "exc", None) or cause.__cause__
    return printable(": ".join(dict.fromkeys(said)), most=_SAID_MAX)
