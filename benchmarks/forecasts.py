# SPDX-License-Identifier: Apache-2.0
"""How long virtune says that a run will take, against how long it takes: twenty runs of different kinds.

    python -m benchmarks.forecasts [NUMBER ...] [--home DIRECTORY] [--keep FILE]     # all of them: about 15 minutes
    python -m benchmarks.forecasts --told FILE                                       # the table of a kept file

Each run is started as a user does it, its standard error is read, and the first time that it says ("about 42 s,
set-up included") is compared with the time from its start to its end. A run that says "at most" and ends because all
is decided is right where it does not take longer than 1.5 times what it said; arms are equal and the margin is 0.1 %
here, so that few end so. All runs share a store, as a user's do: what a rig costs on this host is learnt from those
before. The load average stands beside each, because a busy host takes longer than any forecast can know. Store and
scratch images lie in DIRECTORY, which stays.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FACTOR = 1.5
AIM = 18

_SAID = re.compile(r"(?P<most>at most )?about (?P<time>[0-9][^;,]*?), set-up included")
_PART = re.compile(r"(?P<n>[0-9.]+) (?P<unit>h|min|s)\b")
_UNIT = {"h": 3600.0, "min": 60.0, "s": 1.0}

AIO2 = ("--vary", "disk.aio=threads,native")
AIO8 = (
    "--vary",
    "disk.aio=threads,io_uring",
    "--vary",
    "disk.cache=none,writeback",
    "--vary",
    "disk.discard=ignore,unmap",
)
EQUAL2, EQUAL4 = ("--arm", "a:", "--arm", "b:"), ("--arm", "a:", "--arm", "b:", "--arm", "c:", "--arm", "d:")
LOADS3 = ("--workload", "randread-4k", "--workload", "rw=randwrite,bs=4k,iodepth=16", "--workload", "rw=read,bs=128k")
OPEN = ("--margin", "0.001")

RUNS: tuple[tuple[str, ...], ...] = (
    ("measure", "--rig", "metal", "--rounds", "5", "--seconds", "2s"),
    ("measure", "--rounds", "4", "--seconds", "2s", "--set", "disk.format=qcow2"),
    ("measure", "--rig", "qemu", "--rounds", "4", "--seconds", "2s"),
    ("compare", "--rig", "metal", *EQUAL2, *OPEN, "--rounds", "12", "--seconds", "1s"),
    ("compare", "--rig", "metal", *EQUAL2, *OPEN, *LOADS3, "--rounds", "6", "--seconds", "500ms"),
    ("compare", *EQUAL4, *OPEN, "--rounds", "6", "--seconds", "1s"),
    ("compare", "--rig", "vhost-user", *AIO8, *OPEN, "--rounds", "6", "--seconds", "500ms"),
    ("compare", *EQUAL2, *OPEN, "--budget", "30s", "--seconds", "1s"),
    ("compare", "--rig", "vhost-user", *EQUAL4, *OPEN, *LOADS3[:4], "--budget", "45s", "--seconds", "500ms"),
    ("compare", "--rig", "qemu", *EQUAL2, *OPEN, "--rounds", "6", "--seconds", "1s"),
    ("compare", "--rig", "qemu", *AIO2, *OPEN, "--budget", "60s", "--seconds", "1s"),
    ("compare", "--arm", "metal:rig=metal", "--arm", "a:", "--arm", "b:rig=vhost-user", *OPEN, "--rounds", "8",
     "--seconds", "1s"),
    ("compare", "--rig", "simulated:noisy", *EQUAL4, *OPEN, "--rounds", "60"),
    ("check", "--seconds", "20s"),
    ("check", "--seconds", "30s", "--rig", "storage-daemon"),
    ("tune", "--rig", "vhost-user", *AIO2, "--vary", "disk.format=raw,qcow2", "--budget", "70s", "--confirm", "2"),
    ("tune", "--rig", "storage-daemon", *AIO2, "--confirm", "0", "--budget", "40s"),
    ("tune", "--rig", "simulated:noisy", *AIO2, "--budget", "60s"),
    ("study", "run", "fio-engines", "--quick"),
    ("study", "run", "io-engine", "--quick"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """One run: what was said, whether "at most", what it took, the load average before and after, how it ended."""

    words: str
    said: float | None
    most: bool
    took: float
    load: tuple[float, float]
    code: int

    @property
    def within(self) -> bool:
        """Whether the time was within the factor of what was said; of one that ends when it knows, not above it."""
        if self.said is None or self.code not in (0, 4, 5):
            return False
        return (self.most or self.took >= self.said / FACTOR) and self.took <= self.said * FACTOR


def main() -> None:
    """Run what is asked for, or show what is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", type=int, nargs="*", help=f"1 to {len(RUNS)}")
    parser.add_argument("--home", type=Path, default=Path("/var/tmp/virtune-forecasts"))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--told", type=Path)
    asked = parser.parse_args()
    if asked.told:
        lines = asked.told.read_text(encoding="utf-8").splitlines()
        print("\n".join(table([Took(**json.loads(line)) for line in lines])))
        return
    asked.home.mkdir(parents=True, exist_ok=True)
    runs = []
    for number in asked.numbers or range(1, len(RUNS) + 1):
        runs.append(run(RUNS[number - 1], asked.home))
        print(f"{number:2} {row(runs[-1])}", flush=True)
        if asked.keep:
            with asked.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(runs[-1])) + "\n")
    print("\n".join(["", *table(runs)]))


def run(words: tuple[str, ...], home: Path) -> Took:
    """Run virtune and return what it said and took."""
    places = ["--store", str(home / "store.sqlite"), "--scratch", str(home), "--span", "256M"]
    begun, load = time.monotonic(), os.getloadavg()[0]
    argv = [sys.executable, "-m", "virtune", *words, *places]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    took = time.monotonic() - begun
    said, most = read(done.stderr)
    if said is None:
        print(done.stderr[-1500:], file=sys.stderr)
    loads = (round(load, 1), round(os.getloadavg()[0], 1))
    return Took(words=" ".join(words), said=said, most=most, took=round(took, 1), load=loads, code=done.returncode)


def read(text: str) -> tuple[float | None, bool]:
    """Return the first time that a run says, in seconds, and whether it is said as the most that it takes."""
    match = _SAID.search(text)
    if match is None:
        return None, False
    seconds = sum(float(part["n"]) * _UNIT[part["unit"]] for part in _PART.finditer(match["time"]))
    return seconds, match["most"] is not None


def row(one: Took) -> str:
    """Return a run's row of the table."""
    said = "nothing" if one.said is None else f"{'at most ' if one.most else ''}{one.said:.0f} s"
    factor = "" if not one.said else f"{one.took / one.said:.2f}"
    judged = "yes" if one.within else "**no**"
    return f"| `{one.words}` | {said} | {one.took:.0f} s | {factor} | {one.load[0]} to {one.load[1]} | {judged} |"


def table(runs: list[Took]) -> list[str]:
    """Return the table in Markdown, and how many were within the factor."""
    lines = [f"| run | said | took | took / said | load average | within {FACTOR} |", "|---|---|---|---|---|---|"]
    good = sum(one.within for one in runs)
    return [*lines, *map(row, runs), "", f"{good} of {len(runs)} within a factor of {FACTOR} (aim: {AIM} of 20)."]


if __name__ == "__main__":
    main()
