# SPDX-License-Identifier: Apache-2.0
"""What a QEMU says of the disks of a guest that has not begun: their images, their limits, who serves them, and what
else lies in their path.
"""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import eventually

from virtune import shell
from virtune.bench.live.monitor import LiveMonitor, LiveMonitors, monitored
from virtune.bench.qemu.machine import PROGRAM
from virtune.model.errors import PreconditionError
from virtune.model.live import BLOCK_JOB

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]


def listens(place: Path) -> bool:
    """Whether somebody listens on a socket: QEMU gives it its name a moment before."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(place)) == 0


@contextlib.contextmanager
def paused(tmp_path: Path, *words: str, machine: str = "q35") -> Iterator[LiveMonitor]:
    """A QEMU with these words, whose guest has not begun."""
    place = tmp_path / "qmp"
    argv = [shell.find(PROGRAM), "-machine", machine, "-display", "none", "-nodefaults", "-S", "-m", "64", *words]
    argv += ["-qmp", f"unix:{place},server=on,wait=off"]
    with shell.Warden("graph") as warden, warden.running(argv, name="qemu"):
        assert eventually(lambda: listens(place), seconds=20)
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


def test_a_group_that_limits_nothing_is_read_as_that(tmp_path: Path) -> None:
    words = ("-object", "throttle-group,id=g", "-blockdev", "null-co,node-name=n,size=1048576",
             "-blockdev", "throttle,node-name=f,throttle-group=g,file=n",
             "-device", "virtio-blk-pci,id=disk0,drive=f")  # fmt: skip
    with paused(tmp_path, *words) as view:
        (disk,) = view.vm.disks
        assert (disk.limits, disk.unread) == ({}, ())


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


def test_a_block_job_is_told_from_when_it_begins_until_it_ends(tmp_path: Path) -> None:
    words = [
        word
        for name in ("n0", "other", "target")
        for word in ("-blockdev", f"null-co,node-name={name},size=16777216,latency-ns=1000000")
    ]
    words += ["-device", "virtio-blk-pci,id=disk0,drive=n0", "-device", "virtio-blk-pci,id=disk1,drive=other"]
    told = (f"{BLOCK_JOB} (backup nightly)",)
    job = {"device": "n0", "target": "target", "sync": "full", "speed": 4096, "job-id": "nightly"}
    with paused(tmp_path, *words) as view:
        view.monitor.execute("cont")
        shown = LiveMonitors([view])

        def seen() -> list[tuple[str, ...]]:
            shown.counts()
            return [disk.unread[-1:] for vm in shown.vms() for disk in vm.disks]

        assert seen() == [(), ()]
        view.monitor.execute("blockdev-backup", job)
        assert seen() == [told, ()]
        view.monitor.execute("block-job-cancel", {"device": "nightly", "force": True})
        assert eventually(lambda: not view.monitor.execute("query-block-jobs"), seconds=20)
        assert seen() == [(), ()]
        view.monitor.execute("blockdev-backup", job)
        view.counts()
        assert view.vm.disks[0].unread[-1:] == told, "diagnose counts by itself"


def test_what_a_front_end_takes_and_how_writes_are_cached_is_known(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1024**2))
    nodes = [("-blockdev", f"null-co,node-name=n{number},size=1048576") for number in range(6)]
    caches = ("none", "directsync", "writethrough", "writeback")
    words = [
        *(word for node in nodes for word in node),
        *("-device", "ide-hd,id=ide,bus=ide.0,drive=n0"),
        *("-device", "ich9-ahci,id=new", "-device", "ide-hd,id=sata,bus=new.0,drive=n1"),
        *("-device", "qemu-xhci,id=xhci", "-device", "usb-storage,id=usb,bus=xhci.0,drive=n2"),
        *("-device", "nvme,id=nvme,serial=x,drive=n3", "-device", "virtio-blk-pci,id=blk,drive=n4"),
        *("-device", "virtio-scsi-pci,id=scsi0", "-device", "scsi-hd,id=scsi,bus=scsi0.0,drive=n5"),
    ]
    for number, cache in enumerate(caches):
        how = f"file={image},format=raw,if=none,id=d{number},cache={cache},file.locking=off"
        words += ["-drive", how, "-device", f"virtio-blk-pci,id={cache},drive=d{number},share-rw=on"]
    with paused(tmp_path, *words, machine="pc") as view:
        disks = {one.target: one for one in view.vm.disks}
        slow = {name: one.front for name, one in disks.items() if one.front}
        through = {name for name, one in disks.items() if one.writethrough}
    assert len(disks) == 10
    assert sorted(slow.values()) == ["IDE", "USB"]
    assert slow["ide"] == "IDE"
    assert through == {"directsync", "writethrough"}


def test_of_a_chain_of_images_the_last_one_is_named_too(tmp_path: Path) -> None:
    below = tmp_path / "base.raw"
    below.write_bytes(bytes(1024**2))
    chain = [below]
    for number in range(4):
        form = "qcow2" if number else "raw"
        create = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(chain[-1]), "-F", form]
        chain.append(tmp_path / f"{number}.qcow2")
        subprocess.run([*create, str(chain[-1])], check=True)
    with paused(tmp_path, "-drive", f"if=none,id=d,file={chain[-1]}", "-device", "virtio-blk-pci,drive=d") as view:
        (disk,) = view.vm.disks
    assert disk.path == str(chain[-1])
    assert disk.unread == (f"a backing image: {chain[-2]}, the first of 4 down to {chain[0]}",)
