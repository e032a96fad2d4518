# SPDX-License-Identifier: Apache-2.0
"""Files of disk images, and the devices behind a domain's disks: their format, extents and page-cache residency.
Nothing is opened for writing.

A qcow2 image is read by `qemu-img info` with its format given, which opens no other file that the image names; the
images below it are read one by one so, as far as each names the next one's format.

How much of a file was never written, so that reading it would not reach the disk, FIEMAP tells: it distinguishes
holes from allocated blocks without data; on a filesystem without it (tmpfs), SEEK_HOLE counts both as holes. The file
is flushed first: until then, data written over preallocated blocks still counts as unwritten.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune import shell
from virtune.bounded import opened
from virtune.model.domain import Domain, DomainDisk
from virtune.model.errors import VirtuneError, words_of
from virtune.model.facts import Extents, Residency, Unknown
from virtune.model.finding import ImageView
from virtune.probe.devices import backing_of, device_facts

_GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS, as on every architecture but alpha, mips, powerpc and sparc, where the answer is then an error."""

_NOCOW = 0x00800000
"""FS_NOCOW_FL."""

_SILENT_DRIVERS = ("virtio_blk", "virtblk")
"""Drivers of disks that cannot say whether they rotate."""

_PATIENCE_SECONDS = 10.0

_CHAIN_MAX = 64
"""A longer chain is none that anybody made on purpose, or a circle."""


def image_views(domain: Domain) -> dict[str, ImageView]:
    """Return the known facts of the images of a domain's disks, by the names of their sources."""
    wanted = [disk for disk in domain.disks if disk.source.kind in ("file", "block") and disk.holds_data]
    return {disk.source.name: image_view(disk) for disk in wanted}


_FORMATS = {"qcow2": (0, b"QFI\xfb"), "vmdk": (0, b"KDMV"), "qed": (0, b"QED\0"), "vhdx": (0, b"vhdxfile"),
            "vpc": (0, b"conectix"), "luks": (0, b"LUKS\xba\xbe"), "vdi": (64, b"\x7f\x10\xda\xbe")}  # fmt: skip
"""By what an image begins with, and where."""

_FIRST_BYTES = 512


def probed_format(path: str) -> str | None:
    """Return the format that QEMU would take an image for which is opened without one, by its first bytes; None where
    it cannot be read.
    """
    with contextlib.suppress(OSError), opened(path) as descriptor:
        head = os.pread(descriptor, _FIRST_BYTES, 0)
        return next((name for name, (at, word) in _FORMATS.items() if head[at:].startswith(word)), "raw")
    return None


def image_view(disk: DomainDisk) -> ImageView:
    """Return the known facts of one image; unreadable ones are None."""
    path = disk.source.name
    if not path.startswith("/"):
        return ImageView()
    try:
        status = os.stat(path)  # noqa: PTH116 - one call for all that is asked
    except OSError:
        return ImageView()
    backing = backing_of(path)
    bottom = [device_facts(device.name) for device in backing.disks]
    # a virtio disk says that it rotates, whatever it stands on (K13)
    told = [one for one in bottom if one.driver not in _SILENT_DRIVERS]
    rotational = {facts.rotational for facts in told if not isinstance(facts.rotational, Unknown)}
    schedulers = {facts.scheduler for facts in bottom if not isinstance(facts.scheduler, Unknown)}
    plain = stat.S_ISREG(status.st_mode)
    size: int | None = status.st_size if plain else None
    header = _header(path) if plain and disk.format == "qcow2" else {}
    special = header.get("format-specific", {}).get("data", {})
    return ImageView(
        size_bytes=header.get("virtual-size", size),
        allocated_bytes=status.st_blocks * 512 if plain else None,
        filesystem=backing.filesystem,
        copy_on_write=_copies_on_write(path) if backing.filesystem == "btrfs" else None,
        free_share=_free_share(path) if plain else None,
        rotational=rotational.pop() if len(rotational) == 1 else None,
        scheduler=schedulers.pop() if len(schedulers) == 1 else None,
        cluster_bytes=header.get("cluster-size"),
        extended_l2=special.get("extended-l2"),
        backing="backing-filename" in header if header else None,
        below=_below(header) if header else None,
    )


def _below(header: dict[str, Any]) -> int | None:
    """Return how many images are below one; None where the chain cannot be followed to its end."""
    for count in range(_CHAIN_MAX):
        if "backing-filename" not in header:
            return count
        path, kind = header.get("full-backing-filename", ""), header.get("backing-filename-format")
        if kind not in (None, "qcow2"):
            return count + 1
        header = _header(path) if kind and str(path).startswith("/") and Path(path).is_file() else {}
        if not header:
            return None
    return None


