# SPDX-License-Identifier: Apache-2.0
"""A Remark: an interpretation of the figures in words, with the figures it rests on. Gates: disturbances other than
the disk itself, with the limits above which a trial is warned about or invalid. And every kind of remark that is
no gate's: its id, how severe it is, what it means, and what to do about it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Literal


class Weight(StrEnum):
    """How much a remark matters: `invalid` forbids conclusions, `warning` limits them, `note` explains."""

    NOTE = "note"
    WARNING = "warning"
    INVALID = "invalid"

    @property
    def rank(self) -> int:
        """Its rank, the most severe first."""
        return -list(Weight).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing a good reader notices. `id` is stable (`page-cache`, `spread`, `depth`, `little`, ...)."""

    id: str
    weight: Weight
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What virtune judges by: a kind of remark, a gate of trials, a rule of the audit. No two have one id.

    `why` says when it applies and why that matters, `source` where that is known from, if it does not follow from
    `why`.
    """

    id: str
    why: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemarkKind(Criterion):
    """A kind of remark: how severe it may be, and the advice that goes with it where the case gives no other."""

    weights: tuple[Weight, ...]
    advice: str = ""

    def remark(self, *, text: str, advice: str | None = None, weight: Weight | None = None) -> Remark:
        """Return a remark of this kind; `weight` is needed where it has several. Raises ValueError for others."""
        if weight is None:
            (weight,) = self.weights
        elif weight not in self.weights:
            raise ValueError(f"{self.id} is never {weight}")
        return Remark(id=self.id, weight=weight, text=text, advice=self.advice if advice is None else advice)


PERIODIC_LEVEL = 0.01
"""The false-alarm rate, by shuffles, up to which a period is reported."""

PERIODIC_CHANCE = 0.1
"""The most of such remarks among trials without a period: 1 % where I/Os are independent of one another, 4 to 10 %
where neighbours are alike (simulated: AR(1) with 0.3 to 0.9, and noise)."""

KVM_WITHOUT_HARDWARE = "KVM without hardware virtualization"
"""The name, in results, of the kind of KVM that runs a guest's programs on the CPU and emulates its kernel."""


