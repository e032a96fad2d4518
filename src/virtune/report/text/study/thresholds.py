# SPDX-License-Identifier: Apache-2.0
"""Conditions (`--fail-if`) as text: each in a sentence, with the interval by which it was judged."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from virtune.model.condition import Outcome, ThresholdResult
from virtune.model.verdict import Comparison
from virtune.report.text.layout import Paragraph
from virtune.report.text.study import answer
from virtune.report.text.words import quantity

_STYLE = {Outcome.BREACHED: "red", Outcome.HELD: "green", Outcome.UNDECIDED: "yellow"}


def conditions(rulings: Sequence[ThresholdResult]) -> list[RenderableType]:
    """Lay out every --fail-if condition with its outcome."""
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
    """Return the arm, the measured change or value, and the reason for the outcome."""
    comparison = ruling.comparison
    seen = change_text(ruling)
    what = f"{comparison.measured.label} {seen}: " if seen else ""
    return f"{arms_text(ruling)} ({comparison.workload}): {what}{ruling.why}"


def arms_text(ruling: ThresholdResult) -> str:
    """Name the arms of a condition: its own, and for a change the baseline."""
    comparison = ruling.comparison
    alone = ruling.condition.value is not None
    return comparison.candidate if alone else f"{comparison.candidate} against {comparison.baseline}"


def change_text(ruling: ThresholdResult) -> str:
    """Return the measured change or value, with its interval if any; empty if not measured."""
    comparison, value = ruling.comparison, ruling.condition.value
    if value is not None:
        return _value_text(comparison, value)
    return answer.change_text(comparison)


def _value_text(comparison: Comparison, limit: float) -> str:
    metric, ratio = comparison.measured, comparison.ratio
    if ratio is None:
        return "" if comparison.change is None else quantity(metric, comparison.change * limit)
    low, high = (quantity(metric, end * limit) for end in (ratio.low, ratio.high))
    return f"{quantity(metric, ratio.estimate * limit)} [{low}, {high}]"
