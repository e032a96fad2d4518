# SPDX-License-Identifier: Apache-2.0
"""Does a guest without an operating system rank QEMU's settings as others do, and the same in every run?

    python -m benchmarks.bare_ranking bare|linux|vhost-user RUNS [ROUNDS]

Each run is a comparison of its own: `threads`, `native` and `io_uring`, on raw and qcow2, with an IOThread and (in a
bare guest) without, all against threads on raw in an IOThread, in interleaved rounds. A contradiction is an arm that
is better in one run and worse in another. `linux` is fio in a guest with Linux. SCRATCH is where the images go; on a
tmpfs the host's disk has no part in the figures.
"""

import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

CPUS = sorted(os.sched_getaffinity(0))
"""The load has the first, what serves it the last: moved about, an IOThread that polls stops polling."""

ENGINES, FORMATS, THREADS = ("threads", "native", "io_uring"), ("raw", "qcow2"), ("io", "main")
WORKLOAD = "rw=randread,bs=4k,iodepth=8"


def arms(rig: str) -> dict[str, str]:
    """The settings of every arm by its name, the baseline first."""
    exported = rig == "vhost-user"
    load, work = (str(one) for one in (CPUS[0], CPUS[-1]))
    base = f"rig=qemu,guest.system={rig},vcpu.pin={load},emulator.pin={work}"
    base = "rig=vhost-user" if exported else base
    return {
        f"{engine}-{form}-{thread}": f"{base},disk.aio={engine},disk.format={form}"
        + (f",device.iothread=io1,iothread.pin={work}" if thread == "io" and not exported else "")
        for thread, form, engine in product(THREADS[: 1 if exported or rig == "linux" else 2], FORMATS, ENGINES)
    }


def run(rig: str, rounds: int, place: Path) -> dict[str, tuple[str, float]]:
    """Each arm's verdict against the baseline, and its IOPS as a multiple of the baseline's."""
    words = [
        "virtune",
        "compare",
        "--json",
        "-q",
        "--workload",
        WORKLOAD,
        "--rounds",
        str(rounds),
        "--seconds",
        "400ms",
    ]
    words += ["--ramp", "100ms", "--span", "64M", "--scratch", str(place), "--store", str(place / "store.sqlite")]
    words += [word for name, settings in arms(rig).items() for word in ("--arm", f"{name}:{settings}")]
    ran = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"virtune ended with {ran.returncode}: {ran.stderr[-2000:]}")
    found = json.loads(ran.stdout)
    (place / "last.json").write_text(json.dumps(found))
    ruled = [one for one in found["comparisons"] if one["baseline"] == found["study"]["baseline"]]
    return {one["candidate"]: (one["verdict"], one["ratio"]["estimate"] if one["ratio"] else 0.0) for one in ruled}


def main() -> None:
    rig, runs, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 8
    seen: dict[str, list[tuple[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="virtune-ranking-", dir=os.environ.get("SCRATCH")) as place:
        for _ in range(runs):
            for name, one in run(rig, rounds, Path(place)).items():
                seen.setdefault(name, []).append(one)
            print(
                f"load average {os.getloadavg()[0]:.1f}, {len(seen)} arms against {next(iter(arms(rig)))}", flush=True
            )
            print("  ".join(f"{name} {found[-1][0]} x{found[-1][1]:.2f}" for name, found in seen.items()), flush=True)
    for name, found in seen.items():
        verdicts = {verdict for verdict, _ in found}
        wrong = "  CONTRADICTION" if {"better", "worse"} <= verdicts else ""
        print(f"{name:22} " + "  ".join(f"{verdict:9} x{ratio:.2f}" for verdict, ratio in found) + wrong)


if __name__ == "__main__":
    main()
