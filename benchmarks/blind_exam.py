# SPDX-License-Identifier: Apache-2.0
"""Does `diagnose` name what makes a VM's disk slow, judged by somebody who does not know by which rules it decides?

    python -m benchmarks.blind_exam [--only TEXT] [--seconds 6] [--keep FILE.jsonl] [--grade FILE.jsonl]

Starts a real QEMU with a small Linux (`virtune host guest build`, one with AHCI and NVMe) as Proxmox VE starts it,
plants one fault at a time, and asks `virtune diagnose` and `virtune top --once` through QMP. What was planted counts
only if it is seen active by other means: QEMU's own counters, the CPU time and the waits of its threads,
/proc/diskstats, the rate before and after. Waits for a CPU that others caused are a true cause too: they are measured
over the same seconds.

Root, nbdkit with its Python plugin, nbdfuse and fio are needed. `--grade` grades kept answers again. The results are
in blind_exam.md.
"""

import argparse
import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.blind_rig import Bench, Disk, Seen, between, end_process, fio, nbd_disk, prefer, raw, sample

VIRTUNE = [sys.executable, "-m", "virtune"]


@dataclass(frozen=True)
class Planting:
    """One row of the exam."""

    name: str
    true: str  # causes that are true, in the words of MEANS; every other one is false
    plant: Callable[[Bench], object]  # ends with the start of the VM
    load: str = ""  # a line for the guest's shell
    during: Callable[[Bench], object] | None = None  # the fault, where it comes while the load runs
    force: Callable[[Seen], bool] = lambda s: s.rate < 0.7 * s.before  # is it active, and what limits the load?
    also: str = ""  # neither right nor false


def job(bench: Bench, command: str, **arguments: Any) -> None:
    """Start a block job of the first drive."""
    bench.guests[0].qmp(command, device=bench.guests[0].drive, **arguments)


def two_guests(bench: Bench, second: str) -> None:
    """Two VMs on the same device; the second works from now on if a load is given."""
    disk = raw(bench.slow(at_once=2, read=0.003, write=0.003), how="file.locking=off")
    for load in ("", second):
        bench.start(disk).run(load)


def strict_pages(bench: Bench, front: str = "virtio") -> None:
    """An image on a file system of a slow device that holds few dirty pages, with cache=writeback."""
    device = bench.slow(at_once=2, write=0.01)
    place = bench.name(".mnt")
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", device], check=True)
    subprocess.run(["mount", device, place], check=True)
    bench.stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    bdi = Path(f"/sys/class/bdi/{Path(f'/sys/block/{bench.devices[0]}/dev').read_text().strip()}")
    (bdi / "strict_limit").write_text("1")
    (bdi / "max_bytes").write_text(str(2 * 1024**2))
    path = bench.image("-f", "raw", path=str(place / "vm.raw"), size="600M")
    bench.start(Disk(f"file={path}", front, "format=raw,cache=writeback,aio=threads"))


def chain(bench: Bench, length: int) -> str:
    """Return the top of many overlays, the lowest of which lies on a slow device."""
    device = bench.slow(read=0.004)
    lower, form = device, "raw"
    for _ in range(length):
        lower, form = bench.image("-f", "qcow2", "-b", lower, "-F", form), "qcow2"
    return lower


def on_slow_qcow2(bench: Bench, options: str, how: str, **delays: Any) -> Disk:
    """A qcow2 on a slow device, whose tables are all there."""
    options += ",preallocation=metadata"
    path = bench.image("-f", "qcow2", "-o", options, path=bench.slow(**delays), size="900M")
    return Disk(f"file={path}", how=f"format=qcow2,cache=none,aio=io_uring{how}")


def disk_full(bench: Bench) -> None:
    """A qcow2 on a file system that has no room for it."""
    place = bench.name(".mnt")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "exam", place], check=True)
    bench.stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
    path = bench.image("-f", "qcow2", path=str(place / "vm.qcow2"))
    bench.start(Disk(f"file={path}", how="format=qcow2,cache=writeback,aio=threads"))


def bad_sectors(bench: Bench, how: str) -> None:
    """An image some of whose reads fail."""
    rules = bench.name(".conf")
    rules.write_text('[inject-error]\nevent = "read_aio"\nerrno = "5"\nsector = "8192"\n')
    bench.start(Disk(f"file=blkdebug:{rules}:{bench.file()}", how=f"format=raw,cache=none,{how}"))


