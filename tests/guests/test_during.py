# SPDX-License-Identifier: Apache-2.0
"""A block job beside a load, discards, a migration: at work while it is measured, gone after it, or said."""

import filecmp
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.bench.loading import run
from tests.beside import qemu_beside
from tests.conftest import SPAN, User, bare_guest, eventually, marked_processes
from tests.guests.conftest import TCG
from tests.guests.rig_parts import GUEST, MIB, found, ground
from tests.guests.rig_parts import load as fio

from virtune import shell
from virtune.bench.during import IMAGE
from virtune.bench.port import LoadJob, LoadOutput
from virtune.bench.qemu.load import BareBench
from virtune.bench.qemu.rig import BareSession, GuestSession
from virtune.bench.scratch import Scratch
from virtune.dialects.qemu.images import chain_of
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.workloads import parse_workload
from virtune.model.contradictions import contradictions
from virtune.model.errors import LoadError
from virtune.model.stack import IN_LINUX, Bus, Device, Disk, During, Machine, Stack

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

BARE = replace(GUEST, machine=Machine(system="bare"))


@pytest.fixture
def session(one_warden: shell.Warden) -> Iterator[BareSession]:
    made = BareSession(bare_guest(), one_warden, known=TCG)
    yield made
    made.give_up()


@pytest.fixture
def copy(scratch_directory: Path, one_warden: shell.Warden) -> Path:
    with Scratch(scratch_directory, span_bytes=SPAN, say=lambda _: None) as scratch:
        return scratch.image_for(Disk(), one_warden, IMAGE)


def load(bench: BareBench, words: str = "randread-4k", seconds: float = 1.5) -> LoadOutput:
    (workload,) = parse_workload(words)
    clients = Clients(engines=frozenset())
    job = fio_job(workload, bench.target, seconds=seconds, ramp_seconds=0, seed=7, clients=clients)
    return run(bench, LoadJob(job=job, workload=workload, program="virtune-load"), seconds=seconds)


def nothing_of_it_is_left(bench: BareBench) -> bool:
    nodes = bench.vm.monitor.execute("query-named-block-nodes")
    return not bench.vm.monitor.execute("query-jobs") and len(nodes) <= 5 and "copy0" not in str(nodes)


@pytest.mark.parametrize("kind", ["backup", "mirror"])
@pytest.mark.parametrize("beside", [False, True], ids=["installed", "beside"])
def test_a_job_is_at_work_under_load_and_gone_after_it(
    session: BareSession, image: Path, copy: Path, kind: During, *, beside: bool
) -> None:
    machine = Machine(system="bare", emulator=qemu_beside() if beside else None)
    stack = replace(BARE, machine=machine, during=kind)
    with session.up(stack, replace(ground(image), copy=copy)) as bench:
        loaded = load(bench)
        (check,) = (one for one in loaded.checks if one.setting == "disk.during")
        assert (check.agrees, check.found) == (True, kind), check
        assert "begun" in check.proof, "it is begun anew where it is done before the load"
        assert found(loaded.checks)["disk.during"] == kind
        assert nothing_of_it_is_left(bench)
    assert filecmp.cmp(image, copy, shallow=False), "what was copied is the disk"
    with session.up(replace(stack, during="none"), ground(image)) as bench:
        assert "disk.during" not in found(load(bench, seconds=0.3).checks), "and nobody is told of one where none is"
        assert bench.changeover is not None
        assert bench.changeover.swapped is not None or not beside


WRITES = "rw=randwrite,bs=4k,rate_iops=200"


