# SPDX-License-Identifier: Apache-2.0
"""A filesystem in an image file, with one file in it: made on this host, where no root and no mount is needed."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtune import shell
from virtune.model.errors import RigError
from virtune.model.stack import Disk, Filesystem

PROGRAMS: Mapping[Filesystem, tuple[str, ...]] = {"none": (), "ext4": ("mke2fs", "debugfs"), "xfs": ("mkfs.xfs",)}
"""The programs that make each."""

FILE = "load"
"""The name of the file in the filesystem's root directory."""

_MIB = 1024**2

_JOURNAL_MIB = 16
_SPARE_BYTES = 32 * _MIB
"""For the journal, the superblocks and their copies; group tables and bitmaps take less than a 64th of the rest."""

_LOG_MIB = 64
"""The log of an XFS: mkfs.xfs takes no smaller one."""

_SECOND_GROUP_BYTES = 32 * _MIB
"""XFS wants two allocation groups, for two superblocks. All that is used is in the first, in which the file is one
extent; mkfs.xfs writes it no other way."""

_LEAST_XFS_BYTES = 304 * _MIB
"""mkfs.xfs takes no filesystem below 300 MiB."""

_PATIENCE_SECONDS = 60.0
_SLOWEST_BPS = 20e6
"""A disk that writes less a second than this ends a program's patience."""

_LARGE_BYTES = 2**31
_PROTO = "xfs.proto"
_SYSTEM_PROGRAMS = "/usr/sbin:/sbin"


def image_bytes(disk: Disk, span: int) -> int:
    """Return the size of an image on which `span` bytes are loaded: with a filesystem that needs room for itself."""
    if disk.filesystem == "none":
        return span
    least = span + span // 64 + _SPARE_BYTES
    if disk.filesystem == "xfs":
        least = max(least + _LOG_MIB * _MIB + _SECOND_GROUP_BYTES, _LEAST_XFS_BYTES)
    return -(-least // _MIB) * _MIB


def find(program: str) -> str:
    """Return the path of a program: a user's PATH may lack the directories of the system's own, of which these need
    no root. Raises MissingToolError.
    """
    return shutil.which(program, path=_SYSTEM_PROGRAMS) or shell.find(program)


def patience_of(span: int) -> float:
    """Return the seconds that a program may take to make one image of another with so many bytes in it."""
    return _PATIENCE_SECONDS + span / _SLOWEST_BPS


def make_filesystem(kind: Filesystem, image: Path, source: int, warden: shell.Warden, span: int) -> None:
    """Make a filesystem in a file of its size, and in it the file with what the descriptor `source` reads (`span`
    bytes).

    Raises RigError when a program fails. debugfs ends well whatever it did: the caller looks at what was written.
    """
    for program, *words in _xfs(image, source, warden) if kind == "xfs" else _ext4(image, source):
        patience_seconds = patience_of(span)
        with warden.running([find(program), *words], name=program, keep=(source,)) as child:
            status = child.wait(patience_seconds)
        if status is None:
            raise RigError(f"{program} did not end within {patience_seconds:.0f} s")
        if status:
            too_large = "mkfs.xfs before xfsprogs 6.13 takes no file of 2 GiB or more: `--span 1G` is smaller"
            hint = too_large if kind == "xfs" and span >= _LARGE_BYTES else child.last_words()
            raise RigError(f"{program} ended with status {status}", hint=hint)


def _ext4(image: Path, source: int) -> Sequence[Sequence[str]]:
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-N", "64", "-J", f"size={_JOURNAL_MIB}"]
    make += ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", str(image)]
    return make, ["debugfs", "-w", "-R", f"write /proc/self/fd/{source} {FILE}", str(image)]


def _xfs(image: Path, source: int, warden: shell.Warden) -> Sequence[Sequence[str]]:
    """Sectors of 4 KiB, so that a disk of any logical block size can carry it."""
    proto = warden.directory / _PROTO
    proto.write_text(f"none\n0 0\nd--755 0 0\n{FILE} ---644 0 0 /proc/self/fd/{source}\n$\n")
    group = image.stat().st_size - _SECOND_GROUP_BYTES
    make = ["mkfs.xfs", "-q", "-f", "-K", "-b", "size=4096", "-s", "size=4096", "-d", f"agsize={group}"]
    return ([*make, "-l", f"size={_LOG_MIB}m,agnum=0", "-p", str(proto), str(image)],)
