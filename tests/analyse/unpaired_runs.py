# SPDX-License-Identifier: Apache-2.0
"""Comparisons of runs that are not paired."""

from virtune.analyse.stats.paired import compare_unpaired
from virtune.model.metric import BY_ID
from virtune.model.verdict import Comparison


def compared(base: list[float], other: list[float], *, metric: str = "iops", confidence: float = 0.99) -> Comparison:
    return compare_unpaired(
        BY_ID[metric], ("a", base), ("b", other), workload="w", margin=0.03, confidence=confidence
    )
