# SPDX-License-Identifier: Apache-2.0
"""What a built-in study says beside the general result: its own table, its findings, and its authors' figures."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID, THREAD_ROLES
from virtune.model.published import AuthorsValue, PublishedFigure, PublishedStudy, ServiceLevel
from virtune.model.remark import EMULATED, PERIODIC, PERIODIC_CHANCE, SIMULATED, Weight
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.study import Arm
from virtune.model.text import format_ns, format_seconds, format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.pages.evidence import programs_of
from virtune.report.pages.result import change_cell, level_words, standing, value_text
from virtune.report.pages.study import host_line
from virtune.report.render.terminal import SideBySide, Table, heading, paragraphs, right, wide
from virtune.report.words import chance_text, difference_text, quantity

ENGINE_WORDS: Mapping[str, str] = {
    "sync": "lseek, then read or write; the call returns when the I/O is over, so one is in flight per job",
    "psync": "pread and pwrite, one call instead of two; what most programs do, and fio's default",
    "libaio": "Linux' older asynchronous calls; asynchronous with direct=1 alone, else the submission waits",
    "mmap": "the file is mapped into memory, and each access is a copy; reads cost page faults, writes go out later",
    "splice": "moves pages through a pipe without a copy to the program; for sending files on rather than for load",
    "io_uring": "two rings shared with the kernel; asynchronous for buffered and direct I/O, few calls per I/O",
}

LEVEL = 0.05
"""The two-sided significance level."""

Cell = tuple[float, float]
"""Two values of one workload, or of one kind of I/O under two background loads: the one in question, and the one it
is compared with.
"""


def sign_probability(greater: int, cells: int) -> float:
    """Return the two-sided p of the sign test for a count."""
    if cells == 0:
        return 1.0
    far = max(greater, cells - greater)
    tail = sum(math.comb(cells, count) for count in range(far, cells + 1))
    return min(1.0, 2 * tail / float(2**cells))


def operation_findings(result: Result, arms: Sequence[Arm]) -> Iterator[str]:
    for arm in arms:
        yield from _beside_load(result, arm)
    by_name, base, compared = {arm.name: arm for arm in arms}, arms[0], result.study.compared
    asked = [(f"{arm.name} is faster in the mean than {base.name}", base.name, arm.name) for arm in arms[1:]]
    named = [
        ("one vCPU is faster in the mean than two", "KVM", "KVM-1-vCPU"),
        ("KVM is faster in the mean without a second, idle VM", "KVM-beside-an-idle-VM", "KVM"),
        ("virtio is faster in the mean than the emulated disk", "KVM-emulated-disk", "KVM"),
        ("KVM is faster in the mean where the host's page cache is warm", "KVM", "KVM-warm-cache"),
        ("bare metal is faster in the mean with all cores than with one", "bare-1-core", "bare"),
    ]
    # these say what an arm is by its name, so both are to be there and as in the study
    asked += [one for one in named if all(name in by_name and result.study.keeps(name) for name in one[1:])]
    for words, slow, fast in asked:
        both = ([_number(result, by_name[name], at, "latency.mean") for name in (slow, fast)] for at in compared)
        if pairs := [(one, other) for one, other in both if one is not None and other is not None]:
            yield f"{words} in {_count(pairs, 'cells')}"


def _beside_load(result: Result, arm: Arm) -> Iterator[str]:
    """Say for how many kinds of I/O the greatest latency is greater beside the largest background load than alone."""
    kinds: dict[str, list[float | None]] = {}
    for workload in result.study.compared:
        stem, marked, _ = workload.name.partition("-load")
        if marked:
            kinds.setdefault(stem, []).append(_number(result, arm, workload, "latency.max"))
    ends = [(of[-1], of[0]) for of in kinds.values() if len(of) > 1]  # the most background load, and none of it
    pairs = [(beside, alone) for beside, alone in ends if alone is not None and beside is not None]
    if pairs:
        yield f"{arm.name}: maximum higher beside the most background load in {_count(pairs, 'kinds of I/O')}"


def _count(pairs: Sequence[Cell], of: str) -> str:
    """Return in how many pairs the first is greater, and whether that is significant; ties are left out."""
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    greater, count = sum(one > other for one, other in apart), len(apart)
    chance = sign_probability(greater, count)
    said = f"{greater} of {count} {of} (sign test: {chance_text(chance)}"
    if chance >= LEVEL:
        return f"{said}, so chance may do it)"
    return f"{said})" if greater > count / 2 else f"{said}: the opposite is so)"


def _number(result: Result, arm: Arm, workload: Workload, metric: str) -> float | None:
    found = result.value(arm.name, workload.name, metric)
    return None if found is None else found.value


def at_least(count: int, trials: int, share: float) -> float:
    """Return the probability of so many or more of so many trials, each with that probability."""
    counts = range(count, trials + 1)
    return math.fsum(math.comb(trials, one) * share**one * (1 - share) ** (trials - one) for one in counts)


def period_findings(result: Result, arms: Sequence[Arm]) -> Iterator[str]:
    """Say of each system with such trials how many there are, with an example of the last."""
    for arm in arms:
        mine = [one for one in result.arms if one.arm == arm.name]
        found = [(one, remark) for one in mine for remark in one.remarks if remark.remark.id == PERIODIC.id]
        count, trials = sum(remark.rounds for _, remark in found), sum(one.rounds for one in mine)
        if not count:
            continue
        chance = at_least(count, trials, PERIODIC_CHANCE)
        if chance >= LEVEL:
            told = "as may be by chance"
        else:
            summary, remark = max(found, key=lambda pair: pair[1].rounds)
            told = f"more than by chance; under {summary.workload} {remark.remark.text}"
        yield f"{arm.name}: the latencies of {count} of {trials} trials have a period ({chance_text(chance)}), {told}"


PERCENTILES: tuple[float, ...] = (
    1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99,
)  # fmt: skip
"""Those that fio prints unless it is told otherwise."""

_BESIDE = 3
"""How many of them stand in one line."""

_KINDS = (("slat", "slat"), ("clat", "clat"), ("latency", "lat"), ("iops", "IOPS"))
_ENDS: Mapping[str, Callable[[Histogram], float | None]] = {
    "min": lambda histogram: float(histogram.bins[0][0]),
    "p99.95": lambda histogram: histogram.percentile(99.95),
    "max": lambda histogram: float(histogram.bins[-1][0]),
}
"""What is read from fio's bins, which are at most 0.8 % wide: what the authors' tables have of them."""


def extremes(arms: Sequence[ArmSummary]) -> Iterator[Table]:
    ends = ("min", "max", "stdev")
    table = _table(*(f"{arm.arm} {end}" for arm in arms for end in ends))
    for kind, label in _KINDS:
        cells = []
        for arm, end in itertools.product(arms, ends):
            known = kind == "latency" and end in _ENDS
            metric = f"{kind}.{end}"
            cells.append(_of_histogram(arm, _ENDS[end]) if known else value_text(BY_ID[metric], arm.get(metric)))
        table.add_row(label, *cells)
    if any(cell != "-" for row in table.cells for cell in row[1:]):
        yield table


def percentiles(arms: Sequence[ArmSummary]) -> Iterator[Table]:
    found = [arm.histogram for arm in arms]
    if any(histogram is None or not histogram.bins for histogram in found):
        return
    lines = -(-len(PERCENTILES) // _BESIDE)
    table = Table(right(*("lat", *(arm.arm for arm in arms)) * _BESIDE))
    for line in range(lines):
        cells: list[str] = []
        for percent in PERCENTILES[line::lines]:
            each = (None if one is None else one.percentile(percent) for one in found)
            times = ("-" if value is None else quantity(BY_ID["latency.mean"], value) for value in each)
            cells += [f"p{percent:g}", *times]
        table.add_row(*cells, *[""] * (len(table.columns) - len(cells)))
    yield table


def _of_histogram(arm: ArmSummary | None, read: Callable[[Histogram], float | None]) -> str:
    histogram = None if arm is None else arm.histogram
    value = None if histogram is None or not histogram.bins else read(histogram)
    return "-" if value is None else quantity(BY_ID["latency.mean"], value)


def beside(result: Result, published: PublishedStudy, facts: str = "") -> list[RenderableType]:
    """Lay out the authors' figures next to this host's, and the differences in set-up; `facts` are the host's."""
    study, arms = result.study, {"", *(arm.name for arm in result.study.arms)}
    table = Table(["arm", "workload", "metric", *right("published", "here", "here / published")])
    for one in (one for one in published.figures if {one.arm, one.of} <= arms):
        for workload in _workloads(result, one):
            if study.keeps(one.arm or study.baseline, workload) and (not one.of or study.keeps(one.of)):
                table.add_row(*_row(result, one, workload))
    lines = [
        f"published: {published.source}; {published.machine}",
        f"here: {host_line(result.study, facts, programs_of(result.arms))}",
        *(f"differs: {one}" for one in published.differs),
    ]
    said = {one.remark.id for arm in result.arms for one in arm.remarks}
    if EMULATED.id in said:
        lines.append("the guests here ran under software emulation, so their figures are not comparable with these")
    if SIMULATED.id in said:
        lines.append("the figures here are invented (rig=simulated)")
    title = heading("what the authors printed, and this host")
    return [title, *([table] if table.rows else []), *paragraphs(lines, "dim")]


