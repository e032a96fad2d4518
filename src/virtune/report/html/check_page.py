# SPDX-License-Identifier: Apache-2.0
"""The page of a check: whether the host is fit for measurements, its noise, and what can be detected on it."""

from dataclasses import replace

from virtune.model.evidence import StudyRecord
from virtune.model.fitness import Fitness
from virtune.model.result import Result
from virtune.report.charts.forest import FOREST
from virtune.report.html.page import MARKS, ReportPage, VerdictLine, page_of
from virtune.report.html.table import Table
from virtune.report.text.host.check import confidence_text, noise_rows, reach_rows, sentence


def check_page(fitness: Fitness, result: Result, record: StudyRecord) -> ReportPage:
    """Return the page of a check.

    Its two arms are the same, so it says FIT or NOT FIT where a comparison says which arm is better, and has no
    picture of a verdict.
    """
    page = page_of(result, record)
    word = "worse" if fitness.unfit else "better"
    reaches = Table(
        caption="minimum detectable effect of a comparison of two arms",
        columns=("a comparison of", "detects differences from"),
        rows=tuple((name.removeprefix("in "), text.plain) for name, text in reach_rows(fitness)),
    )
    noise = Table(
        caption="noise",
        columns=("figure", "value"),
        rows=tuple((name, text.plain) for name, text in noise_rows(fitness)),
    )
    advice = ((one.weight.value, f"{one.text} ({one.advice})" if one.advice else one.text) for one in fitness.advice)
    return replace(
        page,
        question="Is this host fit for measurements, and which difference can they show?",
        verdicts=(VerdictLine(verdict="", mark=MARKS[word], sentence=sentence(fitness)),),
        warnings=tuple(dict.fromkeys((*page.warnings, *advice))),
        notes=(confidence_text(fitness), *page.notes),
        charts=tuple(one for one in page.charts if not one.name.startswith(FOREST)),
        rests=(),
        tables=(*(one for one in (reaches, noise) if one.rows), *page.tables),
    )
