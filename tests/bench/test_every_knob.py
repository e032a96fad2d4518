# SPDX-License-Identifier: Apache-2.0
"""The first promise, held for every knob that virtune turns on every rig where it means something.

The rig's dialect must write it, and a check must name it and find it; what cannot be seen is an exception with its
reason in the rig's row (`virtune.model.rig`), and then no check may claim to have found it.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.knob_values import stack_with

from virtune.bench.daemon import Served, export_checks, iothread_check_under_load
from virtune.bench.libvirt.rig import cache_check, disk_checks, image_checks
from virtune.bench.qemu.carried import (
    GUEST,
    device_checks,
    machine_checks,
    memory_checks,
    place_checks,
    thread_checks,
)
from virtune.bench.qemu.passthrough import Drive, HostsSide, passed_check
from virtune.bench.qemu.rig import spread_check
from virtune.bench.scratch import image_bytes
from virtune.bench.verify import (
    Activity,
    Opened,
    Spent,
    cache_checks,
    engine_check_under_load,
    guest_checks,
    kernel_checks,
    node_checks,
    rbd_checks,
)
from virtune.bench.verify import iothread_check_under_load as guest_iothread_check
from virtune.dialects.libvirt.disk import plug_xml
from virtune.dialects.qemu.guest import GuestMachine, device_commands, machine_argv, node_commands
from virtune.dialects.qemu.guest import thread_commands as guest_threads
from virtune.dialects.qemu.images import qcow2_options
from virtune.dialects.qemu.qmp import DaemonPlaces, daemon_commands
from virtune.dialects.text.xml import read_document
from virtune.flows.run.trial import copied_to
from virtune.model.contradictions import contradictions, stack_of_disk
from virtune.model.evidence import Check, not_shown, to_verify
from virtune.model.knobs import BY_ID
from virtune.model.rig import RIGS
from virtune.model.stack import DIRECT_CACHES, Host, Kernel, Machine, Stack, setting_of
from virtune.probe.process import Process, Ring

MEASURED = ("storage-daemon", "qemu", "libvirt")
CASES = [(rig, knob) for rig in MEASURED for knob in sorted(RIGS[rig].applies)]
PLACES = DaemonPlaces(image="/i", size_bytes=2**20, socket="/s", mountpoint="/m")
SEEN = {"write_cache": "write back", "queues": "2", "cpus": "3", "nr_requests": "512", "scheduler": "[none]",
        "rq_affinity": "1", "nomerges": "0", "read_ahead_kb": "128", "max_sectors_kb": "1280"}  # fmt: skip
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
            types = {"machine": f"{machine.type or 'pc-i440fx-7.2'}-machine", "cpu": f"{machine.cpu}-x86_64-cpu"}
            return types.get(name) or self.given[name]["driver"]
        if arguments["property"] == "parent_bus":
            return "/machine/peripheral/scsi0/virtio-backend/scsi0.0"
        usual = [] if arguments["property"] == "iothread-vq-mapping" else "its default"
        return self.given.get(name, {}).get(arguments["property"], usual)


def nodes(stack: Stack) -> list[Mapping[str, Any]]:
    disk = stack.disk
    cache = {"direct": disk.cache in DIRECT_CACHES, "no-flush": disk.cache == "unsafe"}
    pool = disk.rbd or "another"
    on_ceph = {"filename": f'json:{{"driver": "rbd", "pool": "{pool}", "image": "virtune-run-1"}}'}
    details: dict[str, Any] = {
        "extended-l2": disk.extended_l2 or False,
        "lazy-refcounts": disk.lazy_refcounts or False,
    }
    details |= {"data-file": "/d"} if disk.data_file else {}
    details |= {"encrypt": {"format": "luks"}} if disk.encryption == "luks" else {}
    image = {"cluster-size": disk.cluster_size or 65536, "format-specific": {"data": details}}
    top: dict[str, Any] = {
        "node-name": "format0",
        "drv": disk.format,
        "detect_zeroes": disk.detect_zeroes,
        "image": image,
    }
    top["backing_file_depth"] = disk.backing_depth or 0
    below = {"node-name": "file0", "drv": disk.backend, "cache": cache, "image": on_ceph}
    return [below, {**top, "cache": cache}]


def of_image(stack: Stack, ran: Stack) -> Iterator[Check]:
    """What is found of an image where one stack was asked for, and another one ran."""
    if stack.disk.backend == "file":
        moved: dict[Ring, int | None] = {} if ran.disk.aio == "threads" else {(ran.disk.aio, 1): 7}
        activity = Activity(moved=moved, workers_ns=0 if moved else 10**9, io_ns=10**9)
        yield engine_check_under_load(stack.disk.aio, activity)
        held = Opened(direct="on" if ran.disk.cache in DIRECT_CACHES else "off", proof="flags")
        yield from cache_checks(stack, held, nodes(ran))
    yield from rbd_checks(stack, nodes(ran))
    yield from node_checks(stack, nodes(ran), ran.disk.limits)


def on_daemon(stack: Stack, ran: Stack) -> Iterator[Check]:
    yield from of_image(stack, ran)
    threads = frozenset({9} if stack.in_iothread else ())
    served = Served(kind=ran.export, threads=threads, poll_max_ns=ran.poll_max_ns or 32768 * (stack != ran),
                    queues=ran.queues)  # fmt: skip
    yield from export_checks(stack, served)
    if threads:
        yield iothread_check_under_load(stack, 9, *((10**9, 0) if ran.in_iothread else (0, 10**9)))


def seen_of(stack: Stack) -> Mapping[str, str]:
    """What a guest sees of its disk."""
    sizes = {
        "logical_block_size": stack.device.logical_block_size,
        "physical_block_size": stack.device.physical_block_size,
    }
    seen = SEEN | {name: str(size or 512) for name, size in sizes.items()} | stack.kernel.asked
    return seen | {"scheduler": f"[{stack.kernel.scheduler or 'none'}] bfq"}


def commands_of(stack: Stack) -> dict[str, Mapping[str, Any]]:
    return {one.arguments["id"]: one.arguments for one in (*device_commands(stack, "n"), *guest_threads(stack))}


def process_of(stack: Stack, place: Path) -> Process:
    """A process that runs a stack's emulator."""
    (place / "7").mkdir()
    (place / "7/exe").symlink_to(stack.machine.emulator or "/usr/bin/another")
    return Process(7, proc=place)


