# SPDX-License-Identifier: Apache-2.0
"""A diagnosis for a terminal: what limits a disk, where the time of a request goes, what its threads cost, what a
proof and a guideline say of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from virtune.model import bottleneck
from virtune.model.bottleneck import WorstSecond
from virtune.model.counters import ThreadCost
from virtune.model.live import Layers, Operation, TailBin
from virtune.model.metric import BY_ID
from virtune.model.text import format_bandwidth, format_count, format_ns, format_seconds, format_share
from virtune.model.verdict import Interval, Proof, ProofOutcome
from virtune.report.render.terminal import (
    Paragraph,
    Table,
    heading,
    height_of,
    paragraph,
    paragraphs,
    pasted,
    right,
    wide,
)
from virtune.report.words import change_words, count_text, difference_text

_ESXTOP = (
    ("gavg_ns", "GAVG", "the guest's request"),
    ("qavg_ns", "QAVG", "waits"),
    ("kavg_ns", "KAVG", "hypervisor"),
    ("davg_ns", "DAVG", "device"),
)


def operations_table(found: Sequence[Operation], caption: str = "") -> Table:
    told = next((one.tail for one in found if one.tail), ())
    ends = right(*(f"p{each.percent:g}" for each in told))
    table = Table(["requests", *right("a second", "bandwidth", "mean"), *ends, *right("in flight")], caption=caption)
    for one in found:
        if one.mean_ns is not None:
            moved = format_bandwidth(one.bandwidth) if one.bandwidth else "-"
            tail = [tail_text(each) for each in one.tail] or ["-"] * len(told)
            flying = in_flight_text(one.in_flight)
            table.add_row(one.words, format_count(one.iops), moved, format_ns(one.mean_ns), *tail, flying)
    return table


def tail_text(one: TailBin) -> str:
    if one.high_ns is None:
        return f"over {format_ns(one.low_ns)}"
    return f"{format_ns(one.low_ns)} to {format_ns(one.high_ns)}" if one.low_ns else f"below {format_ns(one.high_ns)}"


def worst_text(one: WorstSecond) -> str:
    return (
        f"worst second: number {one.number}, {format_ns(one.mean_ns)} each of {count_text(one.requests, 'request')}"
    )


def layers_table(found: Layers, caption: str = "") -> Table:
    interval = "95 % interval" if found.rounds > 1 else ""
    table = Table([*wide("layer"), *right("mean", interval, "share", "in flight")], caption=caption)
    for one in found.layers:
        known = one.low_ns is not None and one.high_ns is not None
        ends = f"[{format_ns(one.low_ns or 0)}, {format_ns(one.high_ns or 0)}]" if known else ""
        flying = in_flight_text(one.in_flight)
        table.add_row(one.label, format_ns(one.mean_ns), ends, format_share(one.share), flying)
    seen = "latency seen by the load" if found.top == "application" else "all that was seen"
    flying = in_flight_text(sum(one.in_flight for one in found.layers))
    table.add_row(*(Text(word, "bold") for word in (seen, format_ns(found.total_ns), "", "100 %", flying)))
    if found.idle is not None and found.idle >= 0.05:
        table.add_row("not handed over by the load", "", "", "", in_flight_text(found.idle))
    return table


def layers_words(found: Layers) -> Iterator[RenderableType]:
    over = "one round" if found.rounds == 1 else f"means over {count_text(found.rounds, 'round')}"
    yield paragraph(f"{over}; in flight: rate x time (Little's law)", "dim", indent=2)
    values = ((name, words, getattr(found, field)) for field, name, words in _ESXTOP)
    told = [f"{name} {format_ns(value)} ({words})" for name, words, value in values if value is not None]
    yield from paragraphs([f"in esxtop's terms: {', '.join(told)}"] if told else [])
    yield from paragraphs(found.reasons, "dim")


def in_flight_text(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"


_STYLE = {ProofOutcome.CONFIRMED: "bold green", ProofOutcome.REFUTED: "bold red"}


def proof_headline(one: bottleneck.Diagnosis, proof: Proof) -> str:
    accused = one.found.cause.words
    words = {
        ProofOutcome.CONFIRMED: f"confirmed: limited by {accused}",
        ProofOutcome.REFUTED: f"refuted: not limited by {accused}",
        ProofOutcome.UNDECIDED: f"undecided whether it is limited by {accused}",
        ProofOutcome.UNTESTED: f"not tested: whether it is limited by {accused}",
    }
    return words[proof.outcome] if one.found.cause.accuses else "not tested: nothing is accused"


def proof_sentences(proof: Proof) -> Iterator[str]:
    if proof.what:
        yield f"replaced by {proof.what}: {_changed(proof, proof.change)} in {count_text(proof.rounds, 'round')}"
        least = proof.least or 1.0
        promised = f"{'at most' if least < 1 else 'at least'} {change_words(least)}"
        size = ": the direction is known, the size is not"
        if proof.share is not None:
            size = f", half of what its {format_share(proof.share)} of an I/O's time makes"
        yield f"expected: {promised}{size}"
    if proof.stand_in is not None:
        yield f"with a device of the same mean latency: {_changed(proof, proof.stand_in)}"
    yield proof.why
    yield from proof.notes
    if proof.by_hand:
        yield f"by hand: {proof.by_hand}"


def proof_lines(one: bottleneck.Diagnosis) -> Iterator[RenderableType]:
    proof = one.proof
    if proof is None:
        return
    yield paragraph(proof_headline(one, proof), _STYLE.get(proof.outcome, "bold yellow"))
    yield from paragraphs(proof_sentences(proof))
    yield from paragraphs([f"its comparison: `virtune show {proof.study}`"] if proof.study else [], "dim")
    yield Text("")


def _changed(proof: Proof, change: Interval | None) -> str:
    label = BY_ID[proof.metric].label
    return f"{label} could not be compared" if change is None else f"{label} {difference_text(change)}"


def guideline_lines(found: bottleneck.Walk) -> Iterator[RenderableType]:
    yield from _title(found.guideline)
    told = (f"{question} {answer}{f' ({why})' if why else ''}" for question, answer, why in answers(found))
    yield from (*paragraphs(told), paragraph(f"so: {found.leaf.text}", "bold", indent=2))
    yield from paragraphs(published_of(found.leaf), indent=4)


def open_lines(found: bottleneck.Walk, own: Mapping[str, Sequence[bottleneck.OwnShare]]) -> Iterator[RenderableType]:
    """Yield a guideline with what is answered and each leaf left open; `own` are this host's own figures, by leaf."""
    yield from _title(found.guideline)
    ends = bottleneck.open_ends(found.guideline, found.answers)
    for fork in found.guideline.forks:
        known = found.answers.get(fork.id)
        if known is not None:
            yield paragraph(f"{fork.text} {'yes' if known[0] else 'no'}", indent=2)
        elif any(f"{fork.id}=" in where for _, where in ends):
            yield paragraph(f"{fork.text} not said ({fork.id}=yes|no)", indent=2)
    for leaf, where in ends:
        so = f"with {where}: " if where else "so: "
        yield paragraph(f"{so}{leaf.text}", "bold", indent=2)
        yield from paragraphs((*published_of(leaf), *map(_measured, own.get(leaf.id, ()))), indent=4)


