# SPDX-License-Identifier: Apache-2.0
"""From what was asked to a Study: plan file, flags over it, defaults under both, and the facts of the host."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.fio.jobfile import own_times, read_job_file
from virtune.fio.workloads import parse_workload
from virtune.flows.builtin_studies import builtin
from virtune.flows.probe import probe
from virtune.flows.study import new_study, random_seed
from virtune.model.condition import Threshold
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.metric import ALIASES, BY_ID, FAMILIES, metric_id
from virtune.model.spelling import did_you_mean
from virtune.model.stack import Stack
from virtune.model.study import (
    BUDGET_MAX,
    DEFAULT_SPAN,
    RAMP_MAX,
    ROUNDS_MAX,
    SECONDS_MAX,
    SECONDS_MIN,
    Arm,
    Pairs,
    Study,
)
from virtune.model.units import format_seconds
from virtune.model.workload import Workload
from virtune.plan.arms import arm_from_text, arms_from_vary, base_stack, check_arms, choose_baseline, make_arm
from virtune.plan.forecast import round_seconds
from virtune.plan.loads import read_loads
from virtune.plan.planfile import Plan, read_plan
from virtune.probe.reading import read_up_to
from virtune.report.json.probe import probe_document
from virtune.virsh import default_uri

ROUNDS = {"compare": 100, "measure": 3, "check": 6}
"""A comparison stops when it knows, so this is only its end; a single stack needs only its spread shown."""

BUDGET_SECONDS = 300.0
"""Five minutes of trials: two arms then have 50 rounds, which show 3 % under a noise of 5 % (method, 4.2)."""

BUDGET_ROUNDS = 8
"""Where trials are long or many, the default budget has room for these: two more than the fewest that can decide."""

SECONDS = {"compare": 2.0, "measure": 4.0, "check": 4.0}
"""Short and interleaved beats long: with 0.4 s to bring a stack and fio up, 1 to 2 s is the best slice under every
noise that was simulated (method, 4.2). A single stack is not compared, so its start and end should weigh less."""

RAMP_SECONDS = 0.5
"""No start-up transient was seen beyond the first 250 ms of a load (method, 1)."""

MARGIN = 0.03
"""A difference of less than 3 % is not worth a restart (method, 5)."""

CONFIDENCE = 0.95
"""Of all verdicts together, however often one looks (method, 5)."""

AT_LOAD = ("latency.p99", "latency.p50", "latency.mean")
"""What is judged at equal offered load unless one metric is named."""

DEFAULT_WORKLOADS = ("randread-4k",)

SPAN_MIN = 8 * 1024**2
_FILE_BYTES_MAX = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, as it was written; None and empty where nothing was said."""

    kind: str
    plan: Path | None = None
    builtin: str = ""
    rig: str | None = None
    settings: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    baseline: str | None = None
    metric: str | None = None
    pairs: Pairs | None = None
    margin: float | None = None
    confidence: float | None = None
    at_load: tuple[str, ...] = ()
    rounds: int | None = None
    budget: float | None = None
    seconds: float | None = None
    ramp: float | None = None
    seed: int | None = None
    scratch: Path
    span: int | None = None
    target: Path | None = None
    restart: bool = False
    connect: str | None = None
    conditions: tuple[Threshold, ...] = ()


