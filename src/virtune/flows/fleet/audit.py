# SPDX-License-Identifier: Apache-2.0
"""The audit of many hosts: their documents read back into findings, VM by VM."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.advise.audit import rules
from virtune.fleet.ssh import HostError
from virtune.model.errors import VirtuneError
from virtune.model.finding import Audited, Finding, NotLookedAt, Rule, Seen, Unread
from virtune.model.fleet import HostAnswer, HostAudit, Unreached
from virtune.model.knob import Change, Risk


def audits_of(answers: Sequence[HostAnswer | Unreached]) -> tuple[list[HostAudit], list[Unreached]]:
    """Return the audit of every host, and the hosts that gave none; a document that is not one is such a host's."""
    known = {rule.id: rule for rule in rules()}
    audits: list[HostAudit] = []
    lost: list[Unreached] = []
    for one in answers:
        if isinstance(one, Unreached):
            lost.append(one)
            continue
        try:
            audits.append(_audit(one, known))
        except VirtuneError as error:
            lost.append(Unreached(host=one.host, because=error.message, hint=error.hint))
    return audits, lost


def _audit(answer: HostAnswer, known: Mapping[str, Rule]) -> HostAudit:
    name = answer.host.name
    audited = tuple(_audited(one, name, known) for one in _rows(answer.document, "domains"))
    unread = tuple(
        Unread(origin=f"{name}: {_text(one, 'origin')}", because=_text(one, "because"))
        for one in _rows(answer.document, "unread")
    )
    return HostAudit(host=answer.host, calls_itself=answer.calls_itself, audited=audited, unread=unread)


def _audited(one: Mapping[str, Any], host: str, known: Mapping[str, Rule]) -> Audited:
    uuid = None if one.get("uuid") is None else _text(one, "uuid")
    domain = _text(one, "domain")
    findings = tuple(_findings(one, f"{host}/{domain}", uuid, known))
    lacked = (
        NotLookedAt(unknown=_text(row, "unknown"), rules=_ids(row.get("rules")))
        for row in _rows(one, "not_looked_at")
    )
    return Audited(
        origin=f"{host}: {_text(one, 'origin')}",
        domain=f"{host}/{domain}",
        uuid=uuid,
        findings=findings,
        not_audited="" if one.get("not_audited") is None else _text(one, "not_audited"),
        not_looked_at=tuple(lacked),
    )


def _ids(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise HostError("its audit has no list of rules")
    return tuple(found)


def _findings(one: Mapping[str, Any], domain: str, uuid: str | None, known: Mapping[str, Rule]) -> Iterator[Finding]:
    for found in _rows(one, "findings"):
        rule = known.get(_text(found, "rule"))
        line = found.get("line")
        if rule is None or not isinstance(line, int):
            raise HostError("its audit has a finding that this virtune does not know")
        takes = found.get("takes")
        try:
            change, risk = None if takes is None else Change(takes), Risk(_text(found, "risk"))
        except ValueError:
            raise HostError("its audit has a finding that this virtune does not know") from None
        yield Finding(
            rule=rule,
            domain=domain,
            uuid=uuid,
            at=_text(found, "at"),
            line=line,
            seen=Seen(seen=_text(found, "seen"), advice=_text(found, "advice")),
            takes=change,
            risk=risk,
        )


def _rows(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise HostError(f"its audit has no list of {key}")
    return found


def _text(table: Mapping[str, Any], key: str) -> str:
    found = table.get(key)
    if not isinstance(found, str):
        raise HostError(f"its audit has no text for {key}")
    return found
