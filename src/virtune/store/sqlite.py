# SPDX-License-Identifier: Apache-2.0
"""A store in one SQLite file: write-ahead log with `synchronous=FULL`, so that what is committed is on the disk.

On a filesystem that copies what it writes the file has a rollback journal instead: SQLite keeps the index of a log
in a mapped file, each write to it needs new room there, and where there is none, or the quota is used up, the kernel
ends the process by SIGBUS, without a word.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from virtune.model.errors import ReadOnlyStoreError, StoreError, words_of
from virtune.probe import tree
from virtune.store.queries import DISTRIBUTIONS, VIEWS, Backend, indexes_for, text_of

indexes_for("sqlite")

_MADE_SECONDS = 5.0
"""How long the making of a store may take; it takes some milliseconds."""

_LOOK_SECONDS = 0.05

_WAIT_SECONDS = 60
"""How long a writer waits for another one. An import of the largest bundle writes for some seconds, and on a disk
that is loaded for a measurement for ten times as long: a trial that was measured meanwhile must not be lost."""

_ROOM_BYTES = 1024**2
"""With less free space than this, a disk error is reported as a full disk."""

_COPYING = frozenset({"btrfs", "bcachefs"})
"""Filesystems that write a block of a file to another place each time, and ask for that place when a page of a mapped
file is written to. ZFS, which copies too, asks when it is written back."""

_OF_THE_DISK = ("disk I/O", "malformed", "unable to open")
"""What SQLite says where its disk fails or is used up, and of what else is wrong with the file."""

_TRIED_BYTES = 64 * 1024
"""A quota of blocks lets a file be made, and refuses what is written into it."""


class SqliteFile(Backend):
    """The file of a store, for reading or writing."""

    hint = "`--store FILE` names another file"
    insert = staticmethod(insert)

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _engine(path, "mode=rwc"))
        self.path, self._reading = path, False

    def open(self, *, reading: bool) -> int:
        self._reading = reading
        if self.path.exists() and not self.path.is_file():
            # SQLite waits for nobody at a FIFO, and calls it a disk that fails
            raise StoreError(f"cannot use the store {self.path}: it is not a regular file", hint=self.hint)
        if reading:
            found, deadline = self._opened_for_reading(), time.monotonic() + _MADE_SECONDS
            while not found and _is_being_made(self.path) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                found = self._opened_for_reading()
            return found
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                # studies hold facts on the host, its paths and VMs that are private; SQLite creates files as 0644
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            hint = "`--store FILE` puts it elsewhere"
            raise StoreError(f"cannot make {self.path.parent}: {error.strerror}", hint=hint) from None
        return self._format()

    def _opened_for_reading(self) -> int:
        self._reopen("mode=rw")
        if os.access(self.path, os.W_OK):
            with contextlib.suppress(ReadOnlyStoreError):
                return self._format()
        self.writable = False
        self._reopen("mode=ro")
        with contextlib.suppress(ReadOnlyStoreError):
            return self._format()
        # without write access, SQLite cannot read a log that was not checkpointed, and would ignore it
        log = self.path.with_name(f"{self.path.name}-wal")
        if _size(log):
            hint = f"copy {self.path} and {log.name} to a directory of your own, and name that copy with `--store`"
            raise StoreError(f"the store {self.path} may only be read, and its last trials cannot be", hint=hint)
        self._reopen("mode=ro&immutable=1")
        return self._format()

    def _reopen(self, how: str) -> None:
        self.engine.dispose()
        self.engine = _engine(self.path, how)

    def _format(self) -> int:
        try:
            with self.transaction(writing=False) as db:
                db.execute(sa.text("SELECT count(*) FROM sqlite_master")).all()
                return self.format_of(db)
        except (sa.exc.SQLAlchemyError, UnicodeError) as error:
            raise self.explained(error) from None

    def transaction(self, *, writing: bool) -> contextlib.AbstractContextManager[sa.Connection]:
        # from its begin on: SQLite refuses to let one write whose reads another one has made old
        return self.engine.execution_options(writing=writing).begin()

    def format_of(self, db: sa.Connection) -> int:
        return int(db.execute(sa.text("PRAGMA user_version")).scalar_one())

    def tables(self, db: sa.Connection) -> Mapping[str, set[str]]:
        seen = sa.inspect(db)
        return {name: {one["name"] for one in seen.get_columns(name)} for name in seen.get_table_names()}

    def set_format(self, db: sa.Connection, number: int) -> None:
        db.execute(sa.text(f"PRAGMA user_version = {int(number)}"))

    def changed_views(self, db: sa.Connection) -> Sequence[str]:
        # a table of the same name is left alone
        rows = db.exec_driver_sql("SELECT name, type, sql FROM sqlite_master WHERE name LIKE 'view\\_%' ESCAPE '\\'")
        known = {name: (kind, text) for name, kind, text in rows}
        return [
            name for name in VIEWS if known.get(name, ("view", ""))[0] == "view" and known.get(name) != _made(name)
        ]

    def make_views(self, db: sa.Connection) -> None:
        for name in self.changed_views(db):
            db.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
            db.exec_driver_sql(_made(name)[1])

    def settle(self) -> None:
        """Have the file written by a log, or a journal, which it keeps; while others use it, that is left to the next
        one.
        """
        mount = tree.mount_of(str(self.path.resolve()), tree.mounts())
        wanted = "delete" if mount is not None and mount.filesystem in _COPYING else "wal"
        with contextlib.closing(self.engine.raw_connection()) as db, contextlib.suppress(sqlite3.OperationalError):
            cursor = db.cursor()
            if cursor.execute("PRAGMA journal_mode").fetchone() != (wanted,):
                cursor.execute(f"PRAGMA journal_mode={wanted}")

    def has_words(self, column: sa.Column[str], words: str) -> sa.ColumnElement[bool]:
        # LIKE takes small letters and capitals as the same, and reads faster than lower() writes anew
        return column.contains(words, autoescape=True)

    def without_distributions(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        # a damaged one as it is
        bare = sa.func.json_remove(column, *(f"$.{name}" for name in DISTRIBUTIONS))
        return sa.case((sa.func.json_valid(column) == 1, bare), else_=column)

    def explained(self, error: BaseException) -> StoreError:
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes the damaged text, and Python cannot decode that
            return StoreError(f"the store {self.path} is damaged: {error.reason}", hint=self.hint)
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        place = self.path.parent
        with contextlib.suppress(OSError):
            if "full" in reason or ("disk I/O" in reason and shutil.disk_usage(place).free < _ROOM_BYTES):
                hint = "free some room, or use `--store FILE`"
                return StoreError(f"cannot write to the store {self.path}: no space left on {place}", hint=hint)
        # of a disk that fails SQLite may say that the file is malformed, and where no journal can be made that it is
        # unable to open the database
        refused = _refusal(place) if any(said in reason for said in _OF_THE_DISK) else None
        if refused is not None and ("unable" not in reason or refused.errno in (errno.ENOSPC, errno.EDQUOT)):
            hint = "once it can be written to again, `virtune compare resume` goes on"
            return StoreError(f"cannot write to the store {self.path}: {words_of(refused)} in {place}", hint=hint)
        if "readonly" in reason or "unable to open" in reason:
            if self._reading:
                return ReadOnlyStoreError(f"cannot open the store {self.path}", hint=self.hint)
            said = f"cannot write to the store {self.path}: it or its directory may only be read"
            return ReadOnlyStoreError(said, hint=self.hint)
        return StoreError(f"cannot use the store {self.path}: {reason}", hint=self.hint)


def _made(name: str) -> tuple[str, str]:
    return "view", f"CREATE VIEW {name} AS {VIEWS[name].strip()}"


def _refusal(place: Path) -> OSError | None:
    """Return what a directory's disk says to a new file without a name; None where it takes one and some bytes."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(_TRIED_BYTES))
    except OSError as error:
        return error
    return None


def _engine(path: Path, how: str) -> sa.Engine:
    """Return an engine for a file; `how` is what SQLite's URI says after the name."""
    uri = f"file:{quote(str(path.absolute()))}?{how}"  # a name may hold `?`, `#` and `%`
    engine = sa.create_engine("sqlite:///", creator=lambda: sqlite3.connect(uri, uri=True), poolclass=sa.QueuePool)
    sa.event.listen(engine, "connect", _prepare)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _begin(db: sa.Connection) -> None:
    """Begin where it is said: Python's module begins at the first row that is changed, after tables are made."""
    db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get("writing") else "BEGIN")


def _prepare(connection: Any, _: object) -> None:
    connection.text_factory, connection.isolation_level = text_of, None
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={_WAIT_SECONDS * 1000}", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _is_being_made(path: Path) -> bool:
    """Whether a file without a store was made just now: another virtune may be about to fill it."""
    try:
        return time.time() - path.stat().st_mtime < _MADE_SECONDS
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
