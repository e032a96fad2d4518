# SPDX-License-Identifier: Apache-2.0
"""Read the header of a qcow2 image: its cluster size and its features (docs/interop/qcow2.txt of QEMU)."""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path

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
