# SPDX-License-Identifier: Apache-2.0
"""A Study: a question with its arms, workloads and trials."""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from operator import attrgetter
from typing import Annotated

from virtune.model.bottleneck import Accusation
from virtune.model.rig import FORMAT_KNOB, PASSED_KNOB
from virtune.model.search import Search, SweepPlan
from virtune.model.stack import LIMITS, Stack, VolumePlace, volume_place
from virtune.model.steady import Preconditioned, Steadied, SteadyRule
from virtune.model.study_options import ATTEMPTS, ChosenOption, Pairs
from virtune.model.text import A_MOMENT, format_bytes
from virtune.model.verdict import ROUNDS_MIN, Threshold, Verdict
from virtune.model.workload import BACKGROUND, Workload, name_at_load


class StudyKind(StrEnum):
    """The kinds of studies, by the verbs that make them. Code that treats one of them differently uses `match` and
    ends it with `assert_never`, so that mypy finds every place that a new kind affects.
    """

    MEASURE = "measure"
    """One stack, for its figures."""
    COMPARE = "compare"
    """Arms against each other, in rounds."""
    CHECK = "check"
    """An A/A test of one stack, which judges the host's fitness."""
    TUNE = "tune"
    """A search: it chooses its trials as it goes."""
    SWEEP = "sweep"
    """One stack under increasing offered load."""
    IMPORT = "import"
    """Results that were read from files."""


class RunOrder(StrEnum):
    """In which order runs from elsewhere were taken, by the times in their files."""

    IN_TURN = "taken-in-turn"
    APART = "one-after-the-other"
    MIXED = "not-in-turn"
    UNKNOWN = "order-not-known"
    """A time is missing or cannot be, or runs have the same one, or they ran at once."""


