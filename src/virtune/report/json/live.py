# SPDX-License-Identifier: Apache-2.0
"""Disks under load as JSON documents, in base units: what limits them, and one look at those of running VMs."""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from virtune.model import bottleneck
from virtune.model.counters import PressureUse, ThreadCost
from virtune.model.live import HostQueue, Operation
from virtune.model.metric import THREAD_ROLES
from virtune.model.verdict import Proof, ProofOutcome, ProofReason
from virtune.report.json.document import (
    AT_LEAST_ONE,
    IDENTITY,
    NOT_EMPTY,
    NOT_NEGATIVE,
    OR_NULL,
    POSITIVE,
    SHARE,
    At,
    ProgramVersion,
    Sentence,
    maker,
    part,
)
from virtune.report.json.parts import LayersPart


class _Found(TypedDict):
    """What limits the disk."""

    cause: Annotated[bottleneck.Cause, "The cause; `undecidable` where nothing stands out."]
    text: Annotated[str, "The cause in words."]
    evidence: Annotated[list[Sentence], "By what it was seen."]
    experiment: Annotated[str, "What to try next."]


class _Thread(TypedDict):
    """A thread that carries I/O."""

    tid: Annotated[int, "Its id.", NOT_NEGATIVE]
    name: Annotated[str, "Its name."]
    role: Annotated[str, "What it does.", {"enum": [*THREAD_ROLES, "load"]}]
    cpu_seconds: Annotated[float, "CPU time in the window, in seconds.", NOT_NEGATIVE]
    user_seconds: Annotated[float, "User time, by clock ticks of 10 ms.", NOT_NEGATIVE]
    system_seconds: Annotated[float, "Kernel time, by clock ticks of 10 ms.", NOT_NEGATIVE]
    wait_seconds: Annotated[float | None, "Time in which it could have run and had no CPU.", NOT_NEGATIVE]
    sleeps: Annotated[int | None, "How often it went to sleep; null if unknown.", NOT_NEGATIVE]
    preempted: Annotated[int | None, "How often it was taken off its CPU; null if unknown.", NOT_NEGATIVE]
    cpu_per_io_seconds: Annotated[
        float | None, "CPU time for each I/O of the disks that the thread serves; null without I/Os.", NOT_NEGATIVE
    ]


class _Bottleneck(_Found):
    """What limits the disk."""

    hypotheses: Annotated[Any, list[bottleneck.Hypothesis], "All causes that were judged, the likeliest first."]
    rounds: Annotated[int, "Rounds that say so.", AT_LEAST_ONE]
    of: Annotated[int, "Rounds in all.", AT_LEAST_ONE]


class _Guideline(TypedDict):
    """The way through the published tuning guideline; null where it does not apply."""

    id: Annotated[str, "Which guideline.", At("guideline.id")]
    source: Annotated[str, "Where it comes from.", At("guideline.source")]
    steps: Annotated[Any, list[bottleneck.Answered], "The questions that were asked.", NOT_EMPTY]
    leaf: Annotated[str, "The id of what it ends in.", At("leaf.id")]
    text: Annotated[str, "What it ends in.", At("leaf.text")]
    limit: Annotated[bool, "Whether nothing is left to gain.", At("leaf.limit")]
    ours: Annotated[bool, "Whether the study has no such leaf.", At("leaf.ours")]


class _Change(TypedDict):
    """A ratio to the stack as it is; null where the rounds allow none."""

    ratio: Annotated[float, "The estimate.", POSITIVE, At("estimate")]
    low: Annotated[float, "The lower end of its interval.", NOT_NEGATIVE]
    high: Annotated[float, "The upper end.", NOT_NEGATIVE]
    confidence: Annotated[float, "The confidence of the interval.", NOT_NEGATIVE]


class _Expected(TypedDict):
    """What the accusation promises; null where nothing was measured."""

    ratio: Annotated[float, "The ratio that the change must reach.", POSITIVE]
    falls: Annotated[bool, "Whether the load gets slower."]
    share: Annotated[float | None, "The layer's share of an I/O's time; null where the diagnosis gives no size."]


