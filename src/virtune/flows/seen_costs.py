# SPDX-License-Identifier: Apache-2.0
"""What this host's kept studies show of what stacks cost: the seconds that no trial asks for."""

import contextlib
import json
from collections.abc import Sequence
from datetime import datetime

from virtune.model.errors import StoreError
from virtune.model.evidence import Listed
from virtune.model.facts import Unknown
from virtune.model.study import Study
from virtune.plan.forecast import NOTHING_SEEN, SeenCosts, TimedStudy, kind_of, seen_of
from virtune.probe.cpu import cpu_facts
from virtune.store.sqlite import Store

STUDIES_MAX = 8
"""So many of the newest studies with stacks of the same kinds are looked at."""


def seen_costs(store: Store, study: Study) -> SeenCosts:
    """Return what the newest studies of this host show of what the stacks of a study cost; nothing where none do."""
    if study.simulated:
        return NOTHING_SEEN
    wanted = {kind_of(arm.stack) for arm in study.arms}
    with contextlib.suppress(StoreError):  # a forecast is worth no error
        known = [one.study for one in store.list() if isinstance(one, Listed) and one.done]
        past = [one for one in known if not one.simulated and not one.imported and one.id != study.id]
        alike = [one for one in past if wanted & {kind_of(arm.stack) for arm in one.arms}]
        return seen_of([found for one in alike[:STUDIES_MAX] if (found := _past(store, one, past)) is not None])
    return NOTHING_SEEN


def _past(store: Store, study: Study, studies: Sequence[Study]) -> TimedStudy | None:
    """Return when a study's attempts ended; None for one of another host. `studies` are all, the newest first."""
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