def on_qemu(stack: Stack, ran: Stack, place: Path) -> Iterator[Check]:
    yield from of_image(stack, ran)
    ask = HonestQemu(ran, commands_of(ran))
    devices = {name: given for name, given in commands_of(stack).items() if "driver" in given}
    yield from device_checks(ask, devices, stack)
    if stack.device.vfio_pci is not None:
        here = HostsSide(driver="vfio-pci", pid=1, held={"/dev/vfio/7"}, locked_bytes=2**28)
        yield passed_check(ask, A_DRIVE, here, {"sectors": "2048"}, by_serial=True)
    yield from thread_checks(ask, stack)
    yield from machine_checks(ask, stack, process_of(ran, place), "QEMU", str(ran.machine.vcpus))
    yield from guest_checks(stack, seen_of(ran), vcpus=2, writes=True)
    yield from kernel_checks(stack, (seen_of(ran),), proof="/sys")
    yield from of_threads(stack, ran)


@pytest.mark.parametrize(
    ("prints", "running", "agrees"),
    [
        ("QEMU emulator version 9.2.1 (Some 1:9.2.1-1)", "QEMU 9.2.1 Some 1:9.2.1-1", (True, True)),
        ("QEMU emulator version 9.2.1 (v9.2.1-3-gabcdef)", "QEMU 9.2.1", (True, True)),
        ("QEMU emulator version 9.2.1", "QEMU 7.2.22 Debian 1:7.2+dfsg-7", (False, None)),
        ("QEMU emulator version 9.2.1", "QEMU 9.2.11", (False, None)),
        ("of no version", "QEMU 9.2.1", (None, None)),
    ],
)
def test_a_script_that_starts_another_qemu_than_it_says_is_found_out(
    prints: str, running: str, agrees: tuple[bool | None, ...], tmp_path: Path
) -> None:
    script = tmp_path / "qemu"
    script.write_text(f"#!/bin/sh\necho '{prints}'\n")
    script.chmod(0o755)
    stack = replace(Stack(rig="qemu"), machine=Machine(emulator=str(script)))
    found = {
        one.setting: one.agrees
        for one in machine_checks(HonestQemu(stack), stack, process_of(Stack(), tmp_path), running, None)
    }
    assert (found["qemu.version"], found["machine.emulator"]) == agrees


def of_threads(stack: Stack, ran: Stack) -> Iterator[Check]:
    spent = {"iothread": 10**9} if ran.in_iothread else {"main": 10**9}
    check = guest_iothread_check(stack, Spent(by_role=spent))
    if check is not None:
        yield check


def written_by_libvirt(stack: Stack) -> str:
    return plug_xml(stack, image="/i", target="vdz", name="virtune-1", writable=True)


def on_libvirt(stack: Stack, ran: Stack, image: Path) -> Iterator[Check]:
    asked, disk = (read_document(written_by_libvirt(one).encode()).root for one in (stack, ran))
    yield from (one for one in of_image(stack, ran) if one.setting == "disk.aio")
    direct = os.O_DIRECT if ran.disk.cache in DIRECT_CACHES else 0
    write_qcow2(image, ran)
    descriptor = os.open(image, os.O_RDONLY | direct)
    yield from cache_check(stack, Process(os.getpid()), image, disk, SEEN)
    os.close(descriptor)
    yield from image_checks(stack, image)
    yield from disk_checks(stack, asked, disk, seen_of(ran), vcpus=2, writes=True)
    yield from of_threads(stack, ran)


def write_qcow2(path: Path, stack: Stack) -> None:
    """Write the head of a qcow2 image of version 3."""
    disk = stack.disk
    bits, extended = (disk.cluster_size or 65536).bit_length() - 1, (disk.extended_l2 or False) << 4
    head = struct.pack(">4sI12xI48xQQ", b"QFI\xfb", 3, bits, extended, disk.lazy_refcounts or False)
    path.write_bytes(head.ljust(4096, b"\0"))