@pytest.mark.parametrize("beside", [False, True], ids=["installed", "beside"])
@pytest.mark.parametrize(
    ("device", "disk", "words"),
    [
        (Device(), Disk(), "randread-4k"),
        (Device(iothread="io1"), Disk(aio="native"), WRITES),
        (Device(iothread="io1"), Disk(format="qcow2", aio="io_uring"), WRITES),
        (Device(bus="virtio-scsi"), Disk(cache="writeback"), WRITES),
        (Device(), Disk(format="qcow2", backing_depth=1), WRITES),
    ],
    ids=["read", "raw", "qcow2", "scsi", "chain"],
)
def test_snapshots_are_taken_and_merged_under_load(
    session: BareSession, one_warden: shell.Warden, tmp_path: Path, device: Device, disk: Disk, words: str,
    *, beside: bool,
) -> None:  # fmt: skip
    machine = Machine(system="bare", emulator=qemu_beside() if beside else None)
    stack, writes = replace(BARE, machine=machine, device=device, disk=disk, during="snapshot"), words == WRITES
    with Scratch(tmp_path, span_bytes=SPAN, say=lambda _: None) as scratch:
        image, overlay = scratch.image_for(disk, one_warden), scratch.overlay_for(disk, IMAGE)
        before = hashlib.sha256(image.read_bytes()).digest()
        with session.up(stack, replace(ground(image, writes=writes), copy=overlay)) as bench:
            loaded = load(bench, words, seconds=4)  # a snapshot takes 0.7 s; a host may stand still for a second
            seen = found(loaded.checks)
            (check,) = (one for one in loaded.checks if one.setting == "disk.during")
            assert (seen["disk.during"], seen["disk.aio"]) == ("snapshot", disk.aio), check
            taken, merged, *_ = (int(word) for word in check.proof.split() if word.isdigit())
            assert min(taken, merged) >= 1, check.proof
            assert nothing_of_it_is_left(bench)
            opened = bench.vm.monitor.execute("query-block")
            assert str(overlay) not in str(opened)
            assert str(image) in str(opened)
        assert (hashlib.sha256(image.read_bytes()).digest() != before) == writes, "what was written is merged"
        subprocess.run(["qemu-img", "check", "-f", disk.format, image], check=disk.format == "qcow2")
        said = json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", image]))
        below = [path.name for path in chain_of(disk, image)]
        assert said.get("backing-filename") == next(iter(below), None), "it stands on what it stood on, or on nothing"
    assert not overlay.exists(), "it is made for one run only"


def test_a_job_below_a_limit_and_beside_writes_in_an_iothread(session: BareSession, image: Path, copy: Path) -> None:
    """What a backup reads does not count against the guest's limit; a mirror also copies what is written."""
    limited = replace(BARE, disk=Disk(throttle_iops=200), during="backup")
    with session.up(limited, replace(ground(image), copy=copy)) as bench:
        (check,) = (one for one in load(bench).checks if one.setting == "disk.during")
        assert check.found == "backup"
    thread = replace(BARE, device=Device(iothread="io1"), disk=Disk(aio="native"), during="mirror")
    with session.up(thread, replace(ground(image, writes=True), copy=copy)) as bench:
        seen = found(load(bench, "randwrite-4k").checks)
        assert (seen["disk.during"], seen["disk.aio"]) == ("mirror", "native")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount what becomes full")
