# SPDX-License-Identifier: Apache-2.0
"""A loud neighbour: another process of this host that burns its CPUs or loads its disk while a trial runs.

It has no lower priority than the load, since a neighbouring VM has none either; the warden ends it with the trial.

And what a stack's own processes cost while they have nothing to do: their CPU time in a second without a load.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from virtune import shell
from virtune.model.errors import RigError
from virtune.model.evidence import UNDER_LOAD, Check
from virtune.probe.process import Process

Kind = Literal["none", "cpu", "io"]

IMAGE = 8
"""The number of the neighbour's scratch image: no disk of a guest has it."""

_LOUD_NS = 20_000_000
"""fio takes less until its jobs run on an idle host, where its start takes some 10 ms of CPU time."""

_LOUD_SECONDS = 30.0
_TICK_SECONDS = 0.02


class LoudNeighbour:
    """A neighbour that runs; of kind `none` there is none."""

    def __init__(self, kind: Kind, pid: int | None) -> None:
        self.kind, self.pid = kind, pid
        self._before = self._done()

    def check(self) -> tuple[Check, ...]:
        """Check that it did since its start what it was started for; nothing without one."""
        if self.pid is None:
            return ()
        done = self._done() - self._before
        unit = "bytes read" if self.kind == "io" else "ns of CPU time"
        proof = f"process {self.pid}: {done:,} {unit} {UNDER_LOAD}"
        return (Check("host.neighbour", self.kind, self.kind if done > 0 else "none", proof),)

    def _done(self) -> int:
        if self.pid is None:
            return 0
        process = Process(self.pid)
        if self.kind == "io":
            return process.read_bytes() or 0
        return sum(thread.cpu_ns for thread in process.threads())


@contextlib.contextmanager
def neighbour(kind: Kind, warden: shell.Warden, image: Callable[[], Path]) -> Iterator[LoudNeighbour]:
    """Run a neighbour while the block runs; `image` returns the scratch image that it reads. Raises RigError when it
    does not become loud.
    """
    if kind == "none":
        yield LoudNeighbour(kind, None)
        return
    cpus = len(os.sched_getaffinity(0))
    words = ["--name=neighbour", "--thread=1", "--time_based=1", "--runtime=30d", "--eta=never"]
    words += ["--output=neighbour.txt"]
    if kind == "cpu":
        words += ["--ioengine=cpuio", "--cpuload=100", f"--numjobs={cpus}"]
    else:
        words += [f"--filename={image()}", "--readonly", "--rw=randread", "--bs=4k", "--iodepth=32", "--direct=1"]
        words += ["--ioengine=libaio", "--norandommap=1", "--allow_file_create=0", "--invalidate=0"]
    with warden.running([shell.find("fio"), *words], name="neighbour") as child:
        process, deadline = Process(child.pid), time.monotonic() + _LOUD_SECONDS
        while sum(thread.cpu_ns for thread in process.threads()) < _LOUD_NS:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RigError(f"the neighbour that loads {kind} did not begin", hint=child.last_words())
            time.sleep(_TICK_SECONDS)
        yield LoudNeighbour(kind, child.pid)


SECONDS = 1.0
"""How long is measured. An IOThread that polls ends that poll_max_ns after its last work, long before."""

_VCPU = "CPU "
"""How QEMU names the threads of its vCPUs, which belong to the guest's own system."""


def idle_cost(pids: Iterable[int], *, seconds: float = SECONDS) -> str:
    """Let time pass, and write what the threads of these processes used meanwhile, without vCPUs, as JSON."""
    mine = [Process(pid) for pid in pids]
    before, begun = _cpu_ns(mine), time.monotonic()
    time.sleep(seconds)
    used, passed = _cpu_ns(mine) - before, time.monotonic() - begun
    return json.dumps({"seconds": passed, "cpu_seconds": max(0, used) / 1e9}) + "\n"


def _cpu_ns(processes: Iterable[Process]) -> int:
    return sum(one.cpu_ns for process in processes for one in process.threads() if not one.name.startswith(_VCPU))
