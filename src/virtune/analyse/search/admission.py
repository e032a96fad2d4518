# SPDX-License-Identifier: Apache-2.0
"""Who joins a race of a space that is too large to race all of it, and what the next proposals are made from.

The race decides and the proposals only feed it: a first handful is drawn at random, the leader meets the next ones as
soon as nobody else contends with it, and all of them are held against one another by the same intervals as ever.
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
"""So many join at once: few enough to learn from one another, and many enough to share the leader's slices."""

BLOCKS_MAX = 10
"""After so many blocks those who joined last contend no longer for more: near ties are settled in the end."""


def entrants_of(search: Search, rows: Rows) -> Sequence[str]:
    """Return who races: all, or those that have joined, in that order."""
    if search.tries is None:
        return search.ranked
    return tuple(dict.fromkeys(arm for row in rows.values() for arm, _ in row))


def to_join(search: Search, probed: Probed, standing: Standing, rows: Rows) -> int:
    """Return how many configurations are to join the race in its next block."""
    entrants = entrants_of(search, rows)
    count = min(JOIN if entrants else JOIN_FIRST, search.racing - len(entrants))
    if search.tries is None or count <= 0:
        return 0
    cap, blocks_min = probed.slices_max, RaceRules().blocks_min
    if cap is not None and standing.slices + blocks_min * (count + 1) > cap:
        return 0
    return 0 if entrants and _contended(standing, rows) else count


def _contended(standing: Standing, rows: Rows) -> bool:
    """Whether those who joined last are still to be told from the leader."""
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
    """Return ln of what each entrant did, on one scale, higher is better; nothing of one without a value."""
    blocks = [block_of(study, search.goal.improves, row) for row in rows.values()]
    arms = list(dict.fromkeys(arm for block in blocks for arm, value in block.items() if math.isfinite(value)))
    if not arms:
        return ()
    found = levels(np.array([[block.get(arm, math.nan) for arm in arms] for block in blocks]))[0]
    return tuple(zip(arms, map(float, found), strict=True))
