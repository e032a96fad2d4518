# SPDX-License-Identifier: Apache-2.0
"""A mirror of virtune's disk in a domain of a user's, by libvirt, while that is loaded.

libvirt opens the copy as it has opened the disk. A mirror of which both sides are alike is ended, on the disk's own
side, and begun anew. It is looked at four times a second, through a virsh that is kept. No other disk of the domain
is touched: a mirror has one disk, and that is virtune's.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from virtune.bench.during import DuringLoad
from virtune.model.errors import LoadError, VirtuneError
from virtune.virsh import KeptVirsh, Virsh

_LOOK_SECONDS = 0.25
_FAR = re.compile(r"^ *cur=(\d+)\s+end=(\d+)", re.MULTILINE)


class DomainMirror(DuringLoad):
    """A mirror of the disk `target` of a domain onto the image `copy`, which is as large."""

    shown_by = "virsh blockjob"

    def __init__(self, virsh: Virsh, uuid: str, target: str, copy: Path) -> None:
        super().__init__("mirror", copy)
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
            raise LoadError(
                "the mirror of the disk is gone, and virtune did not end it", hint=f"it wrote to {self._copy}"
            )
        self._copied = self._before + int(found[1])
        if found[1] == found[2]:
            self._abort()
            self._before = self._copied
            self._begin()

    def _begin(self) -> None:
        words = ("--dest", str(self._copy), "--format", "raw", "--reuse-external", "--transient-job")
        self._virsh.run("blockcopy", *self._disk, *words)
        self._passes += 1

    def _abort(self) -> None:
        self._virsh.run("blockjob", *self._disk, "--abort")