def in_group(bench: Bench) -> None:
    """A VM whose memory was always counted by a control group of its own."""
    line = next(one for one in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in one)
    bench.cgroup("memory", {}, os.getpid())
    bench.start(raw(bench.file()))
    (bench.cgroups[0].parent / line.split(":/")[1] / "cgroup.procs").write_text(str(os.getpid()))


def small_memory(bench: Bench) -> None:
    """Leave a VM half of the memory that it works with; the rest goes to a swap device that is slow."""
    swap = bench.slow(read=0.002, write=0.0005)
    subprocess.run(["mkswap", swap], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["swapon", swap], check=True)
    bench.stack.callback(subprocess.run, ["swapoff", swap], check=False)
    bench.stack.callback(end_process, bench.guests[0].pid)
    for _ in range(5):  # it takes what was written to swap meanwhile
        with suppress(OSError):
            (bench.cgroups[0] / "memory.limit_in_bytes").write_text(str(120 * 1024**2))


def luks_image(bench: Bench) -> str:
    """An image that is encrypted; on a busy host qemu-img cannot always measure how fast a key is derived."""
    secret = ["--object", "secret,id=s,data=exam"]
    for _ in range(20):
        with suppress(subprocess.CalledProcessError):
            return bench.image(*secret, "-f", "luks", "-o", "key-secret=s,iter-time=100", size="600M")
    raise RuntimeError("no image was encrypted")


def luks(bench: Bench, *, iothread: bool) -> None:
    """A disk that QEMU encrypts."""
    disk = Disk(
        f"file={luks_image(bench)}", how="format=luks,key-secret=s,cache=none,aio=io_uring", iothread=iothread
    )
    bench.start(disk, smp=2, more="-object secret,id=s,data=exam")


def compressed(bench: Bench) -> Disk:
    """A compressed qcow2 on this host's disk."""
    source = bench.name(".src")
    words = f"fio --name=x --filename={source} --size=512m --rw=write --bs=1m --buffer_compress_percentage=50"
    subprocess.run(words.split(), check=True, stdout=subprocess.DEVNULL)
    path = bench.name(".qcow2")
    subprocess.run(["qemu-img", "convert", "-c", "-O", "qcow2", source, path], check=True)
    return Disk(f"file={path}", how="format=qcow2,cache=none,aio=io_uring")


def luks_beside(bench: Bench) -> None:
    """A fast disk, and another one that QEMU encrypts."""
    other = Disk(f"file={luks_image(bench)}", how="format=luks,key-secret=s,cache=none,aio=io_uring")
    bench.start(raw(bench.file()), other, smp=2, more="-object secret,id=s,data=exam")


def polling(bench: Bench) -> None:
    """An IOThread that polls, on a slow device."""
    more = "-object iothread,id=polls,poll-max-ns=20000000"
    bench.start(raw(bench.slow(read=0.005), device="iothread=polls"), more=more)


def pool_of_one(bench: Bench) -> None:
    """A pool of one worker for a device that could do more at a time."""
    disk = Disk(f"file={bench.slow(read=0.005)}", how="format=raw,cache=none,aio=threads")
    bench.start(disk, more="-object main-loop,id=main,thread-pool-max=1")


def on_backing(bench: Bench, *filters: str, **delays: Any) -> None:
    """An overlay of an image on a device that is slow."""
    base = bench.slow(*filters, **delays)
    path = bench.image("-f", "qcow2", "-b", base, "-F", "raw")
    bench.start(Disk(f"file={path}", how="format=qcow2,cache=none,aio=io_uring"))


def vm_on(*specs: Any, **options: Any) -> Callable[[Bench], object]:
    """A VM whose disks are made by functions of the bench."""
    return lambda b: b.start(*(one(b) for one in specs), **options)


def fast(**options: Any) -> Callable[[Bench], Disk]:
    """A disk as fast as this host is."""
    return lambda b: raw(b.file(), **options)


def slow(*filters: str, disk: dict[str, Any] | None = None, **delays: Any) -> Callable[[Bench], Disk]:
    """A disk on a block device that is slow."""
    return lambda b: raw(b.slow(*filters, **delays), **(disk or {}))


def served(how: str = "", **delays: Any) -> Callable[[Bench], Disk]:
    """A disk on a slow NBD server."""
    return lambda b: nbd_disk(b.nbd(**delays), how)


def filed(how: str = "aio=threads", **delays: Any) -> Callable[[Bench], Disk]:
    """A disk on a slow file system."""
    return lambda b: Disk(f"file={b.fuse(**delays)}", how=f"format=raw,cache=none,{how}")


