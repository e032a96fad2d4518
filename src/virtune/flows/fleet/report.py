# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: the same study on many hosts, read from their gathered stores."""

from collections.abc import Hashable, Mapping, Sequence

from virtune.analyse.fleet.answer import answer
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.stored.show import current
from virtune.model.errors import UsageError
from virtune.model.evidence import Listed, StudyRecord
from virtune.model.fleet import FleetReport
from virtune.model.study import Study, StudyKind

KINDS = (StudyKind.COMPARE, StudyKind.MEASURE)
"""The kinds of studies whose figures of many hosts can be put together."""


def fleet_report(place: FleetPlace, *, names: Sequence[str] = ()) -> FleetReport:
    """Return what the gathered studies of a place say. `names` chooses hosts.

    The question that was measured on the most hosts is taken, and the newest study of each host.

    Raises UsageError where fewer than two hosts have measured the same.
    """
    hosts = [one for one in place.hosts() if not names or one in names]
    asked: dict[Hashable, dict[str, str]] = {}
    newest: dict[Hashable, str] = {}
    for host in hosts:
        with place.of(host, reading=True) as store:
            for listed in reversed(store.list(own=True)):
                if isinstance(listed, Listed) and listed.finished and listed.study.kind in KINDS:
                    question = _question(listed.study)
                    asked.setdefault(question, {})[host] = listed.study.id
                    newest[question] = max(newest.get(question, ""), listed.study.created)
    if not asked or max(map(len, asked.values())) < 2:
        hint = "measure the same on each host, then `virtune fleet gather`"
        raise UsageError(f"no two hosts in {place} have measured the same", hint=hint)
    chosen = asked[max(asked, key=lambda question: (len(asked[question]), newest[question]))]
    studies = {}
    for host, study in chosen.items():
        with place.of(host) as store:
            studies[host] = current(store, study)
    _require_apart({host: record for host, (record, _) in studies.items()})
    return answer(studies)


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


def _question(study: Study) -> Hashable:
    """Return what makes two studies the same question: arms, workloads and metric, not when, where or how long."""
    arms = tuple((arm.name, arm.settings) for arm in study.arms)
    return (study.kind, study.baseline, arms, study.workloads, study.metric, study.seconds, study.simulated)
