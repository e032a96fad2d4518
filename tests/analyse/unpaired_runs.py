# SPDX-License-Identifier: Apache-2.0
"""Comparisons of runs that are not paired."""

from virtune.analyse.stats.paired import Family, compare_unpaired
from virtune.model.metric import BY_ID
from virtune.model.verdict import BetweenRuns, Comparison


def compared(
    base: list[float],
    other: list[float],
    *,
    metric: str = "iops",
    confidence: float = 0.99,
    between: BetweenRuns | None = None,
) -> Comparison:
    family = Family(metric=BY_ID[metric], workload="w", margin=0.03, confidence=confidence, between_runs=between)
    return compare_unpaired(family, ("a", base), ("b", other))