def below(ms: float, share: float = 0.7) -> Callable[[Seen], bool]:
    """Is most of a request's time at the device, and so long?"""
    return lambda s: s.device_ms >= ms and s.device_ms >= share * max(s.read_ms, s.write_ms)


def busy(s: Seen, role: str) -> bool:
    """Has a thread of QEMU always something to do?"""
    return s.run[role] > 0.5 and s.run[role] + s.wait[role] > 0.8


def idle_cpu(s: Seen) -> bool:
    """Does no thread of QEMU work at its limit or wait for a CPU?"""
    return all(one < 0.85 for one in s.run.values())


MIX = fio("randrw", depth=8)
SYNCED = "--fsync=1"
QUIET = fio("randread", depth=1, more="--rate_iops=100")
PLANTINGS = (
    # limits that were set
    Planting("drive: iops=300", "limit", vm_on(fast(how="iops=300")), fio(), force=lambda s: 240 < s.rate < 330),
    Planting("drive: bps_rd=4M, 64k", "limit", vm_on(fast(how="bps_rd=4000000")), fio(bs="64k", depth=4),
             force=lambda s: 3e6 < s.bandwidth < 4.5e6),
    Planting("drive: iops_wr=100 of a mix", "limit", vm_on(fast(how="iops_wr=100")), MIX,
             force=lambda s: s.write_ms > 20 * s.read_ms and 150 < s.rate < 260),
    Planting("drive: bps=2M for 4k at depth 1", "limit", vm_on(fast(how="bps=2000000")), fio(depth=1),
             force=lambda s: 1.6e6 < s.bandwidth < 2.3e6),
    Planting("drive: burst of 600 used up, iops=200", "limit",
             vm_on(fast(how="throttling.iops-total=200,throttling.iops-total-max=600")), fio(),
             force=lambda s: 150 < s.rate < 260),
    Planting("drive: iops=300 on virtio-scsi", "limit", vm_on(fast(front="scsi", how="iops=300")), fio(on="sda"),
             force=lambda s: 240 < s.rate < 330),
    Planting("drive: group, the neighbour disk uses it up", "limit neighbour",
             vm_on(fast(how="iops=600,group=g"), fast(how="iops=600,group=g")), fio(depth=4),
             lambda b: b.guests[0].run(fio(on="vdb", depth=32))),
    Planting("drive: iops set while it runs", "limit", vm_on(fast()), fio(),
             lambda b: b.guests[0].qmp("block_set_io_throttle", device=b.guests[0].drive, iops=250,
             iops_rd=0, iops_wr=0,
                                       bps=0, bps_rd=0, bps_wr=0)),
    Planting("loose limit of 20000, a load of 100", "nothing load", vm_on(fast(how="iops=20000")), QUIET,
             force=lambda s: 80 < s.rate < 110 and idle_cpu(s), also="depth"),
    Planting("group: blkio read_iops 200", "group-limit", vm_on(slow()), fio(),
             lambda b: b.limit_device("read_iops", 200), also="device limit"),
    Planting("group: blkio write_bps 1M", "group-limit", vm_on(slow()), fio("randwrite", "16k", 8),
             lambda b: b.limit_device("write_bps", 1024**2), also="device limit"),
    Planting("group: cpu quota of 20 %", "quota cpu", vm_on(fast()), fio(),
             lambda b: b.cgroup("cpu", {"cpu.cfs_quota_us": "20000", "cpu.shares": "30000"})),
    Planting("group: cpu quota of 30 %, IOThread", "quota cpu", vm_on(fast(iothread=True), smp=2), fio(),
             lambda b: b.cgroup("cpu", {"cpu.cfs_quota_us": "30000", "cpu.shares": "30000"})),
    Planting("group: few cpu.shares, busy neighbours", "cpu", vm_on(fast()), fio(),
             lambda b: b.cgroup("cpu", {"cpu.shares": "6000"}).hogs(4)),
    # CPUs
    Planting("4 hogs on both CPUs", "cpu", vm_on(fast()), fio(), lambda b: b.hogs(4)),
    Planting("main thread shares its CPU with 3 hogs", "cpu", vm_on(fast()), fio(),
             lambda b: b.pin({"main": "1", "vcpu": "0"}).hogs(3, "1")),
    Planting("IOThread shares its CPU with 3 hogs", "cpu", vm_on(fast(iothread=True)), fio(),
             lambda b: b.pin({"main": "0", "iothread": "1", "vcpu": "0"}).hogs(3, "1")),
    Planting("vCPU shares its CPU with 3 hogs", "cpu", vm_on(fast()), fio(),
             lambda b: b.pin({"main": "1", "vcpu": "0"}).hogs(3, "0")),
    Planting("main thread is SCHED_IDLE on the CPU of the vCPU", "cpu", vm_on(fast()), fio(),
             lambda b: (b.pin({"main": "0", "vcpu": "0"}),
                        subprocess.run(["chrt", "-i", "-p", "0", str(b.guests[0].pid)], check=True)),
             force=lambda s: s.wait["main"] > 0.5 and s.run["vcpu"] < 0.8),
    Planting("main loop: the monitor is asked without pause", "main-loop", vm_on(fast()), fio(depth=2),
             lambda b: b.thread(lambda: b.monitor("info qom-tree")), also="monitor"),
    Planting("main loop: another disk's encryption", "main-loop", luks_beside, fio(depth=1),
             lambda b: b.guests[0].run(fio("read", "1m", 8, "vdb")), also="vcpu depth"),
    Planting("LUKS, reads of 1 MiB", "main-loop block-layer crypto", lambda b: luks(b, iothread=False),
             fio("read", "1m", 8), force=lambda s: busy(s, "main")),
    Planting("LUKS in an IOThread, writes of 1 MiB", "iothread block-layer crypto", lambda b: luks(b, iothread=True),
             fio("write", "1m", 8), force=lambda s: busy(s, "iothread")),
    Planting("compressed qcow2, random 4k", "block-layer tables pool main-loop", vm_on(compressed), fio(depth=8),
             force=lambda s: s.read_ms > 0.3, also="vcpu device"),
    Planting("polling IOThread, slow device", "device", polling, fio(depth=4), force=below(4), also="depth"),
    Planting("the guest's only CPU computes hashes", "vcpu load", vm_on(fast()),
             "while :; do dd if=/dev/vda bs=64k count=2000 iflag=direct 2>/dev/null | sha512sum >/dev/null; done &",
             force=lambda s: busy(s, "vcpu") and s.read_ms < 2),
    Planting("the guest's only CPU, fio verifies", "vcpu load", vm_on(fast()),
             fio("randwrite", "64k", 4, more="--verify=sha256 --verify_backlog=1"),
             force=lambda s: busy(s, "vcpu") and s.write_ms < 2),
    Planting("fast disk, deep load: the vCPU has no more", "vcpu load", vm_on(fast()), fio(depth=32),
             force=lambda s: busy(s, "vcpu") and s.read_ms < 1),
    Planting("fast disk, IOThread, 2 vCPUs, one busy by fio", "vcpu load", vm_on(fast(iothread=True), smp=2),
             fio(depth=32), force=lambda s: busy(s, "vcpu") and s.read_ms < 1),
    # devices and what serves them
    Planting("device: 5 ms a request, depth 16", "device", vm_on(slow(read=0.005)), fio(), force=below(4.5),
             also="depth"),
    Planting("device: two at a time, 5 ms", "device", vm_on(slow(at_once=2, read=0.005)), fio(),
             force=lambda s: s.rate < 450 and s.device_ms > 20),
    Planting("device: 5 ms, depth 1", "device depth", vm_on(slow(read=0.005)), fio(depth=1), force=below(4.5)),
    Planting("device: 5 ms, virtio-scsi, writes", "device", vm_on(slow(write=0.005, disk={"front": "scsi"})),
             fio("randwrite", depth=8, on="sda"), force=below(4.5), also="depth"),
    Planting("device: 5 ms, nvme front end", "device", vm_on(slow(read=0.005, disk={"front": "nvme"})),
             fio(on="nvme0n1", depth=8), force=below(4.5), also="depth"),
    Planting("device: 5 ms, AHCI of depth 16", "device", vm_on(slow(read=0.005, disk={"front": "sata"})),
             fio(on="sda"), force=below(4.5), also="depth"),
    Planting("IDE at depth 16: one request at a time", "front-end depth device",
             vm_on(slow(read=0.003, disk={"front": "ide"})),
             fio(on="sda"), force=lambda s: below(2.7)(s) and s.rate < 350),
    Planting("fast disk on IDE at depth 16", "front-end depth vcpu main-loop", vm_on(fast(front="ide")),
             fio(on="sda"),
             force=lambda s: s.read_ms < 1 and s.run["vcpu"] > 0.5),
    Planting("device: 20 MB/s, reads of 1 MiB", "device", vm_on(slow("--filter=rate", "rate=160M")),
             fio("read", "1m", 4), force=lambda s: s.bandwidth < 24e6 and s.device_ms > 30),
    Planting("NBD: slow writes, fast reads", "device server", vm_on(served(write=0.02)), MIX,
             force=lambda s: s.write_ms > 15 and s.read_ms < 5, also="depth"),
    Planting("device: a flush takes 20 ms", "flush device", vm_on(slow(flush=0.02)),
             fio("randwrite", depth=1, more=SYNCED), force=lambda s: s.flush_ms > 15 and s.flushes > 20),
    Planting("device: a flush takes 20 ms, O_DSYNC", "flush device", vm_on(slow(flush=0.02)),
             fio("randwrite", depth=1, more="--sync=dsync"), force=lambda s: s.rate < 60, also="depth"),
    Planting("device: a flush takes 20 ms, writethrough", "flush device",
             lambda b: b.start(Disk(f"file={b.slow(flush=0.02)}", how="format=raw,cache=directsync,aio=native")),
             fio("randwrite", depth=4),
             force=lambda s: s.write_ms > 15 and s.flushes < 1, also="depth"),
    Planting("NBD: reads of 20 ms", "device server", vm_on(served(read=0.02)), fio(depth=4),
             force=lambda s: s.read_ms > 18, also="depth"),
    Planting("NBD: two at a time, 5 ms", "device server", vm_on(served(at_once=2, read=0.005)), fio(),
             force=lambda s: s.rate < 450),
    Planting("NBD: flushes of 20 ms", "flush device server", vm_on(served(flush=0.02)),
             fio("randwrite", depth=1, more=SYNCED), force=lambda s: s.flush_ms > 15),
    Planting("NBD: server hangs", "hang", vm_on(served(read=0.001)), fio(), lambda b: b.stop_server(60),
             force=lambda s: s.rate < 1 and s.before > 100),
    Planting("NBD: server hangs 2 s of every 3", "hang", vm_on(served(read=0.001)), fio(),
             lambda b: b.stop_server(2, 1),
             also="device server"),
    Planting("FUSE: server hangs", "hang", vm_on(filed(read=0.001)), fio(), lambda b: b.stop_server(60),
             force=lambda s: s.rate < 1 and s.before > 100),
    Planting("loop: what lies below hangs", "hang", vm_on(slow(read=0.001)), fio(), lambda b: b.stop_server(60),
             force=lambda s: s.rate < 1 and s.before > 100, also="device"),
    Planting("FUSE: reads of 10 ms", "device server", vm_on(filed(read=0.01)), fio(depth=4),
             force=lambda s: s.read_ms > 9, also="depth"),
    Planting("FUSE: flushes of 30 ms", "flush device server", vm_on(filed(flush=0.03)),
             fio("randwrite", depth=1, more=SYNCED), force=lambda s: s.flush_ms > 25),
    Planting("FUSE, aio=native: submission waits", "device server main-loop", vm_on(filed("aio=native", read=0.005)),
             fio(depth=8), force=lambda s: s.rate < 1700, also="depth"),
    Planting("discards of 50 ms beside reads, virtio-scsi", "discard", lambda b: b.start(nbd_disk(
        b.nbd(trim=0.05), ",discard=unmap", "scsi")),
             "(while :; do blkdiscard -o 629145600 -l 268435456 /dev/sda; done) 2>/dev/null & "
             + fio(depth=1, on="sda", more="--rate_iops=50"),
             force=lambda s: s.discards > 3 and s.discard_ms > 40, also="device server"),
    Planting("discards of 50 ms, virtio-blk", "discard", vm_on(served(",discard=unmap", trim=0.05)),
             "(while :; do blkdiscard -o 629145600 -l 268435456 /dev/vda; done) 2>/dev/null &",
             force=lambda s: s.rate < 1 and s.run["vcpu"] < 0.3, also="device server"),
    Planting("aio=threads, a pool of one, 5 ms", "pool", pool_of_one, fio(),
             force=lambda s: s.rate < 220 and s.device_ms < 8 and s.read_ms > 40),
    Planting("virtqueue of 4, 5 ms", "ring depth", vm_on(slow(read=0.005, disk={"device": "queue-size=4"})),
             fio(depth=32), force=lambda s: s.rate < 850 and s.device_flight < 4.5, also="device"),
    Planting("guest: nr_requests 4, 5 ms", "depth load", vm_on(slow(read=0.005)),
             "echo mq-deadline >/sys/block/vda/queue/scheduler; echo 4 >/sys/block/vda/queue/nr_requests; "
             + fio(depth=32),
             force=lambda s: s.device_flight < 8, also="device"),
    # neighbours and jobs
    Planting("neighbour: another program on the device", "neighbour device", vm_on(slow(at_once=2, read=0.003)),
             fio(depth=2),
             lambda b: b.host_load(rw="randread", bs="4k", iodepth="32")),
    Planting("neighbour: large writes on the device", "neighbour device", vm_on(slow("--filter=rate", "rate=160M")),
             fio(depth=1), lambda b: b.host_load(rw="write", bs="1m", iodepth="8")),
    Planting("two guests, the other is noisy", "neighbour device", lambda b: two_guests(b, ""), fio(depth=2),
             lambda b: b.guests[1].run(fio(depth=32))),
    Planting("two guests, this one is noisy", "device", lambda b: two_guests(b,
             fio(depth=1, more="--rate_iops=20")), fio(depth=32),
             force=lambda s: s.rate > 300 and s.device_ms > 20, also="neighbour"),
    Planting("job: backup to a slow target", "job", vm_on(fast()), fio("randwrite", depth=4),
             lambda b: job(b, "drive-backup", target=b.slow(write=0.03), sync="full", format="raw", mode="existing",
                           job_id="backup")),
    Planting("job: mirror that blocks writes, slow target", "job", vm_on(fast()), fio("randwrite", depth=4),
             lambda b: job(b, "drive-mirror", target=b.slow(write=0.02), sync="full", format="raw", mode="existing",
                           copy_mode="write-blocking", job_id="mirror")),
    Planting("job: stream takes a device of 20 MB/s", "job device",
             lambda b: on_backing(b, "--filter=rate", "rate=160M"), fio(depth=2),
             lambda b: job(b, "block-stream", job_id="stream"), also="backing"),
    # formats
    Planting("chain of 12, the lowest is slow", "backing device", lambda b: b.start(
        Disk(f"file={chain(b, 12)}", how="format=qcow2,cache=none,aio=io_uring")), fio(depth=4),
             force=below(3.5), also="depth"),
    Planting("qcow2: tiny L2 cache on a slow device", "tables device", lambda b: b.start(on_slow_qcow2(
        b, "cluster_size=4k", ",l2-cache-size=4096,cache-clean-interval=0", read=0.004)),
             fio(depth=1, more="--size=900m"),
             force=lambda s: s.read_ms > 6 and s.device_rate > 1.4 * s.rate, also="depth"),
    Planting("qcow2: first writes copy from a slow backing image", "backing device tables",
             lambda b: on_backing(b, read=0.01),
             fio("randwrite", depth=1), force=lambda s: s.write_ms > 9, also="depth"),
    # errors, memory, states
    Planting("a sector fails, the VM stops", "paused errors", lambda b: bad_sectors(b, "rerror=stop,aio=threads"),
             fio("read", more="--size=60m"), force=lambda s: s.status == "io-error"),
    Planting("a sector fails, the guest is told", "errors", lambda b: bad_sectors(b, "rerror=report,aio=threads"),
             "while :; do dd if=/dev/vda of=/dev/null bs=4k skip=1024 count=1 iflag=direct; done >/dev/null 2>&1 &",
             force=lambda s: s.failed > 5, also="depth load vcpu"),
    Planting("no room left, the VM stops", "paused full", disk_full, fio("write", "1m", 4),
             force=lambda s: s.status == "io-error"),
    Planting("paused by its monitor", "paused", vm_on(fast()), fio(), lambda b: b.guests[0].qmp("stop"), also="hang"),
    Planting("memory: QEMU is swapped out", "memory", in_group,
             "dd if=/dev/zero of=/run/x bs=1M count=220 2>/dev/null; (while :; do cat /run/x >/dev/null; done) & "
             + fio(depth=4),
             small_memory, force=lambda s: s.majflt > 50 and s.rate < 0.7 * s.before),
    Planting("cache=writeback, few dirty pages allowed", "dirty device page-cache", strict_pages,
             fio("randwrite", "64k", 4), force=lambda s: s.write_ms > 5),
    # nothing
    Planting("nothing: an idle guest", "nothing load", vm_on(fast()), force=lambda s: s.rate < 1),
    Planting("nothing: an idle guest, virtio-scsi, IOThread", "nothing load",
             vm_on(fast(front="scsi", iothread=True)),
             force=lambda s: s.rate < 1),
    Planting("nothing: 100 reads a second", "nothing load", vm_on(fast()), QUIET,
             force=lambda s: 80 < s.rate < 110 and s.read_ms < 3 and idle_cpu(s), also="depth"),
    Planting("nothing: 50 writes of 64k, IOThread", "nothing load", vm_on(fast(iothread=True)),
             fio("randwrite", "64k", 1, more="--rate_iops=50"),
             force=lambda s: 30 < s.rate < 60 and s.write_ms < 5, also="depth"),
    Planting("nothing: 200 reads a second, virtio-scsi, qcow2", "nothing load", lambda b: b.start(Disk(
        f"file={b.image('-f', 'qcow2', '-o', 'preallocation=falloc')}", "scsi",
        "format=qcow2,cache=none,aio=native")),
             fio(on="sda", depth=1, more="--rate_iops=200"),
             force=lambda s: 150 < s.rate < 210 and idle_cpu(s), also="depth"),
    Planting("nothing: the slow disk is not the one used", "nothing load", lambda b: b.start(
        raw(b.file()), raw(b.slow(read=0.02))), QUIET, force=lambda s: 80 < s.rate < 110 and idle_cpu(s),
             also="depth"),
    Planting("nothing: 30 reads a second of 2 ms", "nothing load", vm_on(slow(read=0.002)),
             fio(depth=1, more="--rate_iops=30"),
             force=lambda s: 20 < s.rate < 35 and idle_cpu(s), also="depth device"),
)  # fmt: skip


