# SPDX-License-Identifier: Apache-2.0
"""Knobs for people and for machines: the table of many, the card of one, the JSON document.

History of the JSON schema:

virtune/knobs/1   first light
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from virtune import __version__
from virtune.model.knob import Answer, Change, Choice, Knob, Layer, Risk, Support, describe_domain

SCHEMA = "virtune/knobs/1"

Answers = Mapping[str, Sequence[Answer]]

CHANGES: Mapping[Change, str] = {
    Change.LIVE: "while the VM runs, without interruption",
    Change.SWAP: "open the image anew below the running device: the guest does not notice",
    Change.REPLUG: "unplug the disk and plug it in again: the guest sees it vanish; a root disk needs a power-off",
    Change.POWEROFF: "stop and start the VM's process; a reboot of the guest is not enough",
    Change.OFFLINE: "convert or copy the image, or make it anew",
    Change.GUEST: "inside the guest, while it runs",
    Change.GUEST_REBOOT: "inside the guest, with a reboot of the guest",
    Change.HOST_REBOOT: "on the host, with a reboot of the host",
}
"""What each word about changing means."""

EVIDENCE: Mapping[str, str] = {
    "[T]": "tried",
    "[C]": "code",
    "[D]": "documented",
    "[P]": "its author",
    "[B]": "vendor",
    "[U]": "unverified",
}
"""What each tag of evidence means."""

_CHANGE_STYLE = {
    Change.LIVE: "green",
    Change.SWAP: "green",
    Change.GUEST: "green",
    Change.OFFLINE: "magenta",
    Change.HOST_REBOOT: "magenta",
}
_RISK_STYLE = {Risk.NONE: "dim", Risk.DATA: "bold red", Risk.SECURITY: "bold red"}
_WIDTHS = {"mark": 2, "knob": 29, "change": 12, "risk": 12}
"""Ids, changes and risks stay whole; values and defaults share the rest."""


def knob_table(knobs: Sequence[Knob], answers: Answers) -> RenderableType:
    """Set many knobs as one table, grouped by layer."""
    layers = [layer for layer in Layer if any(knob.layer is layer for knob in knobs)]
    parts: list[RenderableType] = [_rows((), answers, header=True)]
    for layer in layers:
        parts.append(Text(f"\n{layer.value}", style="bold cyan"))
        parts.append(_rows([knob for knob in knobs if knob.layer is layer], answers, header=False))
    return Group(*parts, Text(), *_legend(knobs, answers))


def knob_card(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> RenderableType:
    """Set everything about one knob."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for label, text in _facts(knob, answers, asked=asked):
        facts.add_row(label, text)
    head = Text.assemble((knob.id, "bold cyan"), f"  {knob.number}, {knob.layer.value}")
    return Group(head, Text(knob.what), Text(), facts)


