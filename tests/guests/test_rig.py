# SPDX-License-Identifier: Apache-2.0
"""The rig `qemu` on a real guest: one machine for all stacks, what is exchanged, the verified settings."""

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import pytest
from tests.bench.loading import run
from tests.conftest import SPAN, bare_guest, eventually
from tests.guests.conftest import TCG
from tests.guests.rig_parts import GUEST, OF_OLDER, OLDER, engine_at_work, found, ground, load

from virtune import shell
from virtune.analyse.trial.measure import disk_values, unlike_disks
from virtune.bench.appliance.build import Appliance
from virtune.bench.port import DiskImageSpec, LoadJob
from virtune.bench.qemu.machine import PROGRAM
from virtune.bench.qemu.rig import BareSession, Guests, GuestSession
from virtune.bench.scratch import Scratch, image_bytes
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.errors import RigError
from virtune.model.stack import Device, Disk, Filesystem, GuestTarget, Kernel, Machine, Scheduler

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


@pytest.mark.long(always="test_study.py exchanges two in each run, and the contract verifies those of two stacks")
def test_engines_are_exchanged_under_the_device_and_seen_at_work(rig: GuestSession, image: Path) -> None:
    processes, ways = set(), []
    for aio in ("threads", "native", "io_uring", "threads"):
        stack = replace(GUEST, disk=Disk(aio=aio))
        with rig.up(stack, ground(image)) as bench:
            assert bench.changeover is not None
            processes.add(bench.changeover.process)
            ways.append(bench.changeover.swapped)
            assert engine_at_work(bench) == aio
    assert len(processes) == 1
    assert ways == [None, "nodes", "nodes", "nodes"]


@pytest.mark.long(always="test_machines.py asks for more of a device in each run")
def test_what_the_device_is_made_with_needs_it_anew_and_is_seen_by_the_guest(rig: GuestSession, image: Path) -> None:
    with rig.up(GUEST, ground(image)):
        pass
    device = Device(iothread="io1", num_queues=1, physical_block_size=4096)  # type: ignore[arg-type]
    with rig.up(replace(GUEST, device=device, poll_max_ns=0), ground(image)) as bench:
        assert bench.changeover is not None
        assert bench.changeover.swapped == "disk"
        seen = found((*bench.in_force.checks, *load(bench).checks))
        assert (seen["guest.queues"], seen["device.physical_block_size"]) == ("1", "4096")
        assert seen["device.iothread"] == "io1"
    with rig.up(replace(GUEST, device=device, disk=Disk(aio="native")), ground(image)) as bench:
        assert bench.changeover is not None
        assert bench.changeover.swapped == "nodes"
        assert engine_at_work(bench) == "native"


@pytest.mark.long(always="test_busy.py has both in each run, with one engine each")
@pytest.mark.parametrize("bus", ["virtio-scsi", "nvme"])
def test_other_buses(rig: GuestSession, image: Path, bus: str) -> None:
    device = Device(bus=bus)  # type: ignore[arg-type]
    for aio in ("io_uring", "threads"):
        with rig.up(replace(GUEST, device=device, disk=Disk(aio=aio)), ground(image)) as bench:
            assert engine_at_work(bench) == aio


def test_what_the_guest_writes_is_on_the_image_and_cache_modes_are_seen(rig: GuestSession, tmp_path: Path) -> None:
    own = tmp_path / "own.raw"
    own.write_bytes(bytes(SPAN))
    for cache, seen_as in (("none", "write back"), ("directsync", "write through"), ("writeback", "write back")):
        with rig.up(replace(GUEST, disk=Disk(cache=cache)), ground(own, writes=True)) as bench:  # type: ignore[arg-type]
            checks = found((*bench.in_force.checks, *load(bench, rw="randwrite", seconds=0.5).checks))
            assert (checks["disk.cache"], checks["guest.write_cache"]) == (cache, seen_as)
    assert own.read_bytes() != bytes(SPAN)


def test_the_kernel_of_a_guest_runs_its_disk_as_asked_and_then_again_as_it_likes(
    rig: GuestSession, image: Path
) -> None:
    with rig.up(GUEST, ground(image)) as bench:
        usual = bench.seen["scheduler"], bench.seen["nr_requests"]
    asked = Kernel(
        scheduler="mq-deadline", nr_requests=32, rq_affinity="2", nomerges="2", max_sectors_kb=64, read_ahead_kb=64
    )
    with rig.up(replace(GUEST, kernel=asked), ground(image)) as bench:
        seen = found(bench.in_force.checks)
        assert {name: seen[f"guest.{name}"] for name in asked.asked} == asked.asked
        assert read_result(load(bench, seconds=0.5).output.decode()).loads[0].streams[0].iops
    with rig.up(replace(GUEST, kernel=Kernel(nr_requests=10**6)), ground(image)) as bench:
        (check,) = (one for one in bench.in_force.checks if one.setting == "guest.nr_requests")
        assert (check.agrees, check.found) == (False, usual[1])
    with rig.up(GUEST, ground(image)) as bench:
        assert (bench.seen["scheduler"], bench.seen["nr_requests"]) == usual


