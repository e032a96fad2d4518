# SPDX-License-Identifier: Apache-2.0
"""A Study: a question with its arms, workloads and trials."""

from dataclasses import dataclass
from enum import StrEnum

from virtune.model.condition import Threshold
from virtune.model.option import ChosenOption
from virtune.model.search import Search
from virtune.model.stack import Stack
from virtune.model.study_options import Pairs
from virtune.model.sweep_plan import SweepPlan
from virtune.model.verdict import Verdict
from virtune.model.workload import Workload


class StudyKind(StrEnum):
    """The kinds of studies, by the verbs that make them. Who does something else for one of them asks by `match` and
    ends it with `assert_never`, so that a new kind is not passed over anywhere.
    """

    MEASURE = "measure"
    """One stack, for its figures."""
    COMPARE = "compare"
    """Arms against each other, in rounds."""
    CHECK = "check"
    """An A/A test of one stack, which says how fit the host is."""
    TUNE = "tune"
    """A search: it chooses its trials as it goes."""
    SWEEP = "sweep"
    """One stack under more and more offered load."""
    IMPORT = "import"
    """Results that were read from files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One Stack under comparison. `settings` are the knobs as they were asked for, by id, in the user's order.

    `options` belong to an imported arm, whose stack is unknown: what its jobs say beside their workloads, as fio's
    options.
    """

    name: str
    stack: Stack
    settings: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm under one workload, once. `number` counts from 1 in the order of running.

    `restart`: in a process that carried no arm before, since what a start brings about is part of what varies.
    """

    number: int
    round: int
    arm: str
    workload: str
    restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells an image or block device from another one of the same name.

    `device` is the lasting name of the device it lies on (or is), `inode` and `born_ns` (time of birth since 1970)
    are a file's own, `size_bytes` is None where it changes by itself.
    """

    path: str
    device: str
    inode: int | None
    born_ns: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What an A/A check found, by `study`, begun at `created`; anything but `same` or
    `undecided` was a false alarm. `low` and `high` are the ends of the ratio; None where there was no interval.
    """

    study: str
    created: str
    verdict: Verdict
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is to be found out, and how. Everything needed to run it again is in here.

    `title` says in its author's words what is to be found out, empty where nobody said so.

    `connect` is the URI of the libvirt that has the domains of its arms, None where no arm is in one.

    With `at_load` (`50%` of the baseline's saturation, `5000iops`) arms are compared at those offered loads. `also`
    are metrics that get verdicts beside `metric`.

    `margin` is the smallest relative difference worth knowing (0.03 = 3 %); `confidence` holds for all
    verdicts of the study's main metric together. `images` is what was loaded when the study began. `search` is set
    for a study that chooses its trials as it goes, and `trials` is empty then. `sweep` is set for one that offers its
    arm more and more load.

    A `sequential` study is looked at after every round and stops when every pair is decided; `rounds` and
    `budget_seconds` (of running trials; None is no limit) are the most that it takes, and `trials` those that were
    proposed so far. Else `rounds` were run whatever they said. `conditions` are those that it is to decide as well.

    `builtin` names the study that ships with virtune which this is, empty for a question of the user's own.

    `looks` are those so far of a comparison whose end is planned: for each its round and the share of the plan that
    was done, by which the error is spent. None for older studies, which are judged as they were. `pairs` are those
    that get verdicts: all, or those with the baseline.

    `checked` is the last A/A of this host in the day before, None without one. `options` say of every option its
    value and where it came from; empty for studies from before that was kept.

    A study of the kind IMPORT holds results that were made elsewhere. It has no seed, times, scratch or span of its
    own (all are zero or empty), and `paired` is False: its rounds are repeats, of which no two arms share one.
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
    looks: tuple[tuple[int, float], ...] | None = None
    options: tuple[ChosenOption, ...] = ()

    @property
    def rounds_begun(self) -> int:
        """The rounds that its trials so far belong to."""
        return max((trial.round for trial in self.trials), default=0)

    @property
    def simulated(self) -> bool:
        """Whether its figures are invented, by a rig that measures nothing."""
        return any(not arm.stack.kind.measures for arm in self.arms)

    @property
    def label(self) -> str:
        """Its kind, as people read it: of a simulated study that is the first thing said."""
        return f"SIMULATED {self.kind}" if self.simulated else self.kind

    @property
    def imported(self) -> bool:
        """Whether its results were made elsewhere and only read."""
        return self.kind is StudyKind.IMPORT

    @property
    def compared(self) -> tuple[Workload, ...]:
        """The workloads under which arms are compared."""
        return tuple(workload for workload in self.workloads if not workload.probe)

    @property
    def judged(self) -> tuple[str, ...]:
        """The metrics that get verdicts."""
        return (self.metric, *self.also)

    @property
    def unsettled(self) -> bool:
        """Whether its offered loads still wait for the baseline's saturation to be measured."""
        return bool(self.at_load) and not self.compared

    def arm(self, name: str) -> Arm:
        """Return the arm of that name; raises KeyError when there is none."""
        by_name = {a.name: a for a in self.arms}
        return by_name[name]

    def workload(self, name: str) -> Workload:
        """Return the workload of that name; raises KeyError when there is none."""
        by_name = {w.name: w for w in self.workloads}
        return by_name[name]
