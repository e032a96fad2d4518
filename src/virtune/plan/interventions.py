# SPDX-License-Identifier: Apache-2.0
"""How each accusation of a diagnosis is tested: one table of causes, of the knobs that replace the accused layer, and
of the direction in which the load must then change.

A replacement is taken only if it fits: its knobs mean something on the rig, nothing in the stack contradicts them,
this host has what they need, and the stack differs afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from virtune.fio.generator import clones_of
from virtune.model.bottleneck import Cause, Diagnosis
from virtune.model.knobs import BY_ID
from virtune.model.metric import Boundary
from virtune.model.stack import LIMITS, Stack, setting_of, with_setting
from virtune.model.study import Arm
from virtune.model.verdict import SIZE, Threshold
from virtune.model.workload import Workload
from virtune.plan.arms import objections
from virtune.plan.goal import parse_condition

Changes = tuple[tuple[str, str | None], ...]
"""Knobs and the values that they get; None is QEMU's default. A value in braces is filled in from the diagnosis."""

AS_IS = "as-is"
"""The name of the arm with the diagnosed stack, the baseline."""

STAND_IN = "stand-in"
"""The name of the arm with a device of the same mean latency."""

MARGIN = 0.03
"""Where a diagnosis promises no size, a change counts from here on: the smallest that a comparison looks for."""

NULL_CO: Changes = (
    ("disk.backend", "null-co"),
    *((name, None) for name in (
        "disk.format", "disk.aio", "disk.cache", "disk.discard", "disk.detect_zeroes", "disk.cluster_size",
        "disk.preallocation", "disk.extended_l2", "disk.lazy_refcounts", "disk.l2_cache_size", "disk.backing_depth",
        "disk.data_file", "disk.encryption", "guests.spread",
    )),
)  # fmt: skip
"""No device, no file and no engine: QEMU's null-co answers at once."""

SLOW_NULL_CO: Changes = (*NULL_CO, ("disk.null_latency_ns", "{device_ns}"))
"""The same, answering after the device's mean latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What takes the place of the accused layer: the name of its arm, what it is in words, its knobs.

    `load` are factors by which fio's words of the load change, where the load itself is accused. `removes` are the
    layers whose time it takes away, so that the size of the change is known beforehand; with none, only the direction
    is. With `stand_in` a second arm gives the load a device of the same mean latency: the difference between the two
    is the device, what remains is the rest of what was replaced.
    """

    arm: str
    what: str
    changes: Changes = ()
    load: tuple[tuple[str, float], ...] = ()
    removes: tuple[Boundary, ...] = ()
    stand_in: bool = False


