# SPDX-License-Identifier: Apache-2.0
"""The page of a proof: the verdict on an accusation above the page of the comparison behind it."""

from dataclasses import replace

from virtune.model.bottleneck import CAUSE_WORDS, Diagnosis
from virtune.model.evidence import StudyRecord
from virtune.model.proof import ProofOutcome
from virtune.model.result import Result
from virtune.report.html.page import MARKS, ReportPage, VerdictLine, page_of
from virtune.report.text.vm.proof import headline, proof_sentences

_MARKS = {ProofOutcome.CONFIRMED: "better", ProofOutcome.REFUTED: "worse"}


def proof_page(one: Diagnosis, result: Result, record: StudyRecord) -> ReportPage:
    """Return the page."""
    page = page_of(result, record)
    if one.proof is None:
        return page
    word = _MARKS.get(one.proof.outcome, "undecided")
    first = VerdictLine(verdict=word, mark=MARKS[word], sentence=headline(one, one.proof))
    lines = (*one.found.evidence, *proof_sentences(one.proof))
    return replace(
        page,
        question=f"Is {CAUSE_WORDS[one.found.cause]} what limits {one.disk} under {one.workload}?",
        verdicts=(first, *(VerdictLine(verdict="", mark="", sentence=line) for line in lines), *page.verdicts),
    )