def what_it_is_told(stack: Stack) -> object:
    """All that the rig's dialect writes for a stack, what the image is made with, and where it runs."""
    of_image = qcow2_options(stack.disk), stack.disk.format, image_bytes(stack.disk, 2**30)
    of_host = stack.cache_state, stack.place, stack.neighbour, stack.pins.load, stack.load_depth, stack.of_this_host
    beside = copied_to(stack)
    of_guests = stack.kernel, stack.guests, stack.idle_guests, stack.own_images, stack.spread, stack.pins
    match stack.rig:
        case "storage-daemon":
            return daemon_commands(stack, PLACES), of_image, of_host
        case "libvirt":
            return written_by_libvirt(stack), of_image, stack.kernel.asked, stack.of_this_host, stack.during
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
    return argv, commands, of_image, of_guests, of_host, beside


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_the_dialect_writes_the_knob_or_the_guests_are_brought_up_by_it(rig: str, knob: str) -> None:
    without, stack = stack_with(rig, knob)
    assert contradictions(stack) == ()
    if (rig, knob) == ("libvirt", "device.bus"):
        assert "bus='virtio'" in written_by_libvirt(stack)
        return
    assert what_it_is_told(stack) != what_it_is_told(without), f"{knob} changes nothing that {rig} is told"


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_a_check_names_the_knob_or_the_rigs_row_says_why_none_can(rig: str, knob: str, tmp_path: Path) -> None:
    _, stack = stack_with(rig, knob)
    if knob in not_shown(stack):
        assert knob not in to_verify(stack)
        return
    if (rig, knob) != ("libvirt", "device.bus"):
        assert knob in to_verify(stack)
    if knob in SEEN_ELSEWHERE:
        return  # by the test that is named there
    named = [check for check in found_of(stack, stack, tmp_path) if check.setting == knob]
    assert named, f"no check of {rig} names {knob}"
    assert any(check.found is not None for check in named), f"no check of {rig} finds {knob}"
    assert all(check.agrees is not False for check in named), named


def found_of(stack: Stack, ran: Stack, place: Path) -> list[Check]:
    """The checks of a stack where another one may have run."""
    if stack.rig == "libvirt":
        return [*on_libvirt(stack, ran, place / "image")]
    return [*(on_daemon(stack, ran) if stack.rig == "storage-daemon" else on_qemu(stack, ran, place))]


@pytest.mark.parametrize(("rig", "knob"), CASES)
def test_a_rig_that_runs_without_the_knob_is_found_out(rig: str, knob: str, tmp_path: Path) -> None:
    without, stack = stack_with(rig, knob)
    alike = setting_of(without, BY_ID[knob]) == setting_of(stack, BY_ID[knob])
    if knob in not_shown(stack) or knob in SEEN_ELSEWHERE or alike:
        return
    found = [check.agrees for check in found_of(stack, without, tmp_path) if check.setting == knob]
    assert True not in found
    assert False in found or knob == "machine.emulator", f"{rig} may run without {knob}"  # a wrapper runs another


def test_the_number_of_guests_is_counted_and_the_second_ones_image_is_looked_for(tmp_path: Path) -> None:
    assert spread_check(str(tmp_path), tmp_path / "image").agrees is True
    assert spread_check(str(tmp_path), Path("/elsewhere/image")).agrees is False


def test_where_threads_and_memory_lie_is_read_from_the_process() -> None:
    mine = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    stack = replace(Stack(rig="qemu"), pins=replace(Stack().pins, emulator=mine))
    assert [check.setting for check in place_checks(stack, Process(os.getpid()))] == ["emulator.pin"]
    placed = replace(Stack().machine, hugepages=cast(Any, 2**21), numa="0")
    seen = [check.setting for check in memory_checks(placed, Process(os.getpid()))]
    assert seen == ["memory.hugepages", "memory.numa"]


SEEN_ELSEWHERE = frozenset({
    "guests.count", "guests.idle", "guests.images",  # tests/guests: only several machines can be counted
    "host.cache", "disk.place", "host.neighbour", "load.pin",  # test_surroundings
    *(f"host.{one.name}" for one in fields(Host)),  # test_host_settings
    "workload.iodepth",  # test_surroundings: by the result of the load
    "disk.during",  # tests/guests/test_during.py: only a job under load shows it
    "disks.count", "disks.iothreads", "disks.second",  # tests/guests: only a machine with several shows them
    "disk.filesystem", "guest.blk_poll_queues",  # tests/guests: only a guest mounts it, and loads its driver
    *(f"guest.{one.name}" for one in fields(Kernel) if one.name.startswith("mount_")),
    "guests.spread", "vcpu.pin", "emulator.pin", "iothread.pin",
    "memory.hugepages", "memory.numa", "memory.thp", "memory.ksm",  # the two tests above, and test_settings_of_guests
})  # fmt: skip
"""Knobs that no honest monitor shows, since they are seen on processes."""
