# SPDX-License-Identifier: Apache-2.0
"""Run a study from start to finish: check preconditions, store its trials one by one, resume it if interrupted."""

import contextlib
import importlib
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from virtune import shell
from virtune.analyse.study.summarise import summarise
from virtune.analyse.study.thresholds import look
from virtune.analyse.study.verdicts import confidence_of_one, require_measured
from virtune.bench.host_settings import FoundHost
from virtune.bench.load import busy_words, fio_engines
from virtune.bench.port import Surroundings, session
from virtune.bench.rbd import rbd_images
from virtune.bench.scratch import Scratch, require_place
from virtune.bench.surroundings import IMAGE as NEIGHBOURS
from virtune.bench.volumes import scratch_volume
from virtune.dialects.qemu.images import files_of
from virtune.fio.generator import Clients
from virtune.flows.run import prepare
from virtune.flows.run import trial as trials
from virtune.flows.run.durability import all_survive
from virtune.flows.run.in_service import in_service, until_steady
from virtune.flows.run.preconditions import Leave, admitted, require_programs
from virtune.flows.stored.show import by_todays_method, seen_costs, study_id
from virtune.model.errors import Interrupted, MissingToolError, UsageError
from virtune.model.event import Event, Noticed, RoundJudged, Say, StudyPlanned, StudyStarted, TrialEnded, TrialStarted
from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.model.stack import Disk
from virtune.model.study import Study, Trial
from virtune.model.text import format_share
from virtune.model.verdict import Threshold
from virtune.plan.guests import clients_for, loads_virtqueues, require_fit
from virtune.plan.loads import disturbed_probes, settled, with_loads
from virtune.plan.trials import SeenCosts, looked_at, plan_done, propose
from virtune.probe.host import busy_facts
from virtune.probe.kernel import try_io_uring
from virtune.probe.programs import said_of_itself
from virtune.store.store import Store

if TYPE_CHECKING:
    from virtune.bench.libvirt.access import DomainAccess

_NOISES = (0.02, 0.05, 0.15)
"""How rounds differ on a quiet host, on a busy one and on a bad one (`virtune host check` says which one this is)."""

_OF_EXPORTS = frozenset({"nbd", "libblkio"})
"""The fio engines that load a storage daemon's exports; guests do not need them."""


Finished = tuple[StudyRecord, Result]
"""A study with what it says."""


def new_study(study: Study, *, restart: bool = False) -> Study:
    """Return the study with an id, a date and its trials in their interleaved order, each in a process of its own
    with `restart`.
    """
    now = datetime.now(UTC)
    name = study_id(now, simulated=study.simulated)
    study = replace(study, id=name, created=now.isoformat(timespec="seconds"))
    if study.at_load:
        return with_loads(study, restart=restart)
    rounds = study.rounds  # of a sequential study all that come before the first interim look
    if study.sequential:
        rounds = study.fewest_rounds if study.budget_seconds is None else 1
    workloads = [workload.name for workload in study.workloads]
    return replace(study, trials=propose(study, rounds=rounds, workloads=workloads, restart=restart))


def shows(study: Study, rounds: int) -> str:
    """Return the minimum detectable difference of a study of so many rounds at most, for several levels of noise.

    It has 90 % power at the confidence of each pair.
    """
    from virtune.analyse.stats.planned import smallest_planned

    alpha = 1 - confidence_of_one(study)
    found = ((noise, smallest_planned(rounds, sd=noise, alpha=alpha, arms=len(study.arms))) for noise in _NOISES)
    known = [least for _, least in found if least is not None]
    if rounds < study.fewest_rounds or not known:
        return f"too few rounds to show a difference: {rounds}; {study.fewest_rounds} are the minimum for a verdict"
    noisy = f", {format_share(known[-1], 1)} on a noisy one" if len(known) > 1 else ""
    about = "" if study.budget_seconds is None else "about "
    return f"{about}{rounds} rounds find differences of about {format_share(known[0], 1)} on a quiet host{noisy}"


def random_seed() -> int:
    """Return a random seed that is small enough to be typed."""
    return secrets.randbelow(1_000_000)


