# SPDX-License-Identifier: Apache-2.0
"""The page of options: the options of a study, on the command line and in plan files."""

from collections.abc import Iterator

from tools.pages.markdown import code, plain, table, whole
from virtune.model.study_options import OPTIONS, UNITS, OptionRow, Provenance, default_words, flag_of


def page() -> str:
    """Return the page."""
    return whole("Options", _lines())


def _lines() -> Iterator[str]:
    yield "What a study can be asked for. A flag goes over the same key of a [plan file](plan.md), and both go"
    yield "over the default. With `-v` virtune says the value of each option and where it came from"
    yield f"({', '.join(Provenance)}); the study keeps it, and `show -v` says it again.\n"
    yield from table(
        ("option", "plan key", "of", "value", "default", "where the default comes from"),
        (
            (
                code(flag_of(name)) if row.verbs else "",
                code(row.plan) if row.plan else plain(f"none: {row.not_in_plan}"),
                ", ".join(row.verbs) or "plan files",
                f"{row.takes}{f' in {UNITS[row.takes]}' if row.takes in UNITS else ''}{_bounds(row)}",
                plain("; ".join(_defaults(row))),
                plain(row.why),
            )
            for name, row in OPTIONS.items()
        ),
    )


def _bounds(row: OptionRow) -> str:
    if row.low is None and row.high is None:
        return ""
    low = "" if row.low is None else f"{row.low:,g}"
    high = "" if row.high is None else f"{row.high:,g}{' (not itself)' if row.below else ''}"
    return f", {low}..{high}"


def _defaults(row: OptionRow) -> Iterator[str]:
    """Yield each default, with the verbs that have it where they differ."""
    found: dict[str, list[str]] = {}
    for verb in row.verbs:
        if words := default_words(row, verb):
            found.setdefault(words, []).append(verb)
    for words, verbs in found.items():
        yield words if len(found) == 1 else f"{words} ({', '.join(verbs)})"
