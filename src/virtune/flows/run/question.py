# SPDX-License-Identifier: Apache-2.0
"""From the user's options to a Study: flags, then the plan file, then defaults, and the facts of the host.

A built-in study is such a plan file.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, assert_never

from virtune.bounded import read_up_to
from virtune.fio.results import encoding_of
from virtune.fio.vscsistats import is_printout, vscsi_workload
from virtune.fio.workloads import own_times, parse_workload, read_job_file
from virtune.flows.domains.domains import FoundDomain
from virtune.flows.domains.like import LikeVm, as_it_is_now, begun_like, disk_of, find_vm, path_of
from virtune.flows.probe import probe
from virtune.flows.run.preconditions import guest_is_built, with_drive
from virtune.flows.run.study import new_study, random_seed
from virtune.model import study_options as options
from virtune.model.bottleneck import Diagnosis
from virtune.model.errors import MissingToolError, PlanError, PreconditionError
from virtune.model.metric import checked_metric
from virtune.model.rig import FORMAT_KNOB, PASSED_KNOB, read_rig
from virtune.model.stack import MEMORY, VOLUMES, Stack, volume_place
from virtune.model.steady import STEADY_LIMIT_SECONDS, STEADY_RULE, read_steady_rule
from virtune.model.study import CHANGED_ARM, CHANGED_WORKLOAD, Arm, Study, StudyKind
from virtune.model.text import did_you_mean, format_seconds, quoted
from virtune.model.verdict import Threshold, fewest_planned
from virtune.model.workload import Workload
from virtune.plan.arms import (
    arm_as_written,
    arms_from_vary,
    base_stack,
    check_arms,
    choose_baseline,
    layered,
    recorded,
)
from virtune.plan.guests import with_system
from virtune.plan.loads import read_loads
from virtune.plan.planfile import read_plan
from virtune.plan.trials import round_seconds
from virtune.report.json.host import probe_document
from virtune.shell import default_scratch
from virtune.virsh import default_uri

_PLACE = Path(__file__).parents[2] / "studies"

_VARIANTS = {"export": ".daemon", "file": ".metal"}
"""In a file name: the variant of a study without a guest, by what its rig's load reaches; a storage daemon's export,
or the host's own file or device.
"""

_MANY = "@N@"
"""In a plan: how many jobs there are, each on a CPU."""

_COUNT = "guests.count"
"""The knob that says so."""

_DISKS_MAX = 8
"""How many disks a guest has at most (`disks.count`); the jobs are divided among them evenly."""

_JOBS_MAX = 64

_QUICKLY = {"vmm-latency": re.compile("rand(read|write)-4k-load[04]:.*")}
"""The workloads that `--quick` takes of a study with many."""

_FORMAT = "disk.format="

_RIG = re.compile(r"^rig = .*$", re.MULTILINE)

AS_IT_IS = "now"
"""The arm that is the VM of `--like` as it is, where no other arm is."""

RAW = "a target is used as it is, so the format is raw, in place of {} as the study has it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A study that ships with virtune: its name, its plan, and the rigs that it can be run on. `without` says which
    setting of it a target does not have.
    """

    name: str
    plan: options.StudyOptions
    rigs: tuple[str, ...]
    without: str | None = None

    @property
    def kind(self) -> StudyKind:
        """Its kind: a comparison, or the measurement of one stack under several workloads."""
        return StudyKind.COMPARE if self.plan.arms or self.plan.vary else StudyKind.MEASURE

    @property
    def cells(self) -> int:
        """The number of trials in a round, without arms that most hosts leave out."""
        workloads = [found for word in self.plan.workloads for found in parse_workload(word)]
        arms = [one for one in self.plan.arms if not any(word.startswith(PASSED_KNOB) for word in one[1])]
        return max(1, len(arms)) * len(workloads)

    @property
    def compared(self) -> tuple[str, ...]:
        """What it compares: its arms, or the workloads of its one stack."""
        return tuple(arm[0] for arm in self.plan.arms) or self.plan.workloads


