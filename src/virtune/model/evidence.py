# SPDX-License-Identifier: Apache-2.0
"""The evidence of a trial: its raw captures and its verified settings; which settings of a stack a trial must
verify, and which of them it did not.

Reports distinguish three cases: a setting was verified; it cannot be verified (QEMU shows it nowhere, or the process
may not be inspected), which is reported; or it could be verified and was not, and then the trial is invalid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from virtune.model.knob import Knob
from virtune.model.knobs import BY_ID, TURNED
from virtune.model.measurement import Measurement
from virtune.model.remark import UNVERIFIED, Remark
from virtune.model.rig import QEMU, Rig
from virtune.model.stack import Stack, setting_of
from virtune.model.study import Arm, Study, Trial
from virtune.model.text import NOT_NEGATIVE, At, setting_text
from virtune.model.verdict import BetweenRuns


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

VM_JOBS = "vm-jobs.json"
"""The capture with what libvirt did with the VM or its disks meanwhile, each with whether it went on."""


def of_guest(name: str, number: int) -> str:
    """Return the name of a guest's own capture: the first one's is the plain name, the second one's ends in `-2`."""
    stem, dot, ending = name.partition(".")
    return name if number == 0 else f"{stem}-{number + 1}{dot}{ending}"


IMPORTED = "import.json"
"""The capture of an imported trial that names its file and the reporting group in it."""

GUEST_FACTS: tuple[str, ...] = (
    "kernel", "scheduler", "nr_requests", "queues", "write_cache", "rotational", "logical_block_size",
    "physical_block_size",
)  # fmt: skip
"""What is kept of what a guest says of its disk (`virtune/guest/disk`)."""


UNDER_LOAD = "under load"
"""The text in the proof of a check that was made while the load ran."""


