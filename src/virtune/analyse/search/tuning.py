# SPDX-License-Identifier: Apache-2.0
"""The state of a search, computed from its stored trials only, so a killed search resumes where it was; and its race
of many arms: measure in blocks, drop arms that cannot be the best or that break a limit, stop when the rest are as
good as the leader.

Every block measures the arms of `up_next` once, in random order. An arm is eliminated when it is certainly below the
leader, and parked when it is at most the margin above it. These decisions hold at any time with the stated error:
only comparisons of the true best with the others can go wrong, and only in one direction, so N - 1 one-sided
intervals share the error. (Racing: Maron, Moore 1994; parking: the upper bounds of LUCB, Kalyanakrishnan et al.
2012.)
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from virtune.analyse.search.pilot import (
    BLOCKS_LEAST,
    PROBE_SLICES,
    BudgetSpent,
    Rows,
    block_fits,
    blocks_of,
    confirmed,
    entrants_of,
    levels_of,
    load_seconds,
    log_of,
    mean_of,
    pair_fits,
    probed_by,
    rows_of,
    search_of,
    slices_least,
    soak_slices,
    soaked,
    spent_by,
    to_join,
)
from virtune.analyse.stats.anytime import LN_MAX, blocks_for, contrast, contrasts, levels, logs
from virtune.analyse.stats.noise import Values
from virtune.analyse.study.summarise import with_steadiness
from virtune.analyse.study.verdicts import values_of
from virtune.analyse.trial.rejection import attempts_by_arm, pardons, percentile_of_sound, ramp_of
from virtune.model.evidence import StudyRecord, TrialRecord, Waiver, measured
from virtune.model.knobs import whole_plot
from virtune.model.measurement import percentile_of_all
from virtune.model.metric import BY_ID
from virtune.model.reason import Reason, Why, because
from virtune.model.remark import EMULATED, Weight
from virtune.model.result import Basis
from virtune.model.search import Limit, Phase, Search, phase_of
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.tuning import (
    UNSTABLE,
    Confirmation,
    Contrast,
    LimitCheck,
    LimitState,
    Place,
    Probed,
    RaceRules,
    Recommendation,
    Runner,
    Standing,
    Tuning,
)
from virtune.model.verdict import Verdict

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
        self._take(block)
        if len(self._rows) >= self._look:
            since = len(self._rows) - self._begin
            self._look = self._begin + max(since + 1, math.ceil(since * self._rules.growth))
            self._judge()

    def _take(self, block: Mapping[str, float]) -> None:
        if self._rows and any(not self._asked[arm] for arm in block):
            # arms that join are judged as soon as the first ones were
            self._begin, self._look = len(self._rows), len(self._rows) + self._rules.blocks_min
            self._up_next = [index for index, arm in enumerate(self._arms) if arm in block]
        for arm in block:
            self._asked[arm] += 1
        values = (block.get(arm, math.nan) for arm in self._arms)
        self._rows.append([value if abs(value) <= LN_MAX else math.nan for value in values])

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
    return next((worst for worst in (LimitState.BROKEN, LimitState.OPEN) if worst in states), LimitState.KEPT)


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


LIMIT_BLOCKS_MAX = 60
"""The most blocks spent on whether the leader keeps a limit; after them it stays undecided."""

REMARKS_TOLD = 0.1
"""A remark on a smaller share of the slices than this is not reported."""


def tuning(record: StudyRecord) -> Tuning:
    """Return the findings of a search's trials, however few they are."""
    study, search = record.study, search_of(record.study)
    attempts, ramp = record.attempts or record.trials, ramp_of(study, record.trials)
    pardoned = pardons(attempts)
    in_order = sorted(record.trials, key=lambda one: one.trial.number)
    by_phase = {phase: [one for one in in_order if phase_of(one.trial.round) is phase] for phase in Phase}
    probed = probed_by(study, search, by_phase[Phase.PROBE], pardoned)
    race = rows_of(raced := by_phase[Phase.RACE], pardoned)
    spent = spent_by(study, probed, attempts, ramp)
    standing, checks, broken = _race(study, search, probed, race, partial(_by_all, trials=raced, pardoned=pardoned))
    wanted = to_join(search, probed, standing, race)
    standing, wanted = _within_budget(study, probed, spent, standing, wanted, race)
    winner, distance = _winner(standing, checks, search)
    confirmation = confirmed(study, winner, by_phase[Phase.CONFIRM], pardoned)
    done = {phase: len({one.trial.round for one in trials}) for phase, trials in by_phase.items()}
    # the requested pairs, and at most as many again to replace pairs without both values, while there is time
    asked, tried = search.confirm_pairs, done[Phase.CONFIRM]
    lacks = tried < asked or (confirmation is not None and confirmation.pairs < asked and tried < 2 * asked)
    pairs = lacks and pair_fits(study, probed, spent)
    phase, finished = _phase(study, probed, winner, done, racing=bool(standing.up_next or wanted), pairs=pairs)
    recommendation, why = _recommend(record, winner, standing, checks, confirmation, finished=finished)
    return Tuning(
        study=study,
        phase=phase,
        finished=finished,
        probed=probed,
        standing=standing,
        broken=broken,
        checks=checks,
        winner=winner,
        distance=None if distance is None else distance / (1 + distance),
        tied=_tied(standing, study.margin),
        confirmation=confirmation,
        soaks=soaked(study, winner, rows_of(by_phase[Phase.SOAK], pardoned)),
        recommendation=recommendation,
        why=why,
        values=_values(study, search, raced, pardoned),
        measured_seconds=math.fsum(load_seconds(study, probed, ramp, one.round) for one, _ in measured(attempts)),
        elapsed_seconds=spent.elapsed,
        beside_seconds=spent.beside,
        race_seconds_left=spent.race_left,
        notes=(*(pardon.text for pardon in pardoned), *_remarks(record.trials)),
        repeated=len(attempts) - len(record.trials),
        attempts=attempts_by_arm(attempts),
        ramps=ramp.findings,
        basis=_basis(study, standing, raced),
        wanted=wanted if phase is Phase.RACE else 0,
        levels=levels_of(study, race) if wanted and phase is Phase.RACE else (),
    )


