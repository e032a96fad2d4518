# SPDX-License-Identifier: Apache-2.0
"""A live disk from what QEMU and the host counted: its layers, its limit, its load as a workload."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.analyse.edited_trials import HEADER, sample

from virtune.analyse.layers.bottleneck import judge
from virtune.analyse.layers.path import device_counts_others, live_path, live_paths
from virtune.analyse.trial.counters import read_counters
from virtune.analyse.trial.usage import use
from virtune.bench.live.domain import counts_of, exits_in, require_counts
from virtune.bench.live.monitor import is_medium, is_unplugged, named
from virtune.bench.live.rings import RingSeen, add, wait
from virtune.fio.workloads import parse_workload, rate_words, sequential_share, workload_words
from virtune.model.bottleneck import Cause, DataPath
from virtune.model.counters import UNSEEN, Use
from virtune.model.errors import PreconditionError
from virtune.model.live import (
    DiskCount,
    DiskRates,
    LiveDisk,
    LiveVm,
    Move,
    RingRates,
    rates_between,
    ring_rates_between,
)

FIELDS = (
    "reads", "writes", "flushes", "read_bytes", "written_bytes", "read_ns", "write_ns", "flush_ns",
)  # fmt: skip

STATS = """Domain: 'sql1'
  block.count=2
  block.0.name=vda
  block.0.path=/images/sql1.raw
  block.0.rd.reqs={reads}
  block.0.rd.bytes={read_bytes}
  block.0.rd.times={read_ns}
  block.0.wr.reqs=200
  block.0.wr.bytes=819200
  block.0.wr.times=1000
  block.0.fl.reqs=4
  block.0.fl.times=9
  block.1.name=sda
