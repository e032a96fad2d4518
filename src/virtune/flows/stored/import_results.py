# SPDX-License-Identifier: Apache-2.0
"""Results that other programs wrote, and studies of the store beside them: found, imported as a study, compared.

By default each file is its own arm; files and folders whose names differ by a counter only (`run-1`, `before_2`,
bench-fio's `run-3`) are repeats of one arm, and so are the runs of one file. `FILE:NUMBER` is one of its runs alone.
Arms of one study are compared within its rounds, as are runs in turn by their times; others are unpaired repeats.
"""

import contextlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, combinations, count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virtune.analyse.study.run_order import in_order
from virtune.analyse.study.verdicts import pairs_of
from virtune.analyse.trial.derive import derive
from virtune.analyse.trial.measure import (
    Part,
    Shape,
    differing,
    done_otherwise,
    parts_of,
    shape_of,
    slug_of,
    workload_of,
)
from virtune.analyse.trial.rejection import pardons_of
from virtune.bounded import file_and_run, read_up_to
from virtune.fio.results import LIMIT, read_runs, refuse_length, run_of, text_of
from virtune.flows.stored.nights import Stored, nights_apart
from virtune.flows.stored.show import current, study_id
from virtune.model.errors import LoadError, ReadError, StorePlace, UsageError
from virtune.model.evidence import IMPORTED, Capture, InForce, StudyRecord, TrialRecord, Waiver, of_guest
from virtune.model.measurement import FioResult, Measurement
from virtune.model.remark import COPY, Weight
from virtune.model.stack import Stack
from virtune.model.study import Arm, Study, StudyKind, Trial
from virtune.model.study_options import OPTIONS
from virtune.model.text import printable
from virtune.model.workload import Job, Workload

if TYPE_CHECKING:
    from virtune.store.store import Store

FILES_MAX = 10_000
"""The most files of a folder: each has to be read."""

_COUNTER = r"(?:run|round|rep|repeat|iter|iteration|pass|try)"
_REPEAT_DIR = re.compile(rf"(?:{_COUNTER}[-_. ]?)?\d{{1,6}}", re.IGNORECASE)
_REPEAT_STEM = re.compile(
    rf"^(?P<name>.*?)(?:(?:^|[-_. ]){_COUNTER}[-_. ]?\d{{1,6}}|[-_.](?:\d{{1,6}}|1\d{{9}})| ?\(\d{{1,6}}\))$",
    re.IGNORECASE,
)
"""A counter at the end of a name, or the seconds since 1970 that HCIBench puts there."""
_DIGITS = re.compile(r"(\d+)")
_SIGNS = (b'"fio version"', b"(groupid=", b" Starting RD=", b"Vdbench generated information")
"""What a file has that fio or Vdbench wrote, whether it can be read or not."""

_FLATFILE = "flatfile.html"
"""Of a folder of Vdbench the one page that is read: the others tell of the same runs, or of parts of them."""

_HCIBENCH = "hcibench.cfg"
"""HCIBench copies its configuration beside the results of its VMs: a file a VM, all of which ran at the same time."""

_NAMED_MAX = 5
"""The most files without a result that are named of a folder."""

_LONGEST_ARM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundResult:
    """One run in a file, or of VMs that ran together, each with a file. `place` is the folder below the named one;
    `run` tells the run from every other: the (first) file's device and inode, and its number there.
    """

    arm: str
    shown: str
    place: tuple[str, ...]
    stem: str
    contents: tuple[bytes, ...]
    result: FioResult
    parts: tuple[Part, ...]
    run: tuple[int, int, int]