def builtins() -> tuple[Builtin, ...]:
    """Return all built-in studies, with their default rig."""
    return tuple(builtin(name) for name in _names())


def builtin(
    name: str,
    rig: str | None = None,
    *,
    target: bool = False,
    settings: tuple[str, ...] = (),
    quick: bool = False,
    cpus: int | None = None,
) -> Builtin:
    """Return the study of that name for a rig, or for an existing target, with other settings over its own.

    `cpus` are those of this host, asked for where None. Raises PlanError with the name that was probably meant, or
    for a number of jobs that cannot be.
    """
    texts = _texts(name)
    if _MANY in texts[""]:
        asked_jobs = next((word.partition("=")[2] for word in settings if word.startswith(f"{_COUNT}=")), None)
        settings = tuple(word for word in settings if not word.startswith(f"{_COUNT}="))
        jobs = _jobs(asked_jobs, cpus)
        texts = {end: filled(text, jobs) for end, text in texts.items()}
    plans = {end: read_plan(text) for end, text in texts.items()}
    plan, without = plans.get(_variant(rig), plans[""]), None
    if quick and name in _QUICKLY:
        plan = replace(plan, workloads=tuple(filter(_QUICKLY[name].fullmatch, plan.workloads)))
    own = {word.partition("=")[0].strip() for word in settings}
    plan = replace(plan, settings=(*(word for word in plan.settings if word.partition("=")[0] not in own), *settings))
    if target:
        plan, without = on_target(plan)
    return Builtin(name=name, plan=plan, rigs=tuple(one.rig for one in plans.values() if one.rig), without=without)


def on_target(plan: options.StudyOptions) -> tuple[options.StudyOptions, str | None]:
    """Return the plan of a study without the format that a target does not have, and what is said of that."""
    asked = next((word for word in plan.settings if word.startswith(_FORMAT)), None)
    if asked is None:
        return plan, None
    rest = tuple(word for word in plan.settings if word != asked)
    return replace(plan, settings=rest), RAW.format(asked.removeprefix(_FORMAT))


def plan_text(name: str, rig: str | None = None, *, cpus: int | None = None) -> str:
    """Return the plan file of the study of that name for a rig, with the number of jobs that this host's CPUs give.

    Raises PlanError with what was probably meant for an unknown name or rig.
    """
    texts = _texts(name)
    text = filled(texts.get(_variant(rig), texts[""]), _jobs(None, cpus))
    if rig is not None:
        text = _RIG.sub(lambda _: f"rig = {json.dumps(rig)}", text, count=1)
    read_plan(text)  # refuses a rig that there is not
    return text


def departures(found: Sequence[Arm], study: Sequence[Arm]) -> Iterator[tuple[str, str]]:
    """Yield each arm that is not as in the study, whose arms are `study`, and what it differs in."""
    theirs = {arm.name: arm for arm in study}
    for arm in found:
        known = theirs.pop(arm.name, None)
        if known is None:
            yield arm.name, "the study has none of this name"
        elif known.stack != arm.stack:
            ours, said = dict(arm.settings), dict(known.settings)
            apart = [name for name in {**said, **ours} if ours.get(name) != said.get(name)]
            words = (
                f"{name} {ours.get(name, 'not set')}, in the study {said.get(name, 'not set')}" for name in apart
            )
            yield arm.name, "; ".join(words)
    yield from ((name, "not in the plan") for name in theirs)


def _texts(name: str) -> dict[str, str]:
    """Return the plan files of a study by the variant in their names, the number of jobs left open."""
    names = _names()
    if name not in names:
        hint = did_you_mean(name, names) or f"`virtune compare study list` shows them: {', '.join(names)}"
        raise PlanError(f"there is no study {quoted(name)}", hint=hint)
    files = {end: _PLACE / f"{name}{end}.toml" for end in ("", *_VARIANTS.values())}
    return {end: file.read_text(encoding="utf-8") for end, file in files.items() if file.exists()}


def _variant(rig: str | None) -> str:
    asked = None if rig is None else read_rig(rig)
    return "" if asked is None else _VARIANTS.get(asked.kind.front, "")


