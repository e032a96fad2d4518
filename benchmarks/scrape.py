# SPDX-License-Identifier: Apache-2.0
"""Does `promtool check metrics` accept a live scrape, and what does a second scrape cost?

    python -m benchmarks.scrape [STORE]

Starts `virtune serve` over a store (by default that of the tests), scrapes it three times, and gives what it answers
to promtool (Debian's package prometheus).
"""

import gzip
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

KEPT = Path(__file__).parents[1] / "tests" / "store" / "data" / "older-method.sqlite.gz"


def main() -> None:
    """Print promtool's answer and the time of each scrape."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "kept.sqlite"
        store.write_bytes(Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else gzip.decompress(KEPT.read_bytes()))
        argv = [sys.executable, "-m", "virtune", "serve", "--store", str(store), "--port", "0"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as served:
            try:
                assert served.stdout is not None
                address = served.stdout.readline().strip()
                texts = [urllib.request.urlopen(f"{address}metrics").read() for _ in range(3)]  # noqa: S310
            finally:
                served.send_signal(signal.SIGINT)
    for text in texts:
        found = re.search(rb"^virtune_scrape_duration_seconds (\S+)", text, re.MULTILINE)
        assert found is not None
        print(f"{len(text.splitlines())} lines in {1e3 * float(found[1]):.0f} ms")
    checked = subprocess.run(["promtool", "check", "metrics"], input=texts[-1], capture_output=True, check=False)
    print(f"promtool check metrics: {checked.returncode} {checked.stderr.decode().strip()}")


if __name__ == "__main__":
    main()
