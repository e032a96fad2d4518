# SPDX-License-Identifier: Apache-2.0
"""Judge the disks of running VMs by rules, look after look; and find when they were slow in looks that were kept."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from virtune.analyse.layers.stations import SLOW_NS, SeenPath
from virtune.model.bottleneck import DiskFrame, DiskLook, RuleEvent, SlowWindow, TopFrame, WatchRule
from virtune.model.live import LatencyBins, OperationKind
from virtune.model.metric import BY_ID

_KIND: Mapping[str, OperationKind] = {"sync": "flush", "read": "read", "write": "write"}
"""What a metric's first word is about."""

CALM_LOOKS = 2
"""An alarm is over after as long a time as it took to be raised, and so many looks at least."""

WINDOWS = 3
"""The windows of a VM that are told."""

SLOWER = 2.0
"""A look counts as slow where a request took this many times as long as the disk's median, or SLOW_NS."""


def look_of(one: DiskFrame, wall_seconds: float) -> DiskLook:
    """Return what is told and kept of a disk."""
    path, most = one.path, SeenPath(one.path).layer()
    return DiskLook(
        wall_seconds=wall_seconds,
        seconds=one.rates.seconds,
        vm=one.vm,
        disk=one.disk,
        iops=path.iops,
        bandwidth=path.bandwidth,
        latency_ns=one.latency_ns,
        in_flight=one.in_flight,
        waiting_seconds=None if path.held is None else path.held_seconds,
        stalled=path.stalled,
        cause=one.found.cause,
        evidence=one.found.evidence,
        layer="" if most is None else most.label,
        layer_share=0.0 if most is None else most.share,
    )


def tail_of(one: DiskFrame, kind: OperationKind | None, percent: float) -> tuple[float, float] | None:
    """Return between which times a percentile of a disk's requests lies, of one kind or of all; None if unknown."""
    chosen = [found for name, found in one.histograms.items() if kind in (None, name)]
    whole: LatencyBins | None = chosen[0] if chosen else None
    for other in chosen[1:]:
        whole = None if whole is None else whole.plus(other)
    return None if whole is None else whole.percentile_ns(percent)


def value_of(rule: WatchRule, one: DiskFrame) -> float | None:
    """Return a rule's metric of a disk in its base unit; None where it is not known, as the latency of a disk without
    requests. Of a percentile it is the end of its bin that is surely reached.
    """
    first, _, last = rule.metric.rpartition(".")
    kind = _KIND.get(rule.metric.partition(".")[0])
    if rule.metric == "oldest":
        return None if one.path.held is None else one.path.held_seconds * 1e9
    if (percent := BY_ID[rule.metric].percent) is not None:
        ends = tail_of(one, kind, percent)
        return None if ends is None else ends[rule.relation == "<"]
    if kind is not None:
        done = next((each for each in one.path.operations if each.kind == kind), None)
        return None if done is None else {"iops": done.iops, "bandwidth": done.bandwidth}.get(last, done.mean_ns)
    if rule.metric == "cpu_per_io":
        return None if one.cpu_per_io_ns is None else one.cpu_per_io_ns / 1e9
    return one.latency_ns if first == "latency" else one.path.iops if last == "iops" else one.path.bandwidth


def _reaches(rule: WatchRule, value: float) -> bool:
    """Whether a value is beyond a rule's; an end of a bin is too, since a percentile lies beyond it."""
    if value == rule.value and rule.metric != "oldest" and BY_ID[rule.metric].percent is not None:
        return True
    return value > rule.value if rule.relation == ">" else value < rule.value


