# SPDX-License-Identifier: Apache-2.0
"""The list of studies, as text."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.evidence import Damaged, Listed
from virtune.model.study import Study
from virtune.report.text.layout import Column, FirstThatFits, Records
from virtune.report.text.words import count_text


def listing(studies: Sequence[Listed | Damaged], *, store: str) -> RenderableType:
    """Lay out one line per study, and below them one for each that cannot be read."""
    columns = (
        Column(title="study"),
        Column(title="created"),
        Column(title="kind"),
        Column(title="arms", wraps=True, least=16),
        Column(title="workloads", wraps=True, least=16),
        Column(title="trials", right=True),
    )
    rows: list[tuple[Text | str, ...]] = []
    for listed in studies:
        if isinstance(listed, Damaged):
            continue
        study = listed.study
        # a search chooses its trials as it goes, so their total number is unknown
        total = "" if study.search is not None else f"/{len(study.trials)}"
        trials = Text(f"{listed.done}{total}", style="" if listed.finished else "yellow")
        if listed.failed:
            trials.append(f" ({listed.failed} failed)", style="red")
        created = study.created[:16].replace("T", " ")
        rows.append((listed.name, created, study.label, arms_text(study), workloads_text(study), trials))
    damaged = [
        Text(f"damaged in {store}: {study.id}: {study.why}", style="red")
        for study in studies
        if isinstance(study, Damaged)
    ]
    # an id begins with the time, so that a narrow terminal goes without it rather than without a table
    narrow = Records([*columns[:1], *columns[2:]], [(row[0], *row[2:]) for row in rows])
    return Group(*([FirstThatFits([Records(columns, rows)], [narrow])] if rows else []), *damaged)


def arms_text(study: Study) -> str:
    """Write what a study compares; of a search how many configurations, and its goal."""
    if study.search is not None:
        return f"{len(study.search.ranked)} configurations, {study.search.goal.words}"
    return ", ".join(arm.name for arm in study.arms)


def workloads_text(study: Study) -> str:
    """Write the workloads of a study; of a sweep the one that is offered, and at how many loads."""
    if study.sweep is not None:
        return f"{study.workloads[0].name} at {count_text(len(study.compared), 'load')}"
    return ", ".join(workload.name for workload in study.workloads)
