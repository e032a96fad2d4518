# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet apply` and `virtune fleet undo`: VMs of many hosts, changed in steps and put back by one command."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import confirmed, json_option
from virtune.cli.domains import wish_of, wish_options
from virtune.cli.fleet_verbs import access_of, access_options, fleet_of, inventory_options, progress, tell
from virtune.model.errors import UsageError

if TYPE_CHECKING:
    from virtune.model.fleet import ChangedHost, FleetChange


@click.command(name="apply")
@click.argument("vms", metavar="[HOST/]VM...", nargs=-1, required=True)
@inventory_options
@click.option("--connect", metavar="URI", default="qemu:///system", show_default=True, help="libvirt of the hosts.")
@wish_options
@click.option("--canary", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="Change so many hosts first, and no other where one of them fails.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=5, show_default=True, metavar="N",
              help="Then change so many hosts at a time, until one fails.")  # fmt: skip
@click.option("--restart", is_flag=True, help="Power running VMs off and on, so that every change takes effect now.")
@click.option("--healthy", "signs", metavar="SIGN", multiple=True,
              help="Sign that a guest is back: guest-agent, ping, console:REGEX. Repeatable.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@access_options
@json_option
def apply(vms: tuple[str, ...], *, canary: int, batch: int, yes: bool, as_json: bool, **asked: Any) -> int:
    """Apply changes to the VMs of many hosts: a canary first, then batches; the first failure stops it.

    VM is changed on every chosen host, HOST/VM on that one. Each host's virtune makes the change: journaled,
    checked, and put back by itself on a failure. All changes are shown before any is made. `virtune fleet undo` puts
    every host back. Exit 1 when a host failed.

    \b
    virtune fleet apply -i hosts.txt web1/vm1 web2/vm3 --template flash
    virtune fleet apply -i hosts.txt db --set disk.aio@vda=io_uring --canary 2 --yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.apply import make_change, plan_change, previews, vms_by_host
    from virtune.flows.fleet.ask import hosts_of, parted
    from virtune.report.pages.fleet import lost_lines

    wish_of(asked)  # what is misspelled is said before any host is asked
    access = access_of(asked)
    every = vms_by_host(hosts_of(fleet_of(asked)), vms)
    words = ["--connect", asked["connect"], *(["--template", asked["template"]] if asked["template"] else [])]
    words += [word for option, name in (("--rule", "rules"), ("--set", "turns"))
              for one in asked[name] for word in (option, one)]  # fmt: skip
    shown, lost = parted(previews(every, access, words))
    for one in shown:
        click.echo(f"{one.host.name}:\n{one.said.rstrip()}", err=True)
    if lost:
        click.echo("\n".join(lost_lines(lost, len(shown))), err=True)
        raise UsageError("not every host can be changed, so none is", hint="leave out those that failed")
    if not confirmed(f"Change the VMs of {len(every)} hosts?", yes=yes, err=True):
        return 0
    words += ["--restart"] if asked["restart"] else []
    words += [word for one in asked["signs"] for word in ("--healthy", one)]
    change = plan_change(every, words, now=datetime.now(UTC))
    found = make_change(change, access, canary=canary, batch=batch, say=progress(asked))
    return _told(change, found, as_json=as_json, undo=True)


@click.command(name="undo")
@click.argument("name", metavar="[CHANGE]", default="last")
@access_options
@json_option
def undo(name: str, *, as_json: bool, **asked: Any) -> int:
    """Undo a change of a fleet on every host: CHANGE is its name, or `last`. What is undone already is left.

    Exit 1 when a host failed; the others are put back, and the same command tries that one again.

    \b
    virtune fleet undo
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.apply import undo_change
    from virtune.flows.fleet.run import CHANGES

    change = CHANGES.find(name)
    return _told(change, undo_change(change, access_of(asked), say=progress(asked)), as_json=as_json, undo=False)


def _told(change: "FleetChange", found: "Sequence[ChangedHost]", *, as_json: bool, undo: bool) -> int:
    """Write what was done on every host; returns the exit code."""
    from virtune.report.json.fleet import apply_document

    lines = [f"{one.name}: {one.state}{f': {one.said}' if one.said else ''}" for one in found]
    lines += [f"`virtune fleet undo {change.name}` puts all of it back"] if undo else []
    failed = any(one.failed for one in found)
    return tell(apply_document(change, found), lines, as_json=as_json, failed=failed)
