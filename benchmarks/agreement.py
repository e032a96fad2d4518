# SPDX-License-Identifier: Apache-2.0
"""Do the layers add up to the load's own mean, and do counters that know nothing of each other agree?

    python benchmarks/agreement.py STORE [STORE ...]

The layers of a trial add up to the load's mean latency by construction, where the uppermost one is what is left of
it. So here nothing is left over. Three parts of a request's time are taken from three places, by Little's law with
the rate at which the virtqueue completed requests, and none of them by the load's clock:

* in the client: the I/Os that its job keeps in flight, less those that were seen in the virtqueue;
* waiting in the virtqueue: requests that were offered and not yet taken, as sampled in the guest's memory;
* taken by QEMU: the time that QEMU's own block accounting has of them.

Their sum is compared with the load's own mean, which is of its timestamps, for each trial and for the means of each
dose. A storage daemon counts no times of its own, so of an export the last part is what was sampled in the virtqueue.
Then the pairs of counters that should say the same are compared, and what is refused is counted with its reason.
Reads the trials that `benchmarks/layers.py` and others have kept; measures nothing.
"""

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles

from virtune.analyse.layers.path import depth_of, layers_of
from virtune.analyse.trial.counters import Timed, boundaries_of
from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.usage import used_by
from virtune.model.errors import VirtuneError
from virtune.model.evidence import RINGS
from virtune.model.live import DEVIATION
from virtune.model.measurement import Measurement
from virtune.model.metric import Boundary
from virtune.model.stack import Stack
from virtune.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A trial: what its boundaries counted, how many I/Os its job keeps in flight, and its virtqueue's samples."""

    group: str
    dose: str
    measured: Measurement
    timed: Mapping[Boundary, Timed]
    depth: float | None
    ring: Mapping[str, float] | None
    own_accounting: bool
    reasons: tuple[str, ...]

    @property
    def mean_ns(self) -> float:
        """The load's own mean latency."""
        return self.measured.get("latency.mean") or math.nan

    @property
    def rate(self) -> float:
        """Requests that the virtqueue completed in a second."""
        return math.nan if self.ring is None else self.ring["completed"] / self.ring["seconds"]

    @property
    def client_ns(self) -> float:
        """The time in the client, by how many I/Os were not in the virtqueue."""
        if self.ring is None or self.depth is None:
            return math.nan
        return (self.depth - self.ring["offered_mean"]) / self.rate * 1e9

    @property
    def waiting_ns(self) -> float:
        """The time of waiting in the virtqueue, by how many were offered and not taken."""
        if self.ring is None or self.ring.get("taken_mean") is None:
            return math.nan
        return (self.ring["offered_mean"] - self.ring["taken_mean"]) / self.rate * 1e9

    @property
    def taken_ns(self) -> float:
        """The time from when QEMU took a request, by how many were sampled there."""
        taken = None if self.ring is None else self.ring.get("taken_mean")
        return math.nan if taken is None else taken / self.rate * 1e9

    @property
    def sum_ns(self) -> float:
        """The three parts together."""
        below = self.timed["backend"].mean_ns if "backend" in self.timed else math.nan
        return self.client_ns + self.waiting_ns + below

    def refused(self) -> str:
        """Why the parts cannot be added up; empty where they can."""
        rate = self.measured.get("iops") or math.nan
        if self.ring is None:
            return "no virtqueue that can be read"
        if self.depth is None:
            return "a load with pauses keeps no fixed number in flight"
        if self.ring.get("taken_mean") is None:
            return "the device did not tell what it took"
        if not abs(self.rate / rate - 1) <= DEVIATION:
            return "the virtqueue counted other requests than the load"
        if abs(self.timed["backend"].rate / rate - 1) > DEVIATION:
            return "QEMU counted other requests than the load"
        if not abs(rate * self.mean_ns / 1e9 / self.depth - 1) <= DEVIATION:
            return "the client did not keep all of its I/Os in flight"
        return ""


def kept_in(path: Path) -> Iterator[Kept]:
    """Every measured trial of a store with a client of its own."""
    with Store(path, reading=True) as store:
        for listed in store.list():
            if not hasattr(listed, "study") or listed.study.imported or listed.study.simulated:
                continue
            study = listed.study
            for one in store.get(study.id).trials:
                if one.measurement is None:
                    continue
                arm = study.arm(one.trial.arm)
                load = arm.load_of(study.workload(one.trial.workload))
                parts = {found.name: found.content for found in store.captures(study.id, one.trial.number)}
                try:
                    measured = derive(parts, stack=arm.stack, workload=load)
                except VirtuneError:
                    continue
                layers = layers_of([measured], arm.stack, load)
                yield Kept(
                    group=group_of(arm.stack),
                    dose=f"{path}:{study.title or study.id}:{arm.name}:{load.name}",
                    measured=measured,
                    timed=boundaries_of(parts, used_by(parts, arm.stack), arm.stack),
                    depth=depth_of(load),
                    ring=json.loads(parts[RINGS]) if RINGS in parts else None,
                    own_accounting=arm.stack.kind.in_guest,
                    reasons=("nothing below the load was counted",) if layers is None else layers.reasons,
                )


