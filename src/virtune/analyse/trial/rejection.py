# SPDX-License-Identifier: Apache-2.0
"""Which trials count: an invalid one is repeated, but a cause that rejects one arm, or most trials, is only reported.

Rejection can bias a comparison. If an arm causes its own disturbance, rejecting would keep only its luckiest trials;
if most trials of all arms are disturbed, rejecting would leave nothing. In both cases the cause no longer rejects
trials and becomes a warning on the arm, or on the host. These decisions do not depend on the measured performance, so
they cannot favour an arm.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from virtune.analyse.stats.student import fisher
from virtune.model.evidence import TrialRecord
from virtune.model.gate import GATE_BY_ID, GATES, label_of
from virtune.model.measurement import Measurement
from virtune.model.remark import Weight
from virtune.model.result import Waiver
from virtune.model.study import Trial
from virtune.model.study_options import ATTEMPTS
from virtune.model.tuning import ArmAttempts

FAILURES_MAX = 2
"""A failed trial is repeated once; one that fails twice will fail again."""

CLEARLY = 0.01
"""Fisher's exact test, one-sided, below this: one arm is rejected more often than the others, and not by chance."""

USUALLY = 0.5
"""A cause that disturbs more than half of all attempts is this host's normal state, and repeating does not help."""

USUALLY_ATTEMPTS = 6
"""The fewest attempts for that conclusion: two trials with all their repeats."""

PARDONABLE = frozenset(gate.id for gate in GATES if gate.passing and gate.invalid is not None) | {"generator"}
"""Causes with which the figures are still the disk's, though disturbed. Causes that mean that the disk was not
measured are never pardoned.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionCounts:
    """The attempts, and the rejections for one cause, of one arm and of all others."""

    tried: int
    rejected: int
    others_tried: int
    others_rejected: int


def pardons(attempts: Sequence[TrialRecord]) -> tuple[Waiver, ...]:
    """Return the causes that no longer reject trials, judged by all attempts of all arms so far."""
    measured = [(one.trial.arm, one.measurement) for one in attempts if one.measurement is not None]
    causes = sorted({cause for _, one in measured for cause in one.causes} & PARDONABLE)
    return tuple(pardon for cause in causes for pardon in _of_cause(cause, measured))


def _of_cause(cause: str, measured: Sequence[tuple[str, Measurement]]) -> Iterator[Waiver]:
    # an arm that uses the page cache does not show who else uses the disk: that it shows nobody says nothing
    seen = [(arm, cause in one.causes) for arm, one in measured if _reads(one, cause)]
    rejected, label = sum(found for _, found in seen), GATE_BY_ID[cause].label
    if len(seen) >= USUALLY_ATTEMPTS and rejected > USUALLY * len(seen):
        shown = list(dict.fromkeys(arm for arm, _ in seen))
        blind = len({arm for arm, _ in measured}) > len(shown)
        of = f" of {', '.join(shown)} (others do not show it)" if blind else ""
        text = (
            f"{label}: {rejected} of {len(seen)} trials{of} disturbed, more than half: repeating does not help, so"
            " such trials count"
        )
        yield Waiver(cause=cause, arm=None, text=text)
        return
    for arm in dict.fromkeys(arm for arm, _ in seen):
        mine = [found for name, found in seen if name == arm]
        counts = RejectionCounts(
            tried=len(mine),
            rejected=sum(mine),
            others_tried=len(seen) - len(mine),
            others_rejected=rejected - sum(mine),
        )
        p = fisher(counts.rejected, counts.tried, counts.others_rejected, counts.others_tried)
        if p < CLEARLY:
            text = (
                f"{label}: {counts.rejected} of {counts.tried} trials of {arm} disturbed, against"
                f" {counts.others_rejected} of {counts.others_tried} of the other arms (Fisher's exact test, p ="
                f" {p:.2g}): it goes with the arm, so such trials count"
            )
            yield Waiver(cause=cause, arm=arm, text=text)


def _reads(measurement: Measurement, cause: str) -> bool:
    """Whether a trial can show a cause: its gate was read. Without any reading at all it is taken to be so."""
    return not measurement.gates or cause in measurement.causes or cause in dict(measurement.gates)


def rejected_for(arm: str, measurement: Measurement, pardoned: Collection[Waiver]) -> tuple[str, ...]:
    """Return the causes that reject a trial of that arm; empty when it counts, because it is valid or all its causes
    are pardoned.
    """
    free = {one.cause for one in pardoned if one.arm in (None, arm)}
    return tuple(cause for cause in measurement.causes if cause not in free)


def why_again(trial: Trial, attempts: Sequence[TrialRecord], *, most: int = ATTEMPTS) -> str | None:
    """Say why a trial has to be repeated, None when its last attempt counts.

    `attempts` are all of the study so far, in their order; an invalid trial is made `most` times. A cause that lies
    in the arm itself uses up the attempts of one trial only; later trials are not repeated for it.
    """
    mine = [one for one in attempts if one.trial.number == trial.number]
    last = mine[-1]
    if last.measurement is None:
        failures = sum(one.failure is not None for one in mine)
        return f"failed, repeated: {last.failure}" if failures < FAILURES_MAX else None
    causes = rejected_for(trial.arm, last.measurement, pardons(attempts))
    hopeless = _tried_out(trial, attempts, most)
    if not causes or len(mine) >= most or hopeless.issuperset(causes):
        return None
    said = next(one.text for one in last.measurement.remarks if one.weight is Weight.INVALID and one.id in causes)
    return f"disturbed ({', '.join(map(label_of, causes))}), repeated: {said}"


def _tried_out(trial: Trial, attempts: Sequence[TrialRecord], most: int) -> set[str]:
    """Return the lasting causes that already made every attempt at an earlier trial of the same arm invalid."""
    kinds: dict[int, list[set[str]]] = {}
    for one in attempts:
        same = (one.trial.arm, one.trial.workload) == (trial.arm, trial.workload)
        if same and one.trial.number != trial.number and one.measurement is not None:
            kinds.setdefault(one.trial.number, []).append(set(one.measurement.causes))
    lasting = [set.intersection(*found) for found in kinds.values() if len(found) >= most]
    return {cause for found in lasting for cause in found if cause not in GATE_BY_ID or not GATE_BY_ID[cause].passing}


def attempts_by_arm(attempts: Sequence[TrialRecord]) -> tuple[ArmAttempts, ...]:
    """Return each arm's attempts: how many, how many failed, how many were invalid by cause."""
    by_arm: dict[str, list[Measurement | None]] = {}
    for one in attempts:
        by_arm.setdefault(one.trial.arm, []).append(one.measurement)
    causes = {arm: Counter(cause for m in tried if m for cause in m.causes) for arm, tried in by_arm.items()}
    return tuple(
        ArmAttempts(arm=arm, attempts=len(tried), failed=tried.count(None), invalid=tuple(causes[arm].most_common()))
        for arm, tried in by_arm.items()
    )


def unsettled(attempts: Sequence[TrialRecord], *, most: int = ATTEMPTS) -> Trial | None:
    """Return the trial that was interrupted between two attempts: the last that ran, if it has to be repeated."""
    if not attempts:
        return None
    last = max(attempts, key=lambda one: (one.ended, one.trial.number, one.attempt))
    return last.trial if last.measurement is not None and why_again(last.trial, attempts, most=most) else None
