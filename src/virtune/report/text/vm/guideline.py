# SPDX-License-Identifier: Apache-2.0
"""A path through a guideline, for a terminal: every question with its answer, and the advice at the end."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.guideline import Guideline, Leaf, OwnShare, Walk
from virtune.report.text.layout import Column, Paragraph, Records


def guideline_lines(found: Walk, own: Sequence[OwnShare] = ()) -> Iterator[RenderableType]:
    """Yield the title, a line for each question, and the leaf with what was published of it, and what this host's own
    studies measured of it.
    """
    title = Text(f"\nguideline: {found.guideline.title}", style="bold")
    yield title
    yield Paragraph(Text(found.guideline.source, style="dim"), indent=2, hanging=2)
    for question, answer, why in answers(found):
        told = f" ({why})" if why else ""
        yield Paragraph(Text(f"{question} {answer}{told}"), indent=2, hanging=2)
    yield Paragraph(Text(f"so: {found.leaf.text}", style="bold"), indent=2, hanging=2)
    yield from (Paragraph(Text(line), indent=4, hanging=2) for line in published_of(found))
    for one in own:
        ratio = one.ratio
        share = f"{ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        text = f"{share} of this host's disk without QEMU, in IOPS under {one.workload}"
        source = f"{one.rounds} rounds, arm {one.arm} of study {one.study}"
        without = "; its guests ran without KVM, so this is the emulator's share" if one.emulated else ""
        yield Paragraph(Text(f"measured here: {text} ({source}){without}"), indent=4, hanging=2)


def every_end(guideline: Guideline) -> Iterator[RenderableType]:
    """Yield a table of all ends of a guideline: the answers that lead to each, what was published of it, and what
    there is to manage.
    """
    yield Text("\nall of them", style="bold")
    table = Records([
        Column(title="structure", wraps=True, least=18), Column(title="where", wraps=True, least=16),
        Column(title="published", wraps=True, least=16), Column(title="to manage", wraps=True, least=18),
    ])  # fmt: skip
    for leaf, path in _paths(guideline, guideline.root, ()):
        table.add_row(leaf.text, ", ".join(path), leaf.expected, leaf.cost)
    yield table


def _paths(guideline: Guideline, node: str, path: tuple[str, ...]) -> Iterator[tuple[Leaf, tuple[str, ...]]]:
    """Yield each end below a node, with the answers that lead there."""
    here = guideline.nodes[node]
    if isinstance(here, Leaf):
        yield here, path
        return
    for to, answer in ((here.yes, "yes"), (here.no, "no")):
        yield from _paths(guideline, to, (*path, f"{here.id}={answer}"))


def answers(found: Walk) -> Iterator[tuple[str, str, str]]:
    """Yield each question with its answer and what the answer rests on, empty where it was given."""
    for step in found.steps:
        yield step.question.text, "yes" if step.yes else "no", step.evidence or ("assumed" if step.assumed else "")


def published_of(found: Walk) -> Iterator[str]:
    """Yield what was published of the leaf that was reached."""
    leaf = found.leaf
    for label, words in (("published", leaf.expected), ("to manage", leaf.cost), ("written", leaf.written)):
        if words:
            yield f"{label}: {words}"
    if leaf.ours:
        yield "this leaf is virtune's, not the study's"
