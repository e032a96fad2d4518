# SPDX-License-Identifier: Apache-2.0
"""`virtune compare`, `compare measure`, `study`, `resume`: disk stacks on this host, in rounds, also those of
published studies; or results that exist.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.common.result_output import ResultOutput, threshold_options
from virtune.cli.common.verb import Verb, verbs_and_files
from virtune.model.errors import ReadError, StorePlace, UsageError
from virtune.model.study_options import OPTIONS, flag_of, options_of, was_said

if TYPE_CHECKING:
    from virtune.model.evidence import StudyRecord


_EXISTING = ("baseline", "metric", "margin", "confidence", "fail_if", "scratch")
"""The options that also apply to existing results; a scratch directory does no harm."""


@click.command(name="compare", cls=Verb)
@click.argument("inputs", metavar="[PLAN.toml | BEFORE AFTER...]", nargs=-1, shell_complete=verbs_and_files)
@options.study_options("compare")
@options.report_option
@click.option("--different-jobs", is_flag=True,
              help="Compare results of different jobs (e.g. another iodepth) anyway, with a warning.")  # fmt: skip
@threshold_options
@options.run_options
def compare(**asked: Any) -> int:
    """Compare disk configurations on this host, or results that exist already.

    Runs all configurations in turn, many times, and compares within each turn. Ends when every pair and every
    --fail-if is decided (a verdict takes five rounds, with two arms six), or by --budget or --rounds.

    BEFORE and AFTER are fio results, folders of them, or studies (STUDY or STUDY:ARM); what a folder or a file holds
    of one job are repeats (FILE:NUMBER is one). Results from elsewhere need at least four runs each.

    \b
    Examples:
      virtune compare --vary disk.aio=threads,native,io_uring
      virtune compare --arm metal:rig=metal --arm aio:disk.aio=native --baseline metal
      virtune compare --vary disk.aio=native,io_uring --rig vhost-user
      virtune compare --vary disk.aio=threads,io_uring --rig libvirt:web1
      virtune compare plan.toml --report report.txt --fail-if 'latency.p99 > +5%'
      virtune compare before/ after/ --fail-if 'iops < -3%' --markdown comment.md --junit result.xml
      virtune compare monday.json tuesday.json
      virtune compare --vary disk.aio=native,io_uring --at-load 50%,70%,90%
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    out = ResultOutput.read(asked)
    inputs, different_jobs = asked.pop("inputs"), asked.pop("different_jobs")
    if len(inputs) > 1 or (inputs and not _is_plan(Path(inputs[0]))):
        return _existing(inputs, asked, out, different_jobs=different_jobs)
    if different_jobs:
        raise UsageError("--different-jobs is for results that exist already", hint="`virtune compare BEFORE AFTER`")
    from virtune.cli.common.run_study import ask_for
    from virtune.model.study import StudyKind

    plan = Path(inputs[0]) if inputs else None
    return ask_for(StudyKind.COMPARE, asked, out, plan=plan)


def _is_plan(path: Path) -> bool:
    """Whether the only argument is a plan file, and not a folder or a fio result.

    A FIFO can be read only once, so it is left to the plan reader.
    """
    if path.is_dir() or path.is_fifo():
        return path.is_fifo()
    from virtune.bounded import read_up_to
    from virtune.fio.results import LIMIT, read_runs, text_of

    try:
        read_runs(text_of(read_up_to(path, LIMIT)))
    except (OSError, ReadError):
        return True  # the plan reader reports what is wrong with it
    return False


