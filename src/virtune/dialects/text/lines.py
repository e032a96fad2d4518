# SPDX-License-Identifier: Apache-2.0
"""Configuration text with one setting per line, parsed with positions and altered in place.

The text is never rendered again: an alteration replaces the value of one setting, adds one line or takes one away, so
comments, order, blanks and line ends stay as they are.

A shell's commands are read as words without their quotes: `shlex` knows neither where a command ends nor a backslash
at the end of a line, and takes `a#b` for a comment.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from virtune.model.errors import PlanError, ReadError

BYTES_MAX = 1024 * 1024
"""A configuration of one VM is a few kilobytes; Proxmox and Kubernetes carry no larger ones either."""

LINES_MAX = 20_000

WORDS_MAX = 50_000
"""Of one command; a VM of a thousand disks has 8,000."""


@dataclass(frozen=True, slots=True)
class Page:
    """A text of characters, and how it becomes bytes again: exactly those that it was read from."""

    text: str
    codec: str

    def spliced(self, start: int, end: int, new: str) -> bytes:
        """Return the bytes with one stretch of characters replaced."""
        try:
            return (self.text[:start] + new + self.text[end:]).encode(self.codec)
        except UnicodeEncodeError:
            raise PlanError(f"{new[:40]!r} cannot be written in this file's encoding") from None

    @property
    def newline(self) -> str:
        """How its lines end."""
        at = self.text.find("\n")
        return "\r\n" if at > 0 and self.text[at - 1] == "\r" else "\n"


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line: its number from 1, its place, its text without the end."""

    number: int
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: key, value, and where these stand. `section` is what the last heading before it said."""

    key: str
    value: str
    line: TextLine
    start: int
    end: int
    section: str = ""


def read_page(text: bytes, *, bytes_max: int = BYTES_MAX) -> Page:
    """Decode untrusted bytes; raises ReadError for anything but text of limited size."""
    if len(text) > bytes_max:
        raise ReadError(f"it is larger than {bytes_max // 1024} KiB, which no configuration of a VM is")
    if b"\0" in text:
        raise ReadError("it is no text")
    if text.count(b"\n") > LINES_MAX:
        raise ReadError(f"it has more than {LINES_MAX} lines")
    # a mark of the byte order is no character of the text: parsers pass it over and do not count it
    codec = "utf-8-sig" if text.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        return Page(text.decode(codec), codec)
    except UnicodeDecodeError:
        return Page(text.decode("latin-1"), "latin-1")  # every byte is a character, so nothing is lost


def lines_of(page: Page) -> Iterator[TextLine]:
    """Yield the lines. Only a line feed ends one, whatever else Unicode calls a line's end."""
    at = 0
    for number, text in enumerate(page.text.split("\n"), 1):
        yield TextLine(number, at, text.removesuffix("\r"))
        at += len(text) + 1


def settings_of(page: Page, form: re.Pattern[str], heading: re.Pattern[str] | None = None) -> Iterator[Setting]:
    """Yield the settings: lines that match `form` with its groups `key` and `value`; `heading` names sections."""
    section = ""
    for line in lines_of(page):
        if heading is not None and (headed := heading.match(line.text)):
            section = headed[1]
        elif found := form.match(line.text):
            start, end = found.span("value")
            yield Setting(found["key"], found["value"], line, line.start + start, line.start + end, section)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a text by their keys, of several with one key the last; `value` and `with_key` ask for one."""

    page: Page
    by_key: Mapping[str, Setting]

    def value(self, key: str, otherwise: str = "") -> str:
        return self.by_key[key].value if key in self.by_key else otherwise

    def vcpus(self, key: str) -> int:
        """Read a key as a number of vCPUs: one where it is not there, or none that a VM can have."""
        return int(text) if _VCPUS.fullmatch(text := self.value(key)) else 1

    def with_key(self, key: str, value: str | None, *, line: str = "", after: Setting | None = None) -> bytes:
        """Return the bytes with the value of a key, without its line for None; where it is not there, with `line`
        added after a setting's.
        """
        found = self.by_key.get(key)
        if found is not None:
            return without(self.page, found) if value is None else with_value(self.page, found, value)
        return self.page.spliced(0, 0, "") if value is None or after is None else with_line(self.page, after, line)


_VCPUS = re.compile(r"[0-9]{1,5}")


def read_settings(text: bytes, form: re.Pattern[str], *, folded: bool = False) -> Settings:
    """Read a text of settings without sections; with `folded` keys the case of their letters does not matter."""
    page = read_page(text)
    return Settings(page, {one.key.lower() if folded else one.key: one for one in settings_of(page, form)})


def with_value(page: Page, setting: Setting, value: str) -> bytes:
    """Return the bytes with another value of a setting."""
    return page.spliced(setting.start, setting.end, value)


def without(page: Page, setting: Setting) -> bytes:
    """Return the bytes without a setting's line."""
    end = page.text.find("\n", setting.line.end)
    if end < 0:  # the last line, which has no end: then the one before loses it
        start = max(0, setting.line.start - len(page.newline) if setting.line.start else 0)
        return page.spliced(start, len(page.text), "")
    return page.spliced(setting.line.start, end + 1, "")


