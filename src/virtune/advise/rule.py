# SPDX-License-Identifier: Apache-2.0
"""Registers rules: a function of a Subject becomes a Rule, its docstring the reason that users read."""

import inspect
from collections.abc import Callable

from virtune.model.finding import Check, Confidence, Need, Rule, Severity, Version
from virtune.model.knob import Change, Risk

RULES: dict[str, Rule] = {}
"""Every rule by its id, in the order of the rooms; `virtune.advise.audit` fills it by importing them."""


def rule(
    identity: str,
    severity: Severity,
    *,
    source: str,
    confidence: Confidence = Confidence.DOCUMENTED,
    takes: Change | None = Change.POWEROFF,
    risk: Risk = Risk.NONE,
    needs: tuple[Need, ...] = (),
) -> Callable[[Check], Check]:
    """Register a function as the rule of that id; its name is the rule's, its docstring the reason.

    `needs` are all the facts it reads that a configuration alone may not give: where one is unknown, the audit says
    that the rule did not look.
    """

    def register(check: Check) -> Check:
        name = check.__name__.replace("_", "-")
        if identity in RULES:
            raise ValueError(f"two rules are called {identity}")
        why = " ".join(inspect.cleandoc(check.__doc__ or "").split())
        RULES[identity] = Rule(
            id=identity,
            name=name,
            severity=severity,
            confidence=confidence,
            takes=takes,
            risk=risk,
            why=why,
            source=source,
            check=check,
            needs=needs,
        )
        return check

    return register


def below(version: Version | None, limit: Version) -> bool:
    """Whether a known version is older than one; an unknown version is not."""
    return version is not None and version < limit


def words(version: Version | None) -> str:
    """Write a version."""
    return "unknown" if version is None else ".".join(map(str, version))
