# SPDX-License-Identifier: Apache-2.0
"""XML text, parsed into elements with positions and altered in place.

The text is never rendered again: an alteration replaces the bytes of one attribute or one element, so comments,
order, quotes and unknown elements stay as they are. A document type is refused, and with it every entity and every
reference to something outside; size, depth and number of elements are bounded.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from xml.parsers import expat

from virtune.model.errors import PlanError, ReadError

BYTES_MAX = 4 * 1024 * 1024
"""libvirt carries no string longer than this (REMOTE_STRING_MAX in its remote_protocol.x)."""

DEPTH_MAX = 512
"""A chain of 200 backing files, the longest that libvirt follows, nests about 400 deep."""

ELEMENTS_MAX = 150_000
"""10,000 disks of 12 elements each fit; what is more is no domain, and would only cost memory."""

_ATTRIBUTE = re.compile(rb"""\s+([^\s=/<>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_INDENT = re.compile(rb"\r?\n[ \t]*\Z")


@dataclass(slots=True)
class Element:
    """One element: its name as written, attributes, own text, children; `start:end` are its bytes in `source`.

    `closing` is where its end tag begins, None for one without (`<a/>`).
    """

    tag: str
    attributes: dict[str, str]
    start: int
    line: int
    source: bytes
    closing: int | None = None
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    @property
    def opened(self) -> int:
        """Where its start tag ends; found when it is asked for, which is when something is altered. Expat has found
        it well-formed, so quotes pair.
        """
        at = self.start + 1 + len(self.tag.encode())
        while attribute := _ATTRIBUTE.match(self.source, at):
            at = attribute.end()
        return self.source.index(b">", at) + 1

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.opened if self.closing is None else self.source.index(b">", self.closing) + 1

    def get(self, name: str) -> str | None:
        """Return an attribute, None where it is not written or empty."""
        return self.attributes.get(name) or None

    def child(self, tag: str) -> "Element | None":
        """Return the first child of a name."""
        for one in self.children:  # asked thirty times a disk: a generator takes twice as long
            if one.tag == tag:
                return one
        return None

    def find(self, path: str) -> "Element | None":
        """Return the first descendant by names with slashes between."""
        found: Element | None = self
        for tag in path.split("/"):
            found = found.child(tag) if found is not None else None
        return found

    def value(self, path: str, name: str) -> str | None:
        """Return an attribute of the first descendant by names with slashes between."""
        found = self.find(path)
        return None if found is None else found.get(name)

    def all(self, path: str) -> list["Element"]:
        """Return all descendants by names with slashes between."""
        found = [self]
        for tag in path.split("/"):
            found = [one for parent in found for one in parent.children if one.tag == tag]
        return found


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its root element."""

    text: bytes
    root: Element


@lru_cache(maxsize=4)  # each change of a configuration reads the same text some times
def read_document(text: bytes) -> Document:
    """Read untrusted XML; raises ReadError with the line and the reason."""
    if len(text) > BYTES_MAX:
        raise ReadError(f"it is larger than {BYTES_MAX // 1024**2} MiB, which libvirt itself would not carry")
    if text.startswith((b"\xff\xfe", b"\xfe\xff", b"\0<", b"<\0")):
        raise ReadError("it is written in UTF-16, and libvirt writes and reads UTF-8")
    try:
        root = _tree(text)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well-formed")
        raise ReadError(f"line {error.lineno}: it is no XML: {reason}") from None
    except (ValueError, LookupError) as error:  # an encoding that Python does not know
        raise ReadError(f"it is no XML that can be read: {error}") from None
    return Document(text, root)


def _tree(text: bytes) -> Element:
    """Build the elements from expat's events; `CurrentByteIndex` says where each begins."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    above = Element("", {}, 0, 0, text)
    way, said, count = [above], list[str](), 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(way) > DEPTH_MAX:
            raise ReadError(f"its elements are nested more than {DEPTH_MAX} deep")
        if count > ELEMENTS_MAX:
            raise ReadError(f"it has more than {ELEMENTS_MAX:,} elements")
        element = Element(tag, attributes, parser.CurrentByteIndex, parser.CurrentLineNumber, text)
        way[-1].children.append(element)
        way.append(element)
        said.clear()
        parser.CharacterDataHandler = said.append  # what stands behind an element is no text of one without children

    def end(_tag: str) -> None:
        parser.CharacterDataHandler = None
        element = way.pop()
        # of `<a/>` there is no end tag, and expat stands behind it; else it stands at `</`
        at = parser.CurrentByteIndex
        if element.children or said or text[at - 2 : at] != b"/>":
            element.closing = at
        if not element.children:
            element.text = "".join(said).strip()
        said.clear()

    parser.XmlDeclHandler, parser.StartDoctypeDeclHandler = _declared, _doctype
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text, True)  # noqa: FBT003 - expat takes it so
    finally:  # the functions hold the parser and it holds them, which only the collector of garbage would end
        parser.StartElementHandler = parser.EndElementHandler = parser.CharacterDataHandler = None
    return above.children[0]  # expat refuses a text without a root


def _declared(version: str, encoding: str | None, standalone: int) -> None:  # noqa: ARG001 - expat's words
    if encoding and encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ReadError(f"it is written in {encoding[:40]}, and libvirt writes and reads UTF-8")


def _doctype(*words: object) -> None:  # noqa: ARG001
    raise ReadError("it declares a document type, which no domain has; entities are not read")


def set_attribute(document: Document, element: Element, name: str, value: str) -> bytes:
    """Return the text with one attribute of one element changed or added."""
    text = document.text
    for found in _ATTRIBUTE.finditer(text, element.start, element.opened):
        if found[1].decode() == name:
            return _spliced(text, found.start(2) + 1, found.end(2) - 1, _quoted(value))
    at = _attributes_end(document, element)
    return _spliced(text, at, at, f" {name}='{_quoted(value).decode()}'".encode())


def remove_attribute(document: Document, element: Element, name: str) -> bytes:
    """Return the text without one attribute of one element."""
    for found in _ATTRIBUTE.finditer(document.text, element.start, element.opened):
        if found[1].decode() == name:
            return _spliced(document.text, found.start(), found.end(), b"")
    return document.text


def set_text(document: Document, element: Element, value: str) -> bytes:
    """Return the text with the content of an element without children changed; raises PlanError beside a comment."""
    if element.end == element.opened:
        return _spliced(
            document.text, element.start, element.end, _filled(document, element, escape(value, quote=False).encode())
        )
    closing = document.text.rindex(b"</", element.start, element.end)
    if b"<" in document.text[element.opened : closing]:
        raise PlanError(f"line {element.line}: <{element.tag}> has more in it than its value; change it by hand")
    return _spliced(document.text, element.opened, closing, escape(value, quote=False).encode())


def remove_element(document: Document, element: Element) -> bytes:
    """Return the text without an element; an element alone on its line takes the line with it."""
    text, start = document.text, element.start
    before = _INDENT.search(text, max(0, start - 200), start)
    if before and text[element.end : element.end + 1] in (b"\n", b"\r"):
        start = before.start()
    return _spliced(text, start, element.end, b"")


def add_child(document: Document, parent: Element, xml: str, *, after: tuple[str, ...] = ()) -> bytes:
    """Return the text with an element added to a parent: after the last child of one of the names, else first.

    It is set on a line of its own, indented as its new siblings are, where these are.
    """
    text = document.text
    if parent.end == parent.opened:
        before = _INDENT.search(text, max(0, parent.start - 200), parent.start)
        inner = xml if before is None else f"{before[0].decode()}  {xml}{before[0].decode()}"
        return _spliced(text, parent.start, parent.end, _filled(document, parent, inner.encode()))
    last = next((one for name in after for one in reversed(parent.children) if one.tag == name), None)
    at = parent.opened if last is None else last.end
    sibling = last or (parent.children[0] if parent.children else None)
    if sibling is not None:
        before = _INDENT.search(text, max(0, sibling.start - 200), sibling.start)
        return _spliced(text, at, at, ((before[0] if before else b"") + xml.encode()))
    before = _INDENT.search(text, max(0, parent.start - 200), parent.start)
    indent = before[0] + b"  " if before else b""
    closing = text.rindex(b"</", parent.start, parent.end)
    blank = not text[parent.opened : closing].strip()
    tail = before[0] if before and blank else b""
    return _spliced(text, at, closing if blank else at, indent + xml.encode() + tail)


def _filled(document: Document, element: Element, inner: bytes) -> bytes:
    """Open an element that has no content, and put something in."""
    head = document.text[element.start : _attributes_end(document, element)]
    return head + b">" + inner + f"</{element.tag}>".encode()


def _attributes_end(document: Document, element: Element) -> int:
    """Where the last attribute (or the name) of a start tag ends."""
    ends = [found.end() for found in _ATTRIBUTE.finditer(document.text, element.start, element.opened)]
    return ends[-1] if ends else element.start + 1 + len(element.tag.encode())


def _quoted(value: str) -> bytes:
    """A value as it may stand between quotes of either kind."""
    return escape(value).encode()


def _spliced(text: bytes, start: int, end: int, new: bytes) -> bytes:
    return text[:start] + new + text[end:]
