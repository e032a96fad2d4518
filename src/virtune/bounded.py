# SPDX-License-Identifier: Apache-2.0
"""Reading what other programs wrote: never more than asked for, and never through a link or from a device."""

import errno
import os
import stat
from pathlib import Path


def read_bounded(path: Path, most_bytes: int, *, from_end: bool = False) -> bytes:
    """Return what a file that a program of ours wrote holds, at most so many bytes of its beginning or its end.

    Raises OSError, also for what is no file: a link to a device never ends.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if from_end:
            file.seek(max(0, status.st_size - most_bytes))
        # a read allocates what is asked for, so no more is asked for than is there, and a byte to see it grow
        return file.read(min(most_bytes, status.st_size + 1))
