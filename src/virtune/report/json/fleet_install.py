# SPDX-License-Identifier: Apache-2.0
"""What was installed on many hosts as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet import Installed, Unreached
from virtune.report.json.document import IDENTITY, Name, ProgramVersion
from virtune.report.json.fleet import LostHost, failed

SCHEMA = "virtune/fleet-install/1"


class _Host(TypedDict):
    """One host."""

    name: Annotated[Name, "Its name in the inventory."]
    state: Annotated[str, "`installed`, `kept` (it had this version), `back` (the one before again) or `remove`."]
    before: Annotated[str | None, "The version that was installed so before; null without one."]
    version: Annotated[str | None, "The version that is installed so now; null without one."]


class FleetInstallDocument(TypedDict):
    """What `virtune fleet install --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    hosts: Annotated[list[_Host], "The hosts on which it was done, in the order of the inventory."]
    failed: Annotated[list[LostHost], "The hosts on which it was not."]


def install_document(done: Sequence[Installed], lost: Sequence[Unreached]) -> FleetInstallDocument:
    """Return what was installed."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "hosts": [
            {"name": one.host.name, "state": one.state, "before": one.before, "version": one.version} for one in done
        ],
        "failed": failed(lost),
    }
