# SPDX-License-Identifier: Apache-2.0
"""Mounts: which filesystem a path is on, from /proc/self/mountinfo.

The table is walked from the root mount down along the path, by parent ids, because that is what the kernel does:
the longest matching mount point may be hidden below a later mount.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.probe import tree

_ESCAPE = re.compile(r"\\([0-7]{3})")
_COLON = re.compile(r"(?<!\\)::?")
"""What is between the layers of an overlay; in their names it has a backslash before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo. `number` is the filesystem's major:minor, 0:n where it has no block device; `shown` the
    directory of the filesystem that is mounted.
    """

    id: int
    parent: int
    number: str
    shown: str
    point: str
    options: tuple[str, ...]
    filesystem: str
    source: str


def mounts(root: Path = tree.ROOT) -> tuple[Mount, ...]:
    """Return every mount of our mount namespace."""
    read = (_parse(line) for line in tree.lines("/proc/self/mountinfo", root))
    return tuple(mount for mount in read if mount is not None)


def mount_of(path: str, table: tuple[Mount, ...]) -> Mount | None:
    """Return the mount that an absolute path without links lies on."""
    ids = {mount.id for mount in table}
    tops = [mount for mount in table if mount.parent not in ids or mount.parent == mount.id]
    current = next((mount for mount in tops if mount.point == "/"), None)
    steps = [part for part in path.split("/") if part]
    for count in range(len(steps) + 1):
        prefix = "/" + "/".join(steps[:count])
        current = _topmost(prefix, current, table)
    return current


def other_names(path: Path, root: Path = tree.ROOT) -> Iterator[Path]:
    """Yield the names by which overlays have a file: in their layers, or in what they show of a layer. `path` has no
    symbolic links.
    """
    for mount in mounts(root):
        if mount.filesystem == "overlay":
            point, shown = Path(mount.point), mount.shown.lstrip("/")
            for layer in _layers(mount):
                if path.is_relative_to(point):
                    yield layer / shown / path.relative_to(point)
                if path.is_relative_to(layer / shown):
                    yield point / path.relative_to(layer / shown)


def _layers(mount: Mount) -> Iterator[Path]:
    for option in mount.options:
        name, _, value = option.partition("=")
        if name in ("upperdir", "lowerdir", "lowerdir+", "datadir+"):
            parts = _COLON.split(value) if name == "lowerdir" else [value]
            yield from (Path(part.replace("\\:", ":")) for part in parts if part.startswith("/"))


def _topmost(point: str, below: Mount | None, table: tuple[Mount, ...]) -> Mount | None:
    seen: set[int] = set()
    current = below
    while True:
        parent = current.id if current else None
        above = [
            mount
            for mount in table
            if mount.point == point
            and mount.id not in seen
            and mount is not current
            and (parent is None or mount.parent == parent)
        ]
        if not above:
            return current
        current = above[-1]
        seen.add(current.id)


def _parse(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    head, tail = left.split(), right.split(" ")
    if not dash or len(head) < 6 or len(tail) < 2 or not (head[0].isdecimal() and head[1].isdecimal()):
        return None
    more = tail[2].split(",") if len(tail) > 2 else []
    return Mount(
        id=int(head[0]),
        parent=int(head[1]),
        number=head[2],
        shown=_plain(head[3]),
        point=_plain(head[4]),
        options=tuple(dict.fromkeys(_plain(option) for option in (*head[5].split(","), *more) if option)),
        filesystem=tail[0],
        source=_plain(tail[1]),
    )


def _plain(text: str) -> str:
    r"""Undo the kernel's escapes: `\040` is a space. Bytes that are no UTF-8 are kept the way os.fsdecode does."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8) & 0xFF), text)
