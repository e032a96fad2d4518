# SPDX-License-Identifier: Apache-2.0
"""One search over many hosts: `virtune fleet tune`.

A search is a run whose tasks are added turn after turn. In a turn every host that races measures what is left of the
race, as an ordinary comparison that runs by itself, is found again and gathered like any other. What comes next
follows from the plan and the gathered studies alone, so a search whose controller was killed goes on. The winner is
compared with the baseline on fresh data, by hosts that took no part in the race where there are enough.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from statistics import fmean
from typing import Any

import numpy as np

from virtune.analyse.fleet import answer
from virtune.analyse.search.fleet_race import HOSTS_MIN, TURNS, FleetRace, of_these_hosts, rounds_of
from virtune.analyse.search.pilot import BEYOND_SLACK, OVERHEAD_SECONDS, log_of
from virtune.analyse.stats.anytime import contrasts
from virtune.analyse.study.verdicts import BEYOND, evidence_of
from virtune.fleet.schedule import numbered
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.here import ARMS_MAX
from virtune.flows.fleet.results import FleetPlace, summaries
from virtune.flows.fleet.run import (
    MAY_LOAD,
    RUNS,
    Carrying,
    FleetPolicy,
    MetFleet,
    OpenTasks,
    Say,
    new_run,
    plans_of,
    run_fleet,
)
from virtune.flows.run.tune import ERROR, SLICE_SECONDS
from virtune.flows.stored.show import by_todays_method
from virtune.model.durability import durability_of
from virtune.model.errors import PlanError, UsageError, VirtuneError
from virtune.model.evidence import StudyRecord, measured
from virtune.model.fleet import (
    WAITING,
    Arms,
    ArmsLeftOut,
    BetterThere,
    FleetEffect,
    FleetHost,
    FleetPhase,
    FleetRun,
    FleetSearch,
    FleetTask,
    FleetTuning,
    TaskProgress,
    TaskState,
)
from virtune.model.metric import BY_ID
from virtune.model.remark import EMULATED
from virtune.model.stack import Stack
from virtune.model.study_options import OPTIONS, StudyOptions, Takes, flag_of, was_said
from virtune.model.tuning import RaceRules, Standing
from virtune.model.verdict import Interval, fewest_planned
from virtune.plan.arms import apply_settings
from virtune.plan.goal import parse_goal

_SEARCHES = ("rig", "vary", "fix", "baseline", "durability", "maximize", "minimize", "margin", "confirm")
"""Options that say what is searched: each host plans with them, and its comparisons get arms and rounds instead."""

_STUDIES = ("workloads", "seconds", "ramp", "attempts", "span", "scratch", "target", "allow_write_to", "allow_in_use")
"""Options that every comparison of a search gets as they are."""

_BESIDE_SECONDS = 10.0
"""What a comparison takes besides its rounds: its images, its rigs, its result."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Rounds = list[tuple[str, Mapping[str, float]]]
"""Rounds of hosts: the host, and ln of the goal's metric by arm, higher is better."""


def plan_search(
    hosts: Sequence[FleetHost],
    words: Sequence[str],
    asked: StudyOptions,
    given: Sequence[str],
    access: FleetAccess,
    policy: FleetPolicy,
    *,
    now: datetime,
) -> MetFleet:
    """Let each host say which configurations it can run, and keep the plan of a search over those of all of them.

    `words` are the options of `tune` as typed, `asked` the same, and `given` names those that were typed. Raises
    UsageError for options that no search over hosts can have, and where fewer than two hosts or two configurations
    are left.
    """
    _require_options(asked, given)
    run = new_run(("tune", *words), policy, now=now, virtune=access.virtune)
    tasks = numbered(run.name, [hosts])
    refused, met = plans_of(replace(run, tasks=tasks), access, up=True)
    for host in [*met]:
        if said := wrong_arms(met[host].arms):
            refused[host] = replace(met.pop(host), state=TaskState.FAILED, said=said)
    if len(met) < 2:
        why = next((f": {host}: {one.said}" for host, one in refused.items()), "")
        hint = "`virtune tune` searches on one host"
        raise UsageError(f"{len(met)} of {len(hosts)} hosts can take part{why}", hint=hint)
    arms, left_out = common_arms({host: one.arms for host, one in met.items()})
    _require_one_promise(arms)
    confirm = OPTIONS["confirm"].default if asked.confirm is None else asked.confirm
    racing, confirming = shared_out(sorted(met), seed=policy.seed, confirm=confirm)
    ramp = OPTIONS["ramp"].default if asked.ramp is None else asked.ramp
    seconds = (asked.seconds or SLICE_SECONDS) + ramp + OVERHEAD_SECONDS
    search = FleetSearch(
        hosts=tuple(replace(one, loads=met[one.host.name].loads) for one in tasks if one.host.name in met),
        slice_seconds=seconds * max(1, len(asked.workloads)),
        arms=arms,
        left_out=left_out,
        metric=parse_goal(asked.maximize, asked.minimize, ()).metric,
        margin=asked.margin or OPTIONS["margin"].default,
        options=_words_of(asked),
        racing=racing,
        confirming=confirming,
        confirm_rounds=confirm,
    )
    names, rounds = [one for one, _ in arms], rounds_of(0, len(racing))
    return MetFleet(run=_with_turn(replace(run, search=search), racing, names, rounds), refused=refused)


