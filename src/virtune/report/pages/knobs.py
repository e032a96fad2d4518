# SPDX-License-Identifier: Apache-2.0
"""Knobs as text: the table of many, the card of one."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from virtune.model.knob import Answer, Change, Choice, Knob, Layer, Risk, Support, describe_domain
from virtune.report.render.terminal import Paragraph, Section, Table, wide
from virtune.report.words import count_text

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

EVIDENCE: Mapping[str, str] = {
    "[T]": "tried",
    "[C]": "code",
    "[D]": "documented",
    "[P]": "its author",
    "[B]": "vendor",
    "[U]": "unverified",
}

_CHANGE_STYLE = {
    Change.LIVE: "green",
    Change.SWAP: "green",
    Change.GUEST: "green",
    Change.OFFLINE: "magenta",
    Change.HOST_REBOOT: "magenta",
}
_RISK_STYLE = {Risk.NONE: "dim", Risk.DATA: "bold red", Risk.SECURITY: "bold red"}


def knob_table(knobs: Sequence[Knob], answers: Answers) -> RenderableType:
    table = Table(["knob", "", *wide("values", least=20), *wide("default", least=12), "change", "risk"])
    for layer in (one for one in Layer if any(knob.layer is one for knob in knobs)):
        table.rows += [Section(Text("")), Section(Text(layer.value, style="bold cyan"))]
        table.rows += [_row(knob, answers.get(knob.id, ())) for knob in knobs if knob.layer is layer]
    return Group(table, Text(), *_legend(knobs, answers))


def knob_card(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> RenderableType:
    head = Text.assemble((knob.id, "bold cyan"), f"  {knob.number}, {knob.layer.value}")
    groups = _facts(knob, answers, asked=asked)
    card = (Table(["", *wide("", least=30)], group, heads=False, above=True) for group in groups)
    return Group(head, Paragraph(knob.what), *card)


def _row(knob: Knob, given: Sequence[Answer]) -> tuple[Text, ...]:
    mark = ("*" if knob.place else "") + _mark(given)
    return (
        Text(knob.id, style="bold" if knob.place else ""),
        Text(mark, style="bold"),
        _values(knob, given),
        Text(knob.default.strip("()"), style="dim" if knob.default.startswith("(") else ""),
        Text(knob.change.value, style=_CHANGE_STYLE.get(knob.change, "")),
        Text("-" if knob.risk is Risk.NONE else knob.risk.value, style=_RISK_STYLE.get(knob.risk, "yellow")),
    )


def _mark(answers: Sequence[Answer]) -> str:
    """`+` where a program has the knob, `-` where none of those asked has it, `?` where none could be asked."""
    standings = {answer.standing for answer in answers}
    if standings & {Support.VALUES, Support.EXISTS}:
        return "+"
    if Support.ABSENT in standings:
        return "-"
    return "?" if standings else ""


def _values(knob: Knob, answers: Sequence[Answer]) -> Text:
    """The values in words; choices that no installed program has are marked."""
    missing = _missing(knob, answers)
    if not isinstance(knob.domain, Choice) or not missing:
        return Text(describe_domain(knob.domain))
    words = [
        Text(f"-{value}", style="dim strike") if value in missing else Text(value) for value in knob.domain.values
    ]
    return Text(" | ").join(words)


def _missing(knob: Knob, answers: Sequence[Answer]) -> frozenset[str]:
    """The values of a choice that are missing in the lists of all programs that answered."""
    lists = [answer.values for answer in answers if answer.standing is Support.VALUES]
    if not lists or not isinstance(knob.domain, Choice):
        return frozenset()
    return frozenset(knob.domain.values).difference(*lists)


def _legend(knobs: Sequence[Knob], answers: Answers) -> Iterator[Text]:
    turned = sum(1 for knob in knobs if knob.place)
    yield Text(f"{count_text(len(knobs), 'knob')}; * virtune can set it ({turned})", style="dim")
    programs = sorted({answer.program for given in answers.values() for answer in given})
    if programs:
        yield Text(f"+ supported here, - not supported here, ? unknown: {', '.join(programs)}", style="dim")
    yield Text("`virtune host knobs NAME` explains one knob: purpose, needs, sources", style="dim")


def _facts(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> Iterator[list[tuple[str, Text]]]:
    yield [("why", Text(knob.why))]
    change = Text(knob.change.value, style=_CHANGE_STYLE.get(knob.change, ""))
    facts = [("values", _values(knob, answers)), ("default", Text(knob.default.strip("()")))]
    facts.append(("change", Text.assemble(change, f": {CHANGES[knob.change]}")))
    if knob.in_guest is not None:
        facts.append(("in a guest", Text(f"{knob.in_guest.value}: {CHANGES[knob.in_guest]} (test guests)")))
    risk = Text(knob.risk.value, style=_RISK_STYLE.get(knob.risk, "yellow"))
    facts.append(("risk", Text.assemble(risk, f": {knob.risk_note}" if knob.risk_note else "")))
    if knob.needs:
        facts.append(("needs", Text("\n".join(knob.needs))))
    settable = f"set it with `--set {knob.id}=VALUE`" if knob.place else "documented, cannot be set yet"
    yield [*facts, ("virtune", Text(settable))]
    yield _labelled("installed", _said(knob, answers, asked=asked))
    if knob.spelled:
        yield _labelled("written as", [Text(f"{system}: {text}") for system, text in knob.spelled.items()])
    sources = (line.partition(" ") for line in knob.source)  # `[T] what`
    yield _labelled("evidence", [Text(f"{EVIDENCE.get(kind, kind)}: {text}") for kind, _, text in sources])


def _labelled(label: str, lines: Sequence[Text]) -> list[tuple[str, Text]]:
    return [(label if number == 0 else "", line) for number, line in enumerate(lines)]


def _said(knob: Knob, answers: Sequence[Answer], *, asked: bool) -> list[Text]:
    if knob.ask is None:
        return [Text("not asked: QEMU has no property or option by which to ask for it", style="dim")]
    if not asked:
        return [Text("not asked: --no-ask", style="dim")]
    return [Text(f"{answer.program}: {_answer(knob, answer)}") for answer in answers]


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
        case Support.EXISTS | Support.ABSENT:
            return f"has {answer.detail}"
        case _:
            return f"not asked: {answer.detail}"
