# SPDX-License-Identifier: Apache-2.0
"""The monitor of a running QEMU: synchronous QMP with a deadline on every word."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qemu.qmp import ExecuteError, QMPClient, QMPError

from virtune.model.errors import RigError

_DEADLINE_SECONDS = 10.0
"""Block nodes open in milliseconds; a monitor that says nothing for this long hangs."""


def listens(path: Path) -> bool:
    """Whether a monitor takes connections on the socket already, as the kernel lists it; trying would use one up."""
    flags = "00010000"  # __SO_ACCEPTCON
    lines = Path("/proc/net/unix").read_text().splitlines()
    return any(line.split()[3:4] == [flags] and line.endswith(f" {path}") for line in lines)


class Monitor:
    """A QMP connection over a unix socket. Use as a context manager."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("virtune")

    def __enter__(self) -> Self:
        try:
            self._run(self._client.connect(str(self._socket)))
        except BaseException:
            self._loop.close()
            raise
        return self

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
            raise RigError(f"QEMU's monitor went away: {error}") from None
