# SPDX-License-Identifier: Apache-2.0
"""Sample a block device: how many requests its driver has, and how many were completed in what time.

A disk's counters begin when a request enters the block layer's queue, and so does its number of requests in flight;
`inflight` in /sys counts a request from when the driver has it (blk-mq devices). The ratio of the two numbers tells
the wait in the queue from the time in the device. They are read in the same moment, so that a sampler which gets no
CPU in busy moments is wrong in both alike.
"""

import contextlib
import json
import time
from pathlib import Path

from virtune.bench.ticker import Ticker
from virtune.model.live import DiskCurve

INTERVAL_SECONDS = 0.01
"""How often the device is looked at: a look takes 30 us."""

_POINT_SECONDS = 0.05
"""How often the sums so far are kept."""


class DiskQueue(Ticker):
    """Samples a device while the block runs. A device without these files gives a curve without points."""

    def __init__(self, device: str, *, root: Path = Path("/sys/class/block")) -> None:
        super().__init__("disk-queue", interval_seconds=INTERVAL_SECONDS)
        self._inflight, self._stat = root / device / "inflight", root / device / "stat"
        self._device = device
        self._before = 0.0
        self._inside, self._all, self._due = 0.0, 0.0, 0.0
        self._points: list[tuple[int, int, int, float, float]] = []

    def sample(self, *, mark: str = "") -> int:
        """Look at it now."""
        now = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            inside = sum(map(int, self._inflight.read_text().split()))
            words = [int(word) for word in self._stat.read_text().split()]
            if self._before:
                self._inside += inside * (now - self._before)
                self._all += words[8] * (now - self._before)
            self._before = now
            if mark or now >= self._due:
                sums = (words[0] + words[4], words[3] + words[7], self._inside, self._all)
                self._points.append((int(now * 1e9), *sums))
                self._due = now + _POINT_SECONDS
        return int(now * 1e9)

    def content(self) -> bytes:
        """Return what was seen, as a capture."""
        return json.dumps({"device": self._device, "points": self._points}).encode() + b"\n"

    def curve(self) -> DiskCurve:
        """Return what was seen."""
        return DiskCurve(points=tuple(self._points))
