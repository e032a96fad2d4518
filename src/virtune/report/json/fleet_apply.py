# SPDX-License-Identifier: Apache-2.0
"""A change of the VMs of many hosts, or its undoing, as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet import ChangedHost, FleetChange
from virtune.report.json.document import IDENTITY, Moment, Name, ProgramVersion

SCHEMA = "virtune/fleet-apply/1"


class _Host(TypedDict):
    """One host."""

    name: Annotated[Name, "Its name in the inventory."]
    state: Annotated[str, "`changed`, `undone`, `failed`, or `untouched`: nothing was done there."]
    said: Annotated[str | None, "How many VMs, or why it failed; null where there is nothing to say."]


class FleetApplyDocument(TypedDict):
    """What `virtune fleet apply --json` and `virtune fleet undo --json` write."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    change: Annotated[str, "The name of the change; `fleet undo` takes it."]
    created: Annotated[Moment, "When it was made, in UTC."]
    words: Annotated[list[str], "The options of the change, as each host's `virtune apply` got them."]
    hosts: Annotated[list[_Host], "The hosts, in the order in which they were changed or undone."]


def apply_document(change: FleetChange, found: Sequence[ChangedHost]) -> FleetApplyDocument:
    """Return a change with what was done on every host."""
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "change": change.name,
        "created": change.created,
        "words": list(change.words),
        "hosts": [{"name": one.host.name, "state": one.state, "said": one.said or None} for one in found],
    }
