# SPDX-License-Identifier: Apache-2.0
"""`virtune compare study`: the published studies that virtune repeats on this host."""

from typing import Any

import click

from virtune.cli.common import options
from virtune.cli.common.result_output import ResultOutput, threshold_options
from virtune.cli.common.verb import Verb

QUICK_TRIALS = 40
"""With `--quick` a study has so many trials, at most 10 rounds of them and at least one."""


@click.group(name="study")
def study() -> None:
    """Built-in studies: published comparisons of virtual disks that virtune repeats on this host.

    They are not the studies that `virtune show list` shows: those are your own measurements.
    """


@study.command(name="list")
def show() -> None:
    """List the built-in studies: question, arms, rigs."""
    from virtune.cli.common.output import put
    from virtune.flows.run.question import builtins
    from virtune.report.pages.builtin import listing

    put(listing([(one.name, one.plan.title or "", one.compared, one.rigs) for one in builtins()]))


@study.command(name="figures")
@click.argument("words", nargs=-1)
def figures(words: tuple[str, ...]) -> None:
    """List published figures to judge a result by, and the service levels that --fail-if knows; all of the WORDS must
    stand in a row.

    \b
    Examples:
      virtune compare study figures iothread
      virtune compare study figures qcow2
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.output import put
    from virtune.flows.reports.report import figures as known_figures
    from virtune.flows.reports.report import service_levels
    from virtune.model.errors import UsageError
    from virtune.report.pages.builtin import figures_list, levels_list

    def holds(row: object) -> bool:
        return all(word.lower() in str(row).lower() for word in words)

    levels = [one for one in service_levels() if holds(one)]
    found = [one for one in known_figures() if holds(one)]
    if not levels and not found:
        raise UsageError(
            f"no published figure has {' and '.join(words)!r}", hint="`virtune compare study figures` lists all"
        )
    if levels:
        put(levels_list(levels))
    if found:
        click.echo("" if levels else None, nl=bool(levels))
        put(figures_list(found))


@study.command(name="plan")
@click.argument("name")
@options.study_option("rig", "study")
def plan(name: str, rig: str | None) -> None:
    """Print the plan file of the built-in study NAME, to be edited and run by `virtune compare`.

    The copy stays that study: its table shows the result, the authors' figures stand beside what is still as in the
    study, and the rest is named.

    \b
    Example:
      virtune compare study plan nvme-scaling > plan.toml
      virtune compare plan.toml
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.flows.run.question import plan_text

    click.echo(plan_text(name, rig), nl=False)


@study.command(name="run", cls=Verb)
@click.argument("name")
@options.study_options("study")
@options.report_option
@threshold_options
@options.run_options
def run(name: str, **asked: Any) -> int:
    """Run the built-in study NAME; its own table shows this host's numbers.

    \b
    Examples:
      virtune compare study run io-engine --quick
      virtune compare study run datapath --rig vhost-user
      virtune compare study run nvme-scaling --at-load 25%,50%,75%,100%,125%
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.run_study import ask_for
    from virtune.flows.run.question import builtin
    from virtune.model.study_options import DEFAULT_SPAN

    out = ResultOutput.read(asked)
    study = builtin(name, asked["rig"], settings=asked["settings"], quick=asked["quick"])
    if asked["quick"]:
        asked["span"] = asked["span"] or DEFAULT_SPAN
        asked["rounds"] = asked["rounds"] or max(1, min(10, QUICK_TRIALS // study.cells))
    return ask_for(study.kind, asked, out, builtin=name)
