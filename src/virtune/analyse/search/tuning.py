# SPDX-License-Identifier: Apache-2.0
"""The state of a search, computed from its stored trials only, so a killed search resumes where it was."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from virtune.analyse.search.pilot import (
    BLOCKS_LEAST,
    PROBE_SLICES,
    BudgetSpent,
    Rows,
    block_fits,
    block_of,
    confirmed,
    entrants_of,
    levels_of,
    log_of,
    mean_of,
    pair_fits,
    probed_by,
    rows_of,
    search_of,
    seconds_of,
    slices_least,
    soak_slices,
    soaked,
    spent_by,
    to_join,
    values_of,
)
from virtune.analyse.search.race import check_limits, standing_after, state_of
from virtune.analyse.study.summarise import with_steadiness
from virtune.analyse.trial.rejection import Ramp, attempts_by_arm, pardons, ramp_at, ramp_of
from virtune.model.evidence import StudyRecord, TrialRecord, measured
from virtune.model.knobs import whole_plot
from virtune.model.measurement import merge
from virtune.model.reason import Reason, Why, because
from virtune.model.remark import EMULATED, Weight
from virtune.model.result import Basis, Waiver
from virtune.model.search import Phase, Search, phase_of
from virtune.model.study import Study
from virtune.model.text import format_share
from virtune.model.tuning import (
    UNSTABLE,
    Confirmation,
    LimitCheck,
    LimitState,
    Place,
    Probed,
    RaceRules,
    Recommendation,
    Standing,
    Tuning,
)
from virtune.model.verdict import Verdict

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
    race = rows_of(by_phase[Phase.RACE], pardoned)
    spent = spent_by(study, probed, attempts, ramp)
    standing, checks, broken = _race(study, search, probed, race)
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
        values=_values(study, search, by_phase[Phase.RACE], pardoned),
        measured_seconds=_measured(study, probed, attempts, ramp),
        elapsed_seconds=spent.elapsed,
        beside_seconds=spent.beside,
        race_seconds_left=spent.race_left,
        notes=(*(pardon.text for pardon in pardoned), *_remarks(record.trials)),
        repeated=len(attempts) - len(record.trials),
        attempts=attempts_by_arm(attempts),
        ramps=ramp.findings,
        basis=_basis(study, standing, by_phase[Phase.RACE]),
        wanted=wanted if phase is Phase.RACE else 0,
        levels=levels_of(study, search, race) if wanted and phase is Phase.RACE else (),
    )


def _race(
    study: Study, search: Search, probed: Probed, rows: Rows
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
    spent = sum(1 for row in rows.values() for arm in {arm for arm, _ in row} if arm not in alive)
    cap = None if probed.slices_max is None else max(0, probed.slices_max - spent)
    rules = RaceRules(
        margin=study.margin,
        error=search.error,
        contenders_first=search.mode == "quick" or search.tries is not None,
        slices_max=cap,
        arms_max=search.racing,
    )
    blocks = [block_of(study, goal.improves, row) for row in rows.values()]
    kept = [{arm: value for arm, value in block.items() if arm in alive} for block in blocks]
    plots = {arm: whole_plot(study.arm(arm).stack) for arm in alive}
    standing = _until_bounded(standing_after(alive, rules, kept, plots=plots), cap, search.racing)
    return _until_limits_are_known(standing, checks, cap, len(rows)), checks, tuple(broken)


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
            histograms = [h for one in mine if one.measurement and (h := one.measurement.histogram_of(metric.of))]
            value = merge(histograms).percentile(metric.percent) if histograms else None
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


def _measured(study: Study, probed: Probed, attempts: Sequence[TrialRecord], ramp: Ramp) -> float:
    """Return the seconds of load, ramps and repeated attempts included, counted as for the classic grid."""
    return math.fsum(
        seconds_of(study, probed, phase_of(trial.round)) + ramp_at(ramp, study.ramp_seconds, trial.round)
        for trial, _ in measured(attempts)
    )
