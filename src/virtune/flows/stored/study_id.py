# SPDX-License-Identifier: Apache-2.0
"""The id of a study: its start time, with a mark for simulated studies."""

import secrets
from datetime import datetime


def study_id(now: datetime, *, simulated: bool = False) -> str:
    """Return a new id; that of a simulated study ends in `-sim`, and every output shows the id."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}{'-sim' if simulated else ''}"
