# SPDX-License-Identifier: Apache-2.0
"""The hosts of a fleet as a JSON document."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet import Address, FleetHost
from virtune.report.json.document import IDENTITY, ProgramVersion

SCHEMA = "virtune/fleet-inventory/1"


class _Host(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    target: Annotated[str, "What ssh is called with."]
    ssh_config: Annotated[str | None, "The ssh_config that ssh reads for it; null for the user's own."]
    user: Annotated[str, "The user as whom ssh would log in."]
    address: Annotated[str, "The name or address to which ssh would connect."]
    port: Annotated[int, "The port to which ssh would connect.", {"minimum": 1, "maximum": 65535}]
    labels: Annotated[Mapping[str, str], "Its labels by their keys."]


class InventoryDocument(TypedDict):
    """What `virtune fleet inventory --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Host], "The chosen hosts, in the order of the inventory."]


def inventory_document(found: Sequence[tuple[FleetHost, Address]]) -> InventoryDocument:
    """Return the hosts and where ssh would connect to."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "hosts": [
            {
                "name": host.name,
                "target": host.target,
                "ssh_config": host.config,
                "user": address.user,
                "address": address.host,
                "port": address.port,
                "labels": dict(host.labels),
            }
            for host, address in found
        ],
    }
