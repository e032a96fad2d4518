# SPDX-License-Identifier: Apache-2.0
"""The verb `tune`: from options to a search; probe, race in random blocks, confirm on fresh data.

Each step follows from the stored trials.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from virtune.analyse.search import pilot
from virtune.analyse.search.tuning import tuning
from virtune.analyse.trial.rejection import unsettled
from virtune.bench.port import Bench, DiskImageSpec, Session
from virtune.bench.qemu.machine import PROGRAM
from virtune.bench.verify import require_verified
from virtune.flows.domains.like import searched_like
from virtune.flows.run.preconditions import Leave, guest_is_built
from virtune.flows.run.prepare import begun
from virtune.flows.run.question import checked_span, connection_of, facts_text, read_workloads, scratch_of
from virtune.flows.run.study import loaded, prepared, random_seed, taken_up
from virtune.flows.run.trial import Attempts, Tools, before_seconds, ground_for
from virtune.flows.stored.show import by_todays_method, study_id
from virtune.model import event as events
from virtune.model.durability import Promise
from virtune.model.errors import Interrupted, LoadError, NotInForceError, PlanError, PreconditionError, RigError
from virtune.model.evidence import InForce, StudyRecord, TrialRecord
from virtune.model.knobs import KNOBS
from virtune.model.reason import Reason, because
from virtune.model.remark import label_of
from virtune.model.search import Goal, Phase, Removed, Search, SetApart, phase_of
from virtune.model.stack import Stack
from virtune.model.study import Study, StudyKind, Trial
from virtune.model.study_options import OPTIONS, SPREAD_SECONDS, ChosenOption, Provenance, StudyOptions
from virtune.model.text import format_seconds, format_share
from virtune.model.tuning import Apart, Space, Tuning
from virtune.plan.arms import layered, recorded
from virtune.plan.goal import parse_goal
from virtune.plan.guests import with_system
from virtune.plan.space import HostSupport, emulators_of, next_block, space_of, tries_for
from virtune.plan.trials import NOTHING_SEEN, SeenCosts, attempts_for, trial_seconds
from virtune.probe.kernel import try_io_uring
from virtune.probe.qemu_knobs import ask_daemon, ask_emulator
from virtune.shell import default_scratch
from virtune.store.store import Store

_MANY = 100
"""The number of slices over which repeats are forecast, to get their share."""

COME_UP_MAX = 200
"""Up to so many configurations are all brought up once before the race; of more, each when its turn comes."""


@dataclass(frozen=True, slots=True)
class _Anew(Session):
    """Rigs that restart every stack: in a new process, or for guests with a new disk in the same machine."""

    rigs: Session

    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> AbstractContextManager[Bench]:  # noqa: ARG002
        return self.rigs.up(stack, ground, restart=True)


def tune(
    study: Study, *, store: Store, say: events.Say, leave: Leave, facts: str, seen: SeenCosts = NOTHING_SEEN
) -> Tuning:
    """Store a new search and run it to its end; returns its result. `seen` is the overhead in this host's studies.

    Raises PlanError for a budget that is too short, Interrupted when the user stopped it (finished trials are kept),
    LoadError when nothing could be measured.
    """
    require_budget(study, seen)
    with prepared(study, say, leave, all_up=False) as tools:
        study = those_that_come_up(study, tools, say)
        study = begun(study, loaded(study, tools), tools, store)
        store.add_study(study, facts=facts)
        _search(store.get(study.id), tools, store=store, say=say)
    return finished_tuning(store, study.id)


def require_budget(study: Study, seen: SeenCosts = NOTHING_SEEN) -> None:
    """Raise PlanError for a budget below the fewest blocks, with the time they need, before anything runs.

    `seen` is the overhead in this host's studies.
    """
    budget = pilot.search_of(study).budget_seconds
    least = seconds_left(replace(_not_begun(study), race_seconds_left=0.0), seen)
    if budget is not None and least is not None and least > budget + 1:
        raise PlanError(
            f"--budget {format_seconds(budget)} is too short: {pilot.BLOCKS_IN_BUDGET} blocks of"
            f" {pilot.search_of(study).racing} configurations and the confirmation take about"
            f" {format_seconds(least)}",
            hint="a larger --budget, or fewer values in --vary",
        )


def resume_tuning(record: StudyRecord, *, store: Store, say: events.Say, leave: Leave) -> Tuning:
    """Resume a search, in the middle of a block if it was killed there."""
    if not tuning(record).finished or unsettled(record.attempts, most=record.study.attempts):
        with taken_up(record, store, say, leave, all_up=False) as (again, tools):
            _search(again, tools, store=store, say=say)
    return finished_tuning(store, record.study.id)


def finished_tuning(store: Store, study_id: str) -> Tuning:
    """Mark a search as finished when nothing is left to run, and return its result."""
    return tuning_of(store, by_todays_method(store, study_id))


def tuning_of(store: Store, record: StudyRecord) -> Tuning:
    """Return the result of a search that was read; mark it as finished when nothing is left to run."""
    known = tuning(record)
    if known.finished and not record.finished and store.writable:
        store.finish(record.study.id)
    return known


def seconds_left(known: Tuning, seen: SeenCosts = NOTHING_SEEN) -> float | None:
    """Estimate the time left; None where only a certificate ends the race and none is in sight.

    `seen` is the overhead in this host's studies, for a search that has not begun.
    """
    study, search = known.study, pilot.search_of(known.study)
    if known.finished:
        return 0.0

    def take(slices: int, phase: Phase) -> float:
        each = pilot.seconds_of(study, known.probed.slice_seconds, phase)
        return slices * len(study.workloads) * _slice_seconds(known, each, seen)

    pairs = max(0, search.confirm_pairs - (known.confirmation.pairs if known.confirmation else 0))
    soaked = sum(one.seconds for one in known.soaks) * len(study.workloads)
    after = take(2 * pairs, Phase.CONFIRM) + max(0.0, take(2 * pilot.soak_slices(search), Phase.SOAK) - soaked)
    if known.phase not in (Phase.PROBE, Phase.RACE):
        return after
    race = race_seconds(known, _slice_seconds(known, known.probed.slice_seconds, seen))
    if race is None:
        return None
    return take(max(0, pilot.PROBE_SLICES - known.probed.slices), Phase.PROBE) + race + after


def _slice_seconds(known: Tuning, seconds: float, seen: SeenCosts) -> float:
    """Return the time of a slice with its overhead: as in the slices so far, else as in this host's studies."""
    study = known.study
    if known.probed.slices and not study.simulated:
        return seconds + known.beside_seconds
    return trial_seconds(replace(study, seconds=seconds), study.arm(study.baseline).stack, seen)


