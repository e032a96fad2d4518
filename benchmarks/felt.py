# SPDX-License-Identifier: Apache-2.0
"""What the verbs that one waits for cost: `python -m benchmarks.felt [RUNS]`, in seconds of CPU of a whole process.

They are run in turn, so that what else the machine does is spread over all of them; of each the least, the median and
the greatest are shown. Python keeps the bytecode of the first run, as an installation does.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.cli.kept_results import result

REPEATS = 8


def main(runs: int) -> None:
    """Make two folders of results and a store with a study, then time."""
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("before", "after")]
        for speed, folder in zip((1.0, 0.95), folders, strict=True):
            for number in range(REPEATS):
                result(folder, f"run-{number}.json", scale=speed * (1 + number % 3 / 100))
        store = ["--store", f"{place}/store.sqlite"]
        _cpu(["compare", "--vary", "disk.aio=threads,native", "--rig", "simulated", "--rounds", "8", *store])
        verbs = [["--help"], ["compare", *map(str, folders)], ["show", "last", *store]]
        for words in verbs:
            _cpu(words)
        found = [[_cpu(words) for words in verbs] for _ in range(runs)]
    for words, seconds in zip(verbs, zip(*found, strict=True), strict=True):
        least, most = min(seconds), max(seconds)
        print(f"virtune {words[0]}: {median(seconds):.2f} s of CPU ({least:.2f} to {most:.2f})")


def _cpu(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "virtune", *words], capture_output=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
