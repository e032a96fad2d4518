# SPDX-License-Identifier: Apache-2.0
"""A check for programs: one document with a published, versioned schema.

History of the schema:

virtune/check/1   noise, autocorrelation, drift, slices, detectable difference, gates, neighbours
virtune/check/2   the codes of the reasons: `unfit_reasons`, `same.reason`
"""

from dataclasses import asdict
from typing import Any

from virtune import __version__
from virtune.model.fitness import Fitness

SCHEMA = "virtune/check/2"


def check_document(fitness: Fitness) -> dict[str, Any]:
    """Return all results of a check, as plain JSON values in base units (seconds, bytes, 1/s, shares 0 to 1)."""
    return {"schema": SCHEMA, "virtune": __version__, **asdict(fitness)}