"""


def counted(second: int) -> DiskCount:
    said = STATS.format(reads=10_000 * second, read_bytes=40_960_000 * second, read_ns=10_000 * 400_000 * second)
    found = counts_of(said, second * 10**9)
    assert list(found) == ["vda"], "a disk without counters is left out"
    return found["vda"]


def rates(**changed: int) -> DiskRates:
    values = {"reads": 700, "writes": 300, "flushes": 0, "read_bytes": 700 * 8192, "written_bytes": 300 * 8192}
    return DiskRates(seconds=1.0, **({"read_ns": 4_200_000_000, "write_ns": 0} | values | changed))


def host() -> Use:
    lines = [HEADER, sample(1, "begin"), sample(3, "stop")]
    for one in lines[1:]:
        second = one["t"] // 10**9
        reads, busy = 10_000 * second, 1_000 * second
        one["diskstats"] = [f"254 0 vda {reads} 0 {8 * reads} {3_000 * second} 0 0 0 0 4 {busy} 9"]
        one["threads"] = {"guest": {
            "7": ["qemu-system-x86", 0, 0, second * 10**8, 0], "8": ["IO iothread1", 0, 0, second * 10**8, 0],
            "9": ["IO iothread2", 0, 0, second * 10**9, 0],
        }}  # fmt: skip
        one["processes"] = {"guest": one["processes"]["load"]}
    counters = read_counters(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return use(counters, begin_ns=10**9, end_ns=3 * 10**9)


def test_a_qemu_that_gives_no_counters_is_no_vm_without_disks() -> None:
    vm = LiveVm(name="sql1", pid=7, disks=TWO[:1], uri="qemu:///system")
    with pytest.raises(PreconditionError, match="the QEMU of sql1 does not answer libvirt") as refused:
        require_counts(vm, counts_of("Domain: 'sql1'\n", 1))
    assert "`virsh -c qemu:///system domjobinfo sql1`" in (refused.value.hint or "")
    require_counts(vm, {"vda": counted(1)})
    require_counts(replace(vm, disks=()), {})


def test_what_libvirt_counts_is_the_layers_of_a_live_disk() -> None:
    disk = LiveDisk(target="vda", path="/images/sql1.raw", threads=("IO iothread1",), devices=("vda",))
    between = rates_between(counted(1), counted(3))
    assert (between.reads, between.writes, between.seconds) == (20_000, 0, 2.0)
    path = live_path(disk, between, host(), rings=(), all_read=0)
    assert path.layers is not None
    assert [(one.boundary, round(one.mean_ns)) for one in path.layers.layers] == [
        ("backend", 100_000), ("device", 300_000),
    ]  # fmt: skip
    assert path.layers.davg_ns == pytest.approx(300e3)
    assert path.layers.top == "backend"
    assert {one.name for one in path.threads} == {"qemu-system-x86", "IO iothread1"}, "the other disk's is left out"
    assert judge(path).cause is Cause.DEVICE


TWO = (
    LiveDisk(target="vda", path="/images/sql1.raw", threads=("IO iothread1",), devices=("vda",), direct=True),
    LiveDisk(target="vdb", path=None, threads=("IO iothread1",)),
)


def two_disks(first: LiveDisk, *, read_bytes: int) -> tuple[DataPath, DataPath]:
    """What a disk of this host and one of the network did, whose VM read so many bytes from devices."""
    before, after = (
        {"vda": counted(second), "vdb": replace(counted(second), reads=1_000 * second)} for second in (1, 3)
    )
    used = host()
    used = replace(used, roles=tuple(replace(one, read_bytes=read_bytes) for one in used.roles))
    vm = LiveVm(name="sql1", pid=7, disks=(first, TWO[1]))
    (_, _, one), (_, _, other) = live_paths(vm, vm.disks, (before, after), used, {})
    return one, other


def test_a_thread_that_serves_several_disks_has_the_ios_of_all_of_them() -> None:
    vda, vdb = two_disks(TWO[0], read_bytes=0)
    (thread,) = (one for one in vdb.threads if one.role == "iothread")
    assert (round(vda.iops), round(vdb.iops)) == (10_000, 1_000)
    assert vda.iops_of(thread) == vdb.iops_of(thread) == pytest.approx(11_000)
    (main,) = (one for one in vdb.threads if one.role == "main")
    assert vdb.iops_of(main) == 0, "it serves neither"
    told = "9.09 us of CPU for each I/O at this rate"
    assert any(told in line for line in judge(vda).evidence), "0.1 CPUs for 11,000"


@pytest.mark.parametrize("comm", ["qemu-system-x86", "kvm", "IO iothread-vir"])
def test_an_iothread_whose_name_is_too_long_for_the_kernel_has_the_name_that_qemu_tells(comm: str) -> None:
    """Proxmox VE calls them iothread-virtio0, iothread-virtio1: the kernel keeps the program's name, or cuts it."""
    names = {8: "IO iothread-virtio0", 9: "IO iothread-virtio1", 7: "not the main thread's"}
    seen = replace(
        (used := host()),
        roles=tuple(
            replace(role, threads=tuple(one if one.first else replace(one, comm=comm) for one in role.threads))
            for role in used.roles
        ),
    )
    disks = tuple(replace(one, threads=(f"IO iothread-virtio{place}",)) for place, one in enumerate(TWO))
    vm = LiveVm(name="101", pid=7, disks=disks, threads=names)
    counts = {"vda": counted(1), "vdb": counted(1)}, {"vda": counted(3), "vdb": counted(3)}
    found = live_paths(vm, disks, counts, seen, {})
    for (_, _, path), (mine, busy) in zip(found, ((8, 0.1), (9, 1.0)), strict=True):
        (thread,) = (one for one in path.threads if one.role == "iothread")
        assert (thread.tid, thread.name, round(thread.busy, 1)) == (mine, names[mine], busy)
        assert path.iops_of(thread) == pytest.approx(10_000), "of its own disk only"
        (main,) = (one for one in path.threads if one.role == "main")
        assert main.name == "qemu-system-x86"


