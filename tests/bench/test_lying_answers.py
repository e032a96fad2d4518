# SPDX-License-Identifier: Apache-2.0
"""Every verifier of a stack's settings is told something else than was asked for, and must say so.

An honest QEMU cannot tell a verifier from one that answers "as asked", so each setting of each has a lie here,
and the tests fail for a verifier, or a setting of one, that has none.
"""

import ast
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import virtune.bench
from virtune.bench.daemon import Served, export_checks
from virtune.bench.daemon import iothread_check_under_load as export_thread
from virtune.bench.during import BlockJob, Snapshots
from virtune.bench.guest.agent import Mounted
from virtune.bench.libvirt.during import DomainJob, DomainSnapshots
from virtune.bench.qemu.carried import (
    Carried,
    FurtherDisks,
    halt_poll_check,
    memory_checks,
    place_checks,
    require_memory,
    through_device,
)
from virtune.bench.qemu.during import Discards, Migrations
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import images_check, spread_check
from virtune.bench.qmp import Monitor
from virtune.bench.surroundings import LoudNeighbour
from virtune.bench.verify import (
    Activity,
    Opened,
    Spent,
    cache_checks,
    direct_check,
    engine_check,
    engine_check_under_load,
    guest_checks,
    iothread_check_under_load,
    kernel_checks,
    mapping_check_under_load,
    node_checks,
    rbd_checks,
)
from virtune.dialects.qemu.guest import device_id
from virtune.dialects.qemu.qmp import COPY_NODE
from virtune.model.errors import RigError
from virtune.model.evidence import Check
from virtune.model.knobs import BY_ID
from virtune.model.stack import LIMITS, During, Kernel, Stack, with_setting
from virtune.probe.process import Process, Rings

Verifier = Callable[..., Any]


def asked(*settings: str) -> Stack:
    stack = Stack()
    for setting in settings:
        name, _, value = setting.partition("=")
        stack = with_setting(stack, BY_ID[name], BY_ID[name].read(value))
    return stack


def features(*bits: int) -> str:
    return "".join("1" if bit in bits else "0" for bit in range(64))


def seen(stack: Stack, **facts: str) -> Iterator[Check]:
    return guest_checks(stack, facts, vcpus=4, writes=True)


def of_kernel(setting: str, *disks: Mapping[str, str]) -> Iterator[Check]:
    return kernel_checks(asked(f"guest.{setting}"), disks, proof="/sys")


def mounted(*told: str, kinds: tuple[str, ...] = ("ext4", "ext4"), **asked_for: Any) -> Iterable[Check]:
    """What is found of disks of which the kernel tells these options."""
    lines = tuple("/dev/vda /mnt/vda ext4 rw" for _ in told)
    return Mounted(files=(), size_bytes=0, kinds=kinds, lines=lines, options=told).checks("ext4", Kernel(**asked_for))


def nodes(**changes: Any) -> list[Mapping[str, Any]]:
    """The nodes of a raw file, opened with cache=none, but for what is changed."""
    cache = {"direct": True, "no-flush": False, **changes.pop("cache", {})}
    details = {"extended-l2": False, "lazy-refcounts": False}
    top = {
        "node-name": "format0", "drv": "raw", "detect_zeroes": "off", "cache": cache, "backing_file_depth": 0,
        "image": {"cluster-size": 65536, "format-specific": {"data": details}},
    } | changes.get("top", {})  # fmt: skip
    return [{"node-name": "file0", "drv": "file", "cache": cache, "image": {}} | changes.get("below", {}), top]