def filled(text: str, jobs: int) -> str:
    """Return a plan with its number of jobs, and what follows from it."""
    values = {_MANY: jobs, "@DISKS@": min(jobs, _DISKS_MAX), "@MEMORY@": f"{jobs * MEMORY // 1024**2}M"}
    for word, value in values.items():
        text = text.replace(word, str(value))
    return text


def _jobs(asked: str | None, cpus: int | None) -> int:
    """Return how many jobs a study has: two or more, and above eight a multiple of it."""
    cpus = len(os.sched_getaffinity(0)) if cpus is None else cpus
    if asked is None:
        jobs = min(max(2, cpus), _JOBS_MAX)
        return jobs if jobs <= _DISKS_MAX else jobs // _DISKS_MAX * _DISKS_MAX
    jobs = int(asked) if asked.isdecimal() and len(asked) < 4 else 0
    if not 2 <= jobs <= _JOBS_MAX or (jobs > _DISKS_MAX and jobs % _DISKS_MAX):
        raise PlanError(
            f"{_COUNT}={quoted(asked)[1:-1]} is no number of jobs for this study",
            hint=f"from 2 to {_DISKS_MAX}, or a multiple of {_DISKS_MAX} up to {_JOBS_MAX}",
        )
    return jobs


def _names() -> list[str]:
    return sorted(path.stem for path in _PLACE.glob("*.toml") if "." not in path.stem)


TRIAL_SECONDS: Mapping[str, float] = options.OPTIONS["seconds"].default | {"check": 4.0}
"""By the kind of study. The trials of a check are long enough for slices of all lengths compared."""

AT_LOAD = ("latency.p99", "latency.p50", "latency.mean")
"""The metrics that are judged at equal offered load by default."""

_FILE_BYTES_MAX = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(options.StudyOptions):
    """The user's options for a study of a kind, as written; `plan` is a plan file, `builtin` a built-in study, `vm`
    what is known already of the VM of `--like`, `given_workloads` those of another study.
    """

    kind: StudyKind
    plan: Path | None = None
    builtin: str = ""
    vm: LikeVm | None = None
    given_workloads: tuple[Workload, ...] = ()
    conditions: tuple[Threshold, ...] = ()

    @classmethod
    def of(cls, asked: options.StudyOptions, kind: StudyKind, **others: Any) -> "Question":
        """Return a question with these options, and others beside them or in their place."""
        given = {name: getattr(asked, name) for name in options.StudyOptions.__dataclass_fields__}
        return cls(kind=kind, **(given | others))

    @property
    def verb(self) -> str:
        """The verb whose options they are."""
        return "study" if self.builtin else self.kind


def study_for(question: Question) -> Study:
    """Return the study that answers the question; `facts_text` has the facts of this host to keep beside it.

    Raises PlanError, with what is wrong and a hint, before anything is made or run.
    """
    plan, raw = _plan(question)
    written = options.Provenance.BUILTIN if question.builtin else options.Provenance.PLAN
    layers = layered((options.Provenance.FLAG, _quickly(question)), (written, plan))
    asked, sources, unlike = begun_like(*layers, vm=question.vm)
    if question.kind is StudyKind.COMPARE and asked.study and not (asked.arms or asked.vary):
        question = replace(question, kind=StudyKind.MEASURE)  # the copy of a plan of one stack
    made = _arms(question.kind, asked)
    given = with_drive(made, asked.target, builtin=bool(asked.study))
    at_load = read_loads(asked.at_load)
    workloads = _workloads_of(question, plan)
    own_seconds, own_ramp = _own_times(workloads)
    default = options.Provenance.DEFAULT
    raw_format = () if raw is None else (options.ChosenOption(name=FORMAT_KNOB, value=raw, source=default),)
    own = (*raw_format, *unlike, *given.options, *_departures(question, asked, made, workloads))
    study = Study(
        id="",
        created="",
        kind=question.kind,
        arms=given.arms,
        baseline=choose_baseline(given.arms, asked.baseline or _as_it_is(asked, given.arms)),
        workloads=workloads,
        rounds=most_rounds(question.kind, asked),
        seconds=_or(asked.seconds, own_seconds, TRIAL_SECONDS[question.kind]),
        ramp_seconds=_or(asked.ramp, own_ramp, options.OPTIONS["ramp"].default),
        seed=random_seed() if asked.seed is None else asked.seed,
        scratch=scratch_of(asked),
        span_bytes=checked_span(asked),
        target=None if given.target is None else str(given.target.absolute()),
        connect=connection_of(asked, given.arms),
        title=asked.title or "",
        metric=checked_metric(asked.metric or (AT_LOAD[0] if at_load else options.OPTIONS["metric"].default)),
        also=AT_LOAD[1:] if at_load and not asked.metric else (),
        at_load=at_load,
        margin=_or(asked.margin, options.OPTIONS["margin"].default),
        confidence=_or(asked.confidence, options.OPTIONS["confidence"].default),
        builtin=asked.study or "",
        conditions=question.conditions,
        attempts=asked.attempts or options.OPTIONS["attempts"].default,
        **_beforehand(asked, given.arms),
    )
    study = budgeted(study, asked)
    chosen = recorded(question.verb, asked, {**_otherwise(study), **sources}, _values(study))
    study = with_system(replace(study, options=(*chosen, *own)), built=guest_is_built())
    return new_study(study, restart=asked.restart)


