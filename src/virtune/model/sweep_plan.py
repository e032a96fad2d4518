# SPDX-License-Identifier: Apache-2.0
"""A SweepPlan: the loads that a sweep offers, and the limit that it tests."""

from dataclasses import dataclass

from virtune.model.goal import Limit

RESOLUTION = 0.05
"""Neighbouring loads around a knee or a limit lie no further apart than this, so a point between is within 5 %."""

SWEEP_LOADS_MAX = 30
"""The most loads that a sweep chooses by itself; a curve that needs more is too noisy for another load to help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """The rules of a sweep: `limit` is the limit whose greatest load is searched, `loads` are the requested loads,
    empty to choose them.

    `rounds` is how often each load runs.
    """

    limit: Limit | None = None
    loads: tuple[str, ...] = ()
    rounds: int = 3
