# SPDX-License-Identifier: Apache-2.0
"""Attempts at trials: a failed or invalid one is repeated at once, and a ramp that was too short is lengthened.

All decisions depend on the stored attempts only, so an interrupted study resumes without a difference.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from virtune.analyse.trial.rejection import Ramp, ramp_of, unsettled, why_again
from virtune.fio.jobfile import own_times
from virtune.flows.run.pace import Pace
from virtune.flows.run.trial import Tools, run_trial
from virtune.flows.stored.show import by_todays_method
from virtune.model.errors import StoreError
from virtune.model.event import Event, Noticed
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import COPY, SIMULATED, Weight, label_of
from virtune.model.study import Study, StudyKind, Trial
from virtune.model.text import format_count, format_ns
from virtune.store.store import Store

COPIED_IOS = 10
"""Fewer latencies may be the same in two runs by chance."""


def still_to_run(record: StudyRecord) -> tuple[Trial, ...]:
    """Return the trials left to run, first the one that was interrupted between two attempts."""
    pending = None if record.study.kind is StudyKind.CHECK else unsettled(record.attempts, most=record.study.attempts)
    return record.left if pending is None or pending in record.left else (pending, *record.left)


class Attempts:
    """Runs the trials of one study, with repeats as needed; `make` stores every attempt."""

    def __init__(
        self, study: Study, tools: Tools, *, store: Store, say: Callable[[Event], None], pace: Pace | None = None
    ) -> None:
        self._pace = pace
        self._study, self._tools, self._store, self._say = study, tools, store, say
        record = by_todays_method(store, study.id)
        self._made = list(record.attempts)
        self._stand = {one.trial.number: one for one in record.trials}
        # a job file with its own ramp is run unchanged
        self._fixed = any(own_times(workload)[1] is not None for workload in study.workloads)
        self._ramp = Ramp(seconds=study.ramp_seconds)
        self._round = 0

    @property
    def made(self) -> tuple[TrialRecord, ...]:
        """Every attempt so far, those of earlier runs of the study too."""
        return tuple(self._made)

    def make(self, trial: Trial) -> TrialRecord:
        """Run a trial until its result counts, and return that."""
        self._set_ramp(trial)
        while True:
            begun = time.monotonic()
            asked = replace(self._study, ramp_seconds=self._ramp.seconds)
            record, captures = run_trial(asked, trial, self._tools)
            count = 1 + sum(one.trial.number == trial.number for one in self._made)
            record = self._not_a_copy(replace(record, attempt=count))
            if not self._store.add_trial(self._study.id, record, captures):
                said = (
                    f"another process runs study {self._study.id} too: trial {trial.number} is in the store already"
                )
                raise StoreError(said, hint="when that one is over, `virtune resume` goes on with what is left")
            self._made.append(record)
            self._stand[trial.number] = record
            # a check measures the host as it is, for about the requested time
            as_it_is = self._study.kind is StudyKind.CHECK and record.failure is None
            again = None if as_it_is else why_again(trial, self._made, most=self._study.attempts)
            if self._pace is not None:
                took = time.monotonic() - begun
                seconds = asked.seconds + asked.ramp_seconds
                self._pace.ran(trial.arm, asked=seconds, took=took, repeated=again is not None)
            if again is None:
                return record
            self._say(Noticed(text=f"trial {trial.number} ({trial.arm}) {again}"))

    def _not_a_copy(self, record: TrialRecord) -> TrialRecord:
        """Make a trial invalid that has the figures of an earlier one, and that one too: one of them did not run."""
        for index, earlier in enumerate(self._made):
            if earlier.measurement is None or not _same_figures(earlier.measurement, record.measurement):
                continue
            marked = _marked(earlier.measurement, record.trial)
            self._made[index] = first = replace(earlier, measurement=marked)
            if self._stand[first.trial.number] == earlier:
                self._stand[first.trial.number] = first
            self._store.add_measurement(self._study.id, first.trial.number, marked, attempt=first.attempt)
            return replace(record, measurement=_marked(earlier.measurement, first.trial))
        return record

    def record(self, study: Study) -> StudyRecord:
        """Return the stored study so far, without reading all of it again."""
        trials = tuple(self._stand[number] for number in sorted(self._stand))
        return StudyRecord(study=study, facts="", finished=False, trials=trials, attempts=tuple(self._made))

    def _set_ramp(self, trial: Trial) -> None:
        if trial.round == self._round or self._fixed:
            return
        self._round = trial.round
        known = len(self._ramp.findings)
        self._ramp = ramp_of(self._study, tuple(self._stand.values()), before_round=trial.round)
        for finding in self._ramp.findings[known:]:
            self._say(Noticed(text=finding.text))


def _same_figures(one: Measurement, other: Measurement | None) -> bool:
    """Whether two measurements are of the same I/Os: two runs never agree in every latency, to the last digit."""
    if other is None or one.histogram is None or one.histogram.count < COPIED_IOS:
        return False
    same = one.histogram == other.histogram and one.get("latency.mean") == other.get("latency.mean")
    return same and all(remark.id != SIMULATED.id for remark in one.remarks)


def _marked(measurement: Measurement, other: Trial) -> Measurement:
    text = f"its figures are those of trial {other.number} ({other.arm}) to the last digit: one of them did not run"
    return replace(measurement, remarks=(*measurement.remarks, COPY.remark(weight=Weight.INVALID, text=text)))


def summary_of(record: TrialRecord, *, offered: float | None = None) -> str:
    """Say in a line what a trial did, and with `offered` of how many I/Os a second."""
    if record.measurement is None:
        return f"no measurement: {record.failure}"
    iops, mean = record.measurement.get("iops"), record.measurement.get("latency.mean")
    words = [] if offered is None else [f"{format_count(offered)} offered"]
    words += [f"{format_count(iops)} IOPS"] if iops is not None else []
    words += [f"{format_ns(mean)} mean"] if mean is not None else []
    causes = map(label_of, record.measurement.causes)
    words += [f"disturbed: {', '.join(causes)}"] if record.measurement.causes else []
    return ", ".join(words)