def race_seconds(known: Tuning, each: float) -> float | None:
    """Estimate the time left for the race where a slice takes `each`; None where no end is in sight."""
    search, cap, done = pilot.search_of(known.study), known.probed.slices_max, known.standing.slices
    needed = None if len(known.standing.runners) < search.racing else known.standing.slices_left  # others may join
    ahead = [left for left in (needed, None if cap is None else cap - done) if left is not None]
    if not ahead:
        return None
    each = max(each * len(known.study.workloads), search.spread_seconds / max(1, len(known.standing.up_next)))
    race = max(0.0, min(ahead) * each)
    if known.race_seconds_left is None:
        return race
    return min(race, max(known.race_seconds_left, (pilot.slices_least(search) - done) * each, 0.0))


def _require_real(found: InForce, search: Search) -> None:
    """Raise PreconditionError for a guest under software emulation, whose figures are not comparable."""
    if found.emulated is not None and not search.emulated:
        why = found.emulated.proof
        raise PreconditionError(
            f"guests run under software emulation only (no KVM), so no recommendation is possible: {why}",
            hint="`--rig vhost-user` measures a virtio disk without a guest; --emulated searches all the same",
        )


def those_that_come_up(study: Study, tools: Tools, say: events.Say) -> Study:
    """Bring every arm up once and leave out, with the reason, those that QEMU refuses or runs with other settings."""
    search = pilot.search_of(study)
    if len(study.arms) > COME_UP_MAX:
        baseline = study.arm(study.baseline).stack
        with tools.up(baseline, ground_for(baseline, study.workloads[0], study, tools), restart=True) as (bench, _):
            _require_real(bench.in_force, search)
        return study
    what = f"bringing {len(study.arms)} configurations up once"
    refused: dict[str, str] = {}
    with events.step(what, say) as come:
        for number, arm in enumerate(study.arms, 1):
            try:
                ground = ground_for(arm.stack, study.workloads[0], study, tools)
                with tools.up(arm.stack, ground, restart=True) as (bench, host_checks):
                    require_verified(arm.name, (*bench.in_force.checks, *host_checks()))
                    _require_real(bench.in_force, search)
            except (RigError, NotInForceError) as error:
                refused[arm.name] = error.message + (f": {error.hint}" if error.hint else "")
            come(number, len(study.arms))
    if study.baseline in refused:
        raise PreconditionError(f"the baseline does not start: {refused[study.baseline]}")
    ranked = tuple(name for name in search.ranked if name not in refused)
    if len(ranked) < 2:
        raise PreconditionError("fewer than two configurations start", hint="; ".join(sorted(set(refused.values()))))
    gone = tuple(Removed.by(because(Reason.DOES_NOT_START, why=why), what=name) for name, why in refused.items())
    search = replace(search, ranked=ranked, removed=(*search.removed, *gone))
    return replace(study, arms=tuple(arm for arm in study.arms if arm.name not in refused), search=search)