class _Proof(TypedDict):
    """The verdict of a comparison in which the accused layer was replaced; null without --prove."""

    outcome: Annotated[ProofOutcome, "What became of the accusation; `untested` where nothing was measured."]
    reason: Annotated[ProofReason, "Why, as a code."]
    why: Annotated[str, "Why, in words."]
    replaced_by: Annotated[str, "What took the place of the layer; empty where nothing was measured.", At("what")]
    arm: Annotated[str, "The arm with the replacement."]
    study: Annotated[str, "The id of the comparison."]
    metric: Annotated[str | None, "What was compared.", OR_NULL]
    change: _Change | None
    expected: _Expected | None
    stand_in_change: Annotated[_Change | None, At("stand_in")]
    rounds: Annotated[int, "Rounds of the comparison.", NOT_NEGATIVE]
    by_hand: Annotated[str, "What to try by hand, where nothing could be replaced."]
    notes: Annotated[list[Sentence], "What else matters."]


class _Disk(TypedDict):
    """A disk under a load."""

    disk: Annotated[str, "The disk: VM and target, or the arm of a study."]
    workload: Annotated[str, "The load: its name, or what was seen of it in fio's words."]
    rate: Annotated[str, "Of a live disk the rate of its I/Os, in fio's words; empty for a stored study."]
    sequential_share: Annotated[
        float | None,
        "Of a live disk the share of requests that follow those before them on it; null if unknown.",
        NOT_NEGATIVE,
        At("sequential"),
    ]
    seconds: Annotated[
        float, "How long it was looked at; of a stored study the round that the figures and threads are of.", POSITIVE
    ]
    iops: Annotated[float, "I/Os a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second.", NOT_NEGATIVE, At("bandwidth")]
    operations: Annotated[
        Any, list[Operation], "Its requests by what they ask for; of a live disk, without discards where unknown."
    ]
    failed_per_second: Annotated[
        float | None, "Requests that failed; null where they are not counted.", NOT_NEGATIVE, At("failed")
    ]
    in_flight: Annotated[
        float | None,
        "Requests under way at a time, on average; where none was completed, how many wait; null if unseen.",
        NOT_NEGATIVE,
    ]
    waiting_seconds: Annotated[
        float | None,
        "How long at least none had been completed by the end while some were in flight; null where that is unseen.",
        NOT_NEGATIVE,
    ]
    bottleneck: Annotated[_Bottleneck, At("found")]
    layers: LayersPart | None
    threads: Annotated[list[_Thread], "Threads of QEMU and of a load on this host."]
    host_queue: Annotated[
        Any,
        HostQueue | None,
        "The time of a request at the host's disk; null where the kernel does not tell.",
        At("queue"),
    ]
    worst_second: Annotated[
        Any,
        bottleneck.WorstSecond | None,
        "The second in which its requests took longest; null where it was not looked at second by second.",
        At("worst"),
    ]
    exits_per_io: Annotated[float | None, "How often KVM left the guest for each I/O; null if unknown.", NOT_NEGATIVE]
    guideline: _Guideline | None
    no_guideline: Annotated[str, "Why the guideline does not apply; empty where it does, or QEMU serves no guest."]
    emulated: Annotated[bool, "Whether the guest runs without KVM (TCG), so that its figures are the emulator's."]
    missing: Annotated[list[Sentence], "What could not be seen, and what it would add."]
    proof: _Proof | None