def study_for(question: Question) -> tuple[Study, str]:
    """Return the study that answers the question, and the facts of this host as JSON text.

    Raises PlanError, with what is wrong and a hint, before anything is made or run.
    """
    plan = _plan(question)
    arms = _arms(question, plan)
    at_load = read_loads(question.at_load or plan.at_load)
    said = question.metric or plan.metric
    metric = checked_metric(said or (AT_LOAD[0] if at_load else "iops"))
    span = int(_or(question.span, plan.span, DEFAULT_SPAN))
    if span < SPAN_MIN:
        raise PlanError("--span below 8 MiB fits into any cache", hint="use at least `--span 64M`")
    seed = question.seed if question.seed is not None else plan.seed
    workloads = _workloads_of(question, plan)
    own_seconds, own_ramp = _own_times(workloads)
    study = Study(
        id="",
        created="",
        kind=question.kind,
        arms=arms,
        baseline=choose_baseline(arms, question.baseline or plan.baseline),
        workloads=workloads,
        rounds=_rounds(question, plan),
        seconds=_or(question.seconds, plan.seconds, own_seconds, SECONDS[question.kind]),
        ramp_seconds=_or(question.ramp, plan.ramp, own_ramp, RAMP_SECONDS),
        seed=random_seed() if seed is None else seed,
        scratch=str(question.scratch.absolute()),
        span_bytes=span // 4096 * 4096,
        target=None if question.target is None else str(question.target.absolute()),
        connect=_connect(question, plan, arms),
        title=plan.title or "",
        metric=metric,
        also=AT_LOAD[1:] if at_load and not said else (),
        at_load=at_load,
        margin=_or(question.margin, plan.margin, MARGIN),
        confidence=_or(question.confidence, plan.confidence, CONFIDENCE),
        builtin=question.builtin,
        conditions=question.conditions,
    )
    if question.kind == "compare":
        study = _budgeted(study, question, plan)
    elif question.budget is not None or plan.budget is not None:
        raise PlanError("--budget is for `compare`, which stops when every pair is decided")
    _sensible(study)
    return new_study(study, restart=question.restart), facts_text(question.scratch)


def _connect(question: Question, plan: Plan, arms: tuple[Arm, ...]) -> str | None:
    """Return the libvirt that has the arms' domains: the one that was said, else the one that `virsh` takes."""
    said = question.connect or plan.connect
    if not any(arm.stack.kind.users_guest for arm in arms):
        if said is not None:
            raise PlanError("--connect was given, but no arm runs in a libvirt domain", hint="`--rig libvirt:DOMAIN`")
        return None
    if question.target is not None:
        raise PlanError(
            "--target cannot be used in a libvirt domain: virtune attaches only its own scratch disks there",
            hint="omit --target; `--scratch DIR` chooses the disk of the scratch image",
        )
    if question.restart:
        raise PlanError(
            "--restart does not apply: virtune does not restart your VM, and attaches a new disk for every trial",
            hint="leave out --restart",
        )
    return said or default_uri()


def checked_metric(name: str) -> str:
    """Return the id of a metric, or of a shorter word for it; raises PlanError with what may have been meant."""
    found = metric_id(name)
    if found is None:
        raise PlanError(f"no metric {name!r}", hint=did_you_mean(name, (*BY_ID, *ALIASES)) or f"one of {FAMILIES}")
    return found


def facts_text(scratch: Path) -> str:
    """Return the facts of this host as JSON text, to be kept with a study."""
    return json.dumps(probe_document(*probe(scratch)))


def _plan(question: Question) -> Plan:
    if question.builtin:
        return builtin(question.builtin, question.rig).plan
    return Plan() if question.plan is None else read_plan(_text(question.plan))


def _arms(question: Question, plan: Plan) -> tuple[Arm, ...]:
    rig = question.rig or plan.rig
    words = [*([f"rig={rig}"] if rig else []), *(question.settings or plan.settings)]
    base, settings = base_stack(words)
    if question.kind == "measure":
        name = base.disk.aio if base.kind.front == "export" else base.rig
        return check_arms([Arm(name=name, stack=base, settings=settings)])
    return check_arms(_compared(question, plan, base, settings))


def _compared(question: Question, plan: Plan, base: Stack, settings: tuple[tuple[str, str], ...]) -> list[Arm]:
    own = bool(question.vary or question.arms)
    vary, texts = (question.vary, question.arms) if own else (plan.vary, ())
    arms = list(arms_from_vary(base, vary, settings=settings)) if vary else []
    arms += [arm_from_text(text, base, settings=settings) for text in texts]
    if not own:
        arms += [make_arm(name, _on_rig(words, base), base, settings=settings) for name, words in plan.arms]
    if len(arms) < 2:
        hint = "`--vary disk.aio=threads,native,io_uring`, or `--arm` twice"
        raise PlanError(
            f"{len(arms) or 'no'} arm{'' if len(arms) == 1 else 's'} to compare: two are needed", hint=hint
        )
    return arms