def run_study(study: Study, *, store: Store, say: Say, leave: Leave, facts: str) -> Finished:
    """Store a new study and run its trials; returns it with its result.

    Raises Interrupted when the user stopped it (finished trials are kept), LoadError when fewer than two arms gave
    measurements, or the only one gave none.
    """
    costs = seen_costs(store, study)
    planned = StudyPlanned(study=study, seconds=trials.all_seconds(study, costs))
    with prepared(study, say, leave, announced=planned) as tools:
        study = prepare.begun(study, loaded(study, tools), tools, store)
        store.add_study(study, facts=facts)
        _run_all(study, study.trials, tools, costs, store=store, say=say)
    return finished_result(store, study.id)


def resume_study(
    record: StudyRecord, *, store: Store, say: Say, leave: Leave, conditions: tuple[Threshold, ...] = ()
) -> Finished:
    """Run the rest of a study; finished trials are never repeated.

    It runs until its conditions, or those given instead, are decided.
    """
    study = record.study
    if study.imported:
        raise UsageError(f"study {study.id} was imported and cannot be run", hint="`virtune show` shows it")
    if conditions not in ((), study.conditions) and not record.finished:
        study = replace(study, conditions=conditions)
        store.replace_study(study)
        record = replace(record, study=study)
    left = trials.still_to_run(record)
    if left or study.unsettled or (study.sequential and not record.finished):
        with taken_up(record, store, say, leave) as (again, tools):
            _run_all(again.study, left, tools, seen_costs(store, study), store=store, say=say)
    return finished_result(store, study.id)


def finished_result(store: Store, study_id: str) -> Finished:
    """Mark a study as finished when every trial is measured, and return it with its result."""
    record = by_todays_method(store, study_id)
    if not (record.left or record.finished or record.study.unsettled):
        store.finish(study_id)
        record = replace(record, finished=True)
    return record, summarise(record)


def rehearse(study: Study, say: Say, leave: Leave) -> None:
    """Check all preconditions of a study, and make nothing for it."""
    if not study.simulated:
        _checked(study, say)
        with admitted(study, leave, say):
            images, copies = trials.scratch_images(study)
            for place, wanted in images.items():
                require_place(place, {*wanted, *copies[place]}, span_bytes=study.span_bytes)


def _checked(study: Study, say: Say) -> tuple[Mapping[str, str], Clients, Mapping[str, "DomainAccess"]]:
    """Return the programs that load, what they are to a study, and the ways into its domains; raises where one is
    missing, or a job does not fit.
    """
    fio = shell.find("fio")
    require_programs(study, say)
    if study.check_durability:
        shell.find_generator()  # what cannot be looked at is better known before images are filled
    ways = prepare.ready_domains(study, say)
    engines = _usable(fio_engines(fio), say)
    # one engine for all arms that load files or disks: a guest's fio may have fewer engines
    engines = engines.intersection(*(way.engines | _OF_EXPORTS for way in ways.values()))
    programs = {"fio": fio, **_generator(study, engines)}
    clients = clients_of(study, engines, programs)
    require_fit(study, clients=clients)
    return programs, clients, ways


@contextlib.contextmanager
def prepared(
    study: Study, say: Say, leave: Leave, *, all_up: bool = True, announced: Event | None = None
) -> Iterator[trials.Tools]:
    """Check all preconditions before anything is created, then yield the tools with the scratch images in place.

    `all_up`: every arm must come up; without it the caller checks that. `announced` is reported after the checks,
    before images are filled.
    """
    if study.simulated:
        if announced is not None:
            say(announced)
        with prepare.simulated_tools(study, say) as tools:
            yield tools
        return
    programs, clients, ways = _checked(study, say)
    with (
        admitted(study, leave, say) as targets,
        shell.Warden(study.id) as warden,
        Scratch(
            trials.directory_of(study), span_bytes=study.span_bytes, say=say, passing=study.connect is not None
        ) as scratch,
        contextlib.ExitStack() as ends,  # of what no rig has open any more
        prepare.further_directories(study, scratch, say) as directories,
        session(Surroundings(warden=warden, scratch=scratch.directory, access=ways)) as rigs,
    ):
        if announced is not None:
            say(announced)
        volume = {}
        if study.volume is not None:
            volume["target"] = ends.enter_context(scratch_volume(study.volume, study.span_bytes, warden, say))
        _tell_if_busy(say)
        tools = trials.Tools(
            host=FoundHost(frozenset(name for arm in study.arms for name in arm.stack.of_this_host)),
            programs=programs,
            clients=clients,
            rigs=rigs,
            scratch=scratch,
            warden=warden,
            targets={**targets, **volume},
            directories=directories,
        )
        _make_images(study, tools)
        with rbd_images((arm.stack for arm in study.arms), scratch, warden, say) as rbd:
            tools = replace(tools, rbd=rbd)
            with _judges():
                tools = replace(tools, data=prepare.all_come_up(study, tools, say) if all_up else {})
            tools = replace(tools, survived=all_survive(study, tools, say))
            yield replace(tools, first_read=trials.read_first(study, loaded(study, tools), tools, say))
            prepare.all_come_up(study, tools, say, again=True)