@pytest.mark.long(always="the one before, of the schedulers that are built in")
@pytest.mark.parametrize("scheduler", ["kyber", "bfq"])
def test_a_scheduler_that_is_a_module_is_put_into_the_guest(
    rig: GuestSession, image: Path, scheduler: Scheduler
) -> None:
    with rig.up(replace(GUEST, kernel=Kernel(scheduler=scheduler)), ground(image)) as bench:
        assert found(bench.in_force.checks)["guest.scheduler"] == scheduler
    with rig.up(GUEST, ground(image)) as bench:
        assert f"[{scheduler}]" not in bench.seen["scheduler"]


@pytest.mark.long(always="truth/test_bare.py has a throttle of a guest's disk in each run")
def test_a_limit_is_kept(rig: GuestSession, image: Path) -> None:
    with rig.up(replace(GUEST, disk=Disk(throttle_iops=25)), ground(image)) as bench:
        before = bench.vm.operations()
        load(bench, seconds=4.0)
        # 25 a second, which a guest keeps up with however busy the host is; a bucket of 10 %, a queue at the end
        assert 75 <= bench.vm.operations() - before <= 160


def test_a_refusal_is_qemus_own_words_and_the_next_stack_comes_up(rig: GuestSession, image: Path) -> None:
    refused = replace(GUEST, device=Device(queue_size=4096))
    with pytest.raises(RigError, match="queue-size"), rig.up(refused, ground(image)):
        pass
    with rig.up(GUEST, ground(image)) as bench:
        assert bench.changeover is not None
        assert "disk.format" in found(bench.in_force.checks)


def test_between_stacks_a_guest_stands_still_whatever_runs_in_it(rig: GuestSession, image: Path) -> None:
    with rig.up(GUEST, ground(image)) as bench:
        pid = bench.vm.child.pid
        busy = "timeout 5 sh -c 'while :; do :; done' >/dev/null 2>&1 &"
        assert bench.vm.guest.look.run(busy, timeout_seconds=120).status == 0
        bench.begin()
        assert eventually(lambda: bench.spent().by_role["vcpu"] > 100_000_000)
    bench.begin()
    time.sleep(0.5)
    assert bench.spent().by_role["vcpu"] < 1_000_000  # the microseconds in which it is stopped
    with rig.up(replace(GUEST, disk=Disk(aio="native")), ground(image)) as bench:
        assert bench.changeover is not None
        assert (bench.changeover.swapped, bench.changeover.process) == ("nodes", pid)
        assert engine_at_work(bench) == "native"


@pytest.mark.long(always="half a minute of waits; one that hangs at its boot is replaced in each run, below")
def test_a_machine_that_lives_and_does_not_answer_is_replaced(one_warden: shell.Warden, image: Path) -> None:
    bare = replace(GUEST, machine=Machine(system="bare"))  # its monitor is as another's, and it boots at once
    session = BareSession(bare_guest(), one_warden, known=TCG)
    try:
        with session.up(bare, ground(image)) as bench:
            pid = bench.vm.child.pid
        os.kill(pid, signal.SIGSTOP)
        with session.up(bare, ground(image)) as bench:
            assert bench.changeover is not None
            assert bench.changeover.process != pid
            assert "the one before does not go on: QEMU's monitor said nothing for 10 s" in bench.changeover.text
            assert not Path(f"/proc/{pid}").exists()
            (workload,) = parse_workload("randread-4k")
            job = fio_job(
                workload, bench.target, seconds=0.3, ramp_seconds=0, seed=7, clients=Clients(engines=frozenset())
            )
            assert run(bench, LoadJob(job=job, workload=workload, program="virtune-load"), seconds=0.3).output
    finally:
        session.give_up()


def test_a_guest_that_hangs_at_its_boot_is_booted_once_more(
    appliance: Appliance, one_warden: shell.Warden, image: Path, tmp_path: Path
) -> None:
    """One with an older board and IDE, so that it is seen what such a guest is made of."""
    sleeper = tmp_path / "qemu"
    sleeper.write_text(f"""#!/bin/sh
[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; set -- -S "$@"; }}
exec {shutil.which(PROGRAM)} "$@"
""")
    sleeper.chmod(0o755)
    session = GuestSession(appliance, TCG, one_warden, first_boot_seconds=1.0)
    try:
        stack = replace(GUEST, machine=replace(OLDER, emulator=str(sleeper)), device=Device(bus="ide"))
        with session.up(stack, ground(image)) as bench:
            assert bench.changeover is not None
            assert "the guest did not come up within 1 s" in bench.changeover.text
            assert "its vCPUs used 0 s of CPU" in bench.changeover.text
            seen = found((*bench.in_force.checks, *load(bench, seconds=0.5).checks))
            assert {name: seen[name] for name in OF_OLDER} == OF_OLDER
    finally:
        session.give_up()