def test_reads_past_the_page_cache_or_over_a_network_are_not_served_by_it() -> None:
    reads = 20_000 * 4096
    for read, direct, served in ((reads // 4, True, None), (reads * 2, True, 2.0), (reads // 4, False, 0.25)):
        vda, vdb = two_disks(replace(TWO[0], direct=direct), read_bytes=read)
        assert vda.served == served
        assert vdb.served is None, "no device of this host has what it reads"
        assert (judge(vda).cause is Cause.PAGE_CACHE) == (not direct)


def test_kvm_exits_are_those_of_all_vcpus_and_of_no_other_kind() -> None:
    said = (
        "Domain: 'vm0'\n  vcpu.0.state=1\n  vcpu.0.exits.sum=954\n  vcpu.0.halt_exits.sum=7\n  vcpu.1.exits.sum=46\n"
    )
    assert exits_in(said) == 1000
    assert exits_in("Domain: 'vm0'\n  vcpu.0.state=1\n  vcpu.0.halt_exits.sum=7\n") is None, "a guest without KVM"


def test_limits_of_the_disk_are_compared_with_what_it_did() -> None:
    between = rates_between(counted(1), counted(3))
    for limits, cause in (({"iops": 10_100.0}, Cause.THROTTLE), ({"read.bps": 41e6}, Cause.THROTTLE),
                          ({"write.iops": 5.0, "iops": 20_000.0}, Cause.DEVICE)):  # fmt: skip
        disk = LiveDisk(target="vda", path="/x", devices=("vda",), threads=("IO iothread1",), limits=limits)
        assert judge(live_path(disk, between, host(), rings=(), all_read=0)).cause is cause, limits


def test_limits_of_control_groups_are_compared_with_what_it_did() -> None:
    between = rates_between(counted(1), counted(3))
    disk = LiveDisk(
        target="vda", path="/x", devices=("vda",), threads=("IO iothread1",), group_limits={"read.bps": 41e6}
    )
    found = judge(live_path(disk, between, host(), rings=(), all_read=0))
    assert found.cause is Cause.THROTTLE
    assert "(control group, read.bps)" in found.evidence[0]
    assert "MB/s of the 41" in found.evidence[0]
    disk = LiveDisk(
        target="vda", path="/x", devices=("vda",), threads=("IO iothread1",), group_limits={"read.bps": 90e6}
    )
    assert judge(live_path(disk, between, host(), rings=(), all_read=0)).cause is Cause.DEVICE


def test_the_time_in_which_a_control_group_held_a_vm_back_is_that_of_all_its_cpus() -> None:
    between, disk = rates_between(counted(1), counted(3)), LiveDisk(target="vda", path="/x", devices=("vda",))
    for seconds, share in ((0.4, 0.2), (9.0, 4.5), (0.0, 0.0), (None, None)):
        used = replace(host(), roles=tuple(replace(one, held_back_seconds=seconds) for one in host().roles))
        assert live_path(disk, between, used, rings=(), all_read=0).throttled == share
    unseen = replace(host(), throttled_seconds=0.4, roles=())
    found = live_path(disk, between, unseen, rings=(), all_read=0)
    assert found.throttled is None, "they would be virtune's own groups"


@pytest.mark.parametrize(
    ("direct", "read", "served"),
    [(0, 80, 1.0), (0, 20, 0.25), (0, 0, 0.0), (40, 60, 0.5), (40, 80, 1.0), (40, 30, 0.0), (79.5, 80, None)],
)
def test_a_disk_without_direct_is_served_of_what_the_others_leave(
    direct: float, read: int, served: float | None
) -> None:
    """All disks read 80 MiB, of them `direct` MiB past the page cache, and devices gave the VM `read` MiB."""
    used = replace(host(), roles=tuple(replace(one, read_bytes=read * 2**20) for one in host().roles))
    disk, between = LiveDisk(target="vda", path="/x", devices=("vda",)), rates_between(counted(1), counted(3))
    path = live_path(disk, between, used, rings=(), all_read=80 * 2**20, direct_read=int(direct * 2**20))
    assert path.served == served


def test_one_request_has_its_layers() -> None:
    one = DiskRates(
        seconds=1.0, reads=1, writes=0, flushes=0, read_bytes=4096, written_bytes=0, read_ns=10**6, write_ns=0
    )
    path = live_path(LiveDisk(target="vda", path=None), one, UNSEEN, rings=(), all_read=0)
    assert path.layers is not None
    assert [round(layer.mean_ns) for layer in path.layers.layers] == [10**6]


def test_a_disk_that_has_hardly_anything_to_do_is_not_bound() -> None:
    quiet = DiskRates(
        seconds=10.0, reads=100, writes=0, flushes=0, read_bytes=1, written_bytes=0, read_ns=10**8, write_ns=0
    )
    path = live_path(LiveDisk(target="vda", path=None), quiet, UNSEEN, rings=(), all_read=0)
    assert judge(path).cause is Cause.NOT_BOUND
    nothing = DiskRates(
        seconds=10.0, reads=0, writes=0, flushes=0, read_bytes=0, written_bytes=0, read_ns=0, write_ns=0
    )
    assert judge(live_path(LiveDisk(target="vda", path=None), nothing, UNSEEN, rings=(), all_read=0)).cause is (
        Cause.UNDECIDED
    )


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (rates(), "rw=randrw,rwmixread=70,bs=8k,iodepth=4"),
        (rates(writes=0, written_bytes=0), "rw=randread,bs=8k,iodepth=4"),
        (rates(reads=0, read_bytes=0, flushes=300), "rw=randwrite,bs=8k,iodepth=4,fsync=1"),
        (rates(read_bytes=700 * 60_000), "rw=randrw,rwmixread=70,bs=64k,8k,iodepth=4"),
        (rates(reads=1, writes=999), "rw=randrw,rwmixread=1,bs=1024k,2k,iodepth=4"),
        (rates(reads=0, writes=0), ""),
    ],
)
def test_a_live_load_is_a_workload_that_compare_takes(seen: DiskRates, words: str) -> None:
    assert workload_words(seen) == words
    if words:
        (read,) = parse_workload(f"{words},{rate_words(seen)}")
        assert read.reads or read.writes


