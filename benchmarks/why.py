# SPDX-License-Identifier: Apache-2.0
"""Does `virtune diagnose` say something untrue of a running VM? Faults planted below a QEMU started by hand.

    python -m benchmarks.why [--only NAME] [--seconds S]

Each row starts a VM (the guest without an operating system, under TCG), plants one thing, lets `virtune diagnose`
and `virtune top` look at it by QMP, and scores what each says against what must be said and what must not. Needs
root: control groups (version 1), a loop device over FUSE. The slow device is an NBD server that makes reads and
writes wait for different times, below a loop device. On a host with other work that takes QEMU's CPUs is also a true
answer.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.domains import load as asked_of
from benchmarks.layers import HOG, looped
from benchmarks.top import arguments
from virtune.bench.qemu.load import Line
from virtune.dialects.qemu.guest import SLOTS

CALL = [sys.executable, "-c", "import sys; from virtune.__main__ import main; main()"]
SIZE = 256 << 20
HALF = SIZE // 2
LOAD = "rw=randread,bs=4k,iodepth=8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One fault. `read_ns` and `write_ns` are how long requests of the slow device wait, where it is used;
    `null_ns` how long those of a null-co do otherwise. `causes` are true answers, `words` must be said (by `top`
    those of `top`, too, since it sees all VMs) and `untrue` not; `cpus` are those that QEMU may use, `hogs` other
    processes on them, `quota` is the share of a CPU that its control group allows, `group_iops` a limit that two
    disks have together, `neighbour` the depth of another VM on the same device, each with half of it. `nodes` are
    the words of the disk's node `n0` in place of a null-co, `before` what is started before the VM in its
    directory, `beside` what is done to the VM at work, given its directory and process; `needs` says in words what
    this host must have.
    """

    name: str
    causes: tuple[str, ...]
    words: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    untrue: tuple[str, ...] = ()
    load: str = LOAD
    read_ns: int | None = None
    write_ns: int = 0
    null_ns: int = 1_000_000
    cpus: str = ""
    hogs: int = 0
    quota: float | None = None
    group_iops: int | None = None
    neighbour: int | None = None
    nodes: tuple[str, ...] = ()
    before: Callable[[Path], contextlib.AbstractContextManager[object]] | None = None
    beside: Callable[[Path, int], contextlib.AbstractContextManager[object]] | None = None

    @property
    def slow(self) -> bool:
        """Whether its disk lies on the slow device."""
        return self.read_ns is not None


MIX = "rw=randrw,rwmixread=50,bs=4k,iodepth=4"