class DiagnoseDocument(TypedDict):
    """What limits disks under their load."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/diagnose/2"}]
    virtune: ProgramVersion
    disks: Annotated[list[_Disk], "The disks."]


class _Way(TypedDict):
    """Reads, or writes."""

    iops: Annotated[float, "I/Os a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second.", NOT_NEGATIVE]


class _Limit(TypedDict):
    """A limit that is set on a disk."""

    unit: Annotated[str, "What it limits: `iops`, `read.bps`; that of a control group begins with `control group, `."]
    allowed: Annotated[float, "What it allows in a second.", NOT_NEGATIVE]
    done: Annotated[float, "What was done in a second.", NOT_NEGATIVE]


class _TopDisk(TypedDict):
    """A disk of a VM."""

    disk: Annotated[str, "Its target in the VM, or the id of its device."]
    seconds: Annotated[float, "The time between the two counts of it.", POSITIVE, At("rates.seconds")]
    iops: Annotated[float, "Requests a second: reads, writes, flushes and discards.", NOT_NEGATIVE, At("path.iops")]
    bandwidth_bps: Annotated[float, "Bytes a second, read and written.", NOT_NEGATIVE, At("path.bandwidth")]
    read: _Way
    write: _Way
    flushes_per_second: Annotated[float, "Flushes a second."]
    operations: Annotated[
        Any,
        list[Operation],
        "Its requests by what they ask for; without discards where unknown.",
        At("path.operations"),
    ]
    failed_per_second: Annotated[float | None, "Requests that failed; null where they are not counted.", NOT_NEGATIVE]
    latency_ns: Annotated[
        float | None, "Mean time of a request, from where it is first seen; null without requests.", NOT_NEGATIVE
    ]
    in_flight: Annotated[
        float,
        "Requests under way at a time, on average (Little's law); where none was completed, how many wait.",
        NOT_NEGATIVE,
    ]
    waiting_seconds: Annotated[
        float | None,
        "How long at least none had been completed by the end while some were in flight; null where that is unseen.",
        NOT_NEGATIVE,
    ]
    cpu_per_io_ns: Annotated[
        float | None,
        "CPU time of QEMU's threads for each I/O, without vCPUs; null where it is unknown.",
        NOT_NEGATIVE,
    ]
    layers: Annotated[LayersPart | None, At("path.layers")]
    limits: Annotated[list[_Limit], "The limits that are set on it."]
    bottleneck: Annotated[_Found, At("found")]


class _TopThread(TypedDict):
    """A thread of QEMU."""

    tid: Annotated[int, "Its id.", NOT_NEGATIVE]
    name: Annotated[str, "Its name."]
    role: Annotated[str, "What it does.", {"enum": list(THREAD_ROLES)}]
    cpu_share: Annotated[float, "How much of a CPU it used, 0 to 1.", NOT_NEGATIVE, At("busy")]
    user_share: Annotated[float, "User time as a share of a CPU, by clock ticks of 10 ms.", NOT_NEGATIVE]
    system_share: Annotated[float, "Kernel time as a share of a CPU, by clock ticks of 10 ms.", NOT_NEGATIVE]
    wait_share: Annotated[float | None, "Share of the time in which it could have run and had no CPU.", NOT_NEGATIVE]


class _Vm(TypedDict):
    """A running VM."""

    vm: Annotated[str, "Its name."]
    emulated: Annotated[bool, "Whether it runs without KVM (TCG), so that its figures are the emulator's."]
    disks: Annotated[list[_TopDisk], "Its disks."]
    threads: Annotated[list[_TopThread], "The threads of its QEMU; none where they are not visible."]


class _Device(TypedDict):
    """A block device below the disks."""

    name: Annotated[str, "Its name in /proc/diskstats."]
    read: _Way
    write: _Way
    latency_ns: Annotated[float | None, "Mean time of a request; null without requests.", NOT_NEGATIVE]
    in_flight: Annotated[float, "Requests under way at a time, on average.", NOT_NEGATIVE, At("queue_depth_mean")]
    busy_percent: Annotated[float, "Time with a request under way.", NOT_NEGATIVE]
    disks: Annotated[list[str], "The disks of VMs that lie on it, as `VM:DISK`."]
    others_share: Annotated[
        float | None, "The least share of its bytes that others than these VMs caused; null if unknown.", SHARE
    ]


class _Host(TypedDict):
    """The host."""

    busy_percent: Annotated[float | None, "Of all CPUs together, busy.", NOT_NEGATIVE]
    user_percent: Annotated[float | None, "In user programs, guests included.", NOT_NEGATIVE]
    system_percent: Annotated[float | None, "In the kernel, interrupts included.", NOT_NEGATIVE]
    iowait_percent: Annotated[float | None, "Idle with I/O outstanding.", NOT_NEGATIVE]
    steal_percent: Annotated[float | None, "CPU steal: taken by other VMs on the physical host.", NOT_NEGATIVE]
    foreign_cpus: Annotated[float | None, "CPUs used by others than the QEMUs of these VMs.", NOT_NEGATIVE]
    load_1min: Annotated[float | None, "The load average over a minute.", NOT_NEGATIVE]
    pressure: Annotated[Any, list[PressureUse], "Pressure by resource."]
    devices: Annotated[list[_Device], "Block devices below the disks."]


class TopDocument(TypedDict):
    """The disks of this host's running VMs over one interval."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/top/2"}]
    virtune: ProgramVersion
    time: Annotated[float, "When the interval ended, in seconds since 1970.", At("wall_seconds")]
    seconds: Annotated[float, "How long it was.", POSITIVE]
    vms: Annotated[list[_Vm], "The running VMs."]
    host: _Host
    missing: Annotated[list[Sentence], "What could not be seen, and what it would add."]