def _header(path: str) -> dict[str, Any]:
    try:
        said = shell.run(
            [shell.find("qemu-img"), "info", "--force-share", "--output=json", "-f", "qcow2", "--", path],
            timeout_seconds=_PATIENCE_SECONDS,
        )
        found = json.loads(said.stdout)
    except (VirtuneError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _copies_on_write(path: str) -> bool | None:
    with contextlib.suppress(OSError):
        flags = array.array("l", [0])
        with opened(path) as descriptor:
            fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        return not flags[0] & _NOCOW
    return None


def _free_share(path: str) -> float | None:
    with contextlib.suppress(OSError):
        space = os.statvfs(path)
        return space.f_bavail / space.f_blocks if space.f_blocks else None
    return None


_HEADER = struct.Struct(">4sI12xI48xQQ")
"""Magic, version, cluster bits at 20, incompatible and compatible features at 72 and 80; all big-endian."""

_MAGIC = b"QFI\xfb"
_EXTENDED_L2 = 1 << 4
_LAZY_REFCOUNTS = 1 << 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Qcow2:
    """A qcow2 image of version 3, as its header has it. `cluster_size` is in bytes."""

    cluster_size: int
    extended_l2: bool
    lazy_refcounts: bool


def read_qcow2(image: Path) -> Qcow2 | None:
    """Read an image's header; None where it is not a qcow2 image of version 3, or cannot be read."""
    with contextlib.suppress(OSError, struct.error), image.open("rb") as file:
        magic, version, bits, incompatible, compatible = _HEADER.unpack(file.read(_HEADER.size))
        if magic == _MAGIC and version >= 3 and bits < 32:
            return Qcow2(
                cluster_size=1 << bits,
                extended_l2=bool(incompatible & _EXTENDED_L2),
                lazy_refcounts=bool(compatible & _LAZY_REFCOUNTS),
            )
    return None


_TABLE = struct.Struct(">IQ")
_TABLE_AT = 36
_TABLE_BYTES = 32 * 1024**2
"""A qcow2 image's table of tables: how many entries of 8 bytes, and where; QEMU takes none that is larger."""


def has_clusters(image: Path) -> bool:
    """Whether a qcow2 image has any cluster of its own; raises OSError where it cannot be read."""
    with image.open("rb") as file:
        entries, place = _TABLE.unpack_from(file.read(_TABLE_AT + _TABLE.size), _TABLE_AT)
        file.seek(place)
        return any(file.read(min(8 * entries, _TABLE_BYTES)))


_FS_IOC_FIEMAP = 0xC020660B
_FIEMAP_FLAG_SYNC = 0x1
_EXTENT_LAST = 0x1
_EXTENT_UNWRITTEN = 0x800
_EXTENTS_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_BATCH = 512
"""Extents asked for at a time: 28 KiB of answer."""


def unwritten_bytes(path: str | Path, length: int) -> Extents | Unknown:
    """Return how much of a file's first `length` bytes was never written; raises OSError where it cannot be read.

    Bytes beyond the end of the file count as a hole.
    """
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Unknown("only a regular file has extents; what a device has stored, only the device knows")
        try:
            return _by_fiemap(descriptor, length)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EBADR, errno.EINVAL):
                raise
        return _by_seek(descriptor, length)


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
        buffer = bytearray(_EXTENTS_HEADER.size + _BATCH * _EXTENT.size)
        _EXTENTS_HEADER.pack_into(buffer, 0, position, end - position, _FIEMAP_FLAG_SYNC, 0, _BATCH, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
        mapped = _EXTENTS_HEADER.unpack_from(buffer)[3]
        following, last = position, False
        for index in range(mapped):
            start, _, size, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _EXTENTS_HEADER.size + index * _EXTENT.size)
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


_CACHESTAT = 451
"""cachestat(2), since Linux 6.5; the number is the same on every architecture below."""
_ARCHITECTURES = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "ppc64", "s390x", "loongarch64"})
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


_RANGE, _COUNTS = ctypes.c_uint64 * 2, ctypes.c_uint64 * 5
"""Offset and length, 0 for all; pages cached, dirty, being written, evicted, recently evicted (linux/mman.h)."""

_libc = ctypes.CDLL(None, use_errno=True)


def cachestat(path: str | Path) -> Residency | Unknown:
    """Return how much of a file (or block device) is in the page cache, by cachestat(2): microseconds, no process."""
    if platform.machine() not in _ARCHITECTURES:
        return Unknown(f"cachestat is not known on {platform.machine()}")
    span, counts = _RANGE(), _COUNTS()
    try:
        with opened(path) as descriptor:
            failed = _libc.syscall(
                ctypes.c_long(_CACHESTAT), ctypes.c_uint(descriptor), ctypes.byref(span), ctypes.byref(counts), 0
            )
            number = ctypes.get_errno()
    except OSError as error:
        return Unknown(f"the file could not be opened: {words_of(error)}")
    if failed:
        because = "this kernel has none (needs 6.5)" if number == errno.ENOSYS else os.strerror(number).lower()
        return Unknown(f"cachestat: {because}")
    cached, dirty, being_written, *_ = counts
    return Residency(
        cached_bytes=cached * _PAGE_BYTES,
        dirty_bytes=(dirty + being_written) * _PAGE_BYTES,
        source="cachestat",
    )