def _beforehand(asked: options.StudyOptions, arms: Sequence[Arm]) -> dict[str, Any]:
    """Return what is done with each arm before the first trial; raises PlanError for a rule that is none."""
    steady = asked.precondition or asked.until_steady or asked.steady_rule or asked.steady_limit
    if steady and not all(arm.stack.kind.measures for arm in arms):
        raise PlanError("the simulated rig loads nothing that could become steady", hint="take another --rig")
    rule, text = None, asked.steady_rule or STEADY_RULE
    try:
        if steady:
            rule = read_steady_rule(text, asked.steady_limit or STEADY_LIMIT_SECONDS)
    except ValueError as error:
        raise PlanError(f"--steady-rule {quoted(text)}: {error}") from None
    return {
        "check_data": asked.check_data,
        "check_durability": asked.check_durability,
        "precondition": asked.precondition,
        "until_steady": rule,
    }


def _otherwise(study: Study) -> dict[str, options.Provenance]:
    """Return where options come from that were neither given nor in a plan."""
    times = zip(("seconds", "ramp"), _own_times(study.workloads), strict=True)
    found = {name: options.Provenance.JOB_FILE for name, own in times if own}
    return found if study.connect is None else {**found, "connect": options.Provenance.ENVIRONMENT}


def _quickly(question: Question) -> options.StudyOptions:
    """Return the options given on the command line, with `--quick` replaced by the two that it stands for; settings
    of a built-in study are in its plan.
    """
    question = replace(question, settings=()) if question.builtin else question
    if not question.quick:
        return question
    return replace(
        question,
        rounds=options.QUICK_ROUNDS if question.rounds is None else question.rounds,
        seconds=options.QUICK_SECONDS if question.seconds is None else question.seconds,
    )


def _values(study: Study) -> dict[str, object]:
    alike = "baseline metric pairs margin confidence rounds seconds attempts seed connect"
    return {name: getattr(study, name) for name in alike.split()} | {
        "workloads": tuple(workload.name for workload in study.workloads),
        "budget": study.budget_seconds,
        "ramp": study.ramp_seconds,
        "scratch": None if study.target else study.scratch,
        "span": study.span_bytes,
    }


def checked_span(asked: options.StudyOptions) -> int:
    """Return the span of the disk in bytes, in whole pages; raises PlanError if it is too small."""
    span = int(asked.span or options.OPTIONS["span"].default)
    if span < (options.OPTIONS["span"].low or 0):
        raise PlanError("--span below 8 MiB fits into any cache", hint="use at least `--span 64M`")
    return span // 4096 * 4096


