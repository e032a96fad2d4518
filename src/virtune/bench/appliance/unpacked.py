# SPDX-License-Identifier: Apache-2.0
"""The kernel inside a distribution's `vmlinuz`: unpacked once here, it need not be unpacked at every boot.

QEMU starts it through PVH where it was built with that. A guest under TCG unpacks a kernel for half a second.
"""

import bz2
import contextlib
import lzma
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from virtune import shell

_SECONDS = 60.0
_LARGEST = 512 * 1024**2

_NOTE = 4
"""The type of an ELF program header that holds notes."""

_PVH = 18
"""The type of the note XEN_ELFNOTE_PHYS32_ENTRY, by which QEMU finds where to enter."""


def unpacked_kernel(image: bytes) -> bytes | None:
    """Return the ELF file inside a bzImage; None for another file, and where it cannot be unpacked or started through
    PVH.
    """
    try:
        if image[0x202:0x206] != b"HdrS":
            return None
        begin = ((image[0x1F1] or 4) + 1) * 512 + struct.unpack_from("<I", image, 0x248)[0]
        packed = image[begin : begin + struct.unpack_from("<I", image, 0x24C)[0]]
        unpack = next((way for magic, way in _WAYS.items() if packed.startswith(magic)), None)
        found = None if unpack is None else unpack(packed)
        return found if found is not None and _enters_by_pvh(found) else None
    except (struct.error, IndexError, ValueError, OSError, EOFError, lzma.LZMAError, zlib.error, shell.CommandError):
        return None


def _by_program(name: str) -> Callable[[bytes], bytes | None]:
    """Return a function that unpacks by a program; the last four bytes are the size, added by the kernel's build."""

    def unpack(packed: bytes) -> bytes | None:
        if shutil.which(name) is None:
            return None
        with tempfile.TemporaryDirectory(prefix="virtune-") as place:
            source, plain = Path(place) / "packed", Path(place) / "plain"
            source.write_bytes(packed[:-4])
            shell.run([name, "-d", "-q", "-f", str(source), *_into(name, plain)], timeout_seconds=_SECONDS)
            return plain.read_bytes() if plain.stat().st_size <= _LARGEST else None

    return unpack


def _into(program: str, plain: Path) -> list[str]:
    return ["-o", str(plain)] if program == "zstd" else [str(plain)]


_WAYS: Mapping[bytes, Callable[[bytes], bytes | None]] = {
    b"\x1f\x8b": lambda packed: zlib.decompressobj(31).decompress(packed, _LARGEST),
    b"\xfd7zXZ\0": lambda packed: lzma.LZMADecompressor().decompress(packed, _LARGEST),
    b"BZh": lambda packed: bz2.BZ2Decompressor().decompress(packed, _LARGEST),
    b"\x02\x21\x4c\x18": _by_program("lz4"),
    b"\x28\xb5\x2f\xfd": _by_program("zstd"),
}
"""How a kernel is unpacked, by its first bytes."""


def _enters_by_pvh(kernel: bytes) -> bool:
    """Whether an ELF file has the note that QEMU enters it by."""
    if kernel[:5] != b"\x7fELF\x02":
        return False
    table, size, count = *struct.unpack_from("<Q", kernel, 32), *struct.unpack_from("<HH", kernel, 54)
    for at in range(table, table + size * count, size):
        kind, offset, length = *struct.unpack_from("<I", kernel, at), *struct.unpack_from("<Q16xQ", kernel, at + 8)
        if kind == _NOTE and _PVH in _notes(kernel[offset : offset + length]):
            return True
    return False


def _notes(notes: bytes) -> set[int]:
    found, at = set(), 0
    with contextlib.suppress(struct.error):
        while at < len(notes):
            name, text, kind = struct.unpack_from("<III", notes, at)
            at += 12 + (name + 3 & ~3) + (text + 3 & ~3)
            found.add(kind)
    return found
