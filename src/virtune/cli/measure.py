# SPDX-License-Identifier: Apache-2.0
"""`virtune measure`: one disk stack on this host."""

from typing import Any

import click

from virtune.cli.options import (
    RigType,
    connect_option,
    json_option,
    progress_options,
    report_option,
    store_option,
    target_options,
    timing_options,
)
from virtune.cli.thresholds import Thresholds, threshold_options
from virtune.model.errors import UsageError


@click.command(name="measure")
@click.option("--rig", type=RigType("storage-daemon", "vhost-user", "qemu", "metal"), default=None,
              help="What runs the disk stack. storage-daemon: QEMU's block layer without a guest; vhost-user: the "
                   "same, loaded through virtio queues; qemu: a test guest; libvirt:DOMAIN: your running VM; "
                   "metal: no QEMU.  "
                   "[default: storage-daemon]")  # fmt: skip
@connect_option
@click.option("--set", "settings", multiple=True, metavar="KNOB=VALUE", help="A setting of the stack.")
@click.option("--workload", "workloads", multiple=True, metavar="NAME|FIO WORDS|FILE",
              help="A named workload, fio's own words (`rw=randread,bs=4k,iodepth=32`), or a fio job file.  "
                   "[default: randread-4k]")  # fmt: skip
@timing_options(rounds=3, seconds=4)
@target_options
@report_option
@threshold_options
@progress_options
@json_option
@store_option
def command(**asked: Any) -> int:
    """Measure one disk stack on this host.

    \b
    Examples:
      virtune measure --rig metal --workload four-corners
      virtune measure --set disk.aio=native --set disk.format=qcow2
      virtune measure --workload log-sync-16k --rounds 8 --fail-if 'sync.p99 > 10ms'
    """  # noqa: D301 - click's own mark for lines that are not to be rewrapped
    from virtune.cli.run_study import StudyRequest, ask_for

    thresholds = Thresholds.read(asked)
    relative = next((one for one in thresholds.conditions if one.value is None), None)
    if relative is not None:
        raise UsageError(
            f"`{relative.text}` is a change against a baseline, and one stack has none",
            hint="a limit with its unit, such as `latency.p99 > 2ms`; or `virtune compare`",
        )
    return ask_for(StudyRequest.read("measure", asked, thresholds=thresholds))
