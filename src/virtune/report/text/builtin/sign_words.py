# SPDX-License-Identifier: Apache-2.0
"""Study 4's findings in words, each with a sign test: in how many workloads one arm's value is greater than the
other's.

Each workload counts as one trial of the test. Where the count is not significant, the text says so.
"""

import math
from collections.abc import Iterator, Sequence

from virtune.model.result import Result
from virtune.model.study import Arm
from virtune.model.workload import Workload
from virtune.report.text.words import chance_text

LEVEL = 0.05
"""The two-sided significance level."""

Cell = tuple[float, float]
"""Two values of one workload, or of one kind of I/O under two background loads: the one in question, and the one it
is compared with.
"""


def sign_probability(greater: int, cells: int) -> float:
    """Return the two-sided p of the sign test for a count."""
    if cells == 0:
        return 1.0
    far = max(greater, cells - greater)
    tail = sum(math.comb(cells, count) for count in range(far, cells + 1))
    return min(1.0, 2 * tail / float(2**cells))


def operation_findings(result: Result, arms: Sequence[Arm]) -> Iterator[str]:
    """Say for each finding of the paper whether it is reproduced here."""
    for arm in arms:
        yield from _beside_load(result, arm)
    by_name, base = {arm.name: arm for arm in arms}, arms[0]
    asked = [(f"{arm.name} is faster in the mean than {base.name}", base.name, arm.name) for arm in arms[1:]]
    named = [
        ("one vCPU is faster in the mean than two", "KVM", "KVM-1-vCPU"),
        ("KVM is faster in the mean without a second, idle VM", "KVM-beside-an-idle-VM", "KVM"),
        ("virtio is faster in the mean than the emulated disk", "KVM-emulated-disk", "KVM"),
        ("KVM is faster in the mean where the host's page cache is warm", "KVM", "KVM-warm-cache"),
        ("bare metal is faster in the mean with all cores than with one", "bare-1-core", "bare"),
    ]
    # these say what an arm is by its name, so both are to be there and as in the study
    asked += [one for one in named if all(name in by_name and result.study.keeps(name) for name in one[1:])]
    for words, slow, fast in asked:
        if pairs := list(_between(result, by_name[slow], by_name[fast], "latency.mean")):
            yield f"{words} in {_count(pairs, 'cells')}"


def _beside_load(result: Result, arm: Arm) -> Iterator[str]:
    """Say for how many kinds of I/O the greatest latency is greater beside the largest background load than alone."""
    kinds: dict[str, list[float | None]] = {}
    for workload in result.study.compared:
        stem, marked, _ = workload.name.partition("-load")
        if marked:
            kinds.setdefault(stem, []).append(_value(result, arm, workload, "latency.max"))
    ends = [(of[-1], of[0]) for of in kinds.values() if len(of) > 1]  # the most background load, and none of it
    pairs = [(beside, alone) for beside, alone in ends if alone is not None and beside is not None]
    if pairs:
        yield f"{arm.name}: maximum higher beside the most background load in {_count(pairs, 'kinds of I/O')}"


def _count(pairs: Sequence[Cell], of: str) -> str:
    """Return in how many pairs the first is greater, and whether that is significant; ties are left out."""
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    greater, count = sum(one > other for one, other in apart), len(apart)
    chance = sign_probability(greater, count)
    said = f"{greater} of {count} {of} (sign test: {chance_text(chance)}"
    if chance >= LEVEL:
        return f"{said}, so chance may do it)"
    return f"{said})" if greater > count / 2 else f"{said}: the opposite is so)"


def _between(result: Result, slow: Arm, fast: Arm, metric: str) -> Iterator[Cell]:
    """Yield the values of the arm said to be slower and of the one said to be faster."""
    for workload in result.study.compared:
        first, second = _value(result, slow, workload, metric), _value(result, fast, workload, metric)
        if first is not None and second is not None:
            yield first, second


def _value(result: Result, arm: Arm, workload: Workload, metric: str) -> float | None:
    found = result.value(arm.name, workload.name, metric)
    return None if found is None else found.value
