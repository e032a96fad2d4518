# SPDX-License-Identifier: Apache-2.0
"""The studies that ship with virtune: plan files in `virtune/studies`, found by name and rig."""

from dataclasses import dataclass, replace
from pathlib import Path

from virtune.fio.workloads import parse_workload
from virtune.model.errors import PlanError
from virtune.model.rig import PASSED_KNOB, read_rig
from virtune.model.spelling import did_you_mean, quoted
from virtune.model.study import StudyKind
from virtune.model.study_options import StudyOptions
from virtune.plan.planfile import read_plan

_PLACE = Path(__file__).parents[2] / "studies"

_VARIANTS = {"export": ".daemon", "file": ".metal"}
"""In a file name: the variant of a study without a guest, by what its rig's load reaches; a storage daemon's export,
or the host's own file or device.
"""

_FORMAT = "disk.format="

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


def builtin(name: str, rig: str | None = None, *, target: bool = False) -> Builtin:
    """Return the study of that name for a rig, or for an existing target; raises PlanError with the name that was
    probably meant.
    """
    names = _names()
    if name not in names:
        hint = did_you_mean(name, names) or f"`virtune study list` shows them: {', '.join(names)}"
        raise PlanError(f"there is no study {quoted(name)}", hint=hint)
    asked = None if rig is None else read_rig(rig)
    ending = "" if asked is None else _VARIANTS.get(asked.kind.front, "")
    files = {end: _PLACE / f"{name}{end}.toml" for end in ("", *_VARIANTS.values())}
    plans = {end: read_plan(file.read_text(encoding="utf-8")) for end, file in files.items() if file.exists()}
    plan, without = plans.get(ending, plans[""]), None
    format_asked = next((word for word in plan.settings if word.startswith(_FORMAT)), None)
    if target and format_asked is not None:
        without = RAW.format(format_asked.removeprefix(_FORMAT))
        plan = replace(plan, settings=tuple(word for word in plan.settings if word != format_asked))
    return Builtin(name=name, plan=plan, rigs=tuple(one.rig for one in plans.values() if one.rig), without=without)


def _names() -> list[str]:
    return sorted(path.stem for path in _PLACE.glob("*.toml") if "." not in path.stem)