def test_several_disks_of_one_guest_have_their_own_settings_and_are_told_apart(
    rig: GuestSession, image: Path, tmp_path: Path
) -> None:
    second, apart = "throttle_iops=20+bus=virtio-scsi", tmp_path / "apart"
    stack = replace(GUEST, device=Device(iothread="io1"), disks=2, own_iothreads=True, second=second)
    stack = replace(stack, spread=str(apart), kernel=Kernel(nomerges="2"))
    apart.mkdir()
    both = replace(ground(image), further=(Path(shutil.copy(image, apart)),))
    workload = parse_workload("rw=randread,bs=4k,iodepth=4,numjobs=2")[0]
    with Guests(lambda: rig).up(stack, both) as bench:
        seen = found(bench.in_force.checks)
        assert seen["guests.spread"] == str(apart)
        assert (seen["disks.count"], seen["disks.iothreads"]) == ("2", "on")
        assert (seen["disks.second"], seen["guest.nomerges"]) == (second, "2")
        clients = Clients(engines=frozenset({"libaio"}), installed=False)
        job = fio_job(workload, bench.target, seconds=1.5, ramp_seconds=0, seed=1, clients=clients)
        output = run(bench, LoadJob(job=job, workload=workload, program="fio"), seconds=1.5).output
    measured = dict(disk_values(read_result(output.decode()), stack))
    # 20 a second and the bucket of a tenth of a second, so that the other has more than twice that on a busy host too
    assert 5 <= measured["disk.2.iops"] <= 25
    assert measured["disk.1.iops"] > 2 * measured["disk.2.iops"]
    assert [one.id for one in unlike_disks(list(measured.items()))] == ["unlike-disks"]
    with rig.up(GUEST, ground(image)) as bench:
        assert bench.target.more == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "rw"),
    [("ext4", "randwrite"), ("xfs", "randwrite"), pytest.param("ext4", "randread", marks=pytest.mark.long)],
)
def test_a_file_in_the_guests_filesystem_is_loaded_beside_the_disk_itself(
    rig: GuestSession, one_warden: shell.Warden, tmp_path: Path, kind: Filesystem, rw: str
) -> None:
    disk = Disk(filesystem=kind, cache="writeback")
    own = Kernel(mount_data="writeback", mount_commit=30, mount_barrier=False) if kind == "ext4" else Kernel()
    kernel = replace(own, mount_noatime=True)
    with Scratch(tmp_path, span_bytes=SPAN, say=lambda _: None) as scratch:
        made = scratch.image_for(disk, one_warden)
        plain = scratch.image_for(Disk(), one_warden)
        assert scratch.image_for(disk, one_warden).stat().st_ino == made.stat().st_ino
    on_it = DiskImageSpec(image=made, size_bytes=image_bytes(disk, SPAN), writes=rw == "randwrite")
    with rig.up(replace(GUEST, disk=disk, kernel=kernel), on_it) as bench:
        assert bench.target == GuestTarget(path="/mnt/vda/load", size_bytes=SPAN)
        mounted = next(check for check in bench.in_force.checks if check.setting == "disk.filesystem")
        assert mounted.agrees is True
        found = {one.setting: one.agrees for one in bench.in_force.checks if "mount_" in one.setting}
        assert found == dict.fromkeys((f"guest.{name}" for name in kernel.mounting), True)
        assert f"/mnt/vda {kind} {'rw' if on_it.writes else 'ro'}," in mounted.proof
        first = bench.vm.guest.look.run("head -c 65536 /mnt/vda/load | md5sum", timeout_seconds=120).stdout
        assert first.split()[0].decode() == md5(plain.read_bytes()[:65536], usedforsecurity=False).hexdigest()
        result = read_result(load(bench, rw=rw, seconds=0.5).output.decode())
        assert result.loads[0].streams[0].iops
    with rig.up(GUEST, ground(plain)) as bench:
        assert bench.target == GuestTarget(path="/dev/vda", size_bytes=SPAN)
    # what the guest unmounted is whole
    check = ["e2fsck", "-fn"] if kind == "ext4" else ["xfs_repair", "-n", "-f"]
    assert subprocess.run([*check, made], capture_output=True).returncode == 0
