# SPDX-License-Identifier: Apache-2.0
"""What looking at a VM costs it: IOPS of its disk while virtune looks, against IOPS while it does not.

    python -m benchmarks.overhead diagnose|top|exporter [PAIRS] [SECONDS]

A guest without an operating system loads a null device all the time, under TCG: at a latency of 1 ms with 8 requests
in flight, so that it waits for the device, as VMs do. Of every two windows of SECONDS one, drawn at random, is looked
at: by `diagnose`, by `top --csv` once a second, both with their start, or by one scrape of `watch --listen`. QEMU's
own count of completed requests is read at the ends of each window through a monitor of its own. Prints the ratio of
IOPS, looked at to not looked at, with its 95 % interval, and the CPU time that looking took.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.guests.loaded import JOB, loading, null

from benchmarks.diagnose import Counter
from virtune.analyse.stats.paired import interval_of

LATENCY_NS = 1_000_000
VIRTUNE = (sys.executable, "-c", "import sys; from virtune.__main__ import main; main()")


@contextlib.contextmanager
def looking(verb: str, monitor: Path, seconds: float) -> Iterator[Callable[[], object]]:
    """Give what looks once, for most of a window."""
    least = max(2, int(seconds) - 2)
    words = {
        "diagnose": ["diagnose", "--qmp", str(monitor), "--seconds", str(least)],
        "top": ["top", "--csv", "--count", str(least), "--qmp", str(monitor)],
        "exporter": ["watch", "--qmp", str(monitor), "--listen", "127.0.0.1:0"],
    }[verb]
    if verb != "exporter":
        yield lambda: subprocess.run([*VIRTUNE, *words], check=True, stdout=subprocess.DEVNULL)
        return
    with subprocess.Popen([*VIRTUNE, *words], stderr=subprocess.PIPE, text=True) as exporter:
        try:
            assert exporter.stderr is not None
            said = ""
            while (found := re.search(r"http://\S+/metrics", said)) is None:
                said += exporter.stderr.readline()
            place = found[0]

            def scrape() -> None:
                with urllib.request.urlopen(place) as answer:  # noqa: S310 - of our own exporter
                    assert b"virtune_" in answer.read()

            yield scrape
        finally:
            exporter.terminate()


def main() -> None:
    """Load, look, compare."""
    verb = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 10.0
    chance, found = Random(1), list[tuple[float, float]]()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ends:
        place = Path(directory)
        nodes = [*null(LATENCY_NS), "-qmp", f"unix:{place / 'count'},server=on,wait=off"]
        guest = ends.enter_context(loading(place, nodes, JOB.replace("runtime=600", "runtime=7200")))
        look = ends.enter_context(looking(verb, guest.socket, seconds))
        counter, cpu = Counter(place / "count"), os.times()
        look()

        def window(*, looked: bool) -> float:
            meanwhile = threading.Thread(target=look if looked else lambda: None)
            meanwhile.start()
            rate = counter.rate_over(seconds)
            meanwhile.join()
            return rate

        for _ in range(pairs):
            first = chance.random() < 0.5
            values = {looked: window(looked=looked) for looked in (first, not first)}
            found.append((values[False], values[True]))
        took = (sum(os.times()[2:4]) - sum(cpu[2:4])) / (pairs + 1)
    ratio = interval_of(found, confidence=0.95)
    assert ratio is not None
    change, low, high = ((value - 1) * 100 for value in (ratio.estimate, ratio.low, ratio.high))
    of = "" if verb == "exporter" else f"; {took:.2f} s of CPU a look"
    print(f"{verb}: {pairs} pairs of {seconds:g} s change IOPS by {change:+.2f} % [{low:+.2f}, {high:+.2f}]{of}")


main()
