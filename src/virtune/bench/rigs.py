# SPDX-License-Identifier: Apache-2.0
"""The rigs by name: each is imported and prepared when a stack needs it, to save its start-up time.

A new rig is a row of `virtune.model.rig`, a line here, and a module or room beside this one.
"""

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from virtune.bench.port import Bench, DiskImageSpec, Session, Surroundings
from virtune.model.errors import RigError
from virtune.model.rig import Rig
from virtune.model.stack import Stack

SESSIONS: Mapping[Rig, str] = {
    "metal": "virtune.bench.metal",
    "storage-daemon": "virtune.bench.daemon",
    "qemu": "virtune.bench.qemu.rig",
    "libvirt": "virtune.bench.libvirt.rig",
    "simulated": "virtune.bench.simulated",
}
"""The module of each rig: its `session`, called with the stack and its surroundings, returns a Session as a `with`
block.
"""


@contextlib.contextmanager
def session(place: Surroundings) -> Iterator[Session]:
    """Yield the rigs of a study as one: each is prepared when a stack needs it, and all end with the block."""
    with contextlib.ExitStack() as ends:
        yield _Rigs(place, ends)


class _Rigs:
    """Every rig used so far, by its name and argument."""

    def __init__(self, place: Surroundings, ends: contextlib.ExitStack) -> None:
        self._place, self._ends = place, ends
        self._ready: dict[tuple[str, str | None], Session] = {}

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        key = stack.rig, stack.domain
        if key not in self._ready:
            if stack.rig not in SESSIONS:
                hint = "its results were imported"
                raise RigError("this stack was not measured here, so no rig can start it", hint=hint)
            make: Any = importlib.import_module(SESSIONS[stack.rig]).session
            self._ready[key] = self._ends.enter_context(make(stack, self._place))
        return self._ready[key].up(stack, ground, restart=restart)