def of_image(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a node shows of its image's own format."""
    return {"image": {"format-specific": {"data": details}}}


ENCRYPTED = {"encrypt": {"format": "luks"}}
DIRECT, CACHED = Opened(direct="on", proof="flags"), Opened(direct="off", proof="flags")
QCOW2 = ("disk.format=qcow2",)
SOME = {"throttle_iops": "500", "throttle_bps": "1048576"}
POOL = {"image": {"filename": 'json:{"driver": "rbd", "pool": "other", "image": "virtune-1"}'}}
ON_CEPH = ("disk.backend=rbd", "disk.rbd=vms")


def ring(kind: str) -> Activity:
    return Activity(moved={(kind, 1): 7}, io_ns=10**9)


WORKERS = Activity(moved={}, workers_ns=10**9, io_ns=10**9)
EXPORT = ("disk.export=vhost-user-blk", "export.num_queues=2", "iothread.poll_max_ns=0")
SERVED = Served(kind="nbd", threads=frozenset({7}), poll_max_ns=32768, queues=1)
MAPPING = asked("device.num_queues=2", "device.iothread_vq_mapping=io1+io2")


class Disks:
    """A monitor that shows the disks of a guest, each by the driver of its device and its IOThread."""

    def __init__(self, *disks: tuple[str, str]) -> None:
        self._disks = disks

    def execute(self, command: str, arguments: Mapping[str, Any]) -> Any:
        disks = {device_id(number): one for number, one in enumerate(self._disks)}
        name = arguments["path"].rpartition("/")[2]
        if command == "qom-list":
            return [{"name": one} for one in (("type", "iothread") if name in disks else disks)]
        driver, thread = disks[name]
        return {"type": driver, "iothread": f"/objects/{thread}"}[arguments["property"]]


def further(disks: Disks, *settings: str) -> Iterator[Check]:
    stack = asked("disks.count=2", "device.iothread=io1", *settings)
    found = FurtherDisks(cast(Monitor, disks), swap=None, park=lambda *_: None)
    found._stacks = [stack]
    return found.checks(stack, ["vda", "vdb"])


def on_image(*names: str) -> list[Any]:
    return [SimpleNamespace(image=Path(name)) for name in names]


def runs_on_tcg() -> Check:
    machine = SimpleNamespace(
        _execute=lambda _: {"enabled": False}, accelerator=Accelerator(kvm=True, why="", tried=True)
    )
    return Carried._accelerator_check(cast(Any, machine))


def stands_still(kind: During) -> BlockJob:
    """A job that QEMU says to be running, and that copies nothing more."""
    said = {"id": "during0", "type": kind, "status": "running", "current-progress": 2**20}
    made = Snapshots if kind == "snapshot" else BlockJob
    job = made(kind, lambda _, __: [said], source="format0", copy=Path("/copy"), disk=Stack().disk)
    job.mark()
    job.mark()
    return job


def no_further(kind: During) -> Check:
    """A libvirt that shows a job which copies nothing more."""
    virsh = SimpleNamespace(run=lambda *_: " type=Block Copy\n bandwidth=0\n cur=4096\n end=8192\n")
    job = DomainJob(kind, cast(Any, virsh), "uuid", "vdb", Path("/copy"))
    job.mark()
    job.mark()
    return job.check()


def puts_none_above() -> Check:
    """A libvirt that agrees to each snapshot, and shows the disk without one."""
    disk = "<disk><source file='image.raw'/><target dev='vdb'/></disk>"
    live = f"<domain type='qemu'><devices>{disk}</devices></domain>"
    virsh = SimpleNamespace(uri="", run=lambda *words: live if words[0] == "dumpxml" else "")
    with tempfile.TemporaryDirectory() as home:
        image = Path(home, "image.raw")
        image.write_bytes(bytes(4096))
        job = DomainSnapshots(
            cast(Any, virsh), "uuid", "vdb", Path(home, "over.qcow2"), image=image, disk=Stack().disk
        )
        job._begin()
        job.mark()
        job.mark()
        return job.check()


def takes_none() -> Check:
    """A QEMU that agrees to each snapshot, and puts none above the disk."""
    said = {"id": "during0", "status": "concluded", "current-progress": 0}

    def ask(command: str, _: Mapping[str, object]) -> Any:
        if command == "job-dismiss":
            said["status"] = "running"
        nodes = [{"node-name": name, "backing_file_depth": 0, "image": {"virtual-size": 4096}} for name in NODES]
        return [said] if command == "query-jobs" else nodes

    with tempfile.NamedTemporaryFile() as file:
        job = Snapshots("snapshot", ask, source=NODES[0], copy=Path(file.name), disk=Stack().disk)
        job.run().__enter__()
        job.mark()
        job.mark()
        return job.check()


def discards_no_more() -> Check:
    """A QEMU whose image's file did discards before they were to be measured."""
    node = {"node-name": "file0-1", "driver-specific": {"discard-nb-ok": 7, "discard-bytes-ok": 7 * 2**20}}
    job = Discards(lambda *_: [node], cast(Any, None), device="/dev/vda", size=0, top="format0-1", file="file0-1")
    job.mark()
    job.mark()
    return job.check()


def sends_zeros() -> Check:
    """A QEMU that migrates a VM whose memory was never written."""
    pages = count(1, 1000)

    def ask(*_: object) -> Any:
        ram = {"normal-bytes": 40960, "duplicate": next(pages), "page-size": 4096, "dirty-sync-count": 1}
        return {"status": "active", "ram": ram}

    job = Migrations(ask, cast(Any, None))
    job.mark()
    job.mark()
    return job.check()


NODES = ("format0", COPY_NODE)


BLK = "virtio-blk-pci"
THROUGH = Check(setting="disk.cache", asked="writethrough", found="writethrough", proof="")

LIES: list[tuple[Verifier, str, Callable[[], Iterable[Check | None]]]] = [
    (guest_checks, "guest.write_cache", lambda: seen(asked(), write_cache="write through")),
    (guest_checks, "guest.write_cache", lambda: seen(asked("disk.cache=directsync"), write_cache="write back")),
    (guest_checks, "guest.write_cache", lambda: seen(asked("device.write_cache=off"), write_cache="write back")),
    (guest_checks, "guest.queues", lambda: seen(asked("device.num_queues=4"), queues="1")),
    (guest_checks, "guest.queues", lambda: seen(asked("device.num_queues=8"), queues="8")),
    (guest_checks, "guest.packed", lambda: seen(asked("device.packed=on"), features=features(29))),
    (guest_checks, "guest.packed", lambda: seen(asked("device.packed=off"), features=features(29, 34))),
    (guest_checks, "guest.event_idx", lambda: seen(asked("device.event_idx=on"), features=features(34))),
    (guest_checks, "guest.event_idx", lambda: seen(asked("device.event_idx=off"), features=features(29, 34))),
    (guest_checks, "guest.queue_size",
     lambda: seen(asked("device.queue_size=256"), scheduler="[none]", nr_requests="64")),
    (guest_checks, "guest.queue_depth", lambda: seen(asked("device.bus=ide"), queue_depth="32")),
    (guest_checks, "device.logical_block_size",
     lambda: seen(asked("device.logical_block_size=4096"), logical_block_size="512")),
    (guest_checks, "device.physical_block_size",
     lambda: seen(asked("device.physical_block_size=4096"), physical_block_size="512")),
    (direct_check, "O_DIRECT", lambda: [direct_check(asked("disk.cache=none").disk, CACHED)]),
    (direct_check, "O_DIRECT", lambda: [direct_check(asked("disk.cache=writeback").disk, DIRECT)]),
    (cache_checks, "O_DIRECT", lambda: cache_checks(asked("disk.cache=none"), CACHED, nodes())),
    (cache_checks, "cache.no-flush",
     lambda: cache_checks(asked("disk.cache=none"), DIRECT, nodes(cache={"no-flush": True}))),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=none"), CACHED, nodes())),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=unsafe"), CACHED, nodes())),
    (cache_checks, "disk.cache",
     lambda: cache_checks(asked("disk.cache=writeback"), CACHED, nodes(cache={"no-flush": True}))),
    (cache_checks, "disk.cache", lambda: cache_checks(asked("disk.cache=directsync"), CACHED, nodes())),
    (node_checks, "disk.backend", lambda: node_checks(asked(), nodes(below={"drv": "null-co"}), None)),
    (node_checks, "disk.format", lambda: node_checks(asked(*QCOW2), nodes(), None)),
    (node_checks, "disk.detect_zeroes", lambda: node_checks(asked(), nodes(top={"detect_zeroes": "unmap"}), None)),
    (node_checks, "disk.cluster_size",
     lambda: node_checks(asked(*QCOW2, "disk.cluster_size=131072"), nodes(), None)),
    (node_checks, "disk.extended_l2", lambda: node_checks(asked(*QCOW2, "disk.extended_l2=on"), nodes(), None)),
    (node_checks, "disk.lazy_refcounts", lambda: node_checks(asked(*QCOW2, "disk.lazy_refcounts=on"), nodes(), None)),
    (node_checks, "disk.backing_depth", lambda: node_checks(asked(*QCOW2, "disk.backing_depth=4"), nodes(), None)),
    (node_checks, "disk.backing_depth",
     lambda: node_checks(asked(*QCOW2, "disk.backing_depth=0"), nodes(top={"backing_file_depth": 1}), None)),
    (node_checks, "disk.data_file", lambda: node_checks(asked(*QCOW2, "disk.data_file=on"), nodes(), None)),
    (node_checks, "disk.data_file",
     lambda: node_checks(asked(*QCOW2, "disk.data_file=off"), nodes(top=of_image({"data-file": "/d"})), None)),
    (node_checks, "disk.encryption", lambda: node_checks(asked(*QCOW2, "disk.encryption=luks"), nodes(), None)),
    (node_checks, "disk.encryption",
     lambda: node_checks(asked(*QCOW2, "disk.encryption=none"), nodes(top=of_image(ENCRYPTED)), None)),
    *((node_checks, one.knob, lambda one=one: node_checks(asked(f"{one.knob}=500"), nodes(), {one.qmp: 50}))
      for one in LIMITS),
    *((node_checks, one.knob, lambda one=one: node_checks(asked(f"{one.knob}=500"), nodes(), {})) for one in LIMITS),
    (rbd_checks, "disk.rbd", lambda: rbd_checks(asked(*ON_CEPH), nodes(below=POOL))),
    (rbd_checks, "disk.cache", lambda: rbd_checks(asked(*ON_CEPH), nodes(cache={"direct": False}))),
    (iothread_check_under_load, "device.iothread",
     lambda: [iothread_check_under_load(asked("device.iothread=io1"), Spent(by_role={"main": 10**9}))]),
    (iothread_check_under_load, "device.iothread",
     lambda: [iothread_check_under_load(asked(), Spent(by_role={"iothread": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_iothread={"io3": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_iothread={"io1": 10**9, "io3": 10**9}))]),
    (mapping_check_under_load, "device.iothread_vq_mapping",
     lambda: [mapping_check_under_load(MAPPING, Spent(by_role={"main": 10**9}))]),
    (engine_check, "disk.aio",
     lambda: [engine_check("native", {("io_uring", 1)}, Rings(places={("io_uring", 1): 0}))]),
    *((engine_check_under_load, "disk.aio", lambda one=one, ran=ran: [engine_check_under_load(one, ran)])
      for one, ran in (("native", WORKERS), ("io_uring", WORKERS), ("native", ring("io_uring")),
                       ("io_uring", ring("native")), ("threads", ring("native")), ("threads", ring("io_uring")))),
    (export_checks, "disk.export", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_checks, "iothread.poll_max_ns", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_checks, "export.num_queues", lambda: export_checks(asked(*EXPORT), SERVED)),
    (export_thread, "export.iothread", lambda: [export_thread(asked(*EXPORT, "export.iothread=on"), 7, 0, 10**9)]),
    (export_thread, "export.iothread", lambda: [export_thread(asked("disk.export=nbd"), 7, 10**9, 0)]),
    (Carried._accelerator_check, "accelerator", lambda: [runs_on_tcg()]),
    (through_device, "disk.cache",
     lambda: [through_device(THROUGH, asked("disk.cache=writethrough"), {"write_cache": "write back"})]),
    (FurtherDisks.checks, "disks.count", lambda: further(Disks((BLK, "io1")))),
    (FurtherDisks.checks, "disks.iothreads",
     lambda: further(Disks((BLK, "io1"), (BLK, "io1")), "disks.iothreads=on")),
    (FurtherDisks._second_check, "disks.second",
     lambda: further(Disks((BLK, "io1"), (BLK, "io1")), "disks.second=bus=virtio-scsi")),
    (halt_poll_check, "host.halt_poll_ns", lambda: [halt_poll_check(asked("host.halt_poll_ns=0"), 8929)]),
    (spread_check, "guests.spread", lambda: [spread_check("/srv", Path("/elsewhere/image"))]),
    (images_check, "guests.images",
     lambda: [images_check(on_image("/one", "/one"), {Path("/one"), Path("/two")})]),
    (Mounted.checks, "disk.filesystem", lambda: mounted("", "", kinds=("ext4", "none"))),
    (Mounted.checks, "guest.mount_noatime", lambda: mounted("rw,noatime", "rw,relatime", mount_noatime=True)),
    (Mounted.checks, "guest.mount_commit", lambda: mounted("rw,commit=30", "rw,commit=5", mount_commit=30)),
    (Mounted.checks, "guest.mount_data", lambda: mounted("data=ordered", "data=writeback", mount_data="writeback")),
    (Mounted.checks, "guest.mount_barrier", lambda: mounted("rw,nobarrier", "rw,barrier", mount_barrier=False)),
    (kernel_checks, "guest.scheduler", lambda: of_kernel("scheduler=none", {"scheduler": "none [bfq]"})),
    (kernel_checks, "guest.scheduler",
     lambda: of_kernel("scheduler=none", {"scheduler": "[none] bfq"}, {"scheduler": "none [bfq]"})),
    *((kernel_checks, f"guest.{name}", lambda name=name, asked=asked: of_kernel(f"{name}={asked}", {name: "1"}))
      for name, asked in (("nr_requests", 64), ("rq_affinity", 2), ("nomerges", 2), ("read_ahead_kb", 64),
                          ("max_sectors_kb", 64))),
    (kernel_checks, "guest.blk_poll_queues", lambda: of_kernel("blk_poll_queues=1", {"blk_poll_queues": "0"})),
    (LoudNeighbour.check, "host.neighbour", lambda: LoudNeighbour("cpu", 2**30).check()),
    (LoudNeighbour.check, "host.neighbour", lambda: LoudNeighbour("io", 2**30).check()),
    (BlockJob.check, "disk.during", lambda: [stands_still("backup").check()]),
    (BlockJob.check, "disk.during", lambda: [stands_still("mirror").check()]),
    (Snapshots.check, "disk.during", lambda: [stands_still("snapshot").check()]),
    (DomainJob.check, "disk.during", lambda: [no_further("mirror")]),
    (DomainJob.check, "disk.during", lambda: [no_further("backup")]),
    (Snapshots.check, "disk.during", lambda: [takes_none()]),
    (DomainSnapshots.check, "disk.during", lambda: [puts_none_above()]),
    (Discards.check, "disk.during", lambda: [discards_no_more()]),
    (Migrations.check, "disk.during", lambda: [sends_zeros()]),
]  # fmt: skip

PROVEN_UNDER_LOAD = {("export_checks", "export.iothread"), ("_second_check", "disks.count")}
"""What one verifier leaves to another, which has its lie."""


@pytest.mark.parametrize(("verifier", "setting", "lie"), LIES, ids=[f"{one[0].__name__}-{one[1]}" for one in LIES])
def test_an_answer_that_is_not_what_was_asked_for_is_said(
    verifier: Verifier, setting: str, lie: Callable[[], Iterable[Check | None]]
) -> None:
    found = [one for one in lie() if one is not None and one.setting == setting]
    assert [one.agrees for one in found] == [False], f"{verifier.__name__} believes it"


@pytest.mark.parametrize("name", ["CPU 0/KVM", "IO io1", "worker", "qemu-system-x86"])
def test_a_thread_that_runs_elsewhere_than_its_role_is_found_out(name: str, tmp_path: Path) -> None:
    pins = "vcpu.pin=0", "iothread.pin=0", "emulator.pin=0"
    own = {"CPU 0/KVM": "vcpu.pin", "IO io1": "iothread.pin", "worker": "iothread.pin"}
    for number, comm in enumerate(["qemu-system-x86", "CPU 0/KVM", "CPU 1/KVM", "IO io1", "worker"], 7):
        task = tmp_path / "7/task" / str(number)
        task.mkdir(parents=True)
        (task / "schedstat").write_text("1 1 1\n")
        (task / "comm").write_text(f"{comm}\n")
        (task / "status").write_text(f"Cpus_allowed_list:\t{'0-1' if comm == name else '0'}\n")
    found = list(place_checks(asked("device.iothread=io1", *pins), Process(7, proc=tmp_path)))
    assert {one.setting for one in found if one.agrees is False} == {own.get(name, "emulator.pin")}
    assert len(found) == len(pins)


SMALL = "AnonHugePages:       0 kB\nTHPeligible:           1\nVmFlags: rd wr mr mw me hg\n"


@pytest.mark.parametrize(
    ("asked_for", "shown", "found"),
    [
        ("thp=never", SMALL, "small pages so far"),
        ("thp=never", SMALL.replace(" 0 kB", "4096 kB"), "always or madvise"),
        ("thp=always", SMALL, "small pages so far"),
        ("thp=madvise", SMALL.replace(" 1", " 0"), "never"),
        ("thp=never", SMALL.replace("THPeligible", "Other"), None),
        ("ksm=on", SMALL, "off"),
        ("ksm=off", SMALL.replace("hg", "mg"), "on"),
        ("ksm=off", SMALL.replace("VmFlags", "Other"), None),
    ],
)
def test_a_guests_own_memory_that_is_not_as_asked_for_is_found_out(
    asked_for: str, shown: str, found: str | None, tmp_path: Path
) -> None:
    (tmp_path / "7").mkdir()
    other = "7e00-7f00 rw-p 00000000 00:00 0 \n" + SMALL.replace(" 0 kB", "2048 kB")
    (tmp_path / "7/smaps").write_text(f"{other}7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \nSize: 9 kB\n{shown}")
    machine = asked(f"memory.{asked_for}", "machine.memory=256M").machine
    (check,) = memory_checks(machine, Process(7, proc=tmp_path))
    assert (check.agrees or False, check.found) == (False, found)


def test_memory_on_other_pages_than_asked_for_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/smaps").write_text("7f00-7f01 rw-s 0 00:01 5 /memfd:memory (deleted)\nKernelPageSize:     4 kB\n")
    (check,) = memory_checks(asked("memory.hugepages=2M").machine, Process(7, proc=tmp_path))
    assert (check.agrees, check.found) == (False, "4096")


@pytest.mark.parametrize(
    ("here", "nodes", "fits"),
    [("0-1", "1", True), ("0-1", "1,0", True), ("0,8", "8", True), ("0,8", "0-1", False), ("0,8", "5", False)],
)
def test_only_nodes_that_the_host_has_can_hold_memory(here: str, nodes: str, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "online").write_text(f"{here}\n")
    with contextlib.nullcontext() if fits else pytest.raises(RigError, match=f"has the NUMA nodes {here}, and"):
        require_memory(asked(f"memory.numa={nodes}").machine, online=tmp_path / "online")


MAPS = "7f00 {policy} file=/memfd:memory-backend-memfd\\040(deleted) dirty=9 mapped=9{pages} kernelpagesize_kB=4\n"


@pytest.mark.parametrize(
    ("asked_for", "policy", "pages", "found"),
    [
        ("0", "default", " N0=9", "any node"),
        ("0", "prefer:0", " N0=9", "any node"),
        ("0", "interleave:0-1", " N0=5 N1=4", "0,1"),
        ("0", "bind:1", " N1=9", "1"),
        ("0", "bind:0-1", " N0=9", "0-1"),
        ("0", "bind:0", " N0=5 N1=4", "0,1"),
        ("0-1", "bind:0", " N0=9", "0"),
        ("0-1", "bind:0-1", " N0=9", "0-1"),
        ("0,1", "bind=static:0-1", " N0=5 N1=4", "0,1"),
        ("0", "bind:0", "", "0"),
        ("1", "bind:1", " N0=4 N1=5", "0,1"),
        ("1", "bind:1", " N0=9", "0"),
        ("0-1", "bind:0-1", " N1=9", "0-1"),
        ("1,0", "bind:0-1", " N0=9", "1,0"),
    ],
)
def test_memory_on_other_nodes_than_asked_for_is_found_out(
    asked_for: str, policy: str, pages: str, found: str, tmp_path: Path
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/numa_maps").write_text(
        "7e00 default file=/usr/bin/x N1=3\n" + MAPS.format(policy=policy, pages=pages)
    )
    (check,) = memory_checks(asked(f"memory.numa={asked_for}").machine, Process(7, proc=tmp_path))
    assert (check.found, check.agrees) == (found, found == asked_for)
    (tmp_path / "7/numa_maps").unlink()
    (check,) = memory_checks(asked(f"memory.numa={asked_for}").machine, Process(7, proc=tmp_path))
    assert (check.found, check.hidden) == (None, True), "a kernel without NUMA shows nothing"


TOLD_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("place_checks", "memory_checks"), "test_lying_answers.py"),
    **dict.fromkeys(("device_checks", "thread_checks", "machine_checks"), "test_every_knob.py"),
    **dict.fromkeys(("disk_checks", "image_checks", "cache_check"), "test_every_knob.py"),
    **dict.fromkeys(("cache_state_checks", "pin_check"), "test_surroundings.py"),
    "passed_check": "test_passthrough.py",
    "host_set": "test_host_settings.py",
}  # fmt: skip
"""Verifiers that another module's tests lie to."""

