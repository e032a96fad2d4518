# SPDX-License-Identifier: Apache-2.0
"""Every error a user can see, with the exit code that it means. And where studies are kept: a SQLite file, or a
PostgreSQL database by its URL.

Exit codes 4 and 5 are no errors: 4 says that a threshold was breached (`--fail-if`, `audit --fail-on`), and 5 that a
condition of `--fail-if` may be breached, a host be noisier than `--fail-if-noisier` allows, or a domain be as bad as
`--fail-on` asks, and nothing shows that it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, urlsplit

from virtune.model.text import printable

NO_END = "no end after"
"""How the message begins of a command that was not over in time."""


def words_of(error: OSError) -> str:
    """Say what the system says of a failed call, to stand within a sentence."""
    return (error.strerror or str(error)).lower()


class VirtuneError(Exception):
    """An error with one clear sentence, and where it helps a hint with the next thing to type. `details` are lines
    below the sentence, where one reason is not all.

    What cannot be printed (an escape sequence in a file name, say) is shown as `?`: messages quote hostile input.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, details: Sequence[str] = ()) -> None:
        self.message = printable(message)
        self.details = tuple(printable(line) for line in details)
        self.hint = None if hint is None else printable(hint)
        super().__init__(self.message)


class RigError(VirtuneError):
    """A stack did not come up, or what carried it went away."""


class LoadError(VirtuneError):
    """The load did not run to its end."""


class CorruptDataError(VirtuneError):
    """What is read from a disk is not what was written to it."""


class StoreError(VirtuneError):
    """The store could not be read or written."""


class ReadOnlyStoreError(StoreError):
    """The store, or its directory, may be read and not written to."""


class UsageError(VirtuneError):
    """The command line is wrong."""

    exit_code = 2


class PlanError(UsageError):
    """A plan file, a workload or an arm is wrong."""


class ReadError(VirtuneError):
    """What was given to read (a fio result) is broken, too large, or something else."""

    exit_code = 2


class PreconditionError(VirtuneError):
    """This host, or the target, does not allow what was asked."""

    exit_code = 3


class MissingToolError(PreconditionError):
    """A program that is needed is not installed."""


class RefusedTargetError(PreconditionError):
    """The target is not virtune's to write to, or cannot be measured honestly."""


class NotInForceError(PreconditionError):
    """A setting was requested, and something else is what runs."""


class Interrupted(VirtuneError):  # noqa: N818 - the user's wish is not an error
    """The user asked to stop; what was finished is kept."""

    exit_code = 130


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