@pytest.mark.parametrize(
    ("near", "words"),
    [
        (1.0, "rw=rw,rwmixread=70,bs=8k,iodepth=4"),
        (0.0, "rw=randrw,rwmixread=70,bs=8k,iodepth=4"),
        (0.25, "rw=randrw,percentage_random=75,rwmixread=70,bs=8k,iodepth=4"),
    ],
)
def test_requests_that_follow_one_another_are_a_sequential_load(near: float, words: str) -> None:
    follows, jumps = Move(requests=1, sectors=16), Move(requests=1, sectors=-(10**6))
    moves = [follows] * round(80 * near) + [jumps] * round(80 * (1 - near))
    share = sequential_share(moves, rates())
    assert share == pytest.approx(near, abs=0.01)
    assert workload_words(rates(), share) == words
    assert parse_workload(words)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 0.98, 1.0])
@pytest.mark.parametrize("between", [1, 4, 30])
def test_the_share_is_one_of_requests_and_not_of_looks(share: float, between: int) -> None:
    """A look that comes 30 requests after another finds a jump between them for each thirtieth that jumps."""
    chance = random.Random(7)
    moves = []
    for _ in range(300):
        for count in {1: (1,), 4: (4,), 30: (30, 1) if chance.random() < 0.2 else (30,)}[between]:
            steps = [16 if chance.random() < share else chance.randrange(-(10**6), 10**6) for _ in range(count)]
            moves.append(Move(requests=count, sectors=sum(steps)))
    found = sequential_share(moves, rates())
    assert found == pytest.approx(share, abs=0.12), "the pairs of looks tell of those that hardly follow"
    alone = sequential_share([one for one in moves if one.requests == between], rates())
    assert alone is None or alone == pytest.approx(share, abs=0.2)
    assert (alone is None) == (between == 30 and share < 0.9), "where each look found a jump nothing is known"


def test_of_places_nothing_is_said_without_enough_to_say_it_of() -> None:
    follows = Move(requests=1, sectors=16)
    assert sequential_share([follows] * 29, rates()) is None
    assert sequential_share([Move(requests=1, sectors=0)] * 99, rates()) is None, "memory of zeros looks like that"
    assert sequential_share([follows] * 99, rates(reads=0, writes=0)) is None
    far = [Move(requests=1, sectors=16 * 3)] * 99
    assert sequential_share(far, rates()) == 0.0, "a request of 8 KiB ends before that"


def test_a_disk_that_is_only_read_is_watched_and_a_cd_rom_is_not() -> None:
    assert is_medium({"removable": True, "inserted": {"ro": True}})
    assert not is_medium({"removable": False, "inserted": {"ro": True}})
    assert not is_medium({"removable": True, "inserted": {"ro": False}})
    assert not is_medium({"removable": True})


ANONYMOUS = "/machine/peripheral-anon/device[0]"


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ({"qdev": "/machine/peripheral/disk0/virtio-backend", "device": "x"}, "disk0"),
        ({"qdev": "/machine/peripheral/stick/stick.0/legacy[0]", "device": "x"}, "stick"),
        ({"qdev": "scsi0", "device": "x"}, "scsi0"),
        ({"qdev": f"{ANONYMOUS}/virtio-backend", "device": "virtio0", "node-name": "#block191"}, "virtio0"),
        ({"qdev": "/machine/unattached/device[16]", "device": "ide0-hd0"}, "ide0-hd0"),
        ({"qdev": "", "device": "ide0-hd0"}, "ide0-hd0"),
        ({"qdev": ANONYMOUS, "device": "", "inserted": {"node-name": "n0"}}, "n0"),
        ({"qdev": ANONYMOUS, "device": "", "node-name": "n0"}, "n0"),
    ],
)
def test_a_disk_is_called_by_its_device_else_its_drive_else_its_node(shown: dict[str, Any], name: str) -> None:
    assert list(named([shown, shown])) == [(name, shown), (f"{name}#2", shown)]