class _Look(TypedDict):
    """A disk between two looks."""

    time: Annotated[float, "When the later look was, in seconds since 1970.", At("wall_seconds")]
    seconds: Annotated[float, "The time between the two.", NOT_NEGATIVE]
    vm: Annotated[str, "Its VM."]
    disk: Annotated[str, "Its target in the VM, or the id of its device."]
    iops: Annotated[float, "Requests a second.", NOT_NEGATIVE]
    bandwidth_bps: Annotated[float, "Bytes a second, read and written.", NOT_NEGATIVE, At("bandwidth")]
    latency_ns: Annotated[float | None, "Mean time of a request; null without requests.", NOT_NEGATIVE]
    in_flight: Annotated[
        float, "Requests under way at a time; where none was completed, how many wait.", NOT_NEGATIVE
    ]
    waiting_seconds: Annotated[
        float | None, "How long requests had waited and none was completed; null where that is unseen.", NOT_NEGATIVE
    ]
    stalled_share: Annotated[float, "Share of the time with requests and none completed.", SHARE, At("stalled")]
    cause: Annotated[bottleneck.Cause, "What limits it."]
    layer: Annotated[str, "The layer with most of a request's time; empty if unknown."]
    layer_share: Annotated[float, "That layer's share.", SHARE]
    evidence: Annotated[list[Sentence], "By what the cause was seen."]