def listing(studies: Sequence[tuple[str, str, Sequence[str], Sequence[str]]]) -> RenderableType:
    rows = ((name, title, ", ".join(compared), ", ".join(rigs)) for name, title, compared, rigs in studies)
    return Table(["built-in study", *wide("question", "compares", "rigs", least=16)], rows)


def figures_list(figures: Sequence[PublishedFigure]) -> RenderableType:
    table = Table(["no.", *wide("compares", "result", "conditions", "source", least=14)])
    for one in figures:
        source = one.source if one.seen == "read" else f"{one.source} (as quoted elsewhere)"
        table.add_row(str(one.number), one.compares, one.result, one.conditions, source)
    return table


def levels_list(levels: Sequence[ServiceLevel]) -> RenderableType:
    rows = ((one.name, ", ".join(one.conditions), one.workload, one.about, one.source) for one in levels)
    return Table(["--fail-if", "stands for", "shown by --workload", *wide("about", "source", least=14)], rows)


def _workloads(result: Result, one: AuthorsValue) -> tuple[Workload, ...]:
    """Return the workload of the study that a value is of, if any: the first whose name begins as it says.

    The authors' IOPS are what was carried at most, so of several offered loads it is the greatest; their latencies
    are those of a closed loop, which no offered load is.
    """
    found = [workload for workload in result.study.compared if workload.name.startswith(one.workload)]
    offered = [workload for workload in found if workload.offered_iops]
    if not offered:
        return tuple(found[:1])
    return (max(offered, key=lambda workload: workload.offered_iops or 0),) if one.metric == "iops" else ()


