# SPDX-License-Identifier: Apache-2.0
"""The kernel's own files (/proc, /sys): read one value, or say why it could not be read; which filesystem a path is
on.

Every reader starts at a root, so that a recorded machine can be read like this one.

A path's filesystem is found in /proc/self/mountinfo. The table is walked from the root mount down along the path, by
parent ids, because that is what the kernel does: the longest matching mount point may be hidden below a later mount.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtune.model.errors import words_of
from virtune.model.facts import Unknown

ROOT = Path("/")


def text(path: str, root: Path = ROOT) -> str | Unknown:
    """Return the stripped text of a file such as `/sys/block/vda/size`."""
    try:
        content = below(root, path).read_bytes()
    except OSError as error:
        return Unknown(f"{path}: {'not there' if isinstance(error, FileNotFoundError) else words_of(error)}")
    found = content.decode(errors="replace")
    try:
        os.fsencode(found)
    except UnicodeEncodeError:  # names of files that this locale cannot write are kept as it reads them
        found = os.fsdecode(content)
    return found.strip()


def number(path: str, root: Path = ROOT) -> int | Unknown:
    """Return the whole number that a file holds."""
    found = text(path, root)
    if isinstance(found, Unknown):
        return found
    try:
        return int(found)
    except ValueError:
        return Unknown(f"{path}: {found[:40]!r} is not a whole number")


def flag(path: str, root: Path = ROOT) -> bool | Unknown:
    """Return a file's 0 or 1 as a truth value."""
    found = number(path, root)
    return found if isinstance(found, Unknown) else found != 0


def times(value: int | Unknown, factor: int) -> int | Unknown:
    """Convert a number to another unit; an Unknown stays an Unknown."""
    return value if isinstance(value, Unknown) else value * factor


def names(path: str, root: Path = ROOT) -> tuple[str, ...]:
    """Return the sorted names in a directory; none when it is not there."""
    try:
        return tuple(sorted(entry.name for entry in below(root, path).iterdir()))
    except OSError:
        return ()


def exists(path: str, root: Path = ROOT) -> bool:
    """Whether there is such a file."""
    return below(root, path).exists()


def real(path: str, root: Path = ROOT) -> str | None:
    """Return a path with its links followed, as seen from the root; None when it leads nowhere."""
    target = os.path.realpath(below(root, path))
    top = os.path.realpath(root)
    if not os.path.exists(target) or os.path.commonpath((target, top)) != top:  # noqa: PTH110 - a str, made above
        return None
    return "/" + os.path.relpath(target, top)


def lines(path: str, root: Path = ROOT) -> Iterator[str]:
    """Yield the lines of a file; none when it cannot be read."""
    found = text(path, root)
    if not isinstance(found, Unknown):
        yield from found.splitlines()


def last(path: str) -> str:
    return path.rpartition("/")[2]


def parent(path: str) -> str:
    """Return the directory of a path."""
    return path.rpartition("/")[0]


def below(root: Path, path: str) -> Path:
    """Return where an absolute path lies under a root."""
    return root / path.lstrip("/")


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


def mounts(root: Path = ROOT) -> tuple[Mount, ...]:
    """Return every mount of our mount namespace."""
    read = (_parse(line) for line in lines("/proc/self/mountinfo", root))
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


def other_names(path: Path, root: Path = ROOT) -> Iterator[Path]:
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
        shown=unescaped(head[3]),
        point=unescaped(head[4]),
        options=tuple(dict.fromkeys(unescaped(option) for option in (*head[5].split(","), *more) if option)),
        filesystem=tail[0],
        source=unescaped(tail[1]),
    )


def unescaped(text: str) -> str:
    r"""Undo the kernel's escapes: `\040` is a space. Bytes that are no UTF-8 are kept the way os.fsdecode does."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8) & 0xFF), text)