def scratch_of(asked: options.StudyOptions) -> str:
    """Return the directory of scratch images, or the place of a scratch volume; raises PlanError for a wrong name."""
    scratch = asked.scratch or default_scratch()
    if not str(scratch).startswith(VOLUMES):
        return str(scratch.absolute())
    if volume_place(str(scratch)) is None:
        raise PlanError(
            f"--scratch {scratch} is no place of a scratch volume",
            hint="lvm:VG is an LVM volume group, and lvm:VG/POOL a thin pool in it",
        )
    return str(scratch)


def _as_it_is(asked: options.StudyOptions, arms: Sequence[Arm]) -> str | None:
    """Return the arm that is the VM as it is, where a study is to be like one."""
    if asked.like is None:
        return None
    base = base_stack([f"rig={asked.rig}", *asked.settings])[0]
    return next((arm.name for arm in arms if arm.stack == base), None)


def connection_of(asked: options.StudyOptions, arms: tuple[Arm, ...]) -> str | None:
    """Return the URI of the libvirt with the arms' domains: the given one, else virsh's default."""
    if not any(arm.stack.kind.users_guest for arm in arms):
        if asked.connect is not None and asked.like is None:
            raise PlanError("--connect was given, but no arm runs in a libvirt domain", hint="`--rig libvirt:DOMAIN`")
        return None
    if asked.target is not None:
        raise PlanError(
            "--target cannot be used in a libvirt domain: virtune attaches only its own scratch disks there",
            hint="omit --target; `--scratch DIR` chooses the disk of the scratch image",
        )
    if str(asked.scratch).startswith(VOLUMES):
        raise PlanError(
            "a libvirt domain gets its scratch disk as a file, and not as a volume",
            hint="`--scratch DIR` chooses the disk of the scratch image",
        )
    if asked.restart:
        raise PlanError(
            "--restart does not apply: virtune does not restart your VM, and attaches a new disk for every trial",
            hint="leave out --restart",
        )
    return asked.connect or default_uri()


def facts_text(scratch: Path) -> str:
    """Return the facts of this host as JSON text, to be stored with a study."""
    return json.dumps(probe_document(*probe(scratch)))


def _plan(question: Question) -> tuple[options.StudyOptions, str | None]:
    """Return the plan, and what is said of a format that the target of a built-in study does not have."""
    target = question.target is not None
    if question.builtin:
        own = builtin(question.builtin, question.rig, target=target, settings=question.settings, quick=question.quick)
        return own.plan, own.without
    plan = options.StudyOptions() if question.plan is None else read_plan(_text(question.plan))
    return on_target(plan) if plan.study and target else (plan, None)


def _departures(
    question: Question, asked: options.StudyOptions, arms: Sequence[Arm], workloads: Sequence[Workload]
) -> Iterator[options.ChosenOption]:
    """Yield what is recorded of arms and workloads that are not as in the built-in study: a copy of its plan may have
    been edited, and settings may have been given.
    """
    if not asked.study:
        return
    given = [arm.stack for arm in arms if "machine.vcpus" in dict(arm.settings)]
    jobs = Counter(stack.guests * stack.machine.cpus for stack in given).most_common(1)  # of a copy: another host's
    cpus = jobs[0][0] if jobs else None
    own = builtin(asked.study, asked.rig, target=asked.target is not None, quick=question.quick, cpus=cpus)
    theirs = _arms(own.kind, replace(own.plan, rig=asked.rig))
    for name, words in departures(arms, theirs):
        yield options.ChosenOption(name=f"{CHANGED_ARM}{name}", value=words, source=options.Provenance.PLAN)
    known = {found.name: found for word in own.plan.workloads for found in parse_workload(word)}
    for workload in workloads:
        if known.get(workload.name) != workload:
            words = "not the study's load" if workload.name in known else "the study has none of this name"
            yield options.ChosenOption(
                name=f"{CHANGED_WORKLOAD}{workload.name}", value=words, source=options.Provenance.PLAN
            )


