# SPDX-License-Identifier: Apache-2.0
"""Mask passwords, keys and tokens in configuration text before it is shown (pure).

One rule for all languages, by the names of keys: XML, YAML, JSON, command lines and `key = value` files all have a
name, a separator and a value. It rather masks too much than too little. A mask keeps all lines, so a diff of two
masked texts is still complete.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

MASK = "***"

_SMALL_NAMES = re.compile(
    r"passwd|password|passphrase|passcode|adminpass|secret|token|credential|cookie|vnc\.key|keysafe"
    r"|(?:private|api|access|auth|encryption)[_.-]?key|user[_-]?data"
)
"""The parts of a key's name that mark its value as secret. `user_data` is cloud-init's, with its passwords."""

_NAMES = re.compile(_SMALL_NAMES.pattern, re.IGNORECASE)
_PARTS = ("passw", "passphrase", "passcode", "adminpass", "secret", "token", "credential", "cookie")
_REST = re.compile(r"key(?:safe|(?<=[a-z_.-]key))"), re.compile(r"user[_-]?data")
"""Each of the names has one of these, for which a text is searched ten times as fast as for the names."""

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-$")
_WORD_MAX = 200

_SEPARATOR = re.compile(r"(?:\\?[\"']|&quot;|&apos;)?(?:\s*=\s*(?=[\"'])|[ \t]*[:=][ \t]*)")
_LEAD = re.compile(r"[ \t]*(?:[-#;*]+[ \t]*|//[ \t]*|export[ \t]+)*[\"']?\Z")
"""What may stand before a key that begins its line: then the value goes on to the end of the line."""

_BLOCK = re.compile(r"[|>][-+0-9]*[ \t]*(?:#[^\n]*)?\Z|\Z")
_OPENINGS = ('\\"', "\\'", "&quot;", "&apos;", "&#34;", "&#39;", '"', "'")

_COMMA = r"(?<!,),(?!,)|\n|[<'\"]|&(?:quot|apos);"
_ENDS = {
    (False, False): re.compile(rf"{_COMMA}|\s"),
    (False, True): re.compile(rf"{_COMMA}|[}}\]]"),
    (True, False): re.compile(_COMMA),
    (True, True): re.compile(rf"{_COMMA}|[}}\]]"),
}
"""Where a value without quotes ends in the midst of a line, by whether it stands in a quoted word, which may hold
blanks, and behind a colon. QEMU doubles a comma that does not end a value."""

_LOOK_BACK = 4000
"""So far back it is looked for the beginning of a line: in a longer one nothing begins its line."""

_QEMU_SECRET = re.compile(r"\bsecret(?:_keyring)?\b[^\n]*|\{[^{}]*\bsecret(?:_keyring)?\b[^{}]*\}")
_QEMU_DATA = re.compile(r"\bdata(?=(?:\\?[\"']|&quot;)?\s*[:=])")
_CEPH_KEY = re.compile(r"(?<![\w.-])key=(?=[A-Za-z0-9+/\\]{16,})")
_URL = re.compile(r"://([^\s/@:%'\"<>]{1,200}[:%])[^\s/@'\"<>]{1,500}(?=@)")
_ELEMENT = re.compile(r"<([A-Za-z][^<>]{0,2000})>([^<]*[^<\s][^<]*)</")
_PAIR = re.compile(r"\bname[\"']?\s*[:=]\s*[\"']?([^\"'\n,<>]{1,200})[\"']?[ \t]*,?\s+[\"']?value[\"']?(?=\s*[:=])")
_PAIR_TURNED = re.compile(r"\bvalue(?=\s*=\s*(?:'[^']*'|\"[^\"]*\")\s+name\s*=\s*(?:'([^']*)'|\"([^\"]*)\"))")
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)(?:-----END|\Z)", re.DOTALL)


@lru_cache(maxsize=8)  # what each finding of a configuration would change is shown against the same text
def masked(text: str) -> str:
    """Return a text of any of these languages with `***` for what is secret in it; as many lines as before."""
    spans = sorted(_spans(text))
    parts, at = [], 0
    for start, end in spans:
        if end <= at:
            continue
        begin = max(start, at)
        parts += [text[at:begin], _hidden(text[begin:end])]
        at = end
    return "".join((*parts, text[at:]))


def _hidden(text: str) -> str:
    """Return a mask of as many lines as a text has, as far in as they are."""
    lines = text.split("\n")
    if len(lines) == 1:
        return MASK
    return "\n".join(line and line[: len(line) - len(line.lstrip())] + MASK for line in lines)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where secrets begin and end; some may overlap."""
    named = [*_named(text)]
    if named:  # else there is no secret of QEMU's and no pair either: most texts are looked through but once
        yield from _of_names(text, named)
        for thing in _QEMU_SECRET.finditer(text):
            for found in _QEMU_DATA.finditer(text, thing.start(), thing.end()):
                yield from _value(text, found.start(), found.end())
        yield from _of_pairs(text)
    for found in _CEPH_KEY.finditer(text) if "key=" in text else ():
        yield from _value(text, found.start(), found.start() + len("key"))
    if "://" in text:
        yield from ((found.end(1), found.end()) for found in _URL.finditer(text))
    if "-----BEGIN" in text:
        yield from (found.span(1) for found in _PEM.finditer(text))


