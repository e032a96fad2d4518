# SPDX-License-Identifier: Apache-2.0
"""What stands for a power cut where the host cannot be switched off: an ext4 of virtune's own that is cut off.

The ext4 lies on a loop device, on a file in the scratch directory. When it is shut down (EXT4_IOC_SHUTDOWN) without
its journal being flushed, all that it had only in memory is gone: the pages of the cache, and the metadata that was
not committed. What it was made to write, by O_DIRECT and by flushes, is in the file below it, and there it stays: the
cache of that file is no part of the cut. So the loop device itself loses nothing.

Nothing of it can be left behind, whenever virtune is killed: the file has no name, the loop device clears itself when
nobody has it open, and the mount is in no directory. All of them go with descriptors of this process; other processes
reach the image by its path in /proc while this one lives.
"""

import contextlib
import ctypes
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from virtune import shell
from virtune.bench.scratch import find_maker
from virtune.bounded import opened

SIZE_BYTES = 128 * 1024**2

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""The numbers of these system calls, the same on every machine; no C library before 2.36 of GNU has them."""

_CLOEXEC, _SET_STRING, _CREATE = 1, 1, 6
_LOOP_FREE, _LOOP_CONFIGURE = 0x4C82, 0x4C0A
_LOOP_CONFIG = struct.Struct("=II 52x I 240x")
"""struct loop_config of linux/loop.h: the file, the size of a block, and in the loop_info64 in it the flags."""

_AUTOCLEAR = 4
_SHUTDOWN, _NOLOGFLUSH = 0x8004587D, struct.pack("=I", 2)

_TAKEN = 20
"""How often another process may take the loop device that was free a moment ago."""

_MAKE_SECONDS, _FREE_SECONDS = 60.0, 10.0
_TICK_SECONDS = 0.005

_libc = ctypes.CDLL(None, use_errno=True)


class CutDisk:
    """A mounted ext4 that can be cut off. Made by `cut_disk`."""

    def __init__(self, device: Path) -> None:
        self._device = device
        self._mount = _mounted(device)

    @property
    def image(self) -> Path:
        """Where the image is, or may be made, until the next cut."""
        return Path(f"/proc/{os.getpid()}/fd/{self._mount}/image")

    def cut(self) -> None:
        """Lose all that is not on the device yet; from here on every access fails. Raises OSError."""
        with opened(".", os.O_RDONLY | os.O_DIRECTORY, within=self._mount) as top:
            fcntl.ioctl(top, _SHUTDOWN, _NOLOGFLUSH)

    def start_again(self) -> None:
        """Mount the ext4 again, which replays its journal, once nobody has anything of the cut one open. Raises
        OSError.
        """
        self.close()
        deadline = time.monotonic() + _FREE_SECONDS
        while True:
            try:
                with opened(self._device, os.O_RDWR | os.O_EXCL):
                    break  # refused while an ext4 has it: to mount it then would give the cut one back
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_TICK_SECONDS)
        self._mount = _mounted(self._device)

    def close(self) -> None:
        """Unmount it."""
        mount, self._mount = self._mount, -1
        if mount >= 0:
            os.close(mount)


@contextlib.contextmanager
def cut_disk(directory: Path) -> Iterator[CutDisk]:
    """Yield an ext4 that can be cut off, on a file without a name in a directory.

    Raises OSError where this host, this user or the directory's filesystem does not permit that, CommandError and
    MissingToolError where no ext4 is made.
    """
    with contextlib.ExitStack() as ends:
        file = ends.enter_context(opened(directory, os.O_TMPFILE | os.O_RDWR | os.O_EXCL))
        os.posix_fallocate(file, 0, SIZE_BYTES)  # a disk that becomes full later would look like one that fails
        device = ends.enter_context(_loop_on(file))
        make = [find_maker("mke2fs"), "-q", "-F", "-t", "ext4", "-m", "0"]
        make += ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", str(device)]
        shell.run(make, timeout_seconds=_MAKE_SECONDS)
        yield ends.enter_context(contextlib.closing(CutDisk(device)))


@contextlib.contextmanager
def _loop_on(file: int) -> Iterator[Path]:
    """Yield a loop device on an open file; it clears itself when it is closed, and no ext4 is on it any more."""
    with opened("/dev/loop-control", os.O_RDWR) as control:
        for left in reversed(range(_TAKEN)):
            device = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_FREE)}")
            with opened(device, os.O_RDWR) as loop:
                try:
                    fcntl.ioctl(loop, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(file, 0, _AUTOCLEAR))
                except OSError:
                    if left:
                        continue
                    raise
                yield device
                return


def _mounted(device: Path) -> int:
    """Mount an ext4 in no directory; returns the descriptor that it goes with. Raises OSError."""
    context = _called(_FSOPEN, b"ext4", _CLOEXEC)
    try:
        _called(_FSCONFIG, context, _SET_STRING, b"source", bytes(device), 0)
        _called(_FSCONFIG, context, _CREATE, None, None, 0)
        return _called(_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _called(*words: int | bytes | None) -> int:
    result: int = _libc.syscall(*(ctypes.c_long(one) if isinstance(one, int) else one for one in words))
    if result < 0:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return result