CHANGED_ARM, CHANGED_WORKLOAD = "arm:", "workload:"
UNLIKE = "unlike:"
"""Before its name: what is recorded with a study of an arm or workload that is not as in the built-in study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One Stack under comparison. `settings` are the requested knobs, by id, in the user's order.

    `options` are what its jobs say beside their workloads, as fio's options: those of an imported arm, whose stack is
    unknown, or the words by which an arm's load differs from that of the others.
    """

    name: str
    stack: Stack
    settings: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def load_of(self, workload: Workload) -> Workload:
        """Return the workload as this arm runs it: with its own options in every job, and its own depth in all but
        those that only make a background.
        """
        if not self.stack.kind.made_here:
            return workload
        own, depth = dict(self.options), self.stack.load_depth
        if not own and depth is None:
            return workload
        deep = {} if depth is None else {"iodepth": str(depth)}
        jobs = (
            replace(job, options=tuple((job.as_dict() | own | ({} if job.name == BACKGROUND else deep)).items()))
            for job in workload
        )
        return replace(workload, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm under one workload, once. `number` counts from 1 in the order of running.

    `restart`: in a new process, so that variation between starts is included.
    """

    number: int
    round: int
    arm: str
    workload: str
    restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What distinguishes an image or block device from another of the same name.

    `device` is the persistent name of the device it lies on (or is), `inode` and `born_ns` (time of birth since 1970)
    are a file's own, `size_bytes` is None where it changes by itself.
    """

    path: str
    device: str
    inode: int | None
    born_ns: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the last A/A test on this host found, in the day before a study."""

    study: Annotated[str, "The id of that check."]
    created: Annotated[str, "When it was begun, in UTC.", A_MOMENT]
    verdict: Annotated[Verdict, "`better` or `worse` was a false alarm."]
    low: Annotated[float | None, "The lower end of the ratio, null where there was no interval."] = None
    high: Annotated[float | None, "The upper end of the ratio, null where there was no interval."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRead:
    """What was read of a study's images once, past the page cache, so that storage below this host is not cold."""

    images: Annotated[int, "Files and devices.", {"minimum": 1}]
    size_bytes: Annotated[int, "What trials load of them together.", {"minimum": 0}]
    read_bytes: Annotated[int, "What was read of it.", {"minimum": 0}]
    seconds: Annotated[float, "How long that took.", {"minimum": 0}]
    after: Annotated[
        int, "Trials that were stored by then: 0 before the first, else the study went on.", {"minimum": 0}
    ] = 0
    why: Annotated[str, "Why not all was read; empty where it was."] = ""


_CHAIN_FILLS = (
    "with disk.backing_depth only the first write to a cluster copies it from below; what is written again costs no"
    " more than without images below, so the figures depend on --span, --ramp and --seconds"
)

KNOB_OF = {"vCPUs": "machine.vcpus", "memory": "machine.memory"}
"""What guests have besides their disks, and the knob of each guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question and how it is answered, with everything needed to run it again. `title` is the author's wording of
    the question, empty without one; `note` and `tags` were given to it afterwards.

    `connect` is the URI of the libvirt that has the domains of its arms, None where no arm is in one.

    With `at_load` (`50%` of the baseline's saturation, `5000iops`) arms are compared at those offered loads. `also`
    are metrics that get verdicts beside `metric`.

    `margin` is the smallest relative difference of interest (0.03 = 3 %); `confidence` holds for all verdicts of the
    study's main metric together. `images` identifies the loaded images as they were at the study's begin. `search` is
    set for a study that chooses its trials as it goes, and `trials` is empty then. `sweep` is set for one that offers
    its arm increasing loads.

    A `sequential` study has an interim analysis after every round and stops when every pair is decided; `rounds` and
    `budget_seconds` (of running trials; None is no limit) are its upper limits, and `trials` those that were proposed
    so far. Otherwise all `rounds` are run. `conditions` are the thresholds (`--fail-if`) that it decides as well.
    `builtin` is the name of the built-in study, empty for a user's own question.

    `looks` are the interim analyses so far of a comparison whose end is planned: for each its round and the share of
    the plan that was done, by which the error is spent. `pairs` are those that get verdicts: all, or those with the
    baseline. `fewest_rounds` is how many rounds it takes at least to decide anything.

    `attempts` is how often a trial is made at most while something disturbs it, the first included.

    `checked` is the last A/A test of this host within 24 hours before, None without one. `options` are the value and
    origin of every option. `accusation` is set for a study that tests a diagnosis
    (`diagnose --prove`). With `check_data` every arm first shows that it keeps what is written to it, with
    `check_durability` what is there after it was cut off in mid-load. With `precondition` each disk is written in
    full before the first trial on it, with `until_steady` each load runs until it is steady; `preconditioned` and
    `steadied` are what was done of that. `first_reads` are the readings of its images before trials, one each time
    that it ran; empty where nothing was to be read.

    A study of the kind IMPORT holds results that were made elsewhere. It has no seed, times, scratch or span (all are
    zero or empty), and an `order`. Where that is in turn, often enough, its rounds are `paired`, else repeats of
    single arms. One that holds studies of virtune's own against each other has their ids by arm in `sources`, and in
    `differing` each fact of the hosts, and each setting as it was read back, that is not the same in all of them: its
    name and its value by arm, `absent` where it has none; None where a host was not probed. `told_by` are the studies
    that tell how far such lie apart, in `metric`.
    """

    id: str
    created: str
    kind: StudyKind
    arms: tuple[Arm, ...]
    baseline: str
    workloads: tuple[Workload, ...]
    rounds: int
    seconds: float
    ramp_seconds: float
    seed: int
    scratch: str
    span_bytes: int
    target: str | None = None
    connect: str | None = None
    title: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    metric: str = "iops"
    margin: float = 0.03
    confidence: float = 0.99
    trials: tuple[Trial, ...] = ()
    images: tuple[Identity, ...] = ()
    paired: bool = True
    at_load: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    search: Search | None = None
    sweep: SweepPlan | None = None
    sequential: bool = False
    budget_seconds: float | None = None
    conditions: tuple[Threshold, ...] = ()
    builtin: str = ""
    checked: Checked | None = None
    pairs: Pairs = "all"
    looks: tuple[tuple[int, float], ...] = ()
    fewest_rounds: int = ROUNDS_MIN
    options: tuple[ChosenOption, ...] = ()
    attempts: int = ATTEMPTS
    accusation: Accusation | None = None
    check_data: bool = False
    check_durability: bool = False
    precondition: bool = False
    until_steady: SteadyRule | None = None
    preconditioned: tuple[Preconditioned, ...] = ()
    steadied: tuple[Steadied, ...] = ()
    first_reads: tuple[FirstRead, ...] = ()
    sources: tuple[str, ...] = ()
    differing: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    told_by: tuple[str, ...] = ()
    order: RunOrder | None = None

    @property
    def volume(self) -> VolumePlace | None:
        """Where its scratch volume is made; None where it is on scratch images or a target."""
        return None if self.target is not None else volume_place(self.scratch)

    @property
    def on_images(self) -> bool:
        return self.target is None and self.volume is None

    @property
    def targets(self) -> dict[str, str]:
        """The files and devices that are not its own and that its arms load, by their `disk.place`."""
        own = {one: one for arm in self.arms if (one := arm.stack.own_target) is not None}
        return own if self.target is None else {"target": self.target, **own}

    def loads_target(self, stack: Stack) -> bool:
        """Whether a stack loads one of these, or the study's volume, and no scratch image."""
        return stack.own_target is not None or (stack.place == "target" and not self.on_images)

    def disk_words(self, stack: Stack) -> str:
        """What is said of the disk below a stack."""
        path = self.targets.get(stack.place)
        return "the scratch image" if path is None else "the target" if path == self.target else path

    @property
    def arm_names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def rounds_begun(self) -> int:
        return max((trial.round for trial in self.trials), default=0)

    def most_trials(self, *, finished: bool) -> int | None:
        """How many trials it has; of a comparison that is not `finished` the most that its rounds and budget allow.
        None where nothing says: of a search, and before the loads of an `at_load` are known.
        """
        if finished or not self.sequential:
            return len(self.trials) or None
        if self.unsettled:
            return None
        each, rounds = len(self.arms) * len(self.workloads), self.rounds
        if self.budget_seconds is not None and (seconds := each * (self.ramp_seconds + self.seconds)) > 0:
            rounds = min(rounds, 1 + int(self.budget_seconds / seconds))
        return max(len(self.trials), rounds * each)

    def most_text(self, *, finished: bool) -> str:
        """Say how many trials it has: `12`, `at most 40`; empty where nothing says."""
        most = self.most_trials(finished=finished)
        return "" if most is None else f"at most {most}" if self.sequential and not finished else f"{most}"

    def trials_text(self, done: int, *, finished: bool) -> str:
        """Say how many trials are done, and of how many: `3 of 12`, `3 of at most 40`."""
        return " of ".join(filter(None, (f"{done}", self.most_text(finished=finished))))

    @property
    def simulated(self) -> bool:
        """Whether its figures are invented, by a rig that measures nothing."""
        return any(not arm.stack.kind.measures for arm in self.arms)

    @property
    def label(self) -> str:
        """Its kind in words; that of a simulated study begins with "SIMULATED"."""
        return f"SIMULATED {self.kind}" if self.simulated else self.kind

    @property
    def begun(self) -> str:
        """When it was begun, to the minute: `2026-11-24 03:47 UTC`; empty where it was not."""
        return f"{self.created[:16].replace('T', ' ')} UTC" if self.created else ""

    @property
    def words(self) -> str:
        told = "; ".join(filter(None, (self.title, self.note)))
        return " ".join(filter(None, (told, *(f"@{tag}" for tag in self.tags))))

    @property
    def imported(self) -> bool:
        return self.kind is StudyKind.IMPORT

    @property
    def compared(self) -> tuple[Workload, ...]:
        return tuple(workload for workload in self.workloads if not workload.probe)

    def offered_under(self, probe: Workload) -> tuple[Workload, ...]:
        """Return the workloads in which a probe's I/Os are offered at the loads that were asked for."""
        names = {name_at_load(probe.name, load) for load in self.at_load}
        return tuple(one for one in self.compared if one.name in names)

    @property
    def judged(self) -> tuple[str, ...]:
        return (self.metric, *self.also)

    @property
    def left_out(self) -> str | None:
        """Which arms or settings of a built-in study were left out on this host, and why; None for none."""
        found = [one.value for one in self.options if one.name in (PASSED_KNOB, FORMAT_KNOB)]
        return "; ".join(found) or None

    @property
    def changed(self) -> tuple[str, ...]:
        """What is no longer as in the built-in study, in a copy of its plan or by settings that were given."""
        return tuple(
            f"not as in the study: {one.name.replace(':', ' ', 1)}: {one.value}"
            for one in self.options
            if one.name.startswith((CHANGED_ARM, CHANGED_WORKLOAD))
        )

    @property
    def likeness(self) -> tuple[str, ...]:
        """Which VM's disk its arms begin with, and what of that could not be carried over."""
        vm = next((one.value for one in self.options if one.name == "like"), None)
        if vm is None:
            return ()
        left = [
            f"{one.name.removeprefix(UNLIKE)}: {one.value}" for one in self.options if one.name.startswith(UNLIKE)
        ]
        said = f"every arm begins with the settings of {vm}"
        return (said, f"not carried over from it: {'; '.join(left)}") if left else (said,)

    def keeps(self, arm: str, workload: Workload | None = None) -> bool:
        """Whether an arm, and a workload, are as in the built-in study."""
        names = [] if workload is None else [workload.name]
        names += [probe.name for probe in self.workloads if workload in self.offered_under(probe)]
        asked = {f"{CHANGED_ARM}{arm}", *(f"{CHANGED_WORKLOAD}{name}" for name in names)}
        return asked.isdisjoint(one.name for one in self.options)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What limits its comparison, a sentence each: what the guests of its arms have more or less of though no arm
        asks for it, a limit that all of them have, loads that were not steady, and writes to a chain of images.
        """
        unequal = tuple(
            f"the arms differ in {what}, which none asks for: {', '.join(told)} in all. A difference between them may"
            f" be that, and not what is compared; {KNOB_OF[what]} in each arm makes them alike"
            for what in KNOB_OF
            if (told := self._unequal(what))
        )
        restless = tuple(
            f"{one.words}: its figures may be of a disk that still changes"
            for one in self.steadied
            if not one.attained
        )
        if any(arm.stack.disk.backing_depth for arm in self.arms) and any(one.writes for one in self.workloads):
            restless += (_CHAIN_FILLS,)
        each = [arm.stack.disk.limits for arm in self.arms]
        if len(each) < 2 or not each[0] or any(one != each[0] for one in each):
            return (*unequal, *restless)
        said = ", ".join(f"{one.knob}={each[0][one.qmp]}" for one in LIMITS if one.qmp in each[0])
        return (
            *unequal,
            *restless,
            f"every arm has {said}: those that reach it look the same, whatever else they differ in",
        )

    def _unequal(self, what: str) -> list[str]:
        """Return how much each arm has of it where arms differ that do not ask for it themselves."""
        size, knob = (attrgetter(what.lower()), KNOB_OF[what])
        asked = {arm.name: dict(arm.settings).get(knob) for arm in self.arms}
        have = [(arm.name, found) for arm in self.arms if (found := size(arm.stack)) is not None]
        alike = all(
            one == other or asked[first] != asked[second] for (first, one), (second, other) in combinations(have, 2)
        )
        text = format_bytes if what == "memory" else str
        return [] if alike else [f"{name}: {text(found)}" for name, found in have]

    @property
    def unsettled(self) -> bool:
        """Whether its offered loads still wait for the baseline's saturation to be measured."""
        return bool(self.at_load) and not self.compared

    def arm(self, name: str) -> Arm:
        return {one.name: one for one in self.arms}[name]

    def workload(self, name: str) -> Workload:
        return {one.name: one for one in self.workloads}[name]
