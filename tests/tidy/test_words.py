# SPDX-License-Identifier: Apache-2.0
"""Words that were replaced by plainer ones do not come back, in output, docs, comments or names of tests."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GONE = {
    r"to beware of": "warnings",
    r"\(method, \d": "the page by its name: docs/method.md has no numbers",
    r"came with the image|ring of \w+ moved|this is (one|the worst)\]": "what was seen; one of N such trials",
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
    r"\bbeware\b": "warning, note",
    r"of strangers|of the user's": "untrusted; existing",
    r"\b[Hh](eld|old .{1,40}) against\b": "compared with, checked against",
    r"nobody knows|what (be)?came of": "unknown; the result",
    r"\bgravest\b": "most severe",
    r"ranks? nothing": "not comparable",
    r"what could be found|nine times in ten": "minimum detectable difference; with 90 % probability or power",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"says so far|what there is to know|worth the name": "say it plainly",
    r"[Ff]irst light": "first version",
    r"pip install '?virtune\b": "'.[NAME]' in the checkout: nothing of this name is published, or ours",
}
"""Words by a regular expression, and what is said instead."""

ANY_OF = re.compile("|".join(f"(?:{words})" for words in GONE))


COMMENT = re.compile(r"^\s*(?:#+|//[/!]?)\s?", re.MULTILINE)
"""What begins a line of a comment in Python, TOML, shell and Rust."""

PROSE = ("*.toml", "*.md", "*.rs")
"""Files beside Python that hold prose: plan files and published figures, pages, the load generator."""


def may_be_comments(text: str) -> str:
    """Return what follows a `#`, be it a comment or in a string, as `comments` does in a hundredth of its time."""
    lines = (line.partition("#")[2].lstrip("# ") if "#" in line else "" for line in text.splitlines())
    return "\n".join(lines)


def comments(text: str) -> str:
    """Return the comments of a Python file, a blank line between those that do not follow one another."""
    if not any(ANY_OF.search(" ".join(block.split())) for block in may_be_comments(text).split("\n\n")):
        return ""
    found, last = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type is tokenize.COMMENT:
            line = token.start[0]
            found.append(("\n" if line > last + 1 else "") + token.string.lstrip("# "))
            last = line
    return "\n".join(found)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield every string of a program with its line: messages, help and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def names_and_docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names of tests as sentences, and the docstrings of their modules, classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def sentences() -> Iterator[tuple[str, str]]:
    """Every text that a user or a newcomer may read, with where it stands."""
    for room in ("src", "tools", "benchmarks", "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if path == Path(__file__):
                continue
            text, where = path.read_text(), path.relative_to(ROOT)
            tree = ast.parse(text)
            for line, one in names_and_docstrings(tree) if room == "tests" else strings(tree):
                yield f"{where}:{line}", " ".join(one.split())
            for block in comments(text).split("\n\n"):
                yield f"{where} (comment)", " ".join(block.split())
    for place in (ROOT, *(ROOT / room for room in ("src", "tools", "benchmarks", "docs", "loadgen"))):
        for path in sorted(one for kind in PROSE for one in (place.glob if place == ROOT else place.rglob)(kind)):
            yield str(path.relative_to(ROOT)), " ".join(COMMENT.sub("", path.read_text()).split())


def test_replaced_words_do_not_come_back() -> None:
    found = [f"{where}: {one[0]!r}" for where, text in sentences() for one in ANY_OF.finditer(text)]
    assert not found, f"write what {__file__} says instead: {found}"


def test_a_replaced_word_in_a_comment_of_two_lines_is_found() -> None:
    text = "a = '#'  # nothing is\nb = 1\n# what is to\n#   beware\n\n# of\n"
    assert comments(text) == "nothing is\n\nwhat is to\nbeware\n\nof"
    assert comments(text.replace("beware", "know")) == "", "and else no program is taken apart"
