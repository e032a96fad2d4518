# SPDX-License-Identifier: Apache-2.0
"""`virtune probe`: the facts of this host, on one page or as JSON."""

import json
from pathlib import Path

import click

from virtune.cli.options import DEFAULT_SCRATCH, json_option
from virtune.cli.showing import put


@click.command("probe")
@click.option(
    "--scratch",
    type=click.Path(path_type=Path),
    default=DEFAULT_SCRATCH,
    show_default=True,
    help="Directory for scratch images: its filesystem and disks are looked at, nothing is left in it.",
)
@json_option
def command(scratch: Path, *, as_json: bool) -> None:
    """Show the facts of this host that decide about disk I/O, and what to beware of.

    Nothing is changed. io_uring, O_DIRECT and KVM are tried, as far as that leaves nothing behind; that /dev/kvm
    opens does not yet mean that a guest boots.

    \b
    virtune probe
    virtune probe --scratch /var/lib/libvirt/images
    virtune probe --json | jq .findings
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.probe import probe

    facts, remarks = probe(scratch)
    if as_json:
        from virtune.report.probe_json import probe_document

        click.echo(json.dumps(probe_document(facts, remarks), indent=2))
        return
    from virtune.report.probe import render

    put(render(facts, remarks))
