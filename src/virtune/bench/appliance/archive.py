# SPDX-License-Identifier: Apache-2.0
"""An initramfs: files, directories and links as the `newc` cpio archive that a Linux kernel unpacks.

Implemented here so that neither root, a `cpio` program nor a directory of copies is needed, and so that the same
content always gives the same bytes: owner, times and order do not depend on the builder.
"""

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ALIGNED = 4
_TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """One name in the archive, without a leading slash: a file, a directory, or a link with its target as content."""

    name: str
    mode: int
    content: bytes = b""


def file(name: str, content: bytes, *, program: bool = False) -> ArchiveEntry:
    """Return a plain file, executable where it is a program."""
    return ArchiveEntry(name=name, mode=stat.S_IFREG | (0o755 if program else 0o644), content=content)


def link(name: str, target: str) -> ArchiveEntry:
    """Return a symbolic link."""
    return ArchiveEntry(name=name, mode=stat.S_IFLNK | 0o777, content=target.encode())


def archive(entries: Iterable[ArchiveEntry], *, directories: Iterable[str] = ()) -> bytes:
    """Write the archive; the directories above each name are made, and those of `directories` as well, empty."""
    by_name = {entry.name: entry for entry in entries}
    for name in [*directories, *by_name]:
        for above in _above(name):
            by_name.setdefault(above, ArchiveEntry(name=above, mode=stat.S_IFDIR | 0o755))
    for name in directories:
        by_name.setdefault(name, ArchiveEntry(name=name, mode=stat.S_IFDIR | 0o755))
    written = [_record(number, by_name[name]) for number, name in enumerate(sorted(by_name), 1)]
    return b"".join([*written, _record(0, ArchiveEntry(name=_TRAILER, mode=0))])


def _above(name: str) -> Iterator[str]:
    parts = name.split("/")[:-1]
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _record(number: int, entry: ArchiveEntry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + "".join(f"{field:08x}" for field in fields).encode()
    return _padded(header + name) + _padded(entry.content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNED)