@pytest.mark.parametrize(
    "shown",
    [
        {"device": ""},
        {"qdev": ANONYMOUS, "device": ""},
        {"device": "", "node-name": "is-being-unplugged"},
        {"qdev": "/machine/system.flash0", "device": "pflash0", "node-name": "firmware"},
    ],
)
def test_what_is_no_disk_has_no_name(shown: dict[str, Any]) -> None:
    assert not list(named([shown]))


def test_a_drive_that_no_device_has_is_no_disk_of_the_guest() -> None:
    assert is_unplugged({"device": "none0", "removable": True})
    assert not is_unplugged({"device": "sd0", "removable": True, "qdev": "card"})
    assert not is_unplugged({"device": "ide0-hd0", "removable": False})


def seen_ring(samples: list[tuple[int, int, int]], *, size: int = 128) -> RingSeen:
    found = RingSeen(last=samples[0])
    for one in samples[1:]:
        add(found, one, 0.01, size=size)
    return found


def test_requests_in_a_virtqueue_are_counted_past_the_wrap_of_its_indices() -> None:
    begin = 65_530
    steps = [((begin + 8 + n) % 65_536, (begin + 5 + n) % 65_536, (begin + n) % 65_536) for n in range(101)]
    rates = ring_rates_between((), [seen_ring(steps).count(), seen_ring(steps).count()])
    assert rates is not None
    assert (rates.completed, rates.samples) == (200, 200)
    assert rates.offered_mean == pytest.approx(16)
    assert rates.taken_mean == pytest.approx(10)
    assert rates.seconds == pytest.approx(1)
    assert ring_rates_between((), []) is None


def test_torn_samples_are_left_out_and_a_device_that_does_not_tell_is_not_believed() -> None:
    good = [(10 + n, 8 + n, 5 + n) for n in range(100)]
    torn = [*good[:50], (5, 8, 70), *good[51:]]
    rates = ring_rates_between((), [seen_ring(torn).count()])
    assert rates is not None
    assert rates.offered_mean == pytest.approx(5)
    assert rates.taken_mean == pytest.approx(3, rel=0.02)
    polling = ring_rates_between((), [seen_ring([(offered, 3, completed) for offered, _, completed in good]).count()])
    assert polling is not None
    assert polling.taken_mean is None
    assert polling.offered_mean == pytest.approx(5)


def test_the_wait_in_the_virtqueue_is_a_layer() -> None:
    between = rates_between(counted(1), counted(3))
    rings = (RingRates(seconds=2.0, completed=20_000, offered_mean=7.0, taken_mean=4.0, samples=900),)
    path = live_path(LiveDisk(target="vda", path="/x", devices=("vda",)), between, host(), rings=rings, all_read=0)
    assert path.layers is not None
    assert [(one.boundary, round(one.mean_ns)) for one in path.layers.layers] == [
        ("ring", 300_000), ("backend", 100_000), ("device", 300_000),
    ]  # fmt: skip
    assert path.layers.qavg_ns == pytest.approx(300e3)
    assert path.layers.gavg_ns == pytest.approx(700e3)


def test_a_virtqueue_in_which_hardly_a_request_was_seen_says_nothing() -> None:
    between = rates_between(counted(1), counted(3))
    for mean in (0.0, 0.5):  # 1 in 40 samples is no measure of a wait; 0 made a latency of 0, and a division by it
        rings = (RingRates(seconds=2.0, completed=20_000, offered_mean=mean, taken_mean=mean, samples=40),)
        path = live_path(LiveDisk(target="vda", path=None), between, UNSEEN, rings=rings, all_read=0)
        assert path.layers is not None
        assert (path.layers.top, round(path.layers.total_ns)) == ("backend", 400_000)
        unseen = f"its wait in the virtqueue is not in it: 40 looks found {40 * mean:.0f} requests there"
        assert any(unseen in line for line in path.layers.reasons), "one time without it, and one with it, are two"
        assert any(unseen in line for line in judge(path).evidence)


