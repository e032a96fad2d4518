# SPDX-License-Identifier: Apache-2.0
"""Hot-plug in a guest that is at work: a disk is exchanged while another one is loaded, which never notices."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import SPAN, eventually
from tests.guests.conftest import TCG
from tests.guests.rig_parts import GUEST, engine_at_work, ground

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.guest.agent import seen_in_guest
from virtune.bench.live.monitor import LiveMonitor
from virtune.bench.live.rings import RingReader, sampled
from virtune.bench.qemu.load import GuestBench
from virtune.bench.qemu.rig import GuestSession
from virtune.dialects.qemu.guest import SLOTS
from virtune.flows.live.diagnose_live import look
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.stack import Device, Disk

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

OTHER = "other"


@pytest.fixture
def session(appliance: Appliance, one_warden: shell.Warden) -> Iterator[GuestSession]:
    made = GuestSession(appliance, TCG, one_warden)
    yield made
    made.give_up()


def load_another_disk(bench: GuestBench) -> None:
    """Plug a second disk in and load it until somebody ends that."""
    node = {"driver": "null-co", "node-name": OTHER, "size": SPAN, "read-zeroes": True}
    bench.vm.monitor.execute("blockdev-add", node)
    device = {"driver": "virtio-blk-pci", "id": OTHER, "drive": OTHER, "serial": OTHER, "bus": SLOTS[-1]}
    bench.vm.monitor.execute("device_add", device)
    path = seen_in_guest(bench.vm.guest, OTHER, timeout_seconds=120)["device"]
    words = f"fio --name=x --filename={path} --ioengine=libaio --direct=1 --iodepth=8 --rw=randread --bs=4k"
    words += " --time_based=1 --runtime=600 --allow_file_create=0 --output-format=json --output=/run/other.json"
    assert bench.vm.guest.look.run(f"{words} >/run/other.said 2>&1 &", timeout_seconds=120).status == 0


def completed(bench: GuestBench) -> int:
    """How many reads of the other disk QEMU has completed."""
    shown = bench.vm.monitor.execute("query-blockstats")
    return sum(int(one["stats"]["rd_operations"]) for one in shown if f"/{OTHER}/" in f"{one.get('qdev', '')}/")


def look_at_the_other_disk(bench: GuestBench) -> None:
    """A VM at work is diagnosed from outside: what QEMU counts, how its threads fare, its load as a workload."""
    asked = bench.vm.monitor.execute("query-named-block-nodes")
    before = completed(bench)
    view = LiveMonitor(bench.vm.monitor, bench.vm.child.pid)
    (found,) = look(view, disk=OTHER, seconds=1.5)
    assert 0 < found.path.iops * found.seconds <= completed(bench) - before
    assert found.sequential is None or found.sequential < 0.5, "its requests do not follow one another"
    assert found.sequential is None or "rand" in found.workload
    assert found.layers is not None
    assert found.layers.top == "ring", "what the guest adds is not seen from outside"
    often, once = view.rings(OTHER), view.rings(OTHER)
    assert isinstance(often, RingReader)
    assert isinstance(once, RingReader)
    around = completed(bench)
    with sampled(often) as rates, sampled(once, interval_seconds=60) as last:
        inside = completed(bench)
        time.sleep(1)
        inside = completed(bench) - inside
    around = completed(bench) - around
    for (seen,) in (last, rates):
        # but for the eight that may be in flight
        assert inside - 8 <= seen.completed <= around + 8, "the ring counts what QEMU counts"
    assert 0 < seen.offered_mean <= 8, "and holds no more than the load lets be in flight"
    assert seen.taken_mean is None or seen.taken_mean <= seen.offered_mean
    assert {one.role for one in found.path.threads} >= {"vcpu", "main"}
    assert sum(one.cpu_seconds for one in found.path.threads if one.role == "vcpu") > 0
    assert any("the image is reached over 'null-co'" in line for line in found.missing)
    assert bench.vm.monitor.execute("query-named-block-nodes") == asked, "and nothing is changed"
    with pytest.raises(UsageError, match="no disk 'none'"):
        look(view, disk="none", seconds=1.5)


def test_disks_come_and_go_while_another_is_loaded(session: GuestSession, image: Path) -> None:
    with session.up(GUEST, ground(image)) as bench:
        load_another_disk(bench)
        assert eventually(lambda: completed(bench) > 100, seconds=60)
        look_at_the_other_disk(bench)
    with pytest.raises(PreconditionError, match="paused"):  # a test VM is paused between two stacks
        LiveMonitor(bench.vm.monitor, None)
    for device, aio in ((Device(bus="virtio-scsi"), "io_uring"), (Device(bus="nvme"), "threads")):
        before = completed(bench)
        with session.up(replace(GUEST, device=device, disk=Disk(aio=aio)), ground(image)) as bench:  # type: ignore[arg-type]
            assert bench.changeover is not None
            assert bench.changeover.swapped == "disk", bench.changeover.text
            assert engine_at_work(bench) == aio
            assert completed(bench) > before + 100, "the other disk was served all the while"
    with session.up(GUEST, ground(image)) as bench:
        bench.vm.guest.run(["killall", "-INT", "fio"], timeout_seconds=120)
        gone = lambda: bench.vm.guest.run(["killall", "-0", "fio"], timeout_seconds=120).status != 0  # noqa: E731
        assert eventually(gone, seconds=200)
        left = bench.vm.guest.get("/run/other.json", timeout_seconds=120)
        (job,) = json.loads(left[left.index(b"{") :])["jobs"]  # before it fio says that it was told to end
        assert (job["error"], job["read"]["short_ios"], job["read"]["drop_ios"]) == (0, 0, 0)
        assert bench.vm.guest.get("/run/other.said", timeout_seconds=120) == b"", "and nobody complained"
