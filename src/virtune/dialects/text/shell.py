# SPDX-License-Identifier: Apache-2.0
"""Text as a shell reads it: its commands, each as words without their quotes (pure).

`shlex` knows neither where a command ends nor a backslash at the end of a line, and takes `a#b` for a comment.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<blank>[ \t]++)|(?P<comment>\#[^\n]*+)|(?P<end>\n|[;&|<>()]++)
        |(?P<word>(?:[^ \t\n'"\\;&|<>()]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")++)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\$`\n])')
_GOES_ON = re.compile(r"[ \t]*--?[A-Za-z]")
"""No command begins with a dash: such a line is the next part of one whose lines were pasted without backslashes."""


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, as they are reached; raises ValueError where a quotation has no end."""
    text = text.replace("\r\n", "\n").replace("\\\n", "")
    words: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("a quotation without an end")
        at = found.end()
        if found.lastgroup == "word":
            words.append(_unquoted(found[0]))
        elif found.lastgroup == "end" and not (found[0] == "\n" and words and _GOES_ON.match(text, at)):
            if words:
                yield words
            words = []
    if words:
        yield words


def _unquoted(word: str) -> str:
    """Take the quotes away. JSON without quotes around it is what `ps` prints, and stays as it is."""
    if word.startswith('{"'):
        return word
    return _QUOTED.sub(_content, word)


def _content(found: re.Match[str]) -> str:
    single, double, escaped = found.groups()
    if double is not None:
        return _ESCAPED.sub(r"\1", double)
    return single if single is not None else escaped
