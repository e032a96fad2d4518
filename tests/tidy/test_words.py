# SPDX-License-Identifier: Apache-2.0
"""Words that were replaced by plainer ones do not come back, in output, help or docs (`docs/words.md` has ours)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GONE = {
    r"to beware of": "warnings",
    r"\bin force\b": "verified, active",
    r"taken to be alike|alike for at least|worth \d+ independent": "lag-1 autocorrelation, effective sample size",
    r"hypervisor below": "CPU steal",
    r"difference that could be found|what could be found here": "minimum detectable difference",
    r"round's difference varies": "spread of paired differences",
    r"single rounds make the difference": "the sign test is not significant",
    r"no room in its budget": "time budget reached",
    r"is no arm\b|is no key\b|no key of a plan|is no TOML": "unknown arm, unknown key, not TOML",
    r"drawn, and recorded": "random; stored with the result",
    r"cannot be said yet": "no bound yet",
    r"stands in the way of": "problems",
    r"with a way back|Make such changes": "reversible",
    r"(VM|guest|machine)s? of (yours|ours|the user's)|domain of a libvirt": "your VM, a test VM, a libvirt domain",
    r"asked for, and not to be seen|not to be seen:": "requested, cannot be verified",
    r"nobody to ask": "cannot ask for confirmation",
    r"what became of conditions|is none of disks|has no plain report": "say it plainly",
    r"and nothing uses \d": "defined, but no disk uses it",
    r"stopped at its cap|that it was to take": "block limit reached, --rounds reached",
    r"A change that is not to be|not shown to be|as it must be": "say it plainly",
    r"that is thrown away: |of it is thrown away": "not measured",
    r"names none of its numbers|whoever looks for another": "say it plainly",
    r"stack against itself": "A/A test",
    r"\bspoil(s|ed)?\b(?!\*\*)": "disturbed",
    r"no drift shown": "no drift detected",
}
"""Words by a regular expression, and what is said instead."""

LATER = ("docs/glossary.md",)
"""Pages on classes, whose names have some of these words."""


def sentences() -> Iterator[tuple[str, str]]:
    """Every text that a user may read, with where it stands: strings of the program, its help, the pages."""
    for path in sorted((ROOT / "src" / "virtune").rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        inner = {
            id(node.body[0].value)
            for node in nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and not (path.parent.name == "cli" and isinstance(node, ast.FunctionDef))  # help is made of these
        }
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", " ".join(node.value.split())
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if str(path.relative_to(ROOT)) not in LATER:
            yield str(path.relative_to(ROOT)), " ".join(path.read_text().split())


def test_replaced_words_do_not_come_back() -> None:
    any_of = re.compile("|".join(f"(?:{words})" for words in GONE))
    found = [f"{where}: {one[0]!r}" for where, text in sentences() for one in any_of.finditer(text)]
    assert not found, f"write what {__file__} says instead: {found}"
