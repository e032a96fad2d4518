# SPDX-License-Identifier: Apache-2.0
"""`virtune compare`, `compare measure`, `resume`: disk stacks on this host, in rounds; or results that exist."""

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
    from virtune.cli.common.output import show_result
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
