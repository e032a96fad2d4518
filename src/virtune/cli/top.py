# SPDX-License-Identifier: Apache-2.0
"""`virtune top`: the disks of this host's running VMs, sample after sample."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virtune.cli.options import SecondsType, json_option
from virtune.model.errors import PreconditionError, UsageError

if TYPE_CHECKING:
    from virtune.model.frame import TopFrame

INTERVAL_MIN = 0.2
"""The kernel counts CPU time in steps of 10 ms; with shorter intervals a share is mostly rounding."""


@click.command(name="top")
@click.option("--connect", "uri", metavar="URI", default=None, help="libvirt URI.  [default: virsh's]")
@click.option(
    "--qmp", "sockets", multiple=True, type=click.Path(path_type=Path), metavar="SOCKET",
    help="A QEMU started by hand, by its QMP socket; may be repeated. Without --connect no libvirt is asked.",
)  # fmt: skip
@click.option("--interval", type=SecondsType(), default=1.0, help="Time between two samples.  [default: 1s]")
@click.option("--once", is_flag=True, help="Print one interval as text, and end.")
@json_option
def command(*, uri: str | None, sockets: tuple[Path, ...], interval: float, once: bool, as_json: bool) -> None:
    """Watch the disks of the VMs that run on this host.

    A line for each disk: IOPS, MB/s, latency with a bar of its layers, QEMU's CPU time for each I/O, I/Os in flight,
    and what limits it. Nothing is added to a VM, and nothing changed.

    \b
    Examples:
      virtune top --once
      virtune top --once --json
      virtune top --qmp /run/vm1.qmp --qmp /run/vm2.qmp --interval 5s --once
    """  # noqa: D301 - click wants the escape itself
    if not interval >= INTERVAL_MIN:
        raise UsageError(f"--interval is at least {INTERVAL_MIN:g}s", hint="the kernel counts in steps of 10 ms")
    if as_json and not once:
        raise UsageError("--json needs --once", hint="`virtune top --once --json`")
    _print(_look(uri, sockets, interval), as_json=as_json)


def _look(uri: str | None, sockets: tuple[Path, ...], interval: float) -> "TopFrame":
    from virtune.analyse.layers.frame import frame
    from virtune.flows.top import watching
    from virtune.virsh import default_uri

    with watching(uri or (None if sockets else default_uri()), sockets) as watch:
        before = watch.sample()
        time.sleep(interval)
        found = frame(before, watch.sample())
    if found is None:
        raise PreconditionError("the host's counters did not move between two samples", hint="try again")
    return found


def _print(found: "TopFrame", *, as_json: bool) -> None:
    if as_json:
        from virtune.report.json.top import top_document

        click.echo(json.dumps(top_document(found), indent=2))
        return
    from virtune.cli.output import put
    from virtune.report.text.top import TopText

    put(TopText(found))
