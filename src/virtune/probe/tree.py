# SPDX-License-Identifier: Apache-2.0
"""The kernel's own files (/proc, /sys): read one value, or say why it could not be read.

Every reader starts at a root, so that a recorded machine can be read like this one.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from virtune.model.facts import Unknown

ROOT = Path("/")


def text(path: str, root: Path = ROOT) -> str | Unknown:
    """Return the stripped text of a file such as `/sys/block/vda/size`."""
    try:
        content = below(root, path).read_bytes()
    except OSError as error:
        return Unknown(f"{path}: {_reason(error)}")
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
    """Return the last name of a path."""
    return path.rpartition("/")[2]


def parent(path: str) -> str:
    """Return the directory of a path."""
    return path.rpartition("/")[0]


def below(root: Path, path: str) -> Path:
    """Return where an absolute path lies under a root."""
    return root / path.lstrip("/")


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "not there"
    return (error.strerror or str(error)).lower()
