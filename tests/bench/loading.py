# SPDX-License-Identifier: Apache-2.0
"""What tests of rigs share: the ground a stack stands on, a moment of load, and what it leaves."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.conftest import SPAN, generator

from virtune.bench.daemon import DaemonBench
from virtune.bench.metal import MetalBench
from virtune.bench.port import Bench, DiskImageSpec, HostCounters, LoadJob, LoadOutput, Window
from virtune.bench.scratch import Scratch
from virtune.fio.job import FioJob
from virtune.fio.workloads import parse_workload
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import FileTarget, NbdTarget, Stack, VhostUserTarget
from virtune.shell import Warden


class Kept:
    """Keeps captures by name, and samples nothing; `on_load` is called with the load's pid when it is measured."""

    def __init__(self, on_load: Callable[[int], None] = lambda _: None) -> None:
        self.captures: dict[str, bytes] = {}
        self.processes: list[tuple[str, int]] = []
        self.marks: list[str] = []
        self._on_load = on_load

    def capture(self, name: str, content: bytes | str) -> None:
        self.captures[name] = content if isinstance(content, bytes) else content.encode()

    @contextlib.contextmanager
    def host(self, *, processes: Mapping[str, int], image: Path | None) -> Iterator[HostCounters]:
        self.processes += processes.items()
        yield self
        self.marks.append("over")

    def add_process(self, role: str, pid: int) -> None:
        self.processes.append((role, pid))
        if role == "load":
            self._on_load(pid)

    def sample(self, *, mark: str = "") -> int:
        self.marks.append(mark)
        return 0


def raw_job(text: str, *, engine: str, workload: str = "randread-4k", program: str = "fio") -> LoadJob:
    """A job file as it stands, for a workload that says what it is."""
    name = "virtune-load" if "virtune-load" in program else "fio"
    job = FioJob(text=text, arguments=(), chosen=(), direct=True, engines=frozenset({engine}), asked=(), program=name)
    return LoadJob(job=job, workload=parse_workload(workload)[0], program=program)


def run(bench: Bench, job: LoadJob, *, seconds: float, keep: Kept | None = None) -> LoadOutput:
    return bench.run([job], Window(seconds=seconds, ramp_seconds=0.0), keep or Kept())


def load(bench: Bench, warden: Warden, *, seconds: float = 0.6, depth: int = 32) -> bytes:
    """Load a bench with random reads for a moment."""
    assert warden.directory.exists()
    program, engine, words = "fio", "nbd", ""
    match bench.target:
        case NbdTarget(uri=uri):
            words = f"ioengine=nbd\nuri={uri}"
        case FileTarget(path=path):
            engine, words = "libaio", f"ioengine=libaio\nfilename={path}\ndirect=1"
        case VhostUserTarget(socket=socket, queues=queues):
            program = generator()
            engine, words = "libblkio", f"ioengine=virtio-blk-vhost-user\nfilename={socket}\n"
            words += f"numjobs={queues}\ngroup_reporting=1"
    text = f"[load]\nthread=1\nrw=randread\nbs=4k\niodepth={depth}\ntime_based\nruntime={round(seconds * 1000)}ms\n"
    loaded = run(bench, raw_job(f"{text}size={SPAN}\n{words}\n", engine=engine, program=program), seconds=seconds)
    bench.in_force = type(bench.in_force)(checks=(*bench.in_force.checks, *loaded.checks))
    return loaded.output


def load_until_seen(setting: str, bench: Bench, warden: Warden) -> None:
    """Load a bench until a setting was seen under load: fio takes its time to start on a busy machine."""
    for seconds in (0.6, 1.2, 2.4, 4.8):
        load(bench, warden, seconds=seconds)
        if setting in {check.setting for check in seen_under_load(bench)}:
            return


def seen_under_load(bench: Bench) -> list[Check]:
    """Return what was found while the bench was loaded."""
    return [check for check in bench.in_force.checks if UNDER_LOAD in check.proof and check.found is not None]


def here(bench: Bench) -> DaemonBench | MetalBench:
    """Return a bench that this host loads."""
    assert isinstance(bench, DaemonBench | MetalBench)
    return bench


def ground(stack: Stack, scratch: Scratch, warden: Warden, *, writes: bool = False) -> DiskImageSpec:
    image = None if stack.disk.backend == "null-co" else scratch.image_for(stack.disk, warden)
    return DiskImageSpec(image=image, size_bytes=SPAN, writes=writes)
