# SPDX-License-Identifier: Apache-2.0
"""A result as GitHub's Markdown, for a comment on a pull request: the answer first, then its evidence.

Names and remarks may come from untrusted files. All their text is escaped, so that none of it becomes markup, a link,
a mention or HTML.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from virtune.model.bottleneck import Diagnosis
from virtune.model.result import Result
from virtune.model.text import printable
from virtune.model.tuning import Spelled, Tuning
from virtune.model.verdict import ThresholdResult
from virtune.report.pages import result as results
from virtune.report.pages.brief import beside, finding, limits, meaning, trust
from virtune.report.pages.diagnose import proof_headline, proof_sentences
from virtune.report.pages.evidence import note_lines, resting_on, warning_lines
from virtune.report.pages.study import arm_lines, host_words, settings_of
from virtune.report.pages.tune import answer_lines, arms_table, sections, warnings
from virtune.report.pages.tune import headline as tuning_headline
from virtune.report.pages.tune import trust as search_trust
from virtune.report.render.terminal import set_at
from virtune.report.reproduce import AGAIN, command_again, tune_again
from virtune.report.view import ViewRow, view_of, worth

_ALWAYS = re.compile(r"([\\`*|$#])")
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Within a word, as in io_uring, it is not markup."""

_LINK = re.compile(r"\](?=[\[(:])|!(?=\[)|~(?=.*~)|(?<=~)~")
"""The characters of a link, an image or a strikethrough; brackets alone (as in an interval) and a single tilde are
text.
"""

_BEGIN = re.compile(r"^(\s*)([>+=-]|[0-9]+(?=[.)])|\[(?=[ xX]\]))")
"""What at the begin of a line makes a quotation, a list, a rule, or a box to tick."""

_ENTITY = re.compile(r"&(?=#?\w+;)")
_BREAK = "\u200b"
"""A zero-width space: it splits text that would be taken for a mention or an address."""

COLUMNS = 88
"""The width of a code block that is shown without scrolling."""


def markdown(result: Result, rulings: Sequence[ThresholdResult], facts: str = "") -> str:
    """Return the result as Markdown, ending in a newline; `facts` are those of the host, as JSON."""
    where = "" if result.study.imported else f"; {host_words(result.study, facts)}"
    told = (*map(str, (*beside(result), *limits(result))), meaning(result), f"virtune: {trust(result)}{where}")
    said = items(filter(None, told))
    found, passed = finding(result).plain, results.passed_line(rulings)
    head = [heading(3, found)] if passed is None else [heading(3, passed.plain), f"**{plain(found)}**\n"]
    first = (*head, *_conditions(result, rulings), *said)
    command = command_again(result.study)
    again = (heading(4, "To repeat it"), f"{AGAIN}\n", code(command)) if command else ()
    proof = (*_head(result, facts), *_workloads(result), *_settings(result), *_warnings(result), *again)
    return _joined(*first, "", f"{FOLD}\n", *proof, f"\n{FOLD_END}")


FOLD, FOLD_END = "<details><summary>All figures, settings, and how it was decided</summary>", "</details>"
"""The only HTML that a page has."""


def _joined(*parts: str) -> str:
    return "\n".join(parts).rstrip("\n") + "\n"


def plain(text: str) -> str:
    """Return text that Markdown shows as it is: one line, no markup, no HTML, no link, nobody mentioned."""
    shown = printable(text)
    shown = _ALWAYS.sub(r"\\\1", shown)
    shown = _UNDERSCORE.sub(r"\\_", shown)
    shown = _LINK.sub(lambda found: f"\\{found[0]}", shown)
    shown = _ENTITY.sub("&amp;", shown).replace("<", "&lt;")
    return re.sub(r"(?i)(@|://|\bwww(?=\.))", rf"\1{_BREAK}", shown)


def line(text: str) -> str:
    """Return text for the begin of a line, escaped so that it begins nothing but itself."""
    shown = plain(text).strip()
    found = _BEGIN.match(shown)
    if found is None:
        return shown
    rest = shown[found.end() :]
    return f"{found[2]}\\{rest}" if found[2].isdecimal() else f"\\{found[2]}{rest}"


def heading(level: int, text: str) -> str:
    return f"{'#' * level} {plain(text)}\n"


def items(texts: Iterable[str], word: str = "") -> Iterator[str]:
    """Yield a list; each item begins with `word` where one is given."""
    yield from (f"* {word}: {plain(text)}" if word else f"* {line(text)}" for text in texts)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, strong: Collection[str] = ()) -> Iterator[str]:
    """Yield a table; a cell that is one of the words in `strong` is written in bold."""
    yield f"| {' | '.join(map(plain, head))} |"
    yield f"|{'|'.join(' --- ' for _ in head)}|"
    for row in rows:
        yield f"| {' | '.join(f'**{cell}**' if cell in strong else plain(cell) for cell in row)} |"
    yield ""


