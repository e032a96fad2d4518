# SPDX-License-Identifier: Apache-2.0
"""What a study that ships with virtune ends in: its own table, arranged as its authors did, and a reading of it.

The figures are always this host's. What the table says in words rests on the same intervals as the verdicts: where
these show no difference, none is told.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.metric import BY_ID
from virtune.model.published import PublishedStudy
from virtune.model.remark import Weight
from virtune.model.result import ArmSummary, Result, Value
from virtune.model.study import Arm
from virtune.model.units import format_seconds, format_share
from virtune.model.verdict import Comparison, Verdict
from virtune.model.workload import Workload
from virtune.report.text.answer import change_cell
from virtune.report.text.columns import SideBySide
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.published import beside
from virtune.report.text.result import standing, value_text
from virtune.report.text.words import difference_text

Row = tuple[str, str]
"""A metric's id, and what the study calls it."""

_BEFORE_AFTER: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("bandwidth", "bandwidth"),
    ("latency.mean", "latency mean"),
    *((f"latency.p{percent}", f"latency p{percent}") for percent in (50, 70, 90, 95, 99)),
    ("cpu.load.sys", "load CPU sys"),
    ("disk.util", "disk util"),
)

_ENGINES: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("bandwidth", "bandwidth"),
    ("slat.mean", "slat mean"),
    ("clat.mean", "clat mean"),
    ("latency.mean", "lat mean"),
    ("latency.p50", "lat p50"),
    ("latency.p99", "lat p99"),
    ("cpu.load.usr", "load CPU usr"),
    ("cpu.load.sys", "load CPU sys"),
    ("device.util", "device busy"),
)

_DATAPATH: tuple[Row, ...] = (
    ("iops", "IOPS"),
    ("latency.mean", "mean"),
    ("latency.p99", "p99"),
    ("cpu.rig", "QEMU CPU"),
    ("cpu_per_io", "CPU per I/O"),
)

_IN_PARENTHESES = "in parentheses: every trial of it was disturbed, and no verdict rests on it"

SIGNIFICANT = 0.05
"""Below this share chance is not held to have done it, as in the verdicts."""

_ENGINE_NAMES = "fio-engines-"


def listing(studies: Sequence[tuple[str, str, Sequence[str], Sequence[str]]]) -> RenderableType:
    """Set a line for each study: its name, its question, what it holds side by side, its rigs."""
    wrapped = (Column(title=title, wraps=True, least=16) for title in ("question", "compares", "rigs"))
    rows = [(name, title, ", ".join(compared), ", ".join(rigs)) for name, title, compared, rigs in studies]
    return Records([Column(title="built-in study"), *wrapped], rows)


def ending(result: Result, published: PublishedStudy | None = None, facts: str = "") -> list[RenderableType]:
    """Return what the study ends in; nothing for a question of the user's own.

    `published` is what its authors printed, which stands beside what was measured here, and `facts` are the host's.
    """
    arrange = _ARRANGED.get(result.study.builtin)
    if arrange is None or not result.trials_done:
        return []
    first, *_ = result.study.compared
    title = Text(f"\nstudy {result.study.builtin}", style="bold").append(standing(result, first))
    note = _lines(_IN_PARENTHESES) if any(map(_disturbed, result.arms)) else ()
    return [title, *arrange(result), *note, *([] if published is None else beside(result, published, facts))]


