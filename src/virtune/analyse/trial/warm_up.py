# SPDX-License-Identifier: Apache-2.0
"""Find the warm-up (ramp) that a load needs: check whether the measured time still begins with a transient.

After every five rounds the second half of the measured time is compared with the first, per arm and over all rounds,
because the samples of a single trial are autocorrelated. Where the halves differ clearly, the ramp of all arms is
doubled. The result depends only on the stored trials, so a study that resumes after an interruption keeps the ramp
that it had found.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from virtune.analyse.trial.rejection import PARDONABLE
from virtune.model.evidence import TrialRecord
from virtune.model.result import RampFinding
from virtune.model.search import FIRST_ROUND, Phase, phase_of
from virtune.model.study import Study

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
    for one in trials:
        if one.measurement is None or set(one.measurement.causes) - PARDONABLE:
            continue  # others disturb both halves alike, but a trial that missed the disk has no warm-up
        if (change := halves(one.measurement.profile)) is not None:
            series.setdefault((one.trial.arm, one.trial.workload), []).append(change)
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
