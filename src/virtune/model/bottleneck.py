# SPDX-License-Identifier: Apache-2.0
"""A Bottleneck: what limits a disk under its load, with the evidence and the experiment that would test it. A
Guideline: a decision tree of questions, each answered with yes or no, whose leaves say what to do. An Accusation:
what a diagnosis names as the limit, kept with the study that tests it. A TopFrame: what all disks of the running
VMs did between two samples, and what that cost their host. A DiskLook is what is kept of that, a WatchRule judges it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from virtune.model.counters import DiskUse, ThreadCost, Use
from virtune.model.live import ENCRYPTION, DiskRates, Histograms, HostQueue, Layers, Operation
from virtune.model.text import At, Worded, format_bandwidth, format_count
from virtune.model.verdict import Interval, Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A question, and the node behind each answer. `ours`: it was added by virtune and is not the authors'."""

    id: str
    text: str
    yes: str
    no: str
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """An end of a guideline: the advice, the published results, the management cost, the settings.

    `limit`: nothing is left to gain. `ours`: it was added by virtune and is not the authors'.
    """

    id: str
    text: str
    expected: str = ""
    cost: str = ""
    written: str = ""
    limit: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guideline:
    """A decision tree by its nodes' ids, and its source."""

    id: str
    title: str
    source: str
    root: str
    nodes: Mapping[str, Fork | Leaf]

    @property
    def forks(self) -> tuple[Fork, ...]:
        return tuple(node for node in self.nodes.values() if isinstance(node, Fork))


Structure = Literal["structure-1", "structure-2", "structure-3", "structure-4"]
"""A structure of VMs and drives, by its leaf in the configuration guideline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnShare:
    """A structure's IOPS relative to bare metal's, as a study of this host measured them. `emulated`: its guests ran
    without KVM, so the share is the emulator's.
    """

    structure: Structure
    study: str
    arm: str
    workload: str
    rounds: int
    ratio: Interval
    emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A question with its answer."""

    question: Annotated[Fork, str, "The question.", At("question.text")]
    yes: Annotated[bool, "The answer."]
    evidence: Annotated[str, "By what it was answered."] = ""
    assumed: Annotated[bool, "Whether the answer is unknown, and no was taken."] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The path through a guideline: each question with its answer, and the leaf. `answers` are all that are known, of
    questions beside the path too.
    """

    guideline: Guideline
    steps: tuple[Answered, ...]
    leaf: Leaf
    answers: Mapping[str, tuple[bool, str]]


def walk(guideline: Guideline, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Walk through a guideline. `answers` gives the answer and its evidence for each question; a missing one is taken
    for "no".
    """
    steps: list[Answered] = []
    node = guideline.nodes[guideline.root]
    while isinstance(node, Fork):
        known = answers.get(node.id)
        yes, evidence = known or (False, "")
        steps.append(Answered(question=node, yes=yes, evidence=evidence, assumed=known is None))
        node = guideline.nodes[node.yes if yes else node.no]
    return Walk(guideline=guideline, steps=tuple(steps), leaf=node, answers=answers)


def answered(found: Walk, answers: Mapping[str, tuple[bool, str]]) -> Walk:
    """Return the walk with answers that were given, in place of those that were assumed or found."""
    return walk(found.guideline, {**found.answers, **answers})


def open_ends(guideline: Guideline, answers: Mapping[str, tuple[bool, str]]) -> tuple[tuple[Leaf, str], ...]:
    """Return every leaf that the answers leave open, each with the answers that it takes besides, such as
    `own=no, virtio=yes`; empty for the only one.
    """

    def below(node: Fork | Leaf, path: tuple[str, ...]) -> Iterator[tuple[Leaf, str]]:
        if isinstance(node, Leaf):
            yield node, ", ".join(path)
        elif node.id in answers:
            yield from below(guideline.nodes[node.yes if answers[node.id][0] else node.no], path)
        else:
            yield from below(guideline.nodes[node.yes], (*path, f"{node.id}=yes"))
            yield from below(guideline.nodes[node.no], (*path, f"{node.id}=no"))

    return tuple(below(guideline.nodes[guideline.root], ()))


