# SPDX-License-Identifier: Apache-2.0
"""The list of studies, for people and for machines."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.evidence import Damaged, Listed
from virtune.report.text.layout import Column, Records

SCHEMA = "virtune/list/1"


def listing(studies: Sequence[Listed | Damaged], *, store: str) -> RenderableType:
    """Set one line a study, and below them one for each that cannot be read."""
    columns = (
        Column(title="study"),
        Column(title="created"),
        Column(title="kind"),
        Column(title="arms", wraps=True, least=16),
        Column(title="workloads", wraps=True, least=16),
        Column(title="trials", right=True),
    )
    table = Records(columns)
    for listed in studies:
        if isinstance(listed, Damaged):
            continue
        study = listed.study
        # a search chooses its trials as it goes, so nobody knows how many there will be
        total = "" if study.search is not None else f"/{len(study.trials)}"
        trials = Text(f"{listed.done}{total}", style="" if listed.finished else "yellow")
        if listed.failed:
            trials.append(f" ({listed.failed} failed)", style="red")
        arms = ", ".join(arm.name for arm in study.arms)
        if study.search is not None:
            arms = f"{len(study.search.ranked)} configurations, {study.search.goal.words}"
        workloads = ", ".join(workload.name for workload in study.workloads)
        table.add_row(study.id, study.created[:16].replace("T", " "), study.label, arms, workloads, trials)
    damaged = [
        Text(f"damaged in {store}: {study.id}: {study.why}", style="red")
        for study in studies
        if isinstance(study, Damaged)
    ]
    return Group(*([table] if table.rows else []), *damaged)


def listing_document(studies: Sequence[Listed | Damaged]) -> dict[str, Any]:
    """Return the list as plain JSON values."""
    return {
        "schema": SCHEMA,
        "studies": [
            {
                "id": listed.study.id,
                "created": listed.study.created,
                "kind": listed.study.kind,
                "arms": [arm.name for arm in listed.study.arms],
                "workloads": [workload.name for workload in listed.study.workloads],
                "trials": None if listed.study.search is not None else len(listed.study.trials),
                "trials_done": listed.done,
                "attempts_failed": listed.failed,
                "finished": listed.finished,
            }
            for listed in studies
            if isinstance(listed, Listed)
        ],
        "damaged": [{"id": study.id, "why": study.why} for study in studies if isinstance(study, Damaged)],
    }
