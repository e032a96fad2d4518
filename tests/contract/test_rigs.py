# SPDX-License-Identifier: Apache-2.0
"""Every rig keeps the contract: metal, storage daemon, vhost-user, a guest of virtune's own, a simulated one.

A libvirt domain keeps it in `tests/libvirt/test_in_place.py`, beside the libvirt that it needs.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import SPAN, bare_guest, eventually, generator, marked_processes
from tests.contract.rig_contract import Image, RigContract
from tests.guests.conftest import TCG

from virtune import shell
from virtune.bench.appliance.build import appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.port import SESSIONS, LoadOutput, Session, Surroundings, session
from virtune.bench.qemu.load import GuestBench, find_guest
from virtune.bench.qemu.rig import BareSession, Guests, GuestSession
from virtune.bench.scratch import Scratch
from virtune.bench.simulated import session as simulated
from virtune.model.rig import RIGS
from virtune.model.stack import Device, Disk, Machine, Stack
from virtune.shell import Warden


def test_every_rig_that_measures_or_simulates_has_a_session_and_no_other() -> None:
    assert set(SESSIONS) == {row.name for row in RIGS.values() if row.made_here}


class OnThisHost(RigContract):
    """Rigs whose disks lie in scratch images of this host."""

    size_bytes = SPAN

    @pytest.fixture
    def image_of(self, scratch: Scratch, warden: Warden) -> Image:
        return lambda stack: scratch.image_for(stack.disk, warden)

    @pytest.fixture
    def session(self, warden: Warden) -> Iterator[Session]:
        with session(Surroundings(warden=warden, scratch=warden.directory)) as found:
            yield found
        assert eventually(lambda: marked_processes() == [])


@pytest.mark.real
class TestMetal(OnThisHost):
    stacks = (Stack(rig="metal"),)


@pytest.mark.real
class TestStorageDaemon(OnThisHost):
    stacks = (
        Stack(disk=Disk(aio="io_uring")),
        Stack(disk=Disk(aio="native", format="qcow2")),
        Stack(export="fuse", disk=Disk(aio="threads", cache="writeback")),
    )


@pytest.mark.real
class TestVhostUser(OnThisHost):
    stacks = (Stack(export="vhost-user-blk", disk=Disk(aio="native")), Stack(export="vhost-user-blk", num_queues=2))

    def program(self) -> str:
        return generator()


@pytest.fixture(scope="module")
def machines() -> Iterator[Guests[GuestBench]]:
    """Machines for the tests of guests: one boots once."""
    cache = shell.cache_directory()
    appliance = appliance_for(find_sources(cache / "packages"), cache / "appliances")[0]
    with Warden("contract-guests") as warden:
        found = Guests(lambda: GuestSession(appliance, TCG, warden))
        yield found
        found.give_up()


@pytest.mark.real
@pytest.mark.xdist_group("guests")
@pytest.mark.long(always="the bare guest keeps it in each run, and guests/test_study.py compares engines in Linux")
class TestGuest(OnThisHost):
    stacks = (
        Stack(rig="qemu", disk=Disk(aio="io_uring")),
        Stack(rig="qemu", device=Device(iothread="io1", num_queues=2), disk=Disk(aio="native")),
    )

    @pytest.fixture
    def session(self, machines: Guests[GuestBench]) -> Session:
        return machines


@pytest.mark.real
class TestBareGuest(OnThisHost):
    """A guest without an operating system, on KVM where that runs it."""

    stacks = (
        Stack(rig="qemu", machine=Machine(system="bare"), disk=Disk(aio="io_uring")),
        Stack(
            rig="qemu",
            machine=Machine(system="bare"),
            device=Device(iothread="io1", num_queues=2, queue_size=512),
            disk=Disk(aio="native"),
        ),
    )

    @pytest.fixture
    def session(self, warden: Warden) -> Iterator[Session]:
        bare_guest()
        guest = find_guest()
        found = Guests(lambda: BareSession(guest, warden))
        yield found
        found.give_up()


class TestSimulated(RigContract):
    """The same promises, kept without a disk."""

    stacks = (
        Stack(rig="simulated", disk=Disk(aio="io_uring")),
        Stack(rig="simulated", domain="exact", disk=Disk(aio="native", format="qcow2")),
    )
    size_bytes = SPAN

    @pytest.fixture
    def image_of(self) -> Image:
        return lambda _: None

    @pytest.fixture
    def session(self, tmp_path: Path) -> Iterator[Session]:
        with simulated(self.stacks[0], Surroundings(warden=Warden("none"), scratch=tmp_path)) as found:
            yield found

    def refused(self, bench: object) -> LoadOutput:
        """It runs no program: what fails is said by its scenario."""
        failing = Stack(rig="simulated", domain="lost")
        place = Surroundings(warden=Warden("none"), scratch=Path())
        with simulated(failing, place) as rig, rig.up(failing, self.spec(failing, lambda _: None)) as lost:
            return self.load(lost, seconds=1.0)
