# SPDX-License-Identifier: Apache-2.0
"""The layers of a request as plain JSON values."""

from typing import Any

from virtune.model.layers import Layers


def layers_document(found: Layers | None) -> dict[str, Any] | None:
    """Return where the time of a request goes, in ns; None where nothing was measured below the load."""
    if found is None:
        return None
    return {
        "way": found.way,
        "top": found.top,
        "rounds": found.rounds,
        "total_ns": found.total_ns,
        "layers": [
            {
                "boundary": one.boundary,
                "label": one.label,
                "mean_ns": one.mean_ns,
                "low_ns": one.low_ns,
                "high_ns": one.high_ns,
                "share": one.share,
                "in_flight": one.in_flight,
            }
            for one in found.layers
        ],
        "idle": found.idle,
        "esxtop": {
            "gavg_ns": found.gavg_ns,
            "qavg_ns": found.qavg_ns,
            "kavg_ns": found.kavg_ns,
            "davg_ns": found.davg_ns,
        },
        "reasons": list(found.reasons),
    }
