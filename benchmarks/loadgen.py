# SPDX-License-Identifier: Apache-2.0
"""What the load generator itself costs, and whether it and fio agree on the same file.

Run it on a quiet machine:  python benchmarks/loadgen.py [cost|agree|added] [--rounds N] [--seconds S]
Both sides of every ratio run in alternation, and medians over the rounds are printed with their range. With
`--keep FILE` the pairs of `agree` are kept there and all that it holds count, so that a machine need not be quiet for
long at a time.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from virtune.analyse.stats.paired import interval_of

CRATE = Path(__file__).resolve().parent.parent / "loadgen"
TARGET = CRATE.parent / ".venv" / "loadgen"
LOAD = TARGET / "release" / "virtune-load"
BARE = TARGET / "release" / "examples" / "bare"
DISK_BYTES = 1 << 30


def main() -> None:
    """Build the generator and run the measurements that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["cost", "agree", "added"], default=["cost", "added", "agree"])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rw", default="randread", choices=["randread", "randwrite"])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--latency", metavar="NS", help="agree: on a FUSE file that takes so long for every request")
    asked = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "--bins", "--examples", "--target-dir", str(TARGET)]
    subprocess.run(build, cwd=CRATE, check=True)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="loadgen-") as name:
        folder = Path(name)
        for what in asked.what:
            if what == "agree":
                agree(folder, asked)
            else:
                {"cost": cost, "added": added}[what](folder, asked.rounds, asked.seconds)


def cost(folder: Path, rounds: int, seconds: float) -> None:
    """How many I/Os a second one core of the generator makes on a device that does nothing."""
    print("cost: null-co, 4k random read, QD32, one queue; IOPS / CPU of the generator's thread")
    with exported(folder) as socket:
        for extra in ([], ["hipri=1"]):
            runs = [ours(vhost(socket), 32, seconds, *extra) for _ in range(rounds)]
            iops = [run["read"]["iops"] for run in runs]
            cores = [(run["usr_cpu"] + run["sys_cpu"]) / 100 for run in runs]
            per_core = [one / core for one, core in zip(iops, cores, strict=True)]
            kind = "poll" if extra else "event"
            print(f"  {kind:5}  IOPS {shown(iops)}  cores {shown(cores)}  IOPS per core {shown(per_core)}")


def added(folder: Path, rounds: int, seconds: float) -> None:
    """What the generator adds to each request's latency, against the barest client of the same driver.

    Neither client's own clock is asked: by Little's law a request is under way for depth / rate, in both alike. So
    1e9 / rate, the time for one request, is that latency at depth 1 only; at depth 32 it is a 32nd of it.
    """
    print("added: null-co, 4k random read, polled; latency by Little's law (us): ours, bare, their difference")
    with exported(folder) as socket:
        chance = Random(rounds)
        for depth in (1, 32):
            told = []
            for _ in range(rounds):
                read, less = {}, 0.0
                for name in chance.sample(["ours", "bare"], 2):
                    if name == "ours":
                        read = ours(vhost(socket), depth, seconds, "hipri=1")["read"]
                    else:
                        less = bare(socket, depth, seconds)
                mine = depth * 1e6 / read["iops"]
                told.append((mine, less, mine - less, read["lat_ns"]["mean"] / 1e3))
            one, other, more, own = ([pair[at] for pair in told] for at in range(4))
            print(f"  QD{depth:<3} ours {shown(one)}  bare {shown(other)}  added {shown(more)}  its lat {shown(own)}")
            print(f"        ours / bare {ratio(list(zip(other, one, strict=True)))}, {rounds} pairs")


def bare(socket: Path, depth: int, seconds: float) -> float:
    """Run the barest client and return how long a request is under way, in us."""
    argv = [str(BARE), str(socket), str(depth), str(seconds)]
    return depth * float(subprocess.run(argv, check=True, capture_output=True).stdout) / 1e3


def agree(folder: Path, asked: argparse.Namespace) -> None:
    """Ours against fio on one file by io_uring, in alternation, and which goes first is drawn."""
    print(f"agree: one file, O_DIRECT, io_uring, 4k {asked.rw}; ours / fio over all pairs, 95 % interval [range]")
    disk = folder / "disk.raw"
    fill(disk)
    if asked.latency is None:
        alternate(folder, disk, asked)
        return
    node = f"driver=null-co,node-name=top,size={DISK_BYTES},read-zeroes=off,latency-ns={asked.latency}"
    with daemon(
        node, f"type=fuse,id=e,node-name=top,mountpoint={disk},writable=on", up=lambda: os.path.ismount(disk)
    ):
        alternate(folder, disk, asked)