COMPOSED = {"checks", "_checks", "under_load", "look", "watch", "seen", "driver_checks", "_target"}
"""They only put together what verifiers say; `lying_daemon` and `lying_fio` lie to them as a whole."""

PARTS = {
    "requested", "cpus_check", "_check", "_thread_check", "_backend_check", "_emulator_check", "_version_check",
    "_thp_check", "_ksm_check",
}  # fmt: skip
"""Each makes one check of a verifier, which has a lie of its own."""

LOOKED_AT = {"_own_checks", "_several", "_polling_check"}
"""How a load itself opened its files, of which only a real one has descriptors: `test_rigs`, `lying_fio`; and
whether a real disk polls for completions: `test_host_settings`, `test_machines`."""


def verifiers() -> Iterator[str]:
    """The names of all functions of the room that return checks."""
    for path in sorted(Path(next(iter(virtune.bench.__path__))).rglob("*.py")):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.FunctionDef) and one.returns is not None and path.name != "simulated.py":
                names = {name.id for name in ast.walk(one.returns) if isinstance(name, ast.Name)}
                if "Check" in names:
                    yield one.name


def test_every_verifier_and_every_setting_of_one_has_a_lie() -> None:
    lied_to = {one.__name__ for one, _, _ in LIES}
    assert set(verifiers()) - lied_to - TOLD_ELSEWHERE.keys() - COMPOSED - PARTS - LOOKED_AT == set()
    for name, file in TOLD_ELSEWHERE.items():
        assert f"{name}(" in Path(__file__).with_name(file).read_text()
    lied = {(one.__name__, setting) for one, setting, _ in LIES} | PROVEN_UNDER_LOAD
    said = {(one.__name__, check.setting) for one, _, lie in LIES for check in lie() if check is not None}
    assert said <= lied
