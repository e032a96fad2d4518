# SPDX-License-Identifier: Apache-2.0
"""A host over time: what each of its checks found, the newest first."""

from virtune.flows.run.check import fitness
from virtune.model.evidence import Listed
from virtune.model.study import StudyKind
from virtune.model.units import format_count
from virtune.report.text.basis import drift_text
from virtune.report.text.check import sentence
from virtune.report.text.header import host_line
from virtune.report.text.words import share_text
from virtune.store.store import Store

CHECKS_SHOWN = 25
"""Each is derived from its trials when it is shown."""


def host_rows(store: Store) -> list[dict[str, str]]:
    """Return a row for each of the newest checks: when, on which host, how noisy, how it drifted, fit or not."""
    rows = []
    for one in store.page(words="", kind=StudyKind.CHECK, limit=CHECKS_SHOWN, offset=0, own=True).rows:
        if not isinstance(one, Listed) or not one.done:
            continue
        record = store.get(one.study.id)
        found = fitness(record)
        rows.append(
            {
                "id": one.study.id,
                "created": one.study.created[:16].replace("T", " "),
                "host": host_line(one.study, record.facts),
                "iops": "-" if found.iops is None else format_count(found.iops),
                "noise": "-" if found.windows_cv is None else share_text(found.windows_cv),
                "drift": "-" if found.drift is None else drift_text(found.drift),
                "said": sentence(found),
            }
        )
    return rows
