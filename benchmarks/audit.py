# SPDX-License-Identifier: Apache-2.0
"""How long an audit of 10,000 domains takes, as text and as JSON: `python -m benchmarks.audit [COUNT]`."""

import re
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

DOMAINS = Path(__file__).parents[1] / "tests" / "captures" / "domains"


def main(count: int) -> None:
    """Copy the captured domains, each with a name of its own, until there are enough; audit them as a user would."""
    texts = [file.read_text() for file in sorted(DOMAINS.glob("*.xml"))]
    with tempfile.TemporaryDirectory() as place:
        for number in range(count):
            own = re.sub("<name>.*?</name>", f"<name>vm{number}</name>", texts[number % len(texts)], count=1)
            own = re.sub("<uuid>.*?</uuid>", f"<uuid>{uuid.UUID(int=number)}</uuid>", own, count=1)
            (Path(place) / f"{number:06}.xml").write_text(own)
        for words in ([], ["--json"]):
            _timed([sys.executable, "-m", "virtune", "audit", place, "--fail-on", "never", *words])


def _timed(command: list[str]) -> None:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took, spent = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    print(f"{' '.join(command[3:4] + command[7:])}: {done.stdout.splitlines()[-1][:90]}")
    print(f"{took:.1f} s, {cpu:.1f} s of CPU, {spent.ru_maxrss // 1024} MiB in its largest process")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
