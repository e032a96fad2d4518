# SPDX-License-Identifier: Apache-2.0
"""A guest without an operating system must reproduce numbers we know, and say why where its disk does not answer.

It runs on KVM where that runs it and under TCG elsewhere: none of these numbers depends on which.
"""

import json
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bench.loading import Kept, raw_job
from tests.conftest import bare_guest

from virtune.analyse.trial.derive import derive
from virtune.bench.guest.agent import GuestError
from virtune.bench.port import DiskImageSpec, LoadJob, LoadOutput, Window
from virtune.bench.qemu.load import least_seconds, miscounted, wrong_clock
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import BareSession
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.errors import LoadError
from virtune.model.stack import Device, Disk, Machine, Stack
from virtune.shell import Warden

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("bare")]

SIZE = 16 * 1024**2
BARE = Stack(rig="qemu", machine=Machine(system="bare"))
NULL = replace(BARE, disk=Disk(backend="null-co"))
TCG = Accelerator(kvm=False, why="this test runs anywhere", tried=False)


@pytest.fixture(scope="module")
def guests() -> Iterator[BareSession]:
    """One machine: only what needs another starts another."""
    with Warden("truth-bare") as warden:
        found = BareSession(bare_guest(), warden)
        yield found
        found.give_up()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(bytes(SIZE))
    return path


def load(
    guests: BareSession, stack: Stack, words: str, *, image: Path | None = None, seconds: float = 1.0
) -> tuple[LoadOutput, dict[str, Any], Kept]:
    """Run a job in the guest; returns what it left, its one job, and what was kept."""
    writes = "rw=randread" not in words
    text = f"[load]\nioengine={stack.device.bus}\nfilename=disk0\nbs=4k\nhipri=1\n{words}\n"
    text += "" if "number_ios" in words else f"runtime={round(seconds * 1000)}ms\ntime_based=1\n"
    kept = Kept()
    with guests.up(stack, DiskImageSpec(image=image, size_bytes=SIZE, writes=writes)) as bench:
        job = raw_job(text, engine="virtio-blk", program="virtune-load")
        output = bench.run([job], Window(seconds=seconds, ramp_seconds=0.0), kept)
    (found,) = json.loads(output.output)["jobs"]
    return output, found, kept


def test_a_disk_of_two_milliseconds_takes_two(guests: BareSession) -> None:
    slow = replace(NULL, disk=Disk(backend="null-co", null_latency_ns=2_000_000))
    output, job, kept = load(guests, slow, "rw=randread")
    latency = job["read"]["lat_ns"]
    assert 2_000_000 <= latency["min"] < 4_000_000, "on a busy host most take longer, the luckiest does not"
    assert job["read"]["iops"] * latency["mean"] / 1e9 == pytest.approx(1, abs=0.05), "Little's law"
    assert json.loads(kept.captures["guest-counts.json"])["completed"]["reads"] == job["read"]["total_ios"]
    # what it ran on is said beside its figures
    for said, remark in (
        (b"tcg: there is no /dev/kvm\n", "functional-only"),
        (b"kvm: a guest came up (KVM without hardware virtualization)\n", "kvm-without-hardware"),
        (b"kvm: a guest came up (KVM with hardware virtualization)\n", None),
    ):
        parts = {"fio.json": output.output, "accelerator.txt": said}
        remarks = {one.id for one in derive(parts, stack=slow, workload=parse_workload("randread-4k")[0]).remarks}
        assert {"functional-only", "kvm-without-hardware"} & remarks == ({remark} if remark else set())


@pytest.mark.first
def test_a_throttle_of_500_gives_500_and_its_bucket() -> None:
    limited = replace(NULL, disk=Disk(backend="null-co", throttle_iops=500))
    with Warden("truth-bare-500") as warden:
        guests = BareSession(bare_guest(), warden)  # its own, which goes before others on the CPUs as this test does
        _, job, _ = load(guests, limited, "rw=randread\niodepth=8", seconds=2.0)
        guests.give_up()
    # 500 a second, and at most the bucket of a tenth of a second's worth (50) spread over the 2 s: a busy host that
    # takes the CPU away from the guest takes some of that
    assert 490 <= job["read"]["iops"] <= 530


