# SPDX-License-Identifier: Apache-2.0
"""Files that a user names, read up to a limit; of a FIFO whatever its writer writes, if there is one in time."""

import errno
import os
import select
import stat
import time
from pathlib import Path

_WRITER_SECONDS = 5.0
"""So long a FIFO is given to be opened by a writer: a shell does that for `<(...)` at about the time it starts us."""

_TICK_SECONDS = 0.02
_CHUNK_BYTES = 1024**2


def read_up_to(path: Path, limit: int) -> bytes:
    """Return a file's first bytes, at most `limit`; raises OSError, for a FIFO that nobody opens to write too."""
    # not blocking: opening a FIFO would wait for its writer for ever
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _all(descriptor, limit, fifo=stat.S_ISFIFO(os.fstat(descriptor).st_mode))
    finally:
        os.close(descriptor)


def _all(descriptor: int, limit: int, *, fifo: bool) -> bytes:
    """Read to the end. A FIFO that nobody has opened to write looks as if it were at its end."""
    deadline = time.monotonic() + _WRITER_SECONDS
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
            if begun or content or not fifo or poll.poll(0):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "it is a FIFO, and no program writes to it")
            time.sleep(_TICK_SECONDS)
    return bytes(content)