def _title(guideline: bottleneck.Guideline) -> Iterator[RenderableType]:
    yield heading(f"guideline: {guideline.title}")
    yield paragraph(guideline.source, "dim", indent=2)


def _measured(one: bottleneck.OwnShare) -> str:
    share = f"{one.ratio.estimate:.2f} [{one.ratio.low:.2f}, {one.ratio.high:.2f}]"
    text = f"{share} of this host's disk without QEMU, in IOPS under {one.workload}"
    without = "; its guests ran without KVM, so this is the emulator's share" if one.emulated else ""
    return f"measured here: {text} ({one.rounds} rounds, arm {one.arm} of study {one.study}){without}"


def every_end(guideline: bottleneck.Guideline) -> Iterator[RenderableType]:
    yield heading("all of them")
    columns = [*wide("structure", least=18), *wide("where", "published", least=16), *wide("to manage", least=18)]
    yield Table(
        columns, [(leaf.text, where, leaf.expected, leaf.cost) for leaf, where in bottleneck.open_ends(guideline, {})]
    )


def answers(found: bottleneck.Walk) -> Iterator[tuple[str, str, str]]:
    """Yield each question with its answer and what the answer rests on, empty where it was given."""
    for step in found.steps:
        yield step.question.text, "yes" if step.yes else "no", step.evidence or ("assumed" if step.assumed else "")


