# SPDX-License-Identifier: Apache-2.0
"""`virtune fleet`: the same verbs on many hosts, over the system's SSH."""

import importlib
from typing import Any

import click

from virtune.cli.common.options import json_option
from virtune.cli.fleet_verbs import fleet_of, inventory_options

_MODULES = {
    "apply": ("apply", "undo"), "here": ("here",), "history": ("history", "runs"), "hosts": ("audit", "probe"),
    "install": ("install", "pack"), "run": ("gather", "report", "run", "status"), "tune": ("tune",),
}  # fmt: skip
VERBS = {verb: module for module, verbs in _MODULES.items() for verb in verbs}
"""The module of each verb below `fleet_verbs`."""


class FleetGroup(click.Group):
    """Imports a verb's module only when it is asked for: `here` runs on a host that is being measured, and what
    `apply` needs would be half a second of its CPU each time.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *VERBS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        found = getattr(importlib.import_module(f"virtune.cli.fleet_verbs.{VERBS[cmd_name]}"), cmd_name)
        assert isinstance(found, click.Command)  # noqa: S101 - a verb without a command is our own mistake
        return found


@click.group(name="fleet", cls=FleetGroup)
def fleet() -> None:
    """Many hosts at once, over the system's SSH and its configuration, or by kubectl.

    Each host has a virtune of its own. Nothing stays behind on a host but what that virtune keeps.
    """


@fleet.command(name="inventory")
@inventory_options
@json_option
def inventory(*, as_json: bool, **words: Any) -> None:
    """List the hosts of an inventory with their labels, and where each is reached.

    Nothing is connected to.

    \b
    virtune fleet inventory -i hosts.txt
    virtune fleet inventory --ssh-config ~/.ssh/config
    virtune fleet inventory --ansible production.yml --label group.hypervisors=yes
    """  # noqa: D301 - \b is click's mark for lines to keep
    from virtune.cli.common.output import show
    from virtune.flows.fleet.ask import addressed, hosts_of
    from virtune.report.json.fleet import inventory_document
    from virtune.report.pages.fleet import table

    found = list(addressed(hosts_of(fleet_of(words))))
    show(lambda: inventory_document(found), lambda: table(found), as_json=as_json)
