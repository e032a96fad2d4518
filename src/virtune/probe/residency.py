# SPDX-License-Identifier: Apache-2.0
"""Page-cache residency: how much of a file the host holds in memory, queried without mapping the file."""

import ctypes
import errno
import os
import platform
from pathlib import Path

from virtune.model.facts import Residency, Unknown

_CACHESTAT = 451
"""cachestat(2), since Linux 6.5; the number is the same on every architecture below."""
_ARCHITECTURES = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "ppc64", "s390x", "loongarch64"})
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _Counts(ctypes.Structure):
    _fields_ = [
        ("cache", ctypes.c_uint64),
        ("dirty", ctypes.c_uint64),
        ("writeback", ctypes.c_uint64),
        ("evicted", ctypes.c_uint64),
        ("recently_evicted", ctypes.c_uint64),
    ]


_libc = ctypes.CDLL(None, use_errno=True)


def cachestat(path: str | Path) -> Residency | Unknown:
    """Return how much of a file (or block device) is in the page cache, by cachestat(2): microseconds, no process."""
    if platform.machine() not in _ARCHITECTURES:
        return Unknown(f"cachestat is not known on {platform.machine()}")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Unknown(f"the file could not be opened: {_words(error.errno)}")
    try:
        span, counts = _Range(0, 0), _Counts()
        failed = _libc.syscall(
            ctypes.c_long(_CACHESTAT), ctypes.c_uint(descriptor), ctypes.byref(span), ctypes.byref(counts), 0
        )
        number = ctypes.get_errno()
    finally:
        os.close(descriptor)
    if failed:
        because = "this kernel has none (needs 6.5)" if number == errno.ENOSYS else _words(number)
        return Unknown(f"cachestat: {because}")
    return Residency(
        cached_bytes=counts.cache * _PAGE_BYTES,
        dirty_bytes=(counts.dirty + counts.writeback) * _PAGE_BYTES,
        source="cachestat",
    )


def _words(number: int | None) -> str:
    return os.strerror(number or 0).lower()
