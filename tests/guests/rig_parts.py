# SPDX-License-Identifier: Apache-2.0
"""A test guest for tests: what it runs on, and its load."""

from pathlib import Path

from tests.bench.loading import raw_job, run
from tests.conftest import SPAN

from virtune.bench.port import DiskImageSpec, LoadOutput
from virtune.bench.qemu.load import GuestBench
from virtune.model.evidence import Check
from virtune.model.stack import Machine, Stack
from virtune.model.text import Bytes

GUEST = Stack(rig="qemu")

MIB = 1024**2
OLDER = Machine(type="pc", cpu="Nehalem", vcpus=1, memory=Bytes(256 * MIB), numa="0")
OF_OLDER = {
    "machine.type": "pc", "machine.cpu": "Nehalem", "machine.vcpus": "1", "guest.vcpus": "1",
    "machine.memory": str(256 * MIB), "memory.numa": "0", "guest.queue_depth": "1",
}  # fmt: skip
"""What is seen of such a guest that has its disk on IDE."""


def ground(image: Path, *, writes: bool = False) -> DiskImageSpec:
    return DiskImageSpec(image=image, size_bytes=SPAN, writes=writes)


def found(checks: tuple[Check, ...]) -> dict[str, str | None]:
    assert not [c for c in checks if c.agrees is False]
    return {check.setting: check.found for check in checks if check.found is not None}


def load(bench: GuestBench, *, rw: str = "randread", seconds: float = 1.0) -> LoadOutput:
    text = f"[x]\nioengine=libaio\ndirect=1\niodepth=16\nbs=4k\nrw={rw}\nfilename={bench.target.path}\n"  # type: ignore[union-attr]
    text += f"size={SPAN}\ntime_based=1\nruntime={int(seconds * 1000)}ms\nallow_file_create=0\n"
    return run(bench, raw_job(text, engine="libaio"), seconds=seconds)


def engine_at_work(bench: GuestBench) -> str | None:
    """On a host that is busy it takes a longer load until it shows."""
    seen = found((*bench.in_force.checks, *load(bench, seconds=0.5).checks))
    return seen["disk.aio"] if "disk.aio" in seen else found(load(bench, seconds=4.0).checks)["disk.aio"]
