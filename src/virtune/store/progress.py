# SPDX-License-Identifier: Apache-2.0
"""How far a run is: a small file beside the store, locked while the run's process lives, that other processes read.

The kernel drops the lock with the process, so a run that was killed is not taken for one that goes on. A study that
another process runs is not run a second time; a run that cannot write the file goes on without, since the store keeps
each attempt once.
"""

import contextlib
import fcntl
import functools
import os
import stat
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter, ValidationError

from virtune import warden
from virtune.model.errors import DatabaseUrl, PreconditionError, StorePlace
from virtune.model.text import printable
from virtune.shell import data_directory

_MARK = b'{"virtune_run":1,'
"""What such a file begins with: no other is written over or removed."""

_BYTES_MAX = 1024**2
_OLD_SECONDS = 86_400.0

_ASKED_SECONDS, _TICK_SECONDS = 1.0, 0.02
"""How long one who asks whether a run lives may hold its lock at most; it takes some microseconds."""

NAME_MAX = 200
"""Characters of a name in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundInterval:
    """The interval of a pair's ratio after a round."""

    round: int
    low: float
    estimate: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairProgress:
    """A pair of arms so far: its verdict, its difference in words, and its interval after each round judged."""

    candidate: str
    baseline: str
    workload: str
    metric: str
    verdict: str
    difference: str
    left: str
    rounds: tuple[RoundInterval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A run so far. `until` is when it is expected to end, in seconds since 1970; `most` stands before the time left.

    `step` is what is made ready, with its share done, `now` the trial that runs, `search` the state of a search.
    `compared` counts the pairs, of which `pairs` holds the first ones. It said something last at `beat`, in seconds
    since 1970, and says something every `quiet_seconds` at least while it goes on (0: unknown).

    A fleet's run has `rows`: the heads, and a row for each study on a host; it counts studies instead of trials, and
    `share` is what is done of all.
    """

    virtune_run: int = 1
    study: str
    title: str
    most: str = "about "
    done: int = 0
    total: int = 0
    now: str = ""
    step: str = ""
    share: float | None = None
    until: float | None = None
    decided: int = 0
    compared: int = 0
    pairs: tuple[PairProgress, ...] = ()
    conditions: tuple[str, ...] = ()
    search: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    beat: float = 0.0
    quiet_seconds: float = 0.0

    def hangs(self, now: float) -> bool:
        """Whether it has been silent for longer than anything it does takes; `now` is in seconds since 1970."""
        return 0 < self.quiet_seconds < now - self.beat


_RUN = TypeAdapter(RunProgress)


class ProgressFile:
    """Writes how far the run of a study is. Use as a context manager; the file is gone after it.

    Raises PreconditionError where another process runs the study.
    """

    def __init__(self, store: StorePlace, study: str) -> None:
        self._store, self._study, self._descriptor = beside(store), study, -1
        self.path = _path(self._store, study)

    def __enter__(self) -> Self:
        try:
            _remove_old(self._store)
            self._descriptor = _locked(self.path)
        except BlockingIOError:
            raise runs_already(self._study) from None
        except OSError:
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, progress: RunProgress) -> None:
        """Replace what the file says."""
        if self._descriptor >= 0:
            content = _RUN.dump_json(progress) + b"\n"
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._descriptor, 0, len(content))  # on a full disk what is there stays whole
                os.pwrite(self._descriptor, content, 0)
                os.ftruncate(self._descriptor, len(content))


def runs_already(study: str) -> PreconditionError:
    """Return the error that a study is not run a second time."""
    hint = "when that one is over, `virtune compare resume` goes on with what is left"
    return PreconditionError(f"another process runs study {study} now", hint=hint)


def beside(store: StorePlace) -> Path:
    """Return the file beside which the runs are told: the store itself, of a database one in the user's data."""
    if isinstance(store, DatabaseUrl):
        return data_directory() / f"database-{zlib.crc32(store.text.encode()):08x}"
    return Path(os.path.realpath(store))  # by whatever name it is called, its runs see each other


def runs_of(place: StorePlace) -> Iterator[RunProgress]:
    """Yield the runs of this host that write into a store now."""
    store = beside(place)
    for path in sorted(store.parent.glob(f"{_escaped(store.name)}-run-*")):
        found = progress_at(path)
        if found is not None and path == _path(store, found.study):
            yield found


def run_of(place: StorePlace, study: str) -> RunProgress | None:
    """Return how far the run of a study is; None where none runs, or none that says so."""
    store = beside(place)
    path = _path(store, study)
    found = progress_at(path) if path.parent == store.parent else None
    return found if found is not None and found.study == study else None


def progress_at(path: Path) -> RunProgress | None:
    """Return what such a file says while its run lives; None for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not _is_locked(descriptor):
            return None
        # a line that is just being written is not whole: then the one who asks again finds the next one
        return run_in(os.pread(descriptor, _BYTES_MAX, 0).partition(b"\n")[0])
    except OSError:
        return None
    finally:
        os.close(descriptor)


def run_in(line: str | bytes) -> RunProgress | None:
    """Return what the line of such a file says; None for any other."""
    try:
        return _RUN.validate_json(line)
    except ValidationError:
        return None


def _path(store: Path, study: str) -> Path:
    return store.with_name(f"{store.name}-run-{study.replace(os.sep, '-')}")


def _escaped(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _locked(path: Path) -> int:
    """Open such a file, or make it, and lock it; raises OSError where another run holds it, or it is another's."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    deadline = time.monotonic() + _ASKED_SECONDS
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_ours(descriptor):
                raise FileExistsError(printable(str(path)))
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise
            time.sleep(_TICK_SECONDS)
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether a file is still there: the run that held it may have removed it at its end."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_ours(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    begin = os.pread(descriptor, len(_MARK), 0) if stat.S_ISREG(found.st_mode) else b"?"
    return begin in (b"", _MARK)


def _is_locked(descriptor: int) -> bool:
    """Whether the process that made a file still lives; asking takes the lock for a moment, with all other askers."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _remove_old(store: Path) -> None:
    """Remove the files of killed runs that ended a day ago or earlier."""
    for path in store.parent.glob(f"{_escaped(store.name)}-run-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _OLD_SECONDS:
                descriptor = _locked(path)
                try:
                    if os.fstat(descriptor).st_size == 0 or _names(descriptor, store, path):
                        warden.remove_file(path, functools.partial(os.path.sameopenfile, descriptor))
                finally:
                    os.close(descriptor)


def _names(descriptor: int, store: Path, path: Path) -> bool:
    """Whether such a file is the one of the study that it tells of, and not a copy."""
    with contextlib.suppress(ValidationError):
        line, _, _ = os.pread(descriptor, _BYTES_MAX, 0).partition(b"\n")
        return path == _path(store, _RUN.validate_json(line).study)
    return False
