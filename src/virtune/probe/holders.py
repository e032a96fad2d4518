# SPDX-License-Identifier: Apache-2.0
"""Holders: loop devices, processes and locks on a file or block device. One that cannot be checked counts as a
holder.

Names prove nothing, since a file may have been removed or replaced after the holder opened it, so device and inode
are compared: of descriptors, and of memory maps, which outlive them. A file of an overlay has an identity of each
layer too, by which it may be held. What no process shows (a descriptor on its way through a socket or given to an
io_uring, the kernel's own, a process of another container) the kernel tells by refusing a lease.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtune.bounded import opened
from virtune.model.errors import words_of
from virtune.model.facts import Unknown
from virtune.probe import tree
from virtune.probe.tree import other_names

_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO64_BYTES = 232
_LOOP_INFO64 = struct.Struct("=QQQQQ")
"""The head of struct loop_info64 (linux/loop.h): device, inode and device number of the file, offset, size limit."""

_FLOCK = struct.Struct("@hhqqi4x")
"""struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, pid."""

_F_OFD_GETLK = 36
"""fcntl(2): who holds a lock that conflicts; Python has no name for it before 3.14."""

_QEMU_LOCK_BYTES = range(100, 300)
"""The bytes that QEMU locks in an image: from 100 for its own permissions, from 200 for those denied to others
(QEMU's block/file-posix.c, RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE).
"""

_SECTOR_BYTES = 512
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the flags of /proc/PID/stat (linux/sched.h): it has no files."""

_FLAGS_AT = 6
"""Where the flags stand in /proc/PID/stat, counted behind the name in parentheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop device in use: its name and its backing file.

    `backing` is the kernel's name of the file. `file` is its device and inode, `node` the number of the block device
    that it is (0 for a file); both are None where the loop device could not be asked.
    """

    name: str
    backing: str
    file: tuple[int, int] | None
    node: int | None


def loops() -> Iterator[Loop]:
    """Yield the loop devices in use. Never raises: values that cannot be queried are None."""
    for name in tree.names("/sys/block"):
        backing = tree.text(f"/sys/block/{name}/loop/backing_file") if name.startswith("loop") else ""
        if isinstance(backing, str) and backing:
            yield _asked(name, backing)


def loops_over(found: os.stat_result, files: Sequence[tuple[int, int]] = ()) -> Iterator[tuple[str, str]]:
    """Yield the name of each loop device on a file or block device, and how that is known. `files` are further
    identities of the file.

    One that cannot be queried and whose file was removed counts too, unless its size excludes it.
    """
    device = stat.S_ISBLK(found.st_mode)
    for loop in loops():
        if loop.file is None:
            if _may_stand_on(loop, found):
                yield loop.name, f"the loop device {loop.name} may stand on it, and could not be asked"
        elif (loop.node == found.st_rdev) if device else (loop.file in ((found.st_dev, found.st_ino), *files)):
            yield loop.name, f"the loop device {loop.name} stands on it"


def locks_on(path: Path) -> Iterator[str]:
    """Yield in words who locks a file or device, from any namespace. QEMU locks bytes of each image it opens."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with opened(path) as descriptor:
            kind, _, start, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, asked))
    except OSError as error:
        yield f"its locks could not be looked at: {words_of(error)}"
        return
    if kind != fcntl.F_UNLCK:
        who = f"process {pid}" if pid > 0 else "a process"
        yield f"{who} locks it as QEMU locks an image" if start in _QEMU_LOCK_BYTES else f"{who} has locked it"


_LET_GO_SECONDS, _LOOK_SECONDS = 1.0, 0.01
"""What an io_uring held the kernel lets go of 21 to 27 ms after its process ended (Linux 6.18, a quiet machine)."""


def opened_by_any(path: Path) -> bool:
    """Whether anything of this kernel has a file open, and keeps it: it gives a lease only where nothing has. False
    also where none is given at all: of a block device, of another user's file, on a filesystem without leases. The
    caller may hold the file by O_PATH only.
    """
    until = time.monotonic() + _LET_GO_SECONDS
    while taken := _refuses_a_lease(path):
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_SECONDS)
    return taken


def _refuses_a_lease(path: Path) -> bool:
    with contextlib.suppress(OSError), opened(path) as descriptor:
        try:
            # who opens it in this instant waits, and we are told: by a signal that is ignored, as SIGIO is not
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
    return False


def processes_with(*files: tuple[int, int]) -> Iterator[tuple[int, str]]:
    """Yield pid and name of the other processes that have one of these files (device and inode) open or mapped, under
    any name.
    """
    for process in _processes():
        if _opens(process, files) or _maps(process, files):
            yield int(process.name), _name_of(process)


def _opens(process: Path, files: Sequence[tuple[int, int]]) -> bool:
    with contextlib.suppress(OSError):
        for entry in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                held = entry.stat()
                if (held.st_dev, held.st_ino) in files:
                    return True
    return False


def _maps(process: Path, files: Sequence[tuple[int, int]]) -> bool:
    """Whether a process has mapped one of these files. btrfs and overlays show another device in the map than stat
    does, so where the inode is the same, the mapped file itself is asked; one that cannot be counts.
    """
    inodes = b"|".join(b"%d" % inode for _, inode in files)
    for mapped in mapped_files(process, inode=inodes):
        try:
            held = (process / "map_files" / mapped.place).stat()
        except OSError:
            if any(mapped.inode == inode and mapped.device in (device, None) for device, inode in files):
                return True
        else:
            if (held.st_dev, held.st_ino) in files or (mapped.device, mapped.inode) in files:
                return True
    return False


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file in a process's memory: its place there as `map_files` names it, the device (None where the kernel made
    its number up, so that stat may tell of another), and the inode.
    """

    place: str
    device: int | None
    inode: int


def mapped_files(process: Path, *, major: bytes = b"[0-9a-f]+", inode: bytes = b"[1-9]\\d*") -> Iterator[MappedFile]:
    """Yield the files that a process (its directory in /proc) has mapped, of the devices and inodes that these
    patterns match; none where we may not look.

    The maps of a busy host have 100,000 lines, so only those that match become objects.
    """
    line = rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ (%b):([0-9a-f]+) (%b)(?!\S)" % (major, inode)
    with contextlib.suppress(OSError):
        for found in re.finditer(line, (process / "maps").read_bytes(), re.MULTILINE):
            begin, end, of, minor = (int(number, 16) for number in found.groups()[:4])
            device = os.makedev(of, minor) if of else None
            # map_files has the addresses without the zeros in front of them
            yield MappedFile(f"{begin:x}-{end:x}", device, int(found[5]))


def identities(path: Path, found: os.stat_result) -> list[tuple[int, int]]:
    """Return device and inode of a file, of what lies below it in each overlay that shows it, and of each overlay's
    file that shows it. `path` has no symbolic links.
    """
    known = {(found.st_dev, found.st_ino): None}
    for name in other_names(path):
        with contextlib.suppress(OSError):
            other = name.lstat()
            if stat.S_IFMT(other.st_mode) == stat.S_IFMT(found.st_mode):
                known[(other.st_dev, other.st_ino)] = None
    return list(known)


def unseen_processes() -> list[str]:
    """Return `pid (name)` of the processes whose open files we may not look at."""
    found = []
    for process in _processes():
        try:
            os.close(os.open(process / "fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            next((process / "fd").iterdir(), None)
        except PermissionError:
            if not _kernel_thread(process):
                found.append(f"{process.name} ({_name_of(process)})")
        except OSError:
            continue  # it ended while we looked
    return found


def _asked(name: str, backing: str) -> Loop:
    try:
        with opened(f"/dev/{name}") as descriptor:
            answer = fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_LOOP_INFO64_BYTES))
    except OSError:
        return Loop(name=name, backing=backing, file=None, node=None)
    device, inode, node, _, _ = _LOOP_INFO64.unpack_from(answer)
    return Loop(name=name, backing=backing, file=(device, inode), node=node)


def _may_stand_on(loop: Loop, found: os.stat_result) -> bool:
    """Whether a loop device that cannot be queried may be on a file, by its name or else by its size."""
    with contextlib.suppress(OSError):
        named = Path(loop.backing).stat()
        return (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino) or (
            stat.S_ISBLK(found.st_mode) and named.st_rdev == found.st_rdev
        )
    if stat.S_ISBLK(found.st_mode):
        return loop.backing.startswith("/dev/")
    values = [tree.number(f"/sys/block/{loop.name}/{entry}") for entry in ("size", "loop/offset", "loop/sizelimit")]
    sectors, offset, limit = (None if isinstance(value, Unknown) else value for value in values)
    if sectors is None or offset is None or limit is None:
        return True
    end = offset + (limit or sectors * _SECTOR_BYTES)
    return end <= found.st_size and (limit > 0 or found.st_size - end < _SECTOR_BYTES)


def _processes() -> Iterator[Path]:
    ours = str(os.getpid())
    for name in tree.names("/proc"):
        if name.isdecimal() and name != ours:
            yield Path("/proc") / name


def _name_of(process: Path) -> str:
    found = tree.text(f"{process}/comm")
    return "ended" if isinstance(found, Unknown) else found


def _kernel_thread(process: Path) -> bool:
    found = tree.text(f"{process}/stat")
    if isinstance(found, Unknown):
        return False
    fields = found.rpartition(")")[2].split()
    return len(fields) > _FLAGS_AT and fields[_FLAGS_AT].isdecimal() and bool(int(fields[_FLAGS_AT]) & _KERNEL_THREAD)
