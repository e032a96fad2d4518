# SPDX-License-Identifier: Apache-2.0
"""`virtune tune`: the best configuration in a fraction of a grid's time."""

from typing import Any

import click

from virtune.cli.common.options import json_option, progress_options, report_option, store_option, study_options
from virtune.cli.common.result_output import MARKDOWN_HELP


@click.command(name="tune")
@study_options("tune")
@report_option
@click.option("--markdown", metavar="FILE|-", help=MARKDOWN_HELP)
@progress_options
@json_option
@store_option
def command(**asked: Any) -> None:
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
    from virtune.cli.common.run_search import tune_for

    tune_for(asked)