def find_results(
    paths: Sequence[Path], arms: Sequence[str], *, each: bool, say: Callable[[str], None]
) -> tuple[FoundResult, ...]:
    """Read every result in these files and folders.

    `arms` are names for them, one for all or one for each. With `each`, every path is one arm; otherwise names
    distinguish repeats of one arm from other arms. Files of a folder that are not results are reported and left out.
    Raises UsageError and ReadError.
    """
    if arms and len(arms) not in (1, len(paths)):
        raise UsageError(
            f"{len(arms)} names for {len(paths)} files and folders", hint="one --arm for all, or one for each"
        )
    names = list(arms) * (len(paths) if len(arms) == 1 else 1) if arms else _names(paths)
    found = [one for path, name in zip(paths, names, strict=True) for one in _results(path, name, say)]
    if len({one.run for one in found}) < len(found):
        raise UsageError("the same run is given twice", hint="a run is not a repeat of itself")
    if not arms and not each:
        if len(paths) == 1 and paths[0].is_dir():
            found = _arms_in_folder(found)
        else:
            parents = (Path(one.shown).absolute().parent.name for one in found)
            found = [
                replace(one, arm=_without_counter(one.arm) or name) for one, name in zip(found, parents, strict=True)
            ]
    for line in _at_once(found):
        say(line)
    shown = _arm_names(one.arm for one in found)
    return tuple(replace(one, arm=shown[one.arm]) for one in found)


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest distinct ends of the paths: `result`, or `before/result` and `after/result`."""
    parts = [(*path.absolute().parts[1:-1], path.stem if path.is_file() else path.absolute().name) for path in paths]
    for depth in range(1, max((len(part) for part in parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError("the same file is given twice", hint="a run is not a repeat of itself")


def _results(path: Path, arm: str, say: Callable[[str], None]) -> Iterator[FoundResult]:
    if not path.is_dir():
        file, only = file_and_run(path)
        found = _found(file, Path(file.name), arm, _content(file), only=only)
        if len(found) > 1:
            say(f"{path}: {len(found)} runs, taken as repeats; `{path}:1` is the first of them alone")
        yield from found
        return
    found, others = list[FoundResult](), list[str]()
    for file in _files(path):
        content = _content(file)
        try:
            found += _found(file, file.relative_to(path), arm, content)
        except ReadError as error:
            if any(sign in content for sign in _SIGNS):
                say(f"left out {error.message}")
            others.append(printable(str(file.relative_to(path))))
    yield from _together(path, found, say)
    if not found:
        hint = "virtune reads what fio, DiskSpd and Vdbench report"
        raise ReadError(f"{path}: no file in it holds a fio result", hint=hint)
    if others:
        without = "other file that holds none" if len(others) == 1 else "other files that hold none"
        named = ", ".join(others[:_NAMED_MAX]) + (", ..." if len(others) > _NAMED_MAX else "")
        say(f"{path}: {len(found)} result{'' if len(found) == 1 else 's'}, and {len(others)} {without}: {named}")


def _together(root: Path, found: Sequence[FoundResult], say: Callable[[str], None]) -> Iterator[FoundResult]:
    """Yield one result for the VMs of each run of HCIBench, and every other as it is."""
    runs: dict[object, list[FoundResult]] = {}
    for one in found:
        ran_together = root.joinpath(*one.place, _HCIBENCH).is_file()
        runs.setdefault((one.place, one.run[-1]) if ran_together else one.run, []).append(one)
    for vms in runs.values():
        first, folder = vms[0], root.joinpath(*vms[0].place)
        if len(vms) == 1:
            yield first
            continue
        say(f"{folder}: {len(vms)} VMs of HCIBench, which ran at the same time, are one run")
        result = replace(first.result, loads=tuple(load for vm in vms for load in vm.result.loads))
        yield replace(
            first,
            shown=printable(str(folder), most=100),
            place=tuple(map(_without_counter, first.place)),
            stem=folder.name,
            contents=tuple(content for vm in vms for content in vm.contents),
            result=result,
            parts=parts_of(result),
        )


def _at_once(found: Iterable[FoundResult]) -> Iterator[str]:
    """Say of each arm's results, which are taken as repeats, that two of them ran at the same time."""
    ends = sorted(
        (one.arm, one.result.ended, number, one) for number, one in enumerate(found) if one.result.ended is not None
    )
    told = set[str]()
    for (arm, end, _, one), (another, its_end, _, other) in pairwise(ends):
        together = arm == another and its_end - end < other.result.seconds / 2 and one.contents != other.contents
        if together and arm not in told and _shared([("", one.parts[0]), (arm, other.parts[0])]):
            told.add(arm)
            yield f"{one.shown} and {other.shown} ran at the same time: they are no repeats of each other"