def _row(result: Result, one: AuthorsValue, workload: Workload) -> tuple[str, ...]:
    metric = BY_ID[one.metric]
    arm = one.arm or result.study.baseline
    value = result.value_of_a_round(arm, workload.name, one.metric)
    label = metric.label
    if one.of:
        label = f"{label} by {one.of}"
        other = result.value_of_a_round(one.of, workload.name, one.metric)
        here = None if value is None or other is None or not other.value else value.value / other.value
        said = "-" if here is None else f"{here:.2f} x"
        ratio = "-" if here is None else f"{here / one.value:.2f} x"
        return arm, workload.name, label, f"{one.value:.2f} x", said, ratio
    ratio = "-" if value is None or metric.unit == "%" else f"{value.value / one.value:.2f} x"
    return arm, workload.name, label, quantity(metric, one.value), value_text(metric, value), ratio


Row = tuple[str, str]
"""A metric's id, and its name in the study."""

_OF_FIO: tuple[Row, ...] = (
    ("load.ctx", "context switches a second"),
    ("load.majf", "major page faults a second"),
    ("load.minf", "minor page faults a second"),
    ("disk.merged", "requests merged"),
)
"""What fio counts besides, of the load's processes and of the disk."""

_BEFORE_AFTER: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("bandwidth", "bandwidth"),
    ("latency.mean", "latency mean"),
    *((f"latency.p{percent}", f"latency p{percent}") for percent in (50, 70, 90, 95, 99)),
    ("cpu.load.sys", "load CPU sys"),
    ("disk.util", "disk util"),
    *_OF_FIO,
)