PLANTED: tuple[Planted, ...] = (
    Planted(name="B1 reads slow, writes fast", causes=("device",), words=("reads", "writes"), load=MIX,
            read_ns=20_000_000),
    Planted(name="B2 writes slow, reads fast", causes=("device",), words=("reads", "writes"), load=MIX, read_ns=0,
            write_ns=20_000_000),
    Planted(name="B9 quota of 25 %", causes=("throttle",), words=("cpu.max",), untrue=("others hardly worked",),
            quota=0.25, null_ns=0),
    Planted(name="B16 neighbour, raw with offset", causes=("device",), words=("others caused",), top=("vm1",),
            read_ns=1_000_000, untrue=("no file and no block device", "let more I/Os be in flight"), neighbour=16,
            load="rw=randread,bs=4k,iodepth=1"),
    Planted(name="B22 all threads on one CPU", causes=("host-cpu", "vcpu", "iothread"), cpus="1", null_ns=0),
    Planted(name="B27 one limit over two disks", causes=("throttle",), words=("300",), group_iops=300,
            null_ns=100_000),
    Planted(name="the guest's own rate", causes=("not-bound",), load="rw=randread,bs=4k,iodepth=4,rate_iops=60",
            null_ns=100_000),
    Planted(name="the guest's own rate, CPUs contended", causes=("not-bound",), cpus="1", hogs=2,
            load="rw=randread,bs=4k,iodepth=4,rate_iops=60", null_ns=100_000),
    Planted(name="nothing asked", causes=("not-bound", "undecidable"), null_ns=100_000,
            load="rw=randread,bs=4k,iodepth=1,rate_iops=2"),
)  # fmt: skip


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waits: dict[int, float]) -> None:
    """Speak NBD with one client: reads (0), writes (1) and flushes (3) wait so many seconds, and nothing is kept."""
    writer.write(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    await reader.readexactly(4)

    def tell(option: int, kind: int, data: bytes = b"") -> None:
        writer.write(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)

    option = 0
    while option != 7:  # NBD_OPT_GO
        _, option, length = struct.unpack(">QII", await reader.readexactly(16))
        await reader.readexactly(length)
        if option != 7:
            tell(option, 2**31 + 1)
    tell(option, 3, struct.pack(">HQH", 0, SIZE, 1 | 4))
    tell(option, 1)

    async def reply(kind: int, cookie: bytes, length: int) -> None:
        await asyncio.sleep(waits.get(kind, 0.0))
        writer.write(struct.pack(">II8s", 0x67446698, 0, cookie) + bytes(length if kind == 0 else 0))

    tasks = set()
    while True:
        _, _, kind, cookie, _, length = struct.unpack(">IHH8sQI", await reader.readexactly(28))
        if kind == 1:
            await reader.readexactly(length)
        if kind == 2:  # the client takes its leave
            return writer.close()
        tasks.add(task := asyncio.create_task(reply(kind, cookie, length)))
        task.add_done_callback(tasks.discard)


def serve(directory: Path, waits: dict[int, float]) -> Path:
    """Serve NBD at the path that is returned, until this process ends; flushes are 3."""
    path, loop = directory / "nbd", asyncio.new_event_loop()
    started = asyncio.start_unix_server(lambda reader, writer: answer(reader, writer, waits), str(path))
    loop.run_until_complete(started)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return path


@contextlib.contextmanager
def slow_device(directory: Path, planted: Planted) -> Iterator[str]:
    """Yield a loop device whose reads and writes wait."""
    path = serve(directory, {0: (planted.read_ns or 0) / 1e9, 1: planted.write_ns / 1e9})
    with looped(directory, f"nbd,server.type=unix,server.path={path}", SIZE) as device:
        yield str(device)


def words_of(directory: Path, number: int, planted: Planted, line: int, device: str) -> list[str]:
    """The command line of a VM with the planted disk."""
    words = arguments(directory, number, 0, line, 0)[:-2]  # without the SCSI controller
    words += ["-device", "pcie-root-port,id=second,chassis=9,slot=9"]
    words += ["-object", "iothread,id=io"]
    for disk in range(2 if planted.group_iops else 1):
        null = f"null-co,node-name=n{disk},size={SIZE},read-zeroes=on,latency-ns={planted.null_ns}"
        if planted.slow:
            null = f"raw,node-name=n{disk},offset={HALF * number},size={HALF},cache.direct=on"
            null += f",file.driver=host_device,file.locking=off,file.filename={device}"
            if planted.neighbour is None:
                null = f"host_device,node-name=n{disk},filename={device},cache.direct=on"
        words += [word.format(directory=directory) for word in planted.nodes] or ["-blockdev", null]
        name = f"n{disk}"
        if planted.group_iops:
            if disk == 0:
                words += ["-object", f"throttle-group,id=g,x-iops-total={planted.group_iops}"]
            words += ["-blockdev", f"throttle,node-name=t{disk},throttle-group=g,file=n{disk}"]
            name = f"t{disk}"
        if disk == 0:  # the guest takes only one at its start
            words += ["-device", f"virtio-blk-pci,bus={SLOTS[0]},iothread=io,id=d0,drive={name}"]
    return words


@contextlib.contextmanager
def machine(directory: Path, number: int, planted: Planted, device: str, load: str) -> Iterator[int]:
    """Run a VM under its load; yields its process."""
    ours, theirs = socket.socketpair()
    words = words_of(directory, number, planted, theirs.fileno(), device)
    with ours, subprocess.Popen(words, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL) as child:
        theirs.close()
        try:
            line = Line(ours)
            assert line.receive(60) is not None
            job = ["[a]", "ioengine=virtio-blk", "filename=disk0", "hipri=0", "time_based=1", "runtime=3600"]
            line.ask("job", "\n".join((*job, *load.split(","), "")).encode(), expect="armed", timeout_seconds=60)
            line.ask("go", b"60000 0", expect="began", timeout_seconds=60)
            yield child.pid
        finally:
            child.kill()


def plug_in(monitor: Path) -> None:
    """Plug the second disk of a group in."""
    disk = {"driver": "virtio-blk-pci", "bus": "second", "id": "d1", "drive": "t1"}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(monitor))
        file = connection.makefile("rw")
        for command in ({"execute": "qmp_capabilities"}, {"execute": "device_add", "arguments": disk}):
            print(json.dumps(command), file=file, flush=True)
            while "return" not in (said := json.loads(file.readline())):
                assert "error" not in said, said


