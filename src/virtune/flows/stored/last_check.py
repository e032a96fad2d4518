# SPDX-License-Identifier: Apache-2.0
"""The last A/A test of this host, which a study's report quotes as evidence of its noise."""

from datetime import datetime, timedelta

from virtune.flows.stored.show import current
from virtune.model.errors import StoreError
from virtune.model.evidence import Listed
from virtune.model.study import Checked, Study, StudyKind
from virtune.store.store import Store

LATEST = timedelta(days=1)
"""The greatest age of a check that still describes the host."""

NEWEST = 100
"""How many checks are looked at: no more fit into a day."""


def last_check(store: Store, study: Study) -> Checked | None:
    """Return the last finished check in the store within 24 hours before a study; None without one."""
    if study.simulated:
        return None
    begun = datetime.fromisoformat(study.created)
    newest = store.page(words="", kind=StudyKind.CHECK, limit=NEWEST, offset=0, own=True).rows
    checks = [one.study for one in newest if isinstance(one, Listed) and one.finished and not one.study.simulated]
    recent = [one for one in checks if timedelta() <= begun - _begun(one) <= LATEST]
    if not recent:
        return None
    found = max(recent, key=_begun)
    try:
        _, result = current(store, found.id)
    except StoreError:  # it is damaged, which need not stop the measurement
        return None
    verdict = next((one for one in result.verdicts), None)
    if verdict is None:
        return None
    ends = (None, None) if verdict.ratio is None else (verdict.ratio.low, verdict.ratio.high)
    return Checked(study=found.id, created=found.created, verdict=verdict.verdict, low=ends[0], high=ends[1])


def _begun(study: Study) -> datetime:
    return datetime.fromisoformat(study.created)