class WatchEventDocument(TypedDict):
    """A rule that began or ceased to hold for a disk: a line of `virtune watch --json`, and what a webhook gets."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/watch-event/1"}]
    virtune: ProgramVersion
    holds: Annotated[bool, "Whether it holds from now on, or no longer."]
    gone: Annotated[bool, "Whether it ended since the disk or its VM is no longer there."]
    rule: Annotated[str, "The rule.", At("rule.text")]
    metric: Annotated[str, "Its metric.", At("rule.metric")]
    value: Annotated[float | None, "The metric now, in its base unit; null where it is not known.", NOT_NEGATIVE]
    held_seconds: Annotated[float, "For how long it has held.", NOT_NEGATIVE, At("seconds")]
    look: _Look


class _Window(TypedDict):
    """A time in which a disk was slow."""

    begin: Annotated[float, "When it began, in seconds since 1970.", At("begin_seconds")]
    end: Annotated[float, "When it ended.", At("end_seconds")]
    latency_ns: Annotated[float | None, "Mean time of its requests; null where none was completed.", NOT_NEGATIVE]
    usual_ns: Annotated[float, "The median of the disk over all looks.", NOT_NEGATIVE]
    worst: Annotated[_Look, "Its worst look."]


class WatchDocument(TypedDict):
    """What was kept of a time: when disks were slow, and why."""

    schema: Annotated[str, IDENTITY, {"const": "virtune/watch/1"}]
    virtune: ProgramVersion
    begin: Annotated[float, "When the time begins, in seconds since 1970."]
    end: Annotated[float, "When it ends."]
    looks: Annotated[int, "Looks at disks that were kept of it.", NOT_NEGATIVE]
    torn: Annotated[int, "Records that a crash or a full disk tore.", NOT_NEGATIVE]
    windows: Annotated[list[_Window], "Of each VM when it was slowest, the worst first."]
    disks: Annotated[list[_Look], "With --at the disks as they were then."]


def event_document(found: bottleneck.RuleEvent) -> WatchEventDocument:
    return part(WatchEventDocument, found)


def watch_document(
    between: tuple[float, float],
    looks: int,
    torn: int,
    windows: Sequence[bottleneck.SlowWindow],
    disks: Sequence[bottleneck.DiskLook],
) -> WatchDocument:
    begin, end = between
    return part(WatchDocument, begin=begin, end=end, looks=looks, torn=torn, windows=windows, disks=disks)


def diagnose_document(found: Sequence[bottleneck.Diagnosis]) -> DiagnoseDocument:
    return part(DiagnoseDocument, disks=found)


@maker
def _disk(one: bottleneck.Diagnosis) -> _Disk:
    path = one.path
    return part(
        _Disk,
        one,
        path,
        seconds=one.seconds,
        in_flight=path.held if path.layers is None else path.layers.in_flight,
        waiting_seconds=None if path.held is None else path.held_seconds,
        layers=one.layers,
        threads=[_thread(thread, path.iops_of(thread)) for thread in path.threads],
    )


@maker
def _proof(found: Proof) -> _Proof:
    return part(_Proof, found, expected=None if found.least is None else part(_Expected, found, ratio=found.least))


def _thread(one: ThreadCost, iops: float) -> _Thread:
    return part(_Thread, one, cpu_per_io_seconds=one.cpu_seconds / one.seconds / iops if iops else None)


def top_document(frame: bottleneck.TopFrame) -> TopDocument:
    return part(TopDocument, frame, host=_host(frame))


@maker
def _top_disk(one: bottleneck.DiskFrame) -> _TopDisk:
    rates, path = one.rates, one.path
    return part(
        _TopDisk,
        one,
        read=_way(rates.reads, rates.read_bytes, rates.seconds),
        write=_way(rates.writes, rates.written_bytes, rates.seconds),
        flushes_per_second=rates.flushes / rates.seconds,
        failed_per_second=None if rates.failed is None else max(0, rates.failed) / rates.seconds,
        waiting_seconds=None if path.held is None else path.held_seconds,
        limits=[part(_Limit, unit=unit, allowed=most, done=done) for unit, (most, done) in path.limits.items()],
    )


def _way(requests: int, size_bytes: int, seconds: float) -> _Way:
    return part(_Way, iops=requests / seconds, bandwidth_bps=size_bytes / seconds)


@maker
def _top_thread(one: bottleneck.ThreadFrame) -> _TopThread:
    cost = one.cost
    return part(
        _TopThread,
        cost,
        user_share=cost.user_seconds / cost.seconds,
        system_share=cost.system_seconds / cost.seconds,
        wait_share=None if cost.wait_seconds is None else cost.stalled,
    )


def _host(frame: bottleneck.TopFrame) -> _Host:
    use, cpu = frame.host, frame.host.cpu
    return part(
        _Host,
        use,
        busy_percent=None if cpu is None else cpu.busy_percent,
        user_percent=None if cpu is None else cpu.user_percent,
        system_percent=None if cpu is None else cpu.system_percent,
        iowait_percent=None if cpu is None else cpu.iowait_percent,
        steal_percent=None if cpu is None else cpu.steal_percent,
        devices=[_device(one) for one in frame.devices],
    )


def _device(one: bottleneck.DeviceFrame) -> _Device:
    use, mean = one.use, one.use.latency_us_mean
    return part(
        _Device,
        use,
        read=_way(use.reads, use.read_bytes, one.seconds),
        write=_way(use.writes, use.written_bytes, one.seconds),
        latency_ns=None if mean is None else mean * 1e3,
        disks=[disk.name for disk in one.disks],
        others_share=one.others_share,
    )
