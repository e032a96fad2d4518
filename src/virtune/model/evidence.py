# SPDX-License-Identifier: Apache-2.0
"""The evidence of a trial: its raw captures and its verified settings."""

from collections.abc import Iterable
from dataclasses import dataclass

from virtune.model.measurement import Measurement
from virtune.model.study import Study, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Raw evidence by name (`fio.json`, `job.fio`, `counters.jsonl`, ...), stored byte for byte."""

    name: str
    content: bytes


FIO_OUTPUTS = ("fio.json", "fio.txt")
"""The captures that hold what fio wrote; a trial has one of them."""

EACH_OPERATION = "operations.log"
"""The capture with every I/O of a load that asked for it, as fio logs them: `ms, ns, direction, bytes, place`."""

DISKS = "disks.json"
"""The capture that lists the disks below each image, where the guests are spread over several images."""

IDLE = "idle.json"
"""The capture with the CPU time of a stack's processes in a second after the load, where polling was asked for."""

BARRIER = "barrier.json"
"""The capture with the start skew of guests that should start together."""

RINGS = "virtqueue.json"
"""The capture with the number of requests in the virtqueues, sampled while the load ran."""

DISK_QUEUE = "disk-queue.json"
"""The capture with the requests in the queue and in the device of the host's disk, sampled while the load ran."""

CREW = "crew.json"
"""The capture with the threads of a storage daemon before any image was opened, and which is its IOThread."""


def of_guest(name: str, number: int) -> str:
    """Return the name of a guest's own capture: the first one's is the plain name, the second one's ends in `-2`."""
    stem, dot, ending = name.partition(".")
    return name if number == 0 else f"{stem}-{number + 1}{dot}{ending}"


IMPORTED = "import.json"
"""The capture of an imported trial that names its file and the reporting group in it."""

UNDER_LOAD = "under load"
"""The text in the proof of a check that was made while the load ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One setting: the requested value, the value found on the running process, and the proof.

    `found` is None where the setting could not be verified; that is reported, never taken for agreement. `hidden`:
    this system does not let us look, so verification is impossible (`virtune.model.verification` judges the others).
    `guest` is the index, from 0, of the guest where several share the load.
    """

    setting: str
    asked: str
    found: str | None
    proof: str
    hidden: bool = False
    guest: int = 0

    @property
    def agrees(self) -> bool | None:
        """Whether the running value is the requested one; None when it could not be verified."""
        return None if self.found is None else self.asked == self.found


DATA = "data"
"""The setting of the check that an arm keeps what is written to it; there is one only where that was tried."""


def data_kept(checks: Iterable[Check]) -> bool:
    """Whether it was tried that an arm keeps its data, and it did."""
    return any(check.setting == DATA and check.agrees for check in checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeover:
    """How an arm was started after the previous one: in a new process, or swapped into a process that ran other arms
    before.

    `swapped` names the exchanged part (`export`, `disk`), None for a new process; `why` then says why a new one was
    needed. `seconds` is the time to stop the previous arm and to start this one; `process` is the process id, and
    `carried` how many arms it had run before.
    """

    swapped: str | None
    seconds: float
    process: int
    carried: int = 0
    why: str = ""

    @property
    def text(self) -> str:
        """Describe it: `export swapped in 23 ms (process 4711 had carried 12 arms before)`."""
        took = f"in {self.seconds * 1e3:.0f} ms"
        if self.swapped is None:
            return f"new process {took} (process {self.process}; {self.why})"
        arms = "1 arm" if self.carried == 1 else f"{self.carried} arms"
        return f"{self.swapped} swapped {took} (process {self.process} had carried {arms} before)"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """All checks of one running stack, and how it was started; the latter is None where no process carries it."""

    checks: tuple[Check, ...] = ()
    changeover: Changeover | None = None

    @property
    def mismatches(self) -> tuple[Check, ...]:
        """The checks whose running value differs from the requested one."""
        return tuple(check for check in self.checks if check.agrees is False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A finished trial: its measurement, or why it failed. `ended` is a UTC time in ISO form.

    `attempt` counts from 1; a trial that failed or is invalid is run again, and every attempt is kept.
    """

    trial: Trial
    attempt: int = 1
    ended: str
    in_force: InForce
    measurement: Measurement | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A stored study: with the facts of its host (JSON text) and its trials so far.

    `trials` holds, for each trial, the attempt that counts: the last one. `attempts` holds all of them. Damaged facts
    are left out; the measurements stay readable.
    """

    study: Study
    facts: str
    finished: bool
    trials: tuple[TrialRecord, ...]
    attempts: tuple[TrialRecord, ...] = ()
    facts_damaged: bool = False

    @property
    def left(self) -> tuple[Trial, ...]:
        """The trials that have no measurement yet, in their order."""
        done = {record.trial.number for record in self.trials if record.measurement is not None}
        return tuple(trial for trial in self.study.trials if trial.number not in done)

    @property
    def methods(self) -> tuple[int, ...]:
        """The numbers of the methods by which its measurements were derived, the oldest first."""
        return tuple(sorted({one.measurement.method for one in self.trials if one.measurement is not None}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A study in a list: how many of its trials are measured, and how many attempts failed.

    `host` is the other host that measured it; empty for this one.
    """

    study: Study
    finished: bool
    done: int
    failed: int
    host: str = ""

    @property
    def name(self) -> str:
        """By which it is found: its id, of another host's study `HOST/ID`."""
        return f"{self.host}/{self.study.id}" if self.host else self.study.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A listed study that cannot be read, and why; the others in the store are not affected."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMethods:
    """How many measurements of a study are of today's method, and how many of an older one; `name` finds it."""

    name: str
    current: int
    older: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudiesPage:
    """One page of the studies in a store, with the number of all studies and their kinds."""

    rows: tuple[Listed | Damaged, ...]
    total: int
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedStudy:
    """A finished study that was not read: its host, empty of this one, its id, when it was begun, and a digest of
    what it asks.
    """

    host: str
    id: str
    created: str
    question: str