class Alarms:
    """Which rules hold for which disks. One look that does not hold ends nothing that has been raised."""

    def __init__(self, rules: Sequence[WatchRule]) -> None:
        self.rules = tuple(rules)
        self._held: dict[tuple[str, str, WatchRule], float] = {}
        self._calm: dict[tuple[str, str, WatchRule], float] = {}
        self._raised: dict[tuple[str, str, WatchRule], DiskLook] = {}

    @property
    def raised(self) -> tuple[tuple[str, str, WatchRule], ...]:
        """VM, disk and rule of those that hold."""
        return tuple(self._raised)

    def look(self, frame: TopFrame) -> Iterator[RuleEvent]:
        """Judge a frame; yields what began and what ended. A VM that could not be looked at stays as it was."""
        blind = {vm.vm for vm in frame.vms if not vm.disks}
        for one in frame.disks:
            for rule in self.rules:
                yield from self._judge(rule, one, look_of(one, frame.wall_seconds))
        here = {(one.vm, one.disk) for one in frame.disks}
        for key in [one for one in self._held if one[:2] not in here and one[0] not in blind]:
            held = self._held.pop(key)
            self._calm.pop(key, None)
            if (look := self._raised.pop(key, None)) is not None:
                yield RuleEvent(holds=False, rule=key[2], value=None, seconds=held, look=look, gone=True)

    def _judge(self, rule: WatchRule, one: DiskFrame, look: DiskLook) -> Iterator[RuleEvent]:
        key, value = (one.vm, one.disk, rule), value_of(rule, one)
        holds = value is not None and _reaches(rule, value)
        raised = key in self._raised
        held = self._held[key] = self._held.get(key, 0.0) + look.seconds if holds or raised else 0.0
        calm = self._calm[key] = 0.0 if holds else self._calm.get(key, 0.0) + look.seconds
        if holds:
            if not raised and held >= rule.seconds - look.seconds / 2:  # looks do not end to the millisecond
                yield RuleEvent(holds=True, rule=rule, value=value, seconds=held, look=look)
                raised = True
            if raised:
                self._raised[key] = look
        elif raised and calm >= max(rule.seconds, CALM_LOOKS * look.seconds) - look.seconds / 2:
            del self._raised[key]
            self._held[key] = 0.0
            yield RuleEvent(holds=False, rule=rule, value=value, seconds=held - calm, look=look)


def slow_windows(looks: Iterable[DiskLook]) -> dict[str, tuple[SlowWindow, ...]]:
    """Return of each VM when its disks were slowest, the worst first; nothing where nothing stood out."""
    by_disk: dict[str, list[DiskLook]] = {}
    for one in looks:
        by_disk.setdefault(one.name, []).append(one)
    found: dict[str, list[SlowWindow]] = {}
    for mine in by_disk.values():
        found.setdefault(mine[0].vm, []).extend(_windows_of(sorted(mine, key=lambda one: one.wall_seconds)))
    return {
        vm: tuple(sorted(some, key=lambda one: -one.worst.took_ns)[:WINDOWS]) for vm, some in sorted(found.items())
    }


def _windows_of(looks: Sequence[DiskLook]) -> Iterator[SlowWindow]:
    """Yield each run of slow looks of a disk; a look that is missing, or not slow, ends it."""
    usual_ns = median(one.took_ns for one in looks)
    runs: list[list[DiskLook]] = [[]]
    for one in looks:
        slow = one.took_ns > min(SLOWER * usual_ns, SLOW_NS)
        missed = bool(runs[-1]) and one.wall_seconds - runs[-1][-1].wall_seconds > 3 * one.seconds
        if missed or not slow:
            runs.append([])
        if slow:
            runs[-1].append(one)
    for run in filter(None, runs):
        done = sum(one.iops * one.seconds for one in run)
        spent = sum(one.iops * one.seconds * (one.latency_ns or 0) for one in run)
        yield SlowWindow(
            begin_seconds=run[0].wall_seconds - run[0].seconds,
            end_seconds=run[-1].wall_seconds,
            latency_ns=spent / done if done else None,
            usual_ns=usual_ns,
            worst=max(run, key=lambda one: one.took_ns),
        )


def looks_of(frame: TopFrame) -> tuple[DiskLook, ...]:
    """Return what is kept of a frame: disks that did something, or should have."""
    every = [look_of(one, frame.wall_seconds) for one in frame.disks]
    return tuple(replace(one, evidence=one.evidence[:1]) for one in every if one.iops > 0 or one.took_ns > 0)