def published_of(leaf: bottleneck.Leaf) -> Iterator[str]:
    for label, words in (("published", leaf.expected), ("to manage", leaf.cost), ("written", leaf.written)):
        if words:
            yield f"{label}: {words}"
    if leaf.ours:
        yield "this leaf is virtune's, not the study's"


_SHOWN = 0.005
"""Threads that used less of a CPU than this, and waited for one for less than this share of the time, are left out.
"""

_THREADS_MAX = 12

_THREAD_WORDS = "no CPU: it could have run and had none; ends at: the IOPS at which it would use a whole CPU"


def render(found: Sequence[bottleneck.Diagnosis]) -> Group:
    return Group(*(part for _, part in _parts(found)))


_LEFT_OUT = {
    "guideline": "the guideline", "threads": "its threads", "layers": "its layers", "load": "how to repeat its load",
    "operations": "its operations",
    "accused": "what was seen before the test", "unseen": "what was not seen", "evidence": "the evidence",
}  # fmt: skip
"""The parts of a diagnosis that a screen can do without, the least needed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisScreen:
    """Diagnoses within `lines` lines (None: no limit): what does not fit is left out, and named."""

    found: Sequence[bottleneck.Diagnosis]
    lines: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Leave out one kind of part after the other until the rest fits; verdicts always stay."""
        parts = [(kind, part) for kind, part in _parts(self.found) if kind != "hypotheses"]
        height = height_of(console, options)
        gone: list[str] = []
        for name, words in _LEFT_OUT.items():
            if self.lines is None or height([part for _, part in parts]) + bool(gone) <= self.lines:
                break
            if any(kind == name for kind, _ in parts):
                parts = [(kind, part) for kind, part in parts if kind != name]
                gone.append(words)
        if gone:
            left_out = Paragraph(Text(f"left out here (-v shows it): {', '.join(gone)}", style="dim"))
            parts[-1] = ("", left_out)
        yield Group(*(part for _, part in parts))


def _parts(found: Sequence[bottleneck.Diagnosis]) -> Iterator[tuple[str, RenderableType]]:
    """Yield the parts of diagnoses, each with the kind of what it is; what has none is always shown. What was seen of
    none of several disks is said once, below them.
    """
    shared = [line for line in found[0].missing if all(line in one.missing for one in found)] if found[1:] else []
    for one in found:
        yield from _one(one, shared)
    yield from (("unseen", paragraph(f"not seen: {line}", "yellow")) for line in shared)
    if shared:
        yield "", Text("")


def _one(one: bottleneck.Diagnosis, shared: Sequence[str]) -> Iterator[tuple[str, RenderableType]]:
    path = one.path
    yield "", paragraph(Text(one.disk, style="bold").append(f"  {one.workload}", style="not bold dim"))
    which = f" in one of {one.found.of} rounds" if one.found.of > 1 else ""
    yield "", Text(f"{rates_text(one)}{which}", style="dim")
    if path.emulated:
        yield "", paragraph(bottleneck.EMULATED_WORDS, "yellow")
    if any(each.mean_ns is not None for each in path.operations):
        yield "operations", operations_table(path.operations)
    if one.worst is not None:
        yield "operations", paragraph(worst_text(one.worst), "dim")
    proved = list(proof_lines(one))
    yield from (("", part) for part in proved)
    cause, rounds = one.found.cause, f"  (in {one.found.rounds} of {one.found.of} rounds)"
    style = "bold red" if cause.accuses else "bold yellow" if cause is bottleneck.Cause.UNDECIDED else "bold green"
    verdict = Text(one.found.claim, style=style).append(rounds if one.found.of > 1 else "", "not bold dim")
    yield ("accused" if proved else ""), paragraph(verdict)
    evidence = "accused" if proved else "evidence"
    yield from ((evidence, part) for part in paragraphs(one.found.evidence))
    yield evidence, paragraph(f"next: {one.found.experiment}", "green", indent=2)
    if one.found.hypotheses:
        yield "hypotheses", heading("what may limit it, the likeliest first")
        yield from (("hypotheses", part) for part in _hypotheses(one.found.hypotheses))
    if one.layers is not None:
        yield "layers", heading("where the time of a request goes")
        yield from (("layers", part) for part in (layers_table(one.layers), *layers_words(one.layers)))
    yield from (("layers", part) for part in paragraphs(varies(one)))
    threads = shown_threads(path.threads)
    if threads and (path.iops > 0 or not shared):  # beside other disks an idle one has nothing to do with them
        yield "threads", heading("threads")
        yield "threads", threads_table(threads, path)
        yield "threads", paragraph(_THREAD_WORDS, "dim", indent=2)
    if one.exits_per_io is not None:
        yield "threads", Text(f"  {exits_text(one.exits_per_io)}")
    if one.guideline is not None:
        yield from (("guideline", part) for part in guideline_lines(one.guideline))
    elif one.no_guideline:
        yield "guideline", paragraph(f"no tuning guideline here: {one.no_guideline}", "dim")
    if one.rate:
        again = (heading("to repeat its load"), pasted(load_again(one)), *paragraphs([load_known(one)], "dim"))
        yield from (("load", part) for part in again)
    unseen = (paragraph(f"not seen: {line}", "yellow") for line in one.missing if line not in shared)
    yield from (("unseen", part) for part in unseen)
    yield "", Text("")


