# SPDX-License-Identifier: Apache-2.0
"""Read files that other programs wrote: up to a limit, and never through a link or from a device."""

import errno
import os
import stat
from pathlib import Path


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