def with_line(page: Page, after: Setting, text: str) -> bytes:
    """Return the bytes with a line added after a setting's."""
    return page.spliced(after.line.end, after.line.end, page.newline + text)


@dataclass(frozen=True, slots=True)
class Option:
    """One part of a list with commas: `name=value`, or a flag whose value is None; its place in the list's text."""

    name: str
    value: str | None
    start: int
    end: int


def options_of(text: str) -> tuple[Option, ...]:
    """Return the parts of `a,b=c,d`."""
    found, at = [], 0
    for part in text.split(","):
        name, equals, value = part.partition("=")
        found.append(Option(name.strip(), value.strip() if equals else None, at, at + len(part)))
        at += len(part) + 1
    return tuple(found)


def with_option(text: str, name: str, value: str | None, *, flag: bool = False) -> str:
    """Return a list with one option set, at its place or at the end; a `flag` is written without a value."""
    word = name if flag else f"{name}={value}"
    for option in options_of(text):
        if option.name == name:
            return text[: option.start] + word + text[option.end :]
    return f"{text},{word}" if text else word


def without_option(text: str, name: str) -> str:
    """Return a list without an option."""
    for option in options_of(text):
        if option.name == name:
            if option.start:
                return text[: option.start - 1] + text[option.end :]
            return text[option.end + 1 :]
    return text


def option(options: Sequence[Option], name: str) -> str | None:
    """Return the value of an option, None where it is not there or has none."""
    return next((one.value for one in options if one.name == name), None)


def whole(text: str, where: str, *, most: int = 2**63 - 1) -> int:
    """Read a whole number; raises ReadError with the place."""
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) > most:
        raise ReadError(f"{where}: {text[:40]!r} is not a whole number")
    return int(text)


def safe(value: str, form: Callable[[str], bool] | None = None) -> str:
    """Return a value that may be put between other people's commas and quotes; raises PlanError for others."""
    if not re.fullmatch(r"[\w.:+/-]+", value, re.ASCII) or (form is not None and not form(value)):
        raise PlanError(f"{value[:60]!r} is no value that can be written here")
    return value


_TOKEN = re.compile(
    r"""(?P<plain>[\w/.,:=+@%-]++(?=[ \t\n]))|(?P<blank>[ \t]++)|(?P<comment>\#[^\n]*+)|(?P<end>\n|[;&|<>()]++)
        |(?P<word>(?:\$\([^()\n]*+\)|`[^`\n]*+`|[^ \t\n'"\\;&|<>()]|\\.|'[^']*+'|"(?:[^"\\]|\\.)*+")++)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\$`\n])')
_GOES_ON = re.compile(r"[ \t]*--?[A-Za-z]")
"""No command begins with a dash: such a line is the next part of one whose lines were pasted without backslashes."""


class Word(str):
    """A word of a command, and the number of the line on which it begins."""

    __slots__ = ("line",)
    line: int

    def __new__(cls, text: str, line: int) -> Self:
        word = super().__new__(cls, text)
        word.line = line
        return word


def commands_of(text: str, line: int = 1) -> Iterator[list[Word]]:
    """Yield the words of each command, as they are reached, of a text that begins on that line. Raises ValueError
    where a quotation has no end, and ReadError for a command of too many words.
    """
    parts = text.replace("\r\n", "\n").split("\\\n")
    text = "".join(parts)
    begins = sorted([*accumulate(map(len, parts[:-1])), *(found.end() for found in re.finditer("\n", text))])
    words: list[Word] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("a quotation without an end")
        begin, at = at, found.end()
        if found.lastgroup in ("plain", "word"):
            word = found[0] if found.lastgroup == "plain" else _unquoted(found[0])
            words.append(Word(word, line + bisect_right(begins, begin)))
        elif found.lastgroup == "end" and not (found[0] == "\n" and words and _GOES_ON.match(text, at)):
            if words:
                yield words
            words = []
        if len(words) > WORDS_MAX:
            raise ReadError(f"one of its commands has more than {WORDS_MAX:,} words, and none of a VM's has")
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
