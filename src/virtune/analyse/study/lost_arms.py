# SPDX-License-Identifier: Apache-2.0
"""Arms whose trials always fail: which of them are no longer measured, and when nothing is left to compare."""

from collections.abc import Iterable

from virtune.model.errors import LoadError
from virtune.model.evidence import TrialRecord
from virtune.model.reason import Reason, because

LOST_ROUNDS = 3
"""After so many rounds without a measurement, with two attempts in each, an arm is given up."""

Lost = dict[tuple[str, str], str]
"""(arm, workload) -> why it is no longer measured."""


def lost_of(trials: Iterable[TrialRecord]) -> Lost:
    """Return the arms that never gave a measurement under a workload, from `LOST_ROUNDS` rounds on."""
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for record in trials:
        found.setdefault((record.trial.arm, record.trial.workload), []).append(record)
    return {
        (arm, workload): because(Reason.ARM_LOST, arm=arm, rounds=len(mine), failure=mine[-1].failure).text
        for (arm, workload), mine in found.items()
        if len(mine) >= LOST_ROUNDS and all(one.measurement is None for one in mine)
    }


def require_measured(trials: Iterable[TrialRecord]) -> None:
    """Raise LoadError if fewer than two of the tried arms gave measurements, or the only one gave none."""
    reasons: dict[str, set[str]] = {}
    measured = set()
    for record in trials:
        reasons.setdefault(record.trial.arm, set()).update([record.failure] if record.failure else [])
        if record.measurement is not None:
            measured.add(record.trial.arm)
    silent = [arm for arm in reasons if arm not in measured]
    if silent and len(measured) < 2:
        hint = "; ".join(sorted(reason for arm in silent for reason in reasons[arm]))
        raise LoadError(f"no trial of arm {' and of '.join(map(repr, silent))} gave a measurement", hint=hint)
