# SPDX-License-Identifier: Apache-2.0
"""What is made of what was seen: something else than was asked for ends the study."""

from collections.abc import Sequence

from virtune.model.errors import NotInForceError
from virtune.model.evidence import Check, InForce


def require_verified(arm: str, checks: Sequence[Check]) -> None:
    """Raise NotInForceError for the first setting that was asked for and is not what runs."""
    for check in InForce(checks=tuple(checks)).mismatches:
        raise NotInForceError(
            f"arm {arm!r}: {check.setting}={check.asked} was requested, but {check.found} is running",
            hint=f"seen by: {check.proof}",
        )
