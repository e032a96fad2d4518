# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet probe` and `audit`: the verbs that ask many hosts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import json_option
from virtune.cli.fleet_verbs import access_of, access_options, fleet_of, inventory_options, progress, tell
from virtune.model.errors import UsageError
from virtune.model.finding import Severity

if TYPE_CHECKING:
    from virtune.flows.fleet.ask import FleetAccess
    from virtune.model.facts import Difference
    from virtune.model.fleet import FleetHost, HostAnswer, Unreached


BREACHED, UNREADABLE = 4, 2


@click.command(name="probe")
@inventory_options
@access_options
@json_option
def probe(*, as_json: bool, **words: Any) -> int:
    """Show the facts of many hosts, and which facts differ between them.

    Exit 1 when a host gave no answer; the others are shown.

    \b
    virtune fleet probe -i hosts.txt
    virtune fleet probe -i hosts.txt --label rack=2 --json | jq .differences
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.ask import hosts_of
    from virtune.report.json.fleet import probe_document
    from virtune.report.pages.fleet import probe_lines

    found = _probed(hosts_of(fleet_of(words)), access_of(words), progress(words))
    return tell(probe_document(*found), probe_lines(*found), as_json=as_json, failed=bool(found[-1]))


def _probed(
    hosts: "Sequence[FleetHost]", access: "FleetAccess", say: Callable[[str], None]
) -> "tuple[list[HostAnswer[Mapping[str, str]]], Sequence[Difference], list[Unreached]]":
    """Ask hosts for their facts; returns also which of these differ, and the hosts that gave none."""
    from virtune.analyse.facts import differences, flat
    from virtune.flows.fleet.ask import ask_each, parted
    from virtune.model.fleet import HostAnswer
    from virtune.report.json.host import PROBE

    found, lost = parted(ask_each(hosts, access, lambda ready: ready.document(PROBE, "probe", "--json"), say=say))
    facts = list[HostAnswer[Mapping[str, str]]]()
    for one in found:
        facts.append(HostAnswer(host=one.host, calls_itself=one.calls_itself, said=flat(one.said.get("host"))))
    return facts, differences({one.host.name: one.said for one in facts}), lost


@click.command(name="audit")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@inventory_options
@click.option("--connect", metavar="URI", default=None,
              help="libvirt URI on each host: audit its domains (e.g. qemu:///system).")  # fmt: skip
@click.option("--here", is_flag=True, help="The files' domains run on the host that has them: look at it, too.")
@click.option("--ignore", metavar="RULE", multiple=True, help="Leave this rule out (R25); repeatable.")
@click.option(
    "--fail-on", type=click.Choice([*(one.value for one in Severity), "never"]), default=Severity.WARNING.value,
    show_default=True, help="Exit 4 on a finding of at least this severity.",
)  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
              help="Write one HTML file: rules by hosts and VMs, and facts that differ between hosts.")  # fmt: skip
@access_options
@json_option
def audit(paths: tuple[str, ...], *, connect: str | None, html: Path | None, as_json: bool, **words: Any) -> int:
    """Audit the VMs of many hosts: which rule found what on which host.

    PATH is a file or folder on each host. Exit 4 when a rule found something (--fail-on), else 1 when a host gave no
    answer, else 2 when something could not be read.

    \b
    virtune fleet audit -i hosts.txt --connect qemu:///system
    virtune fleet audit -i hosts.txt /etc/libvirt/qemu --here --html audit.html
    """  # noqa: D301 - \b is click's mark for lines to keep
    if not paths and not connect:
        raise UsageError("nothing to audit", hint="name files or folders of the hosts, or --connect qemu:///system")
    from virtune.cli.common.result_output import require_report, write_page
    from virtune.cli.domains import exit_code
    from virtune.flows.fleet.ask import ask_each, audits_of, hosts_of
    from virtune.report.json.audit import AUDIT
    from virtune.report.json.fleet import audit_document
    from virtune.report.pages.fleet import audit_lines, together

    require_report(html)
    hosts, asked = hosts_of(fleet_of(words)), ["audit", "--json", "--fail-on", "never"]
    asked += [*(["--connect", connect] if connect else []), *(["--here"] if words["here"] else [])]
    asked += [*(word for rule in words["ignore"] for word in ("--ignore", rule)), "--", *paths]
    answers = ask_each(
        hosts, access_of(words), lambda ready: ready.document(AUDIT, *asked, ok=(0, UNREADABLE)), say=progress(words)
    )
    audits, lost = audits_of(answers)
    audited, unread = together(audits)
    if html is not None:
        from virtune.report.html.page import fleet_audit_page

        every = [one.host for one in audits]
        differing = _probed(every, access_of(words), lambda _: None)[1] if len(every) > 1 else ()
        write_page(html, fleet_audit_page(audits, lost, differing))
    failed = tell(audit_document(audits, lost), audit_lines(audits, lost), as_json=as_json, failed=bool(lost))
    code = exit_code(audited, words["fail_on"], unread=bool(unread))
    return failed if failed and code != BREACHED else code
