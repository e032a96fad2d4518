# SPDX-License-Identifier: Apache-2.0
"""Which device a path leads to, by statx(2): what the kernel knows, without asking any server."""

import os
import stat
import struct
from pathlib import Path

from virtune import warden

_DONT_SYNC = 0x4000
"""AT_STATX_DONT_SYNC: what the kernel knows; a network filesystem whose server is gone would let its caller wait."""

_TYPE = 0x1
_MODE_AT, _RDEV_AT = 28, 128
"""Offsets in struct statx of `stx_mode` (u16), and of `stx_rdev_major` and `stx_rdev_minor` (u32 each)."""


def node_at(path: Path) -> str | None:
    """Return the number of the device node that a path leads to: `259:0` of a block device, `c 240:0` of a character
    device; None for anything else. Raises OSError where the path leads nowhere.
    """
    buffer = warden.statx(path, _DONT_SYNC, _TYPE)
    if buffer is None:
        status = path.stat()
        mode, major, minor = status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev)
    else:
        (mode,) = struct.unpack_from("=H", buffer, _MODE_AT)
        major, minor = struct.unpack_from("=II", buffer, _RDEV_AT)
    kind = "" if stat.S_ISBLK(mode) else "c " if stat.S_ISCHR(mode) else None
    return None if kind is None else f"{kind}{major}:{minor}"
