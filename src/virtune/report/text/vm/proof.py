# SPDX-License-Identifier: Apache-2.0
"""The verdict on an accusation, in lines: what was replaced, what that changed, what was to be expected."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from virtune.model.bottleneck import CAUSE_WORDS, Diagnosis
from virtune.model.metric import BY_ID
from virtune.model.proof import Proof, ProofOutcome
from virtune.model.units import format_share
from virtune.model.verdict import Interval
from virtune.report.text.layout import Paragraph
from virtune.report.text.words import change_words, count_text, difference_text

_STYLE = {
    ProofOutcome.CONFIRMED: "bold green",
    ProofOutcome.REFUTED: "bold red",
    ProofOutcome.UNDECIDED: "bold yellow",
    ProofOutcome.UNTESTED: "bold yellow",
}


def headline(one: Diagnosis, proof: Proof) -> str:
    """Return the verdict in a line."""
    accused = CAUSE_WORDS[one.found.cause]
    match proof.outcome:
        case _ if not one.found.cause.accuses:
            return "not tested: nothing is accused"
        case ProofOutcome.CONFIRMED:
            return f"confirmed: limited by {accused}"
        case ProofOutcome.REFUTED:
            return f"refuted: not limited by {accused}"
        case ProofOutcome.UNDECIDED:
            return f"undecided whether it is limited by {accused}"
        case ProofOutcome.UNTESTED:
            return f"not tested: whether it is limited by {accused}"


def proof_sentences(proof: Proof) -> Iterator[str]:
    """Yield the evidence of a verdict, a sentence each."""
    if proof.what:
        yield f"replaced by {proof.what}: {_changed(proof, proof.change)} in {count_text(proof.rounds, 'round')}"
        yield f"expected: {_expected(proof)}"
    if proof.stand_in is not None:
        yield f"with a device of the same mean latency: {_changed(proof, proof.stand_in)}"
    yield proof.why
    yield from proof.notes
    if proof.by_hand:
        yield f"by hand: {proof.by_hand}"


def proof_lines(one: Diagnosis) -> Iterator[RenderableType]:
    """Yield the verdict for a terminal, with its evidence below."""
    proof = one.proof
    if proof is None:
        return
    yield Paragraph(Text(headline(one, proof), style=_STYLE[proof.outcome]), hanging=2)
    for line in proof_sentences(proof):
        yield Paragraph(Text(line), indent=2, hanging=2)
    if proof.study:
        yield Paragraph(Text(f"its comparison: `virtune show {proof.study}`", style="dim"), indent=2, hanging=2)
    yield Text("")


def _changed(proof: Proof, change: Interval | None) -> str:
    label = BY_ID[proof.metric].label
    return f"{label} could not be compared" if change is None else f"{label} {difference_text(change)}"


def _expected(proof: Proof) -> str:
    """Say which change the accusation promises."""
    least = proof.least or 1.0
    most = "at most" if least < 1 else "at least"
    said = f"{most} {change_words(least)}"
    if proof.share is None:
        return f"{said}: the direction is known, the size is not"
    return f"{said}, half of what its {format_share(proof.share)} of an I/O's time makes"
