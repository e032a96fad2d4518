# SPDX-License-Identifier: Apache-2.0
"""The studies that ship with virtune: plan files in `virtune/studies`, found by name and rig."""

from dataclasses import dataclass
from pathlib import Path

from virtune.fio.workloads import parse_workload
from virtune.model.errors import PlanError
from virtune.model.rig import PASSED_KNOB, on_export
from virtune.model.spelling import did_you_mean, quoted
from virtune.model.study import StudyKind
from virtune.model.study_options import StudyOptions
from virtune.plan.planfile import read_plan

_PLACE = Path(__file__).parents[2] / "studies"

_ON_DAEMON = ".daemon"
"""In a file name: the variant of a study with a storage daemon instead of a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A study that ships with virtune: its name, its plan, and the rigs that it can be run on."""

    name: str
    plan: StudyOptions
    rigs: tuple[str, ...]

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


def builtin(name: str, rig: str | None = None) -> Builtin:
    """Return the study of that name for a rig; raises PlanError with the name that was probably meant."""
    names = _names()
    if name not in names:
        hint = did_you_mean(name, names) or f"`virtune study list` shows them: {', '.join(names)}"
        raise PlanError(f"there is no study {quoted(name)}", hint=hint)
    on_daemon = _PLACE / f"{name}{_ON_DAEMON}.toml"
    own = _PLACE / f"{name}.toml"
    plan = read_plan((on_daemon if on_export(rig) and on_daemon.exists() else own).read_text(encoding="utf-8"))
    rigs = [read_plan(each.read_text(encoding="utf-8")).rig for each in (own, on_daemon) if each.exists()]
    return Builtin(name=name, plan=plan, rigs=tuple(found for found in rigs if found))


def _names() -> list[str]:
    return sorted(path.stem for path in _PLACE.glob("*.toml") if not path.stem.endswith(_ON_DAEMON))
