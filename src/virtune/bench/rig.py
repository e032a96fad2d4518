# SPDX-License-Identifier: Apache-2.0
"""A rig brings Stacks up and takes them down: a `with` for the study, and in it a `with` for each trial.

What a rig started (a daemon, a guest) may live as long as the study, and arms are switched in it; how an arm came to
run is part of the evidence.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

from virtune.model.errors import RigError
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import Target
from virtune.shell import Warden

if TYPE_CHECKING:
    from virtune.bench.domain_way import Way


class Bench(Protocol):
    """A Stack that is up: where the load lands, which processes carry it, what is in force, how it came to run.

    `changeover` is None for a rig that has no process of its own.
    """

    target: Target
    processes: Mapping[str, int]
    image: Path | None
    in_force: InForce
    command: str
    changeover: Changeover | None

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look again while the load runs; only then is it seen who does the I/O."""
        ...

    def trouble(self) -> str | None:
        """Say why the stack no longer runs, None while it does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a rig stands on: the image (None for a stack without one), its size, and whether the load writes.

    `second` is the image of every second guest where these are spread.
    """

    image: Path | None
    size_bytes: int
    writes: bool
    second: Path | None = None


class Session(Protocol):
    """A rig for as long as a study lasts. One stack is up at a time."""

    def up(self, stack: Stack, ground: Ground, *, restart: bool = False) -> AbstractContextManager[Bench]:
        """Bring a stack up, and down again with the block; with `restart` in a process that carried none before.

        Raises RigError when it does not come up. What is in force is recorded, and judged by the caller. Whatever
        went wrong in the block or before it, the next stack comes up all the same: in a new process, where it must.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The ways into domains of the user's, by their names, and where what is plugged into them lies."""

    ways: "Mapping[str, Way]"
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

    def up(self, stack: Stack, ground: Ground, *, restart: bool = False) -> AbstractContextManager[Bench]:
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
            from virtune.bench import storage_daemon

            return storage_daemon.session(warden)
        case "unknown":
            raise RigError("this stack was not made here, so nothing brings it up", hint="its results were imported")
        case "qemu":
            from virtune.bench import guests

            return guests.session(warden)
        case "libvirt":
            from virtune.bench import domain

            if place is None or stack.domain is None:
                raise RigError("rig=libvirt needs a domain, and a way into it")
            return domain.session(place.ways[stack.domain], place.scratch)
        case _:
            assert_never(stack.rig)