def knobs_document(knobs: Sequence[Knob], answers: Answers, *, asked: bool) -> dict[str, Any]:
    """Return knobs and answers as plain JSON values."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "asked": asked,
        "knobs": [_document(knob, answers.get(knob.id, ())) for knob in knobs],
    }


def _document(knob: Knob, answers: Sequence[Answer]) -> dict[str, Any]:
    row = {name: value for name, value in asdict(knob).items() if name not in ("domain", "ask")}
    row["domain"] = {"kind": type(knob.domain).__name__.lower()} | asdict(knob.domain)
    row["ask"] = None if knob.ask is None else {"kind": type(knob.ask).__name__} | asdict(knob.ask)
    row["answers"] = [asdict(answer) for answer in answers]
    return row


def _rows(knobs: Sequence[Knob], answers: Answers, *, header: bool) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=header, header_style="bold", expand=True
    )
    table.add_column("", width=_WIDTHS["mark"], no_wrap=True)
    table.add_column("knob", width=_WIDTHS["knob"], overflow="fold")
    table.add_column("values", ratio=9)
    table.add_column("default", ratio=4, no_wrap=True, overflow="ellipsis")
    table.add_column("change", width=_WIDTHS["change"], no_wrap=True)
    table.add_column("risk", width=_WIDTHS["risk"], no_wrap=True)
    for knob in knobs:
        given = answers.get(knob.id, ())
        table.add_row(
            Text(("*" if knob.place else " ") + _mark(given), style="bold"),
            Text(knob.id, style="bold" if knob.place else ""),
            _values(knob, given),
            Text(knob.default.strip("()"), style="dim" if knob.default.startswith("(") else ""),
            Text(knob.change.value, style=_CHANGE_STYLE.get(knob.change, "")),
            Text("-" if knob.risk is Risk.NONE else knob.risk.value, style=_RISK_STYLE.get(knob.risk, "yellow")),
        )
    return table


def _mark(answers: Sequence[Answer]) -> str:
    """`+` where a program has the knob, `-` where none of those asked has it, `?` where none could be asked."""
    standings = {answer.standing for answer in answers}
    if standings & {Support.VALUES, Support.EXISTS}:
        return "+"
    if Support.ABSENT in standings:
        return "-"
    return "?" if standings else " "


def _values(knob: Knob, answers: Sequence[Answer]) -> Text:
    """The domain in words; of a choice, what no installed program has is marked."""
    missing = _missing(knob, answers)
    if not isinstance(knob.domain, Choice) or not missing:
        return Text(describe_domain(knob.domain))
    words = [
        Text(f"-{value}", style="dim strike") if value in missing else Text(value) for value in knob.domain.values
    ]
    return Text(" | ").join(words)


def _missing(knob: Knob, answers: Sequence[Answer]) -> frozenset[str]:
    """The values of a choice that every program which listed its own left out."""
    lists = [answer.values for answer in answers if answer.standing is Support.VALUES]
    if not lists or not isinstance(knob.domain, Choice):
        return frozenset()
    return frozenset(knob.domain.values).difference(*lists)


def _legend(knobs: Sequence[Knob], answers: Answers) -> Iterator[Text]:
    turned = sum(1 for knob in knobs if knob.place)
    noun = "knob" if len(knobs) == 1 else "knobs"
    yield Text(f"{len(knobs)} {noun}; * virtune turns it in its own stacks ({turned})", style="dim")
    programs = sorted({answer.program for given in answers.values() for answer in given})
    if programs:
        yield Text(f"+ the QEMU here has it, - it has not, ? could not be asked: {', '.join(programs)}", style="dim")
    yield Text(
        "`virtune knobs NAME` says what a knob is for, what it needs and where that is known from", style="dim"
    )


def _facts(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> Iterator[tuple[str, RenderableType]]:
    yield "why", Text(knob.why)
    yield "", Text()
    yield "values", _values(knob, answers)
    yield "default", Text(knob.default.strip("()"))
    yield (
        "change",
        Text.assemble((knob.change.value, _CHANGE_STYLE.get(knob.change, "")), f": {CHANGES[knob.change]}"),
    )
    if knob.in_guest is not None:
        yield "in a guest", Text(f"{knob.in_guest.value}: {CHANGES[knob.in_guest]} (guests of virtune's own)")
    risk = Text(knob.risk.value, style=_RISK_STYLE.get(knob.risk, "yellow"))
    yield "risk", Text.assemble(risk, f": {knob.risk_note}" if knob.risk_note else "")
    if knob.needs:
        yield "needs", Text("\n".join(knob.needs))
    turned = f"turned with `--set {knob.id}=VALUE`" if knob.place else "documented, cannot be set yet"
    yield "virtune", Text(turned)
    yield "", Text()
    yield "installed", _said(knob, answers, asked=asked)
    if knob.spelled:
        yield "", Text()
        yield "spelled", _grid(knob.spelled.items())
    yield "", Text()
    yield "evidence", _grid(_evidence(line) for line in knob.source)


def _said(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> RenderableType:
    if knob.ask is None:
        return Text("not asked: QEMU has no property or option by which to ask for it", style="dim")
    if not asked:
        return Text("not asked: --no-ask", style="dim")
    return _grid((answer.program, _answer(knob, answer)) for answer in answers)


def _answer(knob: Knob, answer: Answer) -> str:
    match answer.standing:
        case Support.VALUES if isinstance(knob.domain, Choice):
            has = [value for value in knob.domain.values if value in answer.values]
            lacks = [value for value in knob.domain.values if value not in answer.values]
            more = len(answer.values) - len(has)
            parts = [f"has {', '.join(has)}" if has else "", f"lacks {', '.join(lacks)}" if lacks else ""]
            parts.append(f"{more} more that virtune does not list" if more else "")
            return "; ".join(part for part in parts if part)
        case Support.VALUES:
            return f"has {', '.join(answer.values)}"
        case Support.EXISTS:
            return f"has {answer.detail}"
        case Support.ABSENT:
            return f"has {answer.detail}"
        case _:
            return f"not asked: {answer.detail}"


def _evidence(line: str) -> tuple[str, str]:
    """Part `[T] what` into the kind of evidence in words, and the text."""
    kind, _, text = line.partition(" ")
    return EVIDENCE.get(kind, kind), text


def _grid(rows: Iterable[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    return grid
