# SPDX-License-Identifier: Apache-2.0
"""Which rig a stack needs: each is imported and made ready when a stack asks for it."""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from virtune.bench.port import Bench, DiskImageSpec, Session
from virtune.model.errors import RigError
from virtune.model.stack import Stack
from virtune.shell import Warden

if TYPE_CHECKING:
    from virtune.bench.libvirt.access import DomainAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The ways into domains of the user's, by their names, and where what is plugged into them lies."""

    ways: "Mapping[str, DomainAccess]"
    scratch: Path


@contextlib.contextmanager
def session(warden: Warden, place: Place | None = None) -> Iterator[Session]:
    """Yield the rigs of a study as one: each is made ready when a stack asks for it, and all end with the block.

    `place` is needed for stacks in domains of the user's.
    """
    with contextlib.ExitStack() as ends:
        yield _Rigs(warden, ends, place)


class _Rigs:
    """Every rig that a stack asked for so far, by its name."""

    def __init__(self, warden: Warden, ends: contextlib.ExitStack, place: Place | None) -> None:
        self._warden, self._ends, self._place = warden, ends, place
        self._ready: dict[tuple[str, str | None], Session] = {}

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        key = stack.rig, stack.domain
        if key not in self._ready:
            self._ready[key] = self._ends.enter_context(_session_of(stack, self._warden, self._place))
        return self._ready[key].up(stack, ground, restart=restart)


def _session_of(stack: Stack, warden: Warden, place: Place | None) -> AbstractContextManager[Session]:
    # A rig's module brings its own weight (asyncio, QMP), so it is loaded when it is used.
    match stack.rig:
        case "metal":
            from virtune.bench import metal

            return metal.session()
        case "storage-daemon":
            from virtune.bench.daemon import rig as storage_daemon

            return storage_daemon.session(warden)
        case "unknown" | "simulated":
            raise RigError(
                "this stack was not measured here, so no rig can start it", hint="its results were imported"
            )
        case "qemu":
            from virtune.bench.qemu import guests

            return guests.session(warden)
        case "libvirt":
            from virtune.bench.libvirt import rig as domain

            if place is None or stack.domain is None:
                raise RigError("rig=libvirt needs a domain, and a way into it")
            return domain.session(place.ways[stack.domain], place.scratch)
        case _:
            assert_never(stack.rig)
