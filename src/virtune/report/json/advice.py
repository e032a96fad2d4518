# SPDX-License-Identifier: Apache-2.0
"""Advice for domains as a JSON document.

History of the schema:

virtune/advice/1  the changes, their diff and commands, warnings, and what is left alone
virtune/advice/2  the codes of what is left alone (`left_reasons`) and the rules of warnings (`warning_rules`)
"""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune.model.domain import SettingChange
from virtune.model.finding import LeftAlone, NewFinding
from virtune.model.reason import OF_ADVICE, Reason
from virtune.report.json.audit import TurnPart, turn_part
from virtune.report.json.document import IDENTITY

SCHEMA = "virtune/advice/2"


class _LeftReason(TypedDict):
    """Why one thing is left alone."""

    at: Annotated[str, "The disk (`vda`); empty for the domain."]
    rule: Annotated[str | None, "The rule whose finding it was; null where none was asked."]
    reason: Annotated[Reason, "The reason as a code, which is stable.", {"enum": [*OF_ADVICE]}]


class _WarningRule(TypedDict):
    """The rule behind one warning."""

    at: Annotated[str, "The disk (`vda`) or controller (`scsi:0`); empty for the domain."]
    rule: Annotated[str, "The rule's id; docs/reference/rules.md lists them."]


class AdvisedDomain(TypedDict):
    """The advice for one domain."""

    origin: Annotated[str, "The file that it was read from, or the URI of its libvirt."]
    domain: Annotated[str, "Its name."]
    uuid: Annotated[str | None, "Its UUID; null where the file has none."]
    turns: Annotated[list[TurnPart], "The changes; empty where nothing is to be changed."]
    diff: Annotated[str, "The same as a unified difference of the configuration."]
    commands: Annotated[
        list[Annotated[str, "A command line."]], "The same as command lines, where the system takes it so."
    ]
    warnings: Annotated[
        list[Annotated[str, "The rule, the place and the reason."]],
        "Errors and warnings that `virtune audit` has of the changed configuration and had not before.",
    ]
    warning_rules: Annotated[list[_WarningRule], "The rules and places of these warnings, in the same order."]
    left: Annotated[list[Annotated[str, "The place and the reason."]], "What is left alone, and why."]
    left_reasons: Annotated[list[_LeftReason], "The same as codes and places, in the same order."]


class AdviceDocument(TypedDict):
    """What `virtune advise --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    domains: Annotated[list[AdvisedDomain], "The domains, in the order in which they were read."]


def advice_document(domains: Sequence[AdvisedDomain]) -> AdviceDocument:
    """Return the document that `virtune advise --json` writes."""
    return {"schema": SCHEMA, "domains": list(domains)}


def advised_domain(
    *,
    origin: str,
    domain: str,
    uuid: str | None,
    turns: Sequence[SettingChange],
    diff: str,
    left: Sequence[LeftAlone],
    commands: Sequence[str] = (),
    warnings: Sequence[NewFinding] = (),
) -> AdvisedDomain:
    """Return one domain's part of the document."""
    return {
        "origin": origin,
        "domain": domain,
        "uuid": uuid,
        "turns": [turn_part(turn) for turn in turns],
        "diff": diff,
        "commands": list(commands),
        "warnings": [one.text for one in warnings],
        "warning_rules": [{"at": one.at, "rule": one.rule} for one in warnings],
        "left": [one.text for one in left],
        "left_reasons": [{"at": one.at, "rule": one.rule or None, "reason": one.why.reason} for one in left],
    }
