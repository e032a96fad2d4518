# SPDX-License-Identifier: Apache-2.0
"""Waits of verbs that set something on a running QEMU, which they take back however they end."""

import signal
import time
from types import FrameType
from typing import Any, Self


class Rest:
    """Waits between two looks. SIGTERM, with this exit status, and the first Ctrl-C end the program there: in the
    midst of a look they would leave a monitor half connected, or be lost in what asks it, and QEMU's histograms would
    not be taken back. The second Ctrl-C waits for nothing.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._rests = False
        self._asked: tuple[int, FrameType | None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self.end)
        if callable(signal.getsignal(signal.SIGINT)):  # otherwise our parent has it ignored
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self.end)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if kind is None:
            self._end_if_asked()

    def __call__(self, seconds: float) -> None:
        """Wait so long; raises SystemExit or KeyboardInterrupt where it is to end."""
        self._rests = True
        try:
            self._end_if_asked()
            time.sleep(seconds)
        finally:
            self._rests = False

    def end(self, number: int, frame: FrameType | None) -> None:
        """End now if it rests, else with the next rest."""
        again = number == signal.SIGINT and self._asked is not None
        self._asked = number, frame
        if self._rests or again:
            self._end_if_asked()

    def _end_if_asked(self) -> None:
        """Raise once for what was asked; a Ctrl-C is handed on, so that whoever counts them counts it."""
        if self._asked is None:
            return
        (number, frame), self._asked, self._rests = self._asked, None, False
        if number == signal.SIGTERM:
            raise SystemExit(self._status)
        signal.signal(number, self._before[number])  # while histograms are taken back the next one is counted there
        self._before[number](number, frame)
