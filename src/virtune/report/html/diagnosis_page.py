# SPDX-License-Identifier: Apache-2.0
"""The page of a diagnosis: what limits each disk, the evidence, where a request spends its time, its threads."""

from collections.abc import Iterator, Sequence

from virtune.model.bottleneck import EMULATED_WORDS, Cause, Diagnosis, verdict_words
from virtune.model.units import format_bandwidth, format_count, format_ns, format_seconds, format_share
from virtune.report.charts.chart import Chart
from virtune.report.charts.stacked import times_of
from virtune.report.html.page import MARKS, ReportPage, VerdictLine
from virtune.report.html.table import Table
from virtune.report.text.vm.diagnose import exits_text, load_again, load_known, shown_threads, sleeps_text, varies
from virtune.report.text.vm.guideline import answers, published_of
from virtune.report.text.vm.layers import in_flight_text
from virtune.report.text.words import count_text

_MARKS = {Cause.UNDECIDED: "undecided", Cause.NOT_BOUND: "same"}


def diagnosis_page(found: Sequence[Diagnosis]) -> ReportPage:
    """Return the page of the diagnoses of one or more disks."""
    disks = ", ".join(dict.fromkeys(one.disk for one in found))
    return ReportPage(
        title=f"diagnosis of {count_text(len(found), 'disk')}: {disks}",
        question="What limits these disks under their load?",
        facts=tuple(_facts(found)),
        label="",
        verdicts=tuple(line for one in found for line in _lines(one)),
        settings=None,
        unsettled="A diagnosis looks at a disk as it is, and verifies no settings.",
        warnings=tuple(warning for one in found for warning in _warnings(one)),
        notes=tuple(f"{one.disk}: {line}" for one in found for line in _notes(one)),
        charts=tuple(_charts(found)),
        tables=tuple(table for one in found for table in _tables(one)),
        again="\n".join(f"{load_again(one)}  # {load_known(one)}" for one in found if one.rate),
        unrepeated="A diagnosis changes nothing: look again with `virtune diagnose`.",
        host="not part of this page",
    )


def _facts(found: Sequence[Diagnosis]) -> Iterator[tuple[str, str]]:
    for one in found:
        path = one.path
        rates = f"{format_count(path.iops)} IOPS, {format_bandwidth(path.bandwidth)}"
        yield one.disk, f"{one.workload}: {rates}, seen for {format_seconds(one.seconds)}"


def _lines(one: Diagnosis) -> Iterator[VerdictLine]:
    cause = one.found.cause
    word = _MARKS.get(cause, "worse")
    said = verdict_words(cause)
    said += f" (in {one.found.rounds} of {one.found.of} rounds)" if one.found.of > 1 else ""
    yield VerdictLine(verdict=word, mark=MARKS[word], sentence=f"{one.disk}: {said}")
    for line in (*one.found.evidence, f"next: {one.found.experiment}"):
        yield VerdictLine(verdict="", mark="", sentence=line)


def _warnings(one: Diagnosis) -> Iterator[tuple[str, str]]:
    if one.path.emulated:
        yield "emulated", f"{one.disk}: {EMULATED_WORDS}"
    yield from (("not seen", f"{one.disk}: {line}") for line in one.missing)


def _notes(one: Diagnosis) -> Iterator[str]:
    if one.no_guideline:
        yield f"no tuning guideline here: {one.no_guideline}"
    yield from varies(one)
    if one.exits_per_io is not None:
        yield exits_text(one.exits_per_io)


def _charts(found: Sequence[Diagnosis]) -> Iterator[Chart]:
    """Yield the pictures of each load: disks under one load share them."""
    for workload in dict.fromkeys(one.workload for one in found):
        layers = {one.disk: one.layers for one in found if one.workload == workload and one.layers is not None}
        if (chart := times_of(layers, workload)) is not None:
            yield chart


def _tables(one: Diagnosis) -> Iterator[Table]:
    if one.layers is not None:
        yield Table(
            caption=f"{one.disk}: where the time of a request goes",
            columns=("layer", "mean", "share", "in flight"),
            rows=tuple(
                (layer.label, format_ns(layer.mean_ns), format_share(layer.share), in_flight_text(layer.in_flight))
                for layer in one.layers.layers
            ),
        )
    if threads := shown_threads(one.path.threads):
        rate = one.path.iops_of
        yield Table(
            caption=f"{one.disk}: threads, the busiest first",
            columns=("thread", "kind", "CPU", "usr", "sys", "waiting for a CPU", "CPU per I/O", "sleeps per I/O"),
            rows=tuple(
                (thread.name, thread.role, format_share(thread.busy),
                 format_share(thread.user_seconds / thread.seconds),
                 format_share(thread.system_seconds / thread.seconds), format_share(thread.stalled),
                 format_ns(thread.busy / iops * 1e9) if (iops := rate(thread)) else "-", sleeps_text(thread, iops))
                for thread in threads
            ),
        )  # fmt: skip
    if one.guideline is not None:
        leaf = one.guideline.leaf
        yield Table(
            caption=f"{one.disk}: guideline: {one.guideline.guideline.title} ({one.guideline.guideline.source})",
            columns=("question", "answer", "evidence"),
            rows=(*answers(one.guideline), ("so", leaf.text, "; ".join(published_of(leaf)))),
        )
