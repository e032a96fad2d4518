# SPDX-License-Identifier: Apache-2.0
"""A study, start to finish: preconditions, its trials one by one into the store, what is left when interrupted."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from virtune import shell
from virtune.analyse.summarise import summarise
from virtune.bench.in_force import require_in_force
from virtune.bench.load import fio_engines
from virtune.bench.permission import admit
from virtune.bench.rig import session
from virtune.bench.scratch import Scratch
from virtune.flows.appliance import ready_appliance
from virtune.flows.attempt import Attempts, still_to_run
from virtune.flows.images import identities, require_same_images
from virtune.flows.trial import Tools, ground_for
from virtune.model.errors import Interrupted, LoadError, PreconditionError, RefusedTargetError, RigError, UsageError
from virtune.model.event import Event, Noticed, StudyStarted, TrialEnded, TrialStarted
from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.result import Result
from virtune.model.study import Study, Trial
from virtune.model.units import format_count, format_ns
from virtune.plan.exported import program_for
from virtune.plan.fit import require_fit
from virtune.plan.interleave import Overhead, estimate_seconds, trials
from virtune.plan.loads import settled, with_loads
from virtune.probe.kernel import try_io_uring
from virtune.store.sqlite import Store

OVERHEAD = Overhead(up=0.05, load=0.35)
"""What a trial costs beside ramp and run, as measured: the daemon 0.02 s up and 0.03 s down, fio 0.28 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """What the user allowed to be done to a target of theirs."""

    write_to: str | None = None
    in_use: bool = False


def new_study(study: Study, *, restart: bool = False) -> Study:
    """Return the study with an id, a date and its trials in their interleaved order, each in a process of its own
    with `restart`.
    """
    now = datetime.now(UTC)
    study = replace(
        study, id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}", created=now.isoformat(timespec="seconds")
    )
    if study.at_load:
        return with_loads(study, restart=restart)
    return replace(
        study,
        trials=trials(
            [arm.name for arm in study.arms],
            [workload.name for workload in study.workloads],
            rounds=study.rounds,
            seed=study.seed,
            restart=restart,
        ),
    )


def random_seed() -> int:
    """Return a seed to be recorded, small enough to be typed again."""
    return secrets.randbelow(1_000_000)


def run_study(study: Study, *, store: Store, say: Callable[[Event], None], leave: Leave, facts: str) -> Result:
    """Keep a new study and run its trials; returns its result.

    Raises Interrupted when the user stopped it (what was finished is kept), LoadError when an arm gave nothing.
    """
    with prepared(study, say, leave) as tools:
        study = replace(study, images=identities(loaded(study, tools)))
        store.add_study(study, facts=facts)
        _run_all(study, study.trials, tools, store=store, say=say)
    return finished_result(store, study.id)


def resume_study(record: StudyRecord, *, store: Store, say: Callable[[Event], None], leave: Leave) -> Result:
    """Run what is left of a study; finished trials are never run again."""
    study = record.study
    if study.imported:
        raise UsageError(f"study {study.id} was imported: there is nothing to run", hint="`virtune show` shows it")
    left = still_to_run(record)
    if left or study.unsettled:
        require_same_images(study)
        with prepared(study, say, leave) as tools:
            require_same_images(study)  # a scratch image that was damaged has been made anew just now
            _run_all(study, left, tools, store=store, say=say)
    return finished_result(store, study.id)


def finished_result(store: Store, study_id: str) -> Result:
    """Mark a study finished when every trial is measured, and return what it says."""
    record = store.get(study_id)
    if not record.left and not record.finished and not record.study.unsettled:
        store.finish(study_id)
        record = replace(record, finished=True)
    return summarise(record)


@contextlib.contextmanager
def prepared(study: Study, say: Callable[[Event], None], leave: Leave, *, all_up: bool = True) -> Iterator[Tools]:
    """Look for everything that is needed before anything is made, then yield the tools with scratch in place.

    `all_up`: every arm must come up; without it, whether one does is for the caller to see.
    """
    fio = shell.find("fio")
    if any(arm.stack.rig == "storage-daemon" for arm in study.arms):
        shell.find("qemu-storage-daemon")
    if any(arm.stack.disk.format == "qcow2" for arm in study.arms):
        shell.find("qemu-img")
    if any(arm.stack.rig == "qemu" for arm in study.arms):
        shell.find("qemu-system-x86_64")
        ready_appliance(say)
    target = None if study.target is None else Path(study.target)
    writes = any(workload.writes for workload in study.workloads)
    size = study.span_bytes
    if target is not None:
        if any(arm.stack.disk.format != "raw" for arm in study.arms):
            raise RefusedTargetError(
                "a target of your own is used as it is, so format=raw is the only one it can have"
            )
        found = admit(
            target, span_bytes=size, writes=writes, allow_write_to=leave.write_to, allow_in_use=leave.in_use
        )
        size = min(size, found)
    engines = _usable(fio_engines(fio), say)
    require_fit(study, engines=engines)
    programs = {"fio": fio}
    if any(arm.stack.export == "vhost-user-blk" for arm in study.arms) and program_for(engines) != "fio":
        programs |= {shell.GENERATOR: shell.find_generator()}
    with (
        shell.Warden(study.id) as warden,
        Scratch(Path(study.scratch), span_bytes=study.span_bytes, say=say) as scratch,
        session(warden) as rigs,
    ):
        tools = Tools(
            programs=programs,
            engines=engines,
            rigs=rigs,
            scratch=scratch,
            warden=warden,
            target=target,
            target_bytes=size,
        )
        if target is None:
            for disk in {arm.stack.disk for arm in study.arms if arm.stack.disk.backend == "file"}:
                scratch.image_for(disk, warden)
        if all_up:
            _require_all_come_up(study, tools)
        yield tools


