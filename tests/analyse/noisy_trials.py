# SPDX-License-Identifier: Apache-2.0
"""Trials with a noise of their own."""

import math
from collections.abc import Callable
from random import Random

from virtune.model.evidence import InForce, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.study import Study

Shape = Callable[[str, int], float]


def noisy(asked: Study, shape: Shape, *, seed: int, sd: float = 0.06, rho: float = 0.7) -> tuple[TrialRecord, ...]:
    """Trials of 4 s in slices of 250 ms that remember their neighbours, as this project's recorded series do."""
    chance = Random(seed)
    found, level = [], 0.0
    for trial in asked.trials:
        profile = []
        for slice_ in range(16):
            level = rho * level + math.sqrt(1 - rho**2) * chance.gauss(0, sd)
            profile.append(50_000 * shape(trial.arm, slice_) * math.exp(level))
        measurement = Measurement(values=(), profile=tuple(profile), profile_seconds=0.25)
        found.append(TrialRecord(trial=trial, ended="", in_force=InForce(), measurement=measurement))
    return tuple(found)
