# SPDX-License-Identifier: Apache-2.0
"""Periodic sampling while a load runs: at the start, in a separate thread, and at the end."""

import abc
import threading
import time
from types import TracebackType
from typing import Self


class Ticker(abc.ABC):
    """Takes a sample when its block begins, each interval while it runs, and when it ends."""

    def __init__(self, name: str, *, interval_seconds: float) -> None:
        self._interval = interval_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self.sample(mark="start")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._still_there(kind):
            self.sample(mark="end")

    @abc.abstractmethod
    def sample(self, *, mark: str = "") -> int:
        """Take a sample now, with a mark to find it by; returns its time (monotonic ns)."""

    def _still_there(self, kind: type[BaseException] | None) -> bool:  # noqa: ARG002 - for those who ask somebody else
        """Whether a last sample is possible after a block that ended like this."""
        return True

    def _run(self) -> None:
        begin = time.monotonic()
        count = 1
        while not self._end.wait(max(0.0, begin + count * self._interval - time.monotonic())):
            self.sample()
            # a late sample must neither delay all that follow, nor cause a burst
            count = max(count + 1, int((time.monotonic() - begin) / self._interval) + 1)
