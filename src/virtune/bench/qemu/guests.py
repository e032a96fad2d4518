# SPDX-License-Identifier: Apache-2.0
"""Several test VMs at once: as many as a stack requests, each with its own machine, all on the same image.

A machine is booted when a stack first needs it, and stays; while a stack does not need it, it is paused.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.appliance.chosen import chosen_appliance
from virtune.bench.port import DiskImageSpec, Surroundings
from virtune.bench.qemu.accelerator import Accelerator, accelerator_for
from virtune.bench.qemu.bare import find_guest
from virtune.bench.qemu.rig import B, BareBench, BareSession, CarriedBench, GuestBench, GuestSession, MachineSession
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack


@functools.cache
def ready_appliance() -> Appliance:
    """Return the appliance that guests boot, building it if needed; a run looks for it once."""
    return chosen_appliance(shell.cache_directory())


@contextlib.contextmanager
def session(stack: Stack, place: Surroundings) -> Iterator["Systems"]:  # noqa: ARG001 - machines come as needed
    """Yield the rig; its machines end with the block."""
    found = Systems(place.warden)
    try:
        yield found
    finally:
        found.give_up()


def linux_guests(appliance: Appliance, accelerator: Accelerator, warden: shell.Warden) -> "Guests[GuestBench]":
    """Return machines for guests with Linux."""
    return Guests(lambda: GuestSession(appliance, accelerator, warden))


def bare_guests(warden: shell.Warden) -> "Guests[BareBench]":
    """Return machines for guests without an operating system; raises MissingToolError where the guest program is not
    built.
    """
    guest = find_guest()
    return Guests(lambda: BareSession(guest, warden))


class Systems:
    """Guests with and without an operating system: those of one kind end when the other is requested."""

    def __init__(self, warden: shell.Warden) -> None:
        self._warden = warden
        self._linux: Guests[GuestBench] | None = None
        self._bare: Guests[BareBench] | None = None

    def up(
        self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False
    ) -> contextlib.AbstractContextManager[GuestBench | BareBench]:
        """Put the stack below the disk of every guest it needs."""
        if stack.machine.is_bare:
            if self._linux is not None:
                self._linux.give_up()
            self._bare = self._bare or bare_guests(self._warden)
            return self._bare.up(stack, ground, restart=restart)
        if self._bare is not None:
            self._bare.give_up()
        if self._linux is None:
            appliance, cache = ready_appliance(), shell.cache_directory()
            self._linux = linux_guests(appliance, accelerator_for(appliance, self._warden, cache), self._warden)
        return self._linux.up(stack, ground, restart=restart)

    def give_up(self) -> None:
        """End all machines."""
        for guests in (self._linux, self._bare):
            if guests is not None:
                guests.give_up()


class Guests(Generic[B]):
    """Machines for guests with their present stacks; `make` makes the session of one."""

    def __init__(self, make: Callable[[], MachineSession[B]]) -> None:
        self._make = make
        self._sessions: list[MachineSession[B]] = []

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[B]:
        """Put the stack below the disk of every guest it needs; yields the first, which knows the others.

        Raises RigError when one of them fails.
        """
        wanted = stack.guests + stack.idle_guests
        self._sessions += [self._make() for _ in range(wanted - len(self._sessions))]
        with contextlib.ExitStack() as ups:
            benches = [
                ups.enter_context(one.up(stack, _of(stack, ground, number), restart=restart))
                for number, one in enumerate(self._sessions[:wanted])
            ]
            yield _as_one(stack, ground, benches)

    def give_up(self) -> None:
        """End all machines."""
        for one in self._sessions:
            one.give_up()


def _of(stack: Stack, ground: DiskImageSpec, number: int) -> DiskImageSpec:
    """Return the image of one guest: its own, where each has one; else every second one has the second image."""
    if stack.own_images and number:
        return replace(ground, image=ground.further[number - 1], further=())
    return replace(ground, image=ground.second) if ground.second is not None and number % 2 else ground


def _as_one(stack: Stack, ground: DiskImageSpec, benches: list[B]) -> B:
    first, *others = benches
    if not others:
        return _with_spread(stack, ground, first)
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
    if stack.own_images:
        spread.append(_images_check(benches, {ground.image, *ground.further}))
    seen = [replace(check, guest=number) for number, one in enumerate(benches) for check in one.in_force.checks]
    return replace(
        first,
        beside=tuple(loaded[1:]),
        idle=tuple(one.vm.child.pid for one in idle),
        in_force=InForce(checks=(*counted, *spread, *seen)),
        changeover=_together([one.changeover for one in benches if one.changeover is not None]),
    )


def _with_spread(stack: Stack, ground: DiskImageSpec, bench: B) -> B:
    """Return the only guest, with a check of where the image of its second disk lies, if its disks are spread."""
    if stack.spread is None or not ground.further:
        return bench
    image = ground.further[0]
    held = bench.process.opened(image) if image is not None else {}
    check = replace(spread_check(stack.spread, image if held else None), hidden=held is None)
    return replace(bench, in_force=InForce(checks=(*bench.in_force.checks, check)))


def spread_check(asked: str, image: Path | None) -> Check:
    """Check whether an image lies in the requested directory or below it, under any name or link.

    If others may write to that directory, the image is in our own directory below it.
    """
    found = None
    if image is not None:
        place = image.resolve().parent
        found = asked if place.is_relative_to(Path(asked).resolve()) else str(place)
    proof = f"every second guest or disk stands on {image}"
    return Check(setting="guests.spread", asked=asked, found=found, proof=proof)


def _images_check(benches: Sequence[CarriedBench], meant: Collection[Path | None]) -> Check:
    """Check that each guest has an image of its own; an existing target is shared, whatever was asked."""
    images = {one.image for one in benches}
    shared = len(meant) == 1
    found = None if shared else "on" if images == meant and len(images) == len(benches) else "off"
    names = ", ".join(sorted(map(str, images)))
    proof = f"all guests share {names}" if shared else f"the guests stand on {names}"
    return Check(setting="guests.images", asked="on", found=found, proof=proof, hidden=shared)


def _together(ways: list[Changeover]) -> Changeover | None:
    """How all guests were started: as the one that took a new process, with the sum of their times."""
    told = next((way for way in ways if way.swapped is None), ways[0])
    return replace(told, seconds=sum(way.seconds for way in ways))
