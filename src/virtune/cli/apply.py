# SPDX-License-Identifier: Apache-2.0
"""`virtune apply`: change the disks of a VM, with a way back."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from virtune.cli.wishing import advice_lines, journal_option, wish_of, wish_options
from virtune.model.errors import UsageError


@click.command("apply")
@click.argument("domains", metavar="DOMAIN...", nargs=-1, required=True)
@click.option("--connect", metavar="URI", required=True, help="The libvirt that has the domains (qemu:///system).")
@wish_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@journal_option
def command(
    domains: tuple[str, ...],
    *,
    connect: str,
    template: str | None,
    rules: tuple[str, ...],
    turns: tuple[str, ...],
    yes: bool,
    journal: Path,
) -> None:
    """Change the configuration of VMs as `virtune advise` shows it, with a way back.

    What is changed is shown first and asked for. It is written into a journal before it is made, libvirt's answer is
    compared with what it was given, and on any failure the domain is put back; `virtune undo` does so later. Pins,
    polling and limits reach a running VM at once, all else when it is powered off and on: virtune never stops a VM.

    \b
    virtune apply web1 --connect qemu:///system
    virtune apply web1 --connect qemu:///system --template flash
    virtune apply web1 --connect qemu:///system --set disk.cache@vda=none --yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.apply.journal import Journal
    from virtune.apply.libvirt import LibvirtDomain
    from virtune.flows.advice import advise
    from virtune.flows.apply import apply
    from virtune.flows.domains import surroundings
    from virtune.probe.virsh import Virsh

    wish = wish_of(template, rules, turns)
    if not yes and not sys.stdin.isatty():
        raise UsageError("there is nobody to ask", hint="add --yes; `virtune advise` shows what would be changed")
    virsh = Virsh(connect, write=True)
    for name in domains:
        uuid = virsh.uuid(name)
        domain = LibvirtDomain(virsh, uuid)
        domain.require_persistent(name)
        found = surroundings(virsh, domain.dump())
        advice = advise(found, wish)
        click.echo("\n".join(advice_lines(found.subject.domain.name, advice)))
        if not advice.turns or not (yes or click.confirm(f"Change {found.subject.domain.name}?")):
            continue
        done = apply(virsh, uuid, advice, found.text, journal=Journal(journal), when=datetime.now(UTC))
        click.echo(f"changed; `virtune undo {done.entry}` puts it back")
        if domain.is_saved():
            click.echo(
                "it was saved (managedsave): its next start resumes it with its old disks; the one after is new"
            )
        if done.running and done.later:
            click.echo(f"it runs: {len(done.now)} in force now, {len(done.later)} after it is powered off and on")
