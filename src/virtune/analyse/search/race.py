# SPDX-License-Identifier: Apache-2.0
"""A race of many arms: measure in blocks, drop arms that cannot be the best or that break a limit, stop when the
rest are as good as the leader.

Every block measures the arms of `up_next` once, in random order. An arm is eliminated when it is certainly below the
leader, and parked when it is at most the margin above it. These decisions hold at any time with the stated error:
only comparisons of the true best with the others can go wrong, and only in one direction, so N - 1 one-sided
intervals share the error. (Racing: Maron, Moore 1994; parking: the upper bounds of LUCB, Kalyanakrishnan et al.
2012.)

The standing is a function of the blocks and the rules only, so a race that was killed resumes from its stored blocks.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from virtune.analyse.stats.anytime import LN_MAX, blocks_for, contrast, contrasts, levels, logs
from virtune.analyse.stats.noise import Values
from virtune.model.metric import BY_ID
from virtune.model.search import Limit
from virtune.model.tuning import Contrast, LimitCheck, LimitState, Place, RaceRules, Runner, Standing

_MOVES_MAX = 4
"""Bounds the moves of the leader: pairwise differences over unequal blocks need not be transitive."""


def standing_after(
    arms: Sequence[str],
    rules: RaceRules,
    blocks: Iterable[Mapping[str, float]],
    *,
    plots: Mapping[str, Hashable] | None = None,
) -> Standing:
    """Return the standing of a race after these blocks: arm -> ln value, higher is better, NaN for a failed slice.

    `plots` is the whole plot of each arm, see `Race`.
    """
    race = Race(arms, rules, plots=plots)
    for block in blocks:
        race.add(block)
    return race.standing


class Race:
    """A race in progress: `add` blocks, read its `standing`.

    Arms of one whole plot share a process (or a guest's device) in a block. So the variation between starts affects
    differences between arms of different plots, and not within one plot. The noise of these two kinds of pairs is not
    pooled, and between plots the plots count as independent, not their arms.
    """

    def __init__(self, arms: Sequence[str], rules: RaceRules, *, plots: Mapping[str, Hashable] | None = None) -> None:
        self._arms = tuple(arms)
        self._plots = [None if plots is None else plots[arm] for arm in arms]
        self._rules = rules
        self._rows: list[list[float]] = []
        self._asked = dict.fromkeys(self._arms, 0)
        self._begin = 0
        self._look = rules.blocks_min
        self._leader: int | None = None
        self._out: dict[int, tuple[int, Contrast]] = {}
        self._found: dict[int, Contrast] = {}
        self._hot: set[int] = set()
        self._up_next = list(range(len(self._arms)))

    def add(self, block: Mapping[str, float]) -> None:
        """Add a finished block: ln values by arm, higher is better; NaN where a slice gave no value."""
        if self._rows and any(not self._asked[arm] for arm in block):
            # arms that join are judged as soon as the first ones were
            self._begin, self._look = len(self._rows), len(self._rows) + self._rules.blocks_min
            self._up_next = [index for index, arm in enumerate(self._arms) if arm in block]
        for arm in block:
            self._asked[arm] += 1
        values = (block.get(arm, math.nan) for arm in self._arms)
        self._rows.append([value if abs(value) <= LN_MAX else math.nan for value in values])
        if len(self._rows) >= self._look:
            since = len(self._rows) - self._begin
            self._look = self._begin + max(since + 1, math.ceil(since * self._rules.growth))
            self._judge()

    @property
    def standing(self) -> Standing:
        """Return the standing after the blocks so far."""
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
        """Interim analysis: update the leader, eliminate arms, choose those of the next block."""
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
            open_ = [index for index in open_ if index in self._hot] or open_
        assert self._leader is not None  # noqa: S101 - somebody of the living leads
        self._up_next = [self._leader, *open_]

    def _lead(self, values: Values, alive: Sequence[int]) -> None:
        """Compare the remaining arms with the leader; one with a better mean becomes the leader."""
        if self._rules.contenders_first:
            self._leader = self._front(values, alive)
            self._found = self._against(self._leader, values, alive)
            return
        before = self._leader
        leader = before if before is not None and before in alive else _highest(values, alive)
        for _ in range(_MOVES_MAX):
            self._leader, self._found = leader, self._against(leader, values, alive)
            better = {index: c.mean for index, c in self._found.items() if c.blocks > 1 and c.mean < 0}
            if not better:
                return
            leader = min(better, key=lambda index: better[index])

    def _against(self, leader: int, values: Values, alive: Sequence[int]) -> dict[int, Contrast]:
        """Return leader - arm for all other remaining arms, in their order."""
        others = [index for index in alive if index != leader]
        found: dict[int, Contrast] = {}
        for same in (True, False):
            kind = [index for index in others if (self._plots[index] == self._plots[leader]) is same]
            pairs, units = [(leader, index) for index in kind], None if same else self._plots
            found |= zip(kind, contrasts(values, pairs, alpha=self._alpha, doubt=0.0, units=units), strict=True)
        return {index: found[index] for index in others}

    @property
    def _alpha(self) -> float:
        """Two-sided, for `contrasts`: half of it is a comparison's share of the error, in the harmful direction."""
        arms = max(len(self._arms), self._rules.arms_max or 0)
        return min(1.0, 2 * self._rules.error / max(1, arms - 1))

    def _parked(self, found: Contrast) -> bool:
        return -found.low <= math.log1p(self._rules.margin)

    def _front(self, values: Values, alive: Sequence[int]) -> int:
        """Return the leader by all blocks together, and find the contenders."""
        here = values[:, list(alive)]
        (level, covariance), seen = levels(here), ~np.isnan(here).all(axis=0)
        lead = int(np.argmax(np.where(seen, level, -math.inf)))
        variance = np.diag(covariance) + covariance[lead, lead] - 2 * covariance[lead]
        hot = seen & (level[lead] - level < self._rules.hot * np.sqrt(np.maximum(variance, 0.0)))
        self._hot = {index for index, contends in zip(alive, hot, strict=True) if contends}
        return alive[lead]

    def _failed(self, index: int) -> bool:
        """Whether an arm was tried often enough to be judged, and never gave a value."""
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
        """Forecast the slices left: each open arm until it is parked or out, the leader as long as the slowest."""
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
    """Return the arm that is furthest above the median of its blocks; arms without a value rank last."""
    here = values[:, list(alive)]
    rows = here[~np.isnan(here).all(axis=1)]
    above = rows - np.nanmedian(rows, axis=1, keepdims=True)
    levels = [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else -math.inf for column in above.T]
    return alive[int(np.argmax(levels))]


Slices = Mapping[tuple[str, str], Sequence[Mapping[str, float]]]
"""(arm, workload) -> the metrics of each slice."""


def check_limits(limits: Sequence[Limit], slices: Slices, *, error: float) -> tuple[LimitCheck, ...]:
    """Check every arm against every limit under every workload; the probability of any error is at most `error`.

    For a percentile each slice gives one value: its uncertainty comes from the spread over slices, never from the
    number of I/Os.
    """
    alpha = min(1.0, 2 * error / max(1, len(limits) * len(slices)))
    return tuple(
        _check(arm, workload, limit, [one.get(limit.metric, math.nan) for one in values], alpha)
        for (arm, workload), values in slices.items()
        for limit in limits
    )


def state_of(checks: Sequence[LimitCheck], arm: str) -> LimitState:
    """Return the worst state of an arm over all limits; kept where there is no limit."""
    states = {check.state for check in checks if check.arm == arm}
    for worst in (LimitState.BROKEN, LimitState.OPEN):
        if worst in states:
            return worst
    return LimitState.KEPT


def _check(arm: str, workload: str, limit: Limit, values: Sequence[float], alpha: float) -> LimitCheck:
    here = [one for one in logs(values) if math.isfinite(one)]
    bound = math.log(limit.value)
    found = contrast(here, [bound] * len(here), alpha=alpha)
    if found.blocks == 0:
        return LimitCheck(arm=arm, workload=workload, limit=limit, blocks=0)
    known = math.isfinite(found.radius)
    low, high = (limit.value * math.exp(end) for end in (found.low, found.high)) if known else (None, None)
    below = BY_ID[limit.metric].better == "lower"
    state = LimitState.OPEN
    if known and (found.high <= 0 if below else found.low >= 0):
        state = LimitState.KEPT
    elif known and (found.low > 0 if below else found.high < 0):
        state = LimitState.BROKEN
    value = limit.value * math.exp(found.mean)
    return LimitCheck(
        arm=arm, workload=workload, limit=limit, blocks=found.blocks, value=value, low=low, high=high, state=state
    )
