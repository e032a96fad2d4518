# SPDX-License-Identifier: Apache-2.0
"""Extents: how much of a file was never written, so that reading it would not reach the disk.

FIEMAP distinguishes holes from allocated blocks without data; on a filesystem without it (tmpfs), SEEK_HOLE counts
both as holes. The file is flushed first: until then, data written over preallocated blocks still counts as unwritten.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from virtune.model.facts import Extents, Unknown

_FS_IOC_FIEMAP = 0xC020660B
_FIEMAP_FLAG_SYNC = 0x1
_EXTENT_LAST = 0x1
_EXTENT_UNWRITTEN = 0x800
_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_BATCH = 512
"""Extents asked for at a time: 28 KiB of answer."""


def unwritten_bytes(path: str | Path, length: int) -> Extents | Unknown:
    """Return how much of a file's first `length` bytes was never written.

    Bytes beyond the end of the file count as a hole.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Unknown(f"the file could not be opened: {_words(error)}")
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Unknown("only a regular file has extents; what a device has stored, only the device knows")
        try:
            return _by_fiemap(descriptor, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EBADR, errno.EINVAL):
                raise
        return _by_seek(descriptor, length)
    except OSError as error:
        return Unknown(f"the file's extents could not be read: {_words(error)}")
    finally:
        os.close(descriptor)


def _by_fiemap(descriptor: int, length: int) -> Extents:
    written = unwritten = 0
    end = min(length, os.fstat(descriptor).st_size)
    for start, size, flags in _extents(descriptor, end):
        inside = max(0, min(start + size, end) - start)
        if flags & _EXTENT_UNWRITTEN:
            unwritten += inside
        else:
            written += inside
    return Extents(
        length_bytes=length, hole_bytes=length - written - unwritten, unwritten_bytes=unwritten, method="fiemap"
    )


def _extents(descriptor: int, end: int) -> Iterator[tuple[int, int, int]]:
    position = 0
    while position < end:
        buffer = bytearray(_HEADER.size + _BATCH * _EXTENT.size)
        _HEADER.pack_into(buffer, 0, position, end - position, _FIEMAP_FLAG_SYNC, 0, _BATCH, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
        mapped = _HEADER.unpack_from(buffer)[3]
        following, last = position, False
        for index in range(mapped):
            start, _, size, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _HEADER.size + index * _EXTENT.size)
            # the first extent of a batch may begin before what was asked for
            yield max(start, position), size - max(0, position - start), flags
            last = bool(flags & _EXTENT_LAST)
            following = start + size
        if last or following <= position:
            return
        position = following


def _by_seek(descriptor: int, length: int) -> Extents:
    end = min(length, os.fstat(descriptor).st_size)
    written = position = 0
    while position < end:
        try:
            data = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # no data from here to the end
        if data >= end:
            break
        hole = min(os.lseek(descriptor, data, os.SEEK_HOLE), end)
        written += hole - data
        position = hole
    return Extents(length_bytes=length, hole_bytes=length - written, unwritten_bytes=None, method="seek")


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
