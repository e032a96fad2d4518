# SPDX-License-Identifier: Apache-2.0
"""Applies one change and dies by SIGKILL at the N-th instant around a step of the journal, 0 being the first."""

import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.killed import dies

from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain
from virtune.flows.domains.advise import Wish, advise, read_turn
from virtune.flows.domains.apply import NO_MEANS, Means, apply
from virtune.flows.domains.domains import surroundings
from virtune.virsh import Virsh


class DyingJournal(Journal):
    """A journal that is right up to the instant at which everything ends."""

    def __init__(self, root: Path, instant: int) -> None:
        super().__init__(root)
        self._left = instant

    def begin(self, **words: Any) -> Entry:
        self._instant()
        entry = super().begin(**words)
        self._instant()
        return entry

    def step(self, entry: Entry, step: Step, *, found: bytes | None = None) -> None:
        self._instant()
        super().step(entry, step, found=found)
        self._instant()

    def _instant(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def killed_at(
    instant: int, uri: str, name: str, turns: Sequence[str], *, journal: Path, means: Means = NO_MEANS
) -> bool:
    """Apply turns in a process of its own that dies at an instant; whether it died, and did not get to the end."""
    return dies(lambda: _apply(DyingJournal(journal, instant), uri, name, turns, means))


def _apply(journal: Journal, uri: str, name: str, turns: Sequence[str], means: Means) -> None:
    virsh = Virsh(uri, write=True)
    uuid = virsh.uuid(name)
    found = surroundings(virsh, LibvirtDomain(virsh, uuid).dump())
    advice = advise(found, Wish(turns=tuple(read_turn(text) for text in turns)))
    apply(virsh, uuid, advice, found.text, journal=journal, when=datetime.now(UTC), means=means)
