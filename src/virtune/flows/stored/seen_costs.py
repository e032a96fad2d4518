# SPDX-License-Identifier: Apache-2.0
"""The overhead of stacks in this host's stored studies: the seconds besides the trials' planned time."""

import contextlib
import json
from collections.abc import Sequence
from datetime import datetime

from virtune.model.errors import StoreError
from virtune.model.evidence import Listed
from virtune.model.facts import Unknown
from virtune.model.study import Study
from virtune.plan.trials import NOTHING_SEEN, SeenCosts, TimedStudy, kind_of, seen_of
from virtune.probe.cpu import cpu_facts
from virtune.store.store import Store

STUDIES_MAX = 8
"""How many of the newest studies with stacks of the same kinds are read."""

NEWEST = 200
"""Among how many of the newest studies these are looked for: the store of a host that CI uses has thousands."""


def seen_costs(store: Store, study: Study) -> SeenCosts:
    """Return the overhead of a study's stacks in the newest studies of this host; empty if unknown."""
    if study.simulated:
        return NOTHING_SEEN
    wanted = {kind_of(arm.stack) for arm in study.arms}
    with contextlib.suppress(StoreError):  # a forecast must not cause an error
        newest = store.page(words="", kind="", limit=NEWEST, offset=0, own=True).rows
        known = [one.study for one in newest if isinstance(one, Listed) and one.done]
        past = [one for one in known if not one.simulated and not one.imported and one.id != study.id]
        alike = [one for one in past if wanted & {kind_of(arm.stack) for arm in one.arms}]
        return seen_of([found for one in alike[:STUDIES_MAX] if (found := _past(store, one, past)) is not None])
    return NOTHING_SEEN


def _past(store: Store, study: Study, studies: Sequence[Study]) -> TimedStudy | None:
    """Return the end times of a study's attempts; None for another host's. `studies` are all, the newest first."""
    facts, moments = store.moments(study.id)
    if not _here(facts):
        return None
    begun = datetime.fromisoformat(study.created)
    place = (study.scratch, study.span_bytes)
    older = studies[studies.index(study) + 1 :]
    return TimedStudy(
        study=study,
        attempts=tuple((arm, (datetime.fromisoformat(ended) - begun).total_seconds()) for arm, ended in moments),
        filled=study.connect is not None or all((one.scratch, one.span_bytes) != place for one in older),
    )


def _here(facts: str) -> bool:
    """Whether facts are of a host with this one's CPU."""
    mine = cpu_facts().model
    try:
        theirs = json.loads(facts)["host"]["cpu"]["model"]
    except (ValueError, LookupError, TypeError):
        return False
    return not isinstance(mine, Unknown) and theirs == mine