def brought_up(study: Study, leave: Leave) -> Study:
    """Return a search without the configurations that do not come up here, and leave nothing behind."""

    def unheard(_: events.Event) -> None: ...

    with prepared(study, unheard, leave, all_up=False) as tools:
        return those_that_come_up(study, tools, unheard)


def _search(record: StudyRecord, tools: Tools, *, store: Store, say: events.Say) -> None:
    """Run block after block until the search is finished."""
    study = record.study
    pending = unsettled(record.attempts, most=study.attempts)
    made = tuple(one for one in record.attempts if pending is None or one.trial.number != pending.number)
    begun = -math.inf
    try:
        while block := _block_after(record, made):
            known = tuning(_with(record, made, before=block[0].number))
            left = _with_repeats(seconds_left(known), made)
            say(events.SearchMoved(known=known, seconds_left=left))
            if known.phase is Phase.RACE and not known.standing.blocks:
                require_percentiles(known)
                say(events.Noticed(text=probed_words(known)))
            asked = replace(study, seconds=pilot.seconds_of(study, known.probed.slice_seconds, known.phase))
            # where starts are measured every trial has a new one
            rigs = _Anew(tools.rigs) if known.phase is Phase.CONFIRM else tools.rigs
            attempts = Attempts(asked, replace(tools, rigs=rigs), store=store, say=say)
            if known.phase is Phase.RACE:  # blocks lie so far apart
                time.sleep(max(0.0, begun + pilot.search_of(study).spread_seconds - time.monotonic()))
                begun = time.monotonic()
            done = {one.trial.number for one in made}
            for index, trial in enumerate(block, 1):
                if trial.number not in done:
                    place = events.TrialPlace(number=index, of=len(block), rounds=None)
                    say(events.TrialStarted(trial=trial, place=place, seconds_left=left or 0.0))
                    attempts.make(trial)
                    made = attempts.made
            probes = [one for one in made if phase_of(one.trial.round) is Phase.PROBE]
            if len(probes) >= 3 and all(one.measurement is None for one in probes):
                raise LoadError("no trial of the baseline gave a measurement", hint=_reasons(probes))
    except KeyboardInterrupt:
        count, hint = len({one.trial.number for one in made}), f"continue with `virtune compare resume {study.id}`"
        raise Interrupted(f"interrupted; {count} trials are stored", hint=hint) from None
    known = tuning(_with(record, made))
    say(events.SearchMoved(known=known, seconds_left=0.0))
    if known.standing.leader is None and known.standing.runners:
        raise nothing_raced(known, made) if known.standing.blocks else no_room(known)


def _with_repeats(seconds: float | None, made: Sequence[TrialRecord]) -> float | None:
    """Return a forecast including repeats, at their recent share."""
    if seconds is None:
        return None
    last = {one.trial.number: one.attempt for one in made}
    repeated = [one.attempt < last[one.trial.number] for one in made]
    return seconds * attempts_for(_MANY, repeated) / _MANY