Unit = Literal["share", "count", "1/s", "s", "C"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(RemarkKind):
    """One kind of disturbance that is checked in every trial.

    A reading above `flag` is a warning, one above `invalid` makes the trial invalid; None where there is no such
    limit. `unit`: `share` (0..1), `count`, `1/s`, `s`, or `C` (degrees from the drive's own limit, negative below).
    `passing`: the cause is temporary, so another attempt may be free of it.
    """

    label: str
    unit: Unit
    flag: float | None
    invalid: float | None
    passing: bool = True
    weights: tuple[Weight, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the weights from the limits."""
        limits = ((Weight.INVALID, self.invalid), (Weight.WARNING, self.flag))
        object.__setattr__(self, "weights", tuple(weight for weight, limit in limits if limit is not None))


def _gate(
    name: str, label: str, unit: Unit, flag: float | None, invalid: float | None, *,
    source: str, why: str, advice: str, passing: bool = True,
) -> Gate:  # fmt: skip
    return Gate(
        id=name, label=label, unit=unit, flag=flag, invalid=invalid,
        source=source, why=why, advice=advice, passing=passing,
    )  # fmt: skip


GATES: tuple[Gate, ...] = (
    _gate(
        "generator", "load generator overhead", "share", 0.03, 0.10,
        source="fio: operations a second times mean latency (Little's law) against iodepth x numjobs",
        why="closed loops on real disks come out within 2 %; what is missing passed in the load generator, which was"
        " then the limit, and not the disk",
        passing=False,
        advice="more jobs, or more I/Os per call (iodepth_batch), until the disk is the limit",
    ),
    _gate(
        "saturated-cpu", "load generator's CPU", "share", 0.90, None,
        source="fio: usr + sys of its jobs",
        why="a job that never waits for the disk may be the limit; it may also just keep up, so Little's law decides",
        passing=False,
        advice="spread the load over more jobs, and see whether IOPS rise",
    ),
    _gate(
        "rate-unmet", "offered load not done", "share", 0.01, None,
        source="fio: operations done against rate_iops",
        why="a disk that is offered more than it can do is saturated: its latencies are those of a queue that only"
        " grows, so no percentile of that trial is compared",
        passing=False,
        advice="compare latencies at an offered load that every arm can carry",
    ),
    _gate(
        "steal", "CPU steal", "share", 0.01, 0.05,
        source="/proc/stat: steal of all CPUs",
        why="the physical host ran other VMs while this one was runnable",
        advice="measure when the others are idle, or on a dedicated host",
    ),
    _gate(
        "cpu-wait", "CPU contention", "share", 0.05, 0.25,
        source="/proc/PID/task/*/schedstat of rig and load: time in the run queue against time wanted, times the part"
        " of the busy CPU time that was not theirs (/proc/stat)",
        why="measured on two CPUs: at most 3 % alone, even where 64 worker threads queue behind one another and PSI"
        " says 65 %; 22 to 37 % beside a neighbour who burns one CPU",
        advice="stop other work on this host, or pin QEMU and the load to CPUs of their own",
    ),
    _gate(
        "cpu-throttled", "CPU throttling by a control group", "share", 0.0, 0.01,
        source="cpu.stat of our control groups: throttled time",
        why="while a group is throttled none of its threads run, so every I/O in flight waits for the next period",
        advice="raise its cpu.max (`virtune probe` shows it), or load less",
    ),
    _gate(
        "cpu-heat", "thermal throttling", "count", None, 0.0,
        source="thermal_throttle counters of the CPUs",
        why="a CPU that slowed down by itself is another machine than the one of the trials before",
        advice="cool the machine, or pause between trials",
    ),
    _gate(
        "frequency", "CPU frequency drop", "share", 0.05, None,
        source="scaling_cur_freq: the fastest CPU at the end of the measured time against its begin",
        why="the governor counts idle time as well, so that a fall is a hint, and no proof, of a slower machine",
        advice="governor `performance`, turbo off",
    ),
    _gate(
        "drive-heat", "drive temperature", "C", -5.0, 0.0,
        source="hwmon of the drive: temperature against its own limit (temp1_max)",
        why="drives slow down by themselves at that limit",
        advice="cool it, or pause between trials",
    ),
    _gate(
        "foreign-io", "foreign I/O", "share", 0.02, 0.10,
        source="/proc/diskstats minus /proc/PID/io of rig and load, where the stack is direct",
        why="the filesystem's own metadata and journal stay below 2 %; a tenth of the device's bytes is a neighbour",
        advice="find out which process uses the device (iotop, pidstat -d)",
    ),
    _gate(
        "page-cache", "page cache hits despite O_DIRECT", "share", 0.02, 0.10,
        source="bytes that fio read minus those of /proc/diskstats, where the image is in the page cache (cachestat)",
        why="a direct stack reads everything from the device; 2 % is what the edges of the measured time can"
        " hide. Of a single result three signs say it: the job is buffered (no direct=1, or mmap), completions"
        " are quicker than any device's, or the device saw far fewer requests than fio did. The last two weigh"
        " more, since a buffered run over a cold cache still waits for the disk. Where the device moved nearly"
        " all of the bytes, in fewer and larger requests, the latencies are the page cache's and the bandwidth"
        " is the device's",
        passing=False,
        advice="this does not measure the disk: find who else opens the image without O_DIRECT",
    ),
    _gate(
        "io-limit", "I/O limits of a control group", "count", 0.0, None,
        source="io.max, or blkio.throttle.*, of our control groups",
        why="a limit holds for every arm alike, but it may be all that is measured",
        passing=False,
        advice="remove io.max, or keep in mind that it limits every number",
    ),
    _gate(
        "swap", "swapping", "1/s", 0.0, 256.0,
        source="/proc/vmstat: pswpin + pswpout, pages a second",
        why="256 pages a second are 1 MiB/s: from there on swap is a load of its own",
        advice="free memory before measuring",
    ),
    _gate(
        "major-faults", "major page faults", "count", 10.0, None,
        source="/proc/PID/stat of rig and load: majflt, where no job is mmap",
        why="each stops a thread of the I/O path for a read of its own; a few are a program's last pages",
        advice="free memory before measuring",
    ),
    _gate(
        "clock-step", "clock step", "s", None, 0.1,
        source="wall clock against monotonic clock, over the samples of the measured time",
        why="somebody set the clock, or the machine stood still; a clock that is disciplined moves 0.5 ms a second at"
        " most, and a sample may be held up between its two readings",
        advice="find what sets the clock, or whether the machine was suspended",
    ),
    _gate(
        "clock-source", "clock source change", "count", None, 0.0,
        source="current_clocksource at the begin and the end of the measured time",
        why="the kernel gave up on its clock: times before and after are not the same second",
        advice="find out why the kernel gave up on it (`dmesg`)",
    ),
)  # fmt: skip
"""Every gate, in the order in which it is said: id, label, unit, the limits of a warning and of an invalid trial.
Where `why` gives no measurement for a limit, it comes from experience with such counters.
"""

GATE_BY_ID: dict[str, Gate] = {gate.id: gate for gate in GATES}


def label_of(cause: str) -> str:
    """Return the words for a cause that makes a trial invalid, by its gate or the id of its remark."""
    if cause == "little":
        return "IOPS times latency is not the number of I/Os in flight"
    gate = GATE_BY_ID.get(cause)
    return cause.replace("-", " ") if gate is None else gate.label


_invalid = partial(RemarkKind, weights=(Weight.INVALID,))
_warning = partial(RemarkKind, weights=(Weight.WARNING,))
_note = partial(RemarkKind, weights=(Weight.NOTE,))

# of a fio result: asked of the whole result

UNSERVED = _invalid(
    id="unserved",
    why="the numbers are not those of a disk although O_DIRECT was asked for: completions are quicker than"
    " any device's, or the device saw far fewer reads than fio did. Blocks that were never written are"
    " answered without the device",
    advice="write the whole file or device first (fio --rw=write --bs=1M --direct=1), then measure",
)
CACHED_SYNC = _warning(
    id="cached-sync",
    why="buffered writes with fsync. Their own latency is the page cache's; the disk is in the sync",
    advice="compare sync latencies, not write latencies; or use direct=1 to see the writes themselves",
)
DEVICE_BUSY = _note(
    id="device-busy",
    why='util near 100 % means "never idle", which is not "at its limit" on a device with many queues; and util below'
    " 100 % is no headroom: it counts time with and without a request, and not how many there were",
)
DEVICE_SHARE = _note(
    id="device-share",
    why="the device's own mean time against fio's, when both counted the same requests. The rest is above the"
    ' device as this kernel sees it: file system, queueing before the driver, wake-ups. In a guest "the'
    " device\" is the virtual disk, so the hypervisor is inside the device's share",
)
NOT_ADDED = _note(
    id="not-added", why="jobs that ran one after another have no sum; fio itself never adds reporting groups up"
)
OF_RESULTS = (UNSERVED, CACHED_SYNC, DEVICE_BUSY, DEVICE_SHARE, NOT_ADDED)

# of a fio result: asked of every job group

NO_IO = _invalid(
    id="no-io",
    why="the job ended without a single I/O",
    advice="fio's messages say why (a missing file, no permission, nothing to do)",
)
ERRORS = _invalid(
    id="errors",
    why="I/Os failed, so the run is not the requested one",
    advice="find the cause in fio's messages and in the kernel log before measuring again",
)
CONTRADICTION = RemarkKind(
    id="contradiction",
    weights=(Weight.INVALID, Weight.WARNING),
    why="figures of one result that cannot all be right: a mean latency outside of its extremes or of what its"
    " percentiles allow, percentiles that fall, IOPS that do not make the number of I/Os, bytes that are not I/Os"
    " of the block size, or directions, shares, counts and depths that the options beside them cannot have made. A"
    " trial whose options contradict its figures ends the study, one whose figures contradict each other is invalid;"
    " what is only read is shown as it is",
    advice="trust none of the figures named until a run repeats them; fio's bug list and its version help",
)
SHORT_IOS = _warning(
    id="short-ios",
    why="transfers that came back incomplete or were dropped",
    advice="is the file or device as large as the job's size and offset say?",
)
CUT_SHORT = _warning(
    id="cut-short",
    why="the run ended before all requested I/Os were done",
    advice="leave out runtime=, or let size= hold as many blocks",
)
DEPTH = _warning(
    id="depth",
    why="the requested depth was not what ran: a synchronous engine has one I/O in flight a job, whatever"
    " iodepth says; fio's own count (IO depths) shows that the depth was seldom reached; or libaio without"
    " O_DIRECT did the I/O inside the submission call, so that the depth was about 1",
)
LITTLE = RemarkKind(
    id="little",
    weights=(Weight.INVALID, Weight.WARNING),
    why="operations a second times latency must give the number of I/Os in flight (Little's law). If it is less than"
    " requested, the jobs spent time outside their I/Os, so the load generator was the limit. More than requested is"
    " impossible: the figures do not belong together. A load with a rate or a think time is idle on purpose and not"
    " judged",
    advice="more jobs, or more I/Os per call (iodepth_batch), until the disk is the limit",
)
SPREAD = _warning(
    id="spread",
    why="IOPS that vary within one run, and the smallest difference that two such runs can show. Two runs of"
    " n samples each differ by chance by up to 1.96 x sqrt(2/n) x the relative spread, 19 times out of 20,"
    " if samples were independent. Neighbouring samples are not, so the real limit is larger. fio adds up"
    " the means of jobs that it reports together and pools their deviations, which is undone here",
    advice="compare in interleaved rounds, as `virtune compare` does, and let the rounds decide",
)
SHORT_RUN = _warning(
    id="short-run",
    why="too little time or too few I/Os to see what a disk does in the long run",
    advice="time_based=1 with a runtime of 30 s, and several rounds of it",
)
LATENCY_PARTS = _note(
    id="latency-parts",
    why="how the latency divides into submission (slat) and completion (clat). slat is the time of the"
    " submitting call. Growing slat means that submission blocks: buffered I/O, a full queue, no free"
    " request. clat is the time from submission to completion: everything below the system call",
)
JITTER = _note(
    id="jitter", why="the median is the typical latency; p95 and p99 relative to it show how much latency varies"
)
TAIL_UNRESOLVED = _note(id="tail-unresolved", why="a high percentile that rests on fewer than 100 I/Os beyond it")
SYNC_SHARE = _note(
    id="sync-share", why="how much of the jobs' I/O time is fsync, whose latency is separate from that of the writes"
)
KERNEL_CPU = _note(
    id="kernel-cpu",
    why="sys above usr is the normal state of an I/O load, and more of it may come with less latency. sys is"
    " the kernel's part: system calls, copying, block layer, interrupts. It is charged by the second, so a"
    " stack that does more I/Os a second may show more sys while every single I/O got cheaper or quicker:"
    " compare CPU per I/O",
)
MISNAMED = _warning(id="misnamed", why="a job that is called after reads and only writes, or the other way round")
OF_LOADS = (
    NO_IO, ERRORS, CONTRADICTION, SHORT_IOS, CUT_SHORT, DEPTH, LITTLE, SPREAD, SHORT_RUN,
    LATENCY_PARTS, JITTER, TAIL_UNRESOLVED, SYNC_SHARE, KERNEL_CPU, MISNAMED,
)  # fmt: skip

# of fio results beside one another

ONE_RUN_EACH = _warning(
    id="one-run-each",
    why="the difference of two single runs, compared with their random variation. The spread of samples"
    " within a run is a lower bound for that variation (neighbouring samples are not independent, and"
    " changes from run to run are not included). So a difference within it is not significant, and one"
    " beyond it is still not proven. Nothing is said if one of the two did no I/O",
    advice="`virtune compare` runs both in turn, round by round, until the difference is decided",
)
COPY = RemarkKind(
    id="copy",
    weights=(Weight.INVALID, Weight.WARNING),
    why="two results have the same figures to the last digit, which two runs never have: a copy is no second run."
    " Neither trial of a study counts then; imported results are only warned of",
    advice="measure again, or leave one of them out",
)
OF_SEVERAL_RESULTS = (ONE_RUN_EACH, COPY)

# of a trial

SIMULATED = _warning(
    id="simulated",
    why="a formula and a seed gave the figures, and no disk was measured",
    advice="any other rig measures",
)
START_SKEW = _warning(
    id="start-skew",
    why="the guests began further apart than a tenth of the default ramp, so one of them loaded the disk alone",
    advice="fewer guests than CPUs, or a ramp that is longer than that",
)
ONE_DISK = _warning(
    id="one-disk",
    why="the images that guests.spread keeps apart lie on the same disk",
    advice="name a directory of another disk: `df` and `lsblk` show which is on which",
)
EMULATED = _warning(
    id="functional-only",
    why="the guest ran under software emulation (TCG), so its figures describe the emulator and are not comparable",
    advice="measure where KVM boots a guest (`virtune appliance build` tries again), or without one: rig=vhost-user",
)
WITHOUT_HARDWARE = _warning(
    id="kvm-without-hardware",
    why="the guest ran on a KVM that runs its programs on the CPU and emulates its kernel: exits to QEMU are"
    " slow, and latencies at depth 1 are those of this KVM",
    advice="compare settings on it, and take absolute figures on a host whose CPUs have VMX or SVM",
)
NO_DEVICE = _warning(
    id="no-device",
    why="no block device is seen behind the image (memory, an overlay, a network?), so it cannot be told"
    " whether a disk served it or only a page cache",
    advice="`--scratch DIR` on the disk that is meant; `virtune probe --scratch DIR` says what DIR lies on",
)
UNLIKE_DISKS = _warning(
    id="unlike-disks",
    why="of several disks that are loaded alike one does at least twice as much as another; the figures are"
    " those of all disks together",
)
FUSE_WRITES = _warning(
    id="fuse-writes",
    why="writes beside other requests in flight through a FUSE export, whose data nobody checked. While such an"
    " export waits for a write it reads the next request into the same buffer, so data land in the place of others;"
    " one request at a time is safe",
    advice="`--check-data` finds out whether this QEMU keeps the data; disk.export=nbd and vhost-user-blk do",
    source="`--check-data` on the exports of QEMU 7.2.22 and 10.0.2: data lost in each of 3 runs on either with 16 in"
    " flight, with 2 of one job, and with 2 jobs of one each; none lost with one in flight, nor over NBD or"
    " vhost-user-blk",
)
UNVERIFIED = _invalid(
    id="unverified",
    why="a requested setting could be verified on this rig, and nothing showed that it was what ran",
    advice="a longer --seconds, or a load that keeps the disk busier, gives more to see",
)
CPU_PRESSURE = _warning(
    id="cpu-pressure",
    why="QEMU's and the load's own threads compete for the CPUs (PSI, and the gate `cpu-wait` is silent): the"
    " trial is valid, and the CPU is part of the limit",
    advice="fewer jobs, or more CPUs; compare CPU per I/O as well as IOPS",
)
PERIODIC = _note(
    id="periodic",
    why="the latencies of single I/Os have a period that shuffles of them reach in at most 1 % of cases",
    advice="a timer, a poll or a flush of that period may stall them; the report draws each I/O",
)
OF_TRIALS = (
    UNVERIFIED, SIMULATED, EMULATED, WITHOUT_HARDWARE, START_SKEW, ONE_DISK, UNLIKE_DISKS, NO_DEVICE,
    FUSE_WRITES, CPU_PRESSURE, PERIODIC,
)  # fmt: skip

# of a host

_ELSEWHERE = "`--scratch DIR` names another directory"

TOOL = _warning(id="tool", why="a program that studies need is not installed")
FIO_NBD = _warning(
    id="fio-nbd", why="this fio has no nbd engine, so NBD exports cannot be loaded", advice="build it with libnbd"
)
IO_URING = _warning(
    id="io_uring",
    why="io_uring cannot be used: the kernel is built without it, it is switched off (kernel.io_uring_disabled), or a"
    " seccomp filter or the kernel forbids it",
    advice="aio=native and aio=threads remain",
)
AIO = _warning(
    id="aio",
    why="nearly all kernel AIO slots are taken (fs.aio-nr of fs.aio-max-nr); aio=native takes 1024 for each IOThread,"
    " and beyond the limit QEMU fails or falls back to threads",
    advice="`sysctl fs.aio-max-nr=1048576`",
)
CLOCK = _warning(
    id="clock",
    why="the clock source is a slow one (hpet, acpi_pm, jiffies): every I/O reads the time",
    advice="find out why the kernel gave up on tsc (`dmesg`)",
)
KSM = _note(id="ksm", why="KSM merges memory pages in the background, at the cost of CPU time")
KVM = _warning(
    id="kvm",
    why="/dev/kvm is missing, not permitted, or makes no VM: guests would be emulated, and their numbers"
    " would describe the emulator",
)
GOVERNOR = _warning(
    id="governor",
    why="with another CPU frequency governor than `performance` clocks rise late, so rounds vary more",
    advice="`cpupower frequency-set -g performance`",
)
TURBO = _note(
    id="turbo",
    why="with turbo CPU speed depends on temperature and on the other cores",
    advice="switch it off while comparing (intel_pstate/no_turbo, or cpufreq/boost), not for good",
)
IDLE_STATES = _note(
    id="idle",
    why="CPUs may sleep so deep that they need over 100 us to wake, as long as a fast disk takes to answer",
    advice="`cpupower idle-set -D 20` while measuring, if latency at low depth is the question",
)
VIRTUAL = _warning(
    id="virtual",
    why="this host is itself a virtual machine: its disk and CPUs are shared with others",
    advice="trust comparisons in interleaved rounds, not absolute numbers",
)
CPU_LIMIT = _warning(id="cpu-limit", why="a control group limits our CPUs, and throttles what needs more")
BUSY = RemarkKind(
    id="busy",
    weights=(Weight.WARNING, Weight.NOTE),
    why="tasks waited for CPU, memory or I/O in the last ten seconds: a note above 5 % of the time, a warning"
    " above 25 %",
)
LOAD = _note(id="load", why="the load of the last minute was above the number of CPUs")
SWAP_USED = _note(id="swap-used", why="memory is swapped out; a guest among it would stall")
SCRATCH_MEMORY = _warning(
    id="scratch-memory", why="the scratch directory is in memory: no disk would be measured there", advice=_ELSEWHERE
)
DIRECT = _warning(
    id="direct",
    why="O_DIRECT does not work in the scratch directory: cache=none cannot be measured there",
    advice=_ELSEWHERE,
)
SPACE = _note(id="space", why="less than 4 GiB are free in the scratch directory", advice=_ELSEWHERE)
IOSTATS = _warning(
    id="iostats", why="a device does not count its I/O (iostats is 0), so no time can be attributed to it"
)
ROTATIONAL = _note(
    id="rotational", why="a virtio disk reports itself as rotational: virtio does not show the real medium"
)
OF_HOSTS = (
    TOOL, FIO_NBD, IO_URING, AIO, CLOCK, KSM, KVM, GOVERNOR, TURBO, IDLE_STATES, VIRTUAL, CPU_LIMIT, BUSY, LOAD,
    SWAP_USED, SCRATCH_MEMORY, DIRECT, SPACE, IOSTATS, ROTATIONAL,
)  # fmt: skip

REMARK_KINDS: tuple[RemarkKind, ...] = (*OF_RESULTS, *OF_LOADS, *OF_SEVERAL_RESULTS, *OF_TRIALS, *GATES, *OF_HOSTS)
"""All of them, with the gates. An id stands here once."""
