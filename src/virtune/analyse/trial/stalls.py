# SPDX-License-Identifier: Apache-2.0
"""Whether the slow ones among single I/Os come back periodically, by their autocorrelation.

The statistic is how high a peak of the autocorrelation of ln(latency) lies above the deepest point before it: high
for stalls at every tenth I/O and for a wave, low for a few stalls anywhere. A running median is subtracted first,
since latencies that only drift, or change once, have no period. Its false-alarm rate is the share of shuffles that
reach as much, so no distribution is assumed; what makes neighbours alike (an AR(1) model) is kept in them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from virtune.model.remark import PERIODIC_LEVEL, Remark
from virtune.model.remark_kinds import PERIODIC
from virtune.model.units import format_ns, format_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SHUFFLES = 999
_AT_ONCE = 37
"""So many shuffles are looked at together, which divides their number: all at once of 10,000 I/Os took 0.7 GB."""

_LEAST = 30
"""Of fewer I/Os no period of ten and no peak beyond chance can be seen."""

_LONGEST = 1 / 3
"""A period must have been there three times."""

_SEED = 5

_DIGITS = 19
"""Numbers with so many digits are no times: 10**18 ns are 31 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """The strongest period of a series of latencies: in I/Os, in time, and its false-alarm rate."""

    operations: int
    seconds: float
    chance: float


def operation_times(log: bytes) -> tuple[int, ...]:
    """Return the latency of each I/O in ns, in their order, from fio's log (`ms, ns, direction, size, offset`). Of
    several clones of a job, whose logs follow one another, those of the first: joined they are no series.
    """
    found: list[int] = []
    last = 0
    for line in log.splitlines():
        time, _, rest = line.partition(b",")
        words = time.strip(), rest.partition(b",")[0].strip()
        if not all(word.isdigit() and len(word) < _DIGITS for word in words):
            continue
        if int(time) < last:
            break
        last = int(time)
        found.append(int(words[1]))
    return tuple(found)


def strongest_period(latencies: Sequence[int]) -> Period | None:
    """Return the strongest period of a series, however weak; None for too few I/Os, or if all took the same time."""
    import numpy as np

    kept = [one for one in latencies if one > 0]
    if len(kept) < _LEAST or min(kept) == max(kept):
        return None
    values = _around_median(np.log(np.array(kept, dtype=np.float64)))
    heights = _heights(values[None, :])[0]
    reached = sum(int((_heights(rows).max(axis=1) >= heights.max() - 1e-12).sum()) for rows in _shuffled(values))
    lag = int(heights.argmax()) + 2
    mean = math.fsum(kept) / len(kept)
    return Period(operations=lag, seconds=lag * mean / 1e9, chance=(reached + 1) / (_SHUFFLES + 1))


def period_remarks(log: bytes) -> Iterator[Remark]:
    """Yield the remark on single I/Os whose latencies have a period."""
    found = strongest_period(operation_times(log))
    if found is None or found.chance > PERIODIC_LEVEL:
        return
    yield PERIODIC.remark(
        text=f"the latencies of single I/Os have a period of {found.operations} I/Os, about"
        f" {format_ns(found.seconds * 1e9)} (false-alarm rate {format_share(found.chance, 1)})",
    )


def _around_median(values: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return how far each value lies above the median of those around it."""
    import numpy as np

    reach = max(1, int(len(values) * _LONGEST / 2))
    around = np.array([np.median(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))])
    rest: NDArray[np.float64] = values - around
    return rest


def _shuffled(values: "NDArray[np.float64]") -> Iterator["NDArray[np.float64]"]:
    """Yield shuffles of a series, some rows at once, whose neighbours are as much correlated as its own."""
    import numpy as np

    total = float(values @ values)
    follows = max(0.0, float(values[:-1] @ values[1:]) / total) if total else 0.0
    news = values.copy()  # what each value adds to what the one before leads to expect
    news[1:] -= follows * values[:-1]
    chance = np.random.default_rng(_SEED)
    for _ in range(_SHUFFLES // _AT_ONCE):
        rows = chance.permuted(np.tile(news, (_AT_ONCE, 1)), axis=1)
        for at in range(1, len(values)):
            rows[:, at] += follows * rows[:, at - 1]
        yield rows


def _heights(series: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return for each series (a row) and each lag from 2 on how far its autocorrelation lies above the least before
    it.
    """
    import numpy as np

    count = series.shape[1]
    around = series - series.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(around, n=2 * count, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * count, axis=1)[:, : int(count * _LONGEST) + 1]
    correlation = products / np.maximum(products[:, :1], 1e-300)
    least = np.minimum.accumulate(correlation[:, 1:-1], axis=1)
    found: NDArray[np.float64] = correlation[:, 2:] - least
    return found
