# SPDX-License-Identifier: Apache-2.0
"""Compare two fio results with one run each, and say what that can and cannot show."""

import math

from virtune.analyse.trial.validity_rules import SPREAD_FACTOR, relative_spread
from virtune.model.measurement import FioResult
from virtune.model.remark import Remark
from virtune.model.remark_kinds import ONE_RUN_EACH
from virtune.model.units import format_count, format_share


def beside(first: FioResult, other: FioResult) -> Remark | None:
    """Judge by `one-run-each`."""
    iops = [math.fsum(load.iops for load in result.loads) for result in (first, other)]
    if min(iops) <= 0:
        return None
    apart = iops[1] / iops[0] - 1
    text = f"{format_count(iops[1])} IOPS against {format_count(iops[0])} is {format_share(apart, 1, signed=True)}"
    chances = [_chance(result) for result in (first, other)]
    if any(chance is None for chance in chances):
        text += ", by one run each: nothing here shows how far apart two runs of one and the same system would be."
        return ONE_RUN_EACH.remark(text=text)
    chance = math.hypot(*(chance or 0.0 for chance in chances))
    if abs(apart) <= chance:
        text += (
            ", by one run each. By their spread alone, two runs of one and the same system are up to"
            f" {format_share(chance, 1)}"
            " apart by chance: this shows no difference."
        )
    else:
        text += (
            f", by one run each. The spread within the runs explains up to {format_share(chance, 1)} of that;"
            " what changes between"
            " runs of one and the same system, one run each cannot show."
        )
    return ONE_RUN_EACH.remark(text=text)


def _chance(result: FioResult) -> float | None:
    """Half the relative 95 % interval of a run's IOPS from its samples; None unless it is one stream with samples."""
    streams = [(load, stream) for load in result.loads for stream in load.streams]
    if len(streams) != 1:
        return None
    spread = relative_spread(*streams[0])
    return None if spread is None else SPREAD_FACTOR * spread[0] / math.sqrt(spread[1])
