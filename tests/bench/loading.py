# SPDX-License-Identifier: Apache-2.0
"""What tests of rigs share: the ground a stack stands on, and a moment of load."""

from tests.conftest import SPAN, generator

from virtune.bench.load import run_load
from virtune.bench.port import Bench, DiskImageSpec
from virtune.bench.scratch import Scratch
from virtune.bench.watch import Moments
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.model.stack import Stack
from virtune.model.target import FileTarget, NbdTarget, VhostUserTarget
from virtune.shell import Warden


def load(bench: Bench, warden: Warden, *, seconds: float = 0.6, depth: int = 32) -> bytes:
    """Load a bench with random reads for a moment."""
    program, engine = "fio", ""
    match bench.target:
        case NbdTarget(uri=uri):
            engine = f"ioengine=nbd\nuri={uri}"
        case FileTarget(path=path):
            engine = f"ioengine=libaio\nfilename={path}\ndirect=1"
        case VhostUserTarget(socket=socket, queues=queues):
            program = generator()
            engine = f"ioengine=virtio-blk-vhost-user\nfilename={socket}\nnumjobs={queues}\ngroup_reporting=1"
    job = f"[load]\nthread=1\nrw=randread\nbs=4k\niodepth={depth}\ntime_based\nruntime={round(seconds * 1000)}ms\n"
    moments = Moments(begin_seconds=0.1, end_seconds=seconds, on_begin=lambda: None, on_end=lambda: None)
    loaded = run_load(
        program,
        f"{job}size={SPAN}\n{engine}\n",
        (),
        bench=bench,
        warden=warden,
        moments=lambda _: moments,
        flushes=False,
    )
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


def ground(stack: Stack, scratch: Scratch, warden: Warden, *, writes: bool = False) -> DiskImageSpec:
    image = None if stack.disk.backend == "null-co" else scratch.image_for(stack.disk, warden)
    return DiskImageSpec(image=image, size_bytes=SPAN, writes=writes)
