# SPDX-License-Identifier: Apache-2.0
"""A verb as a command line has it: the options that most people use first in its help, and the verbs below it."""

from typing import Any

import click
from click.shell_completion import CompletionItem

MANY = 20
"""A verb with so many options and arguments shows only those that are used most, and the others with --help-all."""

_SECTIONS = {
    "What": "rig connect like its_load emulated vary arms settings fix workloads baseline durability maximize"
    " minimize subject_to loads at_load mode metric pairs margin confidence different_jobs",
    "How long": "quick budget rounds seconds ramp attempts restart confirm confirm_seconds soak spread seed"
    " precondition until_steady steady_rule steady_limit wait_quiet again",
    "Where": "scratch span target store",
    "Safety": "allow_write_to allow_in_use check_data check_durability dry_run yes signs replug timeout_seconds"
    " force_off journal",
}
"""Options as help groups them; what is not here is about the result."""

OFTEN = (
    "rig vary settings fix workloads baseline arms like minimize subject_to mode budget quick fail_if report as_json"
    " wait_quiet loads dry_run yes restart rounds seconds target allow_write_to store"
)
"""The options that are used most, the first before the others: a verb's help has the first twelve that it takes."""

_SHOWN = 12

EVERY_OPTION = "virtune.every_option"
"""What a context's `meta` has where help is to list all options."""


class Verb(click.Command):
    """A command whose help begins with what is used most."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with --help-all where there are others than help shows."""
        found = super().get_params(ctx)
        if len(found) < MANY:
            return found
        every = click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all, help="All options."
        )
        return [*found, every]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section, then the verbs below this one."""
        params = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        often = [name for name in OFTEN.split() if any(one.name == name for one in params)][:_SHOWN]
        shown = params if ctx.meta.get(EVERY_OPTION) else [one for one in params if one.name in often]
        if params[-1].name != "help_all":
            super().format_options(ctx, formatter)
        else:
            place = {name: title for title, names in _SECTIONS.items() for name in names.split()}
            for title in (*_SECTIONS, "Result"):
                here = (one for one in shown if place.get(one.name or "", "Result") == title)
                if rows := [record for one in here if (record := one.get_help_record(ctx))]:
                    with formatter.section(title):
                        formatter.write_dl(rows)
            if len(shown) < len(params):
                formatter.write_paragraph()
                more = len(params) - len(shown) - 2
                formatter.write_text(f"`{ctx.command_path} --help-all` has {more} more options.")
        list_below(ctx, formatter, "Also")


class VerbFamily(click.Group):
    """A verb that does nothing without another word."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs below, by the table of all verbs."""
        list_below(ctx, formatter, "Commands")


def below(verb: str | None) -> list[tuple[str, str]]:
    """Return the verbs below one, each with its line of help."""
    from virtune.cli import VERBS

    return [(name.split()[1], words) for name, words in VERBS.items() if name.startswith(f"{verb} ")]


def list_below(ctx: click.Context, formatter: click.HelpFormatter, title: str) -> None:
    """Write the verbs below that of a context, where there are any."""
    if rows := [(f"{ctx.info_name} {name}", words) for name, words in below(ctx.info_name)]:
        with formatter.section(title):
            formatter.write_dl(rows)


def _help_all(ctx: click.Context, _: click.Parameter, asked: Any) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[EVERY_OPTION] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def verbs_and_files(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a first word: a verb below this one, or a file."""
    verbs = [(name, words) for name, words in below(ctx.info_name) if name.startswith(incomplete)]
    return [*(CompletionItem(name, help=words) for name, words in verbs), CompletionItem(incomplete, type="file")]
