# SPDX-License-Identifier: Apache-2.0
"""Compare existing results: files, folders, and runs in the store.

Arms of one study ran in turn, and are compared within its rounds. All others are independent repeats, and are
compared unpaired.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from virtune.analyse.study.verdicts import pairs_of
from virtune.analyse.trial.imported import differing, shape_of
from virtune.flows.stored.find_results import file_and_run, find_results
from virtune.flows.stored.import_results import Run, Terms, record_of, runs_of, workload_names
from virtune.flows.stored.show import current
from virtune.model.errors import StorePlace, UsageError
from virtune.model.evidence import StudyRecord
from virtune.model.study import Study
from virtune.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """One arm of a study in the store."""

    record: StudyRecord
    arm: str


def hold_against(
    names: Sequence[str], store: StorePlace, terms: Terms, *, different_jobs: bool, say: Callable[[str], None]
) -> StudyRecord:
    """Combine these files, folders and runs into one study, which is not stored.

    A run is `STUDY` (an id, the beginning of one, `last`) or `STUDY:ARM`. Raises UsageError for results that cannot
    be compared: unknown names, a simulated study with any other, different jobs unless `different_jobs` allows them.
    """
    stored = {name: _from_store(name, store) for name in names if not file_and_run(Path(name))[0].exists()}
    runs_named = {(one.record.study.id, one.arm) for one in stored.values()}
    if len(set(names)) < len(names) or len(runs_named) < len(stored):
        raise UsageError("the same run is given twice", hint="a run is not a repeat of itself")
    if len(stored) == len(names) and len({one.record.study.id for one in stored.values()}) == 1:
        return _within(list(stored.values()), terms)
    _require_measured(stored)
    paths = [Path(name) for name in names if name not in stored]
    found = find_results(paths, (), each=True, say=say) if paths else ()
    runs = [*runs_of(found)]
    for name, one in stored.items():
        taken = {run.arm for run in runs}
        runs += _runs_of_stored(one, label=one.arm if one.arm not in taken else name)
    order = {arm: index for index, arm in enumerate(_in_order(names, stored, [run.arm for run in runs]))}
    runs = list(_matched(sorted(runs, key=lambda run: order[run.arm]), say, different_jobs=different_jobs))
    record, _ = record_of(runs, terms, each_alone=True)
    return replace(record, study=replace(record.study, id=""))


def _in_order(names: Sequence[str], stored: dict[str, _Stored], arms: Sequence[str]) -> list[str]:
    """The arms in the order in which they were named; those of paths come first in `arms`."""
    known = list(dict.fromkeys(arms))
    paths = known[: len(known) - len(stored)]
    runs = known[len(paths) :]
    return [(runs if name in stored else paths).pop(0) for name in names]


def _from_store(name: str, store: StorePlace) -> _Stored:
    study, _, arm = name.partition(":")
    unknown = UsageError(f"no file, folder or study {name!r}", hint="`virtune list` shows the studies in the store")
    if not store.exists():
        raise unknown
    with Store(store, reading=True) as kept:
        try:
            found = kept.find(study)
        except UsageError:
            raise unknown from None
        record, _ = current(kept, found)
    if record.study.search is not None:
        raise UsageError(
            f"study {found} is a search, which measured the better arms longer: they cannot be compared so",
            hint=f"`virtune show {study}` says how they stand, with the search's own error bound",
        )
    arms = [one.name for one in record.study.arms]
    if not arm and len(arms) > 1:
        raise UsageError(
            f"study {found} has {len(arms)} arms", hint=f"name one: {', '.join(f'{study}:{a}' for a in arms)}"
        )
    if arm and arm not in arms:
        raise UsageError(f"study {found} has no arm {arm!r}", hint=f"it has {', '.join(arms)}")
    arm = arm or arms[0]
    if not any(one.trial.arm == arm for one in record.trials):
        raise UsageError(
            f"study {found} has no trial of arm {arm!r} yet", hint=f"`virtune resume {study}` runs what is left"
        )
    return _Stored(record=record, arm=arm)


def _require_measured(stored: dict[str, _Stored]) -> None:
    """Refuse simulated figures: a combination of studies would no longer be labelled as simulated."""
    for name, one in stored.items():
        if one.record.study.simulated:
            raise UsageError(
                f"{name} is simulated: its figures are invented, and cannot be compared with those of another study",
                hint="compare arms of this one study with each other: "
                + " ".join(f"{one.record.study.id}:{arm.name}" for arm in one.record.study.arms),
            )


def _within(stored: Sequence[_Stored], terms: Terms) -> StudyRecord:
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


def _runs_of_stored(stored: _Stored, *, label: str) -> Iterator[Run]:
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
            for option, was, now in differing(base[name].shape, mine[name].shape):
                if not different_jobs:
                    raise UsageError(
                        f"{name} asks {arm} for something else: {option} is {now}, and {was} in {next(iter(by_arm))}",
                        hint="the jobs differ, so a difference would not be the disk's; --different-jobs"
                        " compares anyway",
                    )
                extra[arm][f"{name}: {option}"] = now
                extra[next(iter(by_arm))][f"{name}: {option}"] = was
    yield from (replace(run, options={**extra[run.arm], **run.options}) for run in runs if run.name in common)
