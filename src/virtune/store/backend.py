# SPDX-License-Identifier: Apache-2.0
"""What SQLite and PostgreSQL do differently: how a store is opened, made and read, and what their errors mean."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlalchemy as sa

from virtune.model.errors import StoreError
from virtune.store.schema import ADDED, METADATA


class Backend(Protocol):
    """One kind of database. `name` is what messages call the place, `writable` whether it takes measurements,
    `summarises` whether a reader may see what is worked out of them.
    """

    name: str
    writable: bool
    summarises: bool
    engine: sa.Engine
    hint: str

    def open(self, *, reading: bool) -> int:
        """Connect and return the number of the store's format, 0 for a new one. Raises StoreError."""

    def transaction(self, *, writing: bool) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction that ends with the block. One that reads sees the store as it was at its first query,
        whatever others write meanwhile; one that writes may wait for others first.
        """

    def alone(self, db: sa.Connection, name: str = "") -> None:
        """Keep what is called so to this writing transaction until it ends; without a name the store's making."""

    def format_of(self, db: sa.Connection) -> int:
        """Return the number of the store's format."""

    def tables(self, db: sa.Connection) -> Mapping[str, set[str]]:
        """Return the columns of every table where the store's would be."""

    def make(self, db: sa.Connection) -> None:
        """Make the tables of a new store."""

    def set_format(self, db: sa.Connection, number: int) -> None:
        """Note the format of the store."""

    def changed_views(self, db: sa.Connection) -> Sequence[str]:
        """Return the SQL views that are missing or are not as they are today."""

    def make_views(self, db: sa.Connection) -> None:
        """Make those views."""

    def settle(self) -> None:
        """Do what a store that was made just now needs and no transaction can do."""

    def has_words(self, column: sa.Column[str], words: str) -> sa.ColumnElement[bool]:
        """Return the condition that a text has these words in it, in small letters or capitals."""

    def without_distributions(self, column: sa.Column[str]) -> sa.ColumnElement[str]:
        """Return a measurement's text without its distributions, which are most of it."""

    def put(self, table: sa.Table, row: Mapping[str, Any], key: Sequence[str]) -> sa.Insert:
        """Return what stores a row in the place of one with the same key."""

    def put_new(self, table: sa.Table) -> sa.Insert:
        """Return what stores rows where there are none with the same key."""

    def claimed(self, name: str, *, wait: bool) -> AbstractContextManager[bool]:
        """Keep what is called so for this process during the block, and give whether it does; with `wait` it does as
        soon as no other process keeps it. A claim ends with its process.
        """

    def explained(self, error: BaseException) -> StoreError:
        """Say a database's error in one sentence."""


def is_ours(found: Mapping[str, set[str]], *, format_number: int) -> bool:
    """Whether tables are those of a store and not of another program, which may use the same names. Only a new
    store, or one that a killed virtune left, has no number of a format yet, and not all of its tables.
    """
    wanted = {name for name in METADATA.tables if ADDED.get(name, 1) <= format_number}
    ours = wanted <= found.keys() if format_number else found.keys() <= METADATA.tables.keys()
    known = found.keys() & METADATA.tables.keys()
    return ours and all({*METADATA.tables[name].columns.keys()} <= found[name] for name in known)