def test_a_copy_that_finds_no_room_fails_the_load_with_its_reason(
    session: BareSession, image: Path, copy: Path, tmp_path: Path
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={8 * MIB}", "small", str(tmp_path)], check=True)
    try:
        full = tmp_path / "full.raw"
        full.touch()
        os.truncate(full, SPAN)
        stack = replace(BARE, disk=Disk(cache="writeback"), during="backup")
        with (
            pytest.raises(LoadError, match="the backup of the disk failed: No space left on device") as failed,
            session.up(stack, replace(ground(image), copy=full)) as bench,
        ):
            load(bench)
        assert failed.value.hint == f"it wrote to {full}"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    with session.up(replace(BARE, during="backup"), replace(ground(image), copy=copy)) as bench:
        assert found(load(bench).checks)["disk.during"] == "backup", "the next one is not disturbed by it"


@pytest.mark.parametrize("beside", [False, True], ids=["installed", "beside"])
@pytest.mark.parametrize(
    ("bus", "disk"),
    [("virtio-blk", Disk(throttle_iops=500)), ("virtio-scsi", Disk(format="qcow2"))],
    ids=["blk-raw-limited", "scsi-qcow2"],
)
def test_a_guest_discards_behind_the_loaded_blocks_alone(
    rig: GuestSession, one_warden: shell.Warden, scratch_directory: Path, bus: Bus, disk: Disk, *, beside: bool
) -> None:
    machine = Machine(emulator=qemu_beside() if beside else None)
    stack = replace(GUEST, machine=machine, device=Device(bus=bus), disk=replace(disk, discard="unmap"))
    with Scratch(scratch_directory, span_bytes=SPAN, say=lambda _: None) as scratch:
        image, raw = scratch.image_for(disk, one_warden), scratch.image_for(Disk(), one_warden)
        whole, inode = hashlib.sha256(raw.read_bytes()).digest(), image.stat().st_ino
        with rig.up(replace(stack, during="discard"), ground(image)) as bench:
            loaded = fio(bench, seconds=2)
            (check,) = (one for one in loaded.checks if one.setting == "disk.during")
            assert (found(loaded.checks)["disk.during"], "discards of" in check.proof) == ("discard", True), check
            (job,) = json.loads(loaded.output)["jobs"]
            assert (job["read"]["total_ios"] > 0, job["write"]["total_ios"], job["trim"]["total_ios"]) == (True, 0, 0)
            sectors = bench.vm.guest.run(
                ["cat", f"/sys/block/{Path(bench.seen['device']).name}/size"], timeout_seconds=20
            )
            assert int(sectors.stdout) * 512 == SPAN, "the zone is gone"
        subprocess.run(["qemu-img", "compare", "-f", disk.format, "-F", "raw", image, raw], check=True)
        assert hashlib.sha256(raw.read_bytes()).digest() == whole
        with rig.up(replace(stack, during="none"), ground(image)) as bench:
            assert "disk.during" not in found(fio(bench, seconds=0.3).checks)
            assert bench.changeover is not None
            assert bench.changeover.swapped is not None, "the machine goes on"
        assert scratch.image_for(disk, one_warden).stat().st_ino == inode, "it need not be made anew"


@pytest.mark.parametrize("beside", [False, True], ids=["installed", "beside"])
def test_a_vm_is_migrated_beside_its_load_and_goes_on(rig: GuestSession, image: Path, *, beside: bool) -> None:
    stack = replace(GUEST, machine=Machine(emulator=qemu_beside() if beside else None))
    for _ in range(2):  # its memory is filled once
        with rig.up(replace(stack, during="migration"), ground(image)) as bench:
            loaded = fio(bench, seconds=4)
            (check,) = (one for one in loaded.checks if one.setting == "disk.during")
            assert found(loaded.checks)["disk.during"] == "migration", check
            assert " 0 syncs" not in check.proof, check
            assert bench.vm.monitor.execute("query-migrate")["status"] == "cancelled"
            assert bench.vm.monitor.execute("query-status")["running"]
    with rig.up(stack, ground(image)) as bench:
        assert "disk.during" not in found(fio(bench, seconds=0.3).checks)
        assert bench.changeover is not None
        assert bench.changeover.swapped is not None, "the machine goes on"


def test_a_guest_whose_memory_cannot_be_filled_is_not_migrated(rig: GuestSession, image: Path) -> None:
    with rig.up(replace(GUEST, during="migration"), ground(image)) as bench:
        run = partial(bench.vm.guest.run, timeout_seconds=60)
        taken = "mkdir /taken && mount -t tmpfs -o size=100% taken /taken && fallocate -l 240M /taken/half"
        assert run(["sh", "-c", taken]).status == 0
        try:
            with pytest.raises(LoadError, match="free to be filled, and a migration of zeros"):
                fio(bench, seconds=1)
        finally:
            assert run(["umount", "/taken"]).status == 0


def test_what_cannot_be_beside_a_load_is_refused_beforehand() -> None:
    backup, linux = Stack(rig="qemu", during="backup"), Stack(rig="qemu", machine=Machine(system="linux"))
    discard, migration = (
        replace(linux, during="discard", disk=Disk(discard="unmap")),
        replace(linux, during="migration"),
    )
    assert contradictions(backup) == contradictions(discard) == contradictions(migration) == ()
    bare, nvme = Machine(system="bare"), Device(bus="nvme")
    for wrong, why in (
        (replace(discard, disk=Disk()), "needs disk.discard=unmap"),
        (replace(discard, device=nvme), "no guest sees that"),
        (replace(discard, machine=bare), "programs in a test guest"),
        (replace(migration, machine=bare), "programs in a test guest"),
        (replace(migration, device=nvme), "migrates no VM with"),
        (replace(Stack(rig="libvirt", domain="web1"), during="migration"), "programs in a test guest"),
        (replace(migration, guests=2), "one disk of one guest"),
        (replace(backup, disks=2), "one disk of one guest"),
        (replace(backup, idle_guests=1), "one disk of one guest"),
        (replace(backup, disk=Disk(backend="null-co")), "needs an image"),
        (replace(backup, during="mirror", disk=Disk(throttle_iops=9)), "with a limit is the limit"),
        (replace(backup, during="snapshot", disk=Disk(throttle_iops=9)), "merges a snapshot into only"),
        (replace(backup, rig="storage-daemon"), "belongs to rig=qemu"),
    ):
        assert any(why in one for one in contradictions(wrong)), why


QEMU = ("--rig", "qemu", "--ramp", "0.2")
SHORT = (*QEMU, "--set", "guest.system=bare")


@pytest.mark.once
def test_none_and_a_backup_are_compared_and_each_is_what_was_asked_for(user: User) -> None:
    # 4 s: a busy host may stand still for one, and what was not copied under load was not beside it
    words = ("--vary", "disk.during=none,backup", "--rounds", "1", "--seconds", "4", "--json")
    done = user.run("compare", *SHORT, *words, timeout=170).json()
    seen = [{check["setting"]: check["found"] for check in arm["in_force"]} for arm in done["arms"]]
    assert [one.get("disk.during") for one in seen] == [None, "backup"], done["arms"][1]
    assert [arm["stack"]["during"] for arm in done["arms"]] == ["none", "backup"]
    assert all(trial["measurement"]["values"]["iops"] > 0 for arm in done["arms"] for trial in arm["rounds"])
    disk = user.scratch / "other.raw"
    disk.write_bytes(bytes(MIB))
    target = ("--target", str(disk), "--set", "disk.during=backup", "--rounds", "1")
    said = user.run("compare", "measure", *SHORT, *target, status=3).stderr
    assert "disk.during copies a scratch image to another of its size, or lets it grow" in said
    disk.unlink()


@pytest.mark.once
@pytest.mark.parametrize("kind", ["mirror", "snapshot", "discard", "migration"])
def test_a_run_that_is_killed_leaves_neither_a_job_nor_its_image_after_clean(kind: During, tmp_path: Path) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    user = User(tmp_path, place, once=True)
    words = ("--set", f"disk.during={kind}", "--rounds", "1", "--seconds", "60", "-q")
    system = ("--set", "disk.discard=unmap") if kind in IN_LINUX else ("--set", "guest.system=bare")
    others = set(marked_processes())  # the machine of this module
    process = user.start("compare", "measure", *QEMU, *system, *words)

    def at_work() -> bool:
        if kind == "discard":
            return any(one.stat().st_size > SPAN for one in place.glob("*.raw"))
        program = "cat" if kind == "migration" else "qemu-system"
        return any(line.split()[1].startswith(program) for line in {*marked_processes()} - others)

    assert eventually(at_work, seconds=100)
    assert kind in IN_LINUX or list(place.glob(f"virtune-*-disk{IMAGE + 1}*"))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=90)
    assert eventually(lambda: {*marked_processes()} <= others, seconds=100)
    user.run("host", "clean", "--images", "--scratch", str(place))
    assert not list(place.iterdir())
