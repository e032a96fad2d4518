# SPDX-License-Identifier: Apache-2.0
"""`virtune tune` and `virtune sweep`: the best configuration of a disk, and one stack under more and more load."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common import options
from virtune.cli.common.result_output import MARKDOWN_HELP
from virtune.cli.common.verb import Verb

if TYPE_CHECKING:
    from virtune.cli.common.result_output import ResultOutput
    from virtune.model.event import Say
    from virtune.model.result import LoadSweep
    from virtune.model.study import Study
    from virtune.store.store import Store


@click.command(name="tune", cls=Verb)
@options.study_options("tune")
@options.report_option
@click.option("--markdown", metavar="FILE|-", help=MARKDOWN_HELP)
@options.run_options
def tune(**asked: Any) -> None:
    """Find the best configuration of a disk in a fraction of a grid's time.

    Races configurations in random blocks of short slices, drops those that cannot be the best, and holds the winner
    against the baseline on fresh data, started anew. Says at most how far below the best the winner is, whenever it
    stops. Configurations that promise different durability are never ranked together. Of more than a hundred not all
    race: Optuna proposes 64 of them, by what the others did.

    \b
    Examples:
      virtune tune --rig vhost-user --workload randread-4k
      virtune tune --vary disk.aio --vary disk.format --subject-to 'latency.p99<=1ms'
      virtune tune --minimize latency.p99 --mode certify --budget 10m
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.run_study import tune_for

    tune_for(asked)


@click.command(name="sweep", cls=Verb)
@options.study_options("sweep")
@options.study_option("fail_if", "sweep")
@options.report_option
@options.run_options
def sweep(**asked: Any) -> int:
    """Offer one disk stack more and more load, up to its saturation.

    Begins with the workload as it is (a closed loop), then offers shares of what that did, whatever comes back, and
    puts further loads around what is looked for: the knee, or with --subject-to the greatest load that keeps a limit.
    With --fail-if 'iops < 20k' exit 0 means that this load is shown to be carried, or to keep the limit.
    Shows achieved against offered load, latency, CPU and how busy the device was at each.

    \b
    Examples:
      virtune sweep --rig vhost-user
      virtune sweep --rig vhost-user --subject-to 'latency.p99<=1ms' --fail-if 'iops < 20k'
      virtune sweep --rig metal --workload randwrite-4k --loads 25%,50%,75%,100%,125%
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.common.result_output import ResultOutput
    from virtune.cli.common.run_study import show_plan, when_quiet, with_its_load
    from virtune.flows.run.preconditions import Leave
    from virtune.flows.run.question import Question
    from virtune.flows.run.sweep import run_sweep, sweep_for
    from virtune.model.study import StudyKind
    from virtune.store.store import Store

    out = ResultOutput.read(asked)
    question = Question.of(options.read_options("sweep", asked), StudyKind.SWEEP, conditions=out.conditions)
    study, facts = sweep_for(with_its_load(question, question.like, sweep_for))
    leave = Leave(write_to=question.allow_write_to, in_use=question.allow_in_use)
    if asked["dry_run"]:
        return show_plan(study, leave, "until the curve shows what was asked for")
    facts = when_quiet(study, facts, out.wait_quiet, quiet=out.quiet)
    if out.verbose:
        options.say_options(study)
    with Store(asked["store"]) as store:
        return sweeping(
            store, study, lambda say: run_sweep(study, store=store, say=say, leave=leave, facts=facts), out
        )


def sweeping(store: "Store", study: "Study", work: "Callable[[Say], LoadSweep]", out: "ResultOutput") -> int:
    """Run the loads with a progress display, then show the curve; when interrupted, the curve so far."""
    from virtune.cli.common.progress import Face, under_face
    from virtune.cli.common.results import show_sweep
    from virtune.flows.run.sweep import finished_sweep

    return under_face(
        Face(quiet=out.quiet, verbose=out.verbose),
        work,
        lambda: finished_sweep(store, study.id),
        lambda known: show_sweep(store, known, out, brief=not out.verbose),
        store=store,
        study=study,
    )
