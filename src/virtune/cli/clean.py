# SPDX-License-Identifier: Apache-2.0
"""`virtune clean`: remove the remains of an earlier run."""

from pathlib import Path

import click

from virtune.cli.common.options import scratch_option


@click.command(name="clean")
@scratch_option("The scratch directory.")
@click.option("--images", is_flag=True, help="Remove complete scratch images too, not only partial ones.")
def command(scratch: Path, images: bool) -> int:  # noqa: FBT001
    """Remove what a killed run left: processes, mounts, sockets, half-made images, disks in domains,
    images in Ceph, drives handed to guests.

    Nothing that virtune did not make is touched, and nothing of a run that still lives. What has the name of
    something of virtune's without a record that virtune made it is named, and left.
    """
    from virtune.flows.clean import clean

    removed, kept, strange = clean(scratch, images=images)
    for line in removed:
        click.echo(f"removed {line}")
    for line in kept:
        click.echo(f"kept: {line}", err=True)
    for line in strange:
        click.echo(f"left alone: {line}", err=True)
    if not removed and not kept:
        click.echo("nothing was left behind")
    return 1 if kept else 0
