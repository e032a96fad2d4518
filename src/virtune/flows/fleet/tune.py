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
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from statistics import fmean

import numpy as np

from virtune.analyse.fleet import answer
from virtune.analyse.search.fleet_race import HOSTS_MIN, TURNS, FleetRace, rounds_of
from virtune.analyse.search.pilot import OVERHEAD_SECONDS, log_of
from virtune.analyse.stats.anytime import contrasts
from virtune.analyse.study.verdicts import evidence_of
from virtune.fleet.ssh import HostError
from virtune.flows.fleet.ask import FleetAccess
from virtune.flows.fleet.here import ARMS_MAX, require_words
from virtune.flows.fleet.results import FleetPlace, summaries
from virtune.flows.fleet.run import RUNS, Carrying, FleetPolicy, MetFleet, Say, plans_of, run_fleet
from virtune.flows.run.tune import ERROR, SLICE_SECONDS
from virtune.flows.stored.show import by_todays_method, study_id
from virtune.model.errors import PlanError, UsageError
from virtune.model.evidence import StudyRecord, measured
from virtune.model.fleet import (
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
from virtune.model.remark import EMULATED
from virtune.model.stack import Stack
from virtune.model.study_options import OPTIONS, StudyOptions, Takes, flag_of, was_said
from virtune.model.tuning import RaceRules, Standing
from virtune.model.verdict import Interval
from virtune.plan.arms import apply_settings
from virtune.plan.goal import parse_goal

Arms = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

_SEARCHES = ("rig", "vary", "fix", "baseline", "durability", "maximize", "minimize", "margin", "confirm")
"""Options that say what is searched: each host plans with them, and its comparisons get arms and rounds instead."""

_STUDIES = ("workloads", "seconds", "ramp", "attempts", "span", "scratch", "target", "allow_write_to", "allow_in_use")
"""Options that every comparison of a search gets as they are."""

_BESIDE_SECONDS = 10.0
"""What a comparison takes besides its rounds: its images, its rigs, its result."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Rounds = list[tuple[str, Mapping[str, float]]]
"""Rounds of hosts: the host, and ln of the goal's metric by arm, higher is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSearch:
    """A search that was planned by its hosts; `refused` are those that cannot take part, with why."""

    run: FleetRun
    refused: Mapping[str, TaskProgress]


def plan_search(
    hosts: Sequence[FleetHost],
    words: Sequence[str],
    asked: StudyOptions,
    given: Sequence[str],
    access: FleetAccess,
    policy: FleetPolicy,
    *,
    now: datetime,
) -> PlannedSearch:
    """Let each host say which configurations it can run, and keep the plan of a search over those of all of them.

    `words` are the options of `tune` as typed, `asked` the same, and `given` names those that were typed. Raises
    UsageError for options that no search over hosts can have, and where fewer than two hosts or two configurations
    are left.
    """
    require_words(("tune", *words))
    _require_options(asked, given)
    name = study_id(now)
    tasks = tuple(FleetTask(name=f"{name}.{number}", host=host, part=0) for number, host in enumerate(hosts, 1))
    run = FleetRun(
        name=name, created=now.isoformat(timespec="seconds"), words=("tune", *words), tasks=tasks,
        at_once=policy.at_once, shares=policy.shares, virtune=access.virtune,
    )  # fmt: skip
    refused, met = plans_of(run, access)
    if len(met) < 2:
        why = next((f": {host}: {one.said}" for host, one in refused.items()), "")
        hint = "`virtune tune` searches on one host"
        raise UsageError(f"{len(met)} of {len(hosts)} hosts can take part{why}", hint=hint)
    arms, left_out = common_arms({host: one.arms for host, one in met.items()})
    racing, confirming = shared_out(sorted(met), seed=policy.seed)
    search = FleetSearch(
        hosts=tuple(replace(one, loads=met[one.host.name].loads) for one in tasks if one.host.name in met),
        slice_seconds=_slice_seconds(asked),
        arms=arms,
        left_out=left_out,
        metric=parse_goal(asked.maximize, asked.minimize, ()).metric,
        margin=asked.margin or OPTIONS["margin"].default,
        options=_words_of(asked),
        racing=racing,
        confirming=confirming,
        confirm_rounds=OPTIONS["confirm"].default if asked.confirm is None else asked.confirm,
    )
    run = _with_turn(
        replace(run, tasks=(), search=search), racing, [one for one, _ in arms], rounds_of(0, len(racing))
    )
    return PlannedSearch(run=run, refused=refused)


def _require_options(asked: StudyOptions, given: Sequence[str]) -> None:
    for name in given:
        if name not in (*_SEARCHES, *_STUDIES):
            flag = flag_of(name) if name in OPTIONS else f"--{name.replace('_', '-')}"
            hint = "leave it out, or let each host search by itself: `virtune fleet run` with `tune`"
            raise UsageError(f"{flag} has no place in one search over many hosts", hint=hint)
    if asked.rig is not None and ":" in asked.rig:
        raise UsageError(f"--rig {asked.rig} names a VM of one host", hint="`--rig vhost-user`")


def _slice_seconds(asked: StudyOptions) -> float:
    """Return how long a round of one arm takes, under all workloads."""
    ramp = OPTIONS["ramp"].default if asked.ramp is None else asked.ramp
    return ((asked.seconds or SLICE_SECONDS) + ramp + OVERHEAD_SECONDS) * max(1, len(asked.workloads))


def _words_of(asked: StudyOptions) -> tuple[str, ...]:
    """Return the options that every comparison gets, as words."""
    found = [flag_of("seconds"), f"{asked.seconds or SLICE_SECONDS:g}"]
    for name in _STUDIES:
        value, row = getattr(asked, name), OPTIONS[name]
        if name == "seconds" or not was_said(value):
            continue
        if row.takes is Takes.SWITCH:
            found.append(flag_of(name))
        else:
            each = value if isinstance(value, tuple) else (value,)
            found += [
                word for one in each for word in (flag_of(name), f"{one:g}" if isinstance(one, float) else str(one))
            ]
    return tuple(found)


def common_arms(found: Mapping[str, Arms]) -> tuple[Arms, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Return the configurations that all hosts can run, the baseline first, and the others with hosts that cannot.

    Names become such that `compare --arm` takes. Raises UsageError where fewer than two are left, HostError for what
    is no configuration.
    """
    every: dict[tuple[tuple[str, str], ...], str] = {}
    for host, arms in found.items():
        if len(arms) > ARMS_MAX:
            said = f"{host} has more than {ARMS_MAX} configurations, which one search over many hosts takes at most"
            raise UsageError(said, hint="name fewer values by `--vary KNOB=A,B`")
        for name, settings in arms:
            _require_settings(host, settings)
            every.setdefault(settings, name)
    by_host = {host: {settings for _, settings in arms} for host, arms in found.items()}
    kept, left_out = list[tuple[str, tuple[tuple[str, str], ...]]](), list[tuple[str, tuple[str, ...]]]()
    for number, (settings, name) in enumerate(every.items()):
        short = re.sub(r"[^A-Za-z0-9._-]+", "-", name.replace("+", "_"))
        short = short if _NAME.fullmatch(short) and short not in dict(kept) else f"arm-{number}"
        lacking = tuple(host for host, mine in by_host.items() if settings not in mine)
        if lacking:
            left_out.append((short, lacking))
        else:
            kept.append((short, settings))
    if len(kept) < 2:
        raise UsageError("no two configurations that all of these hosts can run", hint="`--host` chooses hosts")
    return tuple(kept), tuple(left_out)


def _require_settings(host: str, settings: Sequence[tuple[str, str]]) -> None:
    try:
        apply_settings(Stack(), [f"{name}={value}" for name, value in settings])
    except PlanError as error:
        raise HostError(f"{host} named a configuration that is none: {error.message}") from None
    if any("," in value for _, value in settings):  # it would be several settings in one word
        raise HostError(f"{host} named a configuration with a comma in a value")


def shared_out(hosts: Sequence[str], *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the hosts that race, and the third of them that confirms; of fewer than HOSTS_MIN hosts all race."""
    order = list(hosts)
    Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
    apart = len(order) // 3 if len(order) >= HOSTS_MIN else 0
    return tuple(sorted(order[apart:])), tuple(sorted(order[:apart]))


def _with_turn(run: FleetRun, hosts: Sequence[str], arms: Sequence[str], rounds: int) -> FleetRun:
    """Add a turn, so many rounds of these arms on each of these hosts, and keep that before a host hears of it."""
    search = _search_of(run)
    settings = dict(search.arms)
    words = ["compare", "--rounds", str(rounds), "--margin", f"{search.margin:g}", "--metric", search.metric]
    for arm in arms:
        own = dict(settings[arm])
        each = {"rig": OPTIONS["rig"].default_for("compare")} | own
        words += ["--arm", f"{arm}:{','.join(f'{name}={value}' for name, value in each.items())}"]
    words += ["--baseline", search.baseline if search.baseline in arms else arms[0], *search.options]
    known, part = {one.host.name: one for one in search.hosts}, run.tasks[-1].part + 1 if run.tasks else 0
    seconds = rounds * len(arms) * search.slice_seconds + _BESIDE_SECONDS
    turn = tuple(
        replace(known[host], name=f"{run.name}.{number}", part=part, words=tuple(words), expected_seconds=seconds)
        for number, host in enumerate(hosts, len(run.tasks) + 1)
    )
    run = replace(run, tasks=(*run.tasks, *turn))
    RUNS.keep(run)
    return run


def _search_of(run: FleetRun) -> FleetSearch:
    """Return the search of a run. Raises UsageError for a run of another kind."""
    if run.search is None:
        raise UsageError(f"{run.name} is no search", hint=f"`virtune fleet run --again {run.name}` goes on with it")
    return run.search


def search_fleet(
    run: FleetRun, carrying: Carrying, *, say: Say, begins: Callable[[FleetRun, FleetTuning | None], None]
) -> tuple[FleetTuning, dict[str, TaskProgress]]:
    """Run turn after turn to the end of a search; returns its findings, and how each task ended.

    `begins` hears of each turn, a run of its tasks alone, and of the findings before it. A host whose study failed or
    was lost takes no further part.
    """
    found, known = dict[str, TaskProgress](), None
    while True:
        begins(replace(run, tasks=tuple(one for one in run.tasks if one.name not in found)), known)
        found = run_fleet(MetFleet(run=run, refused={}), carrying, say=say, known=found)
        known = tuning_of(run, found, carrying.place)
        if known.phase is FleetPhase.OVER:
            return known, found
        run = _next_turn(run, known, found)


def _next_turn(run: FleetRun, known: FleetTuning, found: Mapping[str, TaskProgress]) -> FleetRun:
    search = _search_of(run)
    if known.phase is FleetPhase.CONFIRM:
        assert known.winner is not None  # noqa: S101 - else the search is over
        hosts = _well(search.confirming or search.racing, run, found)
        return _with_turn(run, hosts, [search.baseline, known.winner], search.confirm_rounds)
    hosts = _well(search.racing, run, found)
    arms = [one for one in (name for name, _ in search.arms) if one in known.standing.up_next]
    return _with_turn(run, hosts, arms, rounds_of(known.turns, len(hosts)))


def _well(hosts: Sequence[str], run: FleetRun, found: Mapping[str, TaskProgress]) -> list[str]:
    """Return those of some hosts on which no study failed or was lost."""
    ill = {one.host.name for one in run.tasks if found[one.name].state is not TaskState.FINISHED}
    return [one for one in hosts if one not in ill]


def tuning_of(run: FleetRun, found: Mapping[str, TaskProgress], place: FleetPlace) -> FleetTuning:
    """Return the findings of a search from its plan and its gathered studies; `found` says how its tasks ended."""
    search, rounds = _search_of(run), Rounds()
    race = FleetRace([name for name, _ in search.arms], RaceRules(margin=search.margin, error=ERROR))
    turns = [_studies_of(run, part, found) for part in sorted({one.part for one in run.tasks})]
    done, over, seen = 0, False, list[StudyRecord]()
    while turns and not over:
        records = {host: _record(search, host, study, place) for host, study in turns.pop(0).items()}
        new = [row for host, record in records.items() for row in _rounds_in(search, host, record)]
        if new:
            race.turn(new)
        rounds, done = [*rounds, *new], done + 1
        seen += records.values()
        over = not new or not race.standing.up_next or race.more_hosts_only or done >= TURNS
    known = race.standing
    to_confirm = over and known.leader not in (None, search.baseline) and search.confirm_rounds
    confirmed = _confirmed(turns[0], search, place) if turns else ()
    phase = FleetPhase.OVER if over else FleetPhase.RACE
    return FleetTuning(
        run=run,
        search=search,
        phase=FleetPhase.CONFIRM if to_confirm and not turns else phase,
        turns=done,
        hosts=tuple(dict.fromkeys(host for host, _ in rounds)),
        standing=known,
        of_their_kind=race.of_their_kind,
        more_hosts_only=race.more_hosts_only,
        confirmed=confirmed,
        better_there=_better_there(search, known, rounds),
        simulated=any(one.study.simulated for one in seen),
        emulated=any(
            remark.id == EMULATED.id for one in seen for _, each in measured(one.trials) for remark in each.remarks
        ),
    )


def _studies_of(run: FleetRun, part: int, found: Mapping[str, TaskProgress]) -> dict[str, str]:
    """Return the finished studies of a turn by their hosts."""
    tasks = [one for one in run.tasks if one.part == part]
    ended = {one.host.name: found[one.name] for one in tasks if one.name in found}
    return {host: one.study for host, one in ended.items() if one.state is TaskState.FINISHED}


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
    rows, sign = evidence_of(record).rows, 1.0 if search.higher else -1.0
    numbers = sorted({number for values in rows.values() for number in values})
    workloads = [one.name for one in record.study.compared]

    def value(arm: str, number: int) -> float:
        each = (rows.get((arm, workload), {}).get(number, {}).get(search.metric) for workload in workloads)
        return sign * fmean(map(log_of, each))

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
    alpha = ERROR / len(hosts) / len(others)
    found = list[BetterThere]()
    for host in hosts:
        mine = np.array([[block.get(name, math.nan) for name in names] for each, block in rounds if each == host])
        here = contrasts(mine, [(number, lead) for number in others], alpha=alpha)
        for number, one in zip(others, here, strict=True):
            if one.low > math.log1p(search.margin):
                sign = 1.0 if search.higher else -1.0
                low, ratio, high = sorted(math.exp(sign * value) for value in (one.low, one.mean, one.high))
                interval = Interval(estimate=ratio, low=low, high=high, confidence=1 - ERROR)
                found.append(BetterThere(host=host, arm=names[number], ratio=interval))
    return tuple(found)
