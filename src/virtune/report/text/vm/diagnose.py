# SPDX-License-Identifier: Apache-2.0
"""A diagnosis for a terminal: what limits a disk, where the time of a request goes, what its threads cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from virtune.model.bottleneck import EMULATED_WORDS, Cause, DataPath, Diagnosis, verdict_words
from virtune.model.threads import ThreadCost
from virtune.model.units import format_bandwidth, format_count, format_ns, format_seconds, format_share
from virtune.report.text.layout import Column, Paragraph, Records
from virtune.report.text.vm.guideline import guideline_lines
from virtune.report.text.vm.layers import layers_table, operations_table
from virtune.report.text.vm.proof import proof_lines

_SHOWN = 0.005
"""Threads that used less of a CPU than this, and waited for one for less than this share of the time, are left out.
"""

_THREADS_MAX = 12

_THREAD_WORDS = "no CPU: it could have run and had none; ends at: the IOPS at which it would use a whole CPU"


def render(found: Sequence[Diagnosis]) -> Group:
    """Lay out diagnoses one below the other."""
    return Group(*(part for _, part in _parts(found)))


_LEFT_OUT = {
    "guideline": "the guideline", "threads": "its threads", "layers": "its layers", "load": "its load as a workload",
    "operations": "its operations",
    "accused": "what was seen before the test", "unseen": "what was not seen", "evidence": "the evidence",
}  # fmt: skip
"""The parts of a diagnosis that a screen can do without, the least needed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisScreen:
    """Diagnoses within `lines` lines (None: no limit): what does not fit is left out, and named."""

    found: Sequence[Diagnosis]
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Leave out one kind of part after the other until the rest fits; verdicts always stay."""
        parts = list(_parts(self.found))
        gone: list[str] = []

        def height() -> int:
            return sum(len(console.render_lines(part, options, pad=False)) for _, part in parts) + bool(gone)

        for name, words in _LEFT_OUT.items():
            if self.lines is None or height() <= self.lines:
                break
            if any(kind == name for kind, _ in parts):
                parts = [(kind, part) for kind, part in parts if kind != name]
                gone.append(words)
        if gone:
            parts = [
                *parts[:-1],
                ("", Paragraph(Text(f"left out here (-v shows it): {', '.join(gone)}", style="dim"))),
            ]
        yield Group(*(part for _, part in parts))


def _parts(found: Sequence[Diagnosis]) -> Iterator[tuple[str, RenderableType]]:
    """Yield the parts of diagnoses, each with the kind of what it is; what has none is always shown. What was seen of
    none of several disks is said once, below them.
    """
    shared = [line for line in found[0].missing if all(line in one.missing for one in found)] if found[1:] else []
    for one in found:
        yield from _one(one, shared)
    yield from (("unseen", _unseen(line)) for line in shared)
    if shared:
        yield "", Text("")


def _unseen(line: str) -> Paragraph:
    return Paragraph(Text(f"not seen: {line}", style="yellow"), hanging=2)


def _one(one: Diagnosis, shared: Sequence[str]) -> Iterator[tuple[str, RenderableType]]:
    path = one.path
    title = Text(one.disk, style="bold").append(f"  {one.workload}", style="not bold dim")
    yield "", Paragraph(title, hanging=2)
    rates = f"{format_count(path.iops)} IOPS, {format_bandwidth(path.bandwidth)}"
    which = f" in one of {one.found.of} rounds" if one.found.of > 1 else ""
    yield "", Text(f"{rates}, seen for {format_seconds(one.seconds)}{which}", style="dim")
    if path.emulated:
        yield "", Paragraph(Text(EMULATED_WORDS, style="yellow"), hanging=2)
    if any(each.mean_ns is not None for each in path.operations):
        yield "operations", operations_table(path.operations)
    proved = list(proof_lines(one))
    yield from (("", part) for part in proved)
    yield ("accused" if proved else ""), _verdict(one)
    evidence = "accused" if proved else "evidence"
    for line in one.found.evidence:
        yield evidence, Paragraph(Text(line), indent=2, hanging=2)
    yield evidence, Paragraph(Text(f"next: {one.found.experiment}", style="green"), indent=2, hanging=2)
    if one.layers is not None:
        yield "layers", Text("\nwhere the time of a request goes", style="bold")
        yield from (("layers", part) for part in layers_table(one.layers))
    yield from (("layers", Paragraph(Text(line), indent=2, hanging=2)) for line in varies(one))
    threads = shown_threads(path.threads)
    if threads and (path.iops > 0 or not shared):  # beside other disks an idle one has nothing to do with them
        yield "threads", Text("\nthreads", style="bold")
        yield "threads", _threads(threads, path)
        yield "threads", Paragraph(Text(_THREAD_WORDS, style="dim"), indent=2, hanging=2)
    if one.exits_per_io is not None:
        yield "threads", Text(f"  {exits_text(one.exits_per_io)}")
    if one.guideline is not None:
        yield from (("guideline", part) for part in guideline_lines(one.guideline))
    elif one.no_guideline:
        yield "guideline", Paragraph(Text(f"no tuning guideline here: {one.no_guideline}", style="dim"), hanging=2)
    if one.rate:
        yield from (("load", part) for part in _load(one))
    yield from (("unseen", _unseen(line)) for line in one.missing if line not in shared)
    yield "", Text("")


def _load(one: Diagnosis) -> Iterator[RenderableType]:
    yield Text("\nits load as a workload", style="bold")
    again = Text(f"  {load_again(one)}")
    again.no_wrap, again.overflow = True, "ignore"
    yield again
    yield Paragraph(Text(load_known(one), style="dim"), indent=2, hanging=2)


def load_again(one: Diagnosis) -> str:
    """Return the command that compares engines under the load that was seen."""
    return f"virtune compare --vary disk.aio=threads,native,io_uring --workload '{one.workload}'"


def load_known(one: Diagnosis) -> str:
    """Say how well that load is known."""
    places = "random places are assumed"
    if one.sequential is not None:
        places = f"by its virtqueue {format_share(one.sequential)} of requests follow those before them on the disk"
    return f"with `,{one.rate}` at its rate; from counters: sizes are means; {places}"


def exits_text(each: float) -> str:
    """Say how often KVM left the guest for an I/O."""
    return f"KVM exits per I/O: {each:.2g}"


def varies(one: Diagnosis) -> Iterator[str]:
    """Yield the split of the time at the host's disk as a sentence, where it is known."""
    if one.queue is not None:
        told = f"{format_ns(one.queue.queue_ns)} in its queue, {format_ns(one.queue.device_ns)} in the device"
        yield f"of a request at the host's disk: {told}"


