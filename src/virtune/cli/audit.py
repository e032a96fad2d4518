# SPDX-License-Identifier: Apache-2.0
"""`virtune audit`: performance and data-safety problems in the disk configuration of VMs."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from virtune.cli.common.options import json_option, store_option
from virtune.cli.common.writing import write_text
from virtune.flows.domains.advise import audit_all
from virtune.flows.domains.domains import everywhere
from virtune.model.errors import StorePlace, UsageError
from virtune.model.finding import Audited, PassedOver, Severity, Unread

BREACHED, UNREADABLE, UNDECIDED = 4, 2, 5
"""A domain that no rule can judge may be as bad as `--fail-on` asks, and nothing shows whether it is: undecided."""


@click.command("audit")
@click.argument("paths", metavar="[FILE|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--connect", metavar="URI", default=None, help="libvirt URI: audit its domains (e.g. qemu:///system).")
@click.option("--domain", "domains", metavar="NAME", multiple=True, help="Only this domain; repeatable.")
@click.option(
    "--here", is_flag=True, help="The files' domains run on this host: look at its kernel, QEMU and images."
)
@click.option(
    "--fail-on",
    type=click.Choice([*(one.value for one in Severity), "never"]),
    default=Severity.WARNING.value,
    show_default=True,
    help="Exit 4 on a finding of at least this severity, 5 where none was found and a domain could not be audited.",
)
@click.option("--ignore", metavar="RULE", multiple=True, help="Leave this rule out (R25); repeatable.")
@click.option("--brief", is_flag=True, help="Only a table of VMs and rules.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write the audit with a table of VMs by rules as one HTML file.")  # fmt: skip
@store_option
@json_option
@click.option("--sarif", "as_sarif", is_flag=True, help="Write SARIF 2.1.0 to stdout, for code scanners.")
def command(
    paths: tuple[Path, ...],
    *,
    connect: str | None,
    domains: tuple[str, ...],
    here: bool,
    fail_on: str,
    ignore: tuple[str, ...],
    brief: bool,
    html: Path | None,
    store: StorePlace,
    as_json: bool,
    as_sarif: bool,
) -> int:
    """Audit VM disk configuration for performance and data-safety problems.

    FILE is a domain's XML as `virsh dumpxml` prints it, or another system's configuration of a VM
    (docs/reference/dialects.md): its content tells. A FOLDER is searched for such files. A libvirt is only read from.
    Errors and warnings hold as they stand; a `try` is a thing worth measuring, with the command that does it. Where a
    kept study of this host has measured that very change, its verdict is given.
    docs/reference/rules.md has every rule.

    \b
    virtune audit vm.xml
    virtune audit /etc/libvirt/qemu --here
    virtune audit /etc/pve/qemu-server
    virtune audit --connect qemu:///system --domain web1
    virtune audit --connect qemu:///system --brief --ignore R25
    virtune audit domains/ --sarif > audit.sarif
    """  # noqa: D301 - \b is click's mark for lines to keep
    if html is not None:
        from virtune.cli.common.writing import require_report

        require_report(html)
    if as_json + as_sarif + brief > 1:
        raise UsageError("--json, --sarif and --brief cannot be together: each is all that is written to stdout")
    _require_something(paths, connect, domains)
    from virtune.flows.stored.earlier_studies import Past
    from virtune.report.pages.audit import SHOWN_IN_FULL

    past = Past(store) if here or connect else None
    diffs = sys.maxsize if as_json or as_sarif else 0 if brief else SHOWN_IN_FULL
    found = everywhere(paths, connect, domains, here=here)
    results = list(audit_all(found, diffs=diffs, each=as_json or as_sarif, ignored=ignore, past=past))
    audited = [one for one in results if isinstance(one, Audited)]
    unread = [one for one in results if isinstance(one, Unread)]
    _write_page(html, audited, unread)
    passed = [one for one in results if isinstance(one, PassedOver)]
    _show(audited, unread, passed, as_json=as_json, as_sarif=as_sarif, brief=brief)
    return exit_code(audited, fail_on, unread=bool(unread))


def exit_code(audited: Sequence[Audited], fail_on: str, *, unread: bool) -> int:
    """Return 4 for a finding of at least that severity, then 2 for what could not be read, then 5 for a domain that
    could not be audited, which `never` does not ask for.
    """
    if _reaches(audited, fail_on):
        return BREACHED
    if unread:
        return UNREADABLE
    return UNDECIDED if fail_on != "never" and any(one.not_audited for one in audited) else 0


def _reaches(audited: Sequence[Audited], severity: str) -> bool:
    """Whether there is a finding of at least this severity; `never` is reached by none."""
    if severity == "never":
        return False
    limit = Severity(severity).rank
    return any(finding.rule.severity.rank >= limit for one in audited for finding in one.findings)


def _write_page(path: Path | None, audited: list[Audited], unread: list[Unread]) -> None:
    if path is None:
        return
    from virtune.flows.reports.report import page_html
    from virtune.report.html.other_pages import audit_page

    write_text(path, page_html(audit_page(audited, unread)))
    click.echo(f"page: {path}", err=True)


def _require_something(paths: tuple[Path, ...], connect: str | None, domains: tuple[str, ...]) -> None:
    if domains and not connect:
        raise UsageError("--domain names a libvirt domain", hint="add --connect qemu:///system")
    if not paths and not connect:
        raise UsageError("nothing to audit", hint="name files or folders of domain XML, or --connect qemu:///system")


def _show(
    audited: list[Audited],
    unread: list[Unread],
    passed: list[PassedOver],
    *,
    as_json: bool,
    as_sarif: bool,
    brief: bool,
) -> None:
    if as_sarif:
        from virtune.advise.audit import rules
        from virtune.report.sarif import sarif

        click.echo(json.dumps(sarif(rules(), audited, unread, passed), indent=2))
    elif as_json:
        from virtune.report.json.audit import audit_document

        click.echo(json.dumps(audit_document(audited, unread, passed), indent=2))
    else:
        from virtune.report.pages import audit

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else audit.WIDTH
        lines = audit.brief(audited, unread, passed) if brief else audit.page(audited, unread, passed, width=width)
        click.echo("\n".join(lines))