def test_every_write_lies_where_it_was_sent(guests: BareSession, image: Path) -> None:
    # what a write holds without refill_buffers begins with its own place, in every sector
    each = "write_lat_log=operations\nlog_avg_msec=0\nlog_offset=1"
    words = f"rw=randwrite\niodepth=4\nnumber_ios=997\nfsync=100\n{each}"
    output, job, kept = load(guests, BARE, words, image=image)
    assert read_result(output.output.decode()).loads[0].direct is None, "nothing of it is a page cache's"
    assert (job["write"]["total_ios"], job["sync"]["total_ios"]) == (997, 9)
    assert json.loads(kept.captures["guest-counts.json"])["completed"]["flushes"] == 9
    content = image.read_bytes()
    written = 0
    for place in range(0, SIZE, 512):
        (said,) = struct.unpack_from("<Q", content, place)
        if content[place : place + 512] != bytes(512):
            written += 1
            # the contents of a block carry the place of the block
            assert said == place - place % 4096, f"sector {place} was written for {said}"
    lines = [list(map(int, line.split(b", "))) for line in output.operations[0].splitlines()]
    assert (len(lines), {(line[2], line[3]) for line in lines}) == (997, {(1, 4096)})
    assert {line[4] for line in lines} == {
        place for place in range(0, SIZE, 4096) if any(content[place : place + 4096])
    }
    assert sum(line[1] for line in lines) / 997 == pytest.approx(job["write"]["lat_ns"]["mean"])
    assert written == 8 * len({line[4] for line in lines})


def test_what_was_written_is_read_back_over_several_queues_in_an_iothread(guests: BareSession, image: Path) -> None:
    several = replace(BARE, device=Device(iothread="io1", num_queues=2), disk=Disk(aio="native"))
    output, job, kept = load(
        guests, several, "rw=randrw\nnumjobs=2\ngroup_reporting=1\niodepth=2\nnumber_ios=211", image=image
    )
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == 2 * 211
    assert json.loads(output.output)["virtune-load"]["queues"] == 2
    assert json.loads(kept.captures["guest-counts.json"])["vcpus"] == 1, "which drives both"


def test_each_vcpu_drives_a_queue_of_its_own(guests: BareSession, image: Path) -> None:
    machine = Machine(system="bare", vcpus=3)
    several = replace(BARE, machine=machine, device=Device(iothread="io1", num_queues=3))
    # five clones: queue and vCPU n have clones n and n + 3; counts equal QEMU's, or the load fails
    words = "rw=randrw\nnumjobs=5\ngroup_reporting=1\niodepth=2\nnumber_ios=101"
    output, job, kept = load(guests, several, words, image=image)
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == 5 * 101
    assert json.loads(output.output)["virtune-load"]["queues"] == 3
    assert json.loads(kept.captures["guest-counts.json"])["vcpus"] == 3
    slow = replace(several, disk=Disk(backend="null-co", null_latency_ns=20_000_000))
    # the longer, the less of it lies before the last one's first I/O and after the first one's last
    output, job, _ = load(guests, slow, "rw=randread\nnumjobs=3\ngroup_reporting=1", seconds=3.0)
    latency = job["read"]["lat_ns"]
    assert 20_000_000 <= latency["min"] < 40_000_000
    assert job["read"]["iops"] * latency["mean"] / 1e9 == pytest.approx(3, abs=0.2), "Little's law: three in flight"
    with guests.up(several, DiskImageSpec(image=image, size_bytes=SIZE, writes=True)) as bench:
        seen = {check.setting: check.found for check in bench.in_force.checks}
    assert (seen["machine.vcpus"], seen["guest.vcpus"]) == ("3", "3"), "and each of them answers"


DISKS = {
    "microvm": (Machine(system="bare", type="microvm"), Device(num_queues=2)),
    "virtio-scsi": (Machine(system="bare"), Device(bus="virtio-scsi", iothread="io1", scsi_num_queues=2)),
    "nvme": (Machine(system="bare"), Device(bus="nvme", max_ioqpairs=2)),
    "pc": (Machine(system="bare", type="pc"), Device(num_queues=2)),
}
"""Disks beside virtio-blk on q35, with two queues each."""


