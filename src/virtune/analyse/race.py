# SPDX-License-Identifier: Apache-2.0
"""A race of many arms: measure in blocks, drop who cannot be the best, stop when the rest are as good as the leader.

Every block measures the arms that are `up_next` once, in random order. An arm is eliminated when it is below the
leader for certain, and parked when it is at most the margin above it. What is said holds at any time, because only
the comparisons of the true best with the others can do harm, and only in one direction: N - 1 one-sided intervals
share the error. (Racing: Maron, Moore 1994; parking: the upper bounds of LUCB, Kalyanakrishnan et al. 2012.)

A race is nothing but its history and its rules: the same blocks give the same standing, so one that was killed goes
on from its blocks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from virtune.analyse.anytime import LN_MAX, Values, blocks_for, contrasts
from virtune.model.standing import Contrast, Place, RaceRules, Runner, Standing

_MOVES_MAX = 4
"""The leader moves along pairwise differences; with unequal blocks these need not be transitive, so it ends."""


def standing_after(arms: Sequence[str], rules: RaceRules, blocks: Iterable[Mapping[str, float]]) -> Standing:
    """Return the standing of a race after these blocks: arm -> ln value, higher is better, NaN for a failed slice."""
    race = Race(arms, rules)
    for block in blocks:
        race.add(block)
    return race.standing


class Race:
    """A race as it goes on: `add` blocks, read its `standing`."""

    def __init__(self, arms: Sequence[str], rules: RaceRules) -> None:
        self._arms = tuple(arms)
        self._rules = rules
        self._rows: list[list[float]] = []
        self._asked = dict.fromkeys(self._arms, 0)
        self._look = rules.blocks_min
        self._leader: int | None = None
        self._out: dict[int, tuple[int, Contrast]] = {}
        self._found: dict[int, Contrast] = {}
        self._up_next = list(range(len(self._arms)))

    def add(self, block: Mapping[str, float]) -> None:
        """Take in a finished block: ln values by arm, higher is better; NaN where a slice gave nothing."""
        for arm in block:
            self._asked[arm] += 1
        values = (block.get(arm, math.nan) for arm in self._arms)
        self._rows.append([value if abs(value) <= LN_MAX else math.nan for value in values])
        if len(self._rows) >= self._look:
            self._look = max(len(self._rows) + 1, math.ceil(len(self._rows) * self._rules.growth))
            self._judge()

    @property
    def standing(self) -> Standing:
        """Return what the blocks so far say."""
        runners = tuple(self._runner(index) for index in range(len(self._arms)))
        bounds = [runner.better_at_most for runner in runners if runner.place is not Place.FAILED]
        known = self._leader is not None and None not in bounds
        distance = max((bound for bound in bounds if bound is not None), default=0.0) if known else None
        certified = distance is not None and distance <= self._rules.margin
        slices, cap = sum(self._asked.values()), self._rules.slices_max
        over = certified or (cap is not None and slices + len(self._up_next) > cap)
        return Standing(
            blocks=len(self._rows),
            slices=slices,
            leader=None if self._leader is None else self._arms[self._leader],
            runners=runners,
            distance=distance,
            certified=certified,
            up_next=() if over else tuple(self._arms[index] for index in self._up_next),
            slices_left=0 if certified else self._slices_left(),
        )

    def _judge(self) -> None:
        """Look: move the leader, eliminate, and say who is measured next."""
        values = np.array(self._rows, dtype=np.float64)
        alive = [index for index in range(len(self._arms)) if index not in self._out and not self._failed(index)]
        if not alive:
            self._leader, self._up_next = None, []
            return
        self._lead(values, alive)
        for index, found in list(self._found.items()):
            if found.low > 0:
                self._out[index] = (len(self._rows), self._found.pop(index))
        open_ = [index for index, found in self._found.items() if not self._parked(found)]
        if self._rules.contenders_first:
            open_ = [index for index in open_ if self._hot(self._found[index])] or open_
        assert self._leader is not None  # noqa: S101 - somebody of the living leads
        self._up_next = [self._leader, *open_]

    def _lead(self, values: Values, alive: Sequence[int]) -> None:
        """Hold the living against the leader, and whoever looks better than it becomes the leader."""
        before = self._leader
        leader = before if before is not None and before in alive else _highest(values, alive)
        for _ in range(_MOVES_MAX):
            others = [index for index in alive if index != leader]
            found = contrasts(values, [(leader, index) for index in others], alpha=self._alpha, doubt=0.0)
            self._leader, self._found = leader, dict(zip(others, found, strict=True))
            better = {index: c.mean for index, c in self._found.items() if c.blocks > 1 and c.mean < 0}
            if not better:
                return
            leader = min(better, key=lambda index: better[index])

    @property
    def _alpha(self) -> float:
        """Two-sided, for `contrasts`: half of it is a comparison's share of the error, in the one bad direction."""
        return min(1.0, 2 * self._rules.error / max(1, len(self._arms) - 1))

    def _parked(self, found: Contrast) -> bool:
        return -found.low <= math.log1p(self._rules.margin)

    def _hot(self, found: Contrast) -> bool:
        return found.sd is None or found.mean < self._rules.hot * found.sd / math.sqrt(found.blocks)

    def _failed(self, index: int) -> bool:
        """Whether an arm was tried as often as it takes to judge, and never gave a value."""
        never = all(not math.isfinite(row[index]) for row in self._rows)
        return never and self._asked[self._arms[index]] >= self._rules.blocks_min

    def _runner(self, index: int) -> Runner:
        arm = self._arms[index]
        blocks = sum(1 for row in self._rows if math.isfinite(row[index]))
        if index in self._out:
            after, found = self._out[index]
            return Runner(arm=arm, place=Place.ELIMINATED, blocks=blocks, against_leader=found, out_after=after)
        against = self._found.get(index)
        if index == self._leader:
            place = Place.LEADER
        elif self._failed(index):
            place = Place.FAILED
        else:
            place = Place.PARKED if against is not None and self._parked(against) else Place.OPEN
        return Runner(arm=arm, place=place, blocks=blocks, against_leader=against)

    def _slices_left(self) -> int | None:
        """Forecast: each open arm until it is parked or out, and the leader as long as the slowest of them."""
        wanted = []
        for found in self._found.values():
            if self._parked(found):
                continue
            if found.sd is None:
                return None
            reach = math.log1p(self._rules.margin) + max(0.0, found.mean)
            count = blocks_for(reach, sd=found.sd, alpha=self._alpha, arms=len(self._found) + 1)
            if count is None:
                return None
            wanted.append(max(1, count - found.blocks))
        return sum(wanted) + max(wanted) if wanted else None


def _highest(values: Values, alive: Sequence[int]) -> int:
    """Return who is most above the middle of its blocks; of arms without a value none is."""
    here = values[:, list(alive)]
    rows = here[~np.isnan(here).all(axis=1)]
    above = rows - np.nanmedian(rows, axis=1, keepdims=True)
    levels = [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else -math.inf for column in above.T]
    return alive[int(np.argmax(levels))]
