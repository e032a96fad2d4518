# SPDX-License-Identifier: Apache-2.0
"""Does `virtune diagnose` change the IOPS of the VM that it looks at? On and off in turns, within one run of a load.

    python benchmarks/diagnose.py [PAIRS] [SECONDS] [qmp|libvirt] [SHARES]

A guest under load (the one without an operating system, depth 4 on a null-co of 500 us) runs all the time: a QEMU
started by hand, or a domain of a real libvirtd, which reaches the null-co over NBD. In a period of SECONDS `virtune
diagnose` looks at it, as a process of its own with its start; in the next one nothing does, the order of the two
drawn for each pair. QEMU's own count of requests, asked at the borders through a second monitor, gives the IOPS.
Prints the ratio on/off with its 95 % interval over pairs, which files the diagnosis left or changed in its home and
beside the VM, and whether the domain's configuration, live and inactive, is what it was. With SHARES the VM and its
disk have so many CPU shares (everybody has 1024, the diagnosis too), on a machine with other work.
"""

import contextlib
import json
import math
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.domains import domains
from benchmarks.layers import group
from benchmarks.top import running
from virtune.analyse.stats.student import mean_and_radius

OPTIONS = ("ioengine=virtio-blk", "filename=disk0", "rw=randread", "bs=4k", "iodepth=4", "hipri=0", "time_based=1")
JOB = "\n".join(("[a]", *OPTIONS, "runtime=3600", ""))
"""The guest sleeps while it waits, as others do: one that polls would leave a small host no CPU for the diagnosis."""

CALL = [sys.executable, "-c", "import sys; from virtune.__main__ import main; main()", "diagnose", "--json"]
LATENCY_NS = 500_000
START_SECONDS = 1.5
"""What of a period is left for the start of the process, and its end."""


class Counter:
    """QEMU's count of completed requests, by its second monitor."""

    def __init__(self, path: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(path))
        self._file = self._connection.makefile("rw")
        self._file.readline()
        self._ask("qmp_capabilities")

    def _ask(self, command: str) -> object:
        print(json.dumps({"execute": command}), file=self._file, flush=True)
        while "return" not in (said := json.loads(self._file.readline())):
            pass
        return said["return"]

    @property
    def pid(self) -> int:
        """The process of QEMU."""
        return int(struct.unpack("3i", self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])

    def rate_over(self, seconds: float) -> float:
        """Wait, and return the requests a second."""
        begun, before = time.monotonic(), self._count()
        time.sleep(seconds)
        return (self._count() - before) / (time.monotonic() - begun)

    def _count(self) -> int:
        shown = self._ask("query-blockstats")
        assert isinstance(shown, list)
        return sum(int(one["stats"]["rd_operations"]) for one in shown)


def files_of(directory: Path) -> dict[Path, tuple[int, int]]:
    """All files below a directory, each with its size and when it was changed."""
    found = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                found[path] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


@contextlib.contextmanager
def under_load(directory: Path, way: str) -> Iterator[tuple[list[str], Path, Callable[[], object]]]:
    """Run the VM; yields the words that name it, its second monitor, and what returns its configuration."""
    if way == "qmp":
        with running(directory, 1, 1, job=JOB, latency_ns=LATENCY_NS, loaded=False):
            yield ["--qmp", f"{directory}/0.top"], directory / "0.load", lambda: None
        return
    with domains(directory, 1, 1, job=JOB, latency_ns=LATENCY_NS, loaded=False) as daemon:
        words = ["vm0", "--connect", daemon.uri]
        yield words, directory / "vm0.load", lambda: (daemon.xml("vm0"), daemon.xml("vm0", live=True))


@contextlib.contextmanager
def favoured(pid: int, shares: int) -> Iterator[None]:
    """Give the control groups of a process so many CPU shares while the block runs: libvirt has groups of its own."""
    root = Path("/sys/fs/cgroup/cpu")
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    place = root / next(line.split(":")[2] for line in lines if "cpu" in line.split(":")[1].split(",")).lstrip("/")
    files = [one / "cpu.shares" for one in (place, *place.parents) if one.is_relative_to(root) and one != root]
    before = [file.read_text() for file in files]
    try:
        for file in files:
            file.write_text(str(shares))
        yield
    finally:
        for file, text in zip(files, before, strict=True):
            with contextlib.suppress(OSError):
                file.write_text(text)


def main() -> None:
    """Measure pairs of periods."""
    shares = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    with group("cpu", {"cpu.shares": str(shares)}) if shares else contextlib.nullcontext():
        measured(shares)


def measured(shares: int) -> None:
    """Measure them, with these CPU shares."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    way = sys.argv[3] if len(sys.argv) > 3 else "qmp"
    # libvirt's sockets lie below it, and a socket's path may have 107 characters
    with tempfile.TemporaryDirectory(prefix="diag-", dir="/tmp") as name:
        directory, home = Path(name) / "vm", Path(name) / "home"
        home.mkdir()
        directory.mkdir()
        surroundings = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CACHE_HOME": str(home)}
        with under_load(directory, way) as (vm, monitor, configuration):
            words = [*CALL, *vm, "--seconds", str(seconds - START_SECONDS)]
            counter = Counter(monitor)
            counter.rate_over(3)
            before, asked = files_of(Path(name)), configuration()
            with favoured(counter.pid, shares) if shares else contextlib.nullcontext():
                compared(counter, words, surroundings, pairs, seconds, apart=bool(shares))
            after = files_of(Path(name))
            changed = sorted(str(path.relative_to(name)) for path in after if before.get(path) != after[path])
            print(f"files left or changed: {changed or 'none'}")
            print(f"configuration as before: {'yes' if configuration() == asked else 'no'}")


def compared(
    counter: Counter, words: list[str], surroundings: dict[str, str], pairs: int, seconds: float, *, apart: bool
) -> None:
    """Measure and print the pairs; `apart`: the diagnosis is in no control group."""
    logs: list[float] = []
    for pair in range(pairs):
        rates = {}
        for watched in random.Random(pair).sample((True, False), 2):
            child = subprocess.Popen(words, env=surroundings, stdout=subprocess.DEVNULL) if watched else None
            if child is not None and apart:
                Path("/sys/fs/cgroup/cpu/cgroup.procs").write_text(str(child.pid))
            rates[watched] = counter.rate_over(seconds)
            if child is not None and child.wait() != 0:
                sys.exit("diagnose failed")
        logs.append(math.log(rates[True] / rates[False]))
        mean, radius = mean_and_radius(logs, 0.95)
        ends = "" if radius is None else f" [{math.expm1(mean - radius):+.2%}, {math.expm1(mean + radius):+.2%}]"
        print(
            f"pair {pair + 1}: {rates[False]:,.0f} IOPS alone; with diagnose {math.expm1(mean):+.2%}{ends}",
            flush=True,
        )


if __name__ == "__main__":
    main()
