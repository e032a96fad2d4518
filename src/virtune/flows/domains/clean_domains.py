# SPDX-License-Identifier: Apache-2.0
"""Detach the disks that killed runs left in existing domains, and remove their scratch images."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from virtune.bench.guest.agent import AgentGuest
from virtune.bench.libvirt.access import LibvirtLine
from virtune.bench.libvirt.attached import Plugged, alone_in, strike_out, take_out, written_down
from virtune.bench.scratch import Scratch
from virtune.model.errors import VirtuneError
from virtune.virsh import Virsh


def clean_domains(home: Path) -> tuple[list[str], list[str]]:
    """Detach the disks of dead runs from domains; returns what was removed, and what could not be.

    A domain that cannot be reached, or does not release a disk, stays recorded for the next call.
    """
    removed: list[str] = []
    kept: list[str] = []
    for left in written_down(home):
        if left.abandoned:
            try:
                removed += _out(home, left)
            except VirtuneError as error:
                kept.append(f"the disk {left.name} may still be in the domain {left.domain}: {error.message}")
    return removed, kept


def _out(home: Path, left: Plugged) -> Iterator[str]:
    with alone_in(home, left.uuid, left.domain):
        virsh = Virsh(left.uri, write=True)
        if left.uuid in virsh.uuids() and take_out(left, virsh, AgentGuest(LibvirtLine(virsh, left.uuid))):
            yield f"disk {left.name} from the domain {left.domain}"
    with contextlib.suppress(OSError, VirtuneError):
        scratch = Path(left.scratch)
        if scratch.is_dir():
            with Scratch(scratch, span_bytes=0, say=lambda _: None):
                pass  # entering it removes what is useless without the run, and notes that
    strike_out(home, left)
    yield f"the note that a run measured in the domain {left.domain}"
