# SPDX-License-Identifier: Apache-2.0
"""What does virtune say of faults that its rules were not written by? An exam, from a list of what makes disks slow.

    python -m benchmarks.why_exam [--only NAME] [--seconds S]

The rows are planted as those of `benchmarks.why` are. A look counts as named if the cause is among the true ones, or
the second that is named beside it is, and the words that must be said are; as false if a cause is named that is not
true, or something untrue is said; else as undecided. Of a disk with nothing planted nothing may be named. On a host
with other work that takes QEMU's CPUs that is also a true answer where it was seen, and counted apart. QEMU has many
CPU shares, but where CPUs are what is planted. Rows that begin with Linux boot the test guest, under TCG. What this
machine cannot have is in `why.md`, with the results.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.guests.rig_parts import GUEST, ground

from benchmarks.why import MIX, SIZE, Planted, held, looked, serve, wrong
from virtune import shell
from virtune.bench.appliance.build import appliance_for
from virtune.bench.appliance.sources import find_sources
from virtune.bench.guest.agent import seen_in_guest
from virtune.bench.live.monitor import LiveMonitor
from virtune.bench.qemu.load import GuestBench
from virtune.bench.qemu.machine import Accelerator
from virtune.bench.qemu.rig import GuestSession
from virtune.dialects.qemu.guest import SLOTS
from virtune.flows.live.diagnose_live import look

BUSY = "host-cpu"
NBD = ("-blockdev", "nbd,node-name=n0,server.type=unix,server.path={directory}/nbd")
NULL = f"null-co,size={SIZE},read-zeroes=on"
ONE = "rw=randread,bs=4k,iodepth=1"
RATE = "rw=randread,bs=4k,iodepth=4,rate_iops="


def image(*words: str) -> Callable[[Path], contextlib.AbstractContextManager[object]]:
    """Have qemu-img make an image; `{directory}` stands for where."""

    def made(directory: Path) -> contextlib.AbstractContextManager[object]:
        for word in words:
            command = ["qemu-img", *word.format(directory=directory).split()]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return contextlib.nullcontext()

    return made


def filled(directory: Path) -> contextlib.AbstractContextManager[object]:
    """A file of data, all of it in the page cache."""
    with (directory / "raw").open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    return contextlib.nullcontext()


def waiting(waits: dict[int, float]) -> Callable[[Path], contextlib.AbstractContextManager[object]]:
    """An NBD server whose requests wait: reads (0), writes (1), flushes (3)."""

    def served(directory: Path) -> contextlib.AbstractContextManager[object]:
        serve(directory, waits)
        return contextlib.nullcontext()

    return served


@contextlib.contextmanager
def daemon(directory: Path) -> Iterator[None]:
    """A storage daemon that serves a null-co."""
    words = ["qemu-storage-daemon", "--nbd-server", f"addr.type=unix,addr.path={directory}/nbd"]
    words += ["--blockdev", f"{NULL},node-name=n,latency-ns=1000000"]
    words += ["--export", "nbd,id=e,node-name=n,name=,writable=on"]
    with subprocess.Popen(words) as child:
        (directory / "daemon").write_text(str(child.pid))
        try:
            while not (directory / "nbd").exists():
                time.sleep(0.05)
            yield
        finally:
            child.kill()


@contextlib.contextmanager
def stopped(directory: Path, _pid: int) -> Iterator[None]:
    """Stop the daemon while the block runs."""
    pid = int((directory / "daemon").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def favoured(_directory: Path, pid: int) -> contextlib.AbstractContextManager[object]:
    """Give QEMU many CPU shares."""
    return held("cpu", pid, {"cpu.shares": "200000"})


MEMORY = Path("/sys/fs/cgroup/memory")


@contextlib.contextmanager
def swapping(directory: Path) -> Iterator[None]:
    """Swap on a file, and a group for memory in which QEMU starts: only what it then takes is counted there."""
    swap, group = directory / "swap", MEMORY / f"why-{os.getpid()}"
    subprocess.run(["fallocate", "-l", "256M", str(swap)], check=True)
    swap.chmod(0o600)
    subprocess.run(["mkswap", "-q", str(swap)], check=True)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    before = next(line.split(":", 2)[2] for line in lines if ":memory:" in line)
    group.mkdir()
    subprocess.run(["swapon", str(swap)], check=True)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    (directory / "before").write_text(before)
    try:
        yield
    finally:
        subprocess.run(["swapoff", str(swap)], check=True)
        time.sleep(0.5)
        group.rmdir()


@contextlib.contextmanager
def squeezed(directory: Path, pid: int) -> Iterator[None]:
    """Leave QEMU 15 MiB, step by step, since the kernel must write out what is too much."""
    (MEMORY / (directory / "before").read_text().lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
    for size in range(60, 14, -1):
        for _ in range(40):
            try:
                (MEMORY / f"why-{os.getpid()}" / "memory.limit_in_bytes").write_text(str(size << 20))
                break
            except OSError:
                time.sleep(0.05)
    with favoured(directory, pid):
        yield


@contextlib.contextmanager
def on_loop(directory: Path) -> Iterator[None]:
    """A loop device with direct I/O on a file of data, `disk`."""
    filled(directory)
    words = ["losetup", "--find", "--show", "--direct-io=on", str(directory / "raw")]
    device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    (directory / "disk").symlink_to(device)
    try:
        yield
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


@contextlib.contextmanager
def io_limited(directory: Path, pid: int) -> Iterator[None]:
    """Let QEMU's control group read 300 times a second from the device."""
    number = (directory / "disk").resolve().stat().st_rdev
    limit = f"{os.major(number)}:{os.minor(number)} 300"
    with favoured(directory, pid), held("blkio", pid, {"blkio.throttle.read_iops_device": limit}):
        yield