def _require_options(asked: StudyOptions, given: Sequence[str]) -> None:
    for name in given:
        if name not in (*_SEARCHES, *_STUDIES):
            flag = flag_of(name) if name in OPTIONS else f"--{name.replace('_', '-')}"
            hint = "leave it out, or let each host search by itself: `virtune fleet run` with `tune`"
            raise UsageError(f"{flag} has no place in one search over many hosts", hint=hint)
    if asked.confirm is not None and 0 < asked.confirm < (least := fewest_planned(2)):
        raise UsageError(f"--confirm {asked.confirm} can decide nothing", hint=f"`--confirm {least}`, or 0 for none")
    if asked.rig is not None and ":" in asked.rig:
        raise UsageError(f"--rig {asked.rig} names a VM of one host", hint="`--rig vhost-user`")


def _words_of(asked: StudyOptions) -> tuple[str, ...]:
    """Return the options that every comparison gets, as words."""
    found = [flag_of("seconds"), f"{asked.seconds or SLICE_SECONDS:g}"]
    for name in _STUDIES:
        if name != "seconds" and was_said(value := getattr(asked, name)):
            switch, each = OPTIONS[name].takes is Takes.SWITCH, value if isinstance(value, tuple) else (value,)
            words = (f"{one:g}" if isinstance(one, float) else str(one) for one in each)
            found += [flag_of(name)] if switch else [both for word in words for both in (flag_of(name), word)]
    return tuple(found)


def common_arms(found: Mapping[str, Arms]) -> tuple[Arms, ArmsLeftOut]:
    """Return the configurations that all hosts can run, the baseline first, and the others with hosts that cannot.

    Names become such that `compare --arm` takes. Raises UsageError where fewer than two are left.
    """
    every: dict[tuple[tuple[str, str], ...], str] = {}
    for arms in found.values():
        for name, settings in arms:
            every.setdefault(settings, name)
    by_host = {host: {settings for _, settings in arms} for host, arms in found.items()}
    kept: dict[str, tuple[tuple[str, str], ...]] = {}
    left_out: list[tuple[str, tuple[str, ...]]] = []
    for number, (settings, name) in enumerate(every.items()):
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("+", "_"))
        short = short if _NAME.fullmatch(short) and short not in kept else f"arm-{number}"
        if lacking := tuple(host for host, mine in by_host.items() if settings not in mine):
            left_out.append((short, lacking))
        else:
            kept[short] = settings
    if len(kept) < 2:
        hint = "`--host` chooses hosts"
        if any(name == "guest.system" for settings in every for name, _ in settings):
            hint = "not all have the same test guest: `--set guest.system=linux`, or leave hosts out"
        raise UsageError("no two configurations that all of these hosts can run", hint=hint)
    return tuple(kept.items()), tuple(left_out)


def wrong_arms(arms: Arms) -> str:
    """Say what is wrong with the configurations that a host named; empty where nothing is."""
    if len(arms) > ARMS_MAX:
        return f"it has more than {ARMS_MAX} configurations, which a search over many hosts takes at most"
    for _, settings in arms:
        try:
            _stack_of(settings)
        except PlanError as error:
            return f"it named a configuration that is none: {error.message}"
        if any("," in value for _, value in settings):  # it would be several settings in one word
            return "it named a configuration with a comma in a value"
    return ""


