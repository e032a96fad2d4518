# SPDX-License-Identifier: Apache-2.0
"""The first promise, held for every knob that virtune turns on every rig where it means something.

The rig's dialect must write it, and a check must name it and find it; what cannot be seen is an exception with its
reason in the rig's row (`virtune.model.rig`), and then no check may claim to have found it.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.knob_values import stack_with

from virtune.bench.daemon import Served, export_checks, iothread_check_under_load
from virtune.bench.libvirt.rig import cache_check, disk_checks, image_checks
from virtune.bench.qemu.carried import GUEST, device_checks, machine_checks, pages_check, place_checks, thread_checks
from virtune.bench.qemu.passthrough import Drive, HostsSide, passed_check
from virtune.bench.qemu.rig import spread_check
from virtune.bench.scratch import image_bytes, qcow2_options
from virtune.bench.verify import (
    Activity,
    Opened,
    Spent,
    cache_checks,
    engine_check_under_load,
    guest_checks,
    node_checks,
    rbd_checks,
)
from virtune.bench.verify import iothread_check_under_load as guest_iothread_check
from virtune.dialects.libvirt.disk import plug_xml
from virtune.dialects.qemu.guest import GuestMachine, device_commands, machine_argv, node_commands
from virtune.dialects.qemu.guest import thread_commands as guest_threads
from virtune.dialects.qemu.qmp import DaemonPlaces, daemon_commands
from virtune.dialects.text.xml import read_document
from virtune.model.contradictions import contradictions
from virtune.model.disks import stack_of_disk
from virtune.model.evidence import Check
from virtune.model.rig import RIGS
from virtune.model.stack import DIRECT_CACHES, Stack
from virtune.model.verification import not_shown, to_verify
from virtune.probe.process import Process, Ring

MEASURED = ("storage-daemon", "qemu", "libvirt")
CASES = [(rig, knob) for rig in MEASURED for knob in sorted(RIGS[rig].applies)]
PLACES = DaemonPlaces(image="/i", size_bytes=2**20, socket="/s", mountpoint="/m")
SEEN = {"write_cache": "write back", "queues": "2", "cpus": "3", "nr_requests": "512", "scheduler": "[none]"}
SEEN |= {"logical_block_size": "4096", "physical_block_size": "4096"}
A_DRIVE = Drive(
    address="0000:01:00.0", group="7", node="/dev/nvme0n1", number="259:0", size_bytes=2**20, serial="S3RIAL"
)


@dataclass
class HonestQemu:
    """A monitor that answers what a QEMU answers which does as it is told."""

    stack: Stack
    given: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __call__(self, command: str, arguments: Mapping[str, Any]) -> Any:
        machine = self.stack.machine
        if command == "query-cpus-fast":
            return [{"qom-path": "/cpu"}] * (machine.vcpus or 2)
        if arguments.get("property") == "kernel":
            return f"/share/{GUEST}" if machine.is_bare else "/boot/vmlinuz"
        if command == "query-memory-size-summary":
            return {"base-memory": machine.memory}
        assert command == "qom-get"
        name = arguments["path"].rpartition("/")[2]
        if arguments["property"] == "type":
            types = {"machine": "pc-q35-7.2-machine", "cpu": f"{machine.cpu}-x86_64-cpu"}
            return types.get(name) or self.given[name]["driver"]
        if arguments["property"] == "parent_bus":
            return "/machine/peripheral/scsi0/virtio-backend/scsi0.0"
        return self.given[name][arguments["property"]]


def nodes(stack: Stack) -> list[Mapping[str, Any]]:
    disk = stack.disk
    cache = {"direct": disk.cache in DIRECT_CACHES, "no-flush": disk.cache == "unsafe"}
    on_ceph = {"filename": 'json:{"driver": "rbd", "pool": "vms", "image": "virtune-run-1"}'}
    details = {"extended-l2": disk.extended_l2, "lazy-refcounts": disk.lazy_refcounts}
    image = {"cluster-size": disk.cluster_size, "format-specific": {"data": details}}
    top = {"node-name": "format0", "drv": disk.format, "detect_zeroes": disk.detect_zeroes, "image": image}
    below = {"node-name": "file0", "drv": disk.backend, "cache": cache, "image": on_ceph if disk.rbd else {}}
    return [below, {**top, "cache": cache}]


def of_image(stack: Stack) -> Iterator[Check]:
    if stack.disk.backend == "file":
        moved: dict[Ring, int | None] = {} if stack.disk.aio == "threads" else {(stack.disk.aio, 1): 7}
        activity = Activity(moved=moved, workers_ns=0 if moved else 10**9, io_ns=10**9)
        yield engine_check_under_load(stack.disk.aio, activity)
        held = Opened(direct="on" if stack.disk.cache in DIRECT_CACHES else "off", proof="flags")
        yield from cache_checks(stack, held, nodes(stack))
    yield from rbd_checks(stack, nodes(stack))
    limits = stack.disk.limits
    yield from node_checks(stack, nodes(stack), limits)


def on_daemon(stack: Stack) -> Iterator[Check]:
    yield from of_image(stack)
    threads = frozenset({9} if stack.in_iothread else ())
    served = Served(kind=stack.export, threads=threads, poll_max_ns=stack.poll_max_ns, queues=stack.queues)
    yield from export_checks(stack, served)
    if threads:
        yield iothread_check_under_load(stack, 9, 10**9, 0)


def on_qemu(stack: Stack) -> Iterator[Check]:
    yield from of_image(stack)
    added = {one.arguments["id"]: one.arguments for one in (*device_commands(stack, "n"), *guest_threads(stack))}
    ask = HonestQemu(stack, added)
    devices = {name: given for name, given in added.items() if "driver" in given}
    yield from device_checks(ask, devices, stack)
    if stack.device.vfio_pci is not None:
        here = HostsSide(driver="vfio-pci", pid=1, held={"/dev/vfio/7"}, locked_bytes=2**28)
        yield passed_check(ask, A_DRIVE, here, {"sectors": "2048"}, by_serial=True)
    yield from thread_checks(ask, stack)
    yield from machine_checks(ask, stack, Process(os.getpid()), "QEMU", str(stack.machine.vcpus))
    yield from guest_checks(stack, SEEN, vcpus=2, writes=True)
    yield from of_threads(stack)


def of_threads(stack: Stack) -> Iterator[Check]:
    check = guest_iothread_check(stack, Spent(by_role={"iothread": 10**9 if stack.in_iothread else 0}))
    if check is not None:
        yield check


def written_by_libvirt(stack: Stack) -> str:
    return plug_xml(stack, image="/i", target="vdz", name="virtune-1", writable=True)


def on_libvirt(stack: Stack, image: Path) -> Iterator[Check]:
    disk = read_document(written_by_libvirt(stack).encode()).root  # libvirt took it as it was given
    yield from (one for one in of_image(stack) if one.setting == "disk.aio")
    direct = os.O_DIRECT if stack.disk.cache in DIRECT_CACHES else 0
    descriptor = os.open(image, os.O_RDONLY | direct)
    yield from cache_check(stack, Process(os.getpid()), image, disk, SEEN)
    os.close(descriptor)
    yield from image_checks(stack, image)
    yield from disk_checks(stack, disk, disk, SEEN, vcpus=2, writes=True)
    yield from of_threads(stack)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A qcow2 image of version 3 with all that a stack may ask for."""
    path = tmp_path / "image"
    head = struct.pack(">4sI12xI48xQQ", b"QFI\xfb", 3, 17, 1 << 4, 1)
    path.write_bytes(head.ljust(4096, b"\0"))
    return path


