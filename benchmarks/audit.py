# SPDX-License-Identifier: Apache-2.0
"""How long an audit of 10,000 domains takes: `python -m benchmarks.audit [COUNT]`; the goal is 20 s on 2 cores."""

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DOMAINS = Path(__file__).parents[1] / "tests" / "captures" / "domains"


def main(count: int) -> None:
    """Copy the captured domains until there are enough, and audit the folder as a user would."""
    files = sorted(DOMAINS.glob("*.xml"))
    with tempfile.TemporaryDirectory() as place:
        for number in range(count):
            source = files[number % len(files)]
            shutil.copy(source, Path(place) / f"{number:06}-{source.name}")
        begun = time.monotonic()
        command = [sys.executable, "-m", "virtune", "audit", place, "--fail-on", "never"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took = time.monotonic() - begun
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(done.stdout.splitlines()[-1])
    print(f"{took:.1f} s, {spent.ru_utime + spent.ru_stime:.1f} s of CPU, {spent.ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
