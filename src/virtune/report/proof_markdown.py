# SPDX-License-Identifier: Apache-2.0
"""The verdict on an accusation as GitHub's Markdown: the answer and its evidence, then the comparison behind it."""

from collections.abc import Iterator

from virtune.model.bottleneck import Diagnosis
from virtune.model.result import Result
from virtune.report.markdown import heading, items, line, markdown
from virtune.report.text.vm.proof import headline, proof_sentences


def proof_markdown(one: Diagnosis, result: Result | None, facts: str = "") -> str:
    """Return the verdict as Markdown, ending in a newline; `result` is the comparison's, None where none ran."""
    return "\n".join([*_answer(one), "" if result is None else markdown(result, (), facts)]).rstrip("\n") + "\n"


def _answer(one: Diagnosis) -> Iterator[str]:
    if one.proof is None:
        return
    yield heading(3, f"virtune: {headline(one, one.proof)}")
    yield f"{line(f'{one.disk} under {one.workload}')}\n"
    yield "The diagnosis said:\n"
    yield from items(one.found.evidence)
    yield "\nThe proof:\n"
    yield from (*items(proof_sentences(one.proof)), "")
