# SPDX-License-Identifier: Apache-2.0
"""The command line: one module a verb, imported only when it is called.

Data goes to stdout, everything else to stderr. Errors are one sentence, then a hint, then the exit code that
`virtune.model.errors` gives them; a traceback is shown only when VIRTUNE_DEBUG is set.
"""

import codecs
import difflib
import importlib
import io
import keyword
import os
import sys

import click

from virtune import __version__
from virtune.model.errors import VirtuneError

VERBS: dict[str, str] = {
    "probe": "Show this host's facts: kernel, QEMU, fio, CPU, block devices",
    "knobs": "List the settings of the I/O path: values, cost of a change, risk",
    "check": "Check the measurement noise of this host (A/A test)",
    "measure": "Measure one disk stack on this host",
    "compare": "Compare disk stacks on this host, in interleaved rounds",
    "study": "Run a built-in study: a published comparison, repeated on this host",
    "tune": "Search for the best configuration, much faster than a full grid",
    "resume": "Continue an interrupted study",
    "audit": "Audit VM disk configuration for performance and data-safety problems",
    "advise": "Show changes that fix a VM's disks or bring them to a template",
    "apply": "Apply changes to a libvirt VM (journaled, reversible)",
    "undo": "Undo an apply: restore the VM's previous configuration",
    "list": "List the stored studies: your measurements",
    "show": "Show a stored study: table, verdicts, report or JSON",
    "import": "Import existing fio results as a study",
    "explain": "Explain a fio result (JSON, JSON+ or text)",
    "appliance": "Build, list and remove the test guest of `--rig qemu`",
    "clean": "Remove leftovers of a killed run: processes, mounts, scratch files",
}
"""Every verb with its one line of help. The module of a verb is `virtune.cli.<verb>`; it has `command`. Python's own
words (`import`) have an underscore behind them there."""


_ASCII = {"\u2026": ">", "\u00b5": "u", "\u00d7": "x", "\u2013": "-", "\u2014": "-", "\u2265": ">=", "\u2264": "<="}


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called or its own help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"virtune.cli.{cmd_name}{'_' * keyword.iskeyword(cmd_name)}")
        command = module.command
        assert isinstance(command, click.Command)  # noqa: S101 - a verb without a command is our own mistake
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"did you mean `virtune {close[0]}`?" if close else "`virtune --help` lists the commands"
            raise VirtuneUsage(f"no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


class VirtuneUsage(click.UsageError):
    """A usage error with a hint of its own."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="virtune")
def cli() -> None:
    """The disk I/O of virtual machines: measured, explained and tuned."""


def main() -> None:
    """Run the command line and exit: 0 it ran, 1 failure, 2 usage, 3 precondition, 130 interrupted."""
    codecs.register_error("virtune", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="virtune")
    sys.exit(run(sys.argv[1:]))


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Write what a terminal's character set lacks as the nearest that it has: no locale may cost a result."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII.get(character, "?") for character in lacking), error.end


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; every error becomes one sentence on stderr."""
    try:
        result = cli.main(args=arguments, prog_name="virtune", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except VirtuneError as error:
        if os.environ.get("VIRTUNE_DEBUG"):
            raise
        return _say(error.message, error.hint, error.exit_code)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "virtune"
        hint = getattr(error, "hint", None) or f"`{command} --help`"
        return _say(_sentence(error.format_message()), hint, 2)
    except click.ClickException as error:
        return _say(_sentence(error.format_message()), None, 1)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", None, 130)
    except BrokenPipeError:
        # The reader (head, less) went away: that is its right, and no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # what is ours to read and write is caught where it is known; left is where we print to
        return _say(f"cannot write the output: {error.strerror}", None, 1)


def _sentence(text: str) -> str:
    first = " ".join(text.split()).rstrip(".")
    return first[:1].lower() + first[1:]


def _say(message: str, hint: str | None, code: int) -> int:
    colour = False if os.environ.get("NO_COLOR") else None  # None: as the terminal is
    click.echo(click.style("error:", fg="red", bold=True) + f" {message}", err=True, color=colour)
    if hint:
        click.echo(f"\n{click.style('hint:', fg='cyan')} {hint}", err=True, color=colour)
    return code
