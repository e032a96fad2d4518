# SPDX-License-Identifier: Apache-2.0
"""`virtune sweep`: one stack under more and more load."""

import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.options import (
    RigType,
    connect_option,
    json_option,
    progress_options,
    store_option,
    target_options,
    timing_options,
)
from virtune.model.study import Study

if TYPE_CHECKING:
    from virtune.model.event import Event
    from virtune.store.sqlite import Store

ROUNDS = 3


@click.command(name="sweep")
@click.option("--rig", type=RigType("storage-daemon", "vhost-user", "qemu", "metal"), default=None,
              help="What runs the disk stack, as in `virtune measure`.  [default: storage-daemon]")  # fmt: skip
@connect_option
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A setting of the stack.")
@click.option("--workload", "workloads", multiple=True, metavar="NAME|FIO WORDS",
              help="A named workload or fio's own words; one job, offered at a rate.  "
                   "[default: randread-4k]")  # fmt: skip
@click.option("--subject-to", metavar="LIMIT", default=None,
              help="Find the greatest load at which this holds, such as 'latency.p99<=1ms' or "
                   "'write.latency.p99<=5ms'.")  # fmt: skip
@click.option("--loads", multiple=True, metavar="20%,5000iops,...",
              help="Offer exactly these loads: shares of what the workload does unlimited, or rates.  "
                   "[default: chosen by what the curve shows]")  # fmt: skip
@timing_options(rounds=f"{ROUNDS} of each load", seconds=2)
@target_options
@progress_options
@json_option
@store_option
def command(**asked: Any) -> int:
    """Offer one disk stack more and more load, up to its saturation.

    Begins with the workload as it is (a closed loop), then offers shares of what that did, whatever comes back, and
    puts further loads around what is looked for: the knee, or with --subject-to the greatest load that keeps a limit.
    Shows achieved against offered load, latency, CPU and how busy the device was at each.

    \b
    Examples:
      virtune sweep --rig vhost-user
      virtune sweep --rig vhost-user --subject-to 'latency.p99<=1ms'
      virtune sweep --rig metal --workload randwrite-4k --loads 25%,50%,75%,100%,125%
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.run_study import StudyRequest
    from virtune.flows.sweep import run_sweep, sweep_for
    from virtune.store.sqlite import Store

    rounds = asked["rounds"] or ROUNDS
    subject_to, loads = asked.pop("subject_to"), asked.pop("loads")
    asked |= {"rounds": rounds, "seconds": asked["seconds"] or 2.0, "report": None}
    request = StudyRequest.read("measure", asked)
    study, facts = sweep_for(request.question, subject_to=subject_to, loads=loads, rounds=rounds)
    with Store(request.store) as store:
        return going_on(
            store,
            study,
            lambda say: run_sweep(study, store=store, say=say, leave=request.leave, facts=facts),
            as_json=request.as_json,
            quiet=request.quiet,
            verbose=request.verbose,
        )


def going_on(
    store: "Store",
    study: Study,
    work: Callable[[Callable[["Event"], None]], object],
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    report: Path | None = None,
) -> int:
    """Run the loads under a face, then show the curve; when interrupted, what there is of it."""
    from virtune.cli.progress import Face
    from virtune.cli.run_study import interrupt
    from virtune.model.errors import Interrupted, LoadError, NotInForceError, StoreError

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with Face(quiet=quiet, verbose=verbose) as face:
            work(face)
    except (Interrupted, LoadError, NotInForceError):
        with contextlib.suppress(StoreError):  # it ended before it was kept: then there is nothing of it to show
            show_sweep(store, study.id, as_json=as_json, report=report)
        raise
    return show_sweep(store, study.id, as_json=as_json, report=report)


def show_sweep(store: "Store", study_id: str, *, as_json: bool, report: Path | None = None) -> int:
    """Write what a sweep says to stdout, and to a file where one was named."""
    from virtune.cli.output import put, write_plain
    from virtune.flows.show import current
    from virtune.flows.sweep import finished_sweep

    known = finished_sweep(store, study_id)
    record, result = current(store, study_id)
    if as_json:
        from virtune.report.json.sweep import sweep_document

        click.echo(json.dumps(sweep_document(known, result, facts=record.facts), indent=2))
        return 0
    from virtune.report.text.sweep import render

    put(render(known, result, record.facts))
    if report is not None:
        write_plain(report, render(known, result, record.facts))
    return 0