def alternate(folder: Path, disk: Path, asked: argparse.Namespace) -> None:
    """Run both in turn on a file and print their ratios."""
    kept = json.loads(asked.keep.read_text()) if asked.keep is not None and asked.keep.exists() else {}
    side = "read" if asked.rw == "randread" else "write"
    runs = {
        "ours": lambda depth: ours(metal(disk), depth, asked.seconds, rw=asked.rw),
        "fio": lambda depth: fios(folder, disk, depth, asked.seconds, rw=asked.rw),
    }
    for depth in asked.depths:
        where = "" if asked.latency is None else f" at {asked.latency} ns"
        pairs = kept.setdefault(f"QD{depth} {asked.rw}{where}", [])
        chance = Random(len(pairs))
        for _ in range(asked.rounds):
            pairs.append({name: metrics(runs[name](depth)[side]) for name in chance.sample(sorted(runs), 2)})
    if asked.keep is not None:
        asked.keep.write_text(json.dumps(kept))
    for load, pairs in kept.items():
        told = (
            f"{name} {ratio([(pair['fio'][at], pair['ours'][at]) for pair in pairs])}"
            for at, name in enumerate(("IOPS", "lat mean", "clat p50", "clat p99"))
        )
        print(f"  {load}, {len(pairs)} pairs: " + "  ".join(told))


def ratio(pairs: list[tuple[float, float]]) -> str:
    """The geometric mean of ratios, its interval, and their range."""
    found = interval_of(pairs, confidence=0.95)
    ratios = [other / one for one, other in pairs]
    within = "no interval" if found is None else f"{found.estimate:.3f} ({found.low:.3f} to {found.high:.3f})"
    return f"{within} [{min(ratios):.2f} .. {max(ratios):.2f}]"


def metrics(side: Any) -> tuple[float, float, float, float]:
    """What is compared: IOPS, mean latency, and two percentiles."""
    percentile = side["clat_ns"]["percentile"]
    return side["iops"], side["lat_ns"]["mean"], percentile["50.000000"], percentile["99.000000"]


def shown(values: list[float]) -> str:
    """A median and its range."""
    digits = 0 if max(values) > 1000 else 3
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f} .. {high:.{digits}f}]"


def vhost(socket: Path) -> list[str]:
    """The way to a daemon."""
    return ["ioengine=virtio-blk-vhost-user", f"filename={socket}"]


def metal(disk: Path) -> list[str]:
    """The way to a file."""
    return ["ioengine=io_uring", f"filename={disk}"]


def ours(way: list[str], depth: int, seconds: float, *extra: str, rw: str = "randread") -> Any:
    """Run our generator and return its one job."""
    words = [*way, "--allow-write", f"rw={rw}", "bs=4k", f"iodepth={depth}", "ramp_time=500ms", "time_based", *extra]
    argv = [str(LOAD), *words, f"runtime={round(seconds * 1000)}ms"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)["jobs"][0]


def fios(folder: Path, disk: Path, depth: int, seconds: float, *, rw: str) -> Any:
    """Run fio the same way and return its one job."""
    output = folder / "fio.json"
    argv = ["fio", "--name=t", f"--filename={disk}", "--ioengine=io_uring", "--direct=1", f"--rw={rw}", "--bs=4k"]
    argv += [f"--iodepth={depth}", "--ramp_time=500ms", "--time_based", f"--runtime={round(seconds * 1000)}ms"]
    argv += ["--norandommap", "--output-format=json+", f"--output={output}"]
    subprocess.run(argv, check=True, capture_output=True)
    return json.loads(output.read_text())["jobs"][0]


def fill(disk: Path) -> None:
    """Write the whole file with bytes that do not compress."""
    piece = os.urandom(1 << 22)
    with disk.open("wb") as file:
        for _ in range(DISK_BYTES // len(piece)):
            file.write(piece)
        os.fsync(file.fileno())


@contextmanager
def exported(folder: Path) -> Iterator[Path]:
    """Export a device that does nothing over vhost-user for as long as the block lasts."""
    socket = folder / "s"
    export = f"type=vhost-user-blk,id=e,node-name=top,addr.type=unix,addr.path={socket},writable=on,iothread=io"
    node = "driver=null-co,node-name=top,size=1073741824,read-zeroes=off"
    with daemon(node, export, up=socket.exists):
        yield socket
    socket.unlink(missing_ok=True)


@contextmanager
def daemon(node: str, export: str, *, up: Callable[[], bool]) -> Iterator[None]:
    """Run a storage daemon with this node and export, from when it is up."""
    argv = ["qemu-storage-daemon", "--object", "iothread,id=io", "--blockdev", node, "--export", export]
    process = subprocess.Popen(argv)
    try:
        while not up():
            assert process.poll() is None, "the daemon ended"
            time.sleep(0.01)
        yield
    finally:
        process.terminate()  # not killed: it has a mount to take down
        process.wait()


if __name__ == "__main__":
    main()
