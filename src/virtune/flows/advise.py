# SPDX-License-Identifier: Apache-2.0
"""Advice for one domain: the turns that are wished for, and what they would change in its text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from virtune.advise.audit import audit, rules
from virtune.advise.flash import NAME, flash
from virtune.flows.audit import unified
from virtune.flows.domains import Found
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError, UsageError
from virtune.model.finding import Severity
from virtune.model.knobs import find

TEMPLATES = (NAME,)

WORK_BYTES_MAX = 64 * 1024**2
"""Every turn reads the text again, at some 10 MB a second: a domain of 10 kB may have 6,000 turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user wants: a template, what mends the findings of some rules, or turns by name.

    With nothing named: what mends errors and warnings.
    """

    template: str | None = None
    rules: tuple[str, ...] = ()
    turns: tuple[SettingChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The turns for one domain, its text with them, the difference, and what was left alone and why.

    `commands` are the same change as command lines, for systems that take it so.
    """

    turns: tuple[SettingChange, ...]
    after: bytes
    diff: str
    left: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def advise(found: Found, wish: Wish) -> Advice:
    """Return the advice for one domain; no turns where nothing is to be changed."""
    turns, left = _wanted(found, wish)
    name = found.subject.domain.name
    if len(found.text) * len(turns) > WORK_BYTES_MAX:
        raise PlanError(f"{len(turns):,} changes of one domain are too many at once", hint="name some with --set")
    after, made, unsaid = found.text, [], []
    for turn in turns:
        try:
            changed = found.language.alter(after, turn, domain=name)
        except PlanError as refusal:
            if turn in wish.turns:
                raise
            unsaid.append(refusal.message)
            continue
        if changed != after:
            made.append(turn)
        after = changed
    said = found.language.commands
    commands = said(found.text, after, Path(found.origin).stem) if said is not None and made else ()
    diff = unified(found.text, after, name=name)
    return Advice(turns=tuple(made), after=after, diff=diff, left=(*left, *unsaid), commands=commands)


def read_turn(text: str) -> SettingChange:
    """Read `disk.cache@vda=none`, `iothread.count=2`, `disk.aio@vda=` (which takes it away); raises PlanError."""
    name, equals, value = text.partition("=")
    knob, _, at = name.partition("@")
    if not equals:
        raise PlanError(f"{text!r} turns no knob", hint="write disk.cache@vda=none")
    known = find(knob)
    if not value:
        return SettingChange(knob=knob, at=at, value=None)
    try:
        read = known.read(value)
    except ValueError as error:
        raise PlanError(f"{knob}: {error}") from None
    return SettingChange(knob=knob, at=at, value=value if isinstance(read, str) else _word(read))


def _word(value: int | bool) -> str:  # noqa: FBT001
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _wanted(found: Found, wish: Wish) -> tuple[tuple[SettingChange, ...], tuple[str, ...]]:
    if wish.template is not None:
        template = flash(found.subject)
        return (*template.turns, *wish.turns), template.left
    if wish.turns and not wish.rules:
        return wish.turns, ()
    known = {rule.id for rule in rules()}
    for name in wish.rules:
        if name not in known:
            raise UsageError(f"no rule {name!r}", hint="docs/reference/rules.md lists them")
    turns: list[SettingChange] = []
    left: list[str] = []
    for finding in audit(found.subject):
        asked = finding.rule.id in wish.rules if wish.rules else finding.rule.severity is not Severity.TRY
        if asked and finding.seen.turns:
            turns += _unsaid(finding.seen.turns, turns)
        elif asked:
            left.append(f"{finding.rule.id} {finding.at or 'domain'}: {finding.seen.seen}; {finding.seen.advice}")
    return (*turns, *wish.turns), tuple(left)


def _unsaid(turns: Sequence[SettingChange], said: Sequence[SettingChange]) -> list[SettingChange]:
    """What is not turned yet: the gravest finding about a knob of one place has the word."""
    taken = {(turn.knob, turn.at) for turn in said}
    return [turn for turn in turns if (turn.knob, turn.at) not in taken]
