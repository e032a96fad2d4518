# SPDX-License-Identifier: Apache-2.0
"""How stationary a host was: autocorrelation time, drift, variation between starts."""

import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

import numpy as np

from virtune.analyse.stats.student import two_sided
from virtune.model.fitness import Drift

DRIFT_LEVEL = 0.95

POINTS_MIN = 4
"""A line through fewer points has no usable error estimate."""


def correlation_of(profiles: Sequence[Sequence[float]], step: float) -> tuple[float | None, bool]:
    """Return the integrated autocorrelation time in seconds, and whether it goes on beyond the trials' length.

    1 + 2 x the sum of the autocorrelations up to the first that is not positive, over all trials around one mean.
    """
    values = [value for profile in profiles for value in profile]
    center = fmean(values) if values else 0.0
    spread = fmean((value - center) ** 2 for value in values) if values else 0.0
    if spread <= 0:
        return None, False
    total = 1.0
    around = [np.array(profile, dtype=np.float64) - center for profile in profiles]
    for lag in range(1, max(map(len, around))):
        longer = [profile for profile in around if len(profile) > lag]
        products = sum(float(profile[:-lag] @ profile[lag:]) for profile in longer)
        if products <= 0:
            return total * step, False
        total += 2 * products / sum(len(profile) - lag for profile in longer) / spread
    return total * step, True


SLOPE_MAX = math.log(1e6)
"""Where the interval includes a millionfold a minute, the times are too close together, or wrong: no drift is
reported.
"""


def drift_of(series: Mapping[str, Sequence[tuple[float, float]]]) -> Drift | None:
    """Return the slope of ln(rate) over time, common to all arms, by least squares, with Student's t on its error.

    `series` are (minutes, ln rate) by arm; each arm has a level of its own.
    """
    kept = [points for points in series.values() if len(points) > 1]
    free = sum(map(len, kept)) - len(kept) - 1
    if sum(map(len, kept)) < POINTS_MIN or free < 1:
        return None
    moved = [
        (time - when, value - level)
        for points in kept
        for when, level in [(fmean(x for x, _ in points), fmean(y for _, y in points))]
        for time, value in points
    ]
    width = math.fsum(time**2 for time, _ in moved)
    if width <= 0:
        return None
    slope = math.fsum(time * value for time, value in moved) / width
    left = math.fsum((value - slope * time) ** 2 for time, value in moved)
    radius = two_sided(DRIFT_LEVEL, free) * math.sqrt(left / free / width)
    if abs(slope) + radius > SLOPE_MAX:
        return None
    return Drift(per_minute=math.expm1(slope), low=math.expm1(slope - radius), high=math.expm1(slope + radius))


def between_starts(values: Sequence[tuple[Hashable, float]]) -> float | None:
    """Return the standard deviation (ln) between starts, besides the noise of trials within a start; 0 if none is
    detected.

    `values` are (start, ln value less the arm's mean). None unless several starts were measured, one of them more
    than once. Method of moments in a one-way layout (Searle, Casella, McCulloch 1992, 3.6).
    """
    groups: dict[Hashable, list[float]] = {}
    for start, value in values:
        groups.setdefault(start, []).append(value)
    count, starts = len(values), len(groups)
    if starts < 2 or count <= starts:
        return None
    center = fmean(value for _, value in values)
    within = math.fsum((value - fmean(one)) ** 2 for one in groups.values() for value in one) / (count - starts)
    between = math.fsum(len(one) * (fmean(one) - center) ** 2 for one in groups.values()) / (starts - 1)
    size = (count - math.fsum(len(one) ** 2 for one in groups.values()) / count) / (starts - 1)
    return math.sqrt(max(0.0, (between - within) / size))
