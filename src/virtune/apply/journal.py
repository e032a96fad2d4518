# SPDX-License-Identifier: Apache-2.0
"""The journal: every change is written to disk before it is made, so that it can be undone after a crash.

An entry is a directory: the domain's XML before and as intended, the changes, and a log of steps, each of which is
appended, with fsync, before it is carried out. An entry appears whole or not at all.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from virtune import warden
from virtune.bounded import read_bounded
from virtune.model.domain import SettingChange
from virtune.model.errors import PreconditionError, UsageError, VirtuneError

_UNFINISHED = ".new-"
_NUMBER = re.compile(r"[0-9a-f]{4}")

_BYTES_MAX = 64 * 1024**2
"""A domain's XML has some 10 kB."""


class Step(StrEnum):
    """The progress of a change. Each step is written before its action, except `defined`, `committed` and `undone`,
    which are written after it.

    `plugging`: disks are detached and attached again; `stopping`, `starting` and `resuming`: a restart, whose guest
    does not run before `resuming`; `returning`: the start of the restored configuration.
    """

    INTENDED = "intended"
    DEFINING = "defining"
    DEFINED = "defined"
    LIVE = "live"
    PLUGGING = "plugging"
    STOPPING = "stopping"
    STARTING = "starting"
    RESUMING = "resuming"
    COMMITTED = "committed"
    UNDOING = "undoing"
    RETURNING = "returning"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A power cycle that is part of a change: the signs of the guest's health, and the time limit of each part.

    `force_off` allows destroying a guest that does not shut down in time.
    """

    healthy: tuple[str, ...]
    timeout_seconds: float
    force_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """A disk that is detached from a running domain and attached again: its element before and after."""

    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of one domain as the journal holds it. `found` is the XML that libvirt made of `after`; `group` is
    the name of the changes that were made together, empty for one alone.
    """

    id: str
    uri: str
    uuid: str
    domain: str
    turns: tuple[SettingChange, ...]
    live: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    before: bytes
    after: bytes
    found: bytes | None
    steps: tuple[Step, ...]
    plugs: tuple[Plug, ...] = ()
    restart: Restart | None = None
    group: str = ""

    @property
    def open(self) -> bool:
        """Whether it is neither finished nor undone, because virtune was killed meanwhile."""
        return Step.UNDONE not in self.steps and Step.COMMITTED not in self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """The content of entry.json."""

    uri: str
    uuid: str
    domain: str
    turns: tuple[SettingChange, ...]
    live: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    plugs: tuple[Plug, ...] = ()
    restart: Restart | None = None
    group: str = ""


_SAID: TypeAdapter[_Said] = TypeAdapter(_Said)


