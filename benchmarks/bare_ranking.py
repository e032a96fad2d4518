# SPDX-License-Identifier: Apache-2.0
"""Does a guest without an operating system rank QEMU's settings as others do, and the same in every run?

    python -m benchmarks.bare_ranking bare|linux|vhost-user RUNS [ROUNDS]
    python -m benchmarks.bare_ranking both [MINUTES]

Each run is a comparison of its own: `threads`, `native` and `io_uring`, on raw and qcow2, with an IOThread and (in a
bare guest) without, all against threads on raw in an IOThread, in interleaved rounds. A contradiction is an arm that
is better in one run and worse in another. `linux` is fio in a guest with Linux. SCRATCH is where the images go; on a
tmpfs the host's disk has no part in the figures. `both` runs a bare guest and vhost-user exports in turns, on the six
arms that both have, for so many minutes at most (6), and prints the two rankings side by side.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median

from scipy.stats import spearmanr

CPUS = sorted(os.sched_getaffinity(0))
"""The load has the first, what serves it the last: moved about, an IOThread that polls stops polling."""

ENGINES, FORMATS, THREADS = ("threads", "native", "io_uring"), ("raw", "qcow2"), ("io", "main")
WORKLOAD = "rw=randread,bs=4k,iodepth=8"
ROUNDS = 8
Seen = dict[str, list[tuple[str, float]]]
"""Of each arm the verdict and the multiple of the baseline's IOPS, a run each."""


def arms(rig: str, *, threads: tuple[str, ...]) -> dict[str, str]:
    """The settings of every arm by its name, the baseline first."""
    exported = rig == "vhost-user"
    load, work = (str(one) for one in (CPUS[0], CPUS[-1]))
    base = f"rig=qemu,guest.system={rig},vcpu.pin={load},emulator.pin={work}"
    base = f"rig=vhost-user,export.iothread=on,load.pin={load}" if exported else base
    return {
        f"{engine}-{form}-{thread}": f"{base},disk.aio={engine},disk.format={form}"
        + (f",device.iothread=io1,iothread.pin={work}" if thread == "io" and not exported else "")
        for thread, form, engine in product(threads, FORMATS, ENGINES)
    }


def run(
    rig: str, rounds: int, place: Path, *, threads: tuple[str, ...] = THREADS[:1]
) -> dict[str, tuple[str, float]]:
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
    words += [
        word for name, settings in arms(rig, threads=threads).items() for word in ("--arm", f"{name}:{settings}")
    ]
    ran = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(f"virtune ended with {ran.returncode}: {ran.stderr[-2000:]}")
    found = json.loads(ran.stdout)
    (place / "last.json").write_text(json.dumps(found))
    ruled = [one for one in found["comparisons"] if one["baseline"] == found["study"]["baseline"]]
    return {one["candidate"]: (one["verdict"], one["ratio"]["estimate"] if one["ratio"] else 0.0) for one in ruled}


def one_rig(rig: str, runs: int, rounds: int, place: Path) -> None:
    """Run one rig so many times, and print its verdicts."""
    seen: Seen = {}
    for _ in range(runs):
        for name, one in run(rig, rounds, place, threads=THREADS if rig == "bare" else THREADS[:1]).items():
            seen.setdefault(name, []).append(one)
        print(f"load average {os.getloadavg()[0]:.1f}, {len(seen)} arms", flush=True)
        print("  ".join(f"{name} {found[-1][0]} x{found[-1][1]:.2f}" for name, found in seen.items()), flush=True)
    for name, found in seen.items():
        print(f"{name:22} {told(found)}{contradiction(found)}")


def both(minutes: float, place: Path) -> None:
    """Run both rigs in turns while another turn fits into the time, and print what they say of each arm."""
    seen: dict[str, Seen] = {"bare": {}, "vhost-user": {}}
    begun, longest = time.monotonic(), 0.0
    while time.monotonic() - begun + longest < minutes * 60:
        turn = time.monotonic()
        for rig, found in seen.items():
            for name, one in run(rig, ROUNDS, place).items():
                found.setdefault(name, []).append(one)
        longest = max(longest, time.monotonic() - turn)
        print(f"load average {os.getloadavg()[0]:.1f}, a turn of {time.monotonic() - turn:.0f} s", flush=True)
    bare, exported = seen.values()
    for name in bare:
        together = bare[name] + exported[name]
        print(f"{name:18} bare: {told(bare[name])}  vhost-user: {told(exported[name])}{contradiction(together)}")
    for rig, found in seen.items():
        best = sorted(found, key=lambda name: -middle(found[name]))
        print(f"{rig:10} fastest first: {', '.join(f'{name} x{middle(found[name]):.2f}' for name in best)}")
    ranks = spearmanr([middle(bare[name]) for name in bare], [middle(exported[name]) for name in bare])
    print(f"rank correlation (Spearman) of {len(bare)} arms: {ranks.statistic:.2f}")


def told(found: list[tuple[str, float]]) -> str:
    return "  ".join(f"{verdict:9} x{ratio:.2f}" for verdict, ratio in found)


def contradiction(found: list[tuple[str, float]]) -> str:
    return "  CONTRADICTION" if {"better", "worse"} <= {verdict for verdict, _ in found} else ""


def middle(found: list[tuple[str, float]]) -> float:
    return median(ratio for _, ratio in found)


def main() -> None:
    rig, rest = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="virtune-ranking-", dir=os.environ.get("SCRATCH")) as place:
        if rig == "both":
            both(float(rest[0]) if rest else 6.0, Path(place))
        else:
            one_rig(rig, int(rest[0]), int(rest[1]) if len(rest) > 1 else ROUNDS, Path(place))


if __name__ == "__main__":
    main()