# What a cause that is named means in the words of the table above.
MEANS = {
    "a limit that was set": "limit group-limit quota",
    "contention for this host's CPUs": "cpu",
    "the vCPUs": "vcpu",
    "its rate is not bound by the disk": "nothing load",
    "the number of I/Os in flight": "depth",
    "the virtqueue: notification and wake-up": "ring",
    "QEMU's main loop": "main-loop",
    "the IOThread": "iothread",
    "idle: its guest asks nothing of it, so there is nothing to limit": "nothing",
    "QEMU's block layer": "block-layer tables crypto pool",
    "the device": "device",
    "flushes: the guest waits until what it wrote is safe (fsync)": "flush",
    "a hang of what serves it": "hang",
    "discards (TRIM)": "discard",
}


def ask(*words: str) -> dict[str, Any]:
    """Ask virtune for JSON."""
    try:
        said = subprocess.run([*VIRTUNE, *words, "--json"], check=False, capture_output=True, text=True, timeout=25)
    except subprocess.TimeoutExpired:
        return {"failed": "no answer within 25 s"}
    with suppress(ValueError):
        document: dict[str, Any] = json.loads(said.stdout)
        return document
    return {"failed": f"exit {said.returncode}: {said.stderr.strip()}"}


def answer(document: dict[str, Any], guest: str) -> list[dict[str, Any]]:
    """What was said of the first disk, by `diagnose` or by `top`."""
    if "failed" in document:
        return [document]
    vms = document.get("vms", ())
    disks = document.get("disks") or [one for vm in vms if vm["vm"] == guest for one in vm["disks"]]
    return [{"disk": one["disk"], "missing": one.get("missing", []), "in_flight": one["in_flight"],
             "waiting_seconds": one.get("waiting_seconds"), "failed_per_second": one.get("failed_per_second"),
             "said": one["bottleneck"]} for one in disks] or [{"failed": f"{document.get('missing')}"}]  # fmt: skip


