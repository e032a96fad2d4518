# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: the same study on many hosts, read from their gathered stores."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from virtune.analyse.fleet.answer import answer
from virtune.flows.fleet_gather import SUFFIX
from virtune.flows.show import current
from virtune.model.errors import UsageError
from virtune.model.evidence import Listed, StudyRecord
from virtune.model.fleet import FleetReport
from virtune.model.study import Study, StudyKind
from virtune.store.sqlite import Store

KINDS = (StudyKind.COMPARE, StudyKind.MEASURE)
"""The kinds of studies whose figures of many hosts can be put together."""


def fleet_report(folder: Path, *, names: Sequence[str] = ()) -> FleetReport:
    """Return what the gathered stores of `folder` say. `names` chooses hosts.

    The question that was measured on the most hosts is taken, and the newest study of each host.

    Raises UsageError where fewer than two hosts have measured the same.
    """
    stores = {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}")) if not names or path.stem in names}
    asked: dict[Hashable, dict[str, str]] = {}
    newest: dict[Hashable, str] = {}
    for host, path in stores.items():
        with Store(path, reading=True) as store:
            for listed in reversed(store.list()):
                if isinstance(listed, Listed) and listed.finished and listed.study.kind in KINDS:
                    question = _question(listed.study)
                    asked.setdefault(question, {})[host] = listed.study.id
                    newest[question] = max(newest.get(question, ""), listed.study.created)
    if not asked or max(map(len, asked.values())) < 2:
        hint = "measure the same on each host, then `virtune fleet gather`"
        raise UsageError(f"no two hosts in {folder} have measured the same", hint=hint)
    chosen = asked[max(asked, key=lambda question: (len(asked[question]), newest[question]))]
    studies = {}
    for host, study in chosen.items():
        with Store(stores[host]) as store:
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