def probed_words(known: Tuning) -> str:
    """Return the probe's result and the cost of a certificate, to be shown before the race."""
    search, probed = pilot.search_of(known.study), known.probed
    if probed.sd is None or probed.certificate_seconds is None:
        return "the pilot saw too little to forecast the time of --mode certify"
    each = _slice_seconds(known, probed.slice_seconds, NOTHING_SEEN)
    certificate = probed.certificate_seconds * each / (probed.slice_seconds + known.beside_seconds)
    words = (
        f"neighbouring slices of the baseline differ by {format_share(probed.sd, 1)}: to certify"
        f" {format_share(known.study.margin)} takes"
        f" at most about {format_seconds(certificate)}, were all {search.racing} nearly as good as"
        " the best"
    )
    race = None if probed.slices_max is None else race_seconds(known, each)
    if race is None:
        return words
    words += f"; this race stops after about {format_seconds(race)} at the latest"
    if not probed.restless or search.mode != "quick":
        return words
    if search.budget_seconds is None:
        return f"{words}. This host is restless now, so it takes longer than on a quiet one (--budget: a limit)"
    return f"{words}. This host is restless now: the best is found more often with a larger --budget"


def _block_after(record: StudyRecord, made: Sequence[TrialRecord]) -> tuple[Trial, ...]:
    """Return the block to run: the unfinished one, else the next.

    A block follows from the blocks before it, so an unfinished one is made again from these.
    """
    if made:
        last = max(made, key=lambda one: one.trial.number).trial.round
        begun = _next(record, made, before=min(one.trial.number for one in made if one.trial.round == last))
        done = {one.trial.number for one in made}
        if any(trial.number not in done for trial in begun):
            return begun
    return _next(record, made, before=None)


def _next(record: StudyRecord, made: Sequence[TrialRecord], *, before: int | None) -> tuple[Trial, ...]:
    past = _with(record, made, before=before)
    known = tuning(past)
    rounds = {one.trial.round for one in past.trials if phase_of(one.trial.round) is known.phase}
    return next_block(record.study, known, rounds=len(rounds), trials=len(past.trials))


def _with(record: StudyRecord, made: Sequence[TrialRecord], *, before: int | None = None) -> StudyRecord:
    """Return the study's record by these attempts, or by those before a trial."""
    kept = tuple(one for one in made if before is None or one.trial.number < before)
    standing = {one.trial.number: one for one in kept}
    return replace(record, trials=tuple(standing[number] for number in sorted(standing)), attempts=kept)


def require_percentiles(known: Tuning) -> None:
    """Raise PreconditionError when no slice can hold the I/Os that a percentile of the goal or of a limit needs."""
    found = pilot.unresolved(pilot.search_of(known.study), known.probed)
    if found is None:
        return
    longest = pilot.search_of(known.study).slice_seconds or pilot.SLICES[-1]
    what, rate = ("I/Os", "IOPS") if found.metric.of == "latency" else ("flushes", "flushes a second")
    raise PreconditionError(
        f"{found.metric.id} needs {found.count:,} {what} in a slice, and the baseline makes"
        f" {found.rate * longest:,.0f} in {format_seconds(longest)}",
        hint=f"`--seconds {math.ceil(found.seconds)}s`; at {found.count / longest:,.0f} {rate} it could be told",
    )


def no_room(known: Tuning) -> PreconditionError:
    """Return the message that slices take longer than planned, so that the budget allowed no race."""
    each = known.probed.slice_seconds + known.beside_seconds
    least = each * pilot.slices_least(pilot.search_of(known.study)) + known.elapsed_seconds
    return PreconditionError(
        f"a slice takes {format_seconds(each)} here, so {pilot.BLOCKS_IN_BUDGET} blocks of"
        f" {pilot.search_of(known.study).racing} configurations do not fit into --budget",
        hint=f"at least `--budget {math.ceil(least)}s`",
    )


def nothing_raced(known: Tuning, made: Sequence[TrialRecord]) -> LoadError:
    """Say why no configuration of the race has a value; unusable measurements are distinguished from failures."""
    raced = [one for one in made if phase_of(one.trial.round) is Phase.RACE]
    measured = [one.measurement for one in raced if one.measurement is not None]
    if not measured:
        return LoadError("no configuration gave a measurement", hint=_reasons(made))
    causes = {cause for one in measured for cause in one.causes}
    why = f"disturbed by: {', '.join(sorted(map(label_of, causes)))}" if causes else None
    return LoadError(
        f"{len(measured)} slices were measured, and none has a {known.study.metric} that counts",
        hint=why or ("--seconds makes slices longer" if pilot.search_of(known.study).goal.improves.percent else None),
    )


