# SPDX-License-Identifier: Apache-2.0
"""What each host's study says, kept beside the study when it is gathered, so that a report reads no trial twice."""

import contextlib
import json
from collections.abc import Mapping
from functools import cache

from pydantic import TypeAdapter

from virtune import __version__
from virtune.analyse.fleet import SUMMARY, summary_of
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.stored.show import derived_anew
from virtune.model.errors import StoreError
from virtune.model.evidence import StudyRecord
from virtune.model.fleet import HostSummary
from virtune.model.measurement import METHOD
from virtune.model.metric import BY_ID
from virtune.model.study import StudyKind
from virtune.store.store import Store

KINDS = (StudyKind.COMPARE, StudyKind.MEASURE)
"""The kinds of studies whose figures of many hosts can be put together."""

MADE_BY = f"{METHOD}.{SUMMARY} {__version__}"
"""What a kept summary must have been made by, to be shown."""


def summaries(place: FleetPlace, chosen: Mapping[str, str]) -> dict[str, HostSummary]:
    """Return the summaries of studies, by hosts with the id of a study each, in the order of their names."""
    found: dict[str, HostSummary] = {}
    for store, studies in place.stores({host: chosen[host] for host in sorted(chosen)}):
        kept = store.summaries([*studies.values()], method=MADE_BY)
        for host, (store.host, study) in studies.items():
            known = _read(kept.get((store.host, study), ""))
            found[host] = summarised(store, study) if known is None else known
    return found


def summarised(store: Store, study: str) -> HostSummary:
    """Make the summary of a finished study of the store's host by today's method, and keep it where that is possible.

    Raises StoreError for a study that is damaged.
    """
    record = derived_anew(store, _needed(store, study))
    found = summary_of(record)
    if store.keeps_summaries:
        # nothing rests on it: the next report makes it again
        with contextlib.suppress(StoreError):
            store.put_summary(study, _written(found), method=MADE_BY, attempts=len(record.attempts))
    return found


def _needed(store: Store, name: str) -> StudyRecord:
    """Return a study as far as its summary needs it: only percentiles need distributions."""
    try:
        found = store.get(name, distributions=False)
    except StoreError:
        return store.get(name)  # this says what is damaged
    return found if BY_ID[found.study.metric].percent is None else store.get(name)


@cache
def _adapter() -> TypeAdapter[HostSummary]:
    return TypeAdapter(HostSummary)


def _written(summary: HostSummary) -> str:
    # pydantic's own writer makes null of what is not finite
    return json.dumps(_adapter().dump_python(summary, mode="json"), ensure_ascii=False)


def _read(text: str) -> HostSummary | None:
    """Read a kept summary; None for anything else."""
    try:
        return _adapter().validate_json(text)
    except ValueError:
        return None
