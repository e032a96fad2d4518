# SPDX-License-Identifier: Apache-2.0
"""The common options of `advise` and `apply`: the requested changes, the domains, and the output."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from virtune.flows.domains.advise import TEMPLATES, Advice, Wish, read_turn
from virtune.model.errors import UsageError
from virtune.shell import data_directory

Command = TypeVar("Command", bound=Callable[..., Any])


def wish_options(command: Command) -> Command:
    """Add the options for the requested changes."""
    options = (
        click.option("--template", type=click.Choice(TEMPLATES), default=None,
                     help="For disks on flash: cache=none, io_uring where it is sound, discard, an IOThread."),
        click.option("--rule", "rules", metavar="ID", multiple=True, help="Fix what this audit rule finds (e.g."
                                                                          " R01)."),
        click.option("--set", "turns", metavar="KNOB@PLACE=VALUE", multiple=True,
                     help="Set this knob: disk.cache@vda=none, iothread.pin@iothread:1=3; an empty value"
                          " removes it."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def wish_of(template: str | None, rules: tuple[str, ...], turns: tuple[str, ...]) -> Wish:
    """Read the words of `wish_options`."""
    if template and rules:
        raise UsageError("--template and --rule cannot be together", hint="do one, then the other")
    return Wish(template=template, rules=rules, turns=tuple(read_turn(text) for text in turns))


def default_journal() -> Path:
    """Return where changes are journalled: the user's data directory."""
    return data_directory() / "journal"


def journal_option(command: Command) -> Command:
    """Add --journal."""
    return click.option(
        "--journal",
        type=click.Path(path_type=Path, file_okay=False),
        default=default_journal,
        help="Directory of the change journal.  [default: in your data directory]",
    )(command)


def advice_lines(domain: str, advice: Advice, ways: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the advice for one domain: each change, the diff, and what is left unchanged and why.

    `ways` say how each change becomes effective, if that is known for this VM.
    """
    from virtune.report.pages.audit import lines

    ways = ways if ways is not None else [takes.value for takes, _ in advice.effects]
    turns = [(turn, way, risk) for turn, way, (_, risk) in zip(advice.turns, ways, advice.effects, strict=True)]
    said = {
        "left": [one.text for one in advice.left],
        "commands": advice.commands,
        "warnings": [one.text for one in advice.warnings],
    }
    yield from lines(domain, turns, diff=advice.diff, **said)