def _tell_if_busy(say: Say) -> None:
    if busy := busy_words(busy_facts()):
        so = "trials that others disturb do not count, and --wait-quiet 5m waits for a quiet host"
        say(Noticed(text=f"{busy}: {so}"))


@contextlib.contextmanager
def taken_up(
    record: StudyRecord, store: Store, say: Say, leave: Leave, *, all_up: bool = True
) -> Iterator[tuple[StudyRecord, trials.Tools]]:
    """Yield a study that goes on, with its tools. Raises RefusedTargetError for another image than it began with."""
    prepare.require_same_images(record.study)
    with prepared(record.study, say, leave, all_up=all_up) as tools:
        for trial in record.trials:
            tools.host.resumed(trial.in_force.checks)
        prepare.require_same_images(record.study)  # a damaged scratch image has just been replaced
        yield prepare.resumed(record, tools, store), tools


@contextlib.contextmanager
def _judges() -> Iterator[None]:
    """Import the analysis while the block runs: it takes half a second, in which a guest boots, and must not fall
    between trials.
    """
    loading = threading.Thread(target=importlib.import_module, args=("scipy.special",))
    loading.start()
    yield
    loading.join()


def loaded(study: Study, tools: trials.Tools) -> Iterator[Path]:
    """Yield every lasting file and device that the study's arms load, without those removed after the run."""
    if study.connect is not None or study.simulated:
        return
    yield from map(Path, study.targets.values())
    for stack in trials.scratch_stacks(study):
        for image in trials.images_for(stack, tools):
            yield from files_of(stack.disk, image)
        if stack.neighbour == "io":
            yield tools.scratch_of(stack).image_for(Disk(), tools.warden, NEIGHBOURS)


def _make_images(study: Study, tools: trials.Tools) -> None:
    """Make the images now, and not in the first trial: they are created on request."""
    list(loaded(study, tools))
    for stack in trials.scratch_stacks(study):
        trials.copy_for(stack, tools)


def _generator(study: Study, engines: frozenset[str]) -> dict[str, str]:
    """Return the path of virtune-load, if the study can use it.

    Raises MissingToolError when it is missing and this fio cannot replace it.
    """
    if not loads_virtqueues(study):
        return {}
    exported = any(arm.stack.export == "vhost-user-blk" for arm in study.arms)
    with contextlib.suppress(*([] if exported and "libblkio" not in engines else [MissingToolError])):
        return {shell.GENERATOR: shell.find_generator()}
    return {}


def clients_of(study: Study, engines: frozenset[str], programs: Mapping[str, str]) -> Clients:
    """Return the load generators of a study; an older virtune-load does not repeat a job's description."""
    generator = programs.get(shell.GENERATOR)
    described = generator is not None and "\n  description " in said_of_itself(generator, "--help")
    return replace(clients_for(study, engines=engines, installed=generator is not None), described=described)


def _usable(engines: frozenset[str], say: Say) -> frozenset[str]:
    """Leave out io_uring where the kernel denies it, even if fio was built with it."""
    if "io_uring" in engines and try_io_uring() is False:
        say(Noticed(text="io_uring does not work here (`virtune host probe` says why): fio uses another engine"))
        return engines - {"io_uring"}
    return engines