def _race(
    study: Study, search: Search, probed: Probed, rows: Rows, by_all: Callable[[LimitCheck], LimitCheck]
) -> tuple[Standing, tuple[LimitCheck, ...], tuple[tuple[str, int], ...]]:
    """Return the standing of the arms that break no limit, the limit checks, and which arms broke one and when."""
    goal, alive = search.goal, list(entrants_of(search, rows))
    slices: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    checks: tuple[LimitCheck, ...] = ()
    broken: list[tuple[str, int]] = []
    look = BLOCKS_LEAST
    for count, row in enumerate(rows.values(), 1):
        for place, values in row.items():
            slices.setdefault(place, []).append(values)
        if goal.limits and (count >= look or count == len(rows)):
            look = max(count + 1, math.ceil(count * 1.08))
            checks = check_limits(goal.limits, slices, error=search.error)
            found = [arm for arm in alive if state_of(checks, arm) is LimitState.BROKEN]
            broken += [(arm, count) for arm in found]
            alive = [arm for arm in alive if arm not in found]
    checks = tuple(map(by_all, checks))
    spent = sum(1 for row in rows.values() for arm in {arm for arm, _ in row} if arm not in alive)
    cap = None if probed.slices_max is None else max(0, probed.slices_max - spent)
    rules = RaceRules(
        margin=study.margin,
        error=search.error,
        contenders_first=search.mode == "quick" or search.tries is not None,
        slices_max=cap,
        arms_max=search.racing,
    )
    kept = [{arm: value for arm, value in block.items() if arm in alive} for block in blocks_of(study, rows)]
    plots = {arm: whole_plot(study.arm(arm).stack) for arm in alive}
    standing = _until_bounded(standing_after(alive, rules, kept, plots=plots), cap, search.racing)
    return _until_limits_are_known(standing, checks, cap, len(rows)), checks, tuple(broken)


def _by_all(check: LimitCheck, trials: Sequence[TrialRecord], pardoned: Sequence[Waiver]) -> LimitCheck:
    """Leave a limit on a percentile open that the mean of an arm's slices keeps and all their I/Os together break."""
    if check.state is not LimitState.KEPT:
        return check
    whole = percentile_of_sound(trials, check.arm, check.workload, BY_ID[check.limit.metric], pardoned)
    return check if whole is None or check.limit.kept_by(whole) else replace(check, state=LimitState.OPEN)


def _until_bounded(standing: Standing, cap: int | None, arms: int) -> Standing:
    """Continue a race that reached its block limit with the arms that have too few blocks for a bound.

    Measuring contenders first leaves the others at the fewest blocks, and then the winner has no bound on its
    distance to the best. A few more slices repair that; they may exceed the limit by at most two per arm.
    """
    if standing.up_next or standing.leader is None or standing.distance is not None or cap is None:
        return standing
    bare = [one.arm for one in standing.runners if one.place is Place.OPEN and one.better_at_most is None]
    if not bare or standing.slices + 1 + len(bare) > cap + 2 * arms:
        return standing
    return replace(standing, up_next=(standing.leader, *bare))