def what_it_is_told(stack: Stack) -> object:
    """All that the rig's dialect writes for a stack, what the image is made with, and where it runs."""
    of_image = qcow2_options(stack.disk), stack.disk.format, image_bytes(stack.disk, 2**30)
    of_host = stack.cache_state, stack.place, stack.neighbour, stack.pins.load, stack.load_depth
    of_guests = stack.guests, stack.idle_guests, stack.own_images, stack.spread, stack.pins
    match stack.rig:
        case "storage-daemon":
            return daemon_commands(stack, PLACES), of_image, of_host
        case "libvirt":
            return written_by_libvirt(stack), of_image
    started = GuestMachine(
        kernel="k", initramfs="i", console="c", channels=(), monitor=3, kvm=False, asked=stack.machine
    )
    program = stack.machine.emulator or "qemu-system-x86_64"
    argv = machine_argv(program, replace(started, vcpus=stack.machine.vcpus or 2))
    commands = (*node_commands(stack, PLACES, 1), *guest_threads(stack), *device_commands(stack, "n"))
    for number in range(1, stack.disks):
        one = stack_of_disk(stack, number)
        commands += (*guest_threads(one), *node_commands(one, PLACES, f"1-{number}"))
        commands += device_commands(one, "n", number)
    return argv, commands, of_image, of_guests, of_host


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_the_dialect_writes_the_knob_or_the_guests_are_brought_up_by_it(rig: str, knob: str) -> None:
    without, stack = stack_with(rig, knob)
    assert contradictions(stack) == ()
    if (rig, knob) == ("libvirt", "device.bus"):
        assert "bus='virtio'" in written_by_libvirt(stack)
        return
    assert what_it_is_told(stack) != what_it_is_told(without), f"{knob} changes nothing that {rig} is told"


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_a_check_names_the_knob_or_the_rigs_row_says_why_none_can(rig: str, knob: str, image: Path) -> None:
    _, stack = stack_with(rig, knob)
    if knob in not_shown(stack):
        assert knob not in to_verify(stack)
        return
    if (rig, knob) != ("libvirt", "device.bus"):
        assert knob in to_verify(stack)
    if knob in SEEN_ELSEWHERE:
        return  # by the test that is named there
    made = (
        on_daemon(stack) if rig == "storage-daemon" else on_qemu(stack) if rig == "qemu" else on_libvirt(stack, image)
    )
    named = [check for check in made if check.setting == knob]
    assert named, f"no check of {rig} names {knob}"
    assert any(check.found is not None for check in named), f"no check of {rig} finds {knob}"
    assert all(check.agrees is not False for check in named), named