@contextlib.contextmanager
def mirrored(directory: Path, pid: int) -> Iterator[None]:
    """Mirror the disk to a null-co."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(directory / "0.load"))
        file = connection.makefile("rw")
        null = {"driver": "null-co", "node-name": "target", "size": SIZE}
        job = {"job-id": "m", "device": "n0", "target": "target", "sync": "full"}
        commands = [("qmp_capabilities", {}), ("blockdev-add", null), ("blockdev-mirror", job)]
        for name, arguments in commands:
            print(json.dumps({"execute": name, "arguments": arguments}), file=file, flush=True)
            while "return" not in (said := json.loads(file.readline())):
                assert "error" not in said, said
    with favoured(directory, pid):
        yield


BASE = f"create -q -f qcow2 -b {{directory}}/raw -F raw {{directory}}/o0 {SIZE}"
OVER = "create -q -f qcow2 -b {{directory}}/o{} -F qcow2 {{directory}}/o{} {}"
CHAIN = (BASE, *(OVER.format(one, one + 1, SIZE) for one in range(7)))


def chained(directory: Path) -> contextlib.AbstractContextManager[object]:
    """Eight overlays on a file of data."""
    filled(directory)
    return image(*CHAIN)(directory)


def tabled(directory: Path) -> contextlib.AbstractContextManager[object]:
    """A qcow2 image with small clusters, all of them allocated."""
    filled(directory)
    return image("convert -f raw -O qcow2 -o cluster_size=4k {directory}/raw {directory}/q")(directory)


def direct(path: str, driver: str = "file", cache: str = "on") -> tuple[str, str]:
    """A file or device of the host as the disk."""
    return "-blockdev", f"{driver},node-name=n0,filename={{directory}}/{path},cache.direct={cache}"


LOCK = "secret,id=s,data=abc"
ON_FILE = "file.driver=file,file.filename={directory}"

EXAM: tuple[Planted, ...] = (
    Planted(name="NBD server slow", causes=("undecidable", "device"), words=("server and the network",), nodes=NBD,
            before=waiting({0: 0.004})),
    Planted(name="slow flush", causes=("flush",), nodes=NBD, before=waiting({3: 0.02}),
            load="rw=randwrite,bs=4k,iodepth=1,fsync=1"),
    Planted(name="server stopped (SIGSTOP)", causes=("hung",), nodes=NBD, before=daemon, beside=stopped),
    Planted(name="CPU quota of 20 %", causes=("throttle",), words=("cpu.max",), quota=0.2, null_ns=0),
    Planted(name="CPU hogs beside QEMU", causes=(BUSY,), cpus="1", hogs=3, null_ns=0),
    Planted(name="all threads on one CPU", causes=(BUSY, "vcpu", "iothread"), cpus="1", null_ns=0),
    Planted(name="throttle filter, 200 IOPS", causes=("throttle",), words=("200",),
            nodes=("-object", "throttle-group,id=g,x-iops-total=200", "-blockdev", f"{NULL},node-name=f0",
                   "-blockdev", "throttle,node-name=n0,throttle-group=g,file=f0")),
    Planted(name="io.max of the control group (version 1)", causes=("throttle",), words=("control group",),
            before=on_loop, beside=io_limited, nodes=direct("disk", "host_device")),
    Planted(name="memory limit of the control group, swap-in", causes=("memory",), before=swapping, beside=squeezed,
            null_ns=0, load="rw=randread,bs=1m,iodepth=16"),
    Planted(name="two VMs on one slow device", causes=("device",), words=("others caused",), top=("vm1",),
            read_ns=1_000_000, neighbour=16, load=ONE),
    Planted(name="deep backing chain", causes=("iothread", "block-layer", "undecidable"), words=("backing",),
            before=chained, nodes=("-blockdev", f"qcow2,node-name=n0,{ON_FILE}/o7")),
    Planted(name="qcow2 with a small L2 cache", causes=("block-layer",), words=("tables",), before=tabled,
            nodes=("-blockdev", f"qcow2,node-name=n0,l2-cache-size=8192,{ON_FILE}/q,file.cache.direct=on")),
    Planted(name="LUKS", causes=("iothread", "block-layer"), words=("encr",), load="rw=randread,bs=256k,iodepth=8",
            before=image(f"create -q -f luks --object {LOCK} -o key-secret=s,iter-time=10 {{directory}}/l {SIZE}"),
            nodes=("-object", LOCK, "-blockdev", f"luks,node-name=n0,key-secret=s,{ON_FILE}/l")),
    Planted(name="mirror job on a slow device", causes=("device",), words=("job",), read_ns=3_000_000,
            beside=mirrored),
    Planted(name="page cache", causes=("page-cache", "iothread"), before=filled, nodes=direct("raw", cache="off")),
    Planted(name="slow device, reads", causes=("device",), read_ns=8_000_000),
    Planted(name="slow device, writes", causes=("device",), words=("writes",), read_ns=0, write_ns=12_000_000,
            load=MIX),
    Planted(name="one request at a time", causes=("depth",), load=ONE, null_ns=2_000_000),
    Planted(name="nothing: 60 a second", causes=(), load=f"{RATE}60", null_ns=100_000),
    Planted(name="nothing: 2 a second", causes=(), load=f"{RATE}2", null_ns=100_000),
    Planted(name="nothing: 500 a second", causes=(), load=f"{RATE}500", null_ns=100_000),
    Planted(name="nothing: 200 a second from a file", causes=(), load=f"{RATE}200", before=filled,
            nodes=direct("raw")),
    Planted(name="nothing: 100 writes a second to a file", causes=(), before=filled, nodes=direct("raw"),
            load="rw=randwrite,bs=4k,iodepth=2,rate_iops=100"),
)  # fmt: skip


def scored(planted: Planted, verb: str, seen: dict[str, Any]) -> str:
    """Say how a look counts."""
    found = seen["bottleneck"]
    named = [found["cause"]] + [one["cause"] for one in found.get("hypotheses", ()) if one["named"]]
    faults = [one for one in wrong(planted, verb, seen) if not one.startswith("named")]
    accused = [one for one in named if one not in ("undecidable", "not-bound")]
    if planted.name.startswith("nothing"):
        return "false" if accused else "right"
    if any(one.startswith("untrue") for one in faults):
        return "false"
    if not faults and (not planted.causes or any(one in planted.causes for one in named)):
        return "right"
    if accused and not any(one in planted.causes for one in accused):
        return "busy host" if accused == [BUSY] or accused == [BUSY, BUSY] else "false"
    return "undecided" if not accused else "without its words"


def told(name: str, verb: str, score: str, seen: dict[str, Any]) -> None:
    """Print what was said."""
    found = seen["bottleneck"]
    print(f"{name}: {verb}: {score}: {seen['iops']:.0f} IOPS, {found['cause']}: {found['text']}")
    lines = (*found["evidence"], f"next: {found['experiment']}")
    print("".join(f"    {one}\n" for one in lines), end="", flush=True)


@contextlib.contextmanager
def linux() -> Iterator[GuestBench]:
    """The test guest, with many CPU shares."""
    cache = shell.cache_directory()
    made = appliance_for(find_sources(cache / "packages"), cache / "appliances")[0]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, shell.Warden("exam") as warden:
        ground_file = Path(name) / "ground"
        ground_file.write_bytes(os.urandom(64 << 20))
        session = GuestSession(made, Accelerator(kvm=False, why="it runs anywhere", tried=False), warden)
        try:
            with session.up(GUEST, ground(ground_file)) as bench, favoured(Path(name), bench.vm.child.pid):
                yield bench
        finally:
            session.give_up()


CLEAR = "while true; do blkdiscard {device}; done"
LOADED = (
    "fio --name=x --filename={device} --ioengine=libaio --direct=1 --iodepth=32 --rw=randread --bs=4k --time_based=1"
    " --runtime=600 --allow_file_create=0"
)

LINUX: tuple[tuple[str, tuple[str, ...], str, dict[str, Any], str, str], ...] = (
    ("Linux: a virtqueue of 4", ("depth",), "its virtqueue is full", {"queue-size": 4}, "", LOADED),
    ("Linux: a scheduler that hands over 4", ("depth",), "in the guest", {}, "echo 4 > {queue}/nr_requests", LOADED),
    ("Linux: discards", ("discard", "undecidable"), "discards", {"discard": True}, "", CLEAR),
)


def in_linux(only: str, seconds: float) -> Iterator[tuple[str, str]]:
    """Plant those that need a guest with a block layer of its own; yields names and scores."""
    rows = [row for row in LINUX if only in row[0]]
    if not rows:
        return
    with linux() as bench:
        for number, (name, causes, word, options, first, load) in enumerate(rows):
            disk, run = f"x{number}", bench.vm.guest.look.run
            node = {"driver": "null-co", "node-name": disk, "size": 64 << 20, "read-zeroes": True}
            bench.vm.monitor.execute("blockdev-add", {**node, "latency-ns": 1_000_000})
            device = {"driver": "virtio-blk-pci", "id": disk, "drive": disk, "serial": disk, "bus": SLOTS[-1]}
            bench.vm.monitor.execute("device_add", {**device, "num-queues": 1, **options})
            path = seen_in_guest(bench.vm.guest, disk, timeout_seconds=120)["device"]
            queue = f"/sys/block/{Path(path).name}/queue"
            if first:
                assert run(first.format(queue=queue), timeout_seconds=60).status == 0
            words = load.format(device=path)
            run(f"sh -c '{words}' >/dev/null 2>&1 & echo $! > /run/load", timeout_seconds=60)
            time.sleep(3)
            (found,) = look(LiveMonitor(bench.vm.monitor, bench.vm.child.pid), disk=disk, seconds=seconds)
            said = asdict(found.found) | {"text": found.found.text}
            seen = {"iops": found.path.iops, "bottleneck": said}
            planted = Planted(name=name, causes=causes, words=(word,))
            score = scored(planted, "diagnose", seen)
            told(name, "diagnose", score, seen)
            yield name, score
            run("kill $(cat /run/load); killall -q fio blkdiscard; sleep 1", timeout_seconds=60)
            bench.vm.monitor.execute("device_del", {"id": disk})
            time.sleep(3)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Plant each, print what is said, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only those with this in their name")
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {"diagnose": Counter(), "top": Counter()}
    for one in EXAM:
        if asked.only not in one.name:
            continue
        ours = one.cpus or one.quota or one.beside
        planted = one if ours else replace(one, beside=favoured)
        for verb, seen in looked(planted, asked.seconds).items():
            score = scored(planted, verb, seen)
            counts[verb][score] += 1
            told(one.name, verb, score, seen)
    for _, score in in_linux(asked.only, asked.seconds):
        counts["diagnose"][score] += 1
    for verb, found in counts.items():
        print(f"{verb}: {', '.join(f'{name} {count}' for name, count in found.most_common())}")


if __name__ == "__main__":
    main()
