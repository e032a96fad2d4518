# SPDX-License-Identifier: Apache-2.0
"""The verdict on an accusation as GitHub's Markdown: the answer and its evidence, then the comparison behind it."""

from collections.abc import Iterator

from virtune.model.bottleneck import Diagnosis
from virtune.model.result import Result
from virtune.report.markdown import markdown, plain
from virtune.report.text.vm.proof import headline, proof_sentences


def proof_markdown(one: Diagnosis, result: Result | None, facts: str = "") -> str:
    """Return the verdict as Markdown, ending in a newline; `result` is the comparison's, None where none ran."""
    return "\n".join([*_answer(one), "" if result is None else markdown(result, (), facts)]).rstrip("\n") + "\n"


def _answer(one: Diagnosis) -> Iterator[str]:
    if one.proof is None:
        return
    yield f"### virtune: {plain(headline(one, one.proof))}\n"
    yield f"{plain(one.disk)} under {plain(one.workload)}\n"
    yield "The diagnosis said:\n"
    yield from (f"* {plain(line)}" for line in one.found.evidence)
    yield "\nThe proof:\n"
    yield from (f"* {plain(line)}" for line in proof_sentences(one.proof))
    yield ""
