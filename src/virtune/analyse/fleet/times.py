# SPDX-License-Identifier: Apache-2.0
"""Whether hosts were measured at times that can be compared."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from virtune.model.errors import PreconditionError
from virtune.model.fleet import HostEstimate
from virtune.model.units import format_seconds

WINDOW = timedelta(hours=24)
"""Levels of hosts that were measured further apart than a day are not compared: shared storage, neighbours and
updates change them, and no host shows it. A day is also how long an A/A test of a host counts for its studies."""


def require_comparable(estimates: Sequence[HostEstimate], *, window: timedelta = WINDOW) -> None:
    """Raise PreconditionError where the levels of these hosts were measured at times that cannot be compared.

    A ratio needs no such check: both arms of it were measured in turn on the same host.
    """
    if not estimates:
        return
    for one in estimates:
        if one.ended < one.begun:
            raise PreconditionError(
                f"{one.host} ended its study before it began it: its clock was set meanwhile",
                hint="measure it again with a clock that is right",
            )
    first = min(estimates, key=lambda one: one.begun)
    last = max(estimates, key=lambda one: one.ended)
    apart = last.ended - first.begun
    if apart > window:
        raise PreconditionError(
            f"{first.host} began {_shown(first.begun)} and {last.host} ended {_shown(last.ended)}:"
            f" levels of hosts measured {format_seconds(apart.total_seconds())} apart cannot be compared",
            hint=f"measure them within {format_seconds(window.total_seconds())}, or compare ratios only",
        )


def _shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
