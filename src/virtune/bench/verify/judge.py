# SPDX-License-Identifier: Apache-2.0
"""Judge the checks: a setting that differs from the request ends the study."""

from collections.abc import Sequence

from virtune.model.errors import NotInForceError
from virtune.model.evidence import Check, InForce


def require_verified(arm: str, checks: Sequence[Check]) -> None:
    """Raise NotInForceError for the first requested setting that differs from the running one."""
    for check in InForce(checks=tuple(checks)).mismatches:
        raise NotInForceError(
            f"arm {arm!r}: {check.setting}={check.asked} was requested, but {check.found} is running",
            hint=f"seen by: {check.proof}",
        )
