# SPDX-License-Identifier: Apache-2.0
"""Where studies are kept: a SQLite file, or a PostgreSQL database by its URL."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from virtune.model.errors import UsageError

SCHEMES = ("postgresql://", "postgres://")

_SECRETS = {"password", "sslpassword"}


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A PostgreSQL database by the URL that libpq reads. It holds no password: `database_url` refuses one."""

    text: str

    def __str__(self) -> str:
        return self.text

    def exists(self) -> bool:
        """Whether there is something to open, as a file would say: only opening a database tells."""
        return True


StorePlace = Path | DatabaseUrl


def is_database(text: str) -> bool:
    """Whether a text means a database rather than a file."""
    return text.startswith(SCHEMES)


def database_url(text: str) -> DatabaseUrl:
    """Read the URL of a database. Raises UsageError for one with a password, and for one that is no URL.

    A password would stand in the process list, in the shell's history and in every message; libpq reads it from
    `~/.pgpass`.
    """
    try:
        split = urlsplit(text)
        secret = split.password is not None or bool(_SECRETS & {key for key, _ in parse_qsl(split.query)})
    except ValueError:
        raise UsageError("the URL of the store is not one of PostgreSQL", hint=_FORM) from None
    if secret:
        raise UsageError(
            "the URL of the store has a password, which the process list would show",
            hint="put it into ~/.pgpass (or PGPASSWORD), and write postgresql://USER@HOST/DATABASE",
        )
    if not text.isprintable() or any(letter.isspace() for letter in text):
        raise UsageError("the URL of the store is not one of PostgreSQL", hint=_FORM)
    return DatabaseUrl(text)


_FORM = "postgresql://USER@HOST/DATABASE"
