# SPDX-License-Identifier: Apache-2.0
"""The options of a study, one row each with where a chosen value came from, read by the command line, plan files,
schema and docs.

`StudyOptions` holds the values given on the command line or in a plan file; its fields carry the rows. A new option
is a field here, and a line where a study is made of it (`flows/run/question.py`, `flows/run/tune.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from virtune.model.rig import rig_help, rig_words, rig_words_with_where
from virtune.model.steady import STEADY_LIMIT_SECONDS, STEADY_RULE
from virtune.model.text import Bytes, format_bytes

T = TypeVar("T")


class Takes(StrEnum):
    """What kind of value an option takes; times are in seconds, sizes in bytes, shares from 0 to 1."""

    TEXT = "text"
    TIME = "time"
    SIZE = "size"
    WHOLE = "whole number"
    SHARE = "share"
    SWITCH = "switch"
    CHOICE = "choice"
    RIG = "rig"
    METRIC = "metric"
    WORKLOADS = "workloads"
    LOADS = "loads"
    SETTINGS = "settings"
    ARMS = "arms"
    PLACE = "path"


UNITS: Mapping[Takes, str] = {Takes.TIME: "s", Takes.SIZE: "bytes", Takes.SHARE: "share (0 to 1)"}


class Provenance(StrEnum):
    """Where the value of an option came from."""

    FLAG = "command line"
    PLAN = "plan file"
    BUILTIN = "built-in study"
    JOB_FILE = "job file"
    ENVIRONMENT = "environment"
    LIKE = "the VM of --like"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenOption:
    """The value of one option in a study, as text, and its origin."""

    name: str
    value: str
    source: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option of the verbs that measure: the command line, plan files, their schema and the docs read this row.

    A value that is a mapping holds one entry for each verb; "" stands for the others. `default` is the default value
    (None: it depends on other options, as `otherwise` says), `why` is the reason for it. `low` and `high` are the
    bounds; `below`: the upper one itself is out. `plan` is the key in plan files, or else `not_in_plan` says why they
    have none; `also` are its other names. `once` are the verbs that take one value where others take several.
    """

    takes: Takes
    help: str | Mapping[str, str]
    verbs: tuple[str, ...]
    flag: str = ""
    also: tuple[str, ...] = ()
    metavar: str | Mapping[str, str] | None = None
    choices: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    low: float | None = None
    high: float | None = None
    below: bool = False
    many: bool = False
    once: tuple[str, ...] = ()
    default: Any = None
    otherwise: str | Mapping[str, str] = ""
    why: str = ""
    plan: str = ""
    plan_help: str = ""
    not_in_plan: str = ""

    def default_for(self, verb: str) -> Any:
        return for_verb(self.default, verb)


def for_verb(value: T | Mapping[str, T], verb: str) -> T | None:
    """Return a row's value for a verb; None where the row has none for it."""
    if isinstance(value, Mapping):
        return value.get(verb, value.get(""))
    return value


def value_text(takes: Takes, value: Any) -> str:
    """Write the value of an option as people write it: `500ms`, `1 GiB`, `disk.aio=native, disk.cache=none`."""
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else f"{one[0]}:{','.join(one[1])}" for one in value)
    match takes:
        case Takes.TIME:
            if value >= 3600:
                return f"{value / 3600:g}h"
            return f"{value:g}s" if value >= 1 or value == 0 else f"{value * 1000:g}ms"
        case Takes.SIZE:
            return format_bytes(value)
        case Takes.SWITCH:
            return "yes" if value else "no"
        case Takes.SHARE:
            return f"{value:g}"
        case _:
            return str(value)


Words = tuple[str, ...]
NamedArm = tuple[str, Words]
"""An arm of a plan file: its name, and its settings as on the command line (`disk.aio=native`)."""

Pairs = Literal["all", "baseline"]

Mode = Literal["quick", "certify"]