def look(planting: Planting, appliance: Path, place: Path, seconds: int) -> dict[str, Any]:
    """Plant, look, and tell what was said and what was seen."""
    prefer("self", -19)
    with tempfile.TemporaryDirectory(dir=place) as at, ExitStack() as stack:
        bench = Bench(Path(at), appliance, stack)
        planting.plant(bench)
        guest = bench.guests[0]
        time.sleep(0.5)
        if planting.load:
            guest.run(planting.load)
        time.sleep(2)
        before = 0.0
        if planting.during:
            first = sample(bench)
            time.sleep(2)
            before = between(first, sample(bench)).rate
            planting.during(bench)
            time.sleep(1)
        first = sample(bench)
        document = ask("diagnose", "--qmp", str(guest.place / "100.qmp"), "--seconds", f"{seconds}s")
        seen = between(first, sample(bench))
        seen.before = before
        watched = ask("top", "--once", "--qmp", str(guest.place / "100.qmp"))
    row: dict[str, Any] = {"planting": planting.name, "in_force": planting.force(seen), "seen": asdict(seen)}
    return row | {"diagnose": answer(document, "vm100"), "top": answer(watched, "vm100")}


def truth(planting: Planting, seen: dict[str, Any]) -> set[str]:
    """What is true of a look: what was planted, and what others on this host did meanwhile."""
    true = set(planting.true.split())
    if any(seen["wait"].get(role, 0) > 0.2 for role in ("main", "vcpu", "iothread")):
        true.add("cpu")
    for role, word in (("vcpu", "vcpu"), ("main", "main-loop"), ("iothread", "iothread")):
        if seen["run"].get(role, 0) > 0.9:
            true.add(word)
    return true


