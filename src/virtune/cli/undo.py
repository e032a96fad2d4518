# SPDX-License-Identifier: Apache-2.0
"""`virtune undo`: put a VM's configuration back as it was before `virtune apply`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from virtune.cli.common.change_options import journal_option
from virtune.cli.common.failures import Failure, say
from virtune.model.errors import VirtuneError
from virtune.model.text import printable

if TYPE_CHECKING:
    from virtune.apply.journal import Entry, Journal
    from virtune.flows.domains.apply import Back


@click.command("undo")
@click.argument("change", metavar="[CHANGE|DOMAIN|last]", required=False)
@click.option("--list", "listed", is_flag=True, help="List the changes in the journal.")
@click.option(
    "--show", is_flag=True, help="Show how the domain differs from what virtune made of it; change nothing."
)
@click.option("--anyway", is_flag=True, help="Undo even if the VM was changed by others since.")
@click.option("--restart", is_flag=True, help="Power the VM off and on again too, if `apply --restart` did.")
@click.option(
    "--replug", is_flag=True, help="Replug disks of the running VM back too, if `apply --replug` replugged them."
)
@click.option(
    "--force-off", is_flag=True, help="Power off a guest that does not shut down in time, without asking it again."
)
@click.option("--connect", metavar="URI", default=None, help="libvirt URI to use instead of the journal's.")
@journal_option
def command(
    change: str | None,
    *,
    listed: bool,
    show: bool,
    anyway: bool,
    restart: bool,
    replug: bool,
    force_off: bool,
    connect: str | None,
    journal: Path,
) -> int:
    """Put a VM's configuration back, byte for byte, as it was before `virtune apply`.

    Also after virtune was killed half-way. A domain that somebody else has changed since is left alone, unless
    --anyway says otherwise. With nothing named, every change that was cut short is undone, or else the last one.
    One that cannot be read or undone is named, and the others are undone all the same.
    A restart that was cut short is taken back too: the VM is started as it was.

    \b
    virtune undo
    virtune undo last
    virtune undo 20261122-015500-1f2e
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.apply.journal import Journal
    from virtune.flows.domains.apply import Back

    kept = Journal(journal)
    damaged = () if change else kept.damaged()
    for why in damaged:
        click.echo(f"damaged: {why}", err=True)
    code = 1 if damaged else 0
    if listed:
        for entry in kept.entries():
            turns = ", ".join(f"{t.knob}{'@' if t.at else ''}{t.at}={t.value or ''}" for t in entry.turns)
            click.echo(printable(f"{entry.id}  {entry.domain}  {entry.steps[-1].value}  {turns}"))
        return code
    cut_short = tuple(entry for entry in kept.entries() if entry.open)
    entries = (kept.find(change or "last"),) if change or show or not cut_short else cut_short
    back = None if show else Back(force_off=force_off, restart=restart, replug=replug)
    for entry in reversed(entries):
        try:
            click.echo(_undone(entry, kept, connect or entry.uri, back, anyway=anyway))
        except VirtuneError as error:
            if len(entries) == 1:
                raise
            code = say(Failure(f"{entry.id} of {entry.domain}: {error.message}", error.hint, error.exit_code))
    return code


def _undone(entry: "Entry", kept: "Journal", uri: str, back: "Back | None", *, anyway: bool) -> str:
    """Undo one change and say what was done; without `back`, say how the domain differs from what was made of it."""
    from virtune.apply.libvirt import LibvirtDomain
    from virtune.flows.domains.apply import changed_since, undo
    from virtune.virsh import Virsh

    virsh = Virsh(uri, write=True)
    if back is not None:
        return undo(virsh, entry, journal=kept, anyway=anyway, back=back)
    current = LibvirtDomain(virsh, entry.uuid).configuration()
    return changed_since(entry, current) or f"{entry.domain}: unchanged since"