@pytest.mark.parametrize("kind", ["microvm", "virtio-scsi", "nvme"])
def test_every_other_disk_has_its_latency_and_its_writes_where_they_were_sent(
    guests: BareSession, image: Path, kind: str
) -> None:
    machine, device = DISKS[kind]
    stack = replace(BARE, machine=machine, device=device)
    slow = replace(stack, disk=Disk(backend="null-co", null_latency_ns=2_000_000))
    _, job, _ = load(guests, slow, "rw=randread", seconds=0.5)
    latency = job["read"]["lat_ns"]
    assert 2_000_000 <= latency["min"] < 4_000_000
    assert job["read"]["iops"] * latency["mean"] / 1e9 == pytest.approx(1, abs=0.05), "Little's law"
    # one, two and sixteen pages: an NVMe disk is told of each in a way of its own
    for block in (4096, 8192, 65536):
        image.write_bytes(bytes(SIZE))
        words = f"rw=randwrite\nbs={block}\nnumjobs=2\ngroup_reporting=1\niodepth=2\nnumber_ios=53\nfsync=10"
        output, job, kept = load(guests, stack, words, image=image)
        assert (job["write"]["total_ios"], job["sync"]["total_ios"]) == (106, 10)
        assert json.loads(output.output)["virtune-load"]["queues"] == 2
        assert json.loads(kept.captures["guest-counts.json"])["completed"]["flushes"] == 10
        content = image.read_bytes()
        places = [place for place in range(0, SIZE, 512) if content[place : place + 512] != bytes(512)]
        assert 0 < len(places) <= 106 * block // 512
        for place in places:
            (said,) = struct.unpack_from("<Q", content, place)
            assert said == place - place % block, f"sector {place} was written for {said}"
    _, job, _ = load(guests, stack, "rw=randrw\nnumjobs=2\ngroup_reporting=1\nnumber_ios=101", image=image)
    assert job["read"]["total_ios"] + job["write"]["total_ios"] == 202


def load_several(
    guests: BareSession, stack: Stack, images: tuple[Path | None, ...], words: str, *, seconds: float = 1.0
) -> tuple[LoadOutput, list[dict[str, Any]], Kept]:
    """Divide a workload among the disks of the guest; returns what it left, the job of each disk, what was kept."""
    (workload,) = parse_workload(words)
    spec = DiskImageSpec(image=images[0], size_bytes=SIZE, writes=workload.writes, further=images[1:])
    kept, clients = Kept(), Clients(engines=frozenset(), installed=True)
    with guests.up(stack, spec) as bench:
        seen = {check.setting: check.found for check in bench.in_force.checks}
        job = fio_job(workload, bench.target, seconds=seconds, ramp_seconds=0, seed=7, clients=clients)
        load = LoadJob(job=job, workload=workload, program="virtune-load")
        output = bench.run([load], Window(seconds=seconds, ramp_seconds=0.0), kept)
    assert seen["disks.count"] == str(stack.disks)
    assert seen.get("disks.second") == stack.second
    return output, json.loads(output.output)["jobs"], kept


@pytest.mark.parametrize(("machine", "second"), [("q35", "bus=nvme"), ("pc", "bus=virtio-scsi"), ("microvm", None)])
def test_each_of_several_disks_gets_what_was_sent_to_it(
    guests: BareSession, image: Path, tmp_path: Path, machine: str, second: str | None
) -> None:
    images = (image, *(Path(shutil.copy(image, tmp_path / f"image{number}")) for number in (2, 3)))
    threads = machine != "microvm"  # which has them under KVM only
    stack = replace(BARE, machine=Machine(system="bare", type=machine, vcpus=2), disks=3, second=second)
    device = Device(iothread="io1") if threads else Device(num_queues=2)
    stack = replace(stack, device=device, own_iothreads=threads)
    output, jobs, kept = load_several(guests, stack, images, "rw=randwrite,bs=4k,iodepth=2,numjobs=6,number_ios=53")
    counts = json.loads(kept.captures["guest-counts.json"])
    assert counts["vcpus"] == 2, "which drive a queue of each disk"
    assert json.loads(output.output)["virtune-load"]["queues"] == 6
    lines = [line.split(b", ") for line in output.operations[0].splitlines()]
    for number, (path, job) in enumerate(zip(images, jobs, strict=True)):
        assert job["job options"]["filename"] == f"disk{number}"
        assert job["write"]["total_ios"] == counts["disks"][f"disk{number}"]["writes"] == 106
        content = path.read_bytes()
        written = {place for place in range(0, SIZE, 4096) if any(content[place : place + 4096])}
        assert written == {int(line[4]) for line in lines[106 * number : 106 * (number + 1)]}


