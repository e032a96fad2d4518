# SPDX-License-Identifier: Apache-2.0
"""Advice for domains as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune.model.domain import SettingChange
from virtune.report.json.audit import TurnPart, turn_part
from virtune.report.json.document import IDENTITY

SCHEMA = "virtune/advice/1"


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
    left: Annotated[list[Annotated[str, "The place and the reason."]], "What is left alone, and why."]


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
    left: Sequence[str],
    commands: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> AdvisedDomain:
    """Return one domain's part of the document."""
    return {
        "origin": origin,
        "domain": domain,
        "uuid": uuid,
        "turns": [turn_part(turn) for turn in turns],
        "diff": diff,
        "commands": list(commands),
        "warnings": list(warnings),
        "left": list(left),
    }
