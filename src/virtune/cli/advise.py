# SPDX-License-Identifier: Apache-2.0
"""`virtune advise`: the changes that fix a VM's disks, or apply a template, as a diff."""

import json
from pathlib import Path

import click

from virtune.advise.audit import not_audited
from virtune.cli.common.change_options import advice_lines, wish_of, wish_options
from virtune.cli.common.options import json_option, store_option
from virtune.flows.domains.advise import Advice, advise_all
from virtune.flows.domains.domains import FoundDomain, everywhere
from virtune.model.errors import StorePlace, UsageError
from virtune.model.finding import Unread
from virtune.model.text import printable
from virtune.report.json.audit import AdvisedDomain, advice_document, advised_domain


@click.command("advise")
@click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--connect", metavar="URI", default=None, help="libvirt URI: advise on its domains.")
@click.option("--domain", "domains", metavar="NAME", multiple=True, help="Only this domain; repeatable.")
@click.option(
    "--here", is_flag=True, help="The files' domains run on this host: look at its kernel, QEMU and images."
)
@click.option(
    "--for-requirements",
    "needs",
    metavar="ANSWERS",
    default=None,
    help="Which structure of VMs and drives fits: scale-out=yes|no,own=yes|no,virtio=yes|no.",
)
@wish_options
@store_option
@json_option
def command(
    paths: tuple[Path, ...],
    *,
    connect: str | None,
    domains: tuple[str, ...],
    here: bool,
    needs: str | None,
    template: str | None,
    rules: tuple[str, ...],
    turns: tuple[str, ...],
    store: StorePlace,
    as_json: bool,
) -> int:
    """Show the changes that would fix the disks of VMs, as a diff. Nothing is changed.

    Without --template, --rule and --set these are the fixes for the errors and warnings of `virtune audit`. Each
    change has what it takes on a running VM and what it risks. The template `flash` is a published configuration for
    disks on flash; `virtune compare` tells whether it is faster on your host.

    --for-requirements shows a structure's share of bare metal's IOPS as published, and as this host's own studies
    measured it: those in the store with an arm of that structure and one of `rig=metal`. It shows every structure
    that the answers leave open.

    \b
    virtune advise vm.xml
    virtune advise --template flash --connect qemu:///system
    virtune advise --set disk.cache@vda=none vm.xml
    virtune advise --set disk.cache@scsi0=none /etc/pve/qemu-server/101.conf
    virtune advise --for-requirements scale-out=no,own=no,virtio=yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    if needs is not None:
        _structure(needs, store, alone=not (paths or connect or as_json))
        return 0
    if domains and not connect:
        raise UsageError("--domain names a libvirt domain", hint="add --connect qemu:///system")
    if not paths and not connect:
        raise UsageError("nothing to advise on", hint="name files of domain XML, or --connect qemu:///system")
    wish = wish_of(template, rules, turns)
    read = list(everywhere(paths, connect, domains, here=here))
    known = list(advise_all([one for one in read if isinstance(one, FoundDomain)], wish))
    for one in (unread := [one for one in read if isinstance(one, Unread)]):
        click.echo(f"not read: {one.origin}: {one.because}", err=True)
    for found, _ in known:
        if because := not_audited(found.subject.domain):
            click.echo(printable(f"{found.subject.domain.name}: not audited: {because}"), err=True)
    if as_json:
        click.echo(json.dumps(advice_document([_part(found, advice) for found, advice in known]), indent=2))
    for found, advice in () if as_json else known:
        click.echo("\n".join(advice_lines(found.subject.domain.name, advice)))
    return 2 if unread else 0


def _structure(needs: str, store: StorePlace, *, alone: bool) -> None:
    """Show the structures of VMs that the published guideline leaves open, by what was answered."""
    from rich.console import Group

    from virtune.advise.guidelines import CONFIGURATION, requirements
    from virtune.cli.common.output import put
    from virtune.flows.stored.earlier_studies import own_shares
    from virtune.model.bottleneck import open_ends, walk
    from virtune.report.pages.diagnose import every_end, open_lines

    if not alone:
        raise UsageError("--for-requirements is a question of its own", hint="leave out files, --connect and --json")
    try:
        answers = requirements(needs.split(","))
    except ValueError as error:
        raise UsageError(str(error)) from None
    found = walk(CONFIGURATION, answers)
    own = {leaf.id: own_shares(store, leaf.id) for leaf, _ in open_ends(CONFIGURATION, answers)}
    put(Group(*open_lines(found, own), *every_end(CONFIGURATION)))


def _part(found: FoundDomain, advice: Advice) -> AdvisedDomain:
    domain = found.subject.domain
    return advised_domain(
        origin=found.origin,
        domain=domain.name,
        uuid=domain.uuid,
        turns=advice.turns,
        diff=advice.diff,
        left=advice.left,
        commands=advice.commands,
        warnings=advice.warnings,
    )
