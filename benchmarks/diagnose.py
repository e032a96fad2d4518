# SPDX-License-Identifier: Apache-2.0
"""Does `virtune diagnose` change the IOPS of the VM that it looks at? On and off in turns, within one run of a load.

    python benchmarks/diagnose.py [PAIRS] [SECONDS]

A guest under load (the one without an operating system, depth 8 on a null-co of 500 us) runs all the time. In a
period of SECONDS `virtune diagnose --qmp` looks at it, as a process of its own with its start; in the next one
nothing does, the order of the two drawn for each pair. QEMU's own count of requests, asked at the borders, gives the
IOPS. Prints the ratio on/off with its 95 % interval over pairs, and which files the diagnosis left.
"""

import json
import math
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.top import running
from virtune.analyse.stats.student import mean_and_radius

JOB = "[a]\nioengine=virtio-blk\nfilename=disk0\nrw=randread\nbs=4k\niodepth=8\nruntime=3600\ntime_based=1\n"
CALL = [sys.executable, "-c", "import sys; from virtune.__main__ import main; main()", "diagnose", "--json"]
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

    def rate_over(self, seconds: float) -> float:
        """Wait, and return the requests a second."""
        begun, before = time.monotonic(), self._count()
        time.sleep(seconds)
        return (self._count() - before) / (time.monotonic() - begun)

    def _count(self) -> int:
        shown = self._ask("query-blockstats")
        assert isinstance(shown, list)
        return sum(int(one["stats"]["rd_operations"]) for one in shown)


def files_of(directory: Path) -> set[Path]:
    """All files below a directory."""
    return {path for path in directory.rglob("*") if path.is_file()}


def main() -> None:
    """Measure pairs of periods."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    logs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="diagnose-") as name:
        directory, home = Path(name), Path(name) / "home"
        home.mkdir()
        surroundings = {**os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CACHE_HOME": str(home)}
        words = [*CALL, "--qmp", f"{directory}/0.top", "--seconds", str(seconds - START_SECONDS)]
        with running(directory, 1, 1, job=JOB, latency_ns=500_000, loaded=False):
            counter = Counter(directory / "0.load")
            counter.rate_over(3)
            for pair in range(pairs):
                rates = {}
                for watched in random.Random(pair).sample((True, False), 2):
                    child = subprocess.Popen(words, env=surroundings, stdout=subprocess.DEVNULL) if watched else None
                    rates[watched] = counter.rate_over(seconds)
                    if child is not None and child.wait() != 0:
                        sys.exit("diagnose failed")
                logs.append(math.log(rates[True] / rates[False]))
                mean, radius = mean_and_radius(logs, 0.95)
                ends = (
                    "" if radius is None else f" [{math.expm1(mean - radius):+.2%}, {math.expm1(mean + radius):+.2%}]"
                )
                print(
                    f"pair {pair + 1}: {rates[False]:,.0f} IOPS alone; with diagnose {math.expm1(mean):+.2%}{ends}",
                    flush=True,
                )
        print(f"files left: {sorted(str(path.relative_to(home)) for path in files_of(home)) or 'none'}")


if __name__ == "__main__":
    main()
