# SPDX-License-Identifier: Apache-2.0
"""A rig brings Stacks up and takes them down: a `with` for the study, and in it a `with` for each trial.

What a rig started (a daemon, a guest) may live as long as the study, and arms are switched in it; how an arm came to
run is part of the evidence.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import Target


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
class DiskImageSpec:
    """What a rig stands on: the image (None for a stack without one), its size, and whether the load writes.

    `second` is the image of every second guest where these are spread.
    """

    image: Path | None
    size_bytes: int
    writes: bool
    second: Path | None = None


class Session(Protocol):
    """A rig for as long as a study lasts. One stack is up at a time."""

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        """Bring a stack up, and down again with the block; with `restart` in a process that carried none before.

        Raises RigError when it does not come up. What is in force is recorded, and judged by the caller. Whatever
        went wrong in the block or before it, the next stack comes up all the same: in a new process, where it must.
        """
        ...
