# SPDX-License-Identifier: Apache-2.0
"""Make a study of results that were made elsewhere: stored by `import`, or only compared.

Facts that the files lack are absent: the stack, the host, times and seeds. The runs were not interleaved by virtune,
so the rounds of such a study are repeats, and arms are compared unpaired.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations

from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.imported import Shape, differing, slug_of, workload_of
from virtune.flows.stored.find_results import FoundResult
from virtune.flows.stored.study_id import study_id
from virtune.model.errors import LoadError, UsageError
from virtune.model.evidence import IMPORTED, Capture, InForce, StudyRecord, TrialRecord
from virtune.model.measurement import Measurement
from virtune.model.remark import COPY, Weight
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.workload import Job, Workload
from virtune.store.store import Store

OPTIONS_MAX = 60
"""The most options of an arm that are stored besides its workloads; fio's longest job files have fewer."""

_OF_WORKLOAD = ("direct", "ioengine")
"""Options that belong to the workload if all its runs agree on them: they affect how its figures are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One arm under one workload, once, from any source. `name` is what its jobs are called."""

    arm: str
    name: str
    shape: Shape
    workload: Workload
    options: Mapping[str, str]
    ended: str
    measurement: Measurement | None
    failure: str | None
    captures: tuple[Capture, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the arms are compared."""

    baseline: str | None
    metric: str
    margin: float
    confidence: float


def runs_of(found: Iterable[FoundResult]) -> list[Run]:
    """Derive each result's measurement; a failed one is kept with its reason, and a copy is marked."""
    first: dict[bytes, str] = {}
    runs = []
    for one in found:
        original = first.setdefault(one.content, one.shown)
        mine = (_run(one, index) for index in range(len(one.parts)))
        runs += [run if original == one.shown else _copied(run, one.shown, original) for run in mine]
    return runs


def _copied(run: Run, shown: str, original: str) -> Run:
    """Mark a run as a copy of another."""
    if run.measurement is None:
        return run
    remark = COPY.remark(
        weight=Weight.WARNING,
        text=f"{shown} is byte for byte the same as {original}: a copy is no second run, and shows no difference",
    )
    return replace(run, measurement=replace(run.measurement, remarks=(*run.measurement.remarks, remark)))


def record_of(
    runs: Sequence[Run], terms: Terms, *, each_alone: bool
) -> tuple[StudyRecord, list[tuple[Capture, ...]]]:
    """Make a study of runs; returns it with the captures of its trials, in order.

    Runs with the same name and different shapes are different workloads, with `each_alone` only within one arm, so
    that a disagreement of two arms shows.
    """
    names = workload_names(runs, each_alone=each_alone)
    arms = list(dict.fromkeys(run.arm for run in runs))
    if terms.baseline is not None and terms.baseline not in arms:
        raise UsageError(f"no arm {terms.baseline!r}", hint=f"there are {', '.join(arms)}")
    rounds: dict[tuple[str, str], int] = {}
    records = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
        rounds[run.arm, name] = rounds.get((run.arm, name), 0) + 1
        trial = Trial(number=number, round=rounds[run.arm, name], arm=run.arm, workload=name)
        records.append(
            TrialRecord(
                trial=trial,
                ended=run.ended,
                in_force=InForce(),
                measurement=run.measurement,
                failure=run.failure,
            )
        )
    now = datetime.now(UTC)
    study = Study(
        id=study_id(now),
        created=now.isoformat(timespec="seconds"),
        kind=StudyKind.IMPORT,
        arms=tuple(_arm(name, [run for run in runs if run.arm == name]) for name in arms),
        baseline=terms.baseline or arms[0],
        workloads=_workloads(runs, names),
        rounds=max(rounds.values()),
        seconds=0.0,
        ramp_seconds=0.0,
        seed=0,
        scratch="",
        span_bytes=0,
        metric=terms.metric,
        margin=terms.margin,
        confidence=terms.confidence,
        trials=tuple(record.trial for record in records),
        paired=False,
    )
    record = StudyRecord(study=study, facts="", finished=True, trials=tuple(records))
    return record, [run.captures for run in runs]


def keep(found: Sequence[FoundResult], terms: Terms, store: Store, say: Callable[[str], None]) -> StudyRecord:
    """Store results as a study, atomically, and report on each file."""
    runs = runs_of(found)
    record, captures = record_of(runs, terms, each_alone=False)
    store.add_whole(record, captures)
    for one in found:
        say(f"{one.shown}: arm {one.arm}")
    for line in nothing_in_common(runs):
        say(line)
    return record


def nothing_in_common(runs: Sequence[Run]) -> Iterator[str]:
    """Warn if no two arms ran the same job, so that nothing can be compared, and say how to compare them."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(run.arm, []).append(run)
    if len(arms) < 2 or any(
        one.name == other.name and not differing(one.shape, other.shape)
        for (_, mine), (_, theirs) in combinations(arms.items(), 2)
        for one in mine
        for other in theirs
    ):
        return
    first, second = list(arms.values())[:2]
    found = differing(first[0].shape, second[0].shape)
    why = f" ({found[0][0]} is {found[0][1]} and {found[0][2]})" if found else ""
    yield (
        f"no two arms ran the same job{why}, so nothing is compared; "
        "`virtune compare BEFORE AFTER --different-jobs` compares the files all the same"
    )


def _run(found: FoundResult, index: int) -> Run:
    part = found.parts[index]
    name = "fio.json" if found.result.source.startswith("json") else "fio.txt"
    about = {"file": found.shown, "group": part.group}
    captures = (
        Capture(name=name, content=found.content),
        Capture(name=IMPORTED, content=json.dumps(about).encode()),
    )
    workload = workload_of(part, part.name, {k: v for k, v in part.options.items() if k in _OF_WORKLOAD})
    measurement, failure = None, None
    try:
        measurement = derive({c.name: c.content for c in captures}, stack=Stack(rig="unknown"), workload=workload)
    except LoadError as error:
        failure = error.message
    ended = found.result.ended
    return Run(
        arm=found.arm,
        name=part.name,
        shape=part.shape,
        workload=workload,
        options=part.options,
        ended="" if ended is None else _moment(ended),
        measurement=measurement,
        failure=failure,
        captures=captures,
    )


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""


def workload_names(runs: Sequence[Run], *, each_alone: bool) -> list[str]:
    """Return the name of each run's workload: that of its jobs, with their shape where one name means several."""
    shapes: dict[str, list[Shape]] = {}
    several: set[str] = set()
    for arm in dict.fromkeys(run.arm for run in runs) if each_alone else ("",):
        mine: dict[str, list[Shape]] = {}
        for run in runs:
            if each_alone and run.arm != arm:
                continue
            seen = mine.setdefault(run.name, [])
            if all(differing(shape, run.shape) for shape in seen):
                seen.append(run.shape)
        for name, found in mine.items():
            several |= {name} if len(found) > 1 else set()
            known = shapes.setdefault(name, [])
            known += [shape for shape in found if all(differing(one, shape) for one in known)]
    return [_named(run, shapes[run.name]) if run.name in several else run.name for run in runs]


def _named(run: Run, shapes: Sequence[Shape]) -> str:
    """Name a run by its job and its shape; different shapes with the same text are numbered."""
    index = next(i for i, shape in enumerate(shapes) if not differing(shape, run.shape))
    slugs = [slug_of(shape) for shape in shapes]
    slug = slugs[index] + (f"~{index + 1}" if slugs.count(slugs[index]) > 1 else "")
    return f"{run.name}-{slug}"[:100]


def _workloads(runs: Sequence[Run], names: Sequence[str]) -> tuple[Workload, ...]:
    """Each workload once; an option is kept where all its runs agree."""
    found: dict[str, list[Run]] = {}
    for run, name in zip(runs, names, strict=True):
        found.setdefault(name, []).append(run)
    return tuple(_agreed(name, mine) for name, mine in found.items())


def _agreed(name: str, runs: Sequence[Run]) -> Workload:
    first = runs[0].workload
    jobs = []
    for index, job in enumerate(first.jobs):
        others = [run.workload.jobs[index].as_dict() for run in runs if index < len(run.workload.jobs)]
        same = tuple((key, value) for key, value in job.options if all(o.get(key) == value for o in others))
        jobs.append(Job(name=job.name, options=same))
    return replace(first, name=name, jobs=tuple(jobs))


def _arm(name: str, runs: Sequence[Run]) -> Arm:
    """An arm with its jobs' options besides their shape; where runs disagree, with all values."""
    keys = dict.fromkeys(key for run in runs for key in run.options)
    options = [
        (key, " / ".join(sorted({run.options.get(key, "not shown") for run in runs if run.options}))) for key in keys
    ]
    return Arm(name=name, stack=Stack(rig="unknown"), options=tuple(options[:OPTIONS_MAX]))
