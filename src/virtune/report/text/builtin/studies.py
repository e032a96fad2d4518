# SPDX-License-Identifier: Apache-2.0
"""The result of a built-in study: its own table, arranged like its authors', and an explanation.

The figures are always this host's. The explanation rests on the same intervals as the verdicts: it names a difference
only where these show one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.remark import Weight
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.study import Arm
from virtune.model.threads import THREAD_ROLES
from virtune.model.units import format_ns, format_seconds, format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.text.builtin.engine_words import ENGINE_WORDS
from virtune.report.text.builtin.period_words import period_findings
from virtune.report.text.builtin.published import beside
from virtune.report.text.builtin.sign_words import operation_findings
from virtune.report.text.builtin.spreads import extremes, percentiles
from virtune.report.text.columns import SideBySide
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.study.answer import change_cell
from virtune.report.text.study.result import standing, value_text
from virtune.report.text.study.table_words import level_words
from virtune.report.text.words import difference_text, quantity

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

_EXTREMES: tuple[tuple[str, Callable[[Histogram], float | None]], ...] = (
    ("lat min", lambda histogram: float(histogram.bins[0][0])),
    ("lat p99.95", lambda histogram: histogram.percentile(99.95)),
    ("lat max", lambda histogram: float(histogram.bins[-1][0])),
)
"""The percentiles in the author's table; from fio's bins, which are at most 0.8 % wide."""


def ending(result: Result, published: PublishedStudy | None = None, facts: str = "") -> list[RenderableType]:
    """Return the table and explanation of a built-in study; empty for other studies.

    `published` holds its authors' figures, shown next to this host's, and `facts` are the host's.
    """
    arrange = _ARRANGED.get(result.study.builtin)
    if arrange is None or not result.trials_done:
        return []
    first, *_ = result.study.compared
    title = Text(f"\nstudy {result.study.builtin}", style="bold").append(standing(result, first))
    words = [f"values beside differences: {level_words(result.study)}"] if result.typical else []
    words += [_IN_PARENTHESES] if any(map(_disturbed, result.arms)) else []
    words += [] if result.study.left_out is None else [result.study.left_out]
    words += result.study.changed
    note = _lines(*words)
    return [title, *arrange(result), *note, *([] if published is None else beside(result, published, facts))]


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
    after = _summary(result, others[0], workload)
    for metric, label in _BEFORE_AFTER:
        cells: list[str | Text] = [_cell(result, base, workload, metric)]
        for other in others:
            cells += [
                _cell(result, other, workload, metric),
                _difference(result, other, workload, metric),
            ]
        if any(cell != "-" for cell in cells[:2]):
            table.add_row(label, *cells)
    yield table
    known = [found for arm in (base, *others) if (found := _summary(result, arm, workload)) is not None]
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
    yield f"sys CPU where the load runs: {before.value:.1f} % -> {after.value:.1f} %; CPU per I/O: " + _told(
        result, workload, "cpu_per_io"
    )
    if after.value > before.value and done is not None and done.verdict is Verdict.BETTER:
        yield "more sys CPU is no loss here: the load waits less and submits more I/Os"


def _configurations(result: Result) -> Iterator[RenderableType]:
    """Study 3: a line for each configuration, of reads and of writes; bare metal is the drive on the host, without a
    VM.
    """
    arms = _arms(result)
    for workload in result.study.compared:
        yield Text(f"{workload.name}, IOPS against {arms[0].name} last", style="dim")
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
    for label, read in _EXTREMES:
        found = [_of_histogram(result, arm, workload, read) for workload in workloads]
        if any(value is not None for value in found):
            table.add_row(
                label, *("-" if value is None else quantity(BY_ID["latency.mean"], value) for value in found)
            )
    yield table
    for workload in workloads:
        yield from _lines(*_engine_reading(result, arm, workload))


def _of_histogram(
    result: Result, arm: Arm, workload: Workload, read: Callable[[Histogram], float | None]
) -> float | None:
    summary = _summary(result, arm, workload)
    histogram = None if summary is None else summary.histogram
    return None if histogram is None or not histogram.bins else read(histogram)


def _engine_reading(result: Result, arm: Arm, workload: Workload) -> Iterator[str]:
    """Say where the time of an I/O went: into submission, into waiting, or into neither because the disk was not
    used.
    """
    summary = _summary(result, arm, workload)
    if summary is None:
        return
    name = workload.name.removeprefix(_ENGINE_NAMES)
    if name in ENGINE_WORDS and result.study.keeps(arm.name, workload):
        yield f"{name}: {ENGINE_WORDS[name]}"
    slat, clat = (_value(result, arm, workload, metric) for metric in ("slat.mean", "clat.mean"))
    if slat is not None and clat is not None:
        handing = slat.value > clat.value
        where = "handing it over (slat)" if handing else "waiting for it (clat)"
        yield f"{name}: most of an I/O's time went into {where}" + (
            ": the work was done before the call returned" if handing else ""
        )
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
    """Write user and system time in one cell."""
    found = [_value(result, arm, workload, f"cpu.{of}.{mode}") for mode in ("usr", "sys")]
    return "-" if None in found else " / ".join(f"{one.value:.0f}" for one in found if one is not None) + " %"


def _saturation_signs(result: Result) -> Iterator[str]:
    """The authors' two signs: the drive is always busy, and the host spends more CPU time in the kernel than in
    programs.
    """
    for workload in result.study.compared:
        for arm in _arms(result):
            busy, usr, system = (
                _value(result, arm, workload, metric) for metric in ("device.util", "cpu.host.usr", "cpu.host.sys")
            )
            signs = (
                [f"the drive is {busy.value:.0f} % busy"] if busy is not None and busy.value >= ALWAYS_BUSY else []
            )
            if usr is not None and system is not None and system.value > usr.value:
                signs.append(f"sys {system.value:.0f} % is above usr {usr.value:.0f} %")
            if len(signs) > 1:
                yield f"sign of saturation, {arm.name} under {workload.name}: {' and '.join(signs)}"


def _single_operations(result: Result) -> Iterator[RenderableType]:
    """Study 4: for each load the least, mean and greatest latency of an I/O, on every system."""
    arms = _arms(result)

    def beside(others: Sequence[str]) -> Records:
        shown = [arms[0], *(arm for arm in arms[1:] if arm.name in others)]
        table = _table(*(arm.name for arm in shown))
        for workload in result.study.compared:
            table.add_row(workload.name, *(_extent(result, arm, workload) for arm in shown))
        return table

    yield SideBySide(beside, [arm.name for arm in arms[1:]])
    yield from _lines("latency min / mean / max; every single I/O: `virtune show --trial N --capture operations.log`")
    yield from _lines(*operation_findings(result, arms), *period_findings(result, arms))


def _extent(result: Result, arm: Arm, workload: Workload) -> str:
    """Write the least, mean and greatest latency."""
    values = (result.value(arm.name, workload.name, f"latency.{name}") for name in ("min", "mean", "max"))
    text = " / ".join("-" if one is None else format_ns(one.value) for one in values)
    return f"({text})" if _disturbed(_summary(result, arm, workload)) else text


_ARRANGED: Mapping[str, Callable[[Result], Iterator[RenderableType]]] = {
    "io-engine": _before_after,
    "fio-engines": _engines,
    "datapath": _configurations,
    "nvme-scaling": _structures,
    "vmm-latency": _single_operations,
}
"""How each study arranges its result."""


def _arms(result: Result) -> list[Arm]:
    """The arms, the baseline first."""
    base = result.study.arm(result.study.baseline)
    return [base, *(arm for arm in result.study.arms if arm != base)]


def _summary(result: Result, arm: Arm, workload: Workload) -> ArmSummary | None:
    return result.summary(arm.name, workload.name)


def _disturbed(summary: ArmSummary | None) -> bool:
    """Whether every round of an arm was disturbed, so that no verdict rests on it."""
    return summary is not None and any(
        one.remark.weight is Weight.INVALID and one.rounds >= summary.rounds > 0 for one in summary.remarks
    )


def _cell(result: Result, arm: Arm, workload: Workload, metric: str) -> Text | str:
    """Return a figure, in parentheses if no verdict rests on it."""
    value = _value(result, arm, workload, metric)
    text = value_text(BY_ID[metric], value)
    disturbed = value is not None and _disturbed(_summary(result, arm, workload))
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
            return f"{found.candidate} is {found.verdict.value}, {difference_text(found.ratio)}"


def _table(*columns: str) -> Records:
    return Records([Column(title=""), *(Column(title=title, right=True) for title in columns)])


def _lines(*words: str) -> Iterator[RenderableType]:
    yield from (Paragraph(Text(line, style="dim"), indent=2, hanging=2) for line in words)
