# SPDX-License-Identifier: Apache-2.0
"""Study 4's periodic stalls in words: in how many trials of each system the latencies have a period, and in how many
they would have one by chance.
"""

import math
from collections.abc import Iterator, Sequence

from virtune.model.remark import PERIODIC_CHANCE
from virtune.model.remark_kinds import PERIODIC
from virtune.model.result import Result
from virtune.model.study import Arm
from virtune.report.text.builtin.sign_words import LEVEL
from virtune.report.text.words import chance_text


def at_least(count: int, trials: int, share: float) -> float:
    """Return the probability of so many or more of so many trials, each with that probability."""
    return math.fsum(
        math.comb(trials, one) * share**one * (1 - share) ** (trials - one) for one in range(count, trials + 1)
    )


def period_findings(result: Result, arms: Sequence[Arm]) -> Iterator[str]:
    """Say of each system with such trials how many there are, with an example of the last."""
    for arm in arms:
        mine = [one for one in result.arms if one.arm == arm.name]
        found = [(one, remark) for one in mine for remark in one.remarks if remark.remark.id == PERIODIC.id]
        count, trials = sum(remark.rounds for _, remark in found), sum(one.rounds for one in mine)
        if not count:
            continue
        chance = at_least(count, trials, PERIODIC_CHANCE)
        if chance >= LEVEL:
            told = "as may be by chance"
        else:
            summary, remark = max(found, key=lambda pair: pair[1].rounds)
            told = f"more than by chance; under {summary.workload} {remark.remark.text}"
        yield f"{arm.name}: the latencies of {count} of {trials} trials have a period ({chance_text(chance)}), {told}"