def _reasons(records: Iterable[TrialRecord]) -> str:
    found = {one.failure for one in records if one.failure}
    return "; ".join(sorted(found))


def beforehand(study: Study, seen: SeenCosts = NOTHING_SEEN) -> str:
    """Return the size of the search and its longest time, set-up included, to be shown before it starts."""
    search, whole = pilot.search_of(study), expected_seconds(study, seen)
    words = f"{len(search.ranked)} configurations of durability `{search.promise}` ({search.promise.words})"
    words += f", {search.goal.words}"
    if search.tries is not None:
        words += f"; {search.racing} of them race, as Optuna's TPE proposes them from what the others did"
    apart = sum(len(one.names) for one in search.apart)
    gone = sum(one.count or 0 for one in search.removed)
    words += f"; {apart} promise something else and {gone} cannot be or need not be tried" if apart or gone else ""
    if whole is None:
        return f"{words}; until certified: the probe will say how long that may take"
    return (
        f"{words}; at most about {format_seconds(whole)}, set-up included; the classic"
        f" grid takes {format_seconds(search.grid_seconds)}"
    )


def expected_seconds(study: Study, seen: SeenCosts = NOTHING_SEEN) -> float | None:
    """Return the longest time of a search that has not begun, set-up included; None where only its probe can say."""
    left, budget = seconds_left(_not_begun(study), seen), pilot.search_of(study).budget_seconds
    if left is None:
        return None
    return (left if budget is None else min(left, budget)) + before_seconds(study, seen)


def _not_begun(study: Study) -> Tuning:
    return tuning(StudyRecord(study=study, facts="", finished=False, trials=()))


SLICE_SECONDS = 1.0
"""The slice of the probe, and of a race on a disk of more than 2,000 IOPS."""

SPREAD_BLOCKS = 20
"""A budget has room for at least so many blocks, so blocks are closer together where it is below ten minutes."""

SPREAD_MAX = 3600.0

ERROR = 0.05
"""The probability that any statement on the race is wrong."""


def tuning_study(asked: StudyOptions) -> tuple[Study, str]:
    """Return the study that searches, and the facts of this host as JSON text.

    Raises PlanError, with what is wrong and a hint, before anything is made or run.
    """
    asked, unlike = searched_like(asked)
    study = study_for(asked, host)
    return replace(study, options=(*study.options, *unlike)), facts_text(asked.scratch or default_scratch())


def study_for(asked: StudyOptions, what: Callable[[StudyOptions], HostSupport]) -> Study:
    """Return the study that searches a host; `what` says what that supports.

    Raises PlanError with what is wrong and a hint.
    """
    _require_time(asked)
    goal = parse_goal(asked.maximize, asked.minimize, asked.subject_to)
    workloads = read_workloads(asked.workloads or OPTIONS["workloads"].default, Path())
    span = checked_span(asked)
    words = replace(asked, span=span)
    space = space_of(words, what(words))
    if asked.soak and not any(workload.writes for workload in workloads):
        raise PlanError("--soak needs a workload that writes", hint="leave out --soak")
    if asked.target is not None and any(arm.stack.disk.backend != "file" for arm in space.arms):
        raise PreconditionError("backend=null-co has no disk below it, so it cannot be tuned on a target")
    if asked.spread is not None and asked.spread > SPREAD_MAX:
        raise PlanError("--spread is at most one hour", hint="`--spread 30s`")
    now = datetime.now(UTC)
    study = Study(
        id=study_id(now, simulated=any(not arm.stack.kind.measures for arm in space.arms)),
        created=now.isoformat(timespec="seconds"),
        kind=StudyKind.TUNE,
        title=asked.title or "",
        arms=space.arms,
        baseline=space.baseline,
        workloads=workloads,
        rounds=1,
        seconds=asked.seconds or SLICE_SECONDS,
        ramp_seconds=OPTIONS["ramp"].default if asked.ramp is None else asked.ramp,
        seed=random_seed() if asked.seed is None else asked.seed,
        scratch=scratch_of(asked),
        span_bytes=span,
        target=None if asked.target is None else str(asked.target.absolute()),
        connect=connection_of(asked, space.arms),
        metric=goal.metric,
        margin=asked.margin or OPTIONS["margin"].default,
        confidence=1 - ERROR,
        search=_search_of(asked, goal, space),
        attempts=asked.attempts or OPTIONS["attempts"].default,
    )
    return with_system(replace(study, options=_options(study, asked)), built=guest_is_built())