ROUNDS_MAX = 10_000
SEED_MAX = 2**63 - 1
SECONDS_MIN, SECONDS_MAX = 0.05, 86_400.0
RAMP_MAX = 3600.0
BUDGET_MIN, BUDGET_MAX = 1.0, 7 * 86_400.0
MARGIN_MIN, MARGIN_MAX = 0.001, 0.5
CONFIDENCE_MIN, CONFIDENCE_BELOW = 0.5, 1.0
"""The bounds of the options, the same for flags and for keys of plan files; times in seconds."""

DEFAULT_SPAN = Bytes(1024**3)
"""1 GiB: fills in a few seconds, is larger than any drive's or controller's own cache segment that a demo would
meet, and fits on any disk. It does NOT exceed the host's RAM: a stack that goes through the page cache will be
served from RAM, which virtune detects and says."""

ATTEMPTS, ATTEMPTS_MAX = 3, 10
"""A disturbance of three attempts in a row is not temporary, so by default an invalid trial is repeated twice."""

BUDGET_SECONDS = 300.0
"""Five minutes of trials: two arms then have 50 rounds, which show 3 % under a noise of 5 %
(benchmarks/decide.md).
"""

BUDGET_ROUNDS = 8
"""Where trials are long or many, the default budget has room for these: some more than the fewest that decide."""

QUICK_ROUNDS, QUICK_SECONDS = 10, 1.0
"""A few more rounds than the fewest that can decide, and the shortest run that still holds thousands of I/Os."""

SPREAD_SECONDS = 30.0
"""A certificate for eight to sixteen configurations then takes ten minutes. On a host that warms up, a certificate
after two minutes describes the host as it was then: it is within 3 % of the best in 96 to 98 % of simulated searches,
and in 99 % with the same slices spread out (benchmarks/README.md).
"""

DEFAULT_WORKLOAD = "randread-4k"

LIVE = ("measure", "compare", "sweep", "study")
TESTS = (*LIVE, "check")
ALL = (*TESTS, "tune")

_THE_HOST = "a plan says what is compared, not on whose disk"
_THE_CALL = "it is for one call, and the plan stays as it is"
_SEARCHES = "plan files are for comparisons, and this is for searches"
_RIGS = (*rig_words(), *rig_words_with_where())
_TUNED = (*rig_words(lambda row: row.has_qemu), *rig_words_with_where())  # of the others nothing can be turned
_STACKS = "What runs the disk stack."
_OF_VM = (
    "on the storage that it lies on: a libvirt domain, a Proxmox VM's number, a running QEMU by its name, or a file"
    " with a VM's configuration."
    " The VM is only read."
)
_WORKLOAD = "A named workload, fio's own words"


