# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: the same study on many hosts, read from their gathered stores."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from virtune.analyse.fleet import answer
from virtune.flows.fleet.place import FleetPlace
from virtune.flows.fleet.summaries import KINDS, summaries
from virtune.model.errors import PlanError, UsageError
from virtune.model.evidence import FinishedStudy
from virtune.model.fleet import FleetReport, HostSummary
from virtune.model.study import Study
from virtune.plan.codec import study_from_json

_NAMED_MAX = 10
"""So many hosts a hint names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One question, as the study of the first host that asked it; the newest study of every host that has measured
    it, and when each study was begun.
    """

    study: Study
    hosts: dict[str, str] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)


def fleet_report(place: FleetPlace, *, names: Sequence[str] = ()) -> FleetReport:
    """Return what the gathered studies of a place say. `names` chooses hosts.

    The question that was measured on the most hosts is taken, and the newest study of each host.

    Raises UsageError where fewer than two hosts have measured the same.
    """
    known = place.hosts() if names else ()
    if unknown := [name for name in names if name not in known]:
        hint = (
            f"hosts there: {', '.join(known[:_NAMED_MAX])}" if known else "`virtune fleet gather` brings studies here"
        )
        raise UsageError(f"no study of {unknown[0]!r} is in {place}", hint=hint)
    asked = _asked(place, names)
    if not asked or max(len(one.hosts) for one in asked) < 2:
        hint = "measure the same on each host, then `virtune fleet gather`"
        raise UsageError(f"no two hosts in {place} have measured the same", hint=hint)
    chosen = max(asked, key=lambda one: (len(one.hosts), max(one.begun)))
    found = summaries(place, chosen.hosts)
    _require_apart(found)
    others = {host for one in asked for host in one.hosts} - found.keys()
    return replace(answer(chosen.study, found), others=tuple(sorted(others)))


def _asked(place: FleetPlace, names: Sequence[str]) -> Sequence[_Asked]:
    rows = [one for one in place.finished(KINDS) if not names or one.host in names]
    alike: dict[str, list[FinishedStudy]] = {}
    for one in sorted(rows, key=lambda one: one.host):
        alike.setdefault(one.question, []).append(one)
    asked: dict[Hashable, _Asked] = {}
    of_digest: dict[str, _Asked] = {}
    # of texts that are alike in this one is read: defaults of an older virtune may make two texts one question
    texts = place.texts([studies[0] for studies in alike.values()])
    for text, (digest, studies) in zip(texts, alike.items(), strict=True):
        study = _study(text) or next(filter(None, map(_study, place.texts(studies))), None)
        if study is not None:
            of_digest[digest] = asked.setdefault(_question(study), _Asked(study=study))
    for one in rows:
        if one.question in of_digest:
            same = of_digest[one.question]
            same.hosts.setdefault(one.host, one.id)
            same.begun.append(one.created)
    return [*asked.values()]


def _study(text: str) -> Study | None:
    try:
        return study_from_json(text)
    except PlanError:
        return None


def _require_apart(found: Mapping[str, HostSummary]) -> None:
    """Raise UsageError where two stores hold one study; ids alone may be alike by chance."""
    first: dict[tuple[str, str], str] = {}
    for host, summary in found.items():
        before = first.setdefault((summary.study, summary.source), host)
        if before != host:
            raise UsageError(
                f"{before} and {host} hold the same study {summary.study}: one host by two names",
                hint="remove the store of one of them",
            )


def _question(study: Study) -> Hashable:
    """Return what makes two studies the same question: arms, workloads and metric, not when, where or how long."""
    arms = tuple((arm.name, arm.settings) for arm in study.arms)
    return (study.kind, study.baseline, arms, study.workloads, study.metric, study.seconds, study.simulated)