@contextlib.contextmanager
def held(controller: str, pid: int, values: dict[str, str]) -> Iterator[None]:
    """Keep a process in a control group of its own."""
    mine = Path("/sys/fs/cgroup") / controller / f"why-{os.getpid()}"
    mine.mkdir()
    try:
        for name, value in values.items():
            (mine / name).write_text(value)
        (mine / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for one in (mine / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (mine.parent / "cgroup.procs").write_text(one)
        mine.rmdir()


@contextlib.contextmanager
def confined(planted: Planted, pid: int) -> Iterator[None]:
    """Plant what is planted on QEMU itself."""
    with contextlib.ExitStack() as ends:
        if planted.cpus:
            words = ["taskset", "-acp", planted.cpus, str(pid)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        for _ in range(planted.hogs):
            hog = subprocess.Popen(["taskset", "-c", planted.cpus, sys.executable, "-c", HOG])
            ends.callback(hog.wait)
            ends.callback(hog.kill)
        if planted.quota is not None:
            # many shares, so that its quota is what it lacks, and no CPU of a busy host
            values = {"cpu.shares": "200000", "cpu.cfs_period_us": "100000"}
            values |= {"cpu.cfs_quota_us": str(int(1e5 * planted.quota))}
            ends.enter_context(held("cpu", pid, values))
        yield


def looked(planted: Planted, seconds: float) -> dict[str, dict[str, Any]]:
    """What `diagnose` and `top` say of the first disk while it is planted."""
    with tempfile.TemporaryDirectory(prefix="why-", dir="/var/tmp") as name, contextlib.ExitStack() as ends:
        directory = Path(name)
        device = ends.enter_context(slow_device(directory, planted)) if planted.slow else ""
        if planted.before is not None:
            ends.enter_context(planted.before(directory))
        pid = ends.enter_context(machine(directory, 0, planted, device, planted.load))
        vms = ["--qmp", f"{directory}/0.top"]
        if planted.neighbour is not None:
            load = f"rw=randread,bs=4k,iodepth={planted.neighbour}"
            ends.enter_context(machine(directory, 1, planted, device, load))
        ends.enter_context(confined(planted, pid))
        if planted.beside is not None:
            ends.enter_context(planted.beside(directory, pid))
        if planted.group_iops:
            plug_in(directory / "0.load")
            end = threading.Event()
            other = threading.Thread(
                target=asked_of, args=(directory / "0.load", ["/machine/peripheral/d1/virtio-backend"] * 40, end)
            )
            other.start()
            ends.callback(other.join)
            ends.callback(end.set)
        time.sleep(2)
        said = document("diagnose", *vms, "--seconds", f"{seconds}s")
        if planted.neighbour is not None:
            vms += ["--qmp", f"{directory}/1.top"]
        shown = document("top", "--once", *vms, "--interval", f"{max(1.0, seconds / 2)}s")
        return {"diagnose": said["disks"][0], "top": shown["vms"][0]["disks"][0]}


def document(*words: str) -> Any:
    """What a verb says as JSON."""
    said = subprocess.run([*CALL, *words, "--json"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def wrong(planted: Planted, verb: str, seen: dict[str, Any]) -> list[str]:
    """What is wrong about what a verb said of a disk."""
    found = seen["bottleneck"]
    said = " ".join((found["text"], *found["evidence"], found["experiment"]))
    faults = [] if found["cause"] in planted.causes else [f"named {found['cause']}"]
    faults += [
        f"not said: {one}" for one in (*planted.words, *(planted.top if verb == "top" else ())) if one not in said
    ]
    return faults + [f"untrue: {one}" for one in planted.untrue if one in said]


def asked_for(planted: Planted, seconds: float) -> dict[str, tuple[dict[str, Any], list[str]]]:
    """Plant it, and return what each verb said of it and what is wrong about that, once printed."""
    scored = {}
    for verb, seen in looked(planted, seconds).items():
        found, faults = seen["bottleneck"], wrong(planted, verb, seen)
        told = f"{verb}: {seen['iops']:.0f} IOPS, {found['cause']}: {'; '.join(faults) or 'right'}"
        print(f"{planted.name}: {told}")
        lines = (*found["evidence"], f"next: {found['experiment']}")
        print("".join(f"    {one}\n" for one in lines), end="", flush=True)
        scored[verb] = found, faults
    return scored


def main() -> None:
    """Plant each, and print what is said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only those with this in their name")
    parser.add_argument("--seconds", type=float, default=5.0)
    asked = parser.parse_args()
    right = {"diagnose": 0, "top": 0}
    for planted in PLANTED:
        if asked.only in planted.name:
            for verb, (_, faults) in asked_for(planted, asked.seconds).items():
                right[verb] += not faults
    print(", ".join(f"{verb}: {count} right" for verb, count in right.items()))


if __name__ == "__main__":
    main()
