# SPDX-License-Identifier: Apache-2.0
"""The rig port: a rig brings Stacks up, loads them, and takes them down, as a `with` block for the study and one for
each trial. And the rigs by name: each is imported and prepared when a stack needs it, to save its start-up time.

A rig's processes (a daemon, a guest) may live as long as the study, and arms are switched in them; how an arm was
started is part of the evidence. The rig knows where its load runs, so it runs the load. The contract of all rigs is
in `tests/contract/test_rigs.py`. A new rig is a row of `virtune.model.rig`, a line in `SESSIONS`, and a module or
room beside this one.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from virtune.dialects.qemu.qmp import DaemonPlaces
from virtune.fio.job import FioJob
from virtune.model.errors import RigError
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.rig import Rig
from virtune.model.stack import Stack, Target
from virtune.model.workload import Workload
from virtune.shell import Warden

PATIENCE_SECONDS = 30.0
"""How long after its run time a load counts as stuck: on a working disk, fio ends within a second after its
`runtime`, since it only waits for I/Os in flight.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadJob:
    """The task of one client: the job, its part of the workload, the program's path."""

    job: FioJob
    workload: Workload
    program: str

    @property
    def clones(self) -> int:
        """How many jobs it starts."""
        return sum(int(one.get("numjobs", "1")) for one in self.workload)

    @property
    def flushes(self) -> bool:
        """Whether it causes flushes in QEMU, occasionally or after every write."""
        return any(
            one.writes or one.get("fsync", "0") != "0" or one.get("fdatasync", "0") != "0" for one in self.workload
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a load is measured: for `seconds` after a ramp. `round` and `seed` are the study's, for rigs that use
    random numbers.

    `patience_seconds` is how much longer it may take before it counts as stuck. `heard` is told again and again how
    many seconds it has run.
    """

    seconds: float
    ramp_seconds: float
    round: int = 1
    seed: int = 0
    patience_seconds: float = PATIENCE_SECONDS
    heard: Callable[[float], None] = lambda _: None

    def begins(self, settle_seconds: float) -> float:
        """Return when the counters are read first, in seconds after the start, given the load's start-up time."""
        return self.ramp_seconds + min(settle_seconds, self.seconds / 3)

    def ends(self, margin_seconds: float) -> float:
        """Return when they are read last, shortly before the planned end, since no load ends earlier."""
        return self.ramp_seconds + self.seconds - min(margin_seconds, self.seconds / 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutput:
    """The output of a finished load: its JSON, and the checks of settings made while it ran.

    `log` is IOPS over the measured time, in fio's format (`ms, IOPS, direction, ...`), one job after another.
    `beside` is the output of loads that ran with it in other guests. `operations` are the logs of every single I/O,
    if the job requested them.
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
    """Collects a rig's evidence, which stays even if the load fails."""

    def capture(self, name: str, content: bytes | str) -> None:
        """Keep raw evidence by name."""
        ...

    def host(self, *, processes: Mapping[str, int], image: Path | None) -> AbstractContextManager[HostCounters]:
        """Sample this host while the block runs: the processes by role, the devices below the image."""
        ...


class Bench(Protocol):
    """A running Stack: the load's target, the verified settings, how it was started.

    `command` is the equivalent command line, `processes` are those that serve the disk, by role. `changeover` is None
    for a rig that has no process of its own. `seen` is what a guest says of its disk, empty without one.
    """

    target: Target
    processes: Mapping[str, int]
    in_force: InForce
    command: str
    changeover: Changeover | None
    seen: Mapping[str, str]

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        """Run a load to its end, one job for each guest that shares it, and return what it left.

        Raises LoadError with the reason when one of them has no result; then all loads have ended.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskImageSpec:
    """The image of a stack (None for a stack without one), its size, and whether the load writes.

    `second` is the image of every second guest where these are spread. `further` are the images of the other disks of
    a guest, or of the other guests where each has its own (None for disks without an image). `rbd` is the name of an
    image on Ceph, which is no file of this host. `copy` is the image that a block job copies the disk to.
    """

    image: Path | None
    size_bytes: int
    writes: bool
    second: Path | None = None
    further: tuple[Path | None, ...] = ()
    rbd: str = ""
    copy: Path | None = None

    def places(self, *, writable: bool, socket: str = "", mountpoint: str = "") -> DaemonPlaces:
        """Return where QEMU finds the image, and puts its export if there is one."""
        image = self.image
        return DaemonPlaces(
            image="" if image is None else str(image.absolute()),
            size_bytes=self.size_bytes,
            socket=socket,
            mountpoint=mountpoint,
            block_device=image is not None and image.is_block_device(),
            writable=writable,
            rbd=self.rbd,
        )


class Session(Protocol):
    """A rig for as long as a study lasts. One stack is up at a time."""

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        """Bring a stack up, and take it down when the block ends; with `restart` in a new process.

        Raises RigError when it does not come up. Checks are recorded, and judged by the caller. After any failure the
        next stack can still come up, in a new process if needed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The environment of a rig: the warden of its processes, the scratch directory.

    `access` has the access to existing VMs by their names, as their rig made it.
    """

    warden: Warden
    scratch: Path
    access: Mapping[str, object] = field(default_factory=dict)


SESSIONS: Mapping[Rig, str] = {
    "metal": "virtune.bench.metal",
    "storage-daemon": "virtune.bench.daemon",
    "qemu": "virtune.bench.qemu.rig",
    "libvirt": "virtune.bench.libvirt.rig",
    "simulated": "virtune.bench.simulated",
}
"""The module of each rig: its `session`, called with the stack and its surroundings, returns a Session as a `with`
block.
"""


@contextlib.contextmanager
def session(place: Surroundings) -> Iterator[Session]:
    """Yield the rigs of a study as one: each is prepared when a stack needs it, and all end with the block."""
    with contextlib.ExitStack() as ends:
        yield _Rigs(place, ends)


class _Rigs:
    """Every rig used so far, by its name and argument."""

    def __init__(self, place: Surroundings, ends: contextlib.ExitStack) -> None:
        self._place, self._ends = place, ends
        self._ready: dict[tuple[str, str | None], Session] = {}

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:
        key = stack.rig, stack.domain
        if key not in self._ready:
            if stack.rig not in SESSIONS:
                hint = "its results were imported"
                raise RigError("this stack was not measured here, so no rig can start it", hint=hint)
            make: Any = importlib.import_module(SESSIONS[stack.rig]).session
            self._ready[key] = self._ends.enter_context(make(stack, self._place))
        return self._ready[key].up(stack, ground, restart=restart)
