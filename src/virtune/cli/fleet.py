# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet`: the same verbs on many hosts, over the system's SSH."""

import json
from typing import Any

import click

from virtune.cli.common.options import json_option
from virtune.cli.fleet_verbs.apply import apply, undo
from virtune.cli.fleet_verbs.here import here
from virtune.cli.fleet_verbs.hosts import audit, probe
from virtune.cli.fleet_verbs.install import install
from virtune.cli.fleet_verbs.options import fleet_of, inventory_options
from virtune.cli.fleet_verbs.results import gather, report
from virtune.cli.fleet_verbs.run import run, status


@click.group(name="fleet")
def command() -> None:
    """Many hosts at once, over the system's SSH and its configuration.

    Each host has a virtune of its own. Nothing stays behind on a host but what that virtune keeps.
    """


command.add_command(here)
command.add_command(install)
command.add_command(probe)
command.add_command(audit)
command.add_command(run)
command.add_command(status)
command.add_command(gather)
command.add_command(report)
command.add_command(apply)
command.add_command(undo)


@command.command(name="inventory")
@inventory_options
@json_option
def inventory(*, as_json: bool, **words: Any) -> None:
    """List the hosts of an inventory with their labels, and where ssh would connect to.

    Nothing is connected to.

    \b
    virtune fleet inventory -i hosts.txt
    virtune fleet inventory --ssh-config ~/.ssh/config
    virtune fleet inventory --ansible production.yml --label group.hypervisors=yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.flows.fleet.inventory import addressed, hosts_of

    found = list(addressed(hosts_of(fleet_of(words))))
    if as_json:
        from virtune.report.json.fleet_inventory import inventory_document

        click.echo(json.dumps(inventory_document(found), indent=2))
        return
    from virtune.cli.common.output import put
    from virtune.report.text.fleet.inventory import table

    put(table(found))
