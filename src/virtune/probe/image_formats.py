# SPDX-License-Identifier: Apache-2.0
"""Recognise disk images and databases that `blkid` does not know, by their first and last bytes: they must not be
overwritten.
"""

import os
from pathlib import Path

_HEAD_BYTES = 4096
_TAIL_BYTES = 512

_HEADS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"QFI\xfb\0\0\0\1", "a qcow image"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"QED\0", "a QED image"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", "a VHD image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"COWD", "a VMDK image"),
    (0, b"# Disk DescriptorFile", "the descriptor of a VMDK image"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
    (0, b"WithoutFreeSpace", "a Parallels image"),
    (0, b"WithouFreSpacExt", "a Parallels image"),
    (0, b"Bochs Virtual HD Image", "a Bochs image"),
    (0, b"VMA\0", "a Proxmox backup"),
    (0, b"SQLite format 3\0", "an SQLite database"),
)
"""Offset, bytes and name, as QEMU's block drivers and docs/interop, Proxmox's vma-reader and SQLite's fileformat have
them."""

_TAILS: tuple[tuple[int, bytes, str], ...] = (
    (512, b"conectix", "a VHD image"),
    (511, b"conectix", "a VHD image"),
    (512, b"koly", "an Apple disk image"),
)
"""Bytes before the end: a fixed VHD has nothing but a footer, of 511 bytes if Virtual PC 2004 or older wrote it."""


def image_format(path: Path) -> str | None:
    """Return the format of a file or block device, None for an unknown one; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        size = os.lseek(descriptor, 0, os.SEEK_END)
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    finally:
        os.close(descriptor)
    known = [name for offset, magic, name in _HEADS if head.startswith(magic, offset)]
    known += [name for before, magic, name in _TAILS if tail[-before:].startswith(magic)]
    return known[0] if known else None
