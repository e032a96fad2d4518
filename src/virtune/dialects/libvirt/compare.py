# SPDX-License-Identifier: Apache-2.0
"""Compare a domain with the text given to libvirt: find settings that it dropped, and changes by others (pure).

libvirt writes a domain in its own order and adds addresses and controllers, so texts cannot be compared by lines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from virtune.dialects.libvirt.alter import alter
from virtune.dialects.libvirt.domain import domain_element
from virtune.dialects.text.xml import Element, read_document
from virtune.model.domain import SettingChange

_OWN = ("address", "alias", "controller")
"""Elements that libvirt makes and numbers by itself."""

_KEYS = {"disk": ("target", "dev"), "interface": ("mac", "address")}
"""The attribute of a child that distinguishes elements of the same name."""

Statement = tuple[str, str, str]
"""The way to an element, the name of an attribute of it (empty for its text), the value."""


def dropped(*, before: bytes, asked: bytes, found: bytes) -> tuple[str, ...]:
    """Return the new settings in the text given to libvirt that are missing in its answer."""
    lost = (_statements(asked) - _statements(before)) - _statements(found)
    return tuple(sorted({_said(one) for one in lost}))


def foreign(*, asked: bytes, found: bytes) -> tuple[str, ...]:
    """Return the differences of a domain from the text given to libvirt, without libvirt's own additions."""
    wanted, now = _statements(asked), _statements(found)
    return tuple(sorted({_said(one) for one in (now - wanted) + (wanted - now) if not _is_own(one)}))


def unmet(text: bytes, turns: Sequence[SettingChange]) -> tuple[SettingChange, ...]:
    """Return the changes that a domain's text does not have yet."""
    return tuple(turn for turn in turns if foreign(asked=alter(text, turn), found=text))


def _statements(text: bytes) -> Counter[Statement]:
    return Counter(_of(domain_element(read_document(text))))


def _of(root: Element) -> Iterator[Statement]:
    waiting = [("", root)]
    while waiting:
        way, element = waiting.pop()
        here = f"{way}/{element.tag}{_key(element)}"
        yield here, "", element.text
        for name, value in element.attributes.items():
            yield here, name, value
        waiting.extend((here, child) for child in element.children)


def _key(element: Element) -> str:
    child, attribute = _KEYS.get(element.tag, ("", ""))
    named = element.child(child) if child else None
    return f"[{named.get(attribute)}]" if named is not None else ""


def _is_own(statement: Statement) -> bool:
    return any(part.partition("[")[0] in _OWN for part in statement[0].split("/"))


def _said(statement: Statement) -> str:
    way, name, value = statement
    place = way.removeprefix("/domain").removeprefix("/")
    return f"{place} {name}={value!r}" if name else f"<{place}>{f' {value!r}' if value else ''}"
