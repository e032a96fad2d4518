# SPDX-License-Identifier: Apache-2.0
"""statx(2), for what Python's `os.stat` cannot ask: when a file was made, and what is known without any server."""

import ctypes
import os
import stat
import struct
from pathlib import Path

_AT_FDCWD = -100
_DONT_SYNC = 0x4000
"""AT_STATX_DONT_SYNC: what the kernel knows; a network filesystem whose server is gone would let its caller wait."""

_TYPE, _BTIME = 0x1, 0x800
_BYTES = 256
_MASK_AT, _MODE_AT, _BTIME_AT, _RDEV_AT = 0, 28, 80, 128
"""Offsets in struct statx of `stx_mask` (u32), `stx_mode` (u16), `stx_btime` (s64 seconds, u32 ns) and
`stx_rdev_major`, `stx_rdev_minor` (u32 each): linux/stat.h.
"""

_libc = ctypes.CDLL(None, use_errno=True)


def born_ns(path: Path) -> int | None:
    """Return when a file was made; None where the C library or the filesystem does not tell."""
    buffer = _statx(path, 0, _BTIME)
    if buffer is None or not struct.unpack_from("=I", buffer, _MASK_AT)[0] & _BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, _BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds)


def node_at(path: Path) -> str | None:
    """Return the number of the device node that a path leads to: `259:0` of a block device, `c 240:0` of a character
    device; None for anything else. Raises OSError where the path leads nowhere.
    """
    buffer = _statx(path, _DONT_SYNC, _TYPE)
    if buffer is None:
        status = path.stat()
        mode, major, minor = status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev)
    else:
        (mode,) = struct.unpack_from("=H", buffer, _MODE_AT)
        major, minor = struct.unpack_from("=II", buffer, _RDEV_AT)
    kind = "" if stat.S_ISBLK(mode) else "c " if stat.S_ISCHR(mode) else None
    return None if kind is None else f"{kind}{major}:{minor}"


def _statx(path: Path, flags: int, mask: int) -> bytes | None:
    buffer = ctypes.create_string_buffer(_BYTES)
    try:
        failed = _libc.statx(_AT_FDCWD, os.fsencode(path), flags, mask, buffer)
    except AttributeError:  # a C library without it
        return None
    return None if failed else buffer.raw