def code(text: str) -> str:
    """Return text as a code block, behind a fence that is longer than any in it."""
    shown = "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence}text\n{shown}\n{fence}\n"


def _head(result: Result, facts: str) -> Iterator[str]:
    yield from (f"{line(text)}\n" for text in results.headline(result).plain.split("\n", 1))
    if drawn := results.answer(result):
        yield code(set_at(COLUMNS, *drawn).strip("\n"))
    yield from items((*arm_lines(result.study, facts), *results.about(result, facts)))
    yield ""


def _conditions(result: Result, rulings: Sequence[ThresholdResult]) -> Iterator[str]:
    rows = []
    for one in rulings:
        workload = one.comparison.workload
        measured = f"{results.ruling_text(one)}{results.in_table(result, one)}"
        why = "; ".join(filter(None, (worth(result, workload), one.why)))
        rows.append((one.condition.text, workload, results.arms_text(one), measured or "-", one.outcome.value, why))
    if rows:
        head = ("fails if", "workload", "arm", "measured", "outcome", "why")
        yield from table(head, rows, strong=("breached", "undecided"))


def _workloads(result: Result) -> Iterator[str]:
    view = view_of(result)
    for one in view.workloads:
        yield heading(4, one.workload.name)
        yield f"{line(one.workload.meaning)}\n"
        if one.worth:
            yield f"**{plain(one.worth)}**\n"
        yield from _values(results.TYPICAL if one.typical else "", one.rows, view.arms)
        yield from (*items((*results.values_words(one, result.study), *results.changes_words(one, result.study))), "")
        if one.together:
            yield from _values(results.TOGETHER, one.together, view.arms)
        yield from (
            *items(results.marks_words(one, result.study)),
            "",
            *items(map(str, results.verdict_sentences(one.verdicts))),
        )
        yield from (*items(resting_on(result, one.workload) if one.verdicts else ()), "", "")


def _values(head: str, rows: Sequence[ViewRow], arms: Sequence[str]) -> Iterator[str]:
    """One row a metric: its value for each arm, and behind those of the others the change against the baseline."""
    yield from table(
        (head, *arms), ((row.label, *(results.changed_value(row, cell) for cell in row.cells)) for row in rows)
    )


def _settings(result: Result) -> Iterator[str]:
    if rows := list(settings_of(result)):
        yield heading(4, "Verified settings")
        yield from table(("arm", "", "read from the running processes"), rows)


def _warnings(result: Result) -> Iterator[str]:
    lines = [one for word, text in warning_lines(result) for one in items((text,), word)]
    lines += items(note_lines(result), "note")
    if lines:
        yield heading(4, "Warnings and notes")
        yield from lines
        yield ""


def proof_markdown(one: Diagnosis, result: Result | None, facts: str = "") -> str:
    """Return the verdict as Markdown, ending in a newline; `result` is the comparison's, None where none ran."""
    return _joined(*_answer(one), "" if result is None else markdown(result, (), facts))


def _answer(one: Diagnosis) -> Iterator[str]:
    if one.proof is None:
        return
    yield heading(3, f"virtune: {proof_headline(one, one.proof)}")
    yield f"{line(f'{one.disk} under {one.workload}')}\n"
    yield "The diagnosis said:\n"
    yield from items(one.found.evidence)
    yield "\nThe proof:\n"
    yield from (*items(proof_sentences(one.proof)), "")


TUNING_COLUMNS = 110
"""The width of the table of arms: wide enough for names of three settings beside their intervals."""


def tuning_markdown(known: Tuning, facts: str, written: Sequence[Spelled]) -> str:
    """Return a search as Markdown, ending in a newline; `facts` are those of the host, as JSON."""
    again = (heading(4, "To repeat it"), code(tune_again(known.study)))
    first, *rest = map(str, answer_lines(known))
    drawn = code(set_at(TUNING_COLUMNS, arms_table(known)).strip("\n"))
    rest += [f"{search_trust(known)}; {host_words(known.study, facts)}"]
    head = (heading(3, f"virtune: {first}"), *items(rest), *items(warnings(known), "warning"), "")
    named = (f"{line(text)}\n" for text in tuning_headline(known).plain.split("\n"))
    proof = (*named, drawn, *_sections(known, facts), *_written(written), *again)
    return _joined(*head, f"{FOLD}\n", *proof, f"\n{FOLD_END}")


def _sections(known: Tuning, facts: str) -> Iterator[str]:
    for title, lines in sections(known, facts):
        if lines:
            yield heading(4, title.capitalize())
            yield from (*items(lines), "")


def _written(written: Sequence[Spelled]) -> Iterator[str]:
    for one in written:
        yield heading(4, one.title)
        if one.text:
            yield code(one.text)
        yield from (*items(one.notes), "")
