# SPDX-License-Identifier: Apache-2.0
"""A diagnosis for a terminal: what limits a disk, where the time of a request goes, what its threads cost."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.bottleneck import CAUSE_WORDS, Cause, Diagnosis
from virtune.model.threads import ThreadCost
from virtune.model.units import format_bandwidth, format_count, format_ns, format_seconds, format_share
from virtune.report.text.guideline import guideline_lines
from virtune.report.text.layers import layers_table
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.proof import proof_lines

_SHOWN = 0.005
"""Threads that used less of a CPU than this, and waited for one for less than this share of the time, are left out.
"""

_THREADS_MAX = 12


def render(found: Sequence[Diagnosis]) -> Group:
    """Lay out diagnoses one below the other."""
    return Group(*(part for one in found for part in _one(one)))


def _one(one: Diagnosis) -> Iterator[RenderableType]:
    path = one.path
    title = Text(one.disk, style="bold").append(f"  {one.workload}", style="not bold dim")
    yield Paragraph(title, hanging=2)
    rates = f"{format_count(path.iops)} IOPS, {format_bandwidth(path.bandwidth)}"
    which = f" in one of {one.found.of} rounds" if one.found.of > 1 else ""
    yield Text(f"{rates}, seen for {format_seconds(one.seconds)}{which}", style="dim")
    yield _verdict(one)
    for line in one.found.evidence:
        yield Paragraph(Text(line), indent=2, hanging=2)
    yield Paragraph(Text(f"next: {one.found.experiment}", style="green"), indent=2, hanging=2)
    yield from proof_lines(one)
    if one.layers is not None:
        yield Text("\nwhere the time of a request goes", style="bold")
        yield from layers_table(one.layers)
    threads = _shown(path.threads)
    if threads:
        yield Text("\nthreads", style="bold")
        yield _threads(threads, path.iops)
    if one.guideline is not None:
        yield from guideline_lines(one.guideline)
    if one.rate:
        yield Text("\nits load as a workload", style="bold")
        again = Text(f"  virtune compare --vary disk.aio=threads,native,io_uring --workload '{one.workload}'")
        again.no_wrap, again.overflow = True, "ignore"
        yield again
        yield Paragraph(
            Text(
                f"with `,{one.rate}` at its rate; from counters: sizes are means, and random places are assumed",
                style="dim",
            ),
            indent=2,
            hanging=2,
        )
    for line in one.missing:
        yield Paragraph(Text(f"not seen: {line}", style="yellow"), hanging=2)
    yield Text("")


def _verdict(one: Diagnosis) -> RenderableType:
    found = one.found
    words = CAUSE_WORDS[found.cause]
    if found.cause is Cause.UNDECIDED:
        text = Text("what limits it is undecidable", style="bold yellow")
    elif found.cause is Cause.NOT_BOUND:
        text = Text(f"limited by {words}", style="bold green")
    else:
        text = Text(f"limited by {words}", style="bold red")
    if found.of > 1:
        text.append(f"  (in {found.rounds} of {found.of} rounds)", style="not bold dim")
    return Paragraph(text, hanging=2)


def _shown(threads: Sequence[ThreadCost]) -> list[ThreadCost]:
    """The active threads, busiest first, at most a dozen."""
    busy = [one for one in threads if one.busy >= _SHOWN or one.stalled >= _SHOWN]
    return sorted(busy, key=lambda one: -one.cpu_seconds)[:_THREADS_MAX]


def _threads(threads: Sequence[ThreadCost], iops: float) -> Records:
    titles = ("CPU", "usr", "sys", "no CPU", "CPU per I/O", "ends at")
    columns = [Column(title="thread"), *(Column(title=title, right=True) for title in titles)]
    rows = []
    for one in threads:
        each = one.cpu_seconds / one.seconds / iops if iops else 0.0
        serves = one.role in ("iothread", "main", "load")
        rows.append(
            (
                one.name if one.role in ("vcpu", "iothread") else f"{one.name} ({one.role})",
                format_share(one.busy),
                format_share(one.user_seconds / one.seconds),
                format_share(one.system_seconds / one.seconds),
                format_share(one.stalled),
                format_ns(each * 1e9) if each else "-",
                f"{format_count(1 / each)} IOPS" if serves and each else "",
            )
        )
    return Records(columns, rows)
