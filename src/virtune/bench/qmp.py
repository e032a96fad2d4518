# SPDX-License-Identifier: Apache-2.0
"""The monitor of a running QEMU: synchronous QMP with a deadline on every word."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qemu.qmp import ExecuteError, QMPClient, QMPError

from virtune.model.errors import RigError

_DEADLINE_SECONDS = 10.0
"""Block nodes open in milliseconds; a monitor that says nothing for this long hangs."""


_START_SECONDS = 10.0
"""A monitor answers within 20 ms on an idle machine; on a machine that is busy it may take seconds."""

_GREETING_SECONDS = 1.0
"""QEMU loses the greeting of a client that connects in the moment in which the monitor is being set up (seen with
7.2, 1 of 120 starts); a second connection gets it, so none is waited for longer than this."""


class Monitor:
    """A QMP connection over a unix socket. Use as a context manager.

    `gone` says whether the process behind it has ended; then nothing is waited for any longer.
    """

    def __init__(self, socket: Path, *, gone: Callable[[], bool]) -> None:
        self._socket = socket
        self._gone = gone
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("virtune")

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BaseException:
            self._loop.close()
            raise
        return self

    def _connect(self) -> None:
        """Connect as soon as QEMU listens, and again when no greeting comes."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                connecting = self._client.connect(str(self._socket))
                self._loop.run_until_complete(asyncio.wait_for(connecting, _GREETING_SECONDS))
            except (QMPError, OSError, EOFError) as error:
                if self._gone():
                    raise RigError("QEMU ended before its monitor answered") from None
                if time.monotonic() > deadline:
                    raise RigError(f"QEMU's monitor did not answer in time: {_reasons(error)}") from None
                self._client = QMPClient("virtune")
                time.sleep(0.002)
            else:
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._client.disconnect())
        except RigError:
            pass  # the other side is gone already: then there is nothing to take leave of
        finally:
            self._loop.close()

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Execute one command and return its answer; raises RigError with QEMU's own words."""
        try:
            return self._run(self._client.execute(command, dict(arguments or {})))
        except ExecuteError as refusal:
            raise RigError(f"QEMU refused `{command}`: {refusal}") from None

    def _run(self, work: Any) -> Any:
        try:
            return self._loop.run_until_complete(asyncio.wait_for(work, _DEADLINE_SECONDS))
        except ExecuteError:
            raise
        except TimeoutError:
            raise RigError(f"QEMU's monitor said nothing for {_DEADLINE_SECONDS:g} s") from None
        except (QMPError, OSError, EOFError) as error:
            raise RigError(f"QEMU's monitor went away: {_reasons(error)}") from None


def _reasons(error: BaseException) -> str:
    """Say what went wrong down to its cause; the library's own errors say only at which step."""
    said: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(said) < 5:
        said.append(" ".join((str(cause) or type(cause).__name__).split()))
        cause = getattr(cause, "exc", None) or cause.__cause__
    return ": ".join(dict.fromkeys(said))
