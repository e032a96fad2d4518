# SPDX-License-Identifier: Apache-2.0
"""The options by which every `virtune fleet` command is told its hosts."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from virtune.flows.fleet_inventory import Fleet

Command = TypeVar("Command", bound=Callable[..., Any])


def inventory_options(command: Command) -> Command:
    """Add the options that name hosts."""
    options = (
        click.option("--inventory", "-i", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                     help="Hosts: a host a line with labels (`web1 rack=3`), an ssh_config, or the JSON of "
                          "`ansible-inventory --list`; repeatable."),
        click.option("--ansible", multiple=True, metavar="SOURCE",
                     help="Any inventory of Ansible, read by `ansible-inventory`; repeatable."),
        click.option("--ssh-config", default=None, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                     help="The configuration of ssh; without an inventory also the list of hosts.  "
                          "[default: your own]"),
        click.option("--host", "names", multiple=True, metavar="NAME", help="Only this host; repeatable."),
        click.option("--label", "labels", multiple=True, metavar="KEY=VALUE",
                     help="Only hosts with this label; repeatable."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def fleet_of(words: dict[str, Any]) -> "Fleet":
    """Return the fleet that these options name."""
    from virtune.flows.fleet_inventory import Fleet

    return Fleet(
        files=words["inventory"],
        ansible=words["ansible"],
        ssh_config=words["ssh_config"],
        names=words["names"],
        labels=words["labels"],
    )
