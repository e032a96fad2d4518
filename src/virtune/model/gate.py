# SPDX-License-Identifier: Apache-2.0
"""Gates: disturbances other than the disk itself, with the limits above which a trial is warned about or invalid."""

from dataclasses import dataclass, field
from typing import Literal

from virtune.model.remark import RemarkKind, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(RemarkKind):
    """One kind of disturbance that is checked in every trial.

    A reading above `flag` is a warning, one above `invalid` makes the trial invalid; None where there is no such
    limit. `unit`: `share` (0..1), `count`, `1/s`, `s`, or `C` (degrees from the drive's own limit, negative below).
    `passing`: the cause is temporary, so another attempt may be free of it.
    """

    label: str
    unit: Literal["share", "count", "1/s", "s", "C"]
    flag: float | None
    invalid: float | None
    passing: bool = True
    weights: tuple[Weight, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the weights from the limits."""
        limits = ((Weight.INVALID, self.invalid), (Weight.WARNING, self.flag))
        object.__setattr__(self, "weights", tuple(weight for weight, limit in limits if limit is not None))


GATES: tuple[Gate, ...] = (
    Gate(
        id="generator",
        label="load generator overhead",
        unit="share",
        flag=0.03,
        invalid=0.10,
        source="fio: operations a second times mean latency (Little's law) against iodepth x numjobs",
        why="closed loops on real disks come out within 2 %; what is missing passed in the load generator, which was"
        " then the limit, and not the disk",
        passing=False,
        advice="more jobs, or more I/Os per call (iodepth_batch), until the disk is the limit",
    ),
    Gate(
        id="saturated-cpu",
        label="load generator's CPU",
        unit="share",
        flag=0.90,
        invalid=None,
        source="fio: usr + sys of its jobs",
        why="a job that never waits for the disk may be the limit; it may also just keep up, so Little's law decides",
        passing=False,
        advice="spread the load over more jobs, and see whether IOPS rise",
    ),
    Gate(
        id="rate-unmet",
        label="offered load not done",
        unit="share",
        flag=0.01,
        invalid=None,
        source="fio: operations done against rate_iops",
        why="a disk that is offered more than it can do is saturated: its latencies are those of a queue that only"
        " grows, so no percentile of that trial is compared",
        passing=False,
        advice="compare latencies at an offered load that every arm can carry",
    ),
    Gate(
        id="steal",
        label="CPU steal",
        unit="share",
        flag=0.01,
        invalid=0.05,
        source="/proc/stat: steal of all CPUs",
        why="the physical host ran other VMs while this one was runnable",
        advice="measure when the others are idle, or on a dedicated host",
    ),
    Gate(
        id="cpu-wait",
        label="CPU contention",
        unit="share",
        flag=0.05,
        invalid=0.25,
        source="/proc/PID/task/*/schedstat of rig and load: time in the run queue against time wanted, times the part"
        " of the busy CPU time that was not theirs (/proc/stat)",
        why="measured on two CPUs: at most 3 % alone, even where 64 worker threads queue behind one another and PSI"
        " says 65 %; 22 to 37 % beside a neighbour who burns one CPU",
        advice="stop other work on this host, or pin QEMU and the load to CPUs of their own",
    ),
    Gate(
        id="cpu-throttled",
        label="CPU throttling by a control group",
        unit="share",
        flag=0.0,
        invalid=0.01,
        source="cpu.stat of our control groups: throttled time",
        why="while a group is throttled none of its threads run, so every I/O in flight waits for the next period",
        advice="raise its cpu.max (`virtune probe` shows it), or load less",
    ),
    Gate(
        id="cpu-heat",
        label="thermal throttling",
        unit="count",
        flag=None,
        invalid=0.0,
        source="thermal_throttle counters of the CPUs",
        why="a CPU that slowed down by itself is another machine than the one of the trials before",
        advice="cool the machine, or pause between trials",
    ),
    Gate(
        id="frequency",
        label="CPU frequency drop",
        unit="share",
        flag=0.05,
        invalid=None,
        source="scaling_cur_freq: the fastest CPU at the end of the measured time against its begin",
        why="the governor counts idle time as well, so that a fall is a hint, and no proof, of a slower machine",
        advice="governor `performance`, turbo off",
    ),
    Gate(
        id="drive-heat",
        label="drive temperature",
        unit="C",
        flag=-5.0,
        invalid=0.0,
        source="hwmon of the drive: temperature against its own limit (temp1_max)",
        why="drives slow down by themselves at that limit",
        advice="cool it, or pause between trials",
    ),
    Gate(
        id="foreign-io",
        label="foreign I/O",
        unit="share",
        flag=0.02,
        invalid=0.10,
        source="/proc/diskstats minus /proc/PID/io of rig and load, where the stack is direct",
        why="the filesystem's own metadata and journal stay below 2 %; a tenth of the device's bytes is a neighbour",
        advice="find out which process uses the device (iotop, pidstat -d)",
    ),
    Gate(
        id="page-cache",
        label="page cache hits despite O_DIRECT",
        unit="share",
        flag=0.02,
        invalid=0.10,
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
    Gate(
        id="io-limit",
        label="I/O limits of a control group",
        unit="count",
        flag=0.0,
        invalid=None,
        source="io.max, or blkio.throttle.*, of our control groups",
        why="a limit holds for every arm alike, but it may be all that is measured",
        passing=False,
        advice="remove io.max, or keep in mind that it limits every number",
    ),
    Gate(
        id="swap",
        label="swapping",
        unit="1/s",
        flag=0.0,
        invalid=256.0,
        source="/proc/vmstat: pswpin + pswpout, pages a second",
        why="256 pages a second are 1 MiB/s: from there on swap is a load of its own",
        advice="free memory before measuring",
    ),
    Gate(
        id="major-faults",
        label="major page faults",
        unit="count",
        flag=10.0,
        invalid=None,
        source="/proc/PID/stat of rig and load: majflt, where no job is mmap",
        why="each stops a thread of the I/O path for a read of its own; a few are a program's last pages",
        advice="free memory before measuring",
    ),
    Gate(
        id="clock-step",
        label="clock step",
        unit="s",
        flag=None,
        invalid=0.1,
        source="wall clock against monotonic clock, over the samples of the measured time",
        why="somebody set the clock, or the machine stood still; a clock that is disciplined moves 0.5 ms a second at"
        " most, and a sample may be held up between its two readings",
        advice="find what sets the clock, or whether the machine was suspended",
    ),
    Gate(
        id="clock-source",
        label="clock source change",
        unit="count",
        flag=None,
        invalid=0.0,
        source="current_clocksource at the begin and the end of the measured time",
        why="the kernel gave up on its clock: times before and after are not the same second",
        advice="find out why the kernel gave up on it (`dmesg`)",
    ),
)
"""Every gate, in the order in which it is said. Where `why` gives no measurement for a limit, it comes from
experience with such counters.
"""

GATE_BY_ID: dict[str, Gate] = {gate.id: gate for gate in GATES}


def label_of(cause: str) -> str:
    """Return the words for a cause that makes a trial invalid, by its gate or the id of its remark."""
    if cause == "little":
        return "IOPS times latency is not the number of I/Os in flight"
    gate = GATE_BY_ID.get(cause)
    return cause.replace("-", " ") if gate is None else gate.label
