# SPDX-License-Identifier: Apache-2.0
"""A second release of QEMU beside the installed one: what test_rig.py shows of the one holds for the other too, and
what only one of them has is refused by the other with the reason.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.bench.loading import raw_job, run
from tests.beside import qemu_beside
from tests.conftest import SPAN
from tests.guests.conftest import TCG
from tests.guests.rig_parts import found, ground

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.port import LoadOutput
from virtune.bench.qemu.load import GuestBench
from virtune.bench.qemu.machine import PROGRAM
from virtune.bench.qemu.rig import GuestSession
from virtune.model.errors import RigError
from virtune.model.knob import Support
from virtune.model.knobs import find
from virtune.model.stack import Device, Disk, Machine, Stack
from virtune.probe.qemu_knobs import ask

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

MAPPING = find("device.iothread_vq_mapping")


@pytest.fixture
def session(appliance: Appliance, one_warden: shell.Warden) -> Iterator[GuestSession]:
    made = GuestSession(appliance, TCG, one_warden)
    yield made
    made.give_up()


def load_from_two_cpus(bench: GuestBench, seconds: float = 0.5) -> LoadOutput:
    text = f"[x]\nioengine=libaio\ndirect=1\niodepth=16\nbs=4k\nrw=randread\nfilename={bench.target.path}\n"  # type: ignore[union-attr]
    text += f"size={SPAN}\nnumjobs=2\ncpus_allowed=0,1\ncpus_allowed_policy=split\ntime_based=1\n"
    text += f"runtime={round(seconds * 1000)}ms\n"
    job = raw_job(text + "allow_file_create=0\n", engine="libaio", workload="rw=randread,numjobs=2")
    return run(bench, job, seconds=seconds)


def verified_settings(bench: GuestBench, setting: str) -> dict[str, str | None]:
    """The verified settings; on a busy host it takes a longer load to see the engine at work."""
    seen = found((*bench.in_force.checks, *load_from_two_cpus(bench).checks))
    return seen if setting in seen else found(load_from_two_cpus(bench, 4).checks)


def test_engines_and_threads_of_the_other_release(session: GuestSession, image: Path) -> None:
    machine = Machine(emulator=qemu_beside(), vcpus=2)
    with session.up(Stack(rig="qemu", machine=machine, disk=Disk(aio="io_uring")), ground(image)) as bench:
        assert found(bench.in_force.checks)["guest.vcpus"] == "2"
        assert verified_settings(bench, "disk.aio")["disk.aio"] == "io_uring"
    # an event loop of its own, and then two of them for one disk
    device = Device(iothread="io1", num_queues=2)
    with session.up(Stack(rig="qemu", machine=machine, device=device), ground(image)) as bench:
        assert bench.changeover is not None
        assert bench.changeover.swapped == "disk"
        seen = verified_settings(bench, "device.iothread")
        assert (seen["device.iothread"], seen.get("disk.aio", "threads")) == ("io1", "threads")
    queues_are_mapped_or_refused(machine, session, image)


def test_queues_are_mapped_to_threads_where_the_installed_one_can(session: GuestSession, image: Path) -> None:
    queues_are_mapped_or_refused(Machine(emulator=shell.find(PROGRAM), vcpus=2), session, image)


def queues_are_mapped_or_refused(machine: Machine, session: GuestSession, image: Path) -> None:
    device = Device(iothread_vq_mapping="io1+io2", num_queues=2)
    spread = Stack(rig="qemu", machine=machine, device=device, disk=Disk(aio="native"))
    (answer,) = ask([MAPPING], emulators=[str(machine.emulator)])[MAPPING.id]
    if answer.standing is Support.ABSENT:
        with pytest.raises(RigError, match=r"QEMU 7\.2\.\S+ .*has no `iothread-vq-mapping` for virtio-blk-pci"):
            session.up(spread, ground(image)).__enter__()
        return
    with session.up(spread, ground(image)) as bench:
        seen = found(bench.in_force.checks)
        assert seen["device.iothread_vq_mapping"] == "io1+io2"
        checks = load_from_two_cpus(bench).checks
        assert found(checks)["device.iothread_vq_mapping"] == "io1+io2"
        spent = bench.spent().by_iothread
        # both worked: one that has no queue has no more than its start, and others take CPUs from one or the other
        assert min(spent["io1"], spent["io2"]) > max(spent["io1"], spent["io2"]) / 10 > 0, spent
    pinned = Stack(rig="qemu", machine=machine, device=Device(iothread_vq_mapping="io2:0+io1:1"))
    with session.up(pinned, ground(image)) as bench:
        assert found(bench.in_force.checks)["device.iothread_vq_mapping"] == "io2:0+io1:1"
