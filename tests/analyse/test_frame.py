# SPDX-License-Identifier: Apache-2.0
"""What all running VMs did between two samples: the disks, the threads, what could not be seen."""

from dataclasses import replace

import pytest
from tests.live_samples import NO_RINGS, UNPLUGGED, live, reads_of

from virtune.analyse.layers.frame import disk_series, frame, rings_moved
from virtune.model.bottleneck import Cause
from virtune.model.frame import DiskFrame, TopFrame
from virtune.model.live import LiveSample, RingCount, ring_rates_between


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


def test_the_cpu_of_an_io_is_that_of_the_threads_which_serve_its_disk() -> None:
    found = between(live(2), live(4))
    vda, mail = disk(found, "sql1:vda"), disk(found, "mail:disk0")
    # the IOThread used 0.2 of a CPU; neither its vCPU nor its main loop serve this disk
    assert vda.cpu_per_io_ns == pytest.approx(0.2 / vda.path.iops * 1e9)
    assert mail.cpu_per_io_ns == pytest.approx(0.1 / 2_000 * 1e9), "and of mail it is the main loop"
    assert disk(found, "sql1:vdb").cpu_per_io_ns is None, "a disk without I/Os has no CPU time for each"


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
