# SPDX-License-Identifier: Apache-2.0
"""The rig port: a rig brings Stacks up, loads them, and takes them down; a `with` for the study, and in it one for
each trial.

What a rig started (a daemon, a guest) may live as long as the study, and arms are switched in it; how an arm came to
run is part of the evidence. The rig knows where its load runs, so it runs it. What promises all rigs keep is written
in `tests/contract/test_rigs.py`; `virtune.bench.rigs` has a row for each.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from virtune.fio.job import FioJob
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Stack
from virtune.model.target import Target
from virtune.model.workload import Workload
from virtune.shell import Warden

PATIENCE_SECONDS = 30.0
"""How long past its run time a load may take before it is held to be stuck: on a disk that answers at all, fio ends
within a second of its `runtime`, since it only waits for what is in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """What one client is to run: the job, the part of the workload that it stands for, the program's path."""

    job: FioJob
    workload: Workload
    program: str

    @property
    def clones(self) -> int:
        """How many jobs it starts."""
        return sum(int(one.get("numjobs", "1")) for one in self.workload)

    @property
    def flushes(self) -> bool:
        """Whether it makes QEMU flush, now and then or after every write."""
        return any(
            one.writes or one.get("fsync", "0") != "0" or one.get("fdatasync", "0") != "0" for one in self.workload
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a load is measured: for `seconds` after a ramp. `round` and `seed` are the study's, for rigs that draw.

    `patience_seconds` is how much longer it may take before it is held to be stuck.
    """

    seconds: float
    ramp_seconds: float
    round: int = 1
    seed: int = 0
    patience_seconds: float = PATIENCE_SECONDS

    def begins(self, settle_seconds: float) -> float:
        """Return when the counters are read first, in seconds after a start that takes so long."""
        return self.ramp_seconds + min(settle_seconds, self.seconds / 3)

    def ends(self, margin_seconds: float) -> float:
        """Return when they are read last: so long before the end, since no load ends sooner than it was asked to."""
        return self.ramp_seconds + self.seconds - min(margin_seconds, self.seconds / 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutput:
    """What a load that came to its end left: its JSON as it came, and what was seen of settings while it ran.

    `log` is what it did over the measured time, in fio's form (`ms, IOPS, direction, ...`), all jobs after another.
    `beside` is the output of loads that ran with it in other guests. `operations` is the log of every single I/O, of
    each of them, where the job asked for it.
    """

    output: bytes
    log: bytes
    command: str
    checks: tuple[Check, ...]
    beside: tuple[bytes, ...] = ()
    operations: tuple[bytes, ...] = ()


class HostCounters(Protocol):
    """The counters of this host, sampled while a load runs."""

    def add_process(self, role: str, pid: int) -> None:
        """Watch one more process from now on. A role may have several."""
        ...

    def sample(self, *, mark: str = "") -> int:
        """Take a sample now, findable by its mark; returns its time (monotonic ns)."""
        ...


class Keep(Protocol):
    """Where a rig leaves its evidence; what was left stays, whatever becomes of the load."""

    def capture(self, name: str, content: bytes | str) -> None:
        """Keep raw evidence by name."""
        ...

    def host(self, *, processes: Mapping[str, int], image: Path | None) -> AbstractContextManager[HostCounters]:
        """Sample this host while the block runs: those processes by their role, the devices below the image."""
        ...


class Bench(Protocol):
    """A Stack that is up: where the load lands, what was seen of its settings, how it came to run.

    `command` is what a person would type for it. `changeover` is None for a rig that has no process of its own.
    """

    target: Target
    in_force: InForce
    command: str
    changeover: Changeover | None

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        """Run a load to its end, one job for each guest that shares it, and return what it left.

        Raises LoadError with the reason when one of them has no result; then nothing of the load runs any more.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskImageSpec:
    """What a rig stands on: the image (None for a stack without one), its size, and whether the load writes.

    `second` is the image of every second guest where these are spread.
    """

    image: Path | None
    size_bytes: int
    writes: bool
    second: Path | None = None


class Session(Protocol):
    """A rig for as long as a study lasts. One stack is up at a time."""

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        """Bring a stack up, and down again with the block; with `restart` in a process that carried none before.

        Raises RigError when it does not come up. What was seen is recorded, and judged by the caller. Whatever went
        wrong in the block or before it, the next stack comes up all the same: in a new process, where it must.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a rig is given when it is made ready: the warden of its processes, where scratch images lie.

    `access` has the ways into the user's own guests by their names, each of the kind that its rig makes.
    """

    warden: Warden
    scratch: Path
    access: Mapping[str, object] = field(default_factory=dict)