def _options(study: Study, asked: StudyOptions) -> tuple[ChosenOption, ...]:
    """Return the value of every option of `tune`, and its origin."""
    options, sources = layered((Provenance.FLAG, asked))
    values = {
        "workloads": tuple(workload.name for workload in study.workloads),
        "maximize": None if asked.minimize else study.metric,
        "seed": study.seed,
        "scratch": None if study.target else study.scratch,
        "spread": study.search.spread_seconds if study.search else None,
    }
    return recorded("tune", options, sources, values)


def _require_time(asked: StudyOptions) -> None:
    """Raise PlanError for a soak, or a distance of blocks, that leaves nothing of the budget."""
    spread, soak, budget = asked.spread or 0.0, asked.soak or 0.0, asked.budget
    if budget is None:
        return
    if 2 * soak >= budget:
        raise PlanError(
            f"a soak of {format_seconds(soak)} with the winner and with the baseline leaves nothing of"
            f" {format_seconds(budget)}",
            hint="a smaller --soak, or a larger --budget",
        )
    if spread * (pilot.BLOCKS_IN_BUDGET - 1) >= budget:
        raise PlanError(
            f"{pilot.BLOCKS_IN_BUDGET} blocks {format_seconds(spread)} apart do not fit into"
            f" {format_seconds(budget)}",
            hint="a smaller --spread, or a larger --budget",
        )


def _search_of(asked: StudyOptions, goal: Goal, space: Space) -> Search:
    far = SPREAD_SECONDS if asked.budget is None else min(SPREAD_SECONDS, asked.budget / SPREAD_BLOCKS)
    far = far if asked.mode == "certify" else 0.0
    return Search(
        goal=goal,
        mode=asked.mode or OPTIONS["mode"].default,
        promise=space.promise,
        ranked=tuple(arm.name for arm in space.ranked),
        factors=space.factors,
        removed=space.removed,
        apart=_apart(space),
        error=ERROR,
        slice_seconds=asked.seconds,
        budget_seconds=asked.budget,
        confirm_pairs=OPTIONS["confirm"].default if asked.confirm is None else asked.confirm,
        confirm_seconds=asked.confirm_seconds or OPTIONS["confirm_seconds"].default,
        soak_seconds=asked.soak or 0.0,
        spread_seconds=far if asked.spread is None else asked.spread,
        vary=asked.vary,
        tries=tries_for(len(space.ranked)),
        patience=pilot.PATIENCE,
        emulated=asked.emulated,
    )


def host(asked: StudyOptions) -> HostSupport:
    """Query the kernel, and each QEMU that will run the configurations, for the settings that they support.

    Another QEMU than that may have been built with less, or with more. Raises PlanError for invalid settings.
    """
    works = try_io_uring()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    knobs = [knob for knob in KNOBS if knob.place]
    emulators = emulators_of(asked)
    found = [ask_emulator(knobs, emulators=(one or PROGRAM,)) for one in emulators] or [ask_daemon(knobs)]
    return HostSupport(
        answers={knob.id: tuple(one[knob.id] for one in found if knob.id in one) for knob in knobs},
        io_uring=works if isinstance(works, bool) else False,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
    )


def _apart(space: Space) -> tuple[SetApart, ...]:
    """Group configurations with the same durability for the same reason."""
    found: dict[tuple[Promise, str], list[Apart]] = {}
    for one in space.apart:
        found.setdefault((one.durability.promise, one.durability.words), []).append(one)
    return tuple(
        SetApart(
            names=tuple(one.arm.name for one in same),
            promise=promise,
            weaker=same[0].durability.weaker_than(space.promise),
            words=words,
        )
        for (promise, words), same in found.items()
    )