def _on_rig(words: tuple[str, ...], base: Stack) -> tuple[str, ...]:
    """Return an arm's settings; where the whole plan is to be simulated, no arm has a rig of its own."""
    return words if base.kind.measures else tuple(word for word in words if not word.startswith("rig="))


def _workloads_of(question: Question, plan: Plan) -> tuple[Workload, ...]:
    """Read the workloads; job files that a plan file names lie where it lies, wherever virtune is called from."""
    if question.builtin and not question.workloads:
        return tuple(found for word in plan.workload for found in parse_workload(word))
    if question.plan is not None and not question.workloads:
        return read_workloads(plan.workload or DEFAULT_WORKLOADS, question.plan.parent)
    return read_workloads(question.workloads or DEFAULT_WORKLOADS, Path())


def read_workloads(words: tuple[str, ...], folder: Path) -> tuple[Workload, ...]:
    """Read workloads: names, fio's own words, and job files, which lie below `folder`."""
    found: list[Workload] = []
    for word in words:
        path = folder / word
        # fio's own words may hold a slash (bssplit=4k/60), a path seldom holds a `=`
        if path.is_file() or ("=" not in word and (os.sep in word or word.endswith((".fio", ".job", ".ini")))):
            found.append(read_job_file(_text(path), path.stem))
        else:
            found += parse_workload(word)
    names = [workload.name for workload in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"the workload {twice} is asked for twice", hint="remove one: rounds repeat it")
    return tuple(found)


def _text(path: Path) -> str:
    try:
        content = read_up_to(path, _FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise PlanError(f"{path} is larger than 1 MiB", hint="is it the file you meant?")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise PlanError(f"{path} is not text in UTF-8") from None


def _sensible(study: Study) -> None:
    if not SECONDS_MIN <= study.seconds <= SECONDS_MAX:
        raise PlanError("--seconds must be between 50 ms and one day", hint="`--seconds 3s`")
    if not 0 <= study.ramp_seconds <= RAMP_MAX:
        raise PlanError("a ramp lasts at most one hour", hint="`--ramp 500ms`")
    if study.budget_seconds is not None and not round_seconds(study) <= study.budget_seconds <= BUDGET_MAX:
        takes = format_seconds(round_seconds(study))
        raise PlanError(f"the budget is shorter than one round ({takes}), or more than a week")
    if study.target is not None and any(arm.stack.disk.backend != "file" for arm in study.arms):
        raise PreconditionError("backend=null-co has no disk below it, so it cannot be compared on a target")


def _budgeted(study: Study, question: Question, plan: Plan) -> Study:
    """Return the study with the most seconds of trials that was said; the default gives way to a number of rounds."""
    said = question.budget if question.budget is not None else plan.budget
    if said is None and question.rounds is None and plan.rounds is None:
        loads = len(study.at_load) + 1  # one I/O at a time besides
        said = max(BUDGET_SECONDS, BUDGET_ROUNDS * loads * round_seconds(study))
    pairs: Pairs = "all" if (question.pairs or plan.pairs) == "all" else "baseline"
    return replace(study, sequential=True, budget_seconds=said, looks=(), pairs=pairs)


def _rounds(question: Question, plan: Plan) -> int:
    """Return how many rounds, at most; who gives a budget and no rounds means as many as it has room for."""
    said = question.rounds or plan.rounds
    budget = question.kind == "compare" and (question.budget is not None or plan.budget is not None)
    return said or (ROUNDS_MAX if budget else ROUNDS[question.kind])


def _own_times(workloads: tuple[Workload, ...]) -> tuple[float | None, float | None]:
    """Return the times that job files say for themselves; `fio_job` refuses those that disagree with the study's."""
    said = [own_times(workload) for workload in workloads]
    seconds, ramps = ([pair[index] for pair in said if pair[index] is not None] for index in (0, 1))
    return (seconds[0] if seconds else None), (ramps[0] if ramps else None)


def _or(*values: float | None) -> float:
    """Return the first that was said; the last is the default."""
    return next(value for value in values if value is not None)