def grade(planting: Planting, row: dict[str, Any], said: dict[str, Any]) -> str:
    """Judge one answer."""
    text = said["said"]["text"] if "said" in said else said["failed"]
    true = truth(planting, row["seen"])
    told = {"paused": "does not run", "errors": "a second failed", "nothing": "no I/O was completed"}
    told |= {"full": "does not run", "discard": "discards of virtio-blk"}
    if text in {"undecidable", said.get("failed")} and any(told[one] in json.dumps(said) for one in true & set(told)):
        return "right"
    if text == "undecidable" or "said" not in said:
        return "undecided"
    named = [set(MEANS.get(one, one).split()) for one in text.split(", or ")]
    right = [one for one in named if one & true]
    if right:
        return "right" if len(named) == 1 else "one of two"
    return "beside" if any(one & set(planting.also.split()) for one in named) else "wrong"


def table(keep: Path) -> None:
    """Print every answer with its grade, and the shares; the last look at a planting counts."""
    rows = [json.loads(line) for line in keep.read_text().splitlines()]
    kept = list({row["planting"]: row for row in rows}.values())
    grades: Counter[tuple[str, str]] = Counter()
    print("| planting | true | seen by other means | `diagnose` | | `top` | |\n|---|---|---|---|---|---|---|")
    plantings = {one.name: one for one in PLANTINGS}
    for row in (one for one in kept if one["planting"] in plantings):
        planting = plantings[row["planting"]]
        if "problem" in row or not row["in_force"]:
            grades["dropped", "dropped"] += 1
            continue
        cells = [planting.name, ", ".join(sorted(truth(planting, row["seen"]))), numbers(row["seen"])]
        for verb in ("diagnose", "top"):
            said = row[verb][0]
            grades[verb, grade(planting, row, said)] += 1
            bottleneck = said.get("said") or {"text": said.get("failed"), "evidence": []}
            told = " ".join(": ".join([bottleneck["text"], "; ".join(bottleneck["evidence"])]).split())
            cells += [re.sub(r"/var/tmp/exam-\w+/\w+", "DIR", told), grade(planting, row, said)]
        print("| " + " | ".join(cells) + " |")
    print()
    for (verb, word), count in sorted(grades.items()):
        print(f"* {verb}: {word} {count}")


