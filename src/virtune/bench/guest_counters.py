# SPDX-License-Identifier: Apache-2.0
"""What a guest's own kernel counted while its load ran, raw, on demand and every second."""

import json
import threading
import time
from types import TracebackType
from typing import Self

from virtune.bench.guest import Guest, GuestError

SCHEMA = "virtune/guest-counters/1"

_FILES = ("/proc/uptime", "/proc/stat", "/proc/diskstats", "/proc/interrupts")
_TIMEOUT_SECONDS = 10.0


class GuestSampler:
    """Samples a guest's counters in a thread of its own while the block runs; `content()` is what was read.

    `t` is the host's monotonic clock in ns when the guest was asked, `took_ns` how long its answer took: somewhere in
    between it was read. A guest that does not answer leaves a gap, which says why.
    """

    def __init__(self, guest: Guest, *, interval_seconds: float = 1.0) -> None:
        self._guest = guest
        self._interval = interval_seconds
        self._lines = [json.dumps({"schema": SCHEMA, "files": _FILES}) + "\n"]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guest-sampler", daemon=True)

    def __enter__(self) -> Self:
        self.sample(mark="start")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if kind is None:
            self.sample(mark="end")

    def sample(self, *, mark: str = "") -> None:
        """Take a sample now, findable by its mark."""
        begun = time.monotonic_ns()
        line: dict[str, object] = {"t": begun, "wall": time.time()} | ({"mark": mark} if mark else {})
        try:
            output = self._guest.run(["cat", *_FILES], timeout_seconds=_TIMEOUT_SECONDS)
            line["text"] = output.stdout.decode(errors="replace")
        except GuestError as error:
            line["gap"] = error.message
        line["took_ns"] = time.monotonic_ns() - begun
        self._lines.append(json.dumps(line) + "\n")

    def content(self) -> bytes:
        """Return all samples as JSON lines; the first line says what they hold."""
        return "".join(self._lines).encode()

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            self.sample()