def _within_budget(
    study: Study, probed: Probed, spent: BudgetSpent, standing: Standing, wanted: int, rows: Rows
) -> tuple[Standing, int]:
    """End the race when its next block would leave too little time for the later phases.

    The last block within the budget measures the arms without a bound. The fewest blocks that allow a conclusion may
    use the time of the confirmation too; if even that is too little, no block is started.
    """
    if spent.race_left is None:
        return standing, wanted
    if not rows:
        fits = block_fits(study, probed, spent, arms=slices_least(search_of(study)), before=0, unconfirmed=True)
        return (standing, wanted) if fits or not probed.slices else (replace(standing, up_next=()), 0)
    counts = [len({arm for arm, _ in row}) for row in rows.values()]
    run, least, before = sum(counts), slices_least(search_of(study)), counts[-1]
    bare = sum(1 for one in standing.runners if one.place is Place.OPEN and one.better_at_most is None)
    more = 1 + bare if bare else 0

    def within(arms: int) -> bool:
        few = run + arms <= least
        return block_fits(study, probed, spent, arms=arms if few else arms + more, before=before, unconfirmed=few)

    if wanted and not within(wanted + 1):
        wanted = 0
    if wanted or not standing.up_next or within(len(standing.up_next)):
        return standing, wanted
    racing = search_of(study).racing
    last = _until_bounded(replace(standing, up_next=()), run, racing)
    # a budget smaller than the fewest blocks leaves nothing for that either
    in_time = block_fits(study, probed, spent, arms=len(last.up_next), before=before)
    return (last if in_time or run <= least else replace(standing, up_next=())), 0


def _until_limits_are_known(
    standing: Standing, checks: Sequence[LimitCheck], cap: int | None, blocks: int
) -> Standing:
    """Continue with the leader of a finished race while it is undecided whether it keeps the limits."""
    leader = standing.leader
    if standing.up_next or leader is None or state_of(checks, leader) is not LimitState.OPEN:
        return standing
    if blocks >= LIMIT_BLOCKS_MAX or (cap is not None and standing.slices >= cap):
        return standing
    return replace(standing, up_next=(leader,))


def _winner(standing: Standing, checks: Sequence[LimitCheck], search: Search) -> tuple[str | None, float | None]:
    """Return the recommended arm and a bound on how far it is below the best.

    It is the leader, unless that may break a limit and another arm certainly keeps all of them.
    """
    leader = standing.leader
    if leader is None or not search.goal.limits or state_of(checks, leader) is LimitState.KEPT:
        return leader, standing.distance
    safe = {arm for arm in {check.arm for check in checks} if state_of(checks, arm) is LimitState.KEPT}
    found = [(one.arm, one.against_leader) for one in standing.runners if one.arm in safe]
    known = [(arm, against) for arm, against in found if against is not None]
    if not known:
        return leader, standing.distance
    best, behind = min(known, key=lambda pair: pair[1].mean)
    if standing.distance is None or not math.isfinite(behind.high):
        return best, None
    return best, (1 + standing.distance) * math.exp(max(0.0, behind.high)) - 1


def _tied(standing: Standing, margin: float) -> tuple[str, ...]:
    reach = math.log1p(margin)
    open_ = (one for one in standing.runners if one.place in (Place.PARKED, Place.OPEN))
    found = ((one.arm, against) for one in open_ if (against := one.against_leader) is not None)
    return tuple(arm for arm, against in found if -reach <= against.low and against.high <= reach)


def _phase(
    study: Study, probed: Probed, winner: str | None, rounds: Mapping[Phase, int], *, racing: bool, pairs: bool
) -> tuple[Phase, bool]:
    """Return the next phase, and whether the search is finished; `rounds` are the finished rounds of each phase."""
    if probed.slices < PROBE_SLICES:
        return Phase.PROBE, False
    # what is confirmed is fresh data for one winner: a race that another pardon opens again would invalidate them
    if racing and not rounds[Phase.CONFIRM] and not rounds[Phase.SOAK]:
        return Phase.RACE, False
    if winner is None:
        return Phase.RACE, True
    if winner != study.baseline and pairs:
        return Phase.CONFIRM, False
    arms = 1 if winner == study.baseline else 2
    if rounds[Phase.SOAK] < arms * soak_slices(search_of(study)):
        return Phase.SOAK, False
    return (Phase.CONFIRM if rounds[Phase.CONFIRM] else Phase.RACE), True


