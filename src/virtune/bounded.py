# SPDX-License-Identifier: Apache-2.0
"""Open and read files that a user names or other programs wrote: up to a limit, and those of programs never through a
link or from a device; a FIFO is read to its end, if a writer opens it in time. Write our own whole or not at all.
"""

import contextlib
import errno
import json
import os
import select
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VALUES_MAX = 2_000_000
"""Of a JSON text from elsewhere: each may take a hundred bytes of memory. An audit of 1,000 VMs has 700,000."""


def require_few_values(text: str) -> None:
    """Raise ValueError for JSON of which more is made than a process should hold."""
    if len(text) > VALUES_MAX and sum(map(text.count, ",[{")) > VALUES_MAX:
        raise ValueError("it has too many values")


def read_json(text: str) -> Any:
    """Return what a JSON text from elsewhere says. Raises ValueError for what is none, or has too many values."""
    require_few_values(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is too deep") from None


@contextlib.contextmanager
def opened(
    path: str | Path, flags: int = os.O_RDONLY | os.O_NONBLOCK, mode: int = 0o600, *, within: int | None = None
) -> Iterator[int]:
    """Open a file while the block runs, and yield its descriptor, which no child inherits; a new one gets this mode,
    and a relative path is `within` a directory's descriptor. Raises OSError.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file that is there whole or not at all, on the disk when this returns. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def read_bounded(path: Path, most_bytes: int, *, from_end: bool = False) -> bytes:
    """Return at most so many bytes from the begin or the end of a file that a child process wrote.

    Raises OSError, also for anything but a regular file: a link to a device might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if from_end:
            file.seek(max(0, status.st_size - most_bytes))
        # a read allocates the requested size, so it requests the file's size, and one byte more to notice growth
        return file.read(min(most_bytes, status.st_size + 1))


_RUN_DIGITS = 5
"""The number of a run has fewer."""

_WRITER_SECONDS = 5.0
"""How long to wait for a FIFO's writer: a shell opens `<(...)` at about the time it starts us."""

_TICK_SECONDS = 0.02
_CHUNK_BYTES = 1024**2


def read_up_to(path: Path, limit: int, *, writer_seconds: float = _WRITER_SECONDS) -> bytes:
    """Return a file's first bytes, at most `limit`; raises OSError, also for a FIFO without a writer in that time."""
    with opened(path) as descriptor:  # not blocking: opening a FIFO would wait for its writer for ever
        wait = writer_seconds if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
        return _all(descriptor, limit, wait)


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


def file_and_run(path: Path) -> tuple[Path, int | None]:
    """Tell a file (`results.json`) from one of its runs (`results.json:2`): its path, and the number of the run."""
    name, _, number = path.name.rpartition(":")
    named = path.with_name(name) if name else path
    if number.isdecimal() and len(number) < _RUN_DIGITS and not path.exists() and named.is_file():
        return named, int(number)
    return path, None
