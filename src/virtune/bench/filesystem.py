# SPDX-License-Identifier: Apache-2.0
"""A filesystem in an image file, with one file in it: made on this host, where no root and no mount is needed."""

from pathlib import Path

from virtune import shell
from virtune.model.errors import RigError
from virtune.model.stack import Disk

PROGRAMS = ("mke2fs", "debugfs")
"""The programs that make it."""

FILE = "load"
"""The name of the file in the filesystem's root directory."""

_JOURNAL_MIB = 16
_SPARE_BYTES = 32 * 1024**2
"""For the journal, the superblocks and their copies; group tables and bitmaps take less than a 64th of the rest."""

_MIB = 1024**2


def image_bytes(disk: Disk, span: int) -> int:
    """Return the size of an image on which `span` bytes are loaded: with a filesystem that needs room for itself."""
    if disk.filesystem == "none":
        return span
    return -(-(span + span // 64 + _SPARE_BYTES) // _MIB) * _MIB


def make_ext4(image: Path, source: int, warden: shell.Warden, *, patience_seconds: float) -> None:
    """Make an ext4 filesystem in a file of its size, and in it the file with what the descriptor `source` reads.

    Raises RigError when a program fails. debugfs ends well whatever it did: its caller looks at what was written.
    """
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-N", "64", "-J", f"size={_JOURNAL_MIB}"]
    make += ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", str(image)]
    write = ["debugfs", "-w", "-R", f"write /proc/self/fd/{source} {FILE}", str(image)]
    for program, *words in (make, write):
        with warden.running([shell.find(program), *words], name=program, keep=(source,)) as child:
            status = child.wait(patience_seconds)
        if status is None:
            raise RigError(f"{program} did not end within {patience_seconds:.0f} s")
        if status:
            raise RigError(f"{program} ended with status {status}", hint=child.last_words())