def _existing(inputs: Sequence[str], asked: dict[str, Any], out: ResultOutput, *, different_jobs: bool) -> int:
    from virtune.analyse.study.summarise import summarise
    from virtune.cli.common.results import show_result
    from virtune.flows.stored.import_results import Terms, hold_against
    from virtune.model.metric import checked_metric

    if asked["dry_run"]:
        raise UsageError("--dry-run is for what is measured now", hint="results that exist are compared at once")
    for name in options_of("compare"):
        if name not in _EXISTING and was_said(asked.get(name)):
            raise UsageError(
                f"{flag_of(name)} is for what is measured now, and {inputs[0]} exists already",
                hint="`virtune compare BEFORE AFTER`, or a plan alone",
            )
    if len(inputs) == 1:
        hint = "`virtune compare BEFORE AFTER`; of two runs in one file `virtune compare FILE:1 FILE:2`"
        raise UsageError(f"{inputs[0]} alone has nothing to be compared with", hint=hint)

    def say(text: str) -> None:
        if not out.quiet:
            click.echo(text, err=True)

    terms = Terms(
        baseline=asked["baseline"],
        metric=checked_metric(asked["metric"] or "iops"),
        margin=asked["margin"] or OPTIONS["margin"].default,
        confidence=asked["confidence"] or OPTIONS["confidence"].default,
    )
    record = hold_against(inputs, asked["store"], terms, different_jobs=different_jobs, say=say)
    return show_result(summarise(record), record, out, brief=not out.verbose)


@click.command(name="measure", cls=Verb)
@options.study_options("measure")
@options.report_option
@threshold_options
@options.run_options
def measure(**asked: Any) -> int:
    """Measure one disk stack on this host.

    \b
    Examples:
      virtune compare measure --rig metal --workload four-corners
      virtune compare measure --set disk.aio=native --set disk.format=qcow2
      virtune compare measure --workload log-sync-16k --rounds 8 --fail-if 'sync.p99 > 10ms'
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.run_study import ask_for
    from virtune.model.study import StudyKind

    out = ResultOutput.read(asked)
    relative = next((one for one in out.conditions if one.value is None), None)
    if relative is not None:
        raise UsageError(
            f"`{relative.text}` is a change against a baseline, and one stack has none",
            hint="a limit with its unit, such as `latency.p99 > 2ms`; or `virtune compare`",
        )
    return ask_for(StudyKind.MEASURE, asked, out)


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


@click.command(name="resume")
@click.argument("study", default="last")
@options.study_options("resume")
@options.report_option
@options.progress_options
@options.json_option
@threshold_options
@options.store_option
def resume(study: str, *, store: StorePlace, **asked: Any) -> int:
    """Continue STUDY (an id, the beginning of one, or `last`): its finished trials are kept.

    The others run in the order of the original seed, until its conditions, or those of --fail-if, are decided.
    """
    from virtune.cli.common.run_study import going_on, searching
    from virtune.cli.show import require_no_more
    from virtune.cli.tune import sweeping
    from virtune.flows.run.preconditions import Leave
    from virtune.flows.run.study import resume_study
    from virtune.flows.run.sweep import resume_sweep
    from virtune.flows.run.tune import resume_tuning
    from virtune.flows.stored.show import by_todays_method

    out = ResultOutput.read({**asked})
    with options.stored(store, study, reading=False) as (kept, name):
        kept.require_own(name)
        record = by_todays_method(kept, name)
        if record.finished and not out.quiet:
            click.echo(f"{name} is over: it is shown, and nothing more is measured", err=True)
        known, leave = record.study, Leave(write_to=asked["allow_write_to"], in_use=asked["allow_in_use"])

        def now() -> "StudyRecord":  # another process may have gone on with it until this one took it over
            return by_todays_method(kept, name)

        if known.search is not None:
            require_no_more(known, asked)
            searching(kept, known, lambda say: resume_tuning(now(), store=kept, say=say, leave=leave), out)
            return 0
        if known.sweep is not None:
            require_no_more(known, asked)
            return sweeping(kept, known, lambda say: resume_sweep(now(), store=kept, say=say, leave=leave), out)
        return going_on(
            kept,
            known,
            lambda say: resume_study(now(), store=kept, say=say, leave=leave, conditions=out.conditions),
            replace(out, conditions=out.conditions or known.conditions),
        )