def test_the_number_of_guests_is_counted_and_the_second_ones_image_is_looked_for(tmp_path: Path) -> None:
    assert spread_check(str(tmp_path), tmp_path / "image").agrees is True
    assert spread_check(str(tmp_path), Path("/elsewhere/image")).agrees is False


def test_where_threads_and_memory_lie_is_read_from_the_process() -> None:
    mine = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    stack = replace(Stack(rig="qemu"), pins=replace(Stack().pins, emulator=mine))
    assert [check.setting for check in place_checks(stack, Process(os.getpid()))] == ["emulator.pin"]
    hugepages = replace(Stack().machine, hugepages=cast(Any, 2**21))
    assert [check.setting for check in pages_check(hugepages, Process(os.getpid()))] == ["memory.hugepages"]


SEEN_ELSEWHERE = frozenset({
    "guests.count", "guests.idle", "guests.images",  # tests/guests: only several machines can be counted
    "host.cache", "disk.place", "host.neighbour", "load.pin",  # test_surroundings
    "workload.iodepth",  # test_surroundings: by the result of the load
    "disks.count", "disks.iothreads", "disks.second",  # tests/guests: only a machine with several shows them
    "disk.filesystem",  # tests/guests: only a guest mounts it
    "guests.spread", "vcpu.pin", "emulator.pin", "iothread.pin", "memory.hugepages",  # the two tests above
})  # fmt: skip
"""Knobs that no honest monitor shows, since they are seen on processes."""