_ENGINES: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("bandwidth", "bandwidth"),
    *((f"slat.{end}", f"slat {end}") for end in ("mean", "min", "max")),
    *((f"clat.{end}", f"clat {end}") for end in ("mean", "min", "max")),
    ("latency.mean", "lat mean"),
    ("latency.p50", "lat p50"),
    ("latency.p99", "lat p99"),
    ("cpu.load.usr", "load CPU usr"),
    ("cpu.load.sys", "load CPU sys"),
    ("device.util", "device busy"),
    ("device.writes", "device writes a second"),
    ("device.written_bytes", "device bytes written a second"),
    ("device.reached", "of the bytes reached it"),
    *_OF_FIO,
)

_DATAPATH: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("latency.mean", "mean"),
    ("latency.p99", "p99"),
    ("cpu.rig", "QEMU"),
    ("cpu.idle", "idle"),
    ("cpu_per_io", "CPU/IO"),
)

_IN_PARENTHESES = "in parentheses: every trial of it was disturbed, and no verdict rests on it"

_HOST = "host usr/sys"

ALWAYS_BUSY = 99.0
"""Per cent of the time, below 100 because the counters' window and the run differ slightly."""

_ENGINE_NAMES = "fio-engines-"


def ending(result: Result, published: PublishedStudy | None = None, facts: str = "") -> list[RenderableType]:
    """Return the table and explanation of a built-in study; empty for other studies.

    `published` holds its authors' figures, shown next to this host's, and `facts` are the host's.
    """
    arrange = _ARRANGED.get(result.study.builtin)
    if arrange is None or not result.trials_done:
        return []
    first, *_ = result.study.compared
    title = heading(f"study {result.study.builtin}", standing(result, first))
    words = [f"values beside differences: {level_words(result.study)}"] if result.typical else []
    words += [_IN_PARENTHESES] if any(map(_disturbed, result.arms)) else []
    words += [] if result.study.left_out is None else [result.study.left_out]
    words += result.study.changed
    authors = [] if published is None else beside(result, published, facts)
    return [title, *arrange(result), *_lines(*words), *authors]


def _before_after(result: Result) -> Iterator[RenderableType]:
    """Study 1: one table, before, after, difference; then what the median, p95 and the CPU say."""
    study, workload = result.study, result.study.compared[0]
    base, *others = _arms(result)
    if not others:  # without QEMU there is no engine of its to compare
        yield from _engines(result)
        yield from _lines(
            "QEMU's engine and cache mode mean nothing without QEMU: this is the disk below, by both engines of Linux"
        )
        return
    table = _table(base.name, *(word for other in others for word in (other.name, "difference")))
    after = result.summary(others[0].name, workload.name)
    for metric, label in _BEFORE_AFTER:
        cells: list[str | Text] = [_cell(result, base, workload, metric)]
        for other in others:
            cells += [_cell(result, other, workload, metric), _difference(result, other, workload, metric)]
        if any(cell != "-" for cell in cells[:2]):
            table.add_row(label, *cells)
    yield table
    known = [found for arm in (base, *others) if (found := result.summary(arm.name, workload.name)) is not None]
    yield from (*extremes(known), *percentiles(known))
    rounds = 0 if after is None else after.rounds
    yield from _lines(
        f"{rounds} rounds of {format_seconds(study.seconds)} in turn; the study's author had one run of each",
        "least, greatest and the list of percentiles: of all rounds together",
        f"usual latency (median): {_told(result, workload, 'latency.p50')}",
        f"jitter (p95: one I/O in twenty takes longer): {_told(result, workload, 'latency.p95')}",
        *_cpu_reading(result, base, others[0], workload),
    )