def _named(text: str) -> Iterator[re.Match[str]]:
    """Find the names. In small letters they are found ten times as fast; only of ASCII these are as many."""
    if not text.isascii():
        return _NAMES.finditer(text)
    small = text.lower()
    if any(part in small for part in _PARTS) or any(rest.search(small) for rest in _REST):
        return _SMALL_NAMES.finditer(small)
    return iter(())


def _of_names(text: str, named: Sequence[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Yield the values of keys by whose names they are secret."""
    done = 0  # a name inside of a name or of a secret has been dealt with
    for found in named:
        if found.start() < done:
            continue
        start, end = _key(text, found.start(), found.end())
        done = end
        if not text[start:end].lower().endswith("-secret"):  # QEMU's name for the id of a secret
            for span in _value(text, start, end):
                done = max(done, span[1])
                yield span


def _of_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Yield what stands in another key, or in an element, beside a name that says so: name='PASSWORD' value='...'."""
    for found in _PAIR.finditer(text):
        if _NAMES.search(found[1]):
            yield from _value(text, found.end() - len("value"), found.end())
    for found in _PAIR_TURNED.finditer(text):
        if _NAMES.search(found[1] or found[2] or ""):
            yield from _value(text, found.start(), found.end())
    for found in _ELEMENT.finditer(text):
        if _NAMES.search(found[1]):
            yield found.span(2)


def _key(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen what was found in a name to the whole name."""
    least, most = max(0, start - _WORD_MAX), min(len(text), end + _WORD_MAX)
    while start > least and text[start - 1] in _WORD:
        start -= 1
    while end < most and text[end] in _WORD:
        end += 1
    return start, end


def _value(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the place of the value behind a key, if it has one."""
    found = _SEPARATOR.match(text, end)
    if found is None:
        return
    at = found.end()
    for quote in _OPENINGS:
        if text.startswith(quote, at):
            yield at + len(quote), _closing(text, at + len(quote), quote)
            return
    least = max(0, start - _LOOK_BACK)
    line = text.rfind("\n", least, start) + 1 or least
    colon = ":" in found[0]
    if not _LEAD.match(text, line, start):
        before = text[line:at]
        quoted = bool(before.count("'") % 2 or before.count('"') % 2)
        ended = _ENDS[quoted, colon].search(text, at)
        yield at, len(text) if ended is None else ended.start()
        return
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    if colon and _BLOCK.match(text, at, line_end):
        yield from _deeper(text, line, line_end)
        return
    yield at, line_end


def _closing(text: str, at: int, quote: str) -> int:
    """Return where a quoted value ends; one that is never closed goes on to the end."""
    while (end := text.find(quote, at)) >= 0:
        escaped = quote == '"' and re.search(r"(?<!\\)(?:\\\\)*\\\Z", text[max(at, end - 50) : end])
        doubled = quote == "'" and text.startswith("''", end)
        if not escaped and not doubled:
            return end
        at = end + (2 if doubled else 1)
    return len(text)


def _deeper(text: str, line: int, line_end: int) -> Iterator[tuple[int, int]]:
    """Yield the lines that are further in than a key whose value begins on the next line, as YAML has it."""
    indent = len(text[line:line_end]) - len(text[line:line_end].lstrip(" "))
    at = line_end + 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        content = text[at:end]
        inner = len(content) - len(content.lstrip(" "))
        listed = inner == indent and content.lstrip(" ").startswith("- ")
        if content.strip() and inner <= indent and not listed:
            return
        if content.strip():
            yield at + inner, end
        at = end + 1
