# SPDX-License-Identifier: Apache-2.0
"""The disks of a study brought into the state of ones in service before its first trial: each written in full, then
each load run until it is steady. What is done is kept with the study at once, so that a resumed one does the rest.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from virtune.bench.port import PATIENCE_SECONDS, DiskImageSpec, Window
from virtune.bench.verify import require_verified
from virtune.fio.job import FioJob
from virtune.fio.steady import SteadyFound, filling, steady_found, steady_job, written_bytes
from virtune.flows.run.trial import Tools, ground_for, jobs_of, load_on
from virtune.model import errors
from virtune.model.contradictions import images_of
from virtune.model.event import Noticed, Say, step
from virtune.model.evidence import Capture, Check
from virtune.model.stack import LIMITS
from virtune.model.steady import BLOCK_BYTES, PASSES, Preconditioned, Steadied, SteadyRule
from virtune.model.study import Arm, Study, Trial
from virtune.model.text import format_bytes, format_seconds
from virtune.plan.trials import FILL_BYTES_PER_SECOND
from virtune.store.store import Store

_SLOWEST_BYTES_PER_SECOND = 2e6
"""A disk that is written more slowly than this in order is taken for stuck."""

Heard = Callable[[float], None]


def in_service(study: Study, trials: Iterable[Trial], tools: Tools, *, store: Store, say: Say) -> Study:
    """Do before these trials what is not done yet, and return the study with that, as it is in the store then. What
    is made anew for each run is not as an earlier one left it.

    Raises PreconditionError for an arm whose load does not run, Interrupted.
    """
    if study.volume is not None or study.connect is not None or tools.rbd:
        study = replace(study, preconditioned=(), steadied=())
    if study.precondition:
        with _interrupted(study):
            study = _written(study, tools, store, say)
    return until_steady(study, trials, tools, store=store, say=say)


def until_steady(study: Study, trials: Iterable[Trial], tools: Tools, *, store: Store, say: Say) -> Study:
    """Run the load of each of these trials until it is steady, if it was not run so before; as `in_service`."""
    if (rule := study.until_steady) is None:
        return study
    done = {(one.arm, one.workload) for one in study.steadied}
    first = {(one.arm, one.workload): replace(one, number=0) for one in trials}
    order = ((arm.name, workload.name) for workload in study.workloads for arm in study.arms)
    left = [first[pair] for pair in order if pair in first and pair not in done]
    most = format_seconds(rule.limit_seconds)
    what = f"running each load until it is steady by {rule.text} (at most {most} each)"
    with _interrupted(study), step(what, say, told=bool(left), timed=True) as come:
        for index, trial in enumerate(left):

            def heard(seconds: float, done: int = index) -> None:
                come(done * rule.limit_seconds + seconds, len(left) * rule.limit_seconds)

            found = _until_steady(study, trial, rule, tools, heard)
            rates = [each.iops for each in found if each.iops is not None]
            one = Steadied(
                arm=trial.arm,
                workload=trial.workload,
                rule=rule.text,
                attained=all(each.attained for each in found),
                seconds=max(each.seconds for each in found),
                iops=sum(rates) if rates else None,
                found_percent=max(
                    (each.percent for each in found if each.percent is not None), key=abs, default=None
                ),
            )
            study = replace(study, steadied=(*study.steadied, one))
            store.replace_study(study)
            say(Noticed(text=one.words))
    return study


def _until_steady(study: Study, trial: Trial, rule: SteadyRule, tools: Tools, heard: Heard) -> list[SteadyFound]:
    """Run the load of a trial until it is steady; returns what fio says of it in each guest."""
    workload = study.arm(trial.arm).load_of(study.workload(trial.workload))
    window = Window(
        # it ends no sooner than this, so that all is looked at before
        seconds=rule.window_seconds,
        ramp_seconds=study.ramp_seconds,
        seed=study.seed,
        patience_seconds=rule.limit_seconds + PATIENCE_SECONDS,
        heard=heard,
    )
    asked = replace(study, seconds=rule.limit_seconds, ramp_seconds=0.0)
    outputs = _run(
        asked, trial, tools, window, lambda job: steady_job(job, workload, rule, ramp_seconds=study.ramp_seconds)
    )
    return [steady_found(output) for output in outputs]


def _written(study: Study, tools: Tools, store: Store, say: Say) -> Study:
    left = [*_unlike(study, tools, [study.arm(one.arm) for one in study.preconditioned])]
    what = "writing each disk in full twice, 128 KiB in order"
    with step(what, say, told=bool(left), timed=True) as come:
        for index, (arm, ground) in enumerate(left):
            size = ground.size_bytes * images_of(arm.stack)
            begun = time.monotonic()

            def heard(_: float, done: int = index, begun: float = begun, size: int = size) -> None:
                seconds = time.monotonic() - begun
                expected = max(PASSES * size / FILL_BYTES_PER_SECOND, seconds * 1.1)
                come(done * expected + seconds, len(left) * expected)

            wrote = sum(_fill(study, arm, ground, tools, heard) for _ in range(PASSES))
            one = Preconditioned(arm=arm.name, size_bytes=size, written_bytes=wrote, seconds=time.monotonic() - begun)
            study = replace(study, preconditioned=(*study.preconditioned, one))
            store.replace_study(study)
            say(Noticed(text=f"{study.disk_words(arm.stack)} was {one.words}"))
    return study


def _unlike(study: Study, tools: Tools, done: list[Arm]) -> Iterator[tuple[Arm, DiskImageSpec]]:
    """Yield the first arm on each set of disks, with these, leaving out those of the arms that are `done`."""
    seen = set[tuple[object, ...]]()
    for arm in (*done, *study.arms):
        ground = ground_for(arm.stack, filling(study.span_bytes, disks=1), study, tools)
        disks = (ground.image, ground.second, *ground.further, ground.rbd)
        if disks not in seen and arm not in done:
            yield arm, ground
        seen.add(disks)


def _fill(study: Study, arm: Arm, ground: DiskImageSpec, tools: Tools, heard: Heard) -> int:
    """Write an arm's disks in full once; returns how many bytes. Raises LoadError where that is less than all."""
    stack = arm.stack
    free: Any = dict.fromkeys(limit.knob.removeprefix("disk.") for limit in LIMITS)
    unlimited = replace(stack, disk=replace(stack.disk, **free))
    workload = filling(ground.size_bytes, disks=stack.disks * stack.guests)
    asked = replace(study, workloads=(workload,), arms=(replace(arm, stack=unlimited, options=()),))
    disks = images_of(stack)
    patience = max(600.0, disks * ground.size_bytes / _SLOWEST_BYTES_PER_SECOND)
    window = Window(seconds=1.0, ramp_seconds=0.0, patience_seconds=patience, heard=heard)
    trial = Trial(number=0, round=1, arm=arm.name, workload=workload.name)
    tools = replace(tools, clients=tools.clients.covering)
    wrote = sum(map(written_bytes, _run(asked, trial, tools, window, lambda job: job)))
    if wrote < (due := disks * (ground.size_bytes // BLOCK_BYTES * BLOCK_BYTES)):
        raise errors.LoadError(f"only {format_bytes(wrote)} of {format_bytes(due)} of arm {arm.name!r} were written")
    return wrote


def _run(
    study: Study, trial: Trial, tools: Tools, window: Window, changed: Callable[[FioJob], FioJob]
) -> list[bytes]:
    """Run one load on the stack of its arm, and return the result of each guest, verified as a trial's is."""
    arm = study.arm(trial.arm)
    workload = arm.load_of(study.workload(trial.workload))
    captures: list[Capture] = []
    seen: list[Check] = []
    try:
        with tools.up(arm.stack, ground_for(arm.stack, workload, study, tools)) as (bench, host_checks):
            seen += (*bench.in_force.checks, *host_checks())
            require_verified(arm.name, seen)
            jobs = [changed(one) for one in jobs_of(study, trial, 1, workload, bench, tools)]
            load_on(study, trial, jobs, bench, tools, captures, seen, window)
    except (errors.LoadError, errors.RigError) as error:
        said = f"{workload.name} of arm {arm.name!r} does not run before the trials: {error.message}"
        raise errors.PreconditionError(said, hint=error.hint) from None
    require_verified(arm.name, seen)
    return [one.content for one in captures if one.name.startswith("fio") and one.name.endswith(".json")]


@contextlib.contextmanager
def _interrupted(study: Study) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        hint = f"continue with `virtune compare resume {study.id}`"
        raise errors.Interrupted("interrupted before the next trial", hint=hint) from None