def _by(
    arm: str,
    what: str,
    *changes: tuple[str, str | None],
    load: tuple[tuple[str, float], ...] = (),
    removes: tuple[Boundary, ...] = (),
    stand_in: bool = False,
) -> Replacement:
    return Replacement(arm=arm, what=what, changes=changes, load=load, removes=removes, stand_in=stand_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How the accusation of one cause is tested: by the first of its replacements that fits.

    `falls`: the load gets slower. `without` says why there is no replacement where none fits, `by_hand` what to do
    then.
    """

    replacements: tuple[Replacement, ...] = ()
    falls: bool = False
    without: str
    by_hand: str


_ENGINES = tuple(_by(f"aio-{aio}", f"the engine aio={aio}", ("disk.aio", aio)) for aio in ("io_uring", "native"))
_WITHOUT_WORKERS = tuple(
    _by(f"aio-{aio}", f"the engine aio={aio}, which needs no workers", ("disk.aio", aio))
    for aio in ("native", "io_uring")
)
_IN_IOTHREAD = (
    _by("iothread", "an IOThread for the disk", ("device.iothread", "iothread0")),
    _by("iothread", "an IOThread for the export", ("export.iothread", "on")),
)
_LIGHT_BACKEND = _by(
    "null-co",
    "QEMU's null-co with the device's mean latency, which costs the thread no work of an engine",
    *SLOW_NULL_CO,
)

_MORE_JOBS = _by(
    "more-jobs",
    "a load of twice as many jobs with half of the depth each",
    load=(("numjobs", 2), ("iodepth", 0.5)),
)
"""On an export with queues for them all: jobs that share a queue share a thread too."""

_OWN_LOAD = "the load is a job file, which runs as it is, or its jobs differ, or they cannot be divided"

INTERVENTIONS: Mapping[Cause, Row] = {
    Cause.DEVICE: Row(
        replacements=(
            _by("no-delay", "null-co without its latency", ("disk.null_latency_ns", None), removes=("device",)),
            _by(
                "no-device", "QEMU's null-co, which answers at once, in the place of the device", *NULL_CO,
                removes=("device",), stand_in=True,
            ),
        ),
        without="only QEMU can put null-co in the place of a device, and the device's own time must be known",
        by_hand="run the same load on another disk: `--target` names one, `--rig storage-daemon` goes through QEMU",
    ),
    Cause.BACKEND: Row(
        replacements=(
            _by(
                "no-backend", "QEMU's null-co with the device's mean latency, without file and engine",
                *SLOW_NULL_CO, removes=("backend",),
            ),
            *_ENGINES,
        ),
        without="nothing in QEMU's block layer is left to be exchanged",
        by_hand="compare another image format, or another filesystem below the image",
    ),
    Cause.IOTHREAD: Row(
        replacements=(
            _by(
                "two-iothreads", "two IOThreads that share its virtqueues", ("device.iothread", None),
                ("device.iothread_vq_mapping", "iothread0+iothread1"), ("device.num_queues", "{queues}"),
            ),
            _LIGHT_BACKEND,
            *_ENGINES,
        ),
        without="the thread can be given neither a second one nor less to do",
        by_hand="spread the load over two disks, each with an IOThread of its own",
    ),
    Cause.MAIN_LOOP: Row(
        replacements=_IN_IOTHREAD,
        without="this bus or export cannot leave QEMU's main loop",
        by_hand="`--rig vhost-user` serves an export in an IOThread; in a VM use virtio-blk or virtio-scsi",
    ),
    Cause.VCPU: Row(
        replacements=(_by("more-vcpus", "twice as many vCPUs", ("machine.vcpus", "{vcpus}")),),
        without="this guest runs on one vCPU",
        by_hand="give the VM another vCPU, or move other programs of the guest away from it",
    ),
    Cause.WORKERS: Row(
        replacements=(
            _by("more-workers", "a worker thread for each I/O in flight", ("iothread.thread_pool_max", "{depth}")),
            *_WITHOUT_WORKERS,
        ),
        without="the pool cannot be made larger here, and no engine without workers fits the cache mode",
        by_hand="give the disk an IOThread with `thread-pool-max`, or use cache=none and aio=native",
    ),
    Cause.DEPTH: Row(
        replacements=(_by("deeper", "a load with four times as many I/Os in flight", load=(("iodepth", 4),)),),
        without=_OWN_LOAD,
        by_hand="`virtune compare measure` with two workloads, such as `--workload rw=randread,iodepth=1` and"
        " `--workload rw=randread,iodepth=4`",
    ),
    Cause.RING: Row(
        replacements=(
            _by("polling", "an IOThread that polls for up to a millisecond", ("iothread.poll_max_ns", "1000000")),
            *_IN_IOTHREAD,
        ),
        without="nothing is left that would notice requests sooner",
        by_hand="pin vCPUs and IOThread near one another (`virsh vcpupin`, `virsh iothreadpin`)",
    ),
    Cause.THROTTLE: Row(
        replacements=(
            _by("no-limit", "the same stack without its limits", *tuple((limit.knob, None) for limit in LIMITS)),
        ),
        without="the limit is not one of QEMU's: a control group holds the CPU back",
        by_hand="raise the group's cpu.max (`systemctl show -p CPUQuotaPerSecUSec UNIT` shows it), and measure again",
    ),
    Cause.HOST_CPU: Row(
        replacements=(
            _by(
                "unpinned", "threads that may run on every CPU", ("vcpu.pin", None), ("emulator.pin", None),
                ("iothread.pin", None),
            ),
            _by("no-polling", "an IOThread that leaves its CPU while it waits", ("iothread.poll_max_ns", "0")),
        ),
        without="no thread is pinned and none polls, so there is no CPU that virtune could free",
        by_hand="stop what else runs on this host, or pin it elsewhere, and measure again",
    ),
    Cause.PAGE_CACHE: Row(
        replacements=(
            _by("cache-none", "cache=none, which passes the host's page cache by", ("disk.cache", "none")),
        ),
        falls=True,
        without="the disk is opened without the host's page cache already, so the load itself or the guest caches",
        by_hand="`direct=1` in the workload, or a `--span` larger than memory",
    ),
    Cause.LOAD: Row(
        replacements=(replace(_MORE_JOBS, changes=(("export.num_queues", "{clones}"),)), _MORE_JOBS),
        without=_OWN_LOAD,
        by_hand="`virtune compare measure` with more jobs (`numjobs=2`), or with another client (`--rig vhost-user`)",
    ),
    Cause.HUNG: Row(
        without="a disk that completes nothing gives a comparison nothing to count",
        by_hand="look at what serves the disk, and measure again when it answers",
    ),
    Cause.FLUSH: Row(
        replacements=(_by("cache-unsafe", "cache=unsafe, which ignores flushes", ("disk.cache", "unsafe")),),
        without="flushes are ignored already, or this rig has no cache mode that ignores them",
        by_hand="the same load without `fsync`, on a disk that nobody needs",
    ),
    Cause.DISCARD: Row(
        replacements=(_by("no-discard", "discards that end in QEMU", ("disk.discard", "ignore")),),
        without="discards end in QEMU already, or cannot be left out on this rig",
        by_hand="the same load without `trim`",
    ),
    Cause.MEMORY: Row(
        without="virtune gives no host more memory",
        by_hand="free memory on this host, or raise `memory.max` of QEMU's control group, and measure again",
    ),
    Cause.NOT_BOUND: Row(
        without="the diagnosis accuses nothing: the rate is not bound by the disk",
        by_hand="`virtune sweep` finds how much it can do",
    ),
    Cause.IDLE: Row(
        without="the diagnosis accuses nothing: nothing was asked of the disk",
        by_hand="measure again while the disk is used",
    ),
    Cause.UNDECIDED: Row(
        without="the diagnosis accuses nothing",
        by_hand="measure again for longer, or with another workload",
    ),
}  # fmt: skip
"""Every cause that a diagnosis can name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """A test of one accusation: its arms (the baseline first), and the condition that the change must keep.

    `least` is the ratio of `metric` that the condition asks for, `share` the part of an I/O's time that the
    diagnosis gave to the replaced layer; None where it gave none.
    """

    arms: tuple[Arm, ...]
    what: str
    metric: str
    condition: Threshold
    share: float | None
    falls: bool

    @property
    def replaced(self) -> str:
        """The name of the arm in which the layer is replaced."""
        return self.arms[1].name

    @property
    def stand_in(self) -> str | None:
        """The name of the arm with a device of the same mean latency, if there is one."""
        return self.arms[2].name if len(self.arms) > 2 else None


def intervention(
    accused: Diagnosis, arm: Arm, workload: Workload, *, unavailable: frozenset[tuple[str, str]] = frozenset()
) -> Intervention | None:
    """Return the test of an accusation; None where nothing can take the accused layer's place.

    `workload` is the load under which it was made. `unavailable` are knobs with the values that this host cannot set;
    an empty value stands for all.
    """
    row = INTERVENTIONS[accused.found.cause]
    known = _known(accused, arm, workload)
    for one in row.replacements:
        replaced = _loaded(arm, one.arm, one.load, workload) if one.load else arm
        if replaced is not None and one.changes:
            replaced = _changed(replaced, one.arm, one.changes, known, unavailable)
        stand_in = _changed(arm, STAND_IN, SLOW_NULL_CO, known, unavailable) if one.stand_in else None
        if replaced is None or (one.stand_in and stand_in is None):
            continue
        share = _share(accused, one.removes)
        offered = accused.path.offered  # where the load gets its rate, its IOPS cannot rise
        metric = "iops" if offered is None or accused.path.iops < 0.98 * offered else "latency.mean"
        arms = (replace(arm, name=AS_IS), replaced, *([] if stand_in is None else [stand_in]))
        condition = condition_of(metric, share, falls=row.falls)
        return Intervention(
            arms=arms, what=one.what, metric=metric, condition=condition, share=share, falls=row.falls
        )
    return None


def knobs_of(cause: Cause) -> tuple[str, ...]:
    """Return the knobs that the replacements of a cause turn."""
    return tuple(dict.fromkeys(name for one in INTERVENTIONS[cause].replacements for name, _ in one.changes))


def _known(accused: Diagnosis, arm: Arm, workload: Workload) -> dict[str, str]:
    """Return the figures of the diagnosis that a replacement may need; an unknown one is missing."""
    found = {
        "clones": str(max(2 * clones_of(arm.load_of(workload)), arm.stack.queues)),
        "queues": str(max(2, arm.stack.device.num_queues or 0)),
        "vcpus": str(2 * (arm.stack.machine.vcpus or 1)),
    }
    layers = () if accused.layers is None else accused.layers.layers
    device = next((one.mean_ns for one in layers if one.boundary == "device"), None)
    numbers = {"device_ns": device, "depth": accused.path.depth}
    return found | {name: str(round(number)) for name, number in numbers.items() if number is not None}


def _share(accused: Diagnosis, removes: tuple[Boundary, ...]) -> float | None:
    """Return the share of an I/O's time in the layers that are removed; None where it is not known."""
    stands_in, latency = accused.path.stands_in_ns, accused.path.latency_ns
    if removes == ("device",) and stands_in and latency:
        return min(1.0, stands_in / latency)
    if not removes or accused.layers is None:
        return None
    return sum(one.share for one in accused.layers.layers if one.boundary in removes) or None


def condition_of(metric: str, share: float | None, *, falls: bool) -> Threshold:
    """Return the condition that a change as large as promised keeps, in the words of `--fail-if`.

    A layer with a share s of an I/O's time leaves 1 - s of it, and must leave no more than 1 - SIZE * s.
    """
    faster = 1 + MARGIN if share is None else 1 / (1 - SIZE * share)
    speed = 1 / faster if falls else faster
    ratio = speed if metric == "iops" else 1 / speed
    rises = ratio > 1
    return parse_condition(f"{metric} {'<' if rises else '>'} {100 * (ratio - 1):+.4f}%")


def _loaded(arm: Arm, name: str, factors: tuple[tuple[str, float], ...], workload: Workload) -> Arm | None:
    """Return the arm with its load changed by these factors; None where the load does not allow that."""
    if workload.verbatim is not None:
        return None
    options = dict(arm.options)
    for word, factor in factors:
        values = {job.get(word, "1") for job in arm.load_of(workload)}
        value = values.pop()
        if values or not value.isdecimal() or int(value) * factor % 1:
            return None
        options[word] = str(round(int(value) * factor))
    return replace(arm, name=name, options=tuple(options.items()))


def _changed(
    arm: Arm, name: str, changes: Changes, known: Mapping[str, str], unavailable: frozenset[tuple[str, str]]
) -> Arm | None:
    """Return the arm with these knobs changed; None where that is impossible, or changes nothing."""
    stack, settings = arm.stack, dict(arm.settings)
    for knob_id, written in changes:
        knob = BY_ID[knob_id]
        if written is None:
            stack = with_setting(stack, knob, setting_of(Stack(), knob))
            settings.pop(knob_id, None)
            continue
        if written.startswith("{") and written[1:-1] not in known:
            return None
        value = known[written[1:-1]] if written.startswith("{") else written
        if {(knob_id, value), (knob_id, "")} & unavailable:
            return None
        stack = with_setting(stack, knob, knob.read(value))
        settings[knob_id] = value
    if stack == arm.stack or objections(stack):
        return None
    return replace(arm, name=name, stack=stack, settings=tuple(settings.items()))
