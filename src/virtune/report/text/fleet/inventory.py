# SPDX-License-Identifier: Apache-2.0
"""The hosts of a fleet, as text."""

from collections.abc import Sequence

from rich.console import RenderableType

from virtune.model.fleet import Address, FleetHost
from virtune.report.text.layout import Column, Records


def table(found: Sequence[tuple[FleetHost, Address]]) -> RenderableType:
    """Lay out a line for each host with its address."""
    rows = [(host.name, address.text, " ".join("=".join(one) for one in host.labels)) for host, address in found]
    return Records([Column(title="host"), Column(title="ssh connects to"), Column(title="labels", wraps=True)], rows)
