# SPDX-License-Identifier: Apache-2.0
"""Forecast how long the rest of a study takes: from expectations before its trials, then from those that ran."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from virtune.bench.neighbour import IMAGE
from virtune.bench.scratch import bytes_to_fill
from virtune.flows.run.first_read import reads_first
from virtune.model.contradictions import images_of
from virtune.model.event import TrialPlace
from virtune.model.facts import Unknown
from virtune.model.stack import Disk, Stack
from virtune.model.study import Study, Trial
from virtune.plan.trials import (
    NOTHING_SEEN,
    SeenCosts,
    attempts_for,
    beside_seconds,
    most_rounds,
    setup_seconds,
    trial_seconds,
)
from virtune.probe.host import busy_facts

_BUSY_PERCENT = 40.0
"""If some task waited for a CPU in more than this share of the last 10 s, the first trials will be disturbed, as with
3 busy programs on 2 CPUs.
"""


def host_is_busy() -> bool:
    """Whether this host's CPU pressure is now so high that trials will be disturbed."""
    pressure = busy_facts().pressure
    if isinstance(pressure, Unknown):
        return False
    cpu = next((one.some_percent for one in pressure if one.resource == "cpu"), 0.0)
    return not isinstance(cpu, Unknown) and cpu > _BUSY_PERCENT


_BUSY_FACTOR = 2.0
"""The factor of a busy host on the overhead of an attempt, measured with 5 programs per CPU."""


class Pace:
    """The clock of a study: the time of its trials so far, and the forecast for those left."""

    def __init__(self, study: Study, *, done: int, busy: bool, seen: SeenCosts = NOTHING_SEEN) -> None:
        """`done` trials were stored by an earlier run, and count with their expected time; `seen` is the overhead in
        this host's studies.
        """
        self._study = study
        self._busy = busy
        self._seen = seen
        self._beside: dict[str, list[float]] = {}
        self._repeated: list[bool] = []
        self._done = done
        self._before = done * fmean(self._expected(arm.name) for arm in study.arms)
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds of the study since its first trial began."""
        return self._before + time.monotonic() - self._started

    @property
    def rounds(self) -> int:
        """How many whole rounds have run."""
        return (self._done + self._repeated.count(False)) // (len(self._study.arms) * len(self._study.workloads))

    def ran(self, arm: str, *, asked: float, took: float, repeated: bool) -> None:
        """Note an attempt: the seconds planned, the seconds taken, and whether it has to be repeated."""
        self._beside.setdefault(arm, []).append(took - asked)
        self._repeated.append(repeated)

    def left(self, trials: Iterable[Trial], *, rounds: int = 0) -> float:
        """Estimate the time of these trials, and of so many whole rounds after them."""
        arms = Counter(trial.arm for trial in trials)
        for arm in self._study.arms:
            arms[arm.name] += rounds * len(self._study.workloads)
        count = sum(arms.values())
        if not count:
            return 0.0
        once = sum(number * self._expected(arm) for arm, number in arms.items())
        return once * attempts_for(count, self._repeated, busy=self._busy) / count

    def _expected(self, arm: str) -> float:
        asked = self._study.seconds + self._study.ramp_seconds
        mine = self._beside.get(arm)
        if mine:
            return max(0.0, asked + fmean(mine))
        if not self._beside:
            busy = _BUSY_FACTOR if self._busy else 1.0
            return trial_seconds(self._study, self._study.arm(arm).stack, self._seen, busy=busy)
        # this arm is assumed to exceed its expected time as much as the others do
        more = [fmean(found) - self._usual(name) for name, found in self._beside.items()]
        return max(0.0, asked + self._usual(arm) + fmean(more))

    def _usual(self, arm: str) -> float:
        return beside_seconds(self._study.arm(arm).stack, self._seen)


def place_of(study: Study, trial: Trial, pace: Pace) -> TrialPlace:
    """Say where a trial stands in its round."""
    numbers = [one.number for one in study.trials if one.round == trial.round]
    return TrialPlace(number=numbers.index(trial.number) + 1, of=len(numbers), rounds=rounds_at_most(study, pace))


def rounds_at_most(study: Study, pace: Pace) -> int:
    """Return how many rounds a study has; for a sequential one about the most."""
    if not study.sequential:
        return study.rounds_begun
    most = most_rounds(study)
    if study.budget_seconds is None:
        return most
    room = (study.budget_seconds - pace.seconds) / max(0.001, pace.left((), rounds=1))
    return min(most, max(study.rounds_begun, pace.rounds + int(room)))


def seconds_left(study: Study, left: tuple[Trial, ...], pace: Pace) -> float:
    """Estimate the time left; for a sequential study the most."""
    if not study.sequential:
        return pace.left(left)
    most = pace.left(left, rounds=most_rounds(study) - study.rounds_begun)
    return most if study.budget_seconds is None else max(0.0, min(most, study.budget_seconds - pace.seconds))


def all_seconds(study: Study, seen: SeenCosts = NOTHING_SEEN) -> float:
    """Estimate the time of a study from its first step on; for a sequential one the most."""
    pace = Pace(study, done=0, busy=host_is_busy(), seen=seen)
    return before_seconds(study, seen) + seconds_left(study, study.trials, pace)


def before_seconds(study: Study, seen: SeenCosts = NOTHING_SEEN) -> float:
    """Estimate the time until the first trial can begin."""
    stacks = scratch_stacks(study)
    images = [(stack.disk, number) for stack in stacks for number in range(images_of(stack))]
    images += [(Disk(), IMAGE) for stack in stacks if stack.neighbour == "io"]
    to_fill = bytes_to_fill(Path(study.scratch), images, span_bytes=study.span_bytes)
    # what is filled is not read, and of a target it is known later how large it is
    lasting = len(set(images)) + (study.target is not None)
    to_read = max(0, study.span_bytes * lasting - to_fill) if reads_first(study) else 0
    return setup_seconds(study, bytes_to_fill=to_fill, bytes_to_read=to_read, seen=seen)


def scratch_stacks(study: Study) -> list[Stack]:
    """Return the stacks that stand on scratch images."""
    stacks = dict.fromkeys(arm.stack for arm in study.arms if arm.stack.disk.backend == "file")
    return [stack for stack in stacks if study.target is None or stack.place == "scratch"]
