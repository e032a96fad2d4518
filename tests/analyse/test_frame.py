# SPDX-License-Identifier: Apache-2.0
"""What all running VMs did between two samples: the disks, the threads, what could not be seen."""

import json
from dataclasses import replace

import pytest
from tests.live_samples import HEADER, NO_RINGS, UNPLUGGED, kernel_line, live, reads_of

from virtune.analyse.layers.path import disk_series, frame, rings_moved
from virtune.analyse.trial.counters import read_counters
from virtune.model.bottleneck import Cause, DiskFrame, TopFrame
from virtune.model.live import LiveSample, RingCount, ring_rates_between
from virtune.report.json.live import top_document
from virtune.report.top import csv_rows, is_active, verdict_cell


def between(before: LiveSample, after: LiveSample) -> TopFrame:
    found = frame(before, after)
    assert found is not None
    return found


def disk(found: TopFrame, name: str) -> DiskFrame:
    (one,) = [one for one in found.disks if one.name == name]
    return one


def test_two_samples_are_a_row_for_each_disk() -> None:
    found = between(live(2), live(4))
    assert [one.name for one in found.disks] == ["sql1:vda", "sql1:vdb", "mail:disk0"]
    vda = disk(found, "sql1:vda")
    assert vda.path.iops == pytest.approx((reads_of(4) - reads_of(2)) / 2)
    assert vda.latency_ns == pytest.approx(400e3)
    assert vda.in_flight == pytest.approx(vda.path.iops * 400e-6), "Little's law"
    assert vda.path.layers is not None
    assert [(one.boundary, round(one.mean_ns, -3)) for one in vda.path.layers.layers] == [
        ("backend", 100_000), ("device", 300_000),
    ]  # fmt: skip
    assert vda.found.cause is Cause.DEVICE
    assert disk(found, "sql1:vdb").latency_ns is None
    mail = disk(found, "mail:disk0")
    assert mail.found.cause is Cause.THROTTLE
    assert mail.path.layers is not None
    assert [(one.boundary, round(one.mean_ns, -3)) for one in mail.path.layers.layers] == [
        ("ring", 500_000), ("backend", 1_000_000),
    ]  # fmt: skip
    assert mail.in_flight == pytest.approx(3)


def test_a_vm_is_held_back_by_its_own_groups_and_those_alone() -> None:
    def held(second: int, **files: int) -> LiveSample:
        texts = {path: f"nr_throttled 1\nthrottled_usec {us}\n" for path, us in files.items()}
        kernel = json.dumps(kernel_line(second) | {"groups": {"sql1": texts}}).encode() + b"\n"
        return replace(live(second), host=read_counters(HEADER + kernel).samples[0])

    # a thread came into a group that had been held back for hours
    found = between(held(2, a=5_000_000, b=70_000), held(4, a=5_500_000, b=170_000, c=9_000_000_000))
    assert disk(found, "sql1:vda").path.throttled == pytest.approx(0.3)
    told = disk(found, "sql1:vda").found
    assert told.cause is Cause.DEVICE, "it has 75 % of the time"
    assert any("its control groups held CPUs back (cpu.max): 0.30" in line for line in told.evidence)
    assert disk(found, "mail:disk0").path.throttled is None, "nobody looked"


def test_the_cpu_of_an_io_is_that_of_the_threads_which_serve_its_disk() -> None:
    found = between(live(2), live(4))
    vda, mail = disk(found, "sql1:vda"), disk(found, "mail:disk0")
    # the IOThread used 0.2 of a CPU; neither its vCPU nor its main loop serve this disk
    assert vda.cpu_per_io_ns == pytest.approx(0.2 / vda.path.iops * 1e9)
    assert mail.cpu_per_io_ns == pytest.approx(0.1 / 2_000 * 1e9), "and of mail it is the main loop"
    assert disk(found, "sql1:vdb").cpu_per_io_ns is None, "a disk without I/Os has no CPU time for each"


