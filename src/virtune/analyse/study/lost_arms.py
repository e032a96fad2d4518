# SPDX-License-Identifier: Apache-2.0
"""Arms that give nothing: which of them are measured no further, and when nothing is left to compare."""

from collections.abc import Iterable

from virtune.model.errors import LoadError
from virtune.model.evidence import TrialRecord
from virtune.model.reason import Reason, because

LOST_ROUNDS = 3
"""An arm that gave nothing in so many rounds, tried twice in each, will give nothing in the next one."""

Lost = dict[tuple[str, str], str]
"""(arm, workload) -> why it is measured no further."""


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
    """Raise LoadError where fewer than two of the arms that were tried gave anything, or the only one did not."""
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