def numbers(seen: dict[str, Any]) -> str:
    """The figures of a look that are not zero."""
    found = [f"{name} {value:.3g}" for name, value in seen.items() if isinstance(value, float) and value >= 0.005]
    for kind in ("run", "wait"):
        found += [f"{role} {kind} {value:.2f}" for role, value in seen[kind].items() if value > 0.02]
    return ", ".join([*found, *seen["jobs"], *([] if seen["status"] == "running" else [seen["status"]])])


def main() -> int:
    """Plant, look, grade."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="plantings whose names hold this")
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="begin at this planting")
    parser.add_argument("--keep", type=Path, default=Path("blind_exam.jsonl"))
    parser.add_argument("--grade", action="store_true", help="only grade what was kept")
    chosen = parser.parse_args()
    if chosen.grade:
        table(chosen.keep)
        return 0
    appliance = next(one.parent for one in sorted(Path.home().glob(".cache/virtune/appliances/*/appliance.json"))
                     if '"ahci"' in one.read_text())  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # plantings prefer sessions, and what is not started in one of its own is in that of this shell
    before = int(Path("/proc/self/autogroup").read_text().split()[-1])
    atexit.register(prefer, "self", before)
    place = Path(tempfile.mkdtemp(prefix="exam-", dir="/var/tmp"))
    for number, planting in enumerate(PLANTINGS):
        if chosen.only not in planting.name or number < chosen.first:
            continue
        began = time.monotonic()
        try:
            row = look(planting, appliance, place, chosen.seconds)
        except Exception as problem:  # noqa: BLE001
            row = {"planting": planting.name, "problem": repr(problem)}
        row["took"] = time.monotonic() - began
        with chosen.keep.open("a") as keep:
            keep.write(json.dumps(row) + "\n")
        print(f"{row['took']:3.0f} s  {planting.name}", row.get("problem", ""), row.get("in_force"), flush=True)
        for verb in ("diagnose", "top"):
            for one in row.get(verb, ()):
                print("      ", verb, one["said"]["text"] if "said" in one else one)
    shutil.rmtree(place)
    table(chosen.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
