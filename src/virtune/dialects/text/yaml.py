# SPDX-License-Identifier: Apache-2.0
"""YAML text, parsed into nodes with positions and altered in place (pure).

Built from the parser's events without recursion and without interpreting tags; depth, number of nodes and of aliases
are bounded, so that a text that refers to itself a billion times costs what its own bytes cost.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from virtune.dialects.text.lines import Page, read_page
from virtune.model.errors import PlanError, ReadError

BYTES_MAX = 1536 * 1024
"""etcd, which keeps Kubernetes' objects, takes no larger request."""

DEPTH_MAX, NODES_MAX, ALIASES_MAX = 100, 60_000, 100
_PLAIN = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)


@dataclass(slots=True)
class Node:
    """A scalar (`value`), a list (`items`) or a mapping (`pairs`); `start:end` are its characters.

    Of a list or mapping in block style `end` lies beyond it; only `start` is its own. `shared` nodes have a name.
    """

    start: int
    end: int
    line: int
    column: int
    value: str | None = None
    flow: bool = False
    is_mapping: bool = False
    shared: bool = False
    children: list["Node"] = field(default_factory=list)

    @property
    def items(self) -> list["Node"]:
        """The items of a list, none for anything else."""
        return [] if self.is_mapping else self.children

    @property
    def pairs(self) -> Iterator[tuple["Node", "Node"]]:
        """The keys and values of a mapping, none for anything else."""
        if self.is_mapping:
            yield from zip(self.children[::2], self.children[1::2], strict=False)

    def get(self, *path: str) -> "Node | None":
        """Return what stands below keys, None where something of the way is missing."""
        found: Node | None = self
        for name in path:
            found = next((value for key, value in found.pairs if key.value == name), None) if found else None
        return found

    def text(self, *path: str) -> str:
        """Return a scalar below keys, empty where there is none."""
        found = self.get(*path)
        return (found.value or "") if found is not None else ""


def read_yaml(text: bytes) -> tuple[Page, tuple[Node, ...]]:
    """Read the documents of an untrusted text; raises ReadError."""
    page = read_page(text, bytes_max=BYTES_MAX)
    try:
        return page, tuple(_documents(page.text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not well-formed"
        raise ReadError(f"{where}it is no YAML: {problem}") from None
    except ValueError as error:
        raise ReadError(f"it is no YAML: {error}") from None


def _documents(text: str) -> Iterator[Node]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as quick
    builder = _Builder()
    for event in yaml.parse(text, Loader=loader):
        done = builder.take(event)
        if done is not None:
            yield done


class _Builder:
    """Builds nodes from the parser's events, and bounds them."""

    def __init__(self) -> None:
        self._opened: list[Node] = []
        self._named: dict[str, Node] = {}
        self._nodes = self._aliases = 0

    def take(self, event: yaml.Event) -> Node | None:
        """Take one event; returns a document's node once it is whole."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._named.clear()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.NodeEvent):
            return self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self._opened.pop()
            closed.end = event.end_mark.index if event.end_mark is not None else closed.start
            return None if self._opened else closed
        return None

    def _alias(self, event: yaml.AliasEvent) -> None:
        self._aliases += 1
        if self._aliases > ALIASES_MAX:
            raise ReadError(f"it has more than {ALIASES_MAX} aliases")
        node = self._named.get(event.anchor or "")
        if node is None:
            raise ReadError("it has an alias of nothing")
        node.shared = True
        if self._opened:
            self._opened[-1].children.append(node)

    def _open(self, event: yaml.NodeEvent) -> Node | None:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(self._opened) > DEPTH_MAX:
            raise ReadError(f"it has more than {NODES_MAX} nodes, or is deeper than {DEPTH_MAX}")
        node = _node(event)
        if event.anchor is not None:
            self._named[event.anchor] = node
        if self._opened:
            self._opened[-1].children.append(node)
        if isinstance(event, yaml.CollectionStartEvent):
            self._opened.append(node)
            return None
        return None if self._opened else node


def _node(event: yaml.NodeEvent) -> Node:
    at, behind = event.start_mark, event.end_mark
    assert at is not None  # noqa: S101 - the parser marks every event; only those made by hand have none
    assert behind is not None  # noqa: S101 - likewise
    return Node(
        start=at.index,
        end=behind.index,
        line=at.line + 1,
        column=at.column,
        value=event.value if isinstance(event, yaml.ScalarEvent) else None,
        flow=bool(getattr(event, "flow_style", False)),
        is_mapping=isinstance(event, yaml.MappingStartEvent),
    )


def set_key(page: Page, mapping: Node, key: str, value: str, *, after: str = "") -> bytes:
    """Return the bytes with a key of a mapping set to a plain word: at its place, or after another key, or first."""
    if not _PLAIN.fullmatch(value):
        raise PlanError(f"{value[:60]!r} is no value that can be written here")
    _own(mapping)
    found = mapping.get(key)
    if found is not None:
        if found.value is None or found.shared:
            raise PlanError(f"line {found.line}: {key} is no plain value")
        return page.spliced(found.start, found.end, value if found.end > found.start else f" {value}")
    first = next(mapping.pairs, None)
    if first is None or mapping.flow:
        inner = f"{key}: {value}" + (", " if first is not None else "")
        at = page.text.find("{", mapping.start) + 1
        if not at or not mapping.flow:
            raise PlanError(f"line {mapping.line}: there is no place for {key}")
        return page.spliced(at, at, inner)
    indent = " " * first[0].column
    beside = mapping.get(after) if after else None
    if beside is not None and beside.value is not None and "\n" not in page.text[beside.start : beside.end]:
        end = page.text.find("\n", beside.end)
        end = len(page.text) if end < 0 else end - (page.text[end - 1] == "\r")
        return page.spliced(end, end, f"{page.newline}{indent}{key}: {value}")
    return page.spliced(first[0].start, first[0].start, f"{key}: {value}{page.newline}{indent}")


def remove_key(page: Page, mapping: Node, key: str) -> bytes:
    """Return the bytes without a key of a mapping whose value is a plain word on the same line."""
    pairs = list(mapping.pairs)
    place = next((number for number, (name, _) in enumerate(pairs) if name.value == key), None)
    if place is None:
        return page.spliced(0, 0, "")
    _own(mapping)
    name, value = pairs[place]
    if value.value is None or value.shared or "\n" in page.text[name.start : value.end]:
        raise PlanError(f"line {name.line}: {key} is no plain value")
    if mapping.flow:
        if place + 1 < len(pairs):
            return page.spliced(name.start, pairs[place + 1][0].start, "")
        start = pairs[place - 1][1].end if place else name.start
        return page.spliced(start, value.end, "")
    begin = page.text.rfind("\n", 0, name.start) + 1
    end = page.text.find("\n", value.end)
    if not page.text[begin : name.start].strip():
        return page.spliced(begin, len(page.text) if end < 0 else end + 1, "")
    if place + 1 == len(pairs) or "#" in page.text[value.end : pairs[place + 1][0].start]:
        raise PlanError(f"line {name.line}: {key} stands on the line of its list's item; take it away by hand")
    return page.spliced(name.start, pairs[place + 1][0].start, "")


def _own(mapping: Node) -> None:
    if mapping.shared or not mapping.is_mapping:
        raise PlanError(f"line {mapping.line}: it is shared by an alias, or no mapping")
