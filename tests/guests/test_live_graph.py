# SPDX-License-Identifier: Apache-2.0
"""What a QEMU says of the disks of a guest that has not begun: their images, their limits, who serves them, and what
else lies in their path.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import eventually

from virtune import shell
from virtune.bench.live.monitor import LiveMonitor, LiveMonitors, monitored
from virtune.bench.qemu.machine import PROGRAM
from virtune.model.errors import PreconditionError

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


@contextlib.contextmanager
def paused(tmp_path: Path, *words: str) -> Iterator[LiveMonitor]:
    """A QEMU with these words, whose guest has not begun."""
    place = tmp_path / "qmp"
    argv = [shell.find(PROGRAM), "-machine", "q35", "-display", "none", "-nodefaults", "-S", "-m", "64", *words]
    argv += ["-qmp", f"unix:{place},server=on,wait=off"]
    with shell.Warden("graph") as warden, warden.running(argv, name="qemu"):
        assert eventually(place.exists, seconds=20)
        with monitored(place, paused_too=True) as view:
            yield view


def test_disks_are_found_with_all_that_their_requests_pass(tmp_path: Path) -> None:
    names = ("offset", "filtered", "base", "plain", "secret")
    place = {name: tmp_path / f"{name}.raw" for name in names}
    for one in place.values():
        one.write_bytes(bytes(4 * 1024**2))
    overlay = tmp_path / "overlay.qcow2"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(place["base"]), "-F", "raw", str(overlay)]
    subprocess.run(command, check=True)
    words = [
        *("-object", "iothread,id=io1", "-object", "iothread,id=io2,poll-max-ns=0"),
        *("-object", "throttle-group,id=tg0,x-iops-total=200"),
        *("-blockdev", f"file,node-name=f0,filename={place['offset']},cache.direct=on"),
        *("-blockdev", "raw,node-name=r0,file=f0,offset=1048576,size=1048576"),
        *("-device", "virtio-blk-pci,id=blk0,drive=r0,iothread=io1"),
        *("-blockdev", f"file,node-name=f1,filename={place['filtered']}"),
        *("-blockdev", "throttle,node-name=t1,throttle-group=tg0,file=f1"),
        *("-device", "virtio-scsi-pci,id=scsi0,iothread=io2", "-device", "scsi-hd,id=disk1,drive=t1,bus=scsi0.0"),
        *(
            "-blockdev",
            f"file,node-name=f2,filename={place['plain']}",
            "-device",
            "scsi-hd,id=disk2,drive=f2,bus=scsi0.0",
        ),
        *("-blockdev", f"file,node-name=f3,filename={place['secret']}"),
        *("-blockdev", "blkdebug,node-name=d3,image=f3", "-device", "virtio-blk-pci,id=odd,drive=d3"),
        *("-drive", f"if=virtio,file={overlay},format=qcow2,throttling.iops-total=100,throttling.group=many"),
    ]
    with paused(tmp_path, *words) as view:
        found = {one.target: one for one in view.vm.disks}
        (name,) = found.keys() - {"blk0", "disk1", "disk2", "odd"}
        rings = {target: view.rings(target) for target in found}
    blk0, disk1, disk2, odd, anonymous = (found[one] for one in ("blk0", "disk1", "disk2", "odd", name))
    assert (blk0.path, blk0.protocol, blk0.threads, blk0.polling) == (str(place["offset"]), "file", ("IO io1",), True)
    assert blk0.unread == ()
    assert (disk1.path, disk1.limits, disk1.group) == (str(place["filtered"]), {"iops": 200.0}, "tg0")
    assert disk1.threads == disk2.threads == ("IO io2",), "their controller's"
    assert not disk1.polling
    assert '"qom-set"' in disk1.lifts["iops"]
    assert rings["disk1"] == "the wait in the virtqueue: the disks of its controller share it"
    assert odd.unread == ("the block driver 'blkdebug'",)
    assert anonymous.path == str(overlay)
    assert (anonymous.limits, anonymous.group, anonymous.tables) == ({"iops": 100.0}, "many", True)
    assert anonymous.unread == (f"a backing image: {place['base']}",)
    assert rings[name] == "the wait in the virtqueue: the guest has not set it up", "QEMU knows the device"


def test_what_a_second_limit_of_a_path_is_stays_unread(tmp_path: Path) -> None:
    words: list[str] = []
    for count in (1, 2, 3):
        words += ["-blockdev", f"null-co,node-name=d{count}f0,size=1048576"]
        for depth in range(count):
            words += ["-object", f"throttle-group,id=g{count}{depth},x-iops-total={100 * (depth + 1)}"]
            below = f"throttle-group=g{count}{depth},file=d{count}f{depth}"
            words += ["-blockdev", f"throttle,node-name=d{count}f{depth + 1},{below}"]
        words += ["-device", f"virtio-blk-pci,id=disk{count},drive=d{count}f{count}"]
    with paused(tmp_path, *words) as view:
        for count, disk in enumerate(view.vm.disks, 1):
            assert (disk.target, disk.limits) == (f"disk{count}", {"iops": 100.0 * count})
            assert ("a throttle filter, whose limits were not read" in disk.unread) == (count > 1), disk.unread


def test_of_a_guest_that_is_stopped_no_disk_is_judged(tmp_path: Path) -> None:
    words = ("-blockdev", "null-co,node-name=n0,size=1048576", "-device", "virtio-blk-pci,id=disk0,drive=n0")
    with paused(tmp_path, *words) as view:
        shown = LiveMonitors([view])
        for command, state in (("query-status", "prelaunch"), ("cont", ""), ("stop", "paused"), ("cont", "")):
            view.monitor.execute(command)
            shown.counts()
            (vm,) = shown.vms()
            if not state:
                assert (len(vm.disks), vm.missing, *view.counts()) == (1, (), "disk0")
                continue
            assert (vm.disks, vm.missing) == ((), (f"the disks of {vm.name}: its guest does not run: {state}",))
            with pytest.raises(PreconditionError, match=f"does not run its guest: it is {state}"):
                view.counts()