def _recommend(
    record: StudyRecord,
    winner: str | None,
    standing: Standing,
    checks: Sequence[LimitCheck],
    confirmation: Confirmation | None,
    *,
    finished: bool,
) -> tuple[Recommendation, Why]:
    study, search = record.study, search_of(record.study)
    if any(remark.id == EMULATED.id for _, one in measured(record.trials) for remark in one.remarks):
        return Recommendation.UNDECIDED, because(Reason.EMULATED)
    if winner is None:
        if not standing.runners:
            return Recommendation.UNDECIDED, because(Reason.ALL_BREAK_A_LIMIT)
        return Recommendation.UNDECIDED, because(Reason.NO_LEADER)
    if not finished:
        return Recommendation.UNDECIDED, because(Reason.NOT_FINISHED)
    doubtful = bool(search.goal.limits) and state_of(checks, winner) is not LimitState.KEPT
    if doubtful or (confirmation is not None and confirmation.breaks):
        return Recommendation.UNDECIDED, because(Reason.MAY_BREAK_A_LIMIT)
    if winner == study.baseline:
        return Recommendation.KEEP, because(Reason.BASELINE_LEADS)
    if confirmation is None:
        return Recommendation.UNDECIDED, because(Reason.NOT_CONFIRMED)
    if confirmation.verdict is Verdict.BETTER:
        if confirmation.unstable:
            return Recommendation.UNDECIDED, because(Reason.UNSTABLE, most=format_share(UNSTABLE))
        return Recommendation.CHANGE, because(Reason.CONFIRMED)
    if confirmation.verdict is Verdict.UNDECIDED:
        return Recommendation.UNDECIDED, because(Reason.CONFIRMATION_OPEN, why=confirmation.why.text)
    return Recommendation.KEEP, because(Reason.CONFIRMED_NO_BETTER, why=confirmation.why.text)


def _values(
    study: Study, search: Search, trials: Sequence[TrialRecord], pardoned: Sequence[Waiver]
) -> tuple[tuple[str, float], ...]:
    """Return the goal's metric by arm under the first workload; a percentile from the slices' merged histograms."""
    metric, first = search.goal.improves, study.workloads[0].name
    by_arm: dict[str, list[TrialRecord]] = {}
    for one in trials:
        if one.trial.workload == first and values_of(one, pardoned):
            by_arm.setdefault(one.trial.arm, []).append(one)
    found = []
    for arm, mine in by_arm.items():
        if metric.percent is not None:
            value = percentile_of_all([one.histogram_of(metric.of) for _, one in measured(mine)], metric.percent)
        else:
            logs = [log_of(values_of(one, pardoned).get(metric.id)) for one in mine]
            value = mean_of(one for one in logs if math.isfinite(one))
        if value is not None:
            found.append((arm, value))
    return tuple(found)


def _remarks(trials: Sequence[TrialRecord]) -> Iterator[str]:
    """Yield the remarks made on at least a tenth of all slices, with their arms."""
    found: dict[str, list[tuple[str, str]]] = {}
    for trial, one in measured(trials):
        for remark in one.remarks:
            if remark.weight is not Weight.NOTE:
                found.setdefault(remark.id, []).append((trial.arm, remark.text))
    for same in found.values():
        if len(same) >= REMARKS_TOLD * len(trials):
            arms = list(dict.fromkeys(arm for arm, _ in same))
            who = ", ".join(arms[:3]) + (f" and {len(arms) - 3} more" if len(arms) > 3 else "")
            yield f"{same[0][1]} ({len(same)} of {len(trials)} slices: {who})"


def _basis(study: Study, standing: Standing, race: Sequence[TrialRecord]) -> tuple[Basis, ...]:
    """Return the evidence behind the race once it is over; it is not needed earlier."""
    if standing.up_next or not race:
        return ()
    found = [one.against_leader for one in standing.runners if one.against_leader is not None]
    known = [one for one in found if one.sd is not None]
    return tuple(
        with_steadiness(
            Basis(
                workload=workload.name,
                rounds=standing.blocks,
                noise=median(one.sd or 0.0 for one in known) if known else None,
                lag1=median(one.lag1 for one in known) if known else None,
                seconds_left=None,
            ),
            study,
            race,
        )
        for workload in study.workloads
    )
