# SPDX-License-Identifier: Apache-2.0
"""One look at the disks of this host's VMs, for a terminal or a pipe."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from virtune.model.bottleneck import CAUSE_WORDS, EMULATED_WORDS, Cause, verdict_words
from virtune.model.frame import DiskFrame, TopFrame
from virtune.model.units import format_seconds, format_share
from virtune.report.text.layout import Paragraph
from virtune.report.text.words import count_text
from virtune.report.top.tables import LETTERS, SORT_FIRST, bar_of, head_line, row_line, rows_of, table


class TopText:
    """The disks of a frame, a line each, with what could not be seen."""

    def __init__(self, frame: TopFrame) -> None:
        self.frame = frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay it out at the width there is."""
        frame = self.frame
        yield Text(f"{self._disks()}, seen for {format_seconds(frame.seconds)}; {host_words(frame)}", style="dim")
        shown = table("disks", rows_of("disks", frame), sort=SORT_FIRST["disks"])
        if shown.rows:
            yield _whole(head_line(shown, options.max_width))
        for row in shown.rows:
            yield _whole(row_line(shown, row, options.max_width))
            yield from (Paragraph(Text(line, style="dim"), indent=3, hanging=2) for line in _why(row))
        if any(bar_of(row.path.layers, 1).plain for row in shown.rows):
            yield Paragraph(legend(), indent=1, hanging=1)
        if frame.emulated:
            yield Paragraph(Text(f"{', '.join(frame.emulated)}: {EMULATED_WORDS}", style="yellow"), hanging=2)
        for line in frame.missing:
            yield Paragraph(Text(f"not seen: {line}", style="yellow"), hanging=2)

    def _disks(self) -> str:
        return f"{count_text(len(self.frame.disks), 'disk')} of {count_text(len(self.frame.vms), 'running VM')}"


def _why(row: DiskFrame) -> Iterator[str]:
    """Yield what limits a disk with its first evidence, and what else is known of it: stalls, limits, others."""
    cause = row.found.cause
    if row.path.iops <= 0 and not cause.accuses and not row.path.held and not row.path.failed:
        return
    words = CAUSE_WORDS[cause] if cause is Cause.UNDECIDED else verdict_words(cause)
    yield f"{words}: {row.found.evidence[0]}"
    yield from row.found.evidence[1:]


def legend() -> Text:
    """Return what the letters of a bar stand for."""
    text = Text()
    for letter, (words, style) in LETTERS.items():
        text.append(", " if text.plain else "").append(letter, style=style).append(f" {words}")
    return text


def host_words(frame: TopFrame) -> str:
    """Return how busy the host was, in a clause."""
    cpu = frame.host.cpu
    if cpu is None:
        return "host CPUs unknown"
    parts = [f"host CPUs {format_share(cpu.busy_percent / 100)} busy"]
    parts += list(_beside(frame, cpu.steal_percent))
    return ", ".join(parts)


def _beside(frame: TopFrame, steal: float) -> Iterator[str]:
    if steal >= 1:
        yield f"steal {format_share(steal / 100)}"
    if frame.host.foreign_cpus is not None and any(vm.seen for vm in frame.vms):
        yield f"others than these VMs used {frame.host.foreign_cpus:.1f} CPUs"


def _whole(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text