def _arms(kind: StudyKind, asked: options.StudyOptions) -> tuple[Arm, ...]:
    words = [*([f"rig={asked.rig}"] if asked.rig else []), *asked.settings]
    base, settings = base_stack(words)
    match kind:
        case StudyKind.MEASURE | StudyKind.SWEEP:
            name = base.disk.aio if base.kind.front == "export" else base.rig
            return check_arms([Arm(name=name, stack=base, settings=settings)])
        case StudyKind.COMPARE | StudyKind.CHECK:
            return check_arms(_compared(asked, base, settings))
        case StudyKind.TUNE | StudyKind.IMPORT:
            raise AssertionError(f"{kind} has a question of its own")
        case _:
            assert_never(kind)


def _compared(asked: options.StudyOptions, base: Stack, settings: tuple[tuple[str, str], ...]) -> list[Arm]:
    arms = list(arms_from_vary(base, asked.vary, settings=settings)) if asked.vary else []
    for one in asked.arms:
        written = one
        if not (isinstance(one, str) or base.kind.measures):  # if the whole plan is simulated, without its own rig
            written = one[0], tuple(word for word in one[1] if not word.startswith("rig="))
        arms.append(arm_as_written(written, base, settings=settings))
    if asked.like is not None and all(arm.stack != base and arm.name != AS_IT_IS for arm in arms):
        arms.insert(0, Arm(name=AS_IT_IS, stack=base, settings=settings))
    if len(arms) < 2:
        hint = "`--vary disk.aio=threads,native,io_uring`, or `--arm` twice"
        raise PlanError(
            f"{len(arms) or 'no'} arm{'' if len(arms) == 1 else 's'} to compare: two are needed", hint=hint
        )
    return arms


def _workloads_of(question: Question, plan: options.StudyOptions) -> tuple[Workload, ...]:
    """Read the workloads; a plan file's job files are relative to the plan file."""
    if question.given_workloads:
        return question.given_workloads
    if question.builtin and not question.workloads:
        return tuple(found for word in plan.workloads for found in parse_workload(word))
    planned = question.plan is not None and not question.workloads
    words = (plan if planned else question).workloads or options.OPTIONS["workloads"].default
    return read_workloads(words, question.plan.parent if planned and question.plan else Path())


def read_workloads(words: tuple[str, ...], folder: Path) -> tuple[Workload, ...]:
    """Read workloads: names, fio options, and job files and printouts of vscsiStats, relative to `folder`."""
    found: list[Workload] = []
    for word in words:
        path = folder / word
        # fio options may contain a slash (bssplit=4k/60), a path seldom contains a `=`
        if path.is_file() or ("=" not in word and (os.sep in word or word.endswith((".fio", ".job", ".ini")))):
            text = _text(path)
            found.append((vscsi_workload if is_printout(text) else read_job_file)(text, path.stem))
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
        hint = "a stored study is looked at, and judged by conditions, by `virtune show`"
        raise PlanError(
            f"cannot read {path}: {error.strerror}", hint=None if path.parent.name or path.suffix else hint
        ) from None
    if len(content) > _FILE_BYTES_MAX:
        raise PlanError(f"{path} is larger than 1 MiB", hint="is it the file you meant?")
    encoding = encoding_of(content)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise PlanError(f"{path} is not text in {encoding.upper().removesuffix('-SIG')}") from None


def _sensible(study: Study) -> Study:
    if not options.SECONDS_MIN <= study.seconds <= options.SECONDS_MAX:
        raise PlanError("--seconds must be between 50 ms and one day", hint="`--seconds 3s`")
    if not 0 <= study.ramp_seconds <= options.RAMP_MAX:
        raise PlanError("a ramp lasts at most one hour", hint="`--ramp 500ms`")
    if study.budget_seconds is not None and not round_seconds(study) <= study.budget_seconds <= options.BUDGET_MAX:
        takes = format_seconds(round_seconds(study))
        raise PlanError(f"the budget is shorter than one round ({takes}), or more than a week")
    if study.target is not None and any(arm.stack.disk.backend != "file" for arm in study.arms):
        raise PreconditionError("backend=null-co has no disk below it, so it cannot be compared on a target")
    return study