def test_a_disk_with_a_limit_has_it_and_the_disks_beside_it_have_as_much_as_each_other(guests: BareSession) -> None:
    stack = replace(NULL, disks=3, second="throttle_iops=500")
    _, jobs, kept = load_several(guests, stack, (None,) * 3, "rw=randread,bs=4k,iodepth=8,numjobs=3")
    first, limited, third = (job["read"]["iops"] for job in jobs)
    assert 100 <= limited <= 560, "the bucket of a tenth of a second included, and what a busy host takes"
    assert 0.3 < first / third < 3, "one vCPU looks at all of them in turn"
    assert json.loads(kept.captures["guest-counts.json"])["vcpus"] == 1


@pytest.mark.parametrize("kind", sorted(DISKS))
def test_interrupts_tell_of_completions_as_polling_does(image: Path, kind: str) -> None:
    with Warden("truth-bare-tcg") as warden:
        guests = BareSession(bare_guest(), warden, known=TCG)
        machine, device = DISKS[kind]
        stack = replace(BARE, machine=replace(machine, vcpus=2), device=device)
        words = "rw=randread\nhipri=0\niodepth=4\nnumber_ios=503\nnumjobs=2\ngroup_reporting=1"
        _, job, kept = load(guests, stack, words, image=image)
        guests.give_up()
    assert job["read"]["total_ios"] == 2 * 503
    assert json.loads(kept.captures["guest-counts.json"])["vcpus"] == 2


def test_interrupts_of_several_disks_reach_the_cpus_that_wait_for_them() -> None:
    with Warden("truth-bare-tcg") as warden:
        guests = BareSession(bare_guest(), warden, known=TCG)
        stack = replace(NULL, machine=Machine(system="bare", vcpus=2), disks=3, second="bus=nvme")
        words = "rw=randread,bs=4k,iodepth=4,numjobs=3,hipri=0,number_ios=503"
        _, jobs, kept = load_several(guests, stack, (None,) * 3, words)
        guests.give_up()
    assert [job["read"]["total_ios"] for job in jobs] == [503] * 3
    assert json.loads(kept.captures["guest-counts.json"])["vcpus"] == 2


def test_where_kvm_lets_no_guest_wait_for_interrupts_that_is_said() -> None:
    hint = ""
    with Warden("truth-bare-halt") as warden:
        guests = BareSession(bare_guest(), warden)
        accelerator = guests.accelerator_for(None)
        try:
            _, job, _ = load(guests, NULL, "rw=randread\nhipri=0\nnumber_ios=5")
            assert job["read"]["total_ios"] == 5
        except LoadError as error:
            hint = error.hint or "no reason"
        finally:
            guests.give_up()
    assert not accelerator.kvm or " to QEMU took " in accelerator.why
    refuses = hint.startswith("on this KVM a bare guest cannot wait for interrupts: use hipri=1, which polls")
    assert refuses == bool(hint), hint
    assert not refuses or "KVM without hardware" in accelerator.why


def test_a_disk_that_completes_nothing_for_longer_than_it_may_ends_the_load_with_words(guests: BareSession) -> None:
    slow = replace(NULL, disk=Disk(backend="null-co", throttle_iops=1))
    text = b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nruntime=9\ntime_based\nhipri=1\niodepth=3\n"
    said: dict[str, bytes] = {}
    with (
        pytest.raises(LoadError, match="stuck"),
        guests.up(slow, DiskImageSpec(image=None, size_bytes=SIZE, writes=False)) as bench,
    ):
        bench.vm.line.ask("job", text, expect="armed", timeout_seconds=120)
        bench.vm.line.ask("go", b"400 0", expect="began", timeout_seconds=120)
        begun = time.monotonic()
        while "result" not in said:
            frame = bench.vm.line.receive(9)
            assert frame is not None
            said[frame.kind] = frame.body
        assert time.monotonic() - begun < 5
        raise LoadError("stuck")  # as the rig does, so that the machine ends: its disk would not come off for seconds
    own = json.loads(said["result"])["virtune-load"]
    assert (own["ended_by"], own["message"]) == ("error", "the disk completed nothing for 0.4 s: it is stuck")
    assert {one["kind"] for one in own["in_flight"]} == {"read"}


