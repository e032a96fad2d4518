# SPDX-License-Identifier: Apache-2.0
"""virtune's figure against the same fio command run by hand on the same export, in alternation.

    python benchmarks/peer.py ENGINE PAIRS [SECONDS] [FILE]

The export with that aio engine is up all the time; in random order, fio runs once under virtune (watched, its threads
looked at) and once by hand. Prints the ratio of IOPS, virtune's to by hand, with its 95 % interval. With FILE the
pairs are kept there and all that it holds count, so that a machine need not be quiet for long at a time.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import cast

from virtune.analyse.stats.paired import interval_of
from virtune.bench.counters import Sampler
from virtune.bench.load import fio_engines
from virtune.bench.port import Bench, DiskImageSpec, HostCounters, LoadJob, Surroundings, Window, session
from virtune.bench.scratch import Scratch
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.stack import Aio, Disk, Stack
from virtune.probe.devices import backing_of
from virtune.shell import Warden

SPAN = 1024**3
RAMP = 0.25


class Sampled:
    """Samples this host as a trial does, and keeps nothing."""

    def capture(self, name: str, content: bytes | str) -> None:
        """Nothing of it is looked at."""

    @contextlib.contextmanager
    def host(self, *, processes: Mapping[str, int], image: Path | None) -> Iterator[HostCounters]:
        """Sample the processes and the devices below the image."""
        assert image is not None
        with Sampler(devices=backing_of(image).names, processes=processes, files={"image": image}) as sampler:
            yield sampler


def by_virtune(bench: Bench, job: LoadJob, seconds: float) -> float:
    """Load the bench as a trial does."""
    loaded = bench.run([job], Window(seconds=seconds, ramp_seconds=RAMP), Sampled())
    return sum(part.iops for part in read_result(loaded.output.decode()).loads)


def by_hand(directory: Path, job: str) -> float:
    """Run fio as a person would."""
    (directory / "hand.fio").write_text(job)
    command = ["fio", "--output-format=json+", "--output=hand.json", "--eta=never", "hand.fio"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return sum(part.iops for part in read_result((directory / "hand.json").read_text()).loads)


def main() -> None:
    """Run the pairs of one engine and print the ratio of all."""
    engine, pairs = sys.argv[1], int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
    kept = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    found = [] if kept is None or not kept.exists() else [tuple(pair) for pair in json.loads(kept.read_text())]
    chance = Random(len(found))
    (workload,) = parse_workload("randread-4k")
    stack = Stack(disk=Disk(aio=cast(Aio, engine)))
    with (
        Warden("peer") as warden,
        Scratch(Path(f"/var/tmp/virtune-{os.geteuid()}"), span_bytes=SPAN, say=lambda _: None) as scratch,
        session(Surroundings(warden=warden, scratch=scratch.directory)) as rigs,
    ):
        image = scratch.image_for(stack.disk, warden)
        with rigs.up(stack, DiskImageSpec(image=image, size_bytes=SPAN, writes=False)) as bench:
            for number in range(pairs):
                job = fio_job(
                    workload,
                    bench.target,
                    seconds=seconds,
                    ramp_seconds=RAMP,
                    seed=number,
                    clients=Clients(engines=fio_engines("fio")),
                )
                load = LoadJob(job=job, workload=workload, program="fio")
                pair = {}
                for way in chance.sample(["hand", "virtune"], 2):
                    hand = way == "hand"
                    pair[way] = by_hand(warden.directory, job.text) if hand else by_virtune(bench, load, seconds)
                found.append((pair["hand"], pair["virtune"]))
    if kept is not None:
        kept.write_text(json.dumps(found))
    ratio = interval_of(found, confidence=0.95)
    assert ratio is not None
    change, low, high = ((value - 1) * 100 for value in (ratio.estimate, ratio.low, ratio.high))
    print(f"{engine}: virtune against by hand {change:+.2f} % [{low:+.2f}, {high:+.2f}], {len(found)} pairs")


main()