def _cpu_reading(result: Result, base: Arm, other: Arm, workload: Workload) -> Iterator[str]:
    """Why the CPU in the guest's kernel may rise while latency falls."""
    before, after = (_value(result, arm, workload, "cpu.load.sys") for arm in (base, other))
    done = _find(result, workload, "iops")
    if before is None or after is None:
        return
    cost = _told(result, workload, "cpu_per_io")
    yield f"sys CPU where the load runs: {before.value:.1f} % -> {after.value:.1f} %; CPU per I/O: {cost}"
    if after.value > before.value and done is not None and done.verdict is Verdict.BETTER:
        yield "more sys CPU is no loss here: the load waits less and submits more I/Os"


def _configurations(result: Result) -> Iterator[RenderableType]:
    """Study 3: a line for each configuration, of reads and of writes; bare metal is the drive on the host, without a
    VM.
    """
    arms = _arms(result)
    for workload in result.study.compared:
        yield Text(f"{workload.name}, difference: IOPS against {arms[0].name}", style="dim")
        table = _table(*(label for _, label in _DATAPATH), "switches/s", _HOST, "difference")
        for arm in arms:
            cells = [_cell(result, arm, workload, metric) for metric, _ in _DATAPATH]
            change = "" if arm == arms[0] else _difference(result, arm, workload, "iops")
            cells.append(_switches(result, arm, workload))
            table.add_row(arm.name, *cells, _usr_sys(result, arm, workload, "host"), change)
        yield table
    yield from _lines(
        "QEMU: its CPU; idle: the same in a second after the load, where polling is set",
        "switches/s: context switches of QEMU's threads a second; the author counts a million of them",
        "host: user and system time of all CPUs, in % of them; CPU/IO: CPU per I/O, all of it",
    )
    if any(arm.stack.poll_max_ns for arm in arms):
        yield from _lines(
            "the IOThread's event loop polls for at most poll_max_ns after its last work; "
            "QEMU's aio=io_uring has no SQPOLL, whose kernel thread keeps a CPU busy even when idle",
            "a polling IOThread takes CPU from other work: weigh QEMU CPU against the gain",
        )


def _switches(result: Result, arm: Arm, workload: Workload) -> str:
    """Return the context switches a second of all threads of QEMU; the metrics are those of an I/O, by role."""
    each = [_value(result, arm, workload, f"switches.io.{role}") for role in THREAD_ROLES]
    known, done = [one.value for one in each if one is not None], _value(result, arm, workload, "iops")
    return quantity(BY_ID["load.ctx"], sum(known) * done.value) if known and done is not None else "-"


def _engines(result: Result) -> Iterator[RenderableType]:
    """Study 2: the engines side by side, and what each result means."""
    arm = result.study.arms[0]
    workloads = result.study.compared
    table = _table(*(workload.name.removeprefix(_ENGINE_NAMES) for workload in workloads))
    for metric, label in _ENGINES:
        values = [_value(result, arm, workload, metric) for workload in workloads]
        if any(value is not None for value in values):
            table.add_row(label, *(value_text(BY_ID[metric], value) for value in values))
    for end, read in _ENDS.items():
        found = [_of_histogram(result.summary(arm.name, workload.name), read) for workload in workloads]
        if any(cell != "-" for cell in found):
            table.add_row(f"lat {end}", *found)
    yield table
    for workload in workloads:
        yield from _lines(*_engine_reading(result, arm, workload))