@dataclass(frozen=True, slots=True)
class Check:
    """One setting: the requested value, the value found on the running process, and the proof.

    `found` is None where the setting could not be verified; that is reported, never taken for agreement. `hidden`:
    this system does not let us look, so verification is impossible (`virtune.model.evidence` judges the others).
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

DURABILITY = "durability"
"""The setting of the check of what was there after a power cut; there is one only where that was asked for."""


def data_kept(checks: Iterable[Check], setting: str = DATA) -> bool:
    """Whether it was tried that an arm keeps its data, and it did; with DURABILITY, what it keeps at a power cut."""
    return any(check.setting == setting and check.agrees for check in checks)


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
    """All checks of one running stack, and how it was started; the latter is None where no process carries it.

    `guest` is what a guest's kernel says of its disk, asked for or not, by its own names.
    """

    checks: tuple[Check, ...] = ()
    changeover: Changeover | None = None
    guest: tuple[tuple[str, str], ...] = ()

    @property
    def mismatches(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.agrees is False)

    @property
    def emulated(self) -> Check | None:
        return next((one for one in self.checks if (one.setting, one.found) == ("accelerator", "tcg")), None)


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


def measured(records: Iterable[TrialRecord]) -> Iterator[tuple[Trial, Measurement]]:
    """Yield the trials that gave a measurement, with it."""
    yield from ((one.trial, one.measurement) for one in records if one.measurement is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A cause that no longer rejects trials, although it makes them invalid: it belongs to the arm, or (`arm` is
    None) to the host.
    """

    cause: Annotated[str, "The id of the remark that says it of a trial."]
    arm: Annotated[str | None, "The arm that it comes with; null where it is this host's."]
    text: Annotated[str, "The reason, with its numbers."]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRecord:
    """A stored study: with the facts of its host (JSON text) and its trials so far.

    `trials` holds, for each trial, the attempt that counts: the last one. `attempts` holds all of them. Damaged facts
    are left out; the measurements stay readable. Where arms are studies of different times, `between_runs` says by
    workload and metric how far studies of one configuration lie apart; a metric of which that is not known is not in
    it. `pardoned` are then the causes that each study itself pardons: which of its trials count does not rest on what
    it is compared with.
    """

    study: Study
    facts: str
    finished: bool
    trials: tuple[TrialRecord, ...]
    attempts: tuple[TrialRecord, ...] = ()
    facts_damaged: bool = False
    between_runs: Mapping[tuple[str, str], BetweenRuns] | None = None
    pardoned: tuple[Waiver, ...] | None = None

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

    id: Annotated[str, "Its id."]
    why: Annotated[str, "What is wrong with it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyMethods:
    """How many measurements of a study are of today's method, and how many of an older one; `name` finds it."""

    name: str
    current: int
    older: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedStudy:
    """What was derived of one study."""

    name: Annotated[str, "Its id; of another host's study HOST/ID.", At("name", key="id")]
    derived: Annotated[int, "Attempts at trials that got new figures.", NOT_NEGATIVE] = 0
    current: Annotated[int, "Attempts whose figures are by this method already.", NOT_NEGATIVE] = 0
    unreadable: Annotated[int, "Attempts that this method cannot read: their older figures stay.", NOT_NEGATIVE] = 0
    because: Annotated[
        str, str | None, "Why the study was left out: it is damaged; null where it was not.", At(or_null=True)
    ] = ""


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


ALWAYS = frozenset({"disk.aio", "disk.cache", "disk.format", "disk.backend", "disk.detect_zeroes", "disk.export"})
"""The settings that are verified for every stack, also at their default."""

_OPENS = frozenset({"disk.aio", "disk.cache", "disk.discard", "host.cache"})
"""The settings of opening an image; a disk without an image has none of them."""

_OF_ALL_GUESTS = ("guests.", "load.", "workload.")

LOAD_ENGINES = frozenset({"io_uring", "libaio"})
"""The engines of a load that leave a trace in its process. The others are plain system calls."""


def to_verify(stack: Stack) -> tuple[str, ...]:
    """Return the ids of the knobs that a trial of this stack must verify, in the order of the path."""
    return tuple(knob.id for knob in _asked(stack) if why_unseen(stack, knob) is None)


def not_shown(stack: Stack) -> dict[str, str]:
    """Return why requested settings cannot be verified on this rig, by the ids of the knobs."""
    return {knob.id: why for knob in _asked(stack) if (why := why_unseen(stack, knob)) is not None}


def compared_unseen(arms: Sequence[Arm]) -> Iterator[str]:
    """Yield a sentence on each setting in which arms differ and that a rig of theirs cannot verify: known beforehand,
    with what verifies it.
    """
    hidden: dict[tuple[str, str, Rig], list[Arm]] = {}
    for arm in arms:
        for name, why in not_shown(arm.stack).items():
            hidden.setdefault((name, why, arm.stack.rig), []).append(arm)
    for (name, why, rig), those in hidden.items():
        knob = BY_ID[name]
        values = [str(setting_of(arm.stack, knob)) for arm in those]
        if len({str(setting_of(arm.stack, knob)) for arm in arms}) > 1:
            seen = name in QEMU.applies and all(QEMU.why_unseen(name, value) is None for value in values)
            more = f" and {len(those) - _NAMED} more" if len(those) > _NAMED else ""
            of = f"{', '.join(arm.name for arm in those[:_NAMED])}{more}"
            how = "; in a VM that virtune starts it is read back: --rig qemu" if seen else ""
            yield f"{name} of {of} cannot be verified on rig={rig}: {why}{how}"


_NAMED = 4
"""The most arms that a sentence names."""


def not_shown_checks(stack: Stack, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return a check for each setting that this rig cannot verify and that is missing in `checks`."""
    said = {check.setting for check in checks}
    return tuple(
        Check(setting=knob, asked=_values(stack)[knob], found=None, proof=why, hidden=True)
        for knob, why in not_shown(stack).items()
        if knob not in said
    )


def why_unseen(stack: Stack, knob: Knob) -> str | None:
    return stack.kind.why_unseen(knob.id, str(setting_of(stack, knob)))


def unverified(stack: Stack, checks: Sequence[Check]) -> tuple[str, ...]:
    """Return the settings, as `disk.aio=native`, that could be verified on this rig and were not.

    `checks` are all of the trial. A setting whose check is `hidden` is excused.
    """
    if not stack.kind.made_here:
        return ()
    wanted = tuple(dict.fromkeys((*to_verify(stack), *_of_load(checks))))
    values = {check.setting: check.asked for check in checks} | _values(stack)
    missing: list[str] = []
    for guest in range(stack.guests):
        answered = {one.setting for one in checks if one.guest == guest and (one.found is not None or one.hidden)}
        # how many guests there are, and where their images lie, is said once
        own = (setting for setting in wanted if guest == 0 or not setting.startswith(_OF_ALL_GUESTS))
        missing += [f"{setting}={values[setting]}" for setting in own if setting not in answered]
    return tuple(dict.fromkeys(missing))


def unverified_remarks(stack: Stack, checks: Sequence[Check]) -> Iterator[Remark]:
    """Yield the remark that makes a trial invalid if a verifiable setting was not verified."""
    if missing := unverified(stack, checks):
        yield UNVERIFIED.remark(
            text=f"not verified: {', '.join(missing)} was requested, and nothing showed that it was what ran"
        )


def _asked(stack: Stack) -> Iterator[Knob]:
    """Yield the knobs of the rig whose values a stack asks for, and those that are verified at their defaults too."""
    always, applies, plain = ALWAYS, stack.kind.applies, Stack()
    if stack.device.vfio_pci is not None:
        always = frozenset()
    elif stack.disk.backend != "file":
        applies -= _OPENS if stack.disk.backend == "null-co" else _OPENS - {"disk.cache"}
    for knob in TURNED:
        if knob.id in applies and (knob.id in always or setting_of(stack, knob) != setting_of(plain, knob)):
            yield knob


def _values(stack: Stack) -> dict[str, str]:
    return {knob.id: setting_text(setting_of(stack, knob)) for knob in TURNED}


def _of_load(checks: Iterable[Check]) -> Iterable[str]:
    """The load's own settings that leave a trace: how it opened its file, and the engine where that does."""
    for check in checks:
        if check.setting == "load.direct" or (check.setting == "load.engine" and check.asked in LOAD_ENGINES):
            yield check.setting
