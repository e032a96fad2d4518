# SPDX-License-Identifier: Apache-2.0
"""Which configurations join a race when the space is too large to race all, and the data for the next proposals.

Proposals only add arms; the race decides. It starts with a few random configurations. New ones join when no other arm
may still be better than the leader, and all are compared by the same confidence intervals.
"""

import math
from collections.abc import Sequence

import numpy as np

from virtune.analyse.search.blocks import Rows, block_of
from virtune.analyse.search.pilot import JOIN_FIRST
from virtune.analyse.stats.mixed_model import levels
from virtune.model.search import Search
from virtune.model.standing import Place, RaceRules, Standing
from virtune.model.study import Study
from virtune.model.tuning import Probed

JOIN = 8
"""How many join at once: few enough that proposals can learn from them, and enough to share the leader's slices."""

BLOCKS_MAX = 10
"""After this many blocks the last to join no longer hold up new ones: near ties are decided at the end."""


def entrants_of(search: Search, rows: Rows) -> Sequence[str]:
    """Return the racing arms: all, or those that have joined, in that order."""
    if search.tries is None:
        return search.ranked
    return tuple(dict.fromkeys(arm for row in rows.values() for arm, _ in row))


def to_join(search: Search, probed: Probed, standing: Standing, rows: Rows) -> int:
    """Return how many configurations join the race in its next block."""
    entrants = entrants_of(search, rows)
    count = min(JOIN if entrants else JOIN_FIRST, search.racing - len(entrants))
    if search.tries is None or count <= 0:
        return 0
    cap, blocks_min = probed.slices_max, RaceRules().blocks_min
    if cap is not None and standing.slices + blocks_min * (count + 1) > cap:
        return 0
    return 0 if entrants and _contended(standing, rows) else count


def _contended(standing: Standing, rows: Rows) -> bool:
    """Whether any of the last to join may still be better than the leader."""
    seen: set[str] = set()
    last = 0
    for index, row in enumerate(rows.values()):
        arms = {arm for arm, _ in row}
        last, seen = (index if arms - seen else last), seen | arms
    blocks, rules = len(rows) - last, RaceRules()
    if blocks < rules.blocks_min:
        return True
    contenders = [
        one
        for one in standing.runners
        if one.place is Place.OPEN and (found := one.against_leader) is not None
        if found.sd is None or found.mean < rules.hot * found.sd / math.sqrt(found.blocks)
    ]
    return bool(contenders) and blocks < BLOCKS_MAX and bool(standing.up_next)


def levels_of(study: Study, search: Search, rows: Rows) -> tuple[tuple[str, float], ...]:
    """Return ln of each entrant's result on one scale, higher is better; entrants without a value are missing."""
    blocks = [block_of(study, search.goal.improves, row) for row in rows.values()]
    arms = list(dict.fromkeys(arm for block in blocks for arm, value in block.items() if math.isfinite(value)))
    if not arms:
        return ()
    found = levels(np.array([[block.get(arm, math.nan) for arm in arms] for block in blocks]))[0]
    return tuple(zip(arms, map(float, found), strict=True))