def _verdict(one: Diagnosis) -> RenderableType:
    found = one.found
    style = {Cause.UNDECIDED: "bold yellow", Cause.NOT_BOUND: "bold green"}.get(found.cause, "bold red")
    text = Text(verdict_words(found.cause), style=style)
    if found.of > 1:
        text.append(f"  (in {found.rounds} of {found.of} rounds)", style="not bold dim")
    return Paragraph(text, hanging=2)


def shown_threads(threads: Sequence[ThreadCost]) -> list[ThreadCost]:
    """Return the active threads, the busiest first, at most a dozen."""
    busy = [one for one in threads if one.busy >= _SHOWN or one.stalled >= _SHOWN]
    return sorted(busy, key=lambda one: -one.cpu_seconds)[:_THREADS_MAX]


def _threads(threads: Sequence[ThreadCost], path: DataPath) -> Records:
    titles = ("CPU", "usr", "sys", "no CPU", "CPU per I/O", "sleeps per I/O", "ends at")
    columns = [Column(title="thread"), *(Column(title=title, right=True) for title in titles)]
    rows = []
    for one in threads:
        iops = path.iops_of(one)
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
                sleeps_text(one, iops),
                f"{format_count(1 / each)} IOPS" if serves and each else "",
            )
        )
    return Records(columns, rows)


def sleeps_text(thread: ThreadCost, iops: float) -> str:
    """Say how often a thread sleeps for each I/O."""
    return "-" if thread.sleeps is None or not iops else f"{thread.sleeps / thread.seconds / iops:.2g}"