def _row(**row: Any) -> Any:
    """Return a field with its row; without a value it is None, an empty tuple, or False."""
    made = OptionRow(**row)
    nothing = () if made.many else False if made.takes is Takes.SWITCH else None
    return field(default=nothing, metadata={"row": made})


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The options given for a study, as written; None, empty or False where not given."""

    study: str | None = _row(
        takes=Takes.TEXT, verbs=(), plan="study", high=64,
        help="The built-in study that the plan is a copy of (`virtune compare study plan NAME`): its table shows the"
        " result, and the authors' figures stand beside the arms and workloads that are still the study's.",
    )  # fmt: skip
    title: str | None = _row(
        takes=Takes.TEXT, verbs=("measure", "compare", "sweep", "tune"), plan="title", high=200, metavar="TEXT",
        help="What is to be found out, in one line; tables, reports and lists show it.",
    )  # fmt: skip
    rig: str | None = _row(
        takes=Takes.RIG, verbs=ALL, plan="rig",
        help={
            "": f"{_STACKS} {rig_help(_RIGS)}.",
            "tune": f"{_STACKS} {rig_help(_TUNED)}.",
            "check": _STACKS,
            "study": "Run it on another rig: `vhost-user` or `storage-daemon`, for studies that do not need a guest.",
        },
        choices={"": _RIGS, "tune": _TUNED, "check": rig_words(lambda row: not row.in_guest), "study": ()},
        default={"": "storage-daemon", "check": "metal", "study": None},
        why="it runs QEMU's block layer on any host, without a guest",
    )  # fmt: skip
    connect: str | None = _row(
        takes=Takes.TEXT, verbs=("measure", "compare", "sweep", "tune"), metavar="URI", high=1000, plan="connect",
        help="libvirt URI for --rig libvirt:DOMAIN and --like DOMAIN.",
        otherwise="virsh's",
    )  # fmt: skip
    like: str | None = _row(
        takes=Takes.TEXT, verbs=("measure", "compare", "sweep", "tune"), metavar="VM[:DISK]", not_in_plan=_THE_HOST,
        help={
            "": f"Begin with the settings of an existing VM's disk, {_OF_VM}",
            "compare": "Begin every arm with the settings of an existing VM's disk, and compare with it as it is,"
            f" {_OF_VM}",
            "tune": f"Take an existing VM's disk as the baseline, {_OF_VM}",
        },
    )  # fmt: skip
    its_load: bool = _row(
        takes=Takes.SWITCH, verbs=("measure", "compare", "sweep", "tune"), not_in_plan=_THE_HOST,
        help="Take the load that the running VM's disk has now, looked at for 10 s, in place of --workload.",
    )  # fmt: skip
    vary: Words = _row(
        takes=Takes.SETTINGS, verbs=("compare", "tune"), many=True, plan="vary",
        metavar={"": "KNOB=A,B,...", "tune": "KNOB[=A,B,...]"},
        help={
            "": "One arm (configuration) for each value; repeat for combinations.",
            "tune": "A knob to tune over these values, or over all its values that this host supports (a number or a"
            " size needs values); repeat for combinations.",
        },
        otherwise={"tune": "what the rig can change without a new image"},
        plan_help="Lists of values: one arm for each value, all combinations of several knobs.",
    )  # fmt: skip
    arms: tuple[str | NamedArm, ...] = _row(
        takes=Takes.ARMS, verbs=("compare",), many=True, flag="--arm", metavar="NAME:KNOB=VALUE,...", plan="arm",
        help="One arm (configuration); `rig=metal` is a setting too.",
        plan_help="Arms with a name, each the base with the knobs beside the name turned.",
    )  # fmt: skip
    settings: Words = _row(
        takes=Takes.SETTINGS, verbs=("measure", "compare", "study", "sweep", "check"), many=True, flag="--set",
        metavar="KNOB=VALUE",
        help={
            "": "A setting of the stack.", "compare": "A setting of every arm.",
            "study": "A setting of every arm that has none of its own; of nvme-scaling, guests.count is the number of"
            " jobs.",
        },
        plan="set",
        plan_help="Knobs of the base, which every arm starts from.",
    )  # fmt: skip
    fix: Words = _row(
        takes=Takes.SETTINGS, verbs=("tune",), many=True, metavar="KNOB=VALUE", flag="--set", also=("--fix",),
        help="A setting of every configuration.", not_in_plan=_SEARCHES,
    )  # fmt: skip
    workloads: Words = _row(
        takes=Takes.WORKLOADS, verbs=("measure", "compare", "sweep", "tune", "check"), many=True, once=("check",),
        flag="--workload", plan="workload",
        metavar={"": "NAME|FIO WORDS|FILE", "sweep": "NAME|FIO WORDS"},
        help={
            "": f"{_WORKLOAD} (`rw=randread,bs=4k,iodepth=32`), a fio job file, or a printout of ESXi's vscsiStats.",
            "tune": f"{_WORKLOAD}, or a fio job file; of several the mean counts.",
            "check": "One workload.",
            "sweep": "A named workload or fio's own words; one job, offered at a rate.",
        },
        default=(DEFAULT_WORKLOAD,), why="small random reads show what a stack adds to each I/O",
        plan_help="What is asked of the disk: named workloads, fio's own words or fio job files, one or a list. A"
        " path is looked for where the plan file lies.",
    )  # fmt: skip
    baseline: str | None = _row(
        takes=Takes.TEXT, verbs=("compare", "tune"), plan="baseline",
        metavar={"": "ARM", "tune": "KNOB=VALUE,..."},
        help={
            "": "The arm to compare the others with.",
            "tune": "Your current settings, besides the fixed ones: the winner is compared with them.",
        },
        otherwise={"": "the first", "tune": ""},
    )  # fmt: skip
    durability: str | None = _row(
        takes=Takes.CHOICE, verbs=("tune",),
        choices=("every-write", "flush", "volatile"),
        help="What a completed write must survive; configurations of another durability are listed, not ranked.",
        otherwise="as the baseline", not_in_plan=_SEARCHES,
    )  # fmt: skip
    maximize: str | None = _row(
        takes=Takes.METRIC, verbs=("tune",), metavar="METRIC", help="The goal, such as iops.", otherwise="iops",
        not_in_plan=_SEARCHES,
    )  # fmt: skip
    minimize: str | None = _row(
        takes=Takes.METRIC, verbs=("tune",), metavar="METRIC", help="The goal, such as latency.p99.",
        not_in_plan=_SEARCHES,
    )  # fmt: skip
    subject_to: Words = _row(
        takes=Takes.TEXT, verbs=("tune", "sweep"), many=True, once=("sweep",), metavar="LIMIT",
        help={
            "tune": "A constraint: 'latency.p99<=1ms', 'cpu_per_io<=20us'; repeatable.",
            "sweep": "Find the greatest load at which this holds, such as 'latency.p99<=1ms' or"
            " 'write.latency.p99<=5ms'.",
        },
        not_in_plan=_SEARCHES,
    )  # fmt: skip
    loads: Words = _row(
        takes=Takes.LOADS, verbs=("sweep",), many=True, metavar="20%,5000iops,...", not_in_plan=_SEARCHES,
        help="Offer exactly these loads: shares of what the workload does unlimited, up to 400 %, or rates.",
        otherwise="chosen by what the curve shows",
    )  # fmt: skip
    mode: Mode | None = _row(
        takes=Takes.CHOICE, verbs=("tune",), choices=("quick", "certify"), default="quick", not_in_plan=_SEARCHES,
        help="quick: a tenth of a full grid's time, a quarter on a restless host. certify: until the winner is proved"
        " to be within the margin of the best.",
    )  # fmt: skip
    emulated: bool = _row(
        takes=Takes.SWITCH, verbs=("tune",), not_in_plan=_SEARCHES,
        help="Search in emulated guests (TCG) too, to try a search out: its ranking is the emulator's.",
    )  # fmt: skip
    metric: str | None = _row(
        takes=Takes.METRIC, verbs=("compare",), default="iops", plan="metric",
        help="The metric of the verdicts, such as iops or latency.p99.",
        otherwise="iops; with --at-load p99, p50 and the mean of latency",
    )  # fmt: skip
    pairs: Pairs | None = _row(
        takes=Takes.CHOICE, verbs=("compare",), choices=("baseline", "all"), default="baseline", plan="pairs",
        help="Which pairs of arms get verdicts: those with the baseline, or all, which takes longer.",
    )  # fmt: skip
    margin: float | None = _row(
        takes=Takes.SHARE, verbs=("compare", "tune"), low=MARGIN_MIN, high=MARGIN_MAX, default=0.03, plan="margin",
        help="The smallest relevant difference; 0.03 is 3 %.",
        why="a difference of less than 3 % is not worth a restart",
    )  # fmt: skip
    confidence: float | None = _row(
        takes=Takes.SHARE, verbs=("compare",), low=CONFIDENCE_MIN, high=CONFIDENCE_BELOW, below=True, default=0.95,
        plan="confidence", help="Confidence of all verdicts together, at every interim analysis.",
        why="of all verdicts together, however often one looks (docs/method.md)",
    )  # fmt: skip
    at_load: Words = _row(
        takes=Takes.LOADS, verbs=("compare", "study"), many=True, plan="at_load",
        metavar={"": "50%,70%,90%", "study": "25%,50%,..."},
        help={
            "": "Compare latency at the same load: 50% of what the baseline can do, or 5000iops.",
            "study": "Offer these loads, shares of the baseline's saturation up to 400 % or rates such as 5000iops,"
            " instead of as much as goes: the x axis of nvme-scaling.",
        },
    )  # fmt: skip
    quick: bool = _row(
        takes=Takes.SWITCH, verbs=("compare", "study"), not_in_plan=_THE_CALL,
        help={
            "compare": f"At most {QUICK_ROUNDS} rounds of {QUICK_SECONDS:g} s: shows large differences only.",
            "study": f"A short trial run: few trials of {QUICK_SECONDS:g} s, on 1 GiB; of vmm-latency only"
            " 4 KiB, alone and beside the most background load.",
        },
    )  # fmt: skip
    budget: float | None = _row(
        takes=Takes.TIME, verbs=("compare", "tune"), low=BUDGET_MIN, high=BUDGET_MAX, plan="budget",
        help={
            "": "Time limit for all trials.",
            "tune": "Time limit for everything, soak included, instead of the mode's own. Refused where it has no"
            " room for four blocks.",
        },
        otherwise={
            "": f"{BUDGET_SECONDS / 60:g}m or {BUDGET_ROUNDS} rounds, whichever is longer; no limit with --rounds",
            "tune": "",
        },
        why="two arms then have 50 rounds, which show 3 % under a noise of 5 % (benchmarks/decide.md)",
    )  # fmt: skip
    confirm: int | None = _row(
        takes=Takes.WHOLE, verbs=("tune",), low=0, high=100, default=6, not_in_plan=_SEARCHES,
        help="Starts of winner and baseline in the final confirmation: new processes; with --rig qemu a new disk in"
        " the guest.",
    )  # fmt: skip
    confirm_seconds: float | None = _row(
        takes=Takes.TIME, verbs=("tune",), default=5.0, help="Time of each of these.", not_in_plan=_SEARCHES,
    )  # fmt: skip
    soak: float | None = _row(
        takes=Takes.TIME, verbs=("tune",), not_in_plan=_SEARCHES,
        help="Finally load winner and baseline for this long each: short slices cannot show a drive's cache filling"
        " up.",
    )  # fmt: skip
    spread: float | None = _row(
        takes=Takes.TIME, verbs=("tune",), not_in_plan=_SEARCHES,
        help="Start blocks of the race at least this far apart, so that the result does not depend on one state of"
        " the host.",
        otherwise=f"{SPREAD_SECONDS:g}s with --mode certify and a twentieth of --budget at most, else 0",
        why="on a host that warms up, slices side by side are all of one state (benchmarks/README.md)",
    )  # fmt: skip
    rounds: int | None = _row(
        takes=Takes.WHOLE, verbs=LIVE, low=1, high=ROUNDS_MAX, plan="rounds",
        help="Rounds; each round runs every arm once, in random order.",
        default={"compare": 100, "measure": 3, "check": 6, "sweep": 3},
        otherwise={
            "compare": "at most 100; what the budget has room for with --budget",
            "study": "as the study says",
            "sweep": "3 of each load",
        },
        why="a comparison stops when it knows, so this is only its end; a single stack needs only its spread shown",
    )  # fmt: skip
    all_rounds: bool = _row(
        takes=Takes.SWITCH, verbs=("compare",), not_in_plan=_THE_CALL,
        help="Measure all of --rounds, also where every pair is decided before.",
    )  # fmt: skip
    seconds: float | None = _row(
        takes=Takes.TIME, verbs=ALL, low=SECONDS_MIN, high=SECONDS_MAX, plan="seconds",
        help={"": "Measured time of one trial.", "check": "About how long.", "tune": "Measured time of a slice."},
        default={"compare": 2.0, "measure": 4.0, "check": 60.0, "sweep": 2.0},
        otherwise={
            "study": "as the study says",
            "tune": "1s and more, so that it holds 2,000 I/Os, or those that a percentile needs",
        },
        why="short and interleaved beats long: with 0.4 s to bring a stack and fio up, 1 to 2 s is the best length"
        " under every noise that was simulated; a single stack is not compared, so its start and end"
        " should weigh less",
    )  # fmt: skip
    ramp: float | None = _row(
        takes=Takes.TIME, verbs=(*LIVE, "tune"), low=0.0, high=RAMP_MAX, default=0.5, plan="ramp",
        help="Warm-up before each trial, not measured.",
        why="no start-up transient was seen beyond the first 250 ms of a load",
    )  # fmt: skip
    attempts: int | None = _row(
        takes=Takes.WHOLE, verbs=(*LIVE, "tune"), low=1, high=ATTEMPTS_MAX, default=ATTEMPTS,
        not_in_plan="it depends on how busy the host is",
        help="Attempts at a trial, the first included, while something disturbs it. With 1 no disturbed trial is"
        " repeated.",
        why="a disturbance of three attempts in a row is not temporary",
    )  # fmt: skip
    check_data: bool = _row(
        takes=Takes.SWITCH, verbs=LIVE, plan="check_data",
        help="Check before and after the measurement that each arm keeps its data: a pattern is written through it at"
        " places all over its disk, flushed, read back, and read from its image outside of it. A byte that differs"
        " ends the run. On a --target this writes.",
    )  # fmt: skip
    check_durability: bool = _row(
        takes=Takes.SWITCH, verbs=LIVE, plan="check_durability",
        help="Check before the measurement what is there after a power cut: each arm is loaded with stamped writes"
        " and flushes, its process is killed and, as root, the filesystem below its image is cut off; then all that"
        " was flushed is read back. What it promised and lost ends the run. On a --target this writes.",
    )  # fmt: skip
    precondition: bool = _row(
        takes=Takes.SWITCH, verbs=("measure", "compare"), plan="precondition",
        help="First bring each disk into the state of one in service, as SNIA's SSS PTS says: write all of it twice,"
        " then each load until it is steady (--until-steady). A drive is not purged before: that is yours to do. On a"
        " --target this writes.",
    )  # fmt: skip
    until_steady: bool = _row(
        takes=Takes.SWITCH, verbs=("measure", "compare"), plan="until_steady",
        help="Before the first trial, run the load of each arm until fio finds it steady. What is not steady in time"
        " is measured all the same, with a warning.",
    )  # fmt: skip
    steady_rule: str | None = _row(
        takes=Takes.TEXT, verbs=("measure", "compare"), high=40, metavar="RULE", plan="steady_rule",
        help="When a load is steady, as fio's steadystate says it, and the time that it looks back over:"
        " iops_slope:0.3%/30s (a line through the samples), iops:10%/60s (the sample furthest from the mean), or bw."
        " With --until-steady.",
        otherwise=f"{STEADY_RULE}",
        why="fio's own example; 9 % in 30 s is within the 10 % that SNIA's SSS PTS allows",
    )  # fmt: skip
    steady_limit: float | None = _row(
        takes=Takes.TIME, verbs=("measure", "compare"), low=3.0, high=SECONDS_MAX, plan="steady_limit",
        help="The longest that each load runs until it is steady. With --until-steady.",
        otherwise=f"{STEADY_LIMIT_SECONDS / 60:g}m",
    )  # fmt: skip
    seed: int | None = _row(
        takes=Takes.WHOLE, verbs=ALL, low=0, high=SEED_MAX, plan="seed", help="Seed of the random order and offsets.",
        otherwise="random; stored with the result",
    )  # fmt: skip
    restart: bool = _row(
        takes=Takes.SWITCH, verbs=LIVE, not_in_plan=_THE_CALL,
        help="Start QEMU anew for every trial (slower; includes differences between starts). A test guest gets a new"
        " disk.",
    )  # fmt: skip
    scratch: Path | None = _row(
        takes=Takes.PLACE, verbs=ALL, not_in_plan=_THE_HOST, otherwise="/var/tmp/virtune-UID",  # noqa: S108 - it is shown
        help="Directory for scratch images; virtune measures the disk it lies on. lvm:VG, or lvm:VG/POOL for a thin"
        " pool: a scratch volume in that LVM volume group of this host, removed afterwards.",
    )  # fmt: skip
    span: int | None = _row(
        takes=Takes.SIZE, verbs=ALL, low=8 * 1024**2, default=int(DEFAULT_SPAN), plan="span",
        help="Size of the test image, or how much of a target is used. For buffered modes take more than RAM.",
        otherwise="1 GiB",
        why="it fills in seconds and fits on any disk",
    )  # fmt: skip
    target: Path | None = _row(
        takes=Takes.PLACE, verbs=ALL, metavar="FILE|DEVICE", not_in_plan=_THE_HOST,
        help="Load this existing file or block device instead of a scratch image.",
    )  # fmt: skip
    allow_write_to: Words = _row(
        takes=Takes.TEXT, verbs=(*ALL, "resume"), many=True, metavar="FILE|DEVICE", not_in_plan=_THE_HOST,
        help={
            "": "Name the target again, or an arm's device (disk.place=/dev/NAME), to allow writes to it: its"
            " contents are lost; repeatable.",
            "resume": "As given when the study began.",
        },
    )  # fmt: skip
    allow_in_use: bool = _row(
        takes=Takes.SWITCH, verbs=(*ALL, "resume"), not_in_plan=_THE_HOST,
        help={
            "": "Allow writes even if it is mounted, in use, or carries a filesystem or partition table; and arms"
            " with host.* settings although other VMs run here.",
            "resume": "As given when the study began.",
        },
    )  # fmt: skip
    fail_if: Words = _row(
        takes=Takes.TEXT, verbs=("measure", "compare", "study", "sweep", "resume", "show"), many=True,
        metavar="CONDITION", not_in_plan=_THE_CALL,
        help={
            "": "Fail on this change against the baseline ('latency.p99 > +5%', 'iops < -3%') or on this value in any"
            " arm ('latency.p99 > 2ms'), or a published limit by its name (etcd-fsync, sql-log, sql-data, vdi,"
            " cloud-p99); repeatable. Exit 4: breached, 5: undecided.",
            "sweep": "Fail where the load that is carried, or at which the limit of --subject-to holds, is less:"
            " 'iops < 20k'; repeatable. Exit 4: breached, 5: undecided.",
        },
    )  # fmt: skip


OPTIONS: Mapping[str, OptionRow] = {one.name: one.metadata["row"] for one in fields(StudyOptions)}
"""Every option by its name, in the order in which help lists them."""

ONE_QUESTION: tuple[str, ...] = ("vary", "arms")
"""These define the arms together: giving one of them on the command line replaces both in the plan file."""


def options_of(verb: str) -> dict[str, OptionRow]:
    return {name: row for name, row in OPTIONS.items() if verb in row.verbs}


def flag_of(name: str) -> str:
    return OPTIONS[name].flag or f"--{name.replace('_', '-')}"


def was_said(value: object) -> bool:
    """Whether a field of `StudyOptions` was given."""
    return value is not None and value is not False and value != ()


def default_words(row: OptionRow, verb: str) -> str:
    """Describe the default of an option for a verb; empty without one."""
    value = row.default_for(verb)
    return for_verb(row.otherwise, verb) or ("" if value is None else value_text(row.takes, value))
