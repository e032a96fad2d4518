# SPDX-License-Identifier: Apache-2.0
"""Does a comparison begin slowly on a disk whose layer below is cold, with and without reading it once before?

    python benchmarks/cold.py PAIRS [DIRECTORY]

Plants that layer: an image whose blocks come from another one of few IOPS until they were read once (copy-on-read),
like a volume that is filled from a snapshot. virtune gets it as a file (FUSE, so as root). In turn, a comparison
reads it first, or leaves it as found (host.cache=as-found), each on a layer that is cold anew. Prints the IOPS of all
arms by round, relative to the later half of the rounds, the drift, and what was decided.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

SIZE, COLD_IOPS, ROUNDS = 1024**3, 1500, 10
CLUSTER = 64 * 1024

ARMS = ("metal:rig=metal", "native:rig=vhost-user,disk.aio=native", "threads:rig=vhost-user,disk.aio=threads")


@contextlib.contextmanager
def cold_disk(directory: Path, base: Path) -> Iterator[Path]:
    """Yield a file whose blocks are slow until they were read once."""
    top, disk = directory / "top.qcow2", directory / "disk"
    top.unlink(missing_ok=True)
    disk.touch()
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"cluster_size={CLUSTER}", top, str(SIZE)], check=True
    )
    words = ["--object", f"throttle-group,id=slow,x-iops-total={COLD_IOPS},x-iops-total-max={COLD_IOPS}"]
    for node in (
        f"file,node-name=bf,filename={base},cache.direct=on,read-only=on",
        "throttle,node-name=base,throttle-group=slow,file=bf,read-only=on",
        f"file,node-name=tf,filename={top},cache.direct=on,aio=native",
        "qcow2,node-name=top,file=tf,backing=base",
        "copy-on-read,node-name=read,file=top",
    ):
        words += ["--blockdev", node]
    words += ["--export", f"fuse,id=e,node-name=read,mountpoint={disk},writable=off"]
    with subprocess.Popen(["qemu-storage-daemon", *words]) as daemon:
        try:
            while disk.stat().st_size != SIZE:
                if daemon.poll() is not None:
                    raise SystemExit("qemu-storage-daemon does not export over FUSE here")
                time.sleep(0.1)
            yield disk
        finally:
            daemon.send_signal(signal.SIGTERM)


def compared(disk: Path, directory: Path, *, first: bool) -> Any:
    """Run the comparison and return its document."""
    words = [word for arm in ARMS for word in ("--arm", arm if first else f"{arm},host.cache=as-found")]
    words += ["--baseline", "metal", "--quick", "--rounds", str(ROUNDS), "--attempts", "1", "--target", str(disk)]
    words += ["--scratch", str(directory / "scratch"), "--store", str(directory / "store"), "-q", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "virtune", "compare", *words], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def by_round(document: Any) -> list[float]:
    """Return the geometric mean over the arms of each round's IOPS, relative to the later half of the rounds."""
    rates: dict[int, list[float]] = {}
    for arm in document["arms"]:
        for one in arm["rounds"]:
            if one["measurement"] is not None:
                rates.setdefault(one["round"], []).append(math.log(one["measurement"]["values"]["iops"]))
    means = [fmean(rates[number]) for number in sorted(rates)]
    later = median(means[len(means) // 2 :])
    return [math.exp(one - later) for one in means]


def told(document: Any) -> str:
    """Write one run in a line."""
    shares = " ".join(f"{100 * one:.0f}" for one in by_round(document))
    (basis,) = document["basis"]["workloads"]
    drift = basis["drift"]
    moved = "unknown" if drift is None else f"{100 * drift['per_minute']:+.0f} % a minute"
    decided = sum(one["verdict"] != "undecided" for one in document["comparisons"])
    read = sum(one["seconds"] for one in document["study"]["first_reads"])
    return f"rounds at {shares} %, drift {moved}, {decided} of {len(ARMS) - 1} decided, read for {read:.1f} s"


def main() -> None:
    """Run so many pairs."""
    with tempfile.TemporaryDirectory(prefix="cold", dir=sys.argv[2] if len(sys.argv) > 2 else "/var/tmp") as place:
        directory = Path(place)
        base = directory / "base.raw"
        with base.open("wb") as file:
            for _ in range(SIZE // 1024**2):
                file.write(os.urandom(1024**2))
        os.sync()
        for number in range(int(sys.argv[1])):
            for first in (bool(number % 2), not number % 2):
                with cold_disk(directory, base) as disk:
                    document = compared(disk, directory, first=first)
                print("read before" if first else "as found   ", told(document), flush=True)


if __name__ == "__main__":
    main()