def _engine_reading(result: Result, arm: Arm, workload: Workload) -> Iterator[str]:
    summary = result.summary(arm.name, workload.name)
    if summary is None:
        return
    name = workload.name.removeprefix(_ENGINE_NAMES)
    if name in ENGINE_WORDS and result.study.keeps(arm.name, workload):
        yield f"{name}: {ENGINE_WORDS[name]}"
    slat, clat = (_value(result, arm, workload, metric) for metric in ("slat.mean", "clat.mean"))
    if slat is not None and clat is not None:
        where = "waiting for it (clat)"
        if slat.value > clat.value:
            where = "handing it over (slat): the work was done before the call returned"
        yield f"{name}: most of an I/O's time went into {where}"
    for found in summary.remarks:
        if found.remark.id == "page-cache":
            yield f"{name}: {found.remark.text}"


def _structures(result: Result) -> Iterator[RenderableType]:
    """Study 5: a line for each placement of the jobs: its share of bare metal's IOPS, and the drive's utilisation."""
    arms = _arms(result)
    for workload in result.study.compared:
        yield Text(workload.meaning if workload.offered_iops else workload.name, style="dim")
        table = _table("IOPS", f"of {arms[0].name}", "busy", "load usr/sys", _HOST, "CPU/IO")
        bare = _value(result, arms[0], workload, "iops")
        for arm in arms:
            done = _value(result, arm, workload, "iops")
            share = _share_of(result, workload, arm, bare, done)
            busy, cost = (_cell(result, arm, workload, metric) for metric in ("device.util", "cpu_per_io"))
            shares = (_usr_sys(result, arm, workload, of) for of in ("load", "host"))
            table.add_row(arm.name, _cell(result, arm, workload, "iops"), share, busy, *shares, cost)
        yield table
    yield from _lines(
        "of bare: the ratio with its interval, of rounds in which both ran",
        "load usr/sys: CPU of the fio jobs, inside the guest where there is one; host: all CPUs; CPU/IO: CPU per I/O",
        "a drive that is 100 % busy may still take more: it has several queues",
        *_saturation_signs(result),
    )


def _share_of(result: Result, workload: Workload, arm: Arm, bare: Value | None, done: Value | None) -> str:
    """Return an arm's share of bare metal's IOPS, with its interval if there is one."""
    if done is None or bare is None:
        return "-"
    found = _find(result, workload, "iops", arm) if arm.name != result.study.baseline else None
    if found is None or found.ratio is None:
        return f"{done.value / bare.value:.2f} x"
    ratio = found.ratio
    return f"{ratio.estimate:.2f} x [{ratio.low:.2f}, {ratio.high:.2f}]"


def _usr_sys(result: Result, arm: Arm, workload: Workload, of: str) -> str:
    found = [_value(result, arm, workload, f"cpu.{of}.{mode}") for mode in ("usr", "sys")]
    return "-" if None in found else " / ".join(f"{one.value:.0f}" for one in found if one is not None) + " %"


def _saturation_signs(result: Result) -> Iterator[str]:
    """The authors' two signs: the drive is always busy, and the host spends more CPU time in the kernel than in
    programs.
    """
    for workload in result.study.compared:
        for arm in _arms(result):
            metrics = ("device.util", "cpu.host.usr", "cpu.host.sys")
            busy, usr, system = (_value(result, arm, workload, metric) for metric in metrics)
            if busy is None or usr is None or system is None:
                continue
            if busy.value >= ALWAYS_BUSY and system.value > usr.value:
                sign = f"the drive is {busy.value:.0f} % busy"
                sign += f" and sys {system.value:.0f} % is above usr {usr.value:.0f} %"
                yield f"sign of saturation, {arm.name} under {workload.name}: {sign}"


