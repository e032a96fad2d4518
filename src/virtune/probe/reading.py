# SPDX-License-Identifier: Apache-2.0
"""Read files that a user names, up to a limit; a FIFO is read to its end, if a writer opens it in time."""

import errno
import os
import select
import stat
import time
from pathlib import Path

_WRITER_SECONDS = 5.0
"""How long to wait for a FIFO's writer: a shell opens `<(...)` at about the time it starts us."""

_TICK_SECONDS = 0.02
_CHUNK_BYTES = 1024**2


def read_up_to(path: Path, limit: int, *, writer_seconds: float = _WRITER_SECONDS) -> bytes:
    """Return a file's first bytes, at most `limit`; raises OSError, also for a FIFO without a writer in that time."""
    # not blocking: opening a FIFO would wait for its writer for ever
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        wait = writer_seconds if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
        return _all(descriptor, limit, wait)
    finally:
        os.close(descriptor)


def _all(descriptor: int, limit: int, wait: float | None) -> bytes:
    """Read to the end. A FIFO, which has a time to wait, seems to be at its end while it has no writer."""
    deadline = time.monotonic() + (wait or 0.0)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    content = bytearray()
    begun = False
    while len(content) < limit:
        try:
            chunk = os.read(descriptor, min(_CHUNK_BYTES, limit - len(content)))
        except BlockingIOError:
            begun = True
            poll.poll()
            continue
        content += chunk
        if not chunk:
            if begun or content or wait is None or poll.poll(0):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "it is a FIFO, and no program writes to it")
            time.sleep(_TICK_SECONDS)
    return bytes(content)
