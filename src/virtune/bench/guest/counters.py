# SPDX-License-Identifier: Apache-2.0
"""Sample the counters of a guest's kernel while its load runs, raw, on demand and every second."""

import json
import time

from virtune.bench.guest.channel import Guest, GuestError
from virtune.bench.ticker import Ticker

SCHEMA = "virtune/guest-counters/1"

_FILES = ("/proc/uptime", "/proc/stat", "/proc/diskstats", "/proc/interrupts")
_TIMEOUT_SECONDS = 10.0


class GuestSampler(Ticker):
    """Samples a guest's counters in its own thread while the block runs; `content()` returns the samples.

    `t` is the host's monotonic clock in ns at the request, `took_ns` the time to the answer: the counters were read
    in between. A guest that does not answer leaves a gap with the reason.
    """

    def __init__(self, guest: Guest, *, interval_seconds: float = 1.0) -> None:
        super().__init__("guest-sampler", interval_seconds=interval_seconds)
        self._guest = guest
        self._lines = [json.dumps({"schema": SCHEMA, "files": _FILES}) + "\n"]

    def sample(self, *, mark: str = "") -> int:
        """Take a sample now, findable by its mark; returns its time (monotonic ns)."""
        begun = time.monotonic_ns()
        line: dict[str, object] = {"t": begun, "wall": time.time()} | ({"mark": mark} if mark else {})
        try:
            output = self._guest.run(["cat", *_FILES], timeout_seconds=_TIMEOUT_SECONDS)
            line["text"] = output.stdout.decode(errors="replace")
        except GuestError as error:
            line["gap"] = error.message
        line["took_ns"] = time.monotonic_ns() - begun
        self._lines.append(json.dumps(line) + "\n")
        return begun

    def content(self) -> bytes:
        """Return all samples as JSON lines; the first line says what they hold."""
        return "".join(self._lines).encode()

    def _still_there(self, kind: type[BaseException] | None) -> bool:  # noqa: ARG002 - however the load ended
        """Return False: a last sample is not needed, since the measured time ends with a mark, and a failed guest
        would not answer.
        """
        return False
