# SPDX-License-Identifier: Apache-2.0
"""`virtune tune`: the best configuration in a fraction of a grid's time."""

from pathlib import Path
from typing import Any

import click

from virtune.cli.options import RigType, SecondsType, json_option, progress_options, store_option, target_options
from virtune.cli.thresholds import MARKDOWN_HELP


@click.command(name="tune")
@click.option("--rig", type=RigType("storage-daemon", "vhost-user", "qemu", with_where=False), default=None,
              help="What runs the disk stack. storage-daemon: QEMU's block layer without a guest; vhost-user: the "
                   "same, loaded through virtio queues; qemu: a test guest.  [default: storage-daemon]")  # fmt: skip
@click.option("--vary", multiple=True, metavar="KNOB[=A,B,...]",
              help="A knob to tune over these values, or over all its values that this host supports (a number "
                   "or a size needs values); repeat for combinations.  [default: what the rig can change "
                   "without a new image]")  # fmt: skip
@click.option("--fix", multiple=True, metavar="KNOB=VALUE", help="A setting of every configuration.")
@click.option("--baseline", metavar="KNOB=VALUE,...", default=None,
              help="Your current settings, besides the fixed ones: the winner is compared with them.")  # fmt: skip
@click.option("--durability", type=click.Choice(["every-write", "flush", "volatile"]), default=None,
              help="What a completed write must survive; configurations of another durability are listed, not "
                   "ranked.  [default: as the baseline]")  # fmt: skip
@click.option("--maximize", metavar="METRIC", default=None, help="The goal, such as iops.  [default: iops]")
@click.option("--minimize", metavar="METRIC", default=None, help="The goal, such as latency.p99.")
@click.option("--subject-to", multiple=True, metavar="LIMIT",
              help="A constraint: 'latency.p99<=1ms', 'cpu_per_io<=20us'; repeatable.")  # fmt: skip
@click.option("--mode", type=click.Choice(["quick", "certify"]), default="quick", show_default=True,
              help="quick: a tenth of a full grid's time. certify: until the winner is proved to be within the "
                   "margin of the best.")  # fmt: skip
@click.option("--budget", type=SecondsType(), default=None,
              help="Time limit for everything, soak included, instead of the mode's own. Refused where it "
                   "has no room for four blocks.")  # fmt: skip
@click.option("--confirm", type=click.IntRange(0, 100), default=6, show_default=True,
              help="Starts of winner and baseline in the final confirmation: new processes; with --rig qemu a "
                   "new disk in the guest.")  # fmt: skip
@click.option("--confirm-seconds", type=SecondsType(), default=5.0, help="Time of each of these.  [default: 5s]")
@click.option("--soak", type=SecondsType(), default=None,
              help="Finally load winner and baseline for this long each: short slices cannot show a drive's "
                   "cache filling up.")  # fmt: skip
@click.option("--spread", type=SecondsType(), default=None,
              help="Start blocks of the race at least this far apart, so that the result does not depend on one "
                   "state of the host.  [default: 30s with --mode certify and a twentieth of "
                   "--budget at most, else 0]")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME|FIO WORDS|FILE",
              help="A named workload, fio's own words, or a fio job file; of several the mean counts.  "
                   "[default: randread-4k]")  # fmt: skip
@click.option("--margin", type=click.FloatRange(0.001, 0.5), default=None,
              help="The smallest relevant difference; 0.03 is 3 %.  [default: 0.03]")  # fmt: skip
@click.option("--seconds", type=SecondsType(), default=None,
              help="Measured time of a slice.  [default: 1s and more, so that it holds 2,000 I/Os, or those that "
                   "a percentile needs]")  # fmt: skip
@click.option("--ramp", type=SecondsType(), default=None,
              help="Warm-up before each trial, not measured.  [default: 500ms]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=None,
              help="Seed of the random order and offsets.  [default: random; stored with the result]")  # fmt: skip
@target_options
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the full text report to this file."
)
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
    from virtune.cli.run_search import tune_for

    tune_for(asked)
