# SPDX-License-Identifier: Apache-2.0
"""The schema of where the time of a request goes."""

from tools.schemas.shape import Schema
from tools.schemas.typed import Typed
from virtune.report.json.layers import LayersPart


def layers() -> Schema:
    """Return the schema of the layers of a request."""
    return Typed().of(LayersPart | None)