def _files(folder: Path) -> Iterator[Path]:
    """Every regular file below a folder, in natural order: run-2 before run-10. A link to one of them is none of its
    own.
    """
    found: list[Path] = []
    for directory, folders, files in os.walk(folder):
        folders.sort()
        if _FLATFILE in files:
            files = [name for name in files if name == _FLATFILE or not name.endswith(".html")]  # noqa: PLW2901
        found += [Path(directory) / name for name in files if (Path(directory) / name).is_file()]
        if len(found) > FILES_MAX:
            raise ReadError(f"{folder} has more than {FILES_MAX:,} files", hint="name the folder of the results")
    links = {file for file in found if file.is_symlink()}
    named = {_identity(file) for file in found if file not in links}
    kept = [file for file in found if file not in links or _identity(file) not in named]
    return iter(sorted(kept, key=lambda file: _counted(str(file))))


def _identity(file: Path) -> tuple[int, int]:
    about = file.stat()
    return about.st_dev, about.st_ino


def _counted(text: str) -> list[tuple[int, str]]:
    return [(int(piece[:18]), "") if piece.isdecimal() else (-1, piece) for piece in _DIGITS.split(text)]


def _content(path: Path) -> bytes:
    try:
        return read_up_to(path, LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read {str(path)!r}: {reason}", hint="name fio results or folders of them") from None


def _found(path: Path, relative: Path, arm: str, content: bytes, *, only: int | None = None) -> list[FoundResult]:
    """Return the runs in a file, each with what of the content is its own; `only` is the one that is wanted."""
    shown = printable(str(path), most=100)
    try:
        refuse_length(len(content))
        runs = read_runs(text_of(content))
        if only is not None:
            run_of(runs, only)  # raises where there is no such run
    except ReadError as error:
        raise ReadError(f"{shown}: {error.message}", hint=error.hint) from None
    alone = len(runs) == 1
    return [
        FoundResult(
            arm=arm,
            shown=shown if alone else f"{shown}:{number}",
            place=relative.parts[:-1],
            stem=relative.stem,
            contents=(content if alone else run.text.encode(),),
            result=run.result,
            parts=parts_of(run.result),
            run=(*_identity(path), number),
        )
        for number, run in enumerate(runs, 1)
        if only in (None, number)
    ]


def _arms_in_folder(found: list[FoundResult]) -> list[FoundResult]:
    """Subfolders (or files) are arms if two of them ran the same job; otherwise the folder is one arm."""
    candidates = [
        next((step for step in one.place if not _REPEAT_DIR.fullmatch(step)), "")
        or ("" if one.place else _without_counter(one.stem))
        for one in found
    ]
    pairs = [(name, part) for name, one in zip(candidates, found, strict=True) for part in one.parts]
    # by job name first, so that thousands of files of different jobs are compared only within a name
    alike: dict[str, list[tuple[str, Part]]] = {}
    for name, part in pairs:
        alike.setdefault(part.name, []).append((name, part))
    shared = any(_shared(group) for group in alike.values())
    if not shared:
        return found
    return [replace(one, arm=name or one.arm) for name, one in zip(candidates, found, strict=True)]


def _shared(group: list[tuple[str, Part]]) -> bool:
    """Whether two of different names ran the same job."""
    firsts: list[tuple[str, Part]] = []
    for name, part in group:
        same = next((seen for seen in firsts if not differing(seen[1].shape, part.shape)), None)
        if same is None:
            firsts.append((name, part))
        elif same[0] != name:
            return True
    return False


def _without_counter(name: str) -> str:
    if name.isdecimal():
        return ""
    match = _REPEAT_STEM.match(name)
    return match["name"].rstrip("-_. ") if match else name


def _arm_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name to show for each: short, without control characters, and as different as they were."""
    shown: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        whole = printable(name.strip()) or "results"
        short = whole[-_LONGEST_ARM:]
        for number in count(2):
            if short not in taken:
                break
            end = f"~{number}"
            short = whole[-_LONGEST_ARM + len(end) :] + end
        taken.add(short)
        shown[name] = short
    return shown


OPTIONS_MAX = 60
"""The most options of an arm that are stored besides its workloads; fio's longest job files have fewer."""

_OF_WORKLOAD = ("direct", "ioengine")
"""Options that belong to the workload if all its runs agree on them: they affect how its figures are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One arm under one workload, once, from any source. `name` is what its jobs are called, `about` what its file
    says of how it was measured, `seconds` how long it took, None where its place among other runs is not to be told.
    """

    arm: str
    name: str
    shape: Shape
    workload: Workload
    options: Mapping[str, str]
    ended: str
    measurement: Measurement | None
    failure: str | None
    captures: tuple[Capture, ...] = ()
    in_force: InForce = field(default_factory=InForce)
    about: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How the arms are compared."""

    baseline: str | None
    metric: str
    margin: float = OPTIONS["margin"].default
    confidence: float = OPTIONS["confidence"].default


def runs_of(found: Iterable[FoundResult]) -> list[Run]:
    """Derive each result's measurement; a failed one is kept with its reason. A copy is marked, and does not count
    beside what it is a copy of, in one arm.
    """
    first: dict[tuple[bytes, ...], FoundResult] = {}
    runs = []
    for one in found:
        original = first.setdefault(one.contents, one)
        same = f"{one.shown} is byte for byte the same as {original.shown}"
        weight = Weight.INVALID if one.arm == original.arm else Weight.WARNING
        remark = COPY.remark(weight=weight, text=f"{same}: a copy is no second run, and shows no difference")
        for run in (_run(one, index) for index in range(len(one.parts))):
            measured = run.measurement
            if measured is not None and original is not one:
                measured = replace(measured, remarks=(*measured.remarks, remark))
            runs.append(replace(run, measurement=measured))
    return runs


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
        made = TrialRecord(trial=trial, ended=run.ended, in_force=run.in_force, measurement=run.measurement)
        records.append(replace(made, failure=run.failure))
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
    return in_order(record, [run.seconds for run in runs]), [run.captures for run in runs]


def keep(found: Sequence[FoundResult], terms: Terms, store: "Store", say: Callable[[str], None]) -> StudyRecord:
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
    of_file = {"file": found.shown, "group": part.group}
    outputs = (Capture(name=of_guest(name, vm), content=content) for vm, content in enumerate(found.contents))
    captures = (*outputs, Capture(name=IMPORTED, content=json.dumps(of_file).encode()))
    workload = workload_of(part, part.name, {k: v for k, v in part.options.items() if k in _OF_WORKLOAD})
    measurement, failure = None, None
    try:
        measurement = derive({c.name: c.content for c in captures}, stack=Stack(rig="unknown"), workload=workload)
    except LoadError as error:
        failure = error.message
    ended = found.result.ended
    seconds = max((load.seconds for load in found.result.loads if load.group == part.group), default=0.0)
    about = {
        "program": found.result.version or "fio",
        "host": found.result.host or "not known",
        "direct": part.options.get("direct", "not known"),
        "seconds": f"{seconds:.2g}" if seconds else "not known",
    }
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
        about=about,
        seconds=seconds,
    )


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds > 0 else ""
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
    made = []
    for name, mine in found.items():
        first, jobs = mine[0].workload, []
        for index, job in enumerate(first.jobs):
            others = [run.workload.jobs[index].as_dict() for run in mine if index < len(run.workload.jobs)]
            same = tuple((key, value) for key, value in job.options if all(o.get(key) == value for o in others))
            jobs.append(Job(name=job.name, options=same))
        made.append(replace(first, name=name, jobs=tuple(jobs)))
    return tuple(made)


def _arm(name: str, runs: Sequence[Run]) -> Arm:
    """An arm with its jobs' options besides their shape; where runs disagree, with all values."""
    keys = dict.fromkeys(key for run in runs for key in run.options)
    options = [
        (key, " / ".join(sorted({run.options.get(key, "not shown") for run in runs if run.options}))) for key in keys
    ]
    return Arm(name=name, stack=Stack(rig="unknown"), options=tuple(options[:OPTIONS_MAX]))


def hold_against(
    names: Sequence[str], store: StorePlace, terms: Terms, *, different_jobs: bool, say: Callable[[str], None]
) -> StudyRecord:
    """Combine these files, folders and runs into one study, which is not stored.

    A run is `STUDY` (an id, the beginning of one, `last`) or `STUDY:ARM`. Raises UsageError for results that cannot
    be compared: unknown names, a simulated study with any other, different jobs unless `different_jobs` allows them.
    """
    in_store = [name for name in names if not file_and_run(Path(name))[0].exists()]
    stored = {name: _from_store(name, store, beside=names) for name in in_store}
    for name, one in stored.items():
        if name.startswith("@"):
            say(f"{name} is {one.record.study.id}, the newest study with this tag")
    runs_named = {(one.record.study.id, one.arm) for one in stored.values()}
    if len(set(names)) < len(names) or len(runs_named) < len(stored):
        raise UsageError("the same run is given twice", hint="a run is not a repeat of itself")
    if len(stored) == len(names) and len({one.record.study.id for one in stored.values()}) == 1:
        return _within(list(stored.values()), terms)
    # a combination of studies would no longer be labelled as simulated
    for name, study in ((name, one.record.study) for name, one in stored.items() if one.record.study.simulated):
        arms = " ".join(f"{study.id}:{arm.name}" for arm in study.arms)
        raise UsageError(
            f"{name} is simulated: its figures are invented, and cannot be compared with those of another study",
            hint=f"compare arms of this one study with each other: {arms}",
        )
    if not different_jobs:
        _require_one_path(stored)
    paths = [Path(name) for name in names if name not in stored]
    found = find_results(paths, (), each=True, say=say) if paths else ()
    runs = [*runs_of(found)]
    named = Counter([one.arm for one in stored.values()] + list({run.arm for run in runs}))
    labelled = {one.arm if named[one.arm] == 1 else name: one for name, one in stored.items()}
    for label, one in labelled.items():
        runs += _runs_of_stored(one, label=label)
    # the arms in the order in which they were named; those of paths come first in `runs`
    known = list(dict.fromkeys(run.arm for run in runs))
    split = len(known) - len(stored)
    from_paths, from_store = iter(known[:split]), iter(known[split:])
    order = {next(from_store if name in stored else from_paths): index for index, name in enumerate(names)}
    runs = list(_matched(sorted(runs, key=lambda run: order[run.arm]), say, different_jobs=different_jobs))
    record, _ = record_of(runs, terms, each_alone=True)
    if len(stored) == len(names) and not any(one.record.study.imported for one in stored.values()):
        called = {run.workload.name: run.name for run in runs if run.arm == record.study.baseline}
        study = _of_our_own(record.study, [stored[name] for name in names])
        apart = nights_apart(record, labelled, called, store)
        told = (name for (_, metric), one in apart.items() if metric == study.metric for name in one.names)
        study = replace(study, told_by=tuple(dict.fromkeys(told)))
        return replace(record, study=study, between_runs=apart, pardoned=tuple(_pardoned(labelled)))
    return replace(record, study=replace(record.study, id=""))


def _require_one_path(stored: Mapping[str, Stored]) -> None:
    """Raise UsageError for studies whose loads took different ways to the disk: through a VM, a daemon or none, with
    KVM or under emulation.
    """
    ways: dict[str, str] = {}
    for name, one in stored.items():
        if not one.record.study.imported:
            checks = (
                check for trial in one.record.trials for check in trial.in_force.checks if trial.trial.arm == one.arm
            )
            accelerator = next((check.found for check in checks if check.setting == "accelerator"), None)
            rig = one.record.study.arm(one.arm).stack.rig
            ways[name] = f"rig={rig}" + (f" under {accelerator}" if accelerator else "")
    if len(set(ways.values())) > 1:
        told = ", ".join(f"{name} on {way}" for name, way in ways.items())
        raise UsageError(
            f"these took different ways to the disk: {told}",
            hint="`virtune compare --arm a:rig=metal --arm b:rig=qemu` measures both in turn; --different-jobs"
            " compares these anyway",
        )


def _pardoned(labelled: Mapping[str, Stored]) -> Iterator[Waiver]:
    """Yield what each study itself pardons its arm, under the arm's name here."""
    for label, one in labelled.items():
        yield from (replace(own, arm=label) for own in pardons_of(one.record) if own.arm in (None, one.arm))


def _of_our_own(study: Study, stored: Sequence[Stored]) -> Study:
    """Return a study that holds arms of others against each other, with what else differs between them."""
    from virtune.analyse.facts import gathered, known_facts

    facts = {str(number): known_facts(one.record, one.arm) for number, one in enumerate(stored)}
    known = [*gathered(facts).values()]
    found = ((name, tuple(one.get(name, "absent") for one in known)) for name in sorted({*chain(*known)}))
    differing = tuple((name, values) for name, values in found if len(set(values)) > 1)
    probed = all(one.record.facts for one in stored)
    sources = tuple(one.record.study.id for one in stored)
    return replace(study, id="", sources=sources, differing=differing if probed else None, order=None)


def _from_store(name: str, store: StorePlace, beside: Sequence[str]) -> Stored:
    study, _, arm = name.partition(":")
    unknown = UsageError(f"no file, folder or study {name!r}", hint="`virtune show list` shows the stored studies")
    if not store.exists():
        raise unknown
    from virtune.store.store import Store

    with Store(store, reading=True) as kept:
        try:
            found = kept.find(study)
        except UsageError as error:
            raise (error if study.startswith("@") else unknown) from None
        record, _ = current(kept, found)
    if record.study.search is not None:
        raise UsageError(
            f"study {found} is a search, which measured the better arms longer: they cannot be compared so",
            hint=f"`virtune show {study}` says how they stand, with the search's own error bound",
        )
    arms = [one.name for one in record.study.arms]
    if not arm and len(arms) > 1:
        ways = _whole_commands(beside, store) or [f"{study}:{one}" for one in arms]
        raise UsageError(f"study {found} has {len(arms)} arms", hint=f"name one: {', '.join(ways)}")
    if arm and arm not in arms:
        raise UsageError(f"study {found} has no arm {arm!r}", hint=f"it has {', '.join(arms)}")
    arm = arm or arms[0]
    if not any(one.trial.arm == arm for one in record.trials):
        raise UsageError(
            f"study {found} has no trial of arm {arm!r} yet",
            hint=f"`virtune compare resume {study}` runs it",
        )
    return Stored(record=record, arm=arm)


def _whole_commands(names: Sequence[str], store: StorePlace) -> list[str]:
    """Return a command for each arm that all these studies have, where more than one has several; else none."""
    from virtune.store.store import Store

    several: dict[str, list[str]] = {}
    with Store(store, reading=True) as kept:
        for name in (one for one in names if ":" not in one):
            with contextlib.suppress(UsageError):
                arms = kept.get(kept.find(name)).study.arm_names
                several |= {name: [*arms]} if len(arms) > 1 else {}
    shared = [arm for arm in next(iter(several.values()), []) if all(arm in arms for arms in several.values())]
    each = ([f"{one}:{arm}" if one in several else one for one in names] for arm in shared)
    return [f"`{' '.join(['virtune', 'compare', *sides])}`" for sides in each] if len(several) > 1 else []


def _within(stored: Sequence[Stored], terms: Terms) -> StudyRecord:
    """Some arms of one study, with its rounds."""
    record = stored[0].record
    chosen = [one.arm for one in stored]
    if terms.baseline is not None and terms.baseline not in chosen:
        raise UsageError(f"no arm {terms.baseline!r}", hint=f"there are {', '.join(chosen)}")
    study = replace(
        record.study,
        arms=tuple(record.study.arm(name) for name in chosen),
        baseline=terms.baseline or chosen[0],
        metric=terms.metric,
        margin=terms.margin,
        conditions=(),
        trials=tuple(trial for trial in record.study.trials if trial.arm in chosen),
    )
    study = replace(study, **_family(record.study, study, terms.confidence))
    return replace(record, study=study, trials=tuple(t for t in record.trials if t.trial.arm in chosen))


def _family(whole: Study, chosen: Study, confidence: float) -> dict[str, Any]:
    """Return the confidence of arms that were chosen after the study ran, with a note.

    After seeing the results one may choose the two arms that differ most by chance. So the error is shared among all
    pairs of the study, not only those compared now.
    """
    if {*chosen.arms} == {*whole.arms} and chosen.baseline == whole.baseline:
        return {"confidence": confidence}
    pairs, now = math.comb(len(whole.arms), 2), len(pairs_of(chosen))
    said = (
        f"{len(chosen.arms)} of {len(whole.arms)} arms of study {whole.id}, chosen after it ran:"
        f" the error of {1 - confidence:.2g} is shared among all {pairs} pairs of its arms"
    )
    title = f"{whole.title}; {said}" if whole.title else said
    return {"confidence": 1 - (1 - confidence) * now / pairs, "title": title}


def _runs_of_stored(stored: Stored, *, label: str) -> Iterator[Run]:
    study = stored.record.study
    arm = study.arm(stored.arm)
    for record in stored.record.trials:
        if record.trial.arm == arm.name:
            workload = arm.load_of(study.workload(record.trial.workload))
            yield Run(
                arm=label,
                name=workload.name,
                shape=shape_of(workload, complete=not study.imported),
                workload=workload,
                options=dict(arm.options if study.imported else arm.settings),
                ended=record.ended,
                measurement=record.measurement,
                failure=record.failure,
                in_force=record.in_force,
                seconds=0.0 if study.imported else None,
            )


def _matched(runs: Sequence[Run], say: Callable[[str], None], *, different_jobs: bool) -> Iterator[Run]:
    """Keep only workloads that all arms have, under one name, and require that their jobs are equal."""
    runs = [replace(run, name=name) for run, name in zip(runs, workload_names(runs, each_alone=True), strict=True)]
    by_arm: dict[str, dict[str, Run]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, {}).setdefault(run.name, run)
    if len(by_arm) < 2:
        raise UsageError("one arm: there is nothing to compare it with", hint="`virtune compare BEFORE AFTER`")
    names = {name for mine in by_arm.values() for name in mine}
    if all(len(mine) == 1 for mine in by_arm.values()) and len(names) > 1:
        first = next(iter(next(iter(by_arm.values()))))
        say(f"each has one workload, and they are compared with one another: {', '.join(sorted(names))}")
        runs = [replace(run, name=first) for run in runs]
        by_arm = {arm: {first: next(iter(mine.values()))} for arm, mine in by_arm.items()}
        names = {first}
    common = {name for name in names if all(name in mine for mine in by_arm.values())}
    if not common:
        have = "; ".join(f"{arm} has {', '.join(sorted(mine))}" for arm, mine in by_arm.items())
        raise UsageError("no workload is in all of them", hint=have[:400])
    for name in sorted(names - common):
        say(f"left out: {name} is not in all of them")
    base = next(iter(by_arm.values()))
    extra: dict[str, dict[str, str]] = {arm: {} for arm in by_arm}
    for name in sorted(common):
        for arm, mine in by_arm.items():
            found = differing(base[name].shape, mine[name].shape)
            if not found and (base[name].about or mine[name].about):
                found = [*done_otherwise(base[name].measurement, mine[name].measurement)]
            for option, was, now in found:
                if not different_jobs:
                    raise UsageError(
                        f"{name} is not the same job in {next(iter(by_arm))} and {arm}: {option} is {was} and {now}",
                        hint="the jobs differ, so a difference would not be the disk's; --different-jobs"
                        " compares anyway",
                    )
                extra[arm][f"{name}: {option}"] = now
                extra[next(iter(by_arm))][f"{name}: {option}"] = was
    runs = [run for run in runs if run.name in common]
    apart = _measured_otherwise(runs)
    for run in runs:
        yield replace(run, options={**extra[run.arm], **apart.get(run.arm, {}), **run.options})


_ASKED = ("rw", "bs", "iodepth", "rate_iops")
_TOLD = ("program", *_ASKED, "direct", "seconds", "host")
"""What is told of two sides where it is not the same, in this order."""


def _measured_otherwise(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """Return by arm what is not the same of how they were measured, and what only some of them say of their load."""
    said: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        asked = {name: "+".join(job.get(name) or "none known" for job in run.shape) for name in _ASKED}
        for key, value in (dict(run.about) | asked).items():
            said.setdefault(key, {}).setdefault(run.arm, set()).add(value)
    found: dict[str, dict[str, str]] = {}
    for key in _TOLD:
        values = {arm: " / ".join(sorted(one)) for arm, one in said.get(key, {}).items()}
        # what all of them say of their loads was compared before
        if len({*values.values()}) > 1 and (key not in _ASKED or "none known" in "".join(values.values())):
            for arm, value in values.items():
                found.setdefault(arm, {})[key] = value
    return found
