# SPDX-License-Identifier: Apache-2.0
"""The reasons of verdicts, recommendations and refusals: a code for each, and its words in one place."""

import ast
from pathlib import Path

import pytest

from virtune.model.reason import (
    OF_ADVICE,
    OF_HOSTS,
    OF_RECOMMENDATIONS,
    OF_REFUSALS,
    OF_SWEEPS,
    OF_VERDICTS,
    Reason,
    because,
)

SOURCE = Path(__file__).parents[2] / "src" / "virtune"

PUBLISHED = {
    "better-side", "worse-side", "within-margin", "not-settled", "sign-test", "rank-test", "too-few", "one-run-each",
    "no-value", "no-interval", "no-noise", "too-few-ios", "saturated", "arm-lost", "beyond-limit", "within-limit",
    "crosses-limit", "not-measured",
    "all-break-a-limit", "no-leader", "not-finished", "may-break-a-limit", "baseline-leads", "not-confirmed",
    "unstable", "confirmed", "confirmation-open", "confirmed-no-better", "emulated",
    "nothing-measured", "not-saturated", "too-few-loads", "limit-always-kept", "limit-always-broken",
    "kernel-refuses", "not-supported", "contradiction", "measures-memory", "does-not-start",
    "too-few-trials", "only-large-differences", "false-difference", "mostly-invalid",
    "not-opened-here", "spinning-disk", "durable-cache", "no-io-uring", "no-iothread-on-bus", "free-cpus-unknown",
    "no-free-cpu", "no-setting", "not-writable",
}  # fmt: skip
"""What programs may ask for. A code is added here and in the schema's next number, and none is taken away."""


def test_codes_stay_and_every_one_has_words() -> None:
    assert set(Reason) >= PUBLISHED
    assert all(one.words for one in Reason)
    assert because(Reason.WITHIN_MARGIN, margin="3 %").text == "any difference is smaller than 3 %"
    with pytest.raises(KeyError):
        because(Reason.WITHIN_MARGIN)


def test_every_reason_is_given_somewhere() -> None:
    rooms = ("analyse", "advise", "plan", "flows")
    texts = [path.read_text() for room in rooms for path in (SOURCE / room).rglob("*.py")]
    given = {
        node.attr
        for text in texts
        if "Reason." in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Reason"
    }
    assert given == set(Reason.__members__)


def test_every_code_is_of_one_document() -> None:
    groups = (OF_VERDICTS, OF_RECOMMENDATIONS, OF_SWEEPS, OF_REFUSALS, OF_HOSTS, OF_ADVICE)
    assert sorted(code for group in groups for code in group) == sorted(Reason)
    assert [code.value for code in OF_VERDICTS][-1] == "not-measured", "a verdict's document has no code of a search"


def test_the_words_of_a_verdict_stand_in_one_place() -> None:
    """The statistics say which reason it is, and write no sentence of their own."""
    sentences = {
        node.value
        for path in (SOURCE / "analyse" / "stats").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "whole interval" in node.value
    }
    assert sentences == set()
