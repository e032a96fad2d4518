# SPDX-License-Identifier: Apache-2.0
"""From the options of `tune` to a Study that searches: goal, space, workloads, and the facts of the host."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from virtune.analyse.search.pilot import BLOCKS_IN_BUDGET, PATIENCE
from virtune.bench.qemu.machine import PROGRAM
from virtune.flows.run.preconditions import guest_is_built
from virtune.flows.run.question import checked_span, facts_text, read_workloads
from virtune.flows.run.scratch_default import default_scratch
from virtune.flows.run.study import random_seed
from virtune.flows.stored.study_id import study_id
from virtune.model.durability import Promise
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.knobs import KNOBS
from virtune.model.search import Goal, Search, SetApart
from virtune.model.study import Study, StudyKind
from virtune.model.study_options import OPTIONS, SPREAD_SECONDS, ChosenOption, Provenance, StudyOptions
from virtune.model.text import format_seconds
from virtune.model.tuning import Apart, Space
from virtune.plan.arms import layered, recorded
from virtune.plan.goal import parse_goal
from virtune.plan.guests import with_system
from virtune.plan.space import Asked, Host, emulators_of, space_of, tries_for
from virtune.probe.kernel import try_io_uring
from virtune.probe.qemu_knobs import ask_daemon, ask_emulator

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
    return study_for(asked, host), facts_text(asked.scratch or default_scratch())


def study_for(asked: StudyOptions, what: Callable[[Asked], Host]) -> Study:
    """Return the study that searches a host; `what` says what that supports.

    Raises PlanError with what is wrong and a hint.
    """
    _require_time(asked)
    goal = parse_goal(asked.maximize, asked.minimize, asked.subject_to)
    workloads = read_workloads(asked.workloads or OPTIONS["workloads"].default, Path())
    span = checked_span(asked)
    space = _space(asked, span, what)
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
        arms=space.arms,
        baseline=space.baseline,
        workloads=workloads,
        rounds=1,
        seconds=asked.seconds or SLICE_SECONDS,
        ramp_seconds=OPTIONS["ramp"].default if asked.ramp is None else asked.ramp,
        seed=random_seed() if asked.seed is None else asked.seed,
        scratch=str((asked.scratch or default_scratch()).absolute()),
        span_bytes=span,
        target=None if asked.target is None else str(asked.target.absolute()),
        metric=goal.metric,
        margin=asked.margin or OPTIONS["margin"].default,
        confidence=1 - ERROR,
        search=_search(asked, goal, space),
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
    if spread * (BLOCKS_IN_BUDGET - 1) >= budget:
        raise PlanError(
            f"{BLOCKS_IN_BUDGET} blocks {format_seconds(spread)} apart do not fit into {format_seconds(budget)}",
            hint="a smaller --spread, or a larger --budget",
        )


def _space(asked: StudyOptions, span: int, what: Callable[[Asked], Host]) -> Space:
    durability = None if asked.durability is None else Promise(asked.durability)
    words = Asked(
        rig=asked.rig,
        vary=asked.vary,
        fix=asked.fix,
        baseline=asked.baseline,
        durability=durability,
        span_bytes=span,
    )
    return space_of(words, what(words))


def _search(asked: StudyOptions, goal: Goal, space: Space) -> Search:
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
        spread_seconds=_spread_of(asked),
        vary=asked.vary,
        tries=tries_for(len(space.ranked)),
        patience=PATIENCE,
    )


def host(asked: Asked) -> Host:
    """Query the kernel, and each QEMU that will run the configurations, for the settings that they support.

    Another QEMU than that may have been built with less, or with more. Raises PlanError for invalid settings.
    """
    works = try_io_uring()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    knobs = [knob for knob in KNOBS if knob.place]
    emulators = emulators_of(asked)
    found = [ask_emulator(knobs, emulators=(one or PROGRAM,)) for one in emulators] or [ask_daemon(knobs)]
    return Host(
        answers={knob.id: tuple(one[knob.id] for one in found if knob.id in one) for knob in knobs},
        io_uring=works if isinstance(works, bool) else False,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=memory,
    )


def _spread_of(asked: StudyOptions) -> float:
    if asked.spread is not None:
        return asked.spread
    if asked.mode != "certify":
        return 0.0
    return SPREAD_SECONDS if asked.budget is None else min(SPREAD_SECONDS, asked.budget / SPREAD_BLOCKS)


def _apart(space: Space) -> tuple[SetApart, ...]:
    """Group configurations with the same durability for the same reason."""
    found: dict[tuple[Promise, str], list[Apart]] = {}
    for one in space.apart:
        found.setdefault((one.durability.promise, one.durability.words), []).append(one)
    return tuple(
        SetApart(
            names=_names(same),
            promise=promise,
            weaker=same[0].durability.weaker_than(space.promise),
            words=words,
        )
        for (promise, words), same in found.items()
    )


def _names(apart: Sequence[Apart]) -> tuple[str, ...]:
    return tuple(one.arm.name for one in apart)