def test_the_cpu_of_an_io_is_over_all_that_its_threads_serve() -> None:
    """Two disks on one IOThread, of which one has another thread besides: the first one's I/Os were left out."""
    both = replace(live(2).vms[0].disks[0], threads=("IO iothread1", "IO iothread2"))

    def at(second: int) -> LiveSample:
        found = live(second)
        vm = found.vms[0]
        other = replace(vm.disks[1], threads=("IO iothread1",))
        counts = dict(found.counts["sql1"])
        counts["vdb"] = replace(counts["vda"], reads=2 * counts["vda"].reads)
        own = replace(vm, disks=(both, other))
        return replace(found, vms=(own, *found.vms[1:]), counts={**found.counts, "sql1": counts})

    found = between(at(2), at(4))
    vda, vdb = disk(found, "sql1:vda"), disk(found, "sql1:vdb")
    served = vda.path.iops + vdb.path.iops
    assert vda.cpu_per_io_ns == vdb.cpu_per_io_ns == pytest.approx(0.2 / served * 1e9)


def test_a_vm_is_the_sum_of_its_disks_and_threads() -> None:
    found = between(live(2), live(4))
    sql1 = found.vms[0]
    assert sql1.iops == pytest.approx(disk(found, "sql1:vda").path.iops)
    assert sql1.cpus() == pytest.approx(0.61)
    assert sql1.cpus("vcpu") == pytest.approx(0.4)
    assert sql1.stalled == pytest.approx(0.011)
    assert sql1.latency_ns == pytest.approx(400e3)
    assert found.host.foreign_cpus == pytest.approx(1.2 - 0.61 - 0.1, abs=0.01)
    unseen = replace(live(4), vms=tuple(replace(one, name=f"{one.name}x") for one in live(4).vms))
    assert {(one.cpus(), one.stalled) for one in between(live(2), unseen).vms} == {(None, None)}


def test_what_no_process_shows_is_said_once() -> None:
    found = between(live(2), live(4))
    assert found.missing[0] == NO_RINGS
    (line,) = found.missing[1:]
    assert line.startswith("how much of the reads of mail reached a device: /proc/PID/io")


def test_a_vm_whose_qemu_gives_no_counters_is_named() -> None:
    silent = replace(live(4), counts={"mail": live(4).counts["mail"], "sql1": {}})
    found = between(live(2), silent)
    assert [one.name for one in found.disks] == ["mail:disk0"]
    assert any(line.startswith("the disks of sql1: the QEMU gives no counters") for line in found.missing)
    assert not any("no counters" in line for line in between(live(2), live(4)).missing)


def test_samples_out_of_order_or_of_one_moment_are_no_frame() -> None:
    assert frame(live(3), live(3)) is None
    assert frame(live(4), live(3)) is None


def test_a_disk_that_came_went_or_began_anew_has_no_row() -> None:
    gone = between(live(UNPLUGGED - 1), live(UNPLUGGED))
    assert [one.name for one in gone.disks] == ["sql1:vda", "mail:disk0"]
    came = between(live(UNPLUGGED), replace(live(UNPLUGGED - 1), host=live(UNPLUGGED + 1).host))
    assert "sql1:vdb" not in [one.name for one in came.disks]
    anew = replace(live(4), counts=live(1).counts)  # another QEMU under the same name
    assert between(live(3), anew).disks == ()


def test_virtqueues_that_are_no_longer_where_they_were_are_not_believed() -> None:
    moved = replace(live(4), rings={"mail": {"disk0": (RingCount(completed=70_000, seconds=4.0, samples=800),)}})
    assert not rings_moved(live(3), live(4))
    assert rings_moved(live(3), moved)
    mail = disk(between(live(3), moved), "mail:disk0")
    assert mail.path.layers is not None
    assert mail.path.layers.top == "backend"


def test_virtqueues_that_are_read_late_on_a_busy_host_have_not_moved() -> None:
    """To find them anew asks each QEMU several times, which made the next sample later still."""
    count = RingCount(completed=2_000 * 5, seconds=5.0, offered=15.0, taken=10.0, samples=1_000)
    late = replace(live(4), rings={"mail": {"disk0": (count,)}})
    assert not rings_moved(live(3), late), "two seconds of its rate, where QEMU's counters are of one"
    mail = disk(between(live(3), late), "mail:disk0")
    assert mail.path.layers is not None
    assert mail.path.layers.top == "ring"


