# SPDX-License-Identifier: Apache-2.0
"""Conditions for people: each in a sentence, with the interval that it was judged by."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from virtune.model.condition import Outcome, ThresholdResult
from virtune.report.text.layout import Paragraph
from virtune.report.text.words import change_words, difference_text

_STYLE = {Outcome.BREACHED: "red", Outcome.HELD: "green", Outcome.UNDECIDED: "yellow"}


def conditions(rulings: Sequence[ThresholdResult]) -> list[RenderableType]:
    """Set every --fail-if condition with its outcome."""
    if not rulings:
        return []
    lines: list[RenderableType] = [Text("\n--fail-if conditions", style="bold")]
    for ruling in rulings:
        line = Text(f"{ruling.condition.text}: ")
        line.append(ruling.outcome.value, style=_STYLE[ruling.outcome])
        line.append(f" for {sentence(ruling)}")
        lines.append(Paragraph(line, indent=2, hanging=2))
    return lines


def sentence(ruling: ThresholdResult) -> str:
    """Say which arm a result is about, what was measured, and the reason for the outcome."""
    comparison = ruling.comparison
    seen = change_text(ruling)
    what = f"{comparison.measured.label} {seen}: " if seen else ""
    return f"{comparison.candidate} against {comparison.baseline} ({comparison.workload}): {what}{ruling.why}"


def change_text(ruling: ThresholdResult) -> str:
    """Write the measured change, with its interval where there is one; empty where there is none."""
    comparison = ruling.comparison
    if comparison.ratio is not None:
        return difference_text(comparison.ratio)
    return change_words(comparison.change) if comparison.change is not None else ""


def conditions_document(rulings: Sequence[ThresholdResult]) -> list[dict[str, Any]]:
    """Return the conditions as plain JSON values."""
    return [
        {
            "condition": ruling.condition.text,
            "metric": ruling.condition.metric,
            "limit": ruling.condition.limit,
            "workload": ruling.comparison.workload,
            "baseline": ruling.comparison.baseline,
            "candidate": ruling.comparison.candidate,
            "low": None if ruling.comparison.ratio is None else ruling.comparison.ratio.low,
            "high": None if ruling.comparison.ratio is None else ruling.comparison.ratio.high,
            "confidence": None if ruling.comparison.ratio is None else ruling.comparison.ratio.confidence,
            "outcome": ruling.outcome.value,
            "why": ruling.why,
        }
        for ruling in rulings
    ]
