# SPDX-License-Identifier: Apache-2.0
"""What one sample costs: `python benchmarks/counters.py [THREADS]` watches a process with that many threads."""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from virtune.bench.counters import Sampler
from virtune.probe.devices import backing_of

LIMIT_MS = 2.0


def main() -> None:
    """Take 500 samples and print what they cost."""
    extra = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(extra)]
    for thread in threads:
        thread.start()
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "image"
        image.write_bytes(os.urandom(8 << 20))
        devices = backing_of(image).names
        begin = time.process_time()
        with Sampler(
            devices=devices, processes={"daemon": os.getpid()}, files={"image": image}, interval_seconds=60
        ) as sampler:
            for _ in range(500):
                sampler.sample()
        cpu_ms = (time.process_time() - begin) / 500 * 1e3
    end.set()
    samples = [json.loads(line) for line in sampler.content().splitlines()[1:]]
    took = sorted(sample["took_ns"] / 1e6 for sample in samples)
    size = len(sampler.content()) / len(samples)
    print(f"threads {extra + 2}  devices {', '.join(devices) or 'none'}  bytes a sample {size:.0f}")
    print(f"read ms: median {statistics.median(took):.3f}  p99 {took[int(len(took) * 0.99)]:.3f}  max {took[-1]:.3f}")
    print(f"cpu ms a sample, written out: {cpu_ms:.3f}  (limit {LIMIT_MS})")
    sys.exit(cpu_ms > LIMIT_MS)


if __name__ == "__main__":
    main()