def test_virtqueues_that_were_found_anew_count_from_zero() -> None:
    fresh = RingCount(completed=100, seconds=0.1, offered=0.2, taken=0.1, samples=20)
    rates = ring_rates_between((RingCount(completed=9_000, seconds=9.0, samples=1_800),), (fresh,))
    assert rates is not None
    assert (rates.completed, rates.samples) == (100, 20)
    assert rates.offered_mean == pytest.approx(2)


def test_the_series_of_a_disk_is_what_qemu_counted_in_each_interval() -> None:
    samples = [live(second) for second in (1, 2, 3, UNPLUGGED)]
    series = disk_series(samples, "sql1", "vda")
    assert [round(iops) for iops, *_ in series[:2]] == [12_000, 13_000]
    assert series[0] == pytest.approx((12e3, 12e3 * 4096, 400e3, 4.8))
    assert disk_series(samples, "sql1", "vdb") == [(0.0, 0.0, 0.0, 0.0)] * 3
    assert disk_series(samples, "nobody", "vda") == [(0.0, 0.0, 0.0, 0.0)] * 3


@pytest.mark.parametrize("kind", ["reads", "writes", "flushes", "discards", "failed"])
def test_virtqueues_have_not_moved_whatever_their_requests_ask_for(kind: str) -> None:
    """Thousands of flushes were taken for a queue that is elsewhere, and all were looked for anew each second."""

    def at(second: int) -> LiveSample:
        sample = live(second)
        count = replace(sample.counts["mail"]["disk0"], writes=0, write_ns=0, discards=0, discard_ns=0, failed=0)
        count = replace(count, **{kind: 2_000 * second})
        return replace(sample, counts={**sample.counts, "mail": {"disk0": count}})

    assert not rings_moved(at(3), at(4))
    if kind != "failed":
        mail = disk(between(at(3), at(4)), "mail:disk0")
        assert mail.path.iops == pytest.approx(2_000)
        assert mail.path.layers is None or mail.path.layers.top == "ring"


def test_a_disk_that_hangs_is_not_idle_and_has_its_requests_in_flight() -> None:
    ring = RingCount(completed=6_000, seconds=3.0, offered=9.0, taken=6.0, samples=600, size=128)
    hung = RingCount(
        completed=6_000, seconds=4.0, offered=18.0, taken=15.0, samples=800, size=128, inside=9, quiet=37.0,
        stalled=1.0,
    )  # fmt: skip
    then = replace(live(3), rings={"mail": {"disk0": (ring,)}})
    later = {"disk0": replace(live(3).counts["mail"]["disk0"], t_ns=live(4).host.t_ns)}
    now = replace(live(4), counts={**live(4).counts, "mail": later}, rings={"mail": {"disk0": (hung,)}})
    found = between(then, now)
    mail = disk(found, "mail:disk0")
    assert (mail.found.cause, mail.in_flight) == (Cause.HUNG, 9.0)
    assert mail.found.evidence[0] == "9 requests wait, and none was completed for at least 37 s"
    (document,) = top_document(found)["vms"][1]["disks"]
    assert (document["in_flight"], document["waiting_seconds"], document["bottleneck"]["cause"]) == (
        9.0,
        37.0,
        "hung",
    )
    assert is_active(mail)
    assert verdict_cell(mail).plain == "hung"
    assert "9.0" in csv_rows(found).splitlines()[-1].split(",")
    assert disk_series([then, now], "mail", "disk0") == [(0.0, 0.0, 0.0, 9.0)]


def test_other_vms_on_the_same_device_are_named_where_others_did_most() -> None:
    def at(second: int) -> LiveSample:
        sample = live(second)
        sql1, mail = sample.vms
        shared = replace(mail, disks=(replace(mail.disks[0], devices=("nvme0n1",)),))
        direct = replace(sql1, disks=tuple(replace(one, direct=True) for one in sql1.disks))
        used = {one: {pid: replace(count, read_bytes=0, written_bytes=0) for pid, count in group.items()}
                for one, group in sample.host.processes.items()}  # fmt: skip
        return replace(sample, vms=(direct, shared), host=replace(sample.host, processes=used))

    found = disk(between(at(2), at(4)), "sql1:vda")
    assert "others caused 100 % of the bytes of its disk (also on it: mail)" in found.found.evidence
