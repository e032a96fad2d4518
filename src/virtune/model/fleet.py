# SPDX-License-Identifier: Apache-2.0
"""A fleet: its hosts, what each of them measured, and what they say together; and a study that runs on a host of it
by itself, and how far it is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Generic, TypeVar

from virtune.model.facts import Trait, TurnedFact
from virtune.model.finding import Audited, Unread
from virtune.model.metric import BY_ID
from virtune.model.study import Study
from virtune.model.text import A_MOMENT, AT_LEAST_ONE, LEFT_OUT, NOT_NEGATIVE, SHARE, At, Name
from virtune.model.tuning import Recommendation, Standing
from virtune.model.verdict import Comparison, Interval, Verdict

Said = TypeVar("Said")

Arms = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Configurations of a search: the name of each, and its settings."""

ArmsLeftOut = tuple[tuple[str, tuple[str, ...]], ...]
"""Configurations that not every host can run, with the hosts that cannot."""

LOCAL, KUBECTL = "local", "kubectl:"
"""What the target of a host is that is this machine, and how that of a pod begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """One host as its inventory names it. `target` is what ssh is called with, `local` for this machine, or
    `kubectl:NAMESPACE/POD[/CONTAINER]`; `labels` are (key, value).

    `config` is the ssh_config that ssh reads for it; None for the user's own. `of_ansible` says that Ansible's own
    inventory has it, with all that Ansible needs to reach it.
    """

    name: str
    target: str
    labels: tuple[tuple[str, str], ...] = ()
    config: str | None = None
    of_ansible: bool = False

    def label(self, key: str) -> str | None:
        return dict(self.labels).get(key)

    @property
    def way(self) -> str:
        """What carries commands there: `ssh`, `kubectl`, or `local`, which needs nothing."""
        if self.target == LOCAL:
            return "local"
        return "kubectl" if self.target.startswith(KUBECTL) and "/" in self.target else "ssh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where ssh would connect to; all is empty for a host that ssh does not reach."""

    user: str
    host: str
    port: int

    @property
    def text(self) -> str:
        """Write it: `root@192.0.2.1:22`."""
        return f"{self.user}@{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer(Generic[Said]):
    """What a host gave: a JSON document, text, or what was done. `calls_itself` is the host's own name for itself."""

    host: FleetHost
    calls_itself: str
    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """A host that gave no answer."""

    host: Annotated[FleetHost, str, "Its name in the inventory.", At("host.name", key="name")]
    because: Annotated[str, "Why not, in one sentence."]
    hint: Annotated[str | None, "The next thing to do; null where none helps."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAudit:
    """The audit of one host: its VMs, named `HOST/VM`, and what could not be read there."""

    host: FleetHost
    calls_itself: str
    audited: tuple[Audited, ...]
    unread: tuple[Unread, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEstimate:
    """What one study measured on a host.

    `value` is a natural logarithm, of a ratio (candidate / baseline) or of a level (IOPS), `error` its standard error
    and `df` the degrees of freedom of that error (rounds less one, as a rule). `begun` and `ended` bound the time of
    measuring.
    """

    host: Annotated[str, LEFT_OUT]
    begun: Annotated[datetime, "When it was begun, in UTC.", A_MOMENT]
    value: Annotated[float, "The mean of the main metric over its rounds.", At("level", key="level")]
    error: Annotated[float, "Its standard error, as a share of it.", NOT_NEGATIVE]
    df: Annotated[float, LEFT_OUT]
    ended: Annotated[datetime, LEFT_OUT]

    @property
    def level(self) -> float:
        return math.exp(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSummary:
    """What the study of one host says, as far as the report of a fleet needs it: for that no trial is read.

    `study` is its id and `source` a digest of the host's facts as they are kept. `verdicts` are against the baseline
    on the main metric, `levels` the baseline's by workload, where there are rounds enough; their host has no name.
    `facts` are the host's by key, with the baseline's settings as they were read back. `begun` and `ended` bound the
    time of measuring, in UTC; `methods` are the numbers of the methods by which its measurements were derived.
    """

    study: str
    source: str
    begun: datetime
    ended: datetime
    verdicts: tuple[Comparison, ...]
    levels: tuple[tuple[str, HostEstimate], ...]
    facts: Mapping[str, str]
    methods: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The mean over hosts, as ratios candidate / baseline.

    By a random-effects model; here all is on the logarithm. `low` and `high` bound the mean of all such hosts,
    `next_low` and `next_high` the true value of one more host of this kind.
    """

    hosts: Annotated[int, "Hosts in it.", NOT_NEGATIVE]
    mean: Annotated[float, "The mean ratio.", At("ratio.estimate", key="estimate")]
    error: Annotated[float, LEFT_OUT]
    low: Annotated[float, "The lower end of its interval.", At("ratio.low")]
    high: Annotated[float, "The upper end of its interval.", At("ratio.high")]
    next_low: Annotated[
        float | None, "The lower end of the interval of one more host; null for two hosts.", At("next_ratio?.low")
    ]
    next_high: Annotated[float | None, "Its upper end.", At("next_ratio?.high")]
    tau: Annotated[float, "The standard deviation between hosts, of the natural logarithm.", NOT_NEGATIVE]
    i_squared: Annotated[float, "The share of the variation that noise does not explain.", SHARE]
    q: Annotated[float, "Cochran's Q.", NOT_NEGATIVE]
    q_p: Annotated[float, "Its p.", SHARE]
    confidence: Annotated[float, "The confidence of both intervals.", SHARE]

    @property
    def ratio(self) -> Interval:
        return self._ratio(self.low, self.high)

    @property
    def next_ratio(self) -> Interval | None:
        """The same mean with the ends of one more host; None where there are too few hosts for it."""
        if self.next_low is None or self.next_high is None:
            return None
        return self._ratio(self.next_low, self.next_high)

    def _ratio(self, low: float, high: float) -> Interval:
        estimate, low, high = map(math.exp, (self.mean, low, high))
        return Interval(estimate=estimate, low=low, high=high, confidence=self.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelPoint:
    """One host in a funnel.

    `distance` is the natural logarithm of its `ratio`, and `limit` the distance beyond which a host alone is outside
    the 95 % limits of the funnel.
    """

    host: Annotated[str, "Its name."]
    distance: Annotated[float, "Its value against the mean of the others.", At("ratio", key="ratio")]
    residual: Annotated[float, "Its distance in standard errors."]
    limit: Annotated[float, LEFT_OUT]
    p: Annotated[float, "Two-sided p of that.", SHARE]
    adjusted: Annotated[float, "The same after Benjamini and Hochberg over all hosts.", SHARE]
    odd: Annotated[bool, "Whether the host is odd, at a false-discovery rate of 5 %."]

    @property
    def ratio(self) -> float:
        return math.exp(self.distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRank:
    """The rank of a host, 1 is the highest value."""

    host: Annotated[str, "Its name."]
    rank: Annotated[float, "Its mean rank over the draws.", AT_LEAST_ONE, At("rank", key="mean")]
    low: Annotated[int, "The lower end of its interval.", AT_LEAST_ONE]
    high: Annotated[int, "The upper end of its interval.", AT_LEAST_ONE]
    tied: Annotated[tuple[Name, ...], "The hosts from which it is not told."]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVerdict:
    """The verdict of one host."""

    host: Annotated[str, "Its name."]
    verdict: Annotated[Verdict, "The verdict of its study."]
    ratio: Annotated[Interval | None, LEFT_OUT]


SMALLER_GROUP = "The smaller of two groups of hosts that stand at two levels, none of them odd; empty for one level."


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEffect:
    """One candidate against the baseline under one workload."""

    workload: Annotated[str, "The workload."]
    candidate: Annotated[str, "The arm."]
    verdicts: Annotated[tuple[HostVerdict, ...], "The verdict of each host."]
    estimates: Annotated[tuple[HostEstimate, ...], LEFT_OUT]
    left_out: Annotated[tuple[Name, ...], "Hosts without a usable standard error."]
    pooled: Annotated[Pooled | None, "The mean over hosts; null for fewer than two."]
    points: Annotated[
        tuple[FunnelPoint, ...],
        "Each host against the others; empty for too few hosts.",
        At("points", key="hosts"),
    ]
    group: Annotated[tuple[Name, ...], SMALLER_GROUP] = ()

    def settled(self, margin: float, sign: float) -> Verdict:
        """Say what all hosts together show: by their mean of POOLED_MIN hosts and more, else by what each shows."""
        if self.pooled is None or len(self.estimates) < POOLED_MIN:
            found = {one.verdict for one in self.verdicts}
            return found.pop() if len(found) == 1 else Verdict.UNDECIDED
        low, high = sorted((sign * self.pooled.low, sign * self.pooled.high))
        if low > 0 or high < 0:
            return Verdict.BETTER if low > 0 else Verdict.WORSE
        return Verdict.SAME if high <= math.log1p(margin) else Verdict.UNDECIDED


POOLED_MIN = 5
"""From so many hosts on the mean over them is what is said; of fewer its interval tells little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLevel:
    """The level of the baseline under one workload."""

    workload: Annotated[str, "The workload."]
    arm: Annotated[str, "The baseline."]
    estimates: Annotated[tuple[HostEstimate, ...], LEFT_OUT]
    refused: Annotated[str | None, "Why hosts are not compared; null where they are."] = None
    left_out: Annotated[tuple[Name, ...], "Hosts with too few rounds."]
    points: Annotated[tuple[FunnelPoint, ...], "Each host against the others.", At("points", key="hosts")] = ()
    group: Annotated[tuple[Name, ...], SMALLER_GROUP] = ()
    ranks: Annotated[tuple[HostRank, ...], "The hosts by their ranks."] = ()
    traits: Annotated[tuple[Trait, ...], "What odd hosts, or those of the group, have, the most telling first."] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """The answer of one study that ran on many hosts; `study` is that of the first. `others` are the hosts that have
    only measured something else.
    """

    hosts: tuple[str, ...]
    study: Study
    effects: tuple[FleetEffect, ...]
    levels: tuple[FleetLevel, ...]
    methods: tuple[int, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """One change of a level."""

    last: Annotated[str, "The last study before it."]
    study: Annotated[str, "The first study after it."]
    begun: Annotated[datetime, "When that was begun, in UTC."]
    ratio: Annotated[float, "The mean level after it / the one before."]
    low: Annotated[float, "The lower end of its 95 % interval."]
    high: Annotated[float, "The upper end."]
    p: Annotated[float, "How often the same levels in random order split as well.", SHARE]
    facts: Annotated[tuple[TurnedFact, ...], "The recorded facts that changed with it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHistory:
    """One host under one workload.

    `expected` is the logarithm of each level if only its changes and the reference moved it; the `spread` is around
    that. `judged`: there are studies enough for a change to be seen.
    """

    host: Annotated[str, "Its name."]
    workload: Annotated[str, "The workload."]
    spread: Annotated[float, "The standard deviation between studies of one level, of the logarithm.", NOT_NEGATIVE]
    levels: Annotated[tuple[HostEstimate, ...], "Its studies in the order of time."]
    expected: Annotated[tuple[float, ...], LEFT_OUT]
    changes: Annotated[tuple[LevelChange, ...], "Where the level changed, the earliest first."]
    judged: Annotated[bool, LEFT_OUT]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHistory:
    """How hosts did over time in one study that was repeated; `reference` is the host that nobody changes."""

    study: Study
    reference: str
    hosts: tuple[HostHistory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    state: Annotated[str, "`installed`, `kept` (it had this version), `back` (the one before again) or `remove`."]
    before: Annotated[str | None, "The version that was installed so before; null without one."] = None
    version: Annotated[str | None, "The version that is installed so now; null without one."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredStudy:
    """One study that was pulled."""

    id: Annotated[str, "Its id."]
    attempts: Annotated[int, "Attempts at trials that were added.", NOT_NEGATIVE]
    new: Annotated[bool, "Whether nothing of it was here before."]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredHost:
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    store: Annotated[str, "The store of its studies here."]
    studies: Annotated[tuple[GatheredStudy, ...], "The studies that were pulled; a finished one is pulled once."]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVms:
    """VMs of one host."""

    host: FleetHost
    vms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """A change of the VMs of many hosts: the words of its verb, and the hosts in the order of changing them."""

    name: str
    created: str
    words: tuple[str, ...]
    hosts: tuple[HostVms, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedHost:
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    state: Annotated[str, "`changed`, `undone`, `failed`, or `untouched`: nothing was done there."]
    said: Annotated[str | None, "How many VMs, or why it failed; null where there is nothing to say."] = None

    @property
    def failed(self) -> bool:
        return self.state == "failed"


class TaskState(StrEnum):
    """What is known of a task."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far a task is, as its host says it.

    `left_seconds` is the expected time to its end; `code` the exit code of what ran; `said` its last sentence where
    it failed and `hint` the next thing to do then; `verdict` the verdicts so far, in words. Of a study that was only
    planned `loads` names the storage outside of the host that it would load, and `arms` the configurations of a
    search with their settings, the baseline first.
    """

    state: TaskState
    study: str = ""
    done: int = 0
    total: int = 0
    left_seconds: float | None = None
    verdict: str = ""
    code: int | None = None
    said: str = ""
    hint: str = ""
    loads: tuple[str, ...] = ()
    arms: Arms = ()


WAITING = TaskProgress(state=TaskState.WAITING)
"""What is known of a task that has not begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTask:
    """One study on one host. `name` is unique on every host; `part` counts what runs one after the other.

    `expected_seconds` is how long the host said beforehand that it takes; None where that is unknown. `loads` names
    the storage outside of the host that it loads, as the host said. In a search `words` are those of this study alone
    (empty: the run's), `confirms` says that it is no part of the race, and `counted` is the study that counts, once
    the turn after it was planned: what ends later does not.
    """

    name: str
    host: FleetHost
    part: int
    expected_seconds: float | None = None
    loads: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    confirms: bool = False
    counted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSearch:
    """One search over many hosts: what races, on which hosts, and on which the winner is confirmed.

    `arms` are the configurations that all hosts can run, the baseline first, with their settings; `left_out` those
    that some cannot, with these hosts. `options` are the words that every study of it has. `margin` is a share, and
    `metric` is what is to be made better. Without `confirming` the winner is confirmed on the hosts that raced.
    `hosts` has one task of each host, of which those of the turns are made; a round of one arm takes `slice_seconds`.
    """

    hosts: tuple[FleetTask, ...]
    slice_seconds: float
    arms: Arms
    left_out: ArmsLeftOut
    metric: str
    margin: float
    options: tuple[str, ...]
    racing: tuple[str, ...]
    confirming: tuple[str, ...]
    confirm_rounds: int

    @property
    def baseline(self) -> str:
        """The name of the arm that is there now."""
        return self.arms[0][0]

    @property
    def sign(self) -> float:
        """What makes more better of a logarithm of the metric: 1, or -1 where less of it is better."""
        return 1.0 if BY_ID[self.metric].better == "higher" else -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """A study on many hosts: the words of its verb, its tasks in their order, and how they are shared out.

    Of hosts with one value of the label `shares` only one is measured at a time. `reference` is the host that is
    measured again in every other part. With a `search` tasks are added to it, turn after turn: a part is a turn.
    """

    name: str
    created: str
    words: tuple[str, ...]
    tasks: tuple[FleetTask, ...]
    at_once: int
    shares: str
    reference: str = ""
    virtune: str = "virtune"
    search: FleetSearch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BetterThere:
    """A host on which another arm is better than the winner by more than the margin: other / winner."""

    host: str
    arm: str
    ratio: Interval


class FleetPhase(StrEnum):
    """What a search over hosts does next."""

    RACE = "race"
    CONFIRM = "confirm"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTuning:
    """The findings of a search over many hosts, so far: the race after `turns`, and the winner on fresh data.

    `of_their_kind`: the race speaks of hosts of this kind, and not only of those that raced. `more_hosts_only`: no
    number of rounds on these hosts would tell more. `hosts` are those whose rounds count. `confirmed` is the winner
    against the baseline by workload; empty before it was confirmed, and where the baseline itself won. Figures of
    guests that were `emulated` recommend nothing. `without` are hosts on which the winner gave no value, and
    `needs_seconds` how long a slice must be for the metric to have any.
    """

    run: FleetRun
    search: FleetSearch
    phase: FleetPhase
    turns: int
    hosts: tuple[str, ...]
    standing: Standing
    of_their_kind: bool
    more_hosts_only: bool
    confirmed: tuple[FleetEffect, ...] = ()
    better_there: tuple[BetterThere, ...] = ()
    simulated: bool = False
    emulated: bool = False
    without: tuple[str, ...] = ()
    needs_seconds: float | None = None

    @property
    def certified(self) -> bool:
        """Whether no other configuration is better by more than the margin, on every host that raced."""
        return self.standing.certified and not self.without

    @property
    def winner(self) -> str | None:
        """The arm that leads, None before any value."""
        return self.standing.leader

    @property
    def recommendation(self) -> Recommendation:
        """Change where the winner is better than the baseline on fresh data under every workload, keep where it is so
        under none: on the mean over hosts where there are POOLED_MIN, else on each of them.
        """
        if self.winner is None or self.phase is not FleetPhase.OVER or self.emulated or self.without:
            return Recommendation.UNDECIDED
        if self.winner == self.search.baseline:
            return Recommendation.KEEP
        found = {one.settled(self.search.margin, self.search.sign) for one in self.confirmed}
        if found == {Verdict.BETTER}:
            return Recommendation.CHANGE
        none = found and found <= {Verdict.SAME, Verdict.WORSE}
        return Recommendation.KEEP if none else Recommendation.UNDECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run whose plan is kept, and of how many of its hosts it is known how they ended: `open` began, and their end
    was not seen here.
    """

    run: FleetRun
    hosts: int
    finished: int
    failed: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDrift:
    """How the level of the reference host changed from one time to the next."""

    workload: Annotated[Name, "The workload."]
    metric: Annotated[str, "The metric."]
    estimate: Annotated[float, "Later / earlier.", At("estimate", key="ratio")]
    low: Annotated[float, "The lower end of its 95 % interval."]
    high: Annotated[float, "The upper end."]
    hours: Annotated[float, "The time between the two, in hours.", NOT_NEGATIVE]