class Journal:
    """The journal of one user, in a directory that nobody else can read: XML may hold passwords."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the journal; raises PreconditionError while another virtune makes a change."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._not_kept(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise PreconditionError("another virtune is changing domains now", hint="wait for it to end") from None
        finally:
            os.close(descriptor)

    def _not_kept(self, error: OSError) -> PreconditionError:
        return PreconditionError(
            f"cannot keep a journal in {self._root}: {error.strerror}", hint="`--journal DIR` keeps it elsewhere"
        )

    def begin(
        self,
        *,
        name: str,
        uri: str,
        uuid: str,
        domain: str,
        turns: Sequence[SettingChange],
        live: Sequence[tuple[Sequence[str], Sequence[str]]],
        before: bytes,
        after: bytes,
        plugs: Sequence[Plug] = (),
        restart: Restart | None = None,
        group: str = "",
    ) -> Entry:
        """Write an entry whole, with its first step; nothing has been changed yet."""
        for left in self._root.glob(f"{_UNFINISHED}*"):
            gone = warden.is_abandoned(left) and warden.remove(left)
            warden.note_removed([f"an unfinished entry of the journal {left}"] if gone else [])
        identity = self._next(name)
        place = self._root / f"{_UNFINISHED}{identity}"
        try:
            os.close(warden.make_directory(place, becomes=self._root / identity, pid=os.getpid()))
        except OSError as error:
            raise self._not_kept(error) from None
        said: dict[str, Any] = {"uri": uri, "uuid": uuid, "domain": domain, "group": group}
        said |= {"turns": [asdict(turn) for turn in turns], "live": [[list(do), list(undo)] for do, undo in live]}
        said |= {"plugs": [asdict(plug) for plug in plugs], "restart": None if restart is None else asdict(restart)}
        _write(place / "entry.json", json.dumps(said, indent=2).encode())
        _write(place / "before.xml", before)
        _write(place / "after.xml", after)
        _write(place / "steps", f"{Step.INTENDED}\n".encode())
        _sync(place)
        place.rename(self._root / identity)
        _sync(self._root)
        return self.read(identity)

    def _next(self, name: str) -> str:
        """An id that no other change has and that sorts behind those of the same second."""
        ends = [place.name.rpartition("-")[2] for place in self._root.glob(f"{name}-????")]
        taken = [int(end, 16) for end in ends if _NUMBER.fullmatch(end)]
        return f"{name}-{max(taken) + 1 if taken else secrets.randbelow(2**15):04x}"

    def step(self, entry: Entry, step: Step, *, found: bytes | None = None) -> None:
        """Add a step, and with `defined` the XML that libvirt made of the intended one; on disk when this returns."""
        place = self._root / entry.id
        if found is not None:
            _write(place / "found.xml", found)
            _sync(place)
        steps = (*self.read(entry.id).steps, step)  # nothing after a line that a crash cut short could be read
        _write(place / "steps", "".join(f"{one}\n" for one in steps).encode())
        _sync(place)

    def read(self, identity: str) -> Entry:
        """Return an entry as it stands on disk; raises VirtuneError with what is wrong with a damaged one."""
        place = self._root / identity
        try:
            said = _SAID.validate_json(_read(place / "entry.json"), strict=False)
            found = place / "found.xml"
            return Entry(
                id=identity,
                uri=said.uri,
                uuid=said.uuid,
                domain=said.domain,
                turns=said.turns,
                live=said.live,
                before=_read(place / "before.xml"),
                after=_read(place / "after.xml"),
                found=_read(found) if found.exists() else None,
                steps=_steps(_read(place / "steps").decode()),
                plugs=said.plugs,
                restart=said.restart,
                group=said.group,
            )
        except (OSError, ValueError, RecursionError) as error:
            raise VirtuneError(f"the journal's entry {identity} cannot be read: {_why(error)}") from None

    def kept(self, entry: Entry) -> Path:
        """Return the file with the domain's XML before a change."""
        return self._root / entry.id / "before.xml"

    def entries(self) -> tuple[Entry, ...]:
        """Return all readable entries, the oldest first; damaged ones are skipped."""
        return tuple(one for one in self._all() if isinstance(one, Entry))

    def damaged(self) -> tuple[str, ...]:
        """Return the unreadable entries with the reason, in a sentence each."""
        return tuple(one.message for one in self._all() if isinstance(one, VirtuneError))

    def _all(self) -> Iterator[Entry | VirtuneError]:
        try:
            places = sorted(place.name for place in self._root.iterdir() if place.is_dir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise PreconditionError(f"cannot read the journal in {self._root}: {error.strerror}") from None
        for name in places:
            if not name.startswith("."):
                try:
                    yield self.read(name)
                except VirtuneError as error:
                    yield error

    def named(self, name: str) -> tuple[Entry, ...]:
        """Return the changes that a name stands for: those made together by the name of these, else as `find`; `last`
        stands for all that were made together with it.
        """
        found = [entry for entry in self.entries() if name and entry.group == name]
        if found:
            return tuple(entry for entry in found if Step.UNDONE not in entry.steps) or tuple(found)
        one = self.find(name)
        return self.named(one.group) if name == "last" and one.group else (one,)

    def find(self, name: str) -> Entry:
        """Return the entry of an id, of the beginning of one, of a domain's last change, or `last`; raises
        UsageError.
        """
        entries = self.entries()
        waiting = [entry for entry in entries if Step.UNDONE not in entry.steps]
        if name == "last":
            found = waiting[-1:]
        else:
            found = [entry for entry in entries if entry.id == name] or [
                entry for entry in waiting if name in (entry.domain, entry.uuid)
            ][-1:]
            found = found or [entry for entry in entries if name and entry.id.startswith(name)]
        if not found and name and (self._root / name).parent == self._root and (self._root / name).is_dir():
            return self.read(name)  # says what is wrong with it
        if len(found) != 1:
            said = f"{len(found)} changes begin with {name!r}" if found else f"no change {name!r} in the journal"
            raise UsageError(said, hint="`virtune apply undo --list` lists them")
        return found[0]


def _write(path: Path, content: bytes) -> None:
    """Write a file whole and to the disk; it is either the old one or the new one."""
    new = path.with_name(f".{path.name}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
    except OSError as error:
        raise VirtuneError(f"cannot write the journal in {path.parent}: {error.strerror}") from None


def _read(path: Path) -> bytes:
    """Return the content of an entry's file; raises OSError, also for an empty one, since none is ever empty."""
    content = read_bounded(path, _BYTES_MAX)
    if not content:
        raise OSError(errno.ENODATA, "it is empty", str(path))
    return content


def _steps(text: str) -> tuple[Step, ...]:
    """Return the steps in a log; raises ValueError where it has none."""
    whole, _, _ = text.rpartition("\n")  # a line that a crash cut short does not count
    if not whole:
        raise ValueError("it has no steps")
    return tuple(Step(word) for word in whole.split())


def _why(error: Exception) -> str:
    """Say what is wrong with an entry's files."""
    match error:
        case OSError():
            return f"{Path(error.filename or '').name}: {(error.strerror or '').lower()}"
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(step) for step in first["loc"]) or "entry.json"
            return f"{place}: {first['msg']}"
    return " ".join(str(error).split())[:200] or "it is nested too deeply"


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
