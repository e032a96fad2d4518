# SPDX-License-Identifier: Apache-2.0
"""A Sweep: one stack under offered loads, step by step up to saturation, and the results of the curve."""

from dataclasses import dataclass

from virtune.model.reason import Why
from virtune.model.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One offered load, over its rounds. Rates in IOPS, `latency_ns` the mean.

    `met`: the stack achieved the offered rate. `power` is achieved IOPS by mean latency, as each round's logarithm;
    `excess` each round's logarithm of the limited metric over its limit, empty where no limit was set.
    """

    workload: str
    offered: float
    achieved: tuple[float, ...]
    met: bool
    latency_ns: float
    power: tuple[float, ...]
    excess: tuple[float, ...] = ()

    @property
    def iops(self) -> float:
        """What was achieved, the mean of the rounds."""
        return sum(self.achieved) / len(self.achieved)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEstimate:
    """A load in IOPS with the interval that it lies in; None for an end that no load bounded."""

    iops: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSweep:
    """The result of a sweep.

    `saturation` is the highest rate that the stack achieved. `knee` is the load with the greatest power (achieved
    IOPS by mean latency, Kleinrock 1979): beyond it more load adds latency rather than throughput. `most` is the
    greatest load at which the study's limit holds. Each is None where the sweep did not find it, and `why` then says
    so.

    `gaps` are the pairs of neighbouring loads between which more loads are needed; `above` and `below` are the loads
    beyond which the curve has to be extended.
    """

    study: Study
    finished: bool
    points: tuple[LoadPoint, ...]
    saturation: LoadEstimate | None
    knee: LoadEstimate | None
    most: LoadEstimate | None
    why: tuple[Why, ...]
    gaps: tuple[tuple[float, float], ...] = ()
    above: float | None = None
    below: float | None = None