def test_the_times_of_a_disk_that_did_others_requests_are_not_those_of_the_vm() -> None:
    disk = LiveDisk(target="vda", path="/x", devices=("vda",))
    between = rates_between(counted(1), counted(3))
    path = live_path(disk, between, host(), rings=(), all_read=0)
    assert not device_counts_others(path.layers)
    few = replace(between, reads=between.reads // 100, writes=between.writes // 100)
    path = live_path(disk, few, host(), rings=(), all_read=0)
    assert path.layers is not None
    assert device_counts_others(path.layers), path.layers.reasons
    assert device_counts_others(None)


def test_requests_without_times_have_no_layers() -> None:
    untimed = rates(read_ns=0)
    path = live_path(LiveDisk(target="vda", path=None), untimed, UNSEEN, rings=(), all_read=0)
    assert path.layers is None
    assert judge(path).cause is Cause.UNDECIDED


def test_a_limit_of_several_disks_is_reached_by_all_of_them_together() -> None:
    begin = {name: DiskCount(t_ns=0, **dict.fromkeys(FIELDS, 0)) for name in ("vda", "vdb", "vdc")}
    end = {
        name: DiskCount(t_ns=10**9, **dict.fromkeys(FIELDS, 0) | {"reads": 150, "read_ns": 10**9}) for name in begin
    }
    for groups, cause in ((("many", "many", ""), Cause.THROTTLE), (("many", "own", ""), Cause.UNDECIDED)):
        disks = tuple(
            LiveDisk(target=name, path=None, group=group, limits={"iops": 300.0} if group else {})
            for name, group in zip(begin, groups, strict=True)
        )
        vm = LiveVm(name="vm", pid=None, disks=disks)
        first, _, third = (path for _, _, path in live_paths(vm, disks, (begin, end), None, {}))
        assert (judge(replace(first, layers=None)).cause is Cause.THROTTLE) is (cause is Cause.THROTTLE)
        assert judge(third).cause is not Cause.THROTTLE


@pytest.mark.parametrize("interval", [0.002, 0.025, 0.3])
def test_a_stall_is_as_long_as_it_was_however_often_it_is_looked_at(interval: float) -> None:
    """Half a second of every two: nothing is completed while eight are in flight."""
    seen, steps = RingSeen(), round(8 / interval)
    for step in range(steps):
        wait(seen, interval, waits=step * interval % 2 < 0.5)
    count = seen.count()
    assert count.stalls == 4
    assert count.stalled == pytest.approx(2.0, abs=4 * interval + 0.01)
    for _ in range(round(3 / interval)):
        wait(seen, interval, waits=True)
    assert seen.quiet == pytest.approx(3.0, abs=interval + 0.01), "and at the end it is known since when"


@pytest.mark.parametrize(("moved", "known"), [(80 * 1024, False), (40 * 1024**2, True)])
def test_of_a_few_kilobytes_nobody_is_accused(moved: int, known: bool) -> None:
    used = host()
    device = replace(used.disks[0], read_bytes=moved, written_bytes=0)
    roles = tuple(replace(one, read_bytes=moved // 2, written_bytes=0) for one in used.roles)
    seen = replace(used, disks=(device,), roles=roles)
    path = live_path(TWO[0], rates_between(counted(1), counted(3)), seen, rings=(), all_read=0)
    assert path.others_share == (0.5 if known else None)
    assert any("others caused 50 %" in line for line in judge(path).evidence) is known


@pytest.mark.parametrize(
    ("swap", "reads", "fault_ns"), [((), 500, None), (("sda5",), 500, 3e6), (("sda5",), 0, None)]
)
def test_a_page_that_is_read_back_takes_what_a_request_takes_at_the_swap(
    swap: tuple[str, ...], reads: int, fault_ns: float | None
) -> None:
    """Seen of a QEMU that was swapped out at depth 1: its faults were told, and the depth was named."""
    used = host()
    device = replace(used.disks[0], name="sda5", reads=reads, writes=500 - reads, latency_us_mean=3_000.0)
    role = replace(used.roles[0], major_faults=90)
    used = replace(used, disks=(*used.disks, device), roles=(role, *used.roles[1:]))
    disk = replace(TWO[0], swap=swap)
    vm = LiveVm(name="sql1", pid=7, disks=(disk,))
    ((_, _, path),) = live_paths(vm, (disk,), ({"vda": counted(1)}, {"vda": counted(3)}), used, {})
    assert path.fault_ns == fault_ns
    assert path.faults == 45.0
    (row,) = (one for one in judge(path).hypotheses if one.name == "memory")
    assert row.stands is (fault_ns is not None)