def _run_all(
    study: Study, left: tuple[Trial, ...], tools: trials.Tools, costs: SeenCosts, *, store: Store, say: Say
) -> None:
    """Run the trials left; with offered loads, first the baseline's saturation and then the loads that follow from
    it.

    These are stored before they run, so that the saturation is measured only once.
    """
    study = in_service(study, left, tools, store=store, say=say)
    if left or study.sequential:
        _run(study, left, tools, costs, store=store, say=say)
    if study.unsettled:
        probed = by_todays_method(store, study.id)
        study = settled(probed)
        store.replace_study(study)
        for text in disturbed_probes(probed):
            say(Noticed(text=text))
        say(Noticed(text="; ".join(f"{one.name}: {one.meaning}" for one in study.compared if one.offered_iops)))
        left = store.get(study.id).left
        _run(until_steady(study, left, tools, store=store, say=say), left, tools, costs, store=store, say=say)


def _run(
    study: Study, left: tuple[Trial, ...], tools: trials.Tools, costs: SeenCosts, *, store: Store, say: Say
) -> None:
    """Run the trials left, and those proposed after them, until no more are proposed."""
    ended = len(study.trials) - len(left)
    pace = trials.Pace(study, done=ended, busy=trials.host_is_busy(), seen=costs)
    say(StudyStarted(study=study, done=ended, seconds_left=trials.seconds_left(study, left, pace)))
    if study.sequential and not study.unsettled and study.rounds_begun <= study.fewest_rounds and left:
        say(Noticed(text=shows(study, trials.rounds_at_most(study, pace))))
    attempts = trials.Attempts(study, tools, store=store, say=say, pace=pace)
    try:
        if not left:
            study, left = _next(study, attempts, pace, store, say)
        while left:
            for index, trial in enumerate(left):
                place = trials.place_of(study, trial, pace)
                say(
                    TrialStarted(
                        trial=trial, place=place, seconds_left=trials.seconds_left(study, left[index:], pace)
                    )
                )
                record = attempts.make(trial)
                ended += 1
                say(TrialEnded(trial=trial, place=place, summary=trials.summary_of(record), failure=record.failure))
            study, left = _next(study, attempts, pace, store, say)
    except KeyboardInterrupt:
        kept = len({one.trial.number for one in store.get(study.id).trials})
        raise _interrupted(study, ended, kept, pace) from None
    require_measured(store.get(study.id).trials)


def _interrupted(study: Study, ended: int, kept: int, pace: trials.Pace) -> Interrupted:
    """Say how far an interrupted study came, and how to resume it. `kept` are the trials that are stored: of one
    that is to be tried again there is an attempt already.
    """
    number = study.trials[min(ended, len(study.trials) - 1)].round
    most = f"{'at most ' if study.sequential else ''}{trials.rounds_at_most(study, pace)}"
    stored = f"{kept} trial{' is' if kept == 1 else 's are'} stored"
    hint = f"continue with `virtune compare resume {study.id}`"
    return Interrupted(f"interrupted in round {number} of {most}; {stored}", hint=hint)


def _next(
    study: Study, attempts: trials.Attempts, pace: trials.Pace, store: Store, say: Say
) -> tuple[Study, tuple[Trial, ...]]:
    """Make the interim analysis; return the study with the next round, if one is needed.

    The proposal is stored before it runs, so that a killed study resumes exactly.
    """
    if not study.sequential or study.unsettled:
        return study, ()
    study = looked_at(study, plan_done(study, pace.seconds))
    record = attempts.record(study)
    require_measured(record.trials)
    seen = look(record)
    restart = any(trial.restart for trial in study.trials)
    proposed = propose(study, rounds=1, workloads=seen.workloads, without=seen.lost, restart=restart)
    ends = study.budget_seconds is not None and pace.seconds + pace.left(proposed) > study.budget_seconds
    if ends and proposed:  # no further round fits, so this look gets the rest of the error
        study, proposed = looked_at(study, 1.0), ()
        seen = look(attempts.record(study))
    left = trials.seconds_left(study, (), pace)
    ahead = trials.rounds_at_most(study, pace) - study.rounds_begun if proposed else 0
    say(
        RoundJudged(
            round=study.rounds_begun, verdicts=seen.verdicts, rulings=seen.rulings, seconds_left=left, ahead=ahead
        )
    )
    now = {(trial.arm, trial.workload) for trial in study.trials if trial.round == study.rounds_begun}
    for (arm, workload), why in seen.lost.items():
        if (arm, workload) in now:
            say(Noticed(text=f"{why}; the other arms go on without it under {workload}"))
    study = replace(study, trials=(*study.trials, *proposed))
    store.replace_study(study)
    return study, proposed
