# SPDX-License-Identifier: Apache-2.0
"""`virtune check`: is this host fit to measure?"""

import signal
from pathlib import Path
from typing import Any

import click

from virtune.cli.options import RigType, SecondsType, json_option, store_option, target_options

BREACHED = 4
"""The exit code when a limit was asked for and is not kept."""


@click.command(name="check")
@click.option("--seconds", type=SecondsType(), default=60.0, help="About how long.  [default: 60s]")
@click.option("--rig", type=RigType("storage-daemon", "vhost-user", "metal", with_where=False), default=None,
              help="What runs the disk stack.  [default: metal]")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A setting of the stack.")
@click.option("--workload", default=None, metavar="NAME|FIO WORDS|FILE", help="One workload.  [default: randread-4k]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=None,
              help="Seed of the random order and offsets.  [default: random; stored with the result]")  # fmt: skip
@click.option("--fail-if-noisier", type=click.FloatRange(0.001, 10), default=None, metavar="SHARE",
              help="Exit 4 if a 5-minute comparison could not detect a difference of this size (0.03 is 3"
                   " %).")  # fmt: skip
@target_options
@click.option("--quiet", "-q", is_flag=True, help="Print the result only: no progress and no notes.")
@json_option
@store_option
def command(
    *,
    fail_if_noisier: float | None,
    allow_write_to: str | None,
    allow_in_use: bool,
    quiet: bool,
    as_json: bool,
    store: Path,
    **asked: Any,
) -> int:
    """Say whether this host is fit to measure: one stack against itself, for about a minute.

    Says how noisy the host is and for how long it remembers, whether it drifts, the smallest difference that a
    comparison could find here in 1, 5 and 15 minutes, how long a trial should take, which gates are near their
    limits, who else works here, and what to do about it. The trials are kept like those of any study.

    \b
    Examples:
      virtune check
      virtune check --seconds 3m --rig storage-daemon --set disk.aio=native
      virtune check --json --fail-if-noisier 0.03
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.output import show_check
    from virtune.cli.progress import Face
    from virtune.cli.run_study import interrupt
    from virtune.flows.check import check_study, fitness, run_check
    from virtune.flows.preconditions import Leave
    from virtune.store.sqlite import Store

    study, facts = check_study(**asked)
    signal.signal(signal.SIGTERM, interrupt)
    with Store(store) as kept:
        with Face(quiet=quiet) as face:
            leave = Leave(write_to=allow_write_to, in_use=allow_in_use)
            around = run_check(study, store=kept, say=face, leave=leave, facts=facts)
        record = kept.get(study.id)
    show_check(record, as_json=as_json, around=around)
    smallest = fitness(record).reach(5)
    return BREACHED if fail_if_noisier is not None and (smallest is None or smallest > fail_if_noisier) else 0
