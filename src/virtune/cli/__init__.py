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
from virtune.model.errors import PreconditionError

VERBS: dict[str, str] = {
    "probe": "Show this host's facts: kernel, QEMU, fio, CPU, block devices",
    "knobs": "List the settings of the I/O path: values, cost of a change, risk",
    "check": "Check the measurement noise of this host (A/A test)",
    "measure": "Measure one disk stack on this host",
    "compare": "Compare disk stacks on this host, in interleaved rounds",
    "study": "Run a built-in study: a published comparison, repeated on this host",
    "sweep": "Offer one disk stack more and more load: saturation, knee, most IOPS at a latency limit",
    "tune": "Search for the best configuration, much faster than a full grid",
    "resume": "Continue an interrupted study",
    "audit": "Audit VM disk configuration for performance and data-safety problems",
    "advise": "Show changes that fix a VM's disks or bring them to a template",
    "fix": "Find a better configuration of a VM's disk, prove it, and apply it, step by step",
    "apply": "Apply changes to a libvirt VM (journaled, reversible)",
    "undo": "Undo an apply: restore the VM's previous configuration",
    "list": "List the stored studies: your measurements",
    "show": "Show a stored study: table, verdicts, report or JSON",
    "report": "Write a study as one HTML file with pictures",
    "derive": "Derive the figures of all stored studies again, by today's method",
    "export": "Export measurements as CSV, a study as a bundle, figures for Prometheus",
    "serve": "Show the stored studies as a read-only local page",
    "import": "Import existing fio results as a study",
    "top": "Watch the disks of the running VMs: IOPS, latency by layer, CPU, what limits them",
    "diagnose": "Say what limits a disk: layers of a request, threads, bottleneck",
    "explain": "Explain a fio result (JSON, JSON+ or text)",
    "fleet": "Many hosts over SSH: install, audit, run studies, what they say together, apply",
    "appliance": "Build, list and remove the test guest of `--rig qemu`",
    "clean": "Remove leftovers of a killed run: processes, mounts, scratch files",
}
"""Every verb with its one line of help."""

GROUPS = {
    "A VM's disks": "audit diagnose top fix advise apply undo",
    "Measure": "compare tune sweep measure study resume",
    "Results": "show report list explain import export serve derive",
    "Hosts": "probe check knobs fleet appliance clean",
}
"""The verbs as `--help` lists them, those that people need first before the others."""

MODULES = {
    **dict.fromkeys(("probe", "knobs", "check", "clean", "appliance"), "host"),
    **dict.fromkeys(("measure", "compare", "resume"), "compare"),
    **dict.fromkeys(("tune", "sweep"), "tune"),
    **dict.fromkeys(("audit", "advise", "apply", "undo"), "domains"),
    **dict.fromkeys(("list", "show", "derive"), "show"),
    "import": "import_",
}
"""The module of a verb, where it is not `virtune.cli.<verb>`. It has the verb under its own name; Python's own words
(`import`) and names (`list`) have an underscore behind them there."""


_ASKED_FOR = {
    "version": "`virtune --version`",
    "help": "`virtune --help`, or `virtune COMMAND --help`",
    "workloads": "`--workload` takes fio's words, a job file or a name; docs/reference/workloads.md lists them",
    "metrics": "`--metric` takes a name such as iops or latency.p99; docs/reference/metrics.md lists all",
    "report": "`virtune show --report FILE`, `--markdown FILE`",
}
"""What people type that is no command, and what they want."""


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called or its own help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        taken = keyword.iskeyword(cmd_name) or cmd_name in vars(builtins)
        module = importlib.import_module(f"virtune.cli.{MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, f"{cmd_name}{'_' * taken}")
        assert isinstance(command, click.Command)  # noqa: S101 - a verb without a command is our own mistake
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"did you mean `virtune {close[0]}`?" if close else "`virtune --help` lists the commands"
            hint = _ASKED_FOR.get(args[0], hint)
            raise VirtuneUsage(f"no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), VERBS[verb]) for verb in verbs.split()])


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
