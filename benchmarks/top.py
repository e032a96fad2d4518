# SPDX-License-Identifier: Apache-2.0
"""What does `virtune top` cost with 50 disks at 1 s? Its own CPU time, on the screen of 80x24 and as CSV.

    python benchmarks/top.py [SECONDS]

Starts QEMU under TCG with null-co disks, once as one VM of 50 disks and once as ten VMs of five. Each VM's guest (the
one without an operating system) reads 50 times a second from its first disk, so that its virtqueue is seen; the
other disks get a read each 0.2 s through a second monitor. So every disk has something to show in every interval.
The same again as domains of a real libvirtd, whose disks are files, but for the first of each, and whose counters
`top` gets by `virsh`; that is a process of its own each second, and its CPU time counts too.
"""

import contextlib
import fcntl
import os
import pty
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.domains import domains, load
from virtune.bench.qemu.load import Line, find_guest
from virtune.dialects.qemu.guest import SLOTS

FIRST_BYTES, START_SECONDS, WARM_SECONDS = 3000, 60.0, 3.0
"""Importing and the first look at the VMs are not what a second costs: with so much written, the first are shown."""

OPTIONS = ("ioengine=virtio-blk", "filename=disk0", "rw=randread", "bs=4k", "rate_iops=50", "hipri=0", "time_based=1")
JOB = "\n".join(("[a]", *OPTIONS, "runtime=3600", ""))
"""The guests sleep between their reads: ten that poll would need ten CPUs, and `top` would get none."""
SHAPES = ((1, 50), (10, 5))
CALL = [sys.executable, "-c", "import sys; from virtune.__main__ import main; main()", "top"]


def arguments(directory: Path, number: int, disks: int, line: int, latency_ns: int) -> list[str]:
    """The command line of a QEMU with two monitors and a guest that is talked to."""
    words = ["qemu-system-x86_64", "-name", f"vm{number},debug-threads=on", "-nodefaults", "-display", "none"]
    words += ["-M", "q35,hpet=off", "-accel", "tcg", "-smp", "1,maxcpus=2"]
    words += ["-cpu", "max", "-m", "64", "-bios", "qboot.rom"]
    words += ["-kernel", str(find_guest()), "-serial", "null", "-device", "virtio-serial-pci,max_ports=1"]
    words += ["-chardev", f"socket,id=line,fd={line}", "-device", "virtconsole,chardev=line"]
    for name in ("top", "load"):
        words += ["-qmp", f"unix:{directory}/{number}.{name},server=on,wait=off"]
    words += ["-device", f"pcie-root-port,id={SLOTS[0]},chassis=1,slot=1"]
    words += ["-device", "virtio-scsi-pci,id=scsi"]
    for disk in range(disks):
        words += ["-blockdev", f"null-co,node-name=n{disk},size={64 << 20},read-zeroes=on,latency-ns={latency_ns}"]
        kind = f"virtio-blk-pci,bus={SLOTS[0]}" if disk == 0 else f"scsi-hd,bus=scsi.0,lun={disk}"
        words += ["-device", f"{kind},id=d{disk},drive=n{disk}"]
    return words


@contextlib.contextmanager
def running(
    directory: Path, vms: int, disks: int, *, job: str = JOB, latency_ns: int = 200_000, loaded: bool = True
) -> Iterator[None]:
    """Start the VMs and load their disks until the block ends; only the first of each if not `loaded`."""
    end = threading.Event()
    with contextlib.ExitStack() as ends:
        for number in range(vms):
            ours, theirs = socket.socketpair()
            ends.enter_context(ours)
            words = arguments(directory, number, disks, theirs.fileno(), latency_ns)
            child = subprocess.Popen(
                words, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
            )
            theirs.close()
            ends.callback(child.wait)
            ends.callback(child.kill)
            line = Line(ours)
            assert line.receive(60) is not None
            line.ask("job", job.encode(), expect="armed", timeout_seconds=60)
            line.ask("go", b"60000 0", expect="began", timeout_seconds=60)
        ids = [f"d{disk}" for disk in range(1, disks)]
        threads = [
            threading.Thread(target=load, args=(directory / f"{number}.load", ids, end))
            for number in range(vms if loaded else 0)
        ]
        for thread in threads:
            thread.start()
            ends.callback(thread.join)
        ends.callback(end.set)
        yield


def cpu_seconds(pid: int) -> float:
    """What a process and its ended children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(one) for one in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def cost(words: list[str], seconds: float, *, screen: bool) -> tuple[float, float]:
    """Return the share of a core that `top` uses, and how many lines it wrote a second."""
    ours, theirs = pty.openpty() if screen else os.pipe()
    if screen:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
    child = subprocess.Popen(
        [*CALL, *words], stdin=theirs if screen else None, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                parts.append(part)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        until = time.monotonic() + START_SECONDS
        while sum(map(len, parts)) < FIRST_BYTES and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(WARM_SECONDS)
        begun, before, lines = time.monotonic(), cpu_seconds(child.pid), b"".join(parts).count(b"\n")
        time.sleep(seconds)
        passed = time.monotonic() - begun
        used = (cpu_seconds(child.pid) - before) / passed
        lines = b"".join(parts).count(b"\n") - lines
        assert child.poll() is None, b"".join(parts)[-500:]
    finally:
        child.kill()
        child.wait()
    return used, lines / passed


def shown(words: list[str], seconds: float, what: str, disks: int) -> None:
    """Print the cost on the screen, and as CSV, which has a line for each disk and sample."""
    for screen in (True, False):
        used, lines = cost([*words, *([] if screen else ["--csv"])], seconds, screen=screen)
        how = "screen of 80x24" if screen else f"CSV, {lines / disks:.2f} samples a second"
        print(f"{what}, {how}: {used:.2%} of a core", flush=True)


def main() -> None:
    """Measure each shape on the screen, and as CSV."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    for vms, disks in SHAPES:
        what = f"{vms} VMs, {vms * disks} disks"
        with tempfile.TemporaryDirectory(prefix="top-", dir="/tmp") as name, running(Path(name), vms, disks):
            words = [word for number in range(vms) for word in ("--qmp", f"{name}/{number}.top")]
            shown(words, seconds, what, vms * disks)
        with (
            tempfile.TemporaryDirectory(prefix="top-", dir="/tmp") as name,
            domains(Path(name), vms, disks, job=JOB, latency_ns=200_000, loaded=True) as daemon,
        ):
            shown(["--connect", daemon.uri], seconds, f"{what}, libvirt", vms * disks)


if __name__ == "__main__":
    main()
