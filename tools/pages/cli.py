# SPDX-License-Identifier: Apache-2.0
"""The page of the command line: the help of every verb, as virtune prints it."""

from collections.abc import Iterator

from tools.pages.markdown import whole
from virtune.cli import VERBS, cli
from virtune.cli.common.verb import EVERY_OPTION

_COLUMNS = 98
"""What click writes into in a terminal of 100 columns."""


def page() -> str:
    """Return the page."""
    return whole("Command line", _lines())


def _lines() -> Iterator[str]:
    yield "What `virtune --help` and `virtune VERB --help` (`--help-all` where it has more options) print. How"
    yield "virtune ends: [exit codes](exit-codes.md). What goes behind `--workload`: [workloads](workloads.md);"
    yield "behind `--set`, `--vary` and `--arm`: [knobs](knobs.md); behind `--metric`: [metrics](metrics.md). The"
    yield "file that `compare` takes: [plan](plan.md). Units, defaults and their reasons: [options](options.md).\n"
    yield "Environment: `XDG_DATA_HOME` moves the store (`virtune/virtune.sqlite` in it, `~/.local/share` by"
    yield "default); `NO_COLOR` switches the colours of tables off; `VIRTUNE_DEBUG` shows tracebacks.\n"
    root = cli.make_context("virtune", [], resilient_parsing=True, terminal_width=_COLUMNS)
    yield from _section("virtune", cli.get_help(root))
    for verb in VERBS:
        command = cli.get_command(root, verb)
        assert command is not None  # noqa: S101 - VERBS is what it looks up
        context = command.make_context(verb, [], parent=root, resilient_parsing=True, terminal_width=_COLUMNS)
        context.meta[EVERY_OPTION] = True
        yield from _section(f"virtune {verb}", command.get_help(context))
        if verb == "host":  # its verbs are among the rows
            continue
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            below = inner.make_context(name, [], parent=context, resilient_parsing=True, terminal_width=_COLUMNS)
            yield from _section(f"virtune {verb} {name}", inner.get_help(below))


def _section(title: str, text: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```\n"