def test_a_disk_that_cannot_be_read_fails_the_load_and_leaves_what_was_in_flight(guests: BareSession) -> None:
    image = {"driver": "null-co", "size": SIZE, "read-zeroes": False}
    error = {"event": "none", "iotype": "read", "errno": 5}
    bad = {"driver": "blkdebug", "node-name": "bad", "image": image, "inject-error": [error]}
    job = raw_job(
        "[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nhipri=1\niodepth=3\nnumber_ios=9\n",
        engine="virtio-blk", program="virtune-load",
    )  # fmt: skip
    kept = Kept()
    with (
        pytest.raises(
            LoadError, match=r"the load in the guest failed: a read of 4096 bytes at \d+ failed: Input/output error"
        ),
        guests.up(NULL, DiskImageSpec(image=None, size_bytes=SIZE, writes=False)) as bench,
    ):
        bench.vm.monitor.execute("blockdev-add", bad)
        place = {"path": "/machine/peripheral/disk0", "property": "drive", "value": "bad"}
        bench.vm.monitor.execute("qom-set", place)
        bench.run([job], Window(seconds=1.0, ramp_seconds=0.0), kept)
    own = json.loads(kept.captures["guest-failure.json"])["virtune-load"]
    assert own["ended_by"] == "error"
    assert {"accelerator.txt", "trouble.txt", "guest-counts.json"} <= kept.captures.keys()


def test_a_job_that_cannot_be_is_refused_and_the_guest_goes_on(guests: BareSession) -> None:
    with guests.up(NULL, DiskImageSpec(image=None, size_bytes=SIZE, writes=False)) as bench:
        line = bench.vm.line
        for text, words in (
            (b"[a]\nioengine=virtio-blk\nfilename=disk0\nrw=sideways\n", "rw: `sideways` is not one of"),
            (b"[a]\nioengine=io_uring\nfilename=disk0\n", "a job on disk0 needs ioengine=virtio-blk"),
            (b"[a]\nioengine=virtio-blk\nfilename=disk1\n", "the guest has no disk `disk1`: it has disk0"),
            (b"[a]\nioengine=virtio-blk\nfilename=disk0\nsize=1g\n", "reach beyond the end of the disk"),
            (b"\xff\xfe", "not text"),
        ):
            with pytest.raises(GuestError, match=words):
                line.ask("job", text, expect="armed", timeout_seconds=120)
        assert json.loads(line.ask("look", b"disk0", expect="seen", timeout_seconds=120))["sectors"] == SIZE // 512


def test_how_long_a_guest_ran_is_known_but_for_the_time_that_its_word_was_on_its_way() -> None:
    quiet = [(5.0, 0), (5.2, 0), (5.4, 0), (5.6, 0), (5.65, 0)]
    assert least_seconds(quiet) == pytest.approx(0.5)
    # its word of the end came 0.3 s late, for which time QEMU waited for a CPU, as it turned out at the end
    late = [*quiet[:-1], (5.8, 0), (5.9, 300_000_000)]
    assert least_seconds(late) == pytest.approx(0.4)
    # a wait long before the end takes nothing away
    early = [(5.0, 0), (5.2, 9_000_000_000), *((at, 9_000_000_000) for at, _ in quiet[2:])]
    assert least_seconds(early) == pytest.approx(0.5)
    assert least_seconds([(5.0, 0), (5.05, 0)]) == 0.0


def test_a_clock_that_is_wrong_is_not_trusted_nor_are_counts() -> None:
    assert wrong_clock(1.0, least=0.95, most=1.02) is None
    assert "cannot be trusted: it counted 1.030 s" in str(wrong_clock(1.03, least=0.95, most=1.02))
    assert "cannot be trusted" in str(wrong_clock(0.9, least=0.95, most=1.02))
    counted = {"reads": 5, "writes": 0, "read_bytes": 20480, "written_bytes": 0}
    before, after = {"rd_operations": 7, "rd_bytes": 1}, {"rd_operations": 12, "rd_bytes": 20481}
    assert miscounted(counted, before, after) is None
    assert miscounted({**counted, "reads": 6}, before, after) == "the guest counted 6 reads, and QEMU 5"
