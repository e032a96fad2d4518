# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share, and the readers of their values."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from virtune.model.errors import UsageError
from virtune.model.rig import read_rig, rig_words_with_where
from virtune.model.study import DEFAULT_SPAN, ROUNDS_MAX, SEED_MAX
from virtune.model.units import format_bytes, parse_bytes, parse_seconds

Command = TypeVar("Command", bound=Callable[..., Any])


class PlaceType(click.Path):
    """A path that is kept with a study and given to QEMU, both of which take text."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            str(value).encode()
        except UnicodeEncodeError:
            self.fail(f"the name {str(value)!r} is not text in UTF-8", param, ctx)
        return super().convert(value, param, ctx)


class SizeType(click.ParamType[int]):
    """A size: 512, 4k, 1M, 10G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SecondsType(click.ParamType[float]):
    """A time: 500ms, 5s, 2m."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def default_store() -> Path:
    """Return where studies are kept unless told otherwise: the user's data directory."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(home) / "virtune" / "virtune.sqlite"


_SCRATCH = "/var/tmp/virtune-"  # noqa: S108 - whoever makes it first, it is looked at before it is used


def default_scratch() -> Path:
    """Return where scratch images lie unless told otherwise: on a disk, unlike /tmp, and kept between runs.

    Each user has a directory, since nobody may use one in which another user could exchange what lies there.
    """
    return Path(f"{_SCRATCH}{os.geteuid()}")


def scratch_option(help_text: str) -> Callable[[Command], Command]:
    """Add --scratch."""
    return click.option(
        "--scratch", type=PlaceType(), default=default_scratch,
        help=f"{help_text}  [default: {_SCRATCH}UID]",
    )  # fmt: skip


class RigType(click.ParamType[str]):
    """A rig by its name, or with what it is for (`libvirt:DOMAIN`) where `with_where`."""

    name = "rig"

    def __init__(self, *names: str, with_where: bool = True) -> None:
        self._names = names
        self._said = (*names, *(rig_words_with_where() if with_where else ()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"[{'|'.join(self._said)}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = read_rig(str(value))
        hidden = found is not None and found.kind.hidden
        placed = found is not None and found.where is not None and len(self._said) > len(self._names)
        if value not in self._names and not placed and not hidden:
            self.fail(f"{value!r} is not one of {', '.join(self._said)}", param, ctx)
        return str(value)


def connect_option(command: Command) -> Command:
    """Add --connect."""
    return click.option(
        "--connect", metavar="URI", default=None,
        help="libvirt URI for --rig libvirt:DOMAIN.  [default: virsh's]",
    )(command)  # fmt: skip


def store_option(command: Command) -> Command:
    """Add --store."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path, dir_okay=False),
        default=default_store,
        help="SQLite file of all studies.  [default: in your data directory]",
    )(command)


def no_store(store: Path) -> str | None:
    """Return what to say of a store that is to be read and is not there; None when it is there.

    Reading makes no store: a misspelled name would look like an empty one. Raises UsageError where it was named.
    """
    if store.exists():
        return None
    source = click.get_current_context().get_parameter_source("store")
    if source is not click.core.ParameterSource.DEFAULT:
        raise UsageError(f"there is no store {store}", hint="`--store FILE` names the SQLite file of your studies")
    return "no studies yet; `virtune compare` makes one"


def require_store(store: Path, study: str) -> None:
    """Raise UsageError where there is no store to find a study in."""
    if no_store(store) is not None:
        hint = "`virtune compare` and `virtune import` make studies, `virtune list` lists them"
        raise UsageError(f"no study {study!r}, and no studies yet", hint=hint)


def json_option(command: Command) -> Command:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")(command)


def report_option(command: Command) -> Command:
    """Add --report."""
    return click.option(
        "--report", type=click.Path(path_type=Path, dir_okay=False),
        help="Write the full report to this file: as text, or with pictures to a .html.",
    )(command)  # fmt: skip


def progress_options(command: Command) -> Command:
    """Add --quiet and --verbose."""
    options = (
        click.option("--quiet", "-q", is_flag=True, help="Print the result only: no progress and no notes."),
        click.option("--verbose", "-v", is_flag=True,
                     help="A line for each trial, and the whole result: all tables, settings and notes."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def target_options(command: Command) -> Command:
    """Add what says where the load lands."""
    options = (
        scratch_option("Directory for scratch images; virtune measures the disk it lies on."),
        click.option("--span", type=SizeType(), default=None,
                     help=f"Size of the scratch image, or how much of a target is used.  "
                          f"[default: {format_bytes(DEFAULT_SPAN)}: quick to fill; smaller than RAM, so buffered "
                          f"stacks are served from the page cache, and virtune says so]"),
        click.option("--target", type=PlaceType(), default=None, metavar="FILE|DEVICE",
                     help="Load this existing file or block device instead of a scratch image."),
        click.option("--allow-write-to", metavar="FILE|DEVICE", default=None,
                     help="Name the target again to allow writes to it: its contents are lost."),
        click.option("--allow-in-use", is_flag=True,
                     help="Allow writes even if it is mounted, in use, or carries a filesystem or partition table."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def timing_options(*, rounds: int | str, seconds: float) -> Callable[[Command], Command]:
    """Add how often and how long; the defaults differ by verb."""

    def add(command: Command) -> Command:
        options = (
            click.option("--rounds", type=click.IntRange(1, ROUNDS_MAX), default=None,
                         help=f"Rounds; each round runs every arm once, in random order.  [default: {rounds}]"),
            click.option("--seconds", type=SecondsType(), default=None,
                         help=f"Measured time of one trial.  [default: {seconds:g}s]"),
            click.option("--ramp", type=SecondsType(), default=None,
                         help="Warm-up before each trial, not measured.  [default: 500ms]"),
            click.option("--seed", type=click.IntRange(0, SEED_MAX), default=None,
                         help="Seed of the random order and offsets.  [default: random; stored with the result]"),
            click.option("--restart", is_flag=True,
                         help="Start a new QEMU process for every trial, so that the result includes the variation "
                              "between starts; a test guest (rig=qemu) keeps its machine and gets a new disk. "
                              "Otherwise one process runs all arms."),
        )  # fmt: skip
        for option in reversed(options):
            command = option(command)
        return command

    return add