def _stack_of(settings: Sequence[tuple[str, str]]) -> Stack:
    return apply_settings(Stack(), [f"{name}={value}" for name, value in settings])[0]


def _require_one_promise(arms: Arms) -> None:
    """Raise UsageError where the baseline promises another durability than what races: they cannot be ranked."""
    promised, *others = (durability_of(_stack_of(settings)).promise for _, settings in arms)
    if unlike := next((one for one in others if one is not promised), None):
        hint = f"`--baseline` names settings of durability `{unlike}`, which are compared with"
        raise UsageError(f"the baseline has durability `{promised}`, and what races `{unlike}`", hint=hint)


def shared_out(hosts: Sequence[str], *, seed: int, confirm: int = 1) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the hosts that race, and the third of them that confirms; all race of fewer than HOSTS_MIN hosts, and
    where nothing is confirmed.
    """
    order = list(hosts)
    Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
    apart = len(order) // 3 if len(order) >= HOSTS_MIN and confirm else 0
    return tuple(sorted(order[apart:])), tuple(sorted(order[:apart]))


def _with_turn(
    run: FleetRun, hosts: Sequence[str], arms: Sequence[str], rounds: int, *, confirms: bool = False
) -> FleetRun:
    """Add a turn, so many rounds of these arms on each of these hosts, and keep that before a host hears of it."""
    search = _search_of(run)
    settings = dict(search.arms)
    # a race counts rounds, whatever is decided on a host; a verdict may come sooner
    words = ["compare", "--rounds", str(rounds), "--restart" if confirms else "--all-rounds"]
    words += ["--margin", f"{search.margin:g}", "--metric", search.metric]
    for arm in arms:
        each = {"rig": OPTIONS["rig"].default_for("compare"), **dict(settings[arm])}
        words += ["--arm", f"{arm}:{','.join(f'{name}={value}' for name, value in each.items())}"]
    words += ["--baseline", search.baseline if search.baseline in arms else arms[0], *search.options]
    known, part = {one.host.name: one for one in search.hosts}, run.tasks[-1].part + 1 if run.tasks else 0
    seconds = rounds * len(arms) * search.slice_seconds + _BESIDE_SECONDS
    alike: Any = {"part": part, "words": tuple(words), "expected_seconds": seconds, "confirms": confirms}
    turn = (replace(known[host], name=f"{run.name}.{number}", **alike)
            for number, host in enumerate(hosts, len(run.tasks) + 1))  # fmt: skip
    run = replace(run, tasks=(*run.tasks, *turn))
    RUNS.keep(run)
    return run


def _search_of(run: FleetRun) -> FleetSearch:
    if run.search is None:
        raise UsageError(f"{run.name} is no search", hint=f"`virtune fleet run --again {run.name}` goes on with it")
    return run.search


def search_fleet(
    run: FleetRun, carrying: Carrying, *, say: Say, begins: Callable[[FleetRun, FleetTuning | None], None]
) -> tuple[FleetTuning, dict[str, TaskProgress]]:
    """Run turn after turn to the end of a search; returns its findings, and how each task ended.

    `begins` hears of each turn, a run of its tasks alone, and of the findings before it. A host whose study failed or
    was lost takes no further part. Raises UsageError for a run that is no search.
    """
    search, known = _search_of(run), None
    found = _of_earlier_turns(run)
    while True:
        begins(replace(run, tasks=tuple(one for one in run.tasks if one.name not in found)), known)
        found = run_fleet(MetFleet(run=run, refused={}), carrying, say=say, known=found)
        found |= _not_to_be_used(search, run, found, carrying.place)
        known = tuning_of(run, found, carrying.place)
        # which studies count is kept: no host needs to be asked for them again
        run = replace(run, tasks=tuple(replace(one, counted=_study_of(one, found)) for one in run.tasks))
        RUNS.keep(run)
        turn = _next_turn(run, known, found)
        if turn is None:
            return known if _is_cut_off(run, found) else replace(known, phase=FleetPhase.OVER), found
        run = turn


def _study_of(task: FleetTask, found: Mapping[str, TaskProgress]) -> str:
    """Return the finished study of a task; empty where there is none."""
    ended = found.get(task.name, WAITING)
    return ended.study if ended.state is TaskState.FINISHED else ""


def _of_earlier_turns(run: FleetRun) -> dict[str, TaskProgress]:
    """Return how tasks ended of which it is known: before the last turn what counted when the turn after it was
    planned, and no other, so that what is known of a turn never changes, whoever comes back later.
    """
    open_, last = OpenTasks(run), run.tasks[-1].part
    found = dict[str, TaskProgress]()
    for task in (one for one in run.tasks if one.part < last or one.counted):
        state = TaskState.FINISHED if task.counted else TaskState.LOST if task in open_ else TaskState.FAILED
        said = "" if task.counted else "it had not ended when the next turn began"
        found[task.name] = TaskProgress(state=state, study=task.counted, said=said)
    return found


def _not_to_be_used(
    search: FleetSearch, run: FleetRun, found: Mapping[str, TaskProgress], place: FleetPlace
) -> dict[str, TaskProgress]:
    """Return the finished tasks of the last turn whose studies are not what was asked for, as failed."""
    wrong = dict[str, TaskProgress]()
    for task in (one for one in run.tasks if not one.counted):
        if (ended := found[task.name]).state is TaskState.FINISHED:
            try:
                _record(search, task.host.name, ended.study, place)
            except VirtuneError as error:
                said = f"its study cannot be used: {error.message}"
                wrong[task.name] = replace(ended, state=TaskState.FAILED, said=said, hint=error.hint or "")
    return wrong


def _next_turn(run: FleetRun, known: FleetTuning, found: Mapping[str, TaskProgress]) -> FleetRun | None:
    """Return the run with its next turn, and what counts of the turns before it; None at the end of the search."""
    search, confirms = known.search, known.phase is FleetPhase.CONFIRM
    ill = {task.host.name for task in run.tasks if not _study_of(task, found)}
    wanted = (search.confirming or search.racing) if confirms else search.racing
    hosts = [one for one in wanted if one not in ill]
    if known.phase is FleetPhase.OVER or known.winner is None or not hosts or _is_cut_off(run, found):
        return None
    if confirms:
        return _with_turn(run, hosts, [search.baseline, known.winner], search.confirm_rounds, confirms=True)
    arms = [name for name, _ in search.arms if name in known.standing.up_next]
    return _with_turn(run, hosts, arms, rounds_of(known.turns, len(hosts)))


def _is_cut_off(run: FleetRun, found: Mapping[str, TaskProgress]) -> bool:
    """Whether all hosts of the last turn were lost: it stays open, since their studies may end all the same."""
    last = [found[one.name].state for one in run.tasks if one.part == run.tasks[-1].part]
    return TaskState.FINISHED not in last and any(one in MAY_LOAD for one in last)


def tuning_of(run: FleetRun, found: Mapping[str, TaskProgress], place: FleetPlace) -> FleetTuning:
    """Return the findings of a search from its plan and its gathered studies; `found` says how its tasks ended."""
    search, rounds, seen = _search_of(run), Rounds(), list[StudyRecord]()
    race = FleetRace([name for name, _ in search.arms], RaceRules(margin=search.margin, error=ERROR))
    parts, last = sorted({one.part for one in run.tasks if not one.confirms}), Rounds()
    for part in parts:
        records = {host: _record(search, host, study, place) for host, study in _studies_of(run, part, found).items()}
        last = [row for host, record in records.items() for row in _rounds_in(search, host, record)]
        if last:
            race.turn(last)
        rounds, seen = [*rounds, *last], [*seen, *records.values()]
    known, confirming = race.standing, [one for one in run.tasks if one.confirms]
    over = bool(confirming or not last or not known.up_next or race.more_hosts_only or len(parts) >= TURNS)
    to_confirm = over and not confirming and known.leader not in (None, search.baseline) and search.confirm_rounds
    hosts = tuple(dict.fromkeys(host for host, _ in rounds))
    gave = {host for host, block in rounds if math.isfinite(block.get(known.leader or "", math.nan))}
    remarks = (remark for one in seen for _, each in measured(one.trials) for remark in each.remarks)
    return FleetTuning(
        run=run,
        search=search,
        phase=FleetPhase.CONFIRM if to_confirm else FleetPhase.OVER if over else FleetPhase.RACE,
        turns=len(parts),
        hosts=hosts,
        standing=known,
        of_their_kind=race.of_their_kind,
        more_hosts_only=race.more_hosts_only,
        confirmed=_confirmed(_studies_of(run, confirming[0].part, found), search, place) if confirming else (),
        better_there=_better_there(search, known, rounds),
        simulated=any(one.study.simulated for one in seen),
        emulated=any(remark.id == EMULATED.id for remark in remarks),
        without=tuple(one for one in hosts if one not in gave),
        needs_seconds=None if known.leader else _needs_seconds(search, seen),
    )


def _needs_seconds(search: FleetSearch, seen: Sequence[StudyRecord]) -> float | None:
    """Return how long a slice must be for the percentile that is made better to have enough I/Os beyond it."""
    metric = BY_ID[search.metric]
    rates = [rate for one in seen for _, each in measured(one.trials) if (rate := each.get("iops"))]
    if metric.percent is None or not rates:
        return None
    return BEYOND_SLACK * BEYOND / (1 - metric.percent / 100) / min(rates)


def _studies_of(run: FleetRun, part: int, found: Mapping[str, TaskProgress]) -> dict[str, str]:
    """Return the finished studies of a turn by their hosts."""
    return {one.host.name: study for one in run.tasks if one.part == part and (study := _study_of(one, found))}


def _record(search: FleetSearch, host: str, study: str, place: FleetPlace) -> StudyRecord:
    """Return a gathered study. Raises HostError where its arms are not those that were asked for."""
    with place.of(host) as store:
        record = by_todays_method(store, study)
    asked = dict(search.arms)
    for arm in record.study.arms:
        if arm.name not in asked or not set(asked[arm.name]) <= set(arm.settings):
            raise HostError(f"{host} measured something else as {arm.name} than what was asked for")
    return record


def _rounds_in(search: FleetSearch, host: str, record: StudyRecord) -> Rounds:
    """Return the rounds of a study: the mean over its workloads, NaN where one has no value that counts."""
    rows = evidence_of(record).rows
    numbers = sorted({number for values in rows.values() for number in values})
    workloads = [one.name for one in record.study.compared]

    def value(arm: str, number: int) -> float:
        each = (rows.get((arm, workload), {}).get(number, {}).get(search.metric) for workload in workloads)
        return search.sign * fmean(map(log_of, each))

    return [(host, {arm.name: value(arm.name, number) for arm in record.study.arms}) for number in numbers]


def _confirmed(studies: Mapping[str, str], search: FleetSearch, place: FleetPlace) -> tuple[FleetEffect, ...]:
    """Return the winner against the baseline on fresh data, by workload."""
    if not studies:
        return ()
    first, study = next(iter(studies.items()))
    return answer(_record(search, first, study, place).study, summaries(place, studies)).effects


def _better_there(search: FleetSearch, known: Standing, rounds: Rounds) -> tuple[BetterThere, ...]:
    """Return where another arm than the leader is better by more than the margin, as that host's own rounds show."""
    if known.leader is None:
        return ()
    names, hosts = [name for name, _ in search.arms], list(dict.fromkeys(host for host, _ in rounds))
    lead, others = names.index(known.leader), [number for number, name in enumerate(names) if name != known.leader]
    alpha = ERROR / len(hosts) / len(others) / TURNS
    found = list[BetterThere]()
    for host in hosts:
        mine = np.array([[block.get(name, math.nan) for name in names] for each, block in rounds if each == host])
        apart = contrasts(mine, [(number, lead) for number in others], alpha=alpha, doubt=0.0)
        here = [of_these_hosts([one], alpha=alpha) for one in apart]
        for number, one in zip(others, here, strict=True):
            if one.low > math.log1p(search.margin):
                low, ratio, high = sorted(math.exp(search.sign * end) for end in (one.low, one.mean, one.high))
                interval = Interval(estimate=ratio, low=low, high=high, confidence=1 - ERROR)
                found.append(BetterThere(host=host, arm=names[number], ratio=interval))
    return tuple(found)
