# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share: those of a study by their rows in `model/study_options`, and the others."""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virtune.model import study_options as rows
from virtune.model.errors import DatabaseUrl, StorePlace, UsageError, database_url, is_database
from virtune.model.rig import read_rig
from virtune.model.text import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from virtune.model.study import Study
    from virtune.store.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])


def adding(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return what adds options to a command; help shows them in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class PlaceType(click.Path):
    """A path that is kept with a study and given to QEMU, both of which take text."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        require_utf8(self, value, param, ctx)
        return super().convert(value, param, ctx)


def require_utf8(
    kind: click.ParamType[Any], value: object, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    """Fail for a name that cannot be written into a study, or given to SQLite."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        kind.fail(f"the name {str(value)!r} is not text in UTF-8", param, ctx)


class Written(click.ParamType[Any]):
    """What is read of a text by a function that raises ValueError with a sentence."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Written("size", parse_bytes)
"""A size: 512, 4k, 1M, 10G."""

SECONDS = Written("time", parse_seconds)
"""A time: 500ms, 5s, 2m."""


class TextType(click.ParamType[str]):
    """A text of at most so many characters."""

    name = "text"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        require_utf8(self, value, param, ctx)
        if len(str(value)) > self._most:
            self.fail(f"it has {len(str(value)):,} characters, and {self._most:,} are the most", param, ctx)
        return str(value)


class ShareType(click.FloatRange):
    """A share: 0.03, or 3%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = str(value).strip()
        try:
            found = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            found = math.nan
        if not math.isfinite(found):
            self.fail(f"not a share: {number!r} (write 0.03 or 3%)", param, ctx)
        return super().convert(found, param, ctx)


def in_data(name: str) -> Callable[[], Path]:
    """Return what gives the place of that name in the user's data directory."""

    def place() -> Path:
        from virtune.shell import data_directory  # with all that starts processes, of which help needs nothing

        return data_directory() / name

    return place


def _default_scratch() -> Path:
    from virtune.shell import default_scratch

    return default_scratch()


def scratch_option(help_text: str) -> Callable[[Command], Command]:
    """Add --scratch."""
    return click.option(
        "--scratch", type=PlaceType(), default=_default_scratch,
        help=f"{help_text}  [default: /var/tmp/virtune-UID]",
    )  # fmt: skip


class RigType(click.ParamType[str]):
    """A rig by its name, or with what it is for (`libvirt:DOMAIN`) where that is among the words offered."""

    name = "rig"

    def __init__(self, *offered: str) -> None:
        self._offered = offered

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"[{'|'.join(self._offered)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = read_rig(str(value))
        hidden = found is not None and found.kind.hidden
        placed = found is not None and f"{found.kind.name}:{found.kind.where}" in self._offered
        if ":" not in str(value) and value in self._offered:
            return str(value)
        if not placed and not hidden:
            self.fail(f"{value!r} is not one of {', '.join(self._offered)}", param, ctx)
        return str(value)


class StoreType(click.Path):
    """Where studies are kept: a file, or a database by its URL."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, DatabaseUrl):
            return value
        if isinstance(value, str) and is_database(value):
            return database_url(value)
        require_utf8(self, value, param, ctx)
        return super().convert(value, param, ctx)


store_option = click.option(
    "--store",
    type=StoreType(),
    default=in_data("virtune.sqlite"),
    metavar="FILE|URL",
    help="SQLite file of all studies, or a database: postgresql://USER@HOST/NAME.  [default: a file in your "
    "data directory]",
)
"""Where studies are kept."""


def no_store(store: StorePlace) -> str | None:
    """Return the message for a missing store; None when it exists.

    Reading does not create a store, because a misspelled name would look like an empty one. Raises UsageError where
    it was named.
    """
    if store.exists():
        return None
    source = click.get_current_context().get_parameter_source("store")
    if source is not click.core.ParameterSource.DEFAULT:
        raise UsageError(f"there is no store {store}", hint="`--store FILE` names the SQLite file of your studies")
    return "no studies yet; `virtune compare` makes one"


def require_store(store: StorePlace, study: str) -> None:
    """Raise UsageError where there is no store to find a study in."""
    if no_store(store) is not None:
        hint = "`virtune compare` and `virtune explain import` make studies, `virtune show list` lists them"
        raise UsageError(f"no study {study!r}, and no studies yet", hint=hint)


@contextlib.contextmanager
def stored(store: StorePlace, study: str, *, reading: bool = True) -> Iterator[tuple["Store", str]]:
    """Give a store with a study in it, and the study's id; raises UsageError where there is none."""
    from virtune.store.store import Store

    require_store(store, study)
    with Store(store, reading=reading) as kept:
        yield kept, kept.find(study)


def confirmed(question: str, *, yes: bool, err: bool = False, hint: str = "add --yes") -> bool:
    """Whether a user agrees, or did so by --yes; raises UsageError where nobody can be asked."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("cannot ask for confirmation: stdin is not a terminal", hint=hint)
    return yes or click.confirm(question, err=err)


verbose_option = click.option(
    "--verbose", "-v", is_flag=True, help="Also say the value of every option and where it came from."
)
"""-v where nothing runs."""


def say_options(study: "Study") -> None:
    """Write the options of a study to stderr."""
    from virtune.report.pages.study import option_lines

    for line in option_lines(study):
        click.echo(line, err=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")


report_option = click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the full report to this file: as text, or with pictures to a .html.",
)  # fmt: skip


begin_options = adding(
    click.option("--wait-quiet", type=SECONDS, default=None, metavar="TIME",
                 help="Wait until this host is quiet, so long at most; then give up with exit 3."),
    click.option("--dry-run", is_flag=True,
                 help="Check everything, say what would be measured, where and for how long, and measure nothing."),
)  # fmt: skip
"""How a measurement begins, or does not."""


progress_options = adding(
    click.option("--quiet", "-q", is_flag=True, help="Print the result only: no progress and no notes."),
    click.option("--verbose", "-v", is_flag=True,
                 help="Where the value of each option came from, a line for each trial, and the whole result: "
                      "all tables, settings and notes."),
)  # fmt: skip
"""Both tell how much is said."""


run_options = adding(begin_options, progress_options, json_option, store_option)
"""What every verb that measures has besides the options of its study."""


def study_options(verb: str, *, besides: tuple[str, ...] = ("fail_if",)) -> Callable[[Command], Command]:
    """Add the options of a verb by their rows, without those `besides`, which stand elsewhere in its help."""
    return adding(*(study_option(name, verb) for name in rows.options_of(verb) if name not in besides))


def study_option(name: str, verb: str) -> Callable[[Command], Command]:
    """Add one option of a verb by its row. A missing one is None, so that plan files and defaults apply."""
    row = rows.OPTIONS[name]
    default = rows.default_words(row, verb)
    words = f"{rows.for_verb(row.help, verb)}{f'  [default: {default}]' if default else ''}"
    if row.takes is rows.Takes.SWITCH:
        return click.option(rows.flag_of(name), name, is_flag=True, help=words)
    settings: dict[str, Any] = {"help": words, "metavar": rows.for_verb(row.metavar, verb)}
    if row.many and verb not in row.once:
        settings["multiple"] = True
    else:
        settings["default"] = None
    return click.option(rows.flag_of(name), *row.also, name, type=_type_of(row, verb), **settings)


def read_options(verb: str, words: Mapping[str, Any]) -> rows.StudyOptions:
    """Sort click's parsed values into the options of a study."""
    said: dict[str, Any] = {}
    for name, row in rows.options_of(verb).items():
        value = words.get(name)
        said[name] = (() if value is None else (value,)) if row.many and verb in row.once else value
    return rows.StudyOptions(**{name: value for name, value in said.items() if value is not None})


def _type_of(row: rows.OptionRow, verb: str) -> Any:
    match row.takes:
        case rows.Takes.TIME:
            return SECONDS
        case rows.Takes.SIZE:
            return SIZE
        case rows.Takes.WHOLE:
            return click.IntRange(_whole(row.low), _whole(row.high))
        case rows.Takes.SHARE:
            return ShareType(row.low, row.high, max_open=row.below)
        case rows.Takes.PLACE:
            return PlaceType()
        case rows.Takes.CHOICE:
            return click.Choice(rows.for_verb(row.choices, verb) or ())
        case rows.Takes.RIG if offered := rows.for_verb(row.choices, verb):
            return RigType(*offered)
        case rows.Takes.TEXT if row.high is not None:
            return TextType(int(row.high))
        case _:
            return str


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
