# SPDX-License-Identifier: Apache-2.0
"""Which trials count: an invalid one is repeated, but a cause that rejects one arm, or most trials, is only
reported. And the warm-up (ramp) that a load needs, from whether the measured time still begins with a transient.

Rejection can bias a comparison. If an arm causes its own disturbance, rejecting would keep only its luckiest trials;
if most trials of all arms are disturbed, rejecting would leave nothing. In both cases the cause no longer rejects
trials and becomes a warning on the arm, or on the host. These decisions do not depend on the measured performance, so
they cannot favour an arm.

After every five rounds the second half of the measured time is compared with the first, per arm and over all rounds,
because the samples of a single trial are autocorrelated. Where the halves differ clearly, the ramp of all arms is
doubled. The result depends only on the stored trials, so a study that resumes after an interruption keeps the ramp
that it had found.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from virtune.analyse.stats.student import fisher
from virtune.model.evidence import StudyRecord, TrialRecord, Waiver, measured
from virtune.model.measurement import Measurement, percentile_of_all
from virtune.model.metric import Metric
from virtune.model.remark import GATE_BY_ID, GATES, Weight, label_of
from virtune.model.result import RampFinding
from virtune.model.search import FIRST_ROUND, Phase, phase_of
from virtune.model.study import Study, Trial
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


def pardons(attempts: Sequence[TrialRecord]) -> tuple[Waiver, ...]:
    """Return the causes that no longer reject trials, judged by all attempts of all arms so far."""
    tried = [(trial.arm, one) for trial, one in measured(attempts)]
    causes = sorted({cause for _, one in tried for cause in one.causes} & PARDONABLE)
    return tuple(pardon for cause in causes for pardon in _of_cause(cause, tried))


def pardons_of(record: StudyRecord) -> tuple[Waiver, ...]:
    """Return the causes that reject none of a study's trials."""
    return pardons(record.attempts or record.trials) if record.pardoned is None else record.pardoned


def _of_cause(cause: str, tried: Sequence[tuple[str, Measurement]]) -> Iterator[Waiver]:
    # an arm that uses the page cache does not show who else uses the disk: that it shows nobody says nothing
    seen = [(arm, cause in one.causes) for arm, one in tried if _reads(one, cause)]
    rejected, label = sum(found for _, found in seen), GATE_BY_ID[cause].label
    if len(seen) >= USUALLY_ATTEMPTS and rejected > USUALLY * len(seen):
        shown = list(dict.fromkeys(arm for arm, _ in seen))
        blind = len({arm for arm, _ in tried}) > len(shown)
        of = f" of {', '.join(shown)} (others do not show it)" if blind else ""
        text = f"{label} in {rejected} of {len(seen)} trials{of}: too many to leave out"
        yield Waiver(cause=cause, arm=None, text=text)
        return
    for arm in dict.fromkeys(arm for arm, _ in seen):
        mine = [found for name, found in seen if name == arm]
        others, others_rejected = len(seen) - len(mine), rejected - sum(mine)
        p = fisher(sum(mine), len(mine), others_rejected, others)
        if p < CLEARLY:
            text = (
                f"{label}: {sum(mine)} of {len(mine)} trials of {arm} disturbed, against {others_rejected} of"
                f" {others} of the other arms (Fisher's exact test, p = {p:.2g}): it goes with the arm, so such"
                " trials count"
            )
            yield Waiver(cause=cause, arm=arm, text=text)


def _reads(measurement: Measurement, cause: str) -> bool:
    """Whether a trial can show a cause: its gate was read. Without any reading at all it is taken to be so."""
    return not measurement.gates or cause in measurement.causes or cause in dict(measurement.gates)


def percentile_of_sound(
    trials: Sequence[TrialRecord], arm: str, workload: str, metric: Metric, pardoned: Collection[Waiver]
) -> float | None:
    """Return a percentile of all I/Os of the trials of an arm that count, in ns; None where it is no percentile, or
    not known of each trial.
    """
    if metric.percent is None:
        return None
    mine = (one for trial, one in measured(trials) if (trial.arm, trial.workload) == (arm, workload))
    sound = [one.histogram_of(metric.of) for one in mine if not rejected_for(arm, one, pardoned)]
    return percentile_of_all(sound, metric.percent)


def rejected_for(arm: str, measurement: Measurement, pardoned: Collection[Waiver]) -> tuple[str, ...]:
    """Return the causes that reject a trial of that arm; empty when it counts, because it is valid or all its causes
    are pardoned.
    """
    free = {one.cause for one in pardoned if one.arm in (None, arm)}
    return tuple(cause for cause in measurement.causes if cause not in free)


def sound_of(records: Iterable[TrialRecord], pardoned: Collection[Waiver]) -> list[TrialRecord]:
    """Return of the trials of one arm under one workload those behind its figures and verdicts: those that count, and
    all that gave a measurement where none does.
    """
    every = [(one, one.measurement) for one in records if one.measurement is not None]
    sound = [one for one, found in every if not rejected_for(one.trial.arm, found, pardoned)]
    return sound or [one for one, _ in every]


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


ROUNDS_EACH = 5
"""The number of rounds after which a ramp is checked: Student's t on five differences detects 5 % at a noise of 2 %,
and a study of eight rounds still has three left.
"""

HALVES_MIN = 0.03
"""Halves that differ by less move the mean by half of it, 1.5 %: less than any margin that would justify a longer
ramp.
"""

BY_CHANCE = 0.01
"""The error probability of finding a ramp too short, over all arms and workloads of one check (Bonferroni)."""

SLICES_MIN = 3
"""The fewest slices: the last one is sometimes incomplete, and two halves need something to compare."""

