# SPDX-License-Identifier: Apache-2.0
"""What was gathered from many hosts as a JSON document."""

from collections.abc import Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet import Unreached
from virtune.report.json.document import IDENTITY, NOT_NEGATIVE, ProgramVersion
from virtune.report.json.fleet import LostHost, failed

SCHEMA = "virtune/fleet-gather/1"


class GatheredStudy(TypedDict):
    """One study that was pulled."""

    id: Annotated[str, "Its id."]
    attempts: Annotated[int, "Attempts at trials that were added.", NOT_NEGATIVE]
    new: Annotated[bool, "Whether nothing of it was here before."]


class GatheredHost(TypedDict):
    """One host."""

    name: Annotated[str, "Its name in the inventory."]
    store: Annotated[str, "The store of its studies here."]
    studies: Annotated[list[GatheredStudy], "The studies that were pulled; a finished one is pulled once."]


class GatherDocument(TypedDict):
    """What `virtune fleet gather --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    hosts: Annotated[list[GatheredHost], "The hosts that answered, in the order of the inventory."]
    failed: Annotated[list[LostHost], "The hosts that gave no answer."]


def gather_document(hosts: Sequence[GatheredHost], lost: Sequence[Unreached]) -> GatherDocument:
    """Return what was gathered."""
    return {"schema": SCHEMA, "virtune": __version__, "hosts": list(hosts), "failed": failed(lost)}
