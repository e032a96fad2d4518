# SPDX-License-Identifier: Apache-2.0
"""Applies one change and dies by SIGKILL at the N-th instant around a step of the journal, 0 being the first.

python dying.py URI UUID JOURNAL N KNOB@PLACE=VALUE...
"""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from virtune.apply.journal import Entry, Journal, Step
from virtune.apply.libvirt import LibvirtDomain
from virtune.flows.advice import Wish, advise, read_turn
from virtune.flows.apply import apply
from virtune.flows.domains import surroundings
from virtune.probe.virsh import Virsh


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


uri, uuid, place, instant, *texts = sys.argv[1:]
virsh = Virsh(uri, write=True)
found = surroundings(virsh, LibvirtDomain(virsh, uuid).dump())
advice = advise(found, Wish(turns=tuple(read_turn(text) for text in texts)))
apply(virsh, uuid, advice, found.text, journal=DyingJournal(Path(place), int(instant)), when=datetime.now(UTC))
