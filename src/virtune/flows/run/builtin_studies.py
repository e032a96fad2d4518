# SPDX-License-Identifier: Apache-2.0
"""The studies that ship with virtune: plan files in `virtune/studies`, found by name and rig."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virtune.fio.workloads import parse_workload
from virtune.model.errors import PlanError
from virtune.model.rig import PASSED_KNOB, read_rig
from virtune.model.stack import MEMORY
from virtune.model.study import Arm, StudyKind
from virtune.model.study_options import StudyOptions
from virtune.model.text import did_you_mean, quoted
from virtune.plan.planfile import read_plan

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

RAW = "a target is used as it is, so the format is raw, in place of {} as the study has it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A study that ships with virtune: its name, its plan, and the rigs that it can be run on. `without` says which
    setting of it a target does not have.
    """

    name: str
    plan: StudyOptions
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


def on_target(plan: StudyOptions) -> tuple[StudyOptions, str | None]:
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
        hint = did_you_mean(name, names) or f"`virtune study list` shows them: {', '.join(names)}"
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
