# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: the same study on many hosts, read from their gathered stores."""

import contextlib
import json
from collections.abc import Hashable, Mapping, Sequence

from virtune.analyse.fleet.answer import answer
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.stored.show import derived_anew
from virtune.model.errors import PlanError, StoreError, UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.fleet import FleetReport
from virtune.model.metric import BY_ID
from virtune.model.study import Study, StudyKind
from virtune.plan.codec import study_from_json
from virtune.store.store import Store

KINDS = (StudyKind.COMPARE, StudyKind.MEASURE)
"""The kinds of studies whose figures of many hosts can be put together."""


def fleet_report(place: FleetPlace, *, names: Sequence[str] = ()) -> FleetReport:
    """Return what the gathered studies of a place say. `names` chooses hosts.

    The question that was measured on the most hosts is taken, and the newest study of each host.

    Raises UsageError where fewer than two hosts have measured the same.
    """
    asked, newest = _asked(place, names)
    if not asked or max(map(len, asked.values())) < 2:
        hint = "measure the same on each host, then `virtune fleet gather`"
        raise UsageError(f"no two hosts in {place} have measured the same", hint=hint)
    chosen = asked[max(asked, key=lambda question: (len(asked[question]), newest[question]))]
    studies = {host: derived_anew(store, _read(store, chosen[host])) for host, store in place.each(sorted(chosen))}
    _require_apart(studies)
    return answer(studies)


def _read(store: Store, name: str) -> StudyRecord:
    """Return a study as far as its answer needs it: only percentiles need distributions."""
    try:
        found = store.get(name, distributions=False)
    except StoreError:
        return store.get(name)  # this says what is damaged
    return found if BY_ID[found.study.metric].percent is None else store.get(name)


def _asked(place: FleetPlace, names: Sequence[str]) -> tuple[dict[Hashable, dict[str, str]], dict[Hashable, str]]:
    """Return for each question the newest study of every host, by its id, and when the last of them was begun."""
    asked: dict[Hashable, dict[str, str]] = {}
    newest: dict[Hashable, str] = {}
    known: dict[Hashable, Hashable] = {}
    for host, name, text in place.finished(KINDS):
        if names and host not in names:
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, PlanError):
            plain = json.loads(text)
            # of texts that are alike in this one is read whole: defaults of an older virtune may make two texts one
            alike = json.dumps([plain.get(one) for one in _ASKED])
            if alike not in known:
                known[alike] = _question(study_from_json(text))
            question = known[alike]
            asked.setdefault(question, {}).setdefault(host, name)
            newest[question] = max(newest.get(question, ""), plain["created"])
    return asked, newest


def _require_apart(records: Mapping[str, StudyRecord]) -> None:
    """Raise UsageError where two stores hold one study; ids alone may be alike by chance."""
    first: dict[tuple[str, str], str] = {}
    for host, record in records.items():
        before = first.setdefault((record.study.id, record.facts), host)
        if before != host:
            raise UsageError(
                f"{before} and {host} hold the same study {record.study.id}: one host by two names",
                hint="remove the store of one of them",
            )


_ASKED = ("kind", "baseline", "arms", "workloads", "metric", "seconds")


def _question(study: Study) -> Hashable:
    """Return what makes two studies the same question: arms, workloads and metric, not when, where or how long."""
    arms = tuple((arm.name, arm.settings) for arm in study.arms)
    return (study.kind, study.baseline, arms, study.workloads, study.metric, study.seconds, study.simulated)
