# SPDX-License-Identifier: Apache-2.0
"""A backup or a mirror of virtune's disk in a domain of a user's, by libvirt, while that is loaded.

libvirt opens the copy as it has opened the disk. A backup that is over is begun anew, and a mirror of which both
sides are alike, which is ended on the disk's own side. It is looked at four times a second, through a virsh that is
kept. No other disk of the domain is touched: a mirror has one disk, a backup has those that are named, and either is
ended as a job of that disk.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import quoteattr

from virtune.bench.during import DuringLoad
from virtune.model.errors import LoadError, VirtuneError
from virtune.model.stack import During
from virtune.virsh import KeptVirsh, Virsh, as_file

_LOOK_SECONDS = 0.25
_FAR = re.compile(r"^ *cur=(\d+)\s+end=(\d+)", re.MULTILINE)


_BACKUP = """<domainbackup mode='push'><disks><disk name={disk} backup='yes' type='file'>
<driver type='raw'/><target file={copy}/></disk></disks></domainbackup>
"""


class DomainJob(DuringLoad):
    """A backup or a mirror of the disk `target` of a domain onto the image `copy`, which is as large."""

    shown_by = "virsh blockjob"

    def __init__(self, kind: During, virsh: Virsh, uuid: str, target: str, copy: Path) -> None:
        super().__init__(kind, copy)
        self._virsh, self._disk = virsh, (uuid, target)
        self._kept = virsh
        self._asked = 0.0

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        with KeptVirsh(self._virsh.uri) as self._kept:
            try:
                self._begin()
                yield
            finally:
                # one that stays is ended when the disk is taken out
                with contextlib.suppress(VirtuneError):
                    self._abort()

    def mark(self) -> None:
        self._asked = 0.0
        super().mark()

    def tend(self) -> None:
        now = time.monotonic()
        if now - self._asked < _LOOK_SECONDS:
            return
        self._asked = now
        found = _FAR.search(self._kept.run("blockjob", *self._disk, "--raw"))
        if found is None:
            self._require_whole()
            self._copied = self._before + self._copy.stat().st_size
        else:
            self._copied = self._before + int(found[1])
            if self._kind == "backup" or found[1] != found[2]:
                return
            self._abort()
        self._before = self._copied
        self._begin()

    def _require_whole(self) -> None:
        """Raise LoadError unless what is gone is a backup that is over."""
        ended = self._kept.run("domjobinfo", self._disk[0], "--completed") if self._kind == "backup" else ""
        if not re.search("^Job type: +Completed", ended, re.MULTILINE):
            raise LoadError(f"the {self._kind} of the disk ended early", hint=f"it wrote to {self._copy}")

    def _begin(self) -> None:
        if self._kind == "backup":
            xml = _BACKUP.format(disk=quoteattr(self._disk[1]), copy=quoteattr(str(self._copy)))
            with as_file(xml) as name:
                self._virsh.run("backup-begin", self._disk[0], name, "--reuse-external")
        else:
            words = ("--dest", str(self._copy), "--format", "raw", "--reuse-external", "--transient-job")
            self._virsh.run("blockcopy", *self._disk, *words)
        self._passes += 1

    def _abort(self) -> None:
        self._virsh.run("blockjob", *self._disk, "--abort")
