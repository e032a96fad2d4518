# SPDX-License-Identifier: Apache-2.0
"""A path through a guideline, for a terminal: every question with its answer, and the advice at the end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.guideline import Guideline, Leaf, OwnShare, Walk, open_ends
from virtune.report.text.layout import Column, Paragraph, Records


def guideline_lines(found: Walk) -> Iterator[RenderableType]:
    """Yield the title, a line for each question, and the leaf with what was published of it."""
    yield from _title(found.guideline)
    for question, answer, why in answers(found):
        told = f" ({why})" if why else ""
        yield Paragraph(Text(f"{question} {answer}{told}"), indent=2, hanging=2)
    yield Paragraph(Text(f"so: {found.leaf.text}", style="bold"), indent=2, hanging=2)
    yield from _details(published_of(found.leaf))


def open_lines(found: Walk, own: Mapping[str, Sequence[OwnShare]]) -> Iterator[RenderableType]:
    """Yield the title, the questions with their answers, and every leaf that these leave open: what was published of
    it, and what this host's own studies measured (`own`, by leaf).
    """
    yield from _title(found.guideline)
    ends = open_ends(found.guideline, found.answers)
    for fork in found.guideline.forks:
        known = found.answers.get(fork.id)
        if known is not None:
            yield Paragraph(Text(f"{fork.text} {'yes' if known[0] else 'no'}"), indent=2, hanging=2)
        elif any(f"{fork.id}=" in where for _, where in ends):
            yield Paragraph(Text(f"{fork.text} not said ({fork.id}=yes|no)"), indent=2, hanging=2)
    for leaf, where in ends:
        so = f"with {where}: " if where else "so: "
        yield Paragraph(Text(f"{so}{leaf.text}", style="bold"), indent=2, hanging=2)
        yield from _details((*published_of(leaf), *map(_measured, own.get(leaf.id, ()))))


def _title(guideline: Guideline) -> Iterator[RenderableType]:
    yield Text(f"\nguideline: {guideline.title}", style="bold")
    yield Paragraph(Text(guideline.source, style="dim"), indent=2, hanging=2)


def _details(lines: Iterable[str]) -> Iterator[RenderableType]:
    yield from (Paragraph(Text(line), indent=4, hanging=2) for line in lines)


def _measured(one: OwnShare) -> str:
    share = f"{one.ratio.estimate:.2f} [{one.ratio.low:.2f}, {one.ratio.high:.2f}]"
    text = f"{share} of this host's disk without QEMU, in IOPS under {one.workload}"
    without = "; its guests ran without KVM, so this is the emulator's share" if one.emulated else ""
    return f"measured here: {text} ({one.rounds} rounds, arm {one.arm} of study {one.study}){without}"


def every_end(guideline: Guideline) -> Iterator[RenderableType]:
    """Yield a table of all ends of a guideline: the answers that lead to each, what was published of it, and what
    there is to manage.
    """
    yield Text("\nall of them", style="bold")
    table = Records([
        Column(title="structure", wraps=True, least=18), Column(title="where", wraps=True, least=16),
        Column(title="published", wraps=True, least=16), Column(title="to manage", wraps=True, least=18),
    ])  # fmt: skip
    for leaf, where in open_ends(guideline, {}):
        table.add_row(leaf.text, where, leaf.expected, leaf.cost)
    yield table


def answers(found: Walk) -> Iterator[tuple[str, str, str]]:
    """Yield each question with its answer and what the answer rests on, empty where it was given."""
    for step in found.steps:
        yield step.question.text, "yes" if step.yes else "no", step.evidence or ("assumed" if step.assumed else "")


def published_of(leaf: Leaf) -> Iterator[str]:
    """Yield what was published of a leaf."""
    for label, words in (("published", leaf.expected), ("to manage", leaf.cost), ("written", leaf.written)):
        if words:
            yield f"{label}: {words}"
    if leaf.ours:
        yield "this leaf is virtune's, not the study's"
