# SPDX-License-Identifier: Apache-2.0
"""`virtune compare`: disk stacks on this host, in interleaved rounds."""

from pathlib import Path
from typing import Any

import click

from virtune.cli.options import json_option, store_option, target_options, timing_options
from virtune.model.study import CONFIDENCE_BELOW, CONFIDENCE_MIN, MARGIN_MAX, MARGIN_MIN


@click.command(name="compare")
@click.argument("plan", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--rig", type=click.Choice(["storage-daemon", "vhost-user", "metal"]), default=None,
              help="What brings the stacks up; vhost-user is a storage daemon that is loaded as a guest's virtio "
                   "queues load it.  [default: storage-daemon]")  # fmt: skip
@click.option(
    "--vary", multiple=True, metavar="KNOB=A,B,...", help="One arm for each value; repeat for combinations."
)
@click.option(
    "--arm", "arms", multiple=True, metavar="NAME:KNOB=VALUE,...", help="One arm; `rig=metal` is a setting too."
)
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A setting of every arm.")
@click.option("--workload", "workloads", multiple=True, metavar="NAME|FIO WORDS|FILE",
              help="A named workload, fio's own words (`rw=randread,bs=4k,iodepth=32`), or a fio job file.  "
                   "[default: randread-4k]")  # fmt: skip
@click.option("--baseline", metavar="ARM", help="The arm that the others are held against.  [default: the first]")
@click.option(
    "--metric", default=None, help="The metric of the verdicts, such as iops or latency.p99.  [default: iops]"
)
@click.option("--margin", type=click.FloatRange(MARGIN_MIN, MARGIN_MAX), default=None,
              help="The smallest difference worth knowing, as a share.  [default: 0.03]")  # fmt: skip
@click.option("--confidence", type=click.FloatRange(CONFIDENCE_MIN, CONFIDENCE_BELOW, max_open=True), default=None,
              help="Of all verdicts together.  [default: 0.99]")  # fmt: skip
@click.option("--quick", is_flag=True, help="6 rounds of 1 s: enough to see large differences.")
@timing_options(rounds=8, seconds=4)
@target_options
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the plain report to this file."
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@json_option
@store_option
def command(**asked: Any) -> None:
    """Compare disk stacks on this host.

    Every round brings each arm up once, in random order, and loads it with fio; what counts are the differences
    within rounds. Ends in a table, and for every pair of arms: better, worse, same or undecided.

    \b
    Examples:
      virtune compare --vary disk.aio=threads,native,io_uring
      virtune compare --arm metal:rig=metal --arm aio:disk.aio=native --baseline metal
      virtune compare --vary disk.aio=native,io_uring --rig vhost-user
      virtune compare plan.toml --report report.txt
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.asking import Asked, ask_for

    ask_for(Asked.read("compare", asked))