DOUBLINGS_MAX = 4
"""Sixteen times the requested ramp: a transient that is longer needs a soak test."""

FIRST_SECONDS = 0.25
"""The first ramp after one of zero."""

_GRID_MS = 50
"""Logs are written every so many milliseconds, or a multiple of it."""

PROFILE_MAX = 2000
"""The most slices; a longer run has longer slices."""


def read_profile(log: bytes) -> tuple[tuple[float, ...], float]:
    """Read logs of IOPS (fio's `ms, value, direction, ...`, all jobs): IOPS of all jobs a slice, and its seconds.

    Slices that some job or direction lacks (mostly the last one) are left out; so is a damaged log.
    """
    rows = [line.split(b",")[:2] for line in log.splitlines()]
    try:
        pairs = [(int(row[0]), float(row[1])) for row in rows]
    except (ValueError, IndexError):
        return (), 0.0
    first = min((time for time, _ in pairs), default=0)
    every = max(1, round(first / _GRID_MS)) * _GRID_MS if first > 0 else 0  # the first line may come a little late
    if every <= 0 or not all(math.isfinite(value) and value >= 0 for _, value in pairs):
        return (), 0.0
    slices: dict[int, list[float]] = {}
    for time, value in pairs:
        slices.setdefault(round(time / every), []).append(value)
    full = [math.fsum(slices[number]) for number in sorted(slices) if len(slices[number]) == len(slices[min(slices)])]
    factor = max(1, math.ceil(len(full) / PROFILE_MAX))
    merged = [fmean(full[start : start + factor]) for start in range(0, len(full) - factor + 1, factor)]
    return tuple(merged), every * factor / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """The ramp that applies from a round on, and what made it longer than requested."""

    seconds: float
    findings: tuple[RampFinding, ...] = ()


def ramp_of(study: Study, trials: Sequence[TrialRecord], *, before_round: int | None = None) -> Ramp:
    """Return the ramp for a round (default: for one after the last), from the trials of the rounds before it.

    Only complete rounds count, for a search those of its race. `trials` are the attempts that count, one record each.
    """
    rounds = _rounds(study, trials)
    whole = sorted(rounds)
    before = whole[-1] + 1 if before_round is None and whole else before_round or 1
    first = FIRST_ROUND[Phase.RACE] if study.search is not None else 1
    seconds, begin = study.ramp_seconds, first
    findings: list[RampFinding] = []
    for last in range(first + ROUNDS_EACH - 1, min(before, whole[-1] + 1 if whole else 0), ROUNDS_EACH):
        looked_at = [one for number in whole if begin <= number <= last for one in rounds[number]]
        found = list(_unsettled(looked_at)) if last in whole and len(findings) < DOUBLINGS_MAX else []
        if found:
            arm, workload, change = max(found, key=lambda one: abs(math.log(one[2])))
            longer = max(2 * seconds, FIRST_SECONDS)
            findings.append(
                RampFinding(round=last, arm=arm, workload=workload, change=change, before=seconds, after=longer)
            )
            seconds, begin = longer, last + 1
    return Ramp(seconds=seconds, findings=tuple(findings))


def _rounds(study: Study, trials: Sequence[TrialRecord]) -> dict[int, list[TrialRecord]]:
    """Return the trials of each complete round; for a search, of every block of its race."""
    compared = {workload.name for workload in study.compared}
    found: dict[int, list[TrialRecord]] = {}
    for one in (one for one in trials if one.trial.workload in compared):
        found.setdefault(one.trial.round, []).append(one)
    if study.search is not None:
        return {number: same for number, same in found.items() if phase_of(number) is Phase.RACE}
    each = len(study.arms) * len(compared)
    return {number: same for number, same in found.items() if len(same) == each}


def ramp_at(ramp: Ramp, asked: float, number: int) -> float:
    """Return the ramp of a round for which `asked` seconds were requested."""
    return next((found.after for found in reversed(ramp.findings) if found.round < number), asked)


def _unsettled(trials: Sequence[TrialRecord]) -> Iterator[tuple[str, str, float]]:
    """Yield (arm, workload, second half / first half) where the halves differ clearly over the rounds."""
    series: dict[tuple[str, str], list[float]] = {}
    for trial, one in measured(trials):
        if set(one.causes) - PARDONABLE:
            continue  # others disturb both halves alike, but a trial that missed the disk has no warm-up
        if (change := halves(one.profile)) is not None:
            series.setdefault((trial.arm, trial.workload), []).append(change)
    for (arm, workload), changes in series.items():
        large = len(changes) >= ROUNDS_EACH - 1 and abs(fmean(changes)) >= math.log1p(HALVES_MIN)
        if large and _by_chance(changes) < BY_CHANCE / len(series):
            yield arm, workload, math.exp(fmean(changes))


def halves(profile: Sequence[float]) -> float | None:
    """Return ln(second half / first half) of a profile, the middle left out; None if there are too few slices, or if
    a half has no I/O.
    """
    half = len(profile) // 2
    if len(profile) < SLICES_MIN:
        return None
    first, second = fmean(profile[:half]), fmean(profile[-half:])
    return math.log(second / first) if first > 0 and second > 0 else None


def _by_chance(changes: Sequence[float]) -> float:
    """Return the two-sided p of Student's t that the mean of these is zero."""
    error = stdev(changes) / math.sqrt(len(changes))
    if error == 0:
        return 0.0 if fmean(changes) else 1.0
    # scipy takes longer to load than reading a study, so it is imported only when measuring
    from scipy.special import stdtr

    return 2 * float(stdtr(len(changes) - 1, -abs(fmean(changes)) / error))
