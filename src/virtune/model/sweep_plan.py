# SPDX-License-Identifier: Apache-2.0
"""A SweepPlan: which loads a sweep offers, and what it looks for."""

from dataclasses import dataclass

from virtune.model.goal import Limit

RESOLUTION = 0.05
"""Neighbouring loads around a knee or a limit lie no further apart than this, so a point between is within 5 %."""

LOADS_MAX = 30
"""The most loads that a sweep chooses by itself; a curve that needs more is too noisy for another to help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """How a sweep goes: `limit` to find the greatest load for, `loads` as they were asked for, empty to choose them.

    `rounds` is how often each load runs.
    """

    limit: Limit | None = None
    loads: tuple[str, ...] = ()
    rounds: int = 3