def _hypotheses(found: Sequence[bottleneck.Hypothesis]) -> Iterator[RenderableType]:
    for one in found:
        if one.supports:
            style = "bold" if one.named else "" if one.stands else "dim"
            yield paragraph(f"{one.name}: {format_share(one.share)}", style, indent=2)
            yield from paragraphs((f"for: {line}" for line in one.supports), style, indent=4)
            yield from paragraphs((f"against: {line}" for line in one.against), style, indent=4)
    unseen = dict.fromkeys(f"{one.name} ({one.unseen})" for one in found if one.unseen and not one.supports)
    if unseen:
        yield paragraph(f"could not be judged: {', '.join(unseen)}", "yellow", indent=2)


def rates_text(one: bottleneck.Diagnosis) -> str:
    rates = f"{format_count(one.path.iops)} IOPS, {format_bandwidth(one.path.bandwidth)}"
    return f"{rates}, seen for {format_seconds(one.seconds)}"


def load_again(one: bottleneck.Diagnosis) -> str:
    """Return the command that compares engines under the load that was seen."""
    how = one.like or "--vary disk.aio=threads,native,io_uring"
    return f"virtune compare {how} --workload '{one.workload}'"


def load_known(one: bottleneck.Diagnosis) -> str:
    order = "order unknown, taken as random"
    if one.sequential is not None:
        order = f"{format_share(one.sequential)} of requests follow those before them on the disk"
    return f"sizes are means; {order}; `,{one.rate}` behind the workload gives its rate"


def exits_text(each: float) -> str:
    return f"KVM exits per I/O: {each:.2g}"


def varies(one: bottleneck.Diagnosis) -> Iterator[str]:
    """Yield the split of the time at the host's disk as a sentence, where it is known."""
    if one.queue is not None:
        told = f"{format_ns(one.queue.queue_ns)} in its queue, {format_ns(one.queue.device_ns)} in the device"
        yield f"of a request at the host's disk: {told}"


def shown_threads(threads: Sequence[ThreadCost]) -> list[ThreadCost]:
    busy = [one for one in threads if one.busy >= _SHOWN or one.stalled >= _SHOWN]
    return sorted(busy, key=lambda one: -one.cpu_seconds)[:_THREADS_MAX]


def threads_table(threads: Sequence[ThreadCost], path: bottleneck.DataPath, caption: str = "") -> Table:
    """Return what each thread of a disk costs; `ends at`: the IOPS at which it would use a whole CPU."""
    titles = ("CPU", "usr", "sys", "no CPU", "CPU per I/O", "sleeps per I/O", "ends at")
    table = Table(["thread", *right(*titles)], caption=caption, notes=[_THREAD_WORDS])
    for one in threads:
        iops = path.iops_of(one)
        each = one.cpu_seconds / one.seconds / iops if iops else 0.0
        serves = one.role in ("iothread", "main", "load")
        table.add_row(
            one.name if one.role in ("vcpu", "iothread") else f"{one.name} ({one.role})",
            *map(
                format_share,
                (one.busy, one.user_seconds / one.seconds, one.system_seconds / one.seconds, one.stalled),
            ),
            format_ns(each * 1e9) if each else "-",
            "-" if one.sleeps is None or not iops else f"{one.sleeps / one.seconds / iops:.2g}",
            f"{format_count(1 / each)} IOPS" if serves and each and one.nears_its_end else "",
        )
    return table
