# SPDX-License-Identifier: Apache-2.0
"""The verbs of `virtune fleet`, and what all share: how they are told their hosts, and how hosts are asked."""

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtune.cli.common.options import SECONDS, adding

if TYPE_CHECKING:
    from virtune.flows.fleet.ask import Fleet, FleetAccess

FAILED = 1
"""The exit code where a host failed."""

inventory_options = adding(
    click.option("--inventory", "-i", "files", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                 help="Hosts: a host or libvirt URI a line with labels (`web1 rack=3`), an ssh_config, a "
                      "libvirt.conf, or the JSON of `ansible-inventory --list`; repeatable."),
    click.option("--ansible", multiple=True, metavar="SOURCE",
                 help="Any inventory of Ansible, read by `ansible-inventory`; repeatable."),
    click.option("--libvirt", multiple=True, metavar="URI",
                 help="The host of a libvirt URI (qemu+ssh://root@kvm1/system); repeatable."),
    click.option("--ssh-config", default=None, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
                 help="The configuration of ssh; without an inventory also the list of hosts.  "
                      "[default: your own]"),
    click.option("--host", "names", multiple=True, metavar="NAME", help="Only this host; repeatable."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE",
                 help="Only hosts with this label; repeatable."),
)  # fmt: skip
"""The options that name hosts."""


access_options = adding(
    click.option("--parallel", type=click.IntRange(1, 64), default=8, show_default=True,
                 help="How many hosts are asked at once."),
    click.option("--timeout", type=SECONDS, default=300.0, metavar="TIME",
                 help="How long a host may take to answer.  [default: 5m]"),
    click.option("--virtune", default="virtune", show_default=True, metavar="PATH",
                 help="The virtune of the hosts."),
    click.option("--quiet", "-q", is_flag=True, help="Print the result only, and no progress."),
)  # fmt: skip
"""The options that say how hosts are asked."""


def access_of(words: dict[str, Any]) -> "FleetAccess":
    """Return how hosts are asked by these options."""
    from virtune.flows.fleet.ask import FleetAccess

    return FleetAccess(parallel=words["parallel"], timeout_seconds=words["timeout"], virtune=words["virtune"])


def fleet_of(words: dict[str, Any]) -> "Fleet":
    """Return the fleet that these options name."""
    from virtune.flows.fleet.ask import Fleet

    return Fleet(**{one: words[one] for one in ("files", "ansible", "libvirt", "ssh_config", "names", "labels")})


def tell(document: object, lines: Iterable[str], *, as_json: bool, failed: bool = False) -> int:
    """Write what hosts gave, as a document or in lines; returns the exit code, by whether a host failed."""
    click.echo(json.dumps(document, indent=2) if as_json else "\n".join(lines))
    return FAILED if failed else 0


def progress(words: dict[str, Any]) -> Callable[[str], None]:
    """Return what says that a host has answered: on stderr, where someone watches."""
    shown = sys.stderr.isatty() and not words["quiet"]
    return partial(click.echo, err=True) if shown else lambda _: None