def _before_after(result: Result) -> Iterator[RenderableType]:
    """Study 1: one table, before, after, difference; then what the median, p95 and the CPU say."""
    study, workload = result.study, result.study.compared[0]
    base, *others = _arms(result)
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
    rounds = 0 if after is None else after.rounds
    yield from _lines(
        f"{rounds} rounds of {format_seconds(study.seconds)} in turn; the study's author had one run of each",
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
    """Study 3: a line for each configuration."""
    arms, workload = _arms(result), result.study.compared[0]
    table = _table(*(label for _, label in _DATAPATH), f"IOPS against {arms[0].name}")
    for arm in arms:
        cells = [_cell(result, arm, workload, metric) for metric, _ in _DATAPATH]
        table.add_row(arm.name, *cells, "" if arm == arms[0] else _difference(result, arm, workload, "iops"))
    yield table
    if any(arm.stack.poll_max_ns for arm in arms):
        yield from _lines(
            "the IOThread's event loop polls for at most poll_max_ns after its last work; "
            "QEMU's aio=io_uring has no SQPOLL, whose kernel thread keeps a CPU busy even when idle",
            "a polling IOThread takes CPU from other work: weigh QEMU CPU against the gain",
        )


def _engines(result: Result) -> Iterator[RenderableType]:
    """Study 2: the engines side by side, and what each result means."""
    arm = result.study.arms[0]
    workloads = result.study.compared
    table = _table(*(workload.name.removeprefix(_ENGINE_NAMES) for workload in workloads))
    for metric, label in _ENGINES:
        values = [_value(result, arm, workload, metric) for workload in workloads]
        if any(value is not None for value in values):
            table.add_row(label, *(value_text(BY_ID[metric], value) for value in values))
    yield table
    for workload in workloads:
        yield from _lines(*_engine_reading(result, arm, workload))


def _engine_reading(result: Result, arm: Arm, workload: Workload) -> Iterator[str]:
    """Say where the time of an I/O went: into handing it over, into waiting for it, or neither to the disk."""
    summary = _summary(result, arm, workload)
    if summary is None:
        return
    name = workload.name.removeprefix(_ENGINE_NAMES)
    slat, clat = (_value(result, arm, workload, metric) for metric in ("slat.mean", "clat.mean"))
    if slat is not None and clat is not None:
        handing = slat.value > clat.value
        where = "handing it over (slat)" if handing else "waiting for it (clat)"
        yield f"{name}: most of an I/O's time went into {where}" + (
            ": the work was done before the call returned" if handing else ""
        )
    for beware in summary.remarks:
        if beware.remark.id == "page-cache":
            yield f"{name}: {beware.remark.text}"


def _structures(result: Result) -> Iterator[RenderableType]:
    """Study 5: a line for each way to place the jobs: its part of what bare metal does, how busy the drive is."""
    arms = _arms(result)
    for workload in result.study.compared:
        yield Text(workload.name, style="dim")
        table = _table("IOPS", f"of {arms[0].name}", "device busy", "load CPU usr", "load CPU sys", "CPU per I/O")
        bare = _value(result, arms[0], workload, "iops")
        for arm in arms:
            done = _value(result, arm, workload, "iops")
            share = _share_of(result, workload, arm, bare, done)
            rest = ("device.util", "cpu.load.usr", "cpu.load.sys", "cpu_per_io")
            cells = (_cell(result, arm, workload, metric) for metric in rest)
            table.add_row(arm.name, _cell(result, arm, workload, "iops"), share, *cells)
        yield table
    yield from _lines(
        "load CPU usr and sys: of the fio jobs, inside the guest where there is one; CPU per I/O: of the whole host",
        "a drive that is 100 % busy may still take more: it has several queues",
    )


def _share_of(result: Result, workload: Workload, arm: Arm, bare: Value | None, done: Value | None) -> str:
    """Write what part of bare metal's IOPS an arm reaches, with its interval where there is one."""
    if done is None or bare is None:
        return "-"
    found = _find(result, workload, "iops", arm) if arm.name != result.study.baseline else None
    if found is None or found.ratio is None:
        return f"{done.value / bare.value:.2f} x"
    ratio = found.ratio
    return f"{ratio.estimate:.2f} x [{ratio.low:.2f}, {ratio.high:.2f}]"


def _single_operations(result: Result) -> Iterator[RenderableType]:
    """Study 4: for each load the least, mean and greatest time of an I/O, on every system."""
    arms = _arms(result)

    def beside(others: Sequence[str]) -> Records:
        shown = [arms[0], *(arm for arm in arms[1:] if arm.name in others)]
        table = _table(*(arm.name for arm in shown))
        for workload in result.study.compared:
            table.add_row(workload.name, *(_extent(result, arm, workload) for arm in shown))
        return table

    yield SideBySide(beside, [arm.name for arm in arms[1:]])
    yield from _lines(
        "latency min / mean / max in us; every single I/O: `virtune show --trial N --capture operations.log`"
    )
    yield from _lines(*(line for arm in arms if (line := _with_load(result, arm)) is not None))


def _extent(result: Result, arm: Arm, workload: Workload) -> str:
    """Write the least, mean and greatest latency in us."""
    values = (_value(result, arm, workload, f"latency.{name}") for name in ("min", "mean", "max"))
    text = " / ".join("-" if one is None else f"{one.value / 1e3:,.0f}" for one in values)
    return f"({text})" if _disturbed(_summary(result, arm, workload)) else text


def _with_load(result: Result, arm: Arm) -> str | None:
    """Say for how many kinds of I/O the greatest time is greater beside the most background load than alone, and
    whether chance does as much: by a sign test, since each kind is alone and beside load once.
    """
    kinds: dict[str, list[float | None]] = {}
    for workload in result.study.compared:
        stem, marked, _ = workload.name.partition("-load")
        found = _value(result, arm, workload, "latency.max") if marked else None
        if marked:
            kinds.setdefault(stem, []).append(None if found is None else found.value)
    pairs = [(of[0], of[-1]) for of in kinds.values() if len(of) > 1]  # from no background load to the most of it
    seen = [(alone, beside) for alone, beside in pairs if alone is not None and beside is not None]
    if not seen:
        return None
    greater, count = sum(beside > alone for alone, beside in seen), len(seen)
    chance = _sign_test(greater, count)
    told = f"sign test: p = {chance:.2f}" + ("" if chance < SIGNIFICANT else ", so chance may do it")
    return f"{arm.name}: maximum higher beside the most background load in {greater} of {count} kinds of I/O ({told})"


def _sign_test(greater: int, count: int) -> float:
    """Return how often chance alone gives so one-sided a count, on either side."""
    extreme = max(greater, count - greater)
    tail = math.fsum(math.comb(count, one) for one in range(extreme, count + 1)) / 2**count
    return float(min(1.0, 2 * tail))


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
    """Write a figure; in parentheses where no verdict rests on it."""
    value = _value(result, arm, workload, metric)
    text = value_text(BY_ID[metric], value)
    disturbed = value is not None and _disturbed(_summary(result, arm, workload))
    return Text(f"({text})", style="dim") if disturbed else text


def _value(result: Result, arm: Arm, workload: Workload, metric: str) -> Value | None:
    summary = _summary(result, arm, workload)
    return None if summary is None else summary.get(metric)


def _find(result: Result, workload: Workload, metric: str, arm: Arm | None = None) -> Comparison | None:
    """Return how an arm compares with the baseline; the first other arm unless one is named."""
    name = (arm or _arms(result)[1]).name
    found = (c for c in result.differences if (c.workload, c.metric, c.candidate) == (workload.name, metric, name))
    return next(found, None)


def _difference(result: Result, arm: Arm, workload: Workload, metric: str) -> Text:
    """A ratio where arms are compared on the metric, else the points between two shares."""
    if BY_ID[metric].compared:
        return change_cell(_find(result, workload, metric, arm))
    before, after = (_value(result, one, workload, metric) for one in (_arms(result)[0], arm))
    if before is None or after is None:
        return Text("-", style="dim")
    return Text(f"{after.value - before.value:+.1f} points", style="dim")


def _told(result: Result, workload: Workload, metric: str) -> str:
    """Say what an interval shows of a metric, and that it shows nothing where it does not."""
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