def budgeted(study: Study, asked: options.StudyOptions) -> Study:
    """Return the study with its time budget; the default budget does not apply if rounds are given. Raises PlanError
    and PreconditionError for a study that makes no sense.
    """
    said = asked.budget
    if study.kind is not StudyKind.COMPARE and said is not None:
        raise PlanError("--budget is for `compare`, which stops when every pair is decided")
    if study.kind is not StudyKind.COMPARE:
        return _sensible(study)
    if said is None and asked.rounds is None:
        loads = len(study.at_load) + 1  # one I/O at a time besides
        said = max(options.BUDGET_SECONDS, options.BUDGET_ROUNDS * loads * round_seconds(study))
    if asked.all_rounds and (asked.rounds is None or said is not None):
        raise PlanError("--all-rounds is for a number of rounds", hint="`--rounds 12 --all-rounds`, without --budget")
    pairs = asked.pairs or options.OPTIONS["pairs"].default
    fewest = fewest_planned(len(study.arms))
    return _sensible(
        replace(study, sequential=not asked.all_rounds, budget_seconds=said, pairs=pairs, fewest_rounds=fewest)
    )


def most_rounds(kind: StudyKind, asked: options.StudyOptions) -> int:
    """Return the most rounds; a budget without rounds allows as many as fit."""
    budget = kind is StudyKind.COMPARE and asked.budget is not None
    return asked.rounds or (options.ROUNDS_MAX if budget else int(options.OPTIONS["rounds"].default[kind]))


def _own_times(workloads: tuple[Workload, ...]) -> tuple[float | None, float | None]:
    """Return the times in job files; `fio_job` refuses those that disagree with the study's."""
    said = [own_times(workload) for workload in workloads]
    seconds, ramps = ([pair[index] for pair in said if pair[index] is not None] for index in (0, 1))
    return (seconds[0] if seconds else None), (ramps[0] if ramps else None)


def _or(*values: float | None) -> float:
    return next(value for value in values if value is not None)


LOOK_SECONDS = 10.0
"""How long a disk is looked at for `--its-load`."""


def its_load(word: str, connect: str | None) -> Diagnosis:
    """Return what is seen of the disk `VM[:DISK]` under its load, whose `workload` is not empty.

    Raises UsageError where there is no such VM or disk, PreconditionError where it does not run or its disk is idle.
    """
    found, name = find_vm(word, connect)
    disk = disk_of(as_it_is_now(found), name)
    # Proxmox VE 8 calls a disk's drive `drive-scsi0`
    called = {disk.target, f"drive-{disk.target}"}
    vm = f"{found.subject.domain.name or found.origin}:{disk.target}"
    try:
        every = _looked_at(found, connect)
    except (PreconditionError, MissingToolError) as error:
        raise type(error)(f"the load of {vm} cannot be seen: {error.message}", hint=error.hint) from None
    seen = next((one for one in every if one.disk.rpartition(":")[2] in called), None)
    if seen is None:
        raise PreconditionError(f"{vm} is not among the disks of the running VM", hint="`virtune diagnose VM`")
    if not seen.workload:
        raise PreconditionError(
            f"{vm} read and wrote nothing for {LOOK_SECONDS:g} s, so there is no load to repeat",
            hint="look while it is used, or name a load: `--workload randread-4k`",
        )
    return seen


def _looked_at(found: FoundDomain, connect: str | None) -> tuple[Diagnosis, ...]:
    """Look at the running VM of a configuration: that of a process is its own, a Proxmox VM's goes by its number."""
    # the monitors of QEMUs, of which a study needs nothing else
    from virtune.bench.live.emulators import emulators_here
    from virtune.flows.live.diagnose_live import diagnose_monitor, diagnose_named

    origin, domain = Path(found.origin), found.subject.domain
    here = next((one for one in emulators_here() if one.command_line == origin and one.sockets), None)
    if here is not None:
        return diagnose_monitor(here.sockets[0], seconds=LOOK_SECONDS)
    if found.subject.connect is not None:
        return diagnose_named(found.subject.connect, domain.name, disk="", seconds=LOOK_SECONDS)
    called = origin.stem if origin == path_of(origin.stem) else domain.name
    return diagnose_named(connect, called, disk="", seconds=LOOK_SECONDS)
