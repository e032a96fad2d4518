# SPDX-License-Identifier: Apache-2.0
"""What `virtune watch` keeps of each look: a ring of two files, of which the older one goes when the newer is full.

A record is a line. One that a crash or a full disk tore is left out by whoever reads, and the next begins on a line
of its own.
"""

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO

from pydantic import TypeAdapter

from virtune.model.bottleneck import DiskLook
from virtune.model.errors import PreconditionError, words_of

SCHEMA = "virtune/watch-history/1"
_HEAD = json.dumps({"schema": SCHEMA}).encode() + b"\n"
_LINE_MAX = 16 * 1024**2
"""A thousand disks take less than a megabyte."""

_NAMES = [one.name for one in dataclasses.fields(DiskLook)]
_read_look = TypeAdapter(DiskLook).validate_python


def older(path: Path) -> Path:
    """Return the older file of a ring."""
    return path.with_name(f"{path.name}.old")


class History(contextlib.AbstractContextManager["History"]):
    """Appends looks to a ring of at most so many bytes. Use as a context manager.

    Raises PreconditionError where another process writes it, it is something else, or it cannot be written.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most = path, most_bytes // 2
        self._ends = contextlib.ExitStack()
        self._failed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock()
            self._require_ours()
            self._file = self._opened()
        except OSError as error:
            self._ends.close()
            raise PreconditionError(f"cannot write {path}: {words_of(error)}") from None
        except PreconditionError:
            self._ends.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._ends.close()

    def add(self, looks: Sequence[DiskLook]) -> str:
        """Append a record. Returns what is to be said: that it cannot be written, once, or that it can again."""
        values = [[_short(getattr(one, name)) for name in _NAMES] for one in looks]
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        try:
            if size + len(line) > self._most:
                self._require_ours()
                with contextlib.suppress(FileNotFoundError):  # it is the older one already, where the next failed
                    self._path.replace(older(self._path))
                with self._file:
                    self._file, size = self._opened(), 0
            left = memoryview(line if size else _HEAD + line)
            while left:
                left = left[self._file.write(left) or 0 :]
        except (OSError, PreconditionError) as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            first, self._failed = not self._failed, True
            why = error.message if isinstance(error, PreconditionError) else f"{self._path}: {words_of(error)}"
            return f"the history is not written: {why}" if first else ""
        again, self._failed = self._failed, False
        return "the history is written again" if again else ""

    def _lock(self) -> None:
        descriptor = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | _SAFE, 0o600)
        self._ends.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "`--history FILE` names another one"
            raise PreconditionError(f"another `virtune watch` writes {self._path}", hint=hint) from None

    def _require_ours(self) -> None:
        """Raise PreconditionError where another file has the name of the older one, which is overwritten."""
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as ends:
            _history_at(older(self._path), ends)

    def _opened(self) -> BinaryIO:
        """Open the newer file, and end a line that was torn."""
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFE, 0o600), "r+b", buffering=0)
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or file.readline(len(_HEAD)) not in (_HEAD, b""):
            file.close()
            raise PreconditionError(f"{self._path} is no history of `virtune watch`", hint="name another file")
        file.seek(max(0, found.st_size - 1))
        file.write(b"" if file.read(1) in b"\n" else b"\n")
        return file


_SAFE = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


def kept_looks(path: Path, begin_seconds: float, end_seconds: float) -> tuple[list[DiskLook], int]:
    """Return the looks of a time, and how many records were torn. Raises PreconditionError where there is none."""
    found: list[DiskLook] = []
    torn = 0
    with contextlib.ExitStack() as ends:
        for line in _lines(path, ends):
            try:
                looks = list(map(_look, json.loads(line)))
            except (ValueError, TypeError, RecursionError):
                torn += 1
                continue
            found += (one for one in looks if begin_seconds <= one.wall_seconds <= end_seconds)
    return found, torn


def _look(values: Sequence[object]) -> DiskLook:
    if not all(math.isfinite(one) for one in values if isinstance(one, float)):
        raise ValueError("no number")
    return _read_look(dict(zip(_NAMES, values, strict=True)))


def _lines(path: Path, ends: contextlib.ExitStack) -> Iterator[bytes]:
    """Yield the records of both files, the older ones first. The newer is opened first: it may become the older one
    meanwhile.
    """
    files: dict[int, IO[bytes]] = {}
    for one in (path, older(path)):
        with contextlib.suppress(FileNotFoundError):
            file = _history_at(one, ends)
            files.setdefault(os.fstat(file.fileno()).st_ino, file)
    if not files:
        raise PreconditionError(f"there is no history at {path}", hint="`virtune watch` writes one while it runs")
    for kept in reversed(files.values()):
        while line := kept.readline(_LINE_MAX):
            yield line


def _history_at(path: Path, ends: contextlib.ExitStack) -> IO[bytes]:
    """Return a file of a ring, open for reading behind its first line. Raises FileNotFoundError, and
    PreconditionError for one that cannot be read or is something else.
    """
    try:
        file = ends.enter_context(os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb"))
        # nothing is written to a new one before its first record
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.readline(len(_HEAD)) in (_HEAD, b""):
            return file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PreconditionError(f"cannot read {path}: {words_of(error)}") from None
    raise PreconditionError(f"{path} is no history of `virtune watch`")


def _short(value: object) -> object:
    """Return a number with five significant digits, a time to the millisecond."""
    if not isinstance(value, float):
        return value
    return round(value, 3) if value > 1e8 and value < 1e11 else float(f"{value:.5g}")