def _single_operations(result: Result) -> Iterator[RenderableType]:
    """Study 4: for each load the least, mean and greatest latency of an I/O, on every system."""
    arms = _arms(result)

    def beside(others: Sequence[str]) -> Table:
        shown = [arms[0], *(arm for arm in arms[1:] if arm.name in others)]
        table = _table(*(arm.name for arm in shown))
        for workload in result.study.compared:
            table.add_row(workload.name, *(_extent(result, arm, workload) for arm in shown))
        return table

    yield SideBySide(beside, [arm.name for arm in arms[1:]])
    yield from _lines("latency min / mean / max; every single I/O: `virtune show --trial N --capture operations.log`")
    yield from _lines(*operation_findings(result, arms), *period_findings(result, arms))


def _extent(result: Result, arm: Arm, workload: Workload) -> str:
    values = (result.value(arm.name, workload.name, f"latency.{name}") for name in ("min", "mean", "max"))
    text = " / ".join("-" if one is None else format_ns(one.value) for one in values)
    return f"({text})" if _disturbed(result.summary(arm.name, workload.name)) else text


_ARRANGED: Mapping[str, Callable[[Result], Iterator[RenderableType]]] = {
    "io-engine": _before_after,
    "fio-engines": _engines,
    "datapath": _configurations,
    "nvme-scaling": _structures,
    "vmm-latency": _single_operations,
}


def _arms(result: Result) -> list[Arm]:
    base = result.study.arm(result.study.baseline)
    return [base, *(arm for arm in result.study.arms if arm != base)]


def _disturbed(summary: ArmSummary | None) -> bool:
    """Whether every round of an arm was disturbed, so that no verdict rests on it."""
    return summary is not None and any(
        one.remark.weight is Weight.INVALID and one.rounds >= summary.rounds > 0 for one in summary.remarks
    )


def _cell(result: Result, arm: Arm, workload: Workload, metric: str) -> Text | str:
    """Return a figure, in parentheses if no verdict rests on it."""
    value = _value(result, arm, workload, metric)
    text = value_text(BY_ID[metric], value)
    disturbed = value is not None and _disturbed(result.summary(arm.name, workload.name))
    return Text(f"({text})", style="dim") if disturbed else text


def _value(result: Result, arm: Arm, workload: Workload, metric: str) -> Value | None:
    return result.value_of_a_round(arm.name, workload.name, metric)


def _find(result: Result, workload: Workload, metric: str, arm: Arm | None = None) -> Comparison | None:
    """Return how an arm compares with the baseline; the first other arm unless one is named."""
    name = (arm or _arms(result)[1]).name
    found = (c for c in result.differences if (c.workload, c.metric, c.candidate) == (workload.name, metric, name))
    return next(found, None)


def _difference(result: Result, arm: Arm, workload: Workload, metric: str) -> Text:
    """A ratio if arms are compared on the metric, else the difference: of two shares in points."""
    if BY_ID[metric].compared:
        return change_cell(_find(result, workload, metric, arm))
    before, after = (_value(result, one, workload, metric) for one in (_arms(result)[0], arm))
    if before is None or after is None:
        return Text("-", style="dim")
    apart = after.value - before.value
    if BY_ID[metric].unit == "%":
        return Text(f"{apart:+.1f} points", style="dim")
    return Text(f"{'-' if apart < 0 else '+'}{quantity(BY_ID[metric], abs(apart))}", style="dim")


def _told(result: Result, workload: Workload, metric: str) -> str:
    """Say which difference of a metric an interval shows, or that it shows none."""
    found = _find(result, workload, metric)
    if found is None or found.ratio is None:
        return "too few rounds to compare"
    match found.verdict:
        case Verdict.UNDECIDED:
            return f"no difference shown ({found.why})"
        case Verdict.SAME:
            return f"the same within {format_share(result.study.margin)}"
        case _:
            return f"{found.candidate} is {found.said}, {difference_text(found.ratio)}"


def _table(*columns: str) -> Table:
    return Table(["", *right(*columns)])


def _lines(*words: str) -> Iterator[RenderableType]:
    yield from paragraphs(words, "dim")
