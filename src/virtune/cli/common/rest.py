# SPDX-License-Identifier: Apache-2.0
"""Waits of verbs that set something on a running QEMU, which they take back however they end."""

import signal
import time
from typing import Any, Self


class Rest:
    """Waits between two looks. SIGTERM ends the program there, with this exit status: in the midst of a look its
    exception may be lost in what asks a monitor, and QEMU's histograms would not be taken back.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._rests = self._over = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, self.end)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def __call__(self, seconds: float) -> None:
        """Wait so long; raises SystemExit where it is to end."""
        self._rests = True
        try:
            if self._over:
                raise SystemExit(self._status)
            time.sleep(seconds)
        finally:
            self._rests = False

    def end(self, *_: object) -> None:
        """End now if it rests, else with the next rest."""
        self._over = True
        if self._rests:
            raise SystemExit(self._status)
