# SPDX-License-Identifier: Apache-2.0
"""A backup or a mirror of virtune's disk in a domain of a user's, or snapshots, by libvirt, while that is loaded.

libvirt opens the copy as it has opened the disk. A backup that is over is begun anew, and a mirror of which both
sides are alike, which is ended on the disk's own side. It is looked at four times a second, through a virsh that is
kept. No other disk of the domain is touched: a mirror has one disk, a backup has those that are named, and either is
ended as a job of that disk.

A snapshot has each disk that it is not told to leave out, so all others are named. One that comes in between would be
in it too: libvirt then wants to put a file beside that disk, with the snapshot's name behind it, which must be there
beforehand (`--reuse-external`). There is none of so long a random name, so libvirt refuses the whole snapshot. It
keeps no record of one (`--no-metadata`). A merge goes from the overlay into what it stands on, and no further.
"""

import contextlib
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

from virtune import shell
from virtune.bench.during import DuringLoad, SnapshotsInTurn
from virtune.dialects.libvirt.elements import domain_element
from virtune.dialects.qemu.images import overlay_words
from virtune.dialects.text.xml import Element, read_document
from virtune.model.errors import LoadError, RigError, VirtuneError
from virtune.model.stack import Disk, During
from virtune.virsh import KeptVirsh, Virsh, as_file

_LOOK_SECONDS = 0.25
_FAR = re.compile(r"^ *cur=(\d+)\s+end=(\d+)", re.MULTILINE)

_BACKUP = """<domainbackup mode='push'><disks><disk name={disk} backup='yes' type='file'>
<driver type='raw'/><target file={copy}/></disk></disks></domainbackup>
"""
_SNAPSHOT = """<domainsnapshot><name>{name}</name><disks><disk name={disk} snapshot='external' type='file'>
<driver type='qcow2'/><source file={copy}/></disk>{others}</disks></domainsnapshot>
"""
_CREATED_SECONDS = 20.0
"""An empty overlay is written in some hundredths of a second."""


class DomainJob(DuringLoad):
    """A backup or a mirror of the disk `target` of a domain onto the image `copy`, which is as large."""

    shown_by = "virsh blockjob"

    def __init__(self, kind: During, virsh: Virsh, uuid: str, target: str, copy: Path) -> None:
        super().__init__(kind)
        self._virsh, self._disk, self._copy = virsh, (uuid, target), copy
        self._kept = virsh
        self._asked = 0.0

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        with KeptVirsh(self._virsh.uri) as self._kept:
            try:
                self._begin()
                yield
                self._end()
            finally:
                # one that stays is ended when the disk is taken out
                with contextlib.suppress(VirtuneError):
                    self._abort()

    def mark(self) -> None:
        self._asked = 0.0
        super().mark()

    def tend(self) -> None:
        now = time.monotonic()
        if now - self._asked >= _LOOK_SECONDS:
            self._asked = now
            self._look()

    def _look(self) -> None:
        found = self._far()
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

    def _far(self) -> re.Match[str] | None:
        return _FAR.search(self._kept.run("blockjob", *self._disk, "--raw"))

    def _end(self) -> None:
        """What was copied is not used, so there is nothing to finish."""

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


class DomainSnapshots(SnapshotsInTurn, DomainJob):
    """Snapshots of the disk `target` of a domain, which has the image `image` of `disk`'s format."""

    shown_by = "virsh dumpxml, virsh blockjob"
    tick_seconds = 0.05
    _merges = False

    def __init__(self, virsh: Virsh, uuid: str, target: str, copy: Path, *, image: Path, disk: Disk) -> None:
        super().__init__("snapshot", virsh, uuid, target, copy)
        self._image, self._create = image, overlay_words(disk, image, copy)

    def _begin(self) -> None:
        """That it stands, and that no other disk has one, is seen in the domain's live XML."""
        shell.run([shell.find(self._create[0]), *self._create[1:]], timeout_seconds=_CREATED_SECONDS)
        others = {target: one for target, one in self._disks().items() if target != self._disk[1]}
        xml = _SNAPSHOT.format(
            name=f"virtune-{secrets.token_hex(16)}",
            disk=quoteattr(self._disk[1]),
            copy=quoteattr(str(self._copy)),
            others="".join(f"<disk name={quoteattr(target)} snapshot='no'/>" for target in others),
        )
        with as_file(xml) as name:
            words = ("--disk-only", "--no-metadata", "--reuse-external")
            self._virsh.run("snapshot-create", self._disk[0], name, *words)
        now = self._disks()
        moved = [target for target, one in others.items() if target in now and _source(one) != _source(now[target])]
        if moved:
            raise RigError(
                f"another disk of the domain has another source after a snapshot of virtune's own: {moved[0]}",
                hint="virtune told libvirt to leave it out; has somebody else taken one meanwhile?",
            )
        self._merges = False
        self._stands(taken=self._has(now, self._copy))

    def _merge(self) -> bool:
        found = self._far()
        if found is not None:
            self._copied = self._before + int(found[1])
            if self._disks()[self._disk[1]].value("mirror", "ready") == "yes":
                # it ends at a moment at which nothing is left to merge, and that is not waited for
                self._virsh.run("blockjob", *self._disk, "--pivot", "--async")
        elif not self._merges:
            if time.monotonic() >= self._until:
                self._before, self._merges = self._copied, True
                # refused where somebody else has put another snapshot above it
                self._virsh.run("blockcommit", *self._disk, "--active", "--shallow", "--top", str(self._copy))
        elif self._has(self._disks(), self._image):
            self._merged += 1
            return True
        else:
            raise LoadError("the snapshot of the disk was not merged", hint=f"it is in {self._copy}")
        return False

    def _disks(self) -> dict[str, Element]:
        live = read_document(self._kept.run("dumpxml", self._disk[0]).encode())
        found = {disk.value("target", "dev") or "": disk for disk in domain_element(live).all("devices/disk")}
        if self._disk[1] not in found:
            raise LoadError(f"the domain has no disk {self._disk[1]} any more", hint="has somebody taken it out?")
        return found

    def _has(self, disks: Mapping[str, Element], file: Path) -> bool:
        return _source(disks[self._disk[1]]).get("file") == str(file)


def _source(disk: Element) -> dict[str, str]:
    """Return what a disk's data is in, without the number that libvirt gives it."""
    source = disk.child("source")
    return {} if source is None else {name: value for name, value in source.attributes.items() if name != "index"}
