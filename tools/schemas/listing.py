# SPDX-License-Identifier: Apache-2.0
"""The schema of the list of studies: what `virtune list --json` writes."""

from tools.schemas.parts import identity
from tools.schemas.shape import maybe, moment, rows, switch, table, text, whole, word, written
from virtune.model.study import StudyKind
from virtune.report.text.listing import SCHEMA


def schema() -> str:
    """Return the schema as text."""
    study = table(
        "One study.",
        {
            "id": text("By which `show`, `resume` and `explain` find it; the beginning of it is enough."),
            "created": moment("When it was begun, in UTC."),
            "kind": word("The verb that made it.", StudyKind),
            "arms": rows("The names of its arms, in the order they were given.", text("A name."), minItems=1),
            "workloads": rows("The names of its workloads.", text("A name."), minItems=1),
            "trials": maybe(whole("Trials that it consists of; null of a search, which chooses them.", minimum=1)),
            "trials_done": whole("Trials that gave a measurement.", minimum=0),
            "attempts_failed": whole("Attempts at trials that failed; a trial is tried twice.", minimum=0),
            "finished": switch("Whether every trial gave a measurement."),
        },
    )
    damaged = table("A study that cannot be read.", {"id": text("Its id."), "why": text("What is wrong with it.")})
    body = table(
        "What `virtune list --json` writes.",
        {
            "schema": identity(SCHEMA),
            "studies": rows("The studies in the store, the newest first.", study),
            "damaged": rows("Those that cannot be read.", damaged),
        },
    )
    return written(SCHEMA, "The studies in a store", body)
