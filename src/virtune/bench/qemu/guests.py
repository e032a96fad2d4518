# SPDX-License-Identifier: Apache-2.0
"""Guests of ours at once: as many as a stack asks for, each with a machine of its own, all on the same image.

A machine is booted when a stack first needs so many, and stays; while a stack has no use for it, it stands still.
"""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.appliance.chosen import chosen_appliance
from virtune.bench.port import DiskImageSpec, Surroundings
from virtune.bench.qemu.accelerator import Accelerator, accelerator_for
from virtune.bench.qemu.rig import GuestBench, GuestSession
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack


@functools.cache
def ready_appliance() -> Appliance:
    """Return what guests boot, made now where there is none of these contents; a run looks for it once."""
    return chosen_appliance(shell.cache_directory())


@contextlib.contextmanager
def session(stack: Stack, place: Surroundings) -> Iterator["Guests"]:  # noqa: ARG001 - machines come as needed
    """Yield the rig; the machines that its stacks asked for end with the block."""
    appliance, warden = ready_appliance(), place.warden
    found = Guests(appliance, accelerator_for(appliance, warden, shell.cache_directory()), warden)
    try:
        yield found
    finally:
        found.give_up()


class Guests:
    """Machines for guests, and what stands in them now."""

    def __init__(self, appliance: Appliance, accelerator: Accelerator, warden: shell.Warden) -> None:
        self._of = appliance, accelerator, warden
        self._sessions: list[GuestSession] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[GuestBench]:
        """Put the stack below the disk of every guest that it asks for; yields the first, which knows the others.

        Raises RigError when one of them cannot be.
        """
        wanted = stack.guests + stack.idle_guests
        self._sessions += [GuestSession(*self._of) for _ in range(wanted - len(self._sessions))]
        with contextlib.ExitStack() as ups:
            benches = [
                ups.enter_context(one.up(stack, _of(ground, number), restart=restart))
                for number, one in enumerate(self._sessions[:wanted])
            ]
            yield _as_one(stack, benches)

    def give_up(self) -> None:
        """End all machines."""
        for one in self._sessions:
            one.give_up()


def _of(ground: DiskImageSpec, number: int) -> DiskImageSpec:
    """Return what one guest stands on: every second one on the second image, where there is one."""
    return replace(ground, image=ground.second) if ground.second is not None and number % 2 else ground


def _as_one(stack: Stack, benches: list[GuestBench]) -> GuestBench:
    first, *others = benches
    if not others:
        return first
    loaded, idle = benches[: stack.guests], benches[stack.guests :]
    pids = ", ".join(str(one.vm.child.pid) for one in benches)
    counted = (
        Check(setting=name, asked=str(asked), found=str(len(found)), proof=f"QEMU processes {pids}")
        for name, asked, found in (
            ("guests.count", stack.guests, loaded),
            ("guests.idle", stack.idle_guests, idle),
        )
        if asked
    )
    spread = [] if stack.spread is None else [spread_check(stack.spread, others[0].image)]
    seen = [replace(check, guest=number) for number, one in enumerate(benches) for check in one.in_force.checks]
    return replace(
        first,
        beside=tuple(loaded[1:]),
        idle=tuple(one.vm.child.pid for one in idle),
        in_force=InForce(checks=(*counted, *spread, *seen)),
        changeover=_together([one.changeover for one in benches if one.changeover is not None]),
    )


def spread_check(asked: str, image: Path | None) -> Check:
    """Say whether a guest's image lies in the directory that was asked for, by whatever name or link, or below it.

    In a directory where others may write it is a directory of ours that has it.
    """
    found = None
    if image is not None:
        place = image.resolve().parent
        found = asked if place.is_relative_to(Path(asked).resolve()) else str(place)
    proof = f"the second guest stands on {image}"
    return Check(setting="guests.spread", asked=asked, found=found, proof=proof)


def _together(ways: list[Changeover]) -> Changeover | None:
    """How all of them came to run: the one that took a new process tells, and their times add up."""
    told = next((way for way in ways if way.swapped is None), ways[0])
    return replace(told, seconds=sum(way.seconds for way in ways))
