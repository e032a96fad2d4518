# SPDX-License-Identifier: Apache-2.0
"""`virtune probe`: the facts of this host, or of a libvirt's domains, on one page or as JSON."""

import json
from pathlib import Path

import click

from virtune.cli.common.options import json_option, scratch_option
from virtune.cli.common.output import put
from virtune.model.errors import UsageError


@click.command("probe")
@click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--connect", metavar="URI", default=None, help="libvirt URI: show its domains instead of the host.")
@click.option("--domain", "domains", metavar="NAME", multiple=True, help="Only this domain; repeatable.")
@scratch_option("Directory for scratch images: virtune looks at its filesystem and disks, and leaves nothing in it.")
@json_option
def command(
    paths: tuple[Path, ...], connect: str | None, domains: tuple[str, ...], scratch: Path, *, as_json: bool
) -> int:
    """Show the facts of this host that decide about disk I/O, with warnings.

    Nothing is changed. io_uring, O_DIRECT and KVM are tried, as far as that leaves nothing behind; that /dev/kvm
    opens does not yet mean that a guest boots.

    With --connect, or files of domain XML, the domains are shown: their disks as they start next, as they run, and
    the settings that the running QEMU shows. A libvirt is only read from.

    \b
    virtune probe
    virtune probe --scratch /var/lib/libvirt/images
    virtune probe --json | jq .findings
    virtune probe --connect qemu:///system
    """  # noqa: D301 - \b is click's mark for lines to keep
    if domains and not connect:
        raise UsageError("--domain names a libvirt domain", hint="add --connect qemu:///system")
    if paths or connect:
        return _domains(paths, connect, domains, as_json=as_json)
    from virtune.flows.probe import probe

    facts, remarks = probe(scratch)
    if as_json:
        from virtune.report.json.host import probe_document

        click.echo(json.dumps(probe_document(facts, remarks), indent=2))
        return 0
    from virtune.report.pages.probe import render

    put(render(facts, remarks))
    return 0


def _domains(paths: tuple[Path, ...], connect: str | None, domains: tuple[str, ...], *, as_json: bool) -> int:
    from virtune.flows.domains.domains import everywhere, probe_domains
    from virtune.report.json.audit import domains_document
    from virtune.report.pages.audit import domains_page

    found, unread = probe_domains(everywhere(paths, connect, domains, here=False))
    click.echo(
        json.dumps(domains_document(found, unread), indent=2) if as_json else "\n".join(domains_page(found, unread))
    )
    return 2 if unread else 0
