# SPDX-License-Identifier: Apache-2.0
"""The command line: verbs of one subject in one module, imported only when one of them is called.

Data goes to stdout, everything else to stderr. Errors are one sentence, then a hint, then the exit code that
`virtune.model.errors` gives them; a traceback is shown only when VIRTUNE_DEBUG is set.
"""

import builtins
import difflib
import importlib
import keyword
import sys

import click
from click.exceptions import NoArgsIsHelpError

from virtune import __version__
from virtune.cli.common import surroundings
from virtune.cli.common.verb import below
from virtune.model.errors import PreconditionError

VERBS: dict[str, str] = {
    "compare": "Compare disk configurations",
    "compare measure": "Measure one disk configuration on this host",
    "compare study": "Run a built-in study: a published comparison, repeated on this host",
    "compare resume": "Continue an interrupted study",
    "tune": "Search for the best configuration, much faster than a full grid",
    "sweep": "Offer more and more load: saturation, knee, most IOPS at a limit",
    "audit": "Find performance and data-safety problems in VMs' disk settings",
    "diagnose": "Say what limits a disk: layers of a request, threads, bottleneck",
    "top": "Watch the disks of running VMs: IOPS, latency by layer, limits",
    "watch": "Watch for hours: say when a disk is slow and why; Prometheus",
    "fix": "Find a better configuration of a VM's disk, prove it, and apply it",
    "apply": "Change VMs, with a journal",
    "apply advise": "Show changes that fix a VM's disks or bring them to a template",
    "apply undo": "Undo an apply: restore the VM's previous configuration",
    "show": "Show a stored study",
    "show list": "List the stored studies: your measurements",
    "show label": "Give a study a title, a note or a tag, by which it is found",
    "show report": "Write a study as one HTML file with pictures",
    "show export": "Export measurements as CSV, a study as a bundle, figures for Prometheus",
    "show derive": "Derive the figures of all stored studies again, by today's method",
    "explain": "Explain a fio result",
    "explain import": "Import existing fio results as a study",
    "serve": "Show the stored studies as a read-only local page",
    "host": "Know this host",
    "host probe": "Show this host's facts: kernel, QEMU, fio, CPU, block devices",
    "host check": "Check the measurement noise of this host (A/A test)",
    "host doctor": "Say what virtune can do here, and install what is missing",
    "host knobs": "List the settings of the I/O path: values, cost of a change, risk",
    "host guest": "Build, list and remove the test guest of `--rig qemu`",
    "host clean": "Remove leftovers of a killed run: processes, mounts, scratch files",
    "fleet": "Many hosts over SSH: install, audit, run studies, compare, apply",
}
"""Every verb with its one line of help; those of two words are listed with their first."""

GROUPS = {
    "Measure": "compare tune sweep",
    "A VM's disks": "audit diagnose top watch fix apply",
    "Results": "show explain serve",
    "Hosts": "host fleet",
}
"""The verbs as `--help` lists them."""

MODULES = {"sweep": "tune", "audit": "domains", "apply": "domains"}
"""The module of a verb, where it does not have the name of its first word. It has the verb under the last; Python's
own words (`import`) and names (`list`) have an underscore behind them there."""

EARLIER = {name.split()[-1]: name for name in VERBS if " " in name} | {"appliance": "host guest"}
"""What verbs were called before, and are still when their first word is left out."""


_ASKED_FOR = {
    "version": "`virtune --version`",
    "help": "`virtune --help`, or `virtune COMMAND --help`",
    "workloads": "`--workload` takes fio's words, a job file or a name; docs/reference/workloads.md lists them",
    "metrics": "`--metric` takes a name such as iops or latency.p99; docs/reference/metrics.md lists all",
    "report": "`virtune show --report FILE`, `--markdown FILE`",
}
"""What people type that is no command, and what they want."""


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called or its own help is shown.

    A verb of two words is looked up here too, so that `compare measure` need not read the options of `compare`.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [verb for verb in VERBS if " " not in verb]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        subject, word = cmd_name.split(maxsplit=1)[0], cmd_name.rsplit(maxsplit=1)[-1]
        taken = keyword.iskeyword(word) or word in vars(builtins)
        module = importlib.import_module(f"virtune.cli.{MODULES.get(subject, subject)}")
        command = getattr(module, f"{word}{'_' * taken}")
        assert isinstance(command, click.Command)  # noqa: S101 - a verb without a command is our own mistake
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and (now := EARLIER.get(args[0])):
            if not ctx.resilient_parsing:
                click.echo(f"`virtune {args[0]}` is now `virtune {now}`", err=True)
            args = [*now.split(), *args[1:]]
        if (name := " ".join(args[:2])) in VERBS and len(args) > 1:
            return name, self.get_command(ctx, name), args[2:]
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], [*VERBS, *EARLIER], n=1)
            hint = f"did you mean `virtune {EARLIER.get(close[0], close[0])}`?" if close else None
            hint = _ASKED_FOR.get(args[0]) or hint or "`virtune --help` lists the commands"
            raise VirtuneUsage(f"no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, verbs in GROUPS.items():
            each = {verb: ", ".join(name for name, _ in below(verb)) for verb in verbs.split()}
            rows = [(verb.ljust(8), VERBS[verb] + f" ({names})" * bool(names)) for verb, names in each.items()]
            with formatter.section(title):
                formatter.write_dl(rows)


class VirtuneUsage(click.UsageError):
    """A usage error with a hint of its own."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="virtune")
def cli() -> None:
    """The disk I/O of virtual machines: measured, explained and tuned."""


def main() -> None:
    """Run the command line and exit: 0 it ran, 1 failure, 2 usage, 3 precondition, 130 interrupted."""
    surroundings.prepare(debug=surroundings.debugging())
    if (why := surroundings.missing_memory()) is not None:
        sys.exit(surroundings.say(surroundings.Failure(why, None, PreconditionError.exit_code)))
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str], *, carried: object = None) -> int:
    """Run one command line and return its exit code; every error becomes one sentence on stderr.

    `carried` is told of the study that runs (`cli/common/progress.py`).
    """
    if arguments[:1] == ["help"]:  # as git and cargo have it
        arguments = [*arguments[1:], "--help"]
    try:
        result = cli.main(args=arguments, prog_name="virtune", standalone_mode=False, obj=carried)
        sys.stdout.flush()  # a disk that is full is to be said here, and not when the interpreter ends
        return result if isinstance(result, int) else 0
    except NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        failure = surroundings.failure_of(error)
        if (
            failure is not None
            and surroundings.debugging()
            and not isinstance(error, click.ClickException | KeyboardInterrupt)
        ):
            raise
        if surroundings.is_of_output(error):
            surroundings.let_go_of_output()
        return 0 if failure is None else surroundings.say(failure)
    finally:
        surroundings.say_removals()
