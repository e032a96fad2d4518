# SPDX-License-Identifier: Apache-2.0
"""Checks of simulated hosts whose noise, memory and drift are known."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from tests.report.records import study

from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import Remark
from virtune.model.study import StudyKind

STEP = 0.25
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
EACH = 5
"""Seconds from the end of a trial to the end of the next: 4 measured, so there is 1 s of overhead."""


def host(*, sd: float, rho: float = 0.0, drift: float = 0.0, rounds: int = 6, seed: int = 1,
         gates: tuple[tuple[str, float], ...] = (), remarks: tuple[Remark, ...] = ()) -> StudyRecord:  # fmt: skip
    """A check on a host whose windows of 250 ms have a standard deviation of `sd` and remember by `rho` a window."""
    asked = replace(study(rounds), kind=StudyKind.CHECK)
    chance, level, made = Random(seed), 0.0, []
    for trial in asked.trials:
        profile = []
        for slice_ in range(20):  # the last four are the gap, in which nobody looks
            level = rho * level + math.sqrt(1 - rho**2) * chance.gauss(0, sd)
            now = (trial.number * EACH + slice_ * STEP) / 60
            profile.append(50_000 * math.exp(level + drift * now))
        seen = profile[:16]
        measurement = Measurement(
            values=(("iops", sum(seen) / len(seen)),),
            profile=tuple(seen),
            profile_seconds=STEP,
            gates=gates,
            remarks=remarks,
        )
        ended = (BEGUN + timedelta(seconds=EACH * trial.number)).isoformat(timespec="seconds")
        made.append(TrialRecord(trial=trial, ended=ended, in_force=InForce(), measurement=measurement))
    return StudyRecord(study=asked, facts="", finished=True, trials=tuple(made))
