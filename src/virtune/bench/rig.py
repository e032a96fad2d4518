# SPDX-License-Identifier: Apache-2.0
"""A rig brings a Stack up and takes it down: a `with` block that yields a Bench with a target."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

from virtune.model.evidence import Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import Target
from virtune.shell import Warden


class Bench(Protocol):
    """A Stack that is up: where the load lands, which processes carry it, and what is in force."""

    target: Target
    processes: Mapping[str, int]
    image: Path | None
    in_force: InForce
    command: str

    def under_load(self, *, flushes: bool) -> tuple[Check, ...]:
        """Look again while the load runs; only then is it seen who does the I/O."""
        ...

    def trouble(self) -> str | None:
        """Say why the stack no longer runs, None while it does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a rig stands on: the image (None for a stack without one), its size, and whether the load writes."""

    image: Path | None
    size_bytes: int
    writes: bool


@contextlib.contextmanager
def up(stack: Stack, ground: Ground, warden: Warden) -> Iterator[Bench]:
    """Bring a stack up, and down again with the block.

    Raises RigError when it does not come up. What is in force is recorded, and judged by the caller.
    """
    # A rig's module brings its own weight (asyncio, QMP), so it is loaded when it is used.
    match stack.rig:
        case "metal":
            from virtune.bench import metal

            yield metal.up(ground)
        case "storage-daemon":
            from virtune.bench import storage_daemon

            with storage_daemon.up(stack, ground, warden) as bench:
                yield bench
        case _:
            assert_never(stack.rig)