class Cause(Worded):
    """What may limit a disk."""

    DEVICE = "device", "the device"
    BACKEND = "block-layer", "QEMU's block layer"
    IOTHREAD = "iothread", "the IOThread"
    MAIN_LOOP = "main-loop", "QEMU's main loop"
    VCPU = "vcpu", "the vCPUs"
    WORKERS = "worker-pool", "the pool of worker threads"
    DEPTH = "depth", "the number of I/Os in flight"
    RING = "ring", "the virtqueue: notification and wake-up"
    THROTTLE = "throttle", "a limit that was set"
    HOST_CPU = "host-cpu", "contention for this host's CPUs"
    PAGE_CACHE = "page-cache", "a page cache, not the disk"
    LOAD = "load-generator", "the load itself"
    HUNG = "hung", "a hang of what serves it"
    FLUSH = "flush", "flushes: the guest waits until what it wrote is safe (fsync)"
    DISCARD = "discard", "discards (TRIM)"
    MEMORY = "memory", "this host's memory: QEMU's own pages are read back from storage"
    NOT_BOUND = "not-bound", "its rate is not bound by the disk"
    IDLE = "idle", "idle: its guest asks nothing of it, so there is nothing to limit"
    UNDECIDED = "undecidable", "undecidable"

    @property
    def accuses(self) -> bool:
        return self not in (Cause.NOT_BOUND, Cause.IDLE, Cause.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What may limit a disk, as it was judged; `name` is its row in the table of causes."""

    name: Annotated[str, "Its name."]
    cause: Annotated[Cause, "The cause that it would be."]
    named: Annotated[bool, "Whether the answer names it."] = False
    stands: Annotated[bool, "Whether it accounts for enough, and nothing speaks against it."]
    share: Annotated[
        float, "The part of its requests' time, or of the time, that it accounts for, 0 to 1.", {"maximum": 1}
    ]
    supports: Annotated[tuple[str, ...], "What speaks for it."]
    against: Annotated[tuple[str, ...], "What speaks against it."]
    unseen: Annotated[str, "What was not seen of it; empty if all was."]
    experiment: Annotated[str, "What would prove it; empty where nothing speaks for it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPath:
    """The known facts of a disk under load; an unknown one is None or empty.

    `layers` say where the time of a request goes. `depth` is how many I/Os may be in flight, `idle` how many of them
    were not submitted, `latency_ns` the load's latency. `threads` are those that carry the I/O, `serving` is the role
    of those that serve the disk: `iothread` or `main`; `polling`: they poll. `workers_max` bounds the pool of worker
    threads where it does the I/O. `limits` are the configured limits by unit (`iops`, `read.bps`), each with the
    measured rate in the same unit, `lifts` the command that removes one, where it is known, `limited_by` the setting
    of an arm that sets one. `thread_iops` is the rate of all disks that a thread serves: by the name of an IOThread,
    by `main`, and by an empty name for the other threads; without it they serve this disk alone. `throttled` is for
    how many seconds a second control groups held CPUs back, all CPUs added up. `stands_in_ns` is the response time of
    QEMU's null-co driver, where that replaces the device. `served` is the share of reads that reached the device
    (above 1 where QEMU reads more than it was asked for), `device_busy` the share of time that it had a request.
    `foreign_cpus` is how many CPUs others used.

    `device_ns` is the mean time of all requests at the device, others' too, and `others_share` the share of its
    bytes that others caused. `tables`: the image's format has tables that QEMU reads (qcow2). `guest_polls`: the
    guest looks for completions without a pause, so that its vCPUs are always busy, `load_polls` the same of the load.
    `emulated`: the guest runs without KVM (TCG).

    `operations` are its requests by what they ask for, `failed` how many a second failed (None: not counted), and
    `uncounted` how many more a second its virtqueues completed, such as discards of virtio-blk. `held` is how many
    were in flight at the end and none had been completed for `held_seconds` (None where that cannot be seen), and
    nothing was completed for `stalled` of the `seconds` although some were in flight, in `stalls` stretches.
    `ring_size` is how many requests its virtqueues hold. `faults` are major page faults of QEMU a second,
    `fault_ns` the time of one where this host swaps to a device, `memory_pressure` the share of time in which some
    task of the host waited for memory (PSI). `origin` is how the disk was observed. `protocol`, `direct`, `unread`,
    `front`, `writethrough` and `relimited` are those of a LiveDisk; `neighbours` are other VMs that were watched and
    have a disk on its device.
    """

    iops: float
    bandwidth: float = 0.0
    layers: Layers | None = None
    depth: float | None = None
    idle: float | None = None
    offered: float | None = None
    threads: tuple[ThreadCost, ...] = ()
    serving: str = "main"
    polling: bool = False
    workers_max: int | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    lifts: Mapping[str, str] = field(default_factory=dict)
    limited_by: Mapping[str, str] = field(default_factory=dict)
    thread_iops: Mapping[str, float] = field(default_factory=dict)
    throttled: float | None = None
    latency_ns: float | None = None
    stands_in_ns: float | None = None
    served: float | None = None
    device_busy: float | None = None
    load_busy: float | None = None
    foreign_cpus: float | None = None
    device_ns: float | None = None
    others_share: float | None = None
    tables: bool = False
    guest_polls: bool = False
    load_polls: bool = False
    emulated: bool = False
    operations: tuple[Operation, ...] = ()
    failed: float | None = None
    uncounted: float = 0.0
    held: int | None = None
    held_seconds: float = 0.0
    stalled: float = 0.0
    stalls: int = 0
    seconds: float = 0.0
    ring_size: int = 0
    faults: float = 0.0
    fault_ns: float | None = None
    memory_pressure: float | None = None
    origin: Literal["trial", "libvirt", "monitor"] = "trial"
    protocol: str = ""
    direct: bool = False
    unread: tuple[str, ...] = ()
    front: str = ""
    writethrough: bool = False
    relimited: str = ""
    neighbours: tuple[str, ...] = ()

    def iops_of(self, thread: ThreadCost) -> float:
        """The rate of the I/Os that a thread's CPU time is for: of all disks that it serves."""
        key = {"iothread": thread.name, "main": "main"}.get(thread.role, "")
        return self.thread_iops.get(key, self.iops)

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """What its requests may wait for elsewhere than at its image: other images, filters, block jobs."""
        return tuple(one for one in self.unread if not one.startswith(ENCRYPTION))

    @property
    def limit_used(self) -> float | None:
        """How much of its nearest limit the disk uses (1 is all of it); None without a limit."""
        return max((done / limit for limit, done in self.limits.values() if limit > 0), default=None)


def limit_text(unit: str, limit: float, done: float) -> str:
    """Return a limit with what was done of it: `149 of the 150 that are allowed (iops)`; a burst does more."""
    write = format_bandwidth if unit.endswith("bps") else format_count
    if done > _BEYOND * limit:
        return f"{write(done)}, in a burst beyond the {write(limit)} that are allowed for long ({unit})"
    return f"{write(min(done, limit))} of the {write(limit)} that are allowed ({unit})"


_BEYOND = 1.01
"""Counters are read a little later than the clock."""

CONTROL_GROUP = "control group, "
"""How the unit of a limit begins that a control group sets."""

EMULATED_WORDS = "the guest runs without KVM (TCG): its latencies and CPU times are the emulator's"
"""What is said of every figure of such a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What limits a disk: the cause, its evidence, and what to try next. `also` is a second cause that cannot be told
    apart from it, None without one. `hypotheses` are all causes that were judged, the likeliest first.

    It was found in `rounds` of `of` rounds.
    """

    cause: Cause
    evidence: tuple[str, ...]
    experiment: str
    rounds: int = 1
    of: int = 1
    also: Cause | None = None
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def text(self) -> str:
        return self.cause.words if self.also is None else f"{self.cause.words}, or {self.also.words}"

    @property
    def claim(self) -> str:
        if self.cause.accuses:
            return f"limited by {self.text}"
        return f"what limits it is {self.text}" if self.cause is Cause.UNDECIDED else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstSecond:
    """The second of a look in which a disk's requests took longest."""

    number: Annotated[int, "Which second of the look it was, from 1."]
    requests: Annotated[int, "How many requests were completed in it."]
    mean_ns: Annotated[float, "Their mean time, in ns."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnosis of one disk under one load: where the time goes, what its threads cost, what limits it.

    `missing` names evidence that could not be had and what it would add. `workload` is the load: its name, or of a
    live disk what was seen of it, in fio's words; `rate` is then the rate at which its I/Os came, in the same words,
    and `sequential` the share of requests that follow those before them on the disk, None if unknown. `queue` splits
    the time at the host's disk, None where the kernel does not tell. `exits_per_io` is how often KVM left the guest
    for each I/O, None if unknown. `guideline` is the path through the published tuning guideline, for a disk that
    QEMU serves; where it does not apply it is None, and `no_guideline` says why. `proof` is what replacing the
    accused layer said of it, None where nobody asked. `worst` is None where it was not looked at second by second.
    `like` are the words of a command that measures scratch disks like it, empty where its storage is no file's.
    """

    disk: str
    workload: str
    seconds: float
    path: DataPath
    found: Bottleneck
    layers: Layers | None
    missing: tuple[str, ...] = ()
    rate: str = ""
    queue: HostQueue | None = None
    exits_per_io: float | None = None
    guideline: Walk | None = None
    no_guideline: str = ""
    sequential: float | None = None
    proof: Proof | None = None
    worst: WorstSecond | None = None
    like: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """The accusation of a stored study, and the arms that test it.

    `source` is the diagnosed study, `disk` and `workload` its arm and load. `what` says what takes the place of the
    accused layer, in the arm `replaced`; `stand_in` is the arm with a device of the same mean latency, None without
    one. `share` is the part of an I/O's time that the diagnosis gave to the layer, None where it gave none. `notes`
    are what else a reader must know.
    """

    source: str
    disk: str
    workload: str
    found: Bottleneck
    what: str
    replaced: str
    stand_in: str | None = None
    share: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFrame:
    """A disk of a running VM between two samples.

    `cpu_per_io_ns` is the CPU time of QEMU's threads for each I/O, without vCPUs; None where it is unknown. `gone`
    says that it was unplugged or its VM ended, and that these are its last figures. `histograms` are QEMU's of the
    times of its requests, where it keeps them. `devices` are the host's below it, from the top of the chain down.
    """

    vm: str
    disk: str
    rates: DiskRates
    path: DataPath
    found: Bottleneck
    cpu_per_io_ns: float | None
    gone: bool = False
    histograms: Histograms = field(default_factory=dict)
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """VM and disk, as `virtune diagnose` takes them."""
        return f"{self.vm}:{self.disk}"

    @property
    def latency_ns(self) -> float | None:
        """The mean time of a request from where it is first seen; None without requests or without times."""
        layers = self.path.layers
        return None if layers is None or layers.total_ns <= 0 else layers.total_ns

    @property
    def in_flight(self) -> float:
        """How many requests were under way at a time, on average; of a disk that completed none, how many wait."""
        return float(self.path.held or 0) if self.path.layers is None else self.path.layers.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFrame:
    """A thread of a VM's QEMU; `iops` is the rate of the VM's disks together."""

    vm: str
    cost: ThreadCost
    iops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFrame:
    """A running VM: its disks together, and its QEMU's threads. `seen` says that these are visible, `emulated` that
    it runs without KVM (TCG).
    """

    vm: str
    disks: tuple[DiskFrame, ...]
    threads: tuple[ThreadFrame, ...]
    seen: bool
    emulated: bool = False

    @property
    def iops(self) -> float:
        return sum(one.path.iops for one in self.disks)

    @property
    def bandwidth(self) -> float:
        return sum(one.path.bandwidth for one in self.disks)

    @property
    def in_flight(self) -> float:
        return sum(one.in_flight for one in self.disks)

    @property
    def latency_ns(self) -> float | None:
        """The mean time of a request over all disks (Little's law)."""
        return self.in_flight / self.iops * 1e9 if self.iops > 0 and self.in_flight > 0 else None

    def cpus(self, *roles: str) -> float | None:
        """How many CPUs its threads used, or those of some roles; None where they are not visible."""
        chosen = [one.cost.busy for one in self.threads if not roles or one.cost.role in roles]
        return sum(chosen) if self.seen else None

    @property
    def stalled(self) -> float | None:
        """How many threads at a time could run and had no CPU, on average; None where they are not visible."""
        return sum(one.cost.stalled for one in self.threads) if self.seen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFrame:
    """A block device of the host in so many seconds, and the disks of VMs that lie on it. `others_share` is how much
    of its bytes others than these VMs caused, at least; None where that is not known.
    """

    use: DiskUse
    seconds: float
    disks: tuple[DiskFrame, ...]
    others_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFrame:
    """The running VMs of a host between two samples. `wall_seconds` is the time of the later one; `missing` says what
    cannot be seen, and what it would add.
    """

    wall_seconds: float
    seconds: float
    vms: tuple[VmFrame, ...]
    host: Use
    missing: tuple[str, ...] = ()

    @property
    def emulated(self) -> tuple[str, ...]:
        return tuple(vm.vm for vm in self.vms if vm.emulated)

    @property
    def disks(self) -> tuple[DiskFrame, ...]:
        return tuple(disk for vm in self.vms for disk in vm.disks)

    @property
    def devices(self) -> tuple[DeviceFrame, ...]:
        return tuple(
            DeviceFrame(
                use=one,
                seconds=self.seconds,
                disks=(disks := tuple(disk for disk in self.disks if one.name in disk.devices)),
                others_share=self.host.foreign_share(one.name, tuple({disk.vm for disk in disks})),
            )
            for one in self.host.disks
        )

    @property
    def threads(self) -> tuple[ThreadFrame, ...]:
        return tuple(thread for vm in self.vms for thread in vm.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRule:
    """A rule: a metric of a running disk (`latency.mean`, `oldest`) beyond a value in its base unit, for `seconds`
    without a pause. `text` is the rule in its normal form.
    """

    metric: str
    relation: Literal["<", ">"]
    value: float
    seconds: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLook:
    """A disk between two looks, as it is told and kept. `wall_seconds` is the time of the later one.

    `latency_ns` is the mean time of a request, None without requests; `waiting_seconds` for how long requests have
    waited and none was completed, None where that is not seen; `stalled` the share of the time of which that was so.
    `layer` has most of the time of a request, `layer_share` of it; empty where layers are not told apart.
    """

    wall_seconds: float
    seconds: float
    vm: str
    disk: str
    iops: float
    bandwidth: float
    latency_ns: float | None
    in_flight: float
    waiting_seconds: float | None
    stalled: float
    cause: Cause
    evidence: tuple[str, ...]
    layer: str = ""
    layer_share: float = 0.0

    @property
    def name(self) -> str:
        """VM and disk, as `virtune diagnose` takes them."""
        return f"{self.vm}:{self.disk}"

    @property
    def took_ns(self) -> float:
        """How slow it was: the time of a request, those that wait included."""
        return max(self.latency_ns or 0.0, (self.waiting_seconds or 0.0) * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEvent:
    """A rule that began or ceased to hold for a disk; `value` is the metric now, None where it is not known, and
    `seconds` for how long it has held. `gone`: the disk, or its VM, is no longer there.
    """

    holds: bool
    rule: WatchRule
    value: float | None
    seconds: float
    look: DiskLook
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWindow:
    """A time in which a disk was slow: when it began and ended, the mean over its looks, and the worst of them.
    `usual_ns` is the median of the time of a request over all looks of the disk.
    """

    begin_seconds: float
    end_seconds: float
    latency_ns: float | None
    usual_ns: float
    worst: DiskLook