def loaded(study: Study, tools: Tools) -> Iterator[Path]:
    """Yield every file and device that the study's arms load."""
    if tools.target is not None:
        yield tools.target
        return
    for disk in {arm.stack.disk for arm in study.arms if arm.stack.disk.backend == "file"}:
        yield tools.scratch.image_for(disk, tools.warden)


def _usable(engines: frozenset[str], say: Callable[[Event], None]) -> frozenset[str]:
    """Leave out io_uring where the kernel refuses it to us: that fio was built with it says nothing of this host."""
    if "io_uring" in engines and try_io_uring() is False:
        say(Noticed(text="io_uring does not work here (`virtune probe` says why), so fio uses another engine"))
        return engines - {"io_uring"}
    return engines


def _require_all_come_up(study: Study, tools: Tools) -> None:
    """Bring every arm up once before anything is measured: what QEMU refuses is known at once, not after an hour."""
    for arm in study.arms:
        for workload in study.workloads[:1]:
            try:
                with tools.rigs.up(arm.stack, ground_for(arm.stack, workload, study, tools)) as bench:
                    require_in_force(arm.name, bench.in_force.checks)
            except RigError as error:
                said = f": {error.hint}" if error.hint else ""
                raise PreconditionError(f"arm {arm.name!r} does not come up: {error.message}{said}") from None


def _run_all(
    study: Study, left: tuple[Trial, ...], tools: Tools, *, store: Store, say: Callable[[Event], None]
) -> None:
    """Run what is left; where offered loads wait for the baseline's saturation, that first and then what follows.

    What follows is written into the store before it runs, so that the saturation is never measured again.
    """
    if left:
        _run(study, left, tools, store=store, say=say)
    if study.unsettled:
        study = settled(store.get(study.id))
        store.replace_study(study)
        say(Noticed(text="; ".join(f"{one.name}: {one.meaning}" for one in study.compared if one.offered_iops)))
        _run(study, store.get(study.id).left, tools, store=store, say=say)


def _run(study: Study, left: tuple[Trial, ...], tools: Tools, *, store: Store, say: Callable[[Event], None]) -> None:
    total = len(study.trials)
    estimate = estimate_seconds(study, done=total - len(left), overhead=OVERHEAD)
    say(StudyStarted(study=study, done=total - len(left), seconds_left=estimate))
    clock = _Clock(estimate / max(1, len(left)))
    ended = total - len(left)
    attempts = Attempts(study, tools, store=store, say=say)
    try:
        for index, trial in enumerate(left):
            say(TrialStarted(trial=trial, of=total, seconds_left=clock.left(len(left) - index)))
            record = attempts.make(trial)
            ended += 1
            clock.tick()
            say(TrialEnded(trial=trial, of=total, summary=_line(record), failure=record.failure))
    except KeyboardInterrupt:
        hint = f"`virtune resume {study.id}` goes on"
        raise Interrupted(f"interrupted; {ended} of {total} trials are kept", hint=hint) from None
    _require_something(study, store.get(study.id))


def _require_something(study: Study, record: StudyRecord) -> None:
    """Raise LoadError for an arm of which no trial gave a measurement: that is a failure, not a result."""
    for arm in study.arms:
        mine = [trial for trial in record.trials if trial.trial.arm == arm.name]
        if mine and all(trial.measurement is None for trial in mine):
            reasons = {trial.failure for trial in mine if trial.failure}
            raise LoadError(f"no trial of arm {arm.name!r} gave a measurement", hint="; ".join(sorted(reasons)))


def _line(record: TrialRecord) -> str:
    if record.measurement is None:
        return f"no measurement: {record.failure}"
    iops, mean = record.measurement.get("iops"), record.measurement.get("latency.mean")
    words = [f"{format_count(iops)} IOPS"] if iops is not None else []
    words += [f"{format_ns(mean)} mean"] if mean is not None else []
    words += [f"invalid: {', '.join(record.measurement.causes)}"] if record.measurement.causes else []
    return ", ".join(words)


class _Clock:
    """How long the rest takes, by what the trials so far took."""

    def __init__(self, each_seconds: float) -> None:
        self._each = each_seconds
        self._started = time.monotonic()
        self._count = 0

    def tick(self) -> None:
        self._count += 1

    def left(self, trials_left: int) -> float:
        if self._count:
            self._each = (time.monotonic() - self._started) / self._count
        return self._each * trials_left
