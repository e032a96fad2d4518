# SPDX-License-Identifier: Apache-2.0
"""`virtune tune`: the best configuration in a fraction of a grid's time."""

from typing import Any

import click

from virtune.cli.options import SecondsType, json_option, store_option, target_options


@click.command(name="tune")
@click.option("--rig", type=click.Choice(["storage-daemon", "vhost-user", "qemu"]), default=None,
              help="What brings the stacks up; vhost-user is a storage daemon that is loaded as a guest's virtio "
                   "queues load it, qemu a guest.  [default: storage-daemon]")  # fmt: skip
@click.option("--vary", multiple=True, metavar="KNOB[=A,B,...]",
              help="A knob to be chosen, from these values, or without values from all of its list that this host "
                   "has (a number or a size needs values); repeat for combinations.  [default: what the rig can "
                   "change without a new image]")  # fmt: skip
@click.option("--fix", multiple=True, metavar="KNOB=VALUE", help="A setting of every configuration.")
@click.option("--baseline", metavar="KNOB=VALUE,...", default=None,
              help="What you have now, beside what is fixed: the winner is held against it.")  # fmt: skip
@click.option("--durability", type=click.Choice(["every-write", "flush", "volatile"]), default=None,
              help="What a write must survive; what promises anything else is listed apart and never ranked.  "
                   "[default: as the baseline]")  # fmt: skip
@click.option("--maximize", metavar="METRIC", default=None, help="The goal, such as iops.  [default: iops]")
@click.option("--minimize", metavar="METRIC", default=None, help="The goal, such as latency.p99.")
@click.option("--subject-to", multiple=True, metavar="LIMIT",
              help="What must be kept: 'latency.p99<=1ms', 'cpu_per_io<=20us'; may be given again.")  # fmt: skip
@click.option("--mode", type=click.Choice(["quick", "certify"]), default="quick", show_default=True,
              help="quick: a tenth of the classic grid's time, contenders first. certify: until the winner is within "
                   "the margin of the best for certain.")  # fmt: skip
@click.option("--budget", type=SecondsType(), default=None,
              help="Time for all of it, soak included, instead of the mode's own. Four blocks are run whatever it "
                   "is.")  # fmt: skip
@click.option("--confirm", type=click.IntRange(0, 100), default=6, show_default=True,
              help="Starts of winner and baseline on fresh data in the end: new processes, and with --rig qemu a "
                   "disk that is made anew in the guest.")  # fmt: skip
@click.option("--confirm-seconds", type=SecondsType(), default=5.0, help="Time of each of these.  [default: 5s]")
@click.option("--soak", type=SecondsType(), default=None,
              help="Write this long with the winner and with the baseline in the end: short slices cannot see a "
                   "cache of the drive that fills up.")  # fmt: skip
@click.option("--spread", type=SecondsType(), default=None,
              help="Begin blocks of the race at least this far apart: the same slices, but a host that warms up or "
                   "shifts is seen in more than one mood.  [default: 30s with --mode certify and a twentieth of "
                   "--budget at most, else 0]")  # fmt: skip
@click.option("--workload", "workloads", multiple=True, metavar="NAME|FIO WORDS|FILE",
              help="A named workload, fio's own words, or a fio job file; of several the mean counts.  "
                   "[default: randread-4k]")  # fmt: skip
@click.option("--margin", type=click.FloatRange(0.001, 0.5), default=None,
              help="A difference that is not worth more measuring, as a share.  [default: 0.03]")  # fmt: skip
@click.option("--seconds", type=SecondsType(), default=None,
              help="Measured time of a slice.  [default: 1s and more, so that it holds 2,000 I/Os, or those that "
                   "a percentile needs]")  # fmt: skip
@click.option("--ramp", type=SecondsType(), default=None,
              help="Time before it that is thrown away.  [default: 500ms]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=None,
              help="Seed of the random order and offsets.  [default: drawn, and recorded]")  # fmt: skip
@target_options
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
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