def group_of(stack: Stack) -> str:
    """What the data path leads through."""
    if stack.kind.in_guest:
        system = "without a system" if stack.machine.is_bare else "with Linux"
        return f"guest {system} ({stack.rig})"
    return {"export": "virtqueues of an export", "file": "no virtqueue"}.get(stack.kind.front, "") + f" ({stack.rig})"


def spread(values: list[float]) -> str:
    """The median of ratios with the tenth and the last tenth, in percent off 1."""
    if len(values) < 2:
        return "".join(f"{one - 1:+.1%}" for one in values)
    ends = quantiles(values, n=10, method="inclusive")
    return f"{median(values) - 1:+.1%} [{ends[0] - 1:+.1%}, {ends[-1] - 1:+.1%}]"


def within(values: list[float]) -> str:
    """How many of them are within 5 %."""
    return f"{sum(abs(one - 1) <= DEVIATION for one in values)} of {len(values)}"


def sums(trials: list[Kept]) -> None:
    """Print the sum of the parts against the load's own mean."""
    heads = "rig | trials | added up | sum against the load's mean, trials | within 5 % | doses within 5 % | refused"
    print(f"| {heads} |\n|---|---|---|---|---|---|---|")
    for group in dict.fromkeys(one.group for one in trials):
        mine = [one for one in trials if one.group == group]
        reasons = Counter(why for one in mine if (why := one.refused()))
        added = [one for one in mine if not one.refused()]
        ratios = [one.sum_ns / one.mean_ns for one in added]
        doses: dict[str, list[Kept]] = defaultdict(list)
        for one in added:
            doses[one.dose].append(one)
        means = [fmean(one.sum_ns for one in some) / fmean(one.mean_ns for one in some) for some in doses.values()]
        told = "; ".join(f"{why}: {count}" for why, count in reasons.most_common())
        cells = [group, str(len(mine)), str(len(added)), spread(ratios), within(ratios), within(means), told]
        print(f"| {' | '.join(cells)} |", flush=True)
        for (name, some), mean in zip(doses.items(), means, strict=True):
            if abs(mean - 1) > DEVIATION:
                print(f"| {name.partition(':')[2]} | {len(some)} | | {mean - 1:+.1%} | | | |", flush=True)


PAIRS: tuple[tuple[str, Callable[[Kept], float]], ...] = (
    ("requests: virtqueue, load", lambda one: one.rate / (one.measured.get("iops") or math.nan)),
    ("requests: QEMU's accounting, load",
     lambda one: of(one, "requests.backend") / 100 if one.own_accounting else math.nan),
    ("requests: guest's block layer, load", lambda one: of(one, "requests.guest") / 100),
    ("requests: host's disk, load", lambda one: of(one, "requests.device") / 100),
    ("time, of the load's mean: taken in the virtqueue, QEMU's accounting",
     lambda one: 1 + (one.taken_ns - of(one, "below.backend")) / one.mean_ns if one.own_accounting else math.nan),
    ("time: depth by the virtqueue's rate, mean of the load",
     lambda one: (one.depth or math.nan) / one.rate * 1e9 / one.mean_ns),
    ("time: slat + clat, lat of the load",
     lambda one: (of(one, "slat.mean") + of(one, "clat.mean")) / one.mean_ns),
    ("I/Os: rate x mean of the load, depth of its job",
     lambda one: (one.measured.get("iops") or math.nan) * one.mean_ns / 1e9 / (one.depth or math.nan)),
)  # fmt: skip
"""Counters of the same thing that do not know of each other, as a ratio; not a number where one is missing."""


def of(one: Kept, metric: str) -> float:
    """A metric; not a number where it is missing."""
    value = one.measured.get(metric)
    return math.nan if value is None else value


def pairs(trials: list[Kept]) -> None:
    """Print how the pairs agree, rig by rig."""
    print("\n| counters | rig | trials | ratio | within 5 % |\n|---|---|---|---|---|")
    for name, ratio in PAIRS:
        for group in dict.fromkeys(one.group for one in trials):
            found = [value for one in trials if one.group == group and not math.isnan(value := ratio(one))]
            if found:
                print(f"| {name} | {group} | {len(found)} | {spread(found)} | {within(found)} |", flush=True)


def refusals(trials: list[Kept]) -> None:
    """Print why `diagnose` did not tell boundaries apart, and of how many trials."""
    counts = Counter(short(line) for one in trials for line in one.reasons)
    print(f"\n| of {len(trials)} trials, not told apart because | trials |\n|---|---|")
    for why, count in counts.most_common():
        print(f"| {why} | {count} |")


def short(reason: str) -> str:
    """A reason without its figures."""
    head, _, tail = reason.partition(": ")
    if not tail:
        return head
    if "which does not differ from 0" in reason:
        return f"{reason.split(' is ', maxsplit=1)[0]} does not differ from 0"
    who = head.split(" counted ")[0]
    return f"{who} counted other requests: {tail.removesuffix(', so its time is not told apart')}"


def main() -> None:
    """Read the stores, and print the tables."""
    trials = [one for place in sys.argv[1:] for one in kept_in(Path(place))]
    sums(trials)
    pairs(trials)
    refusals(trials)


if __name__ == "__main__":
    main()
