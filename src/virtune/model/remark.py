# SPDX-License-Identifier: Apache-2.0
"""A Remark: an interpretation of the figures in words, with the figures it rests on. Gates: disturbances other than
the disk itself, with the limits above which a trial is warned about or invalid. And every kind of remark that is
no gate's: its id, how severe it is, what it means, and what to do about it.

What is said of each is data (`remarks.json`), which the pages, the reference and the schemas read too.
"""

import json
import pkgutil
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Weight(StrEnum):
    """How much a remark matters: `invalid` forbids conclusions, `warning` limits them, `note` explains."""

    NOTE = "note"
    WARNING = "warning"
    INVALID = "invalid"

    @property
    def rank(self) -> int:
        """Its rank, the most severe first."""
        return -list(Weight).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing a good reader notices. `id` is stable (`page-cache`, `spread`, `depth`, `little`, ...)."""

    id: str
    weight: Weight
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What virtune judges by: a kind of remark, a gate of trials, a rule of the audit. No two have one id.

    `why` says when it applies and why that matters, `source` where that is known from, if it does not follow from
    `why`.
    """

    id: str
    why: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemarkKind(Criterion):
    """A kind of remark: how severe it may be, and the advice that goes with it where the case gives no other."""

    weights: tuple[Weight, ...]
    advice: str = ""

    def remark(self, *, text: str, advice: str | None = None, weight: Weight | None = None) -> Remark:
        """Return a remark of this kind; `weight` is needed where it has several. Raises ValueError for others."""
        if weight is None:
            (weight,) = self.weights
        elif weight not in self.weights:
            raise ValueError(f"{self.id} is never {weight}")
        return Remark(id=self.id, weight=weight, text=text, advice=self.advice if advice is None else advice)


PERIODIC_LEVEL = 0.01
"""The false-alarm rate, by shuffles, up to which a period is reported."""

PERIODIC_CHANCE = 0.1
"""The most of such remarks among trials without a period: 1 % where I/Os are independent of one another, 4 to 10 %
where neighbours are alike (simulated: AR(1) with 0.3 to 0.9, and noise)."""

KVM_WITHOUT_HARDWARE = "KVM without hardware virtualization"
"""The name, in results, of the kind of KVM that runs a guest's programs on the CPU and emulates its kernel."""

Unit = Literal["share", "count", "1/s", "s", "C"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(RemarkKind):
    """One kind of disturbance that is checked in every trial.

    A reading above `flag` is a warning, one above `invalid` makes the trial invalid; None where there is no such
    limit. `unit`: `share` (0..1), `count`, `1/s`, `s`, or `C` (degrees from the drive's own limit, negative below).
    `passing`: the cause is temporary, so another attempt may be free of it.
    """

    label: str
    unit: Unit
    flag: float | None
    invalid: float | None
    passing: bool = True
    weights: tuple[Weight, ...] = field(init=False)

    def __post_init__(self) -> None:
        limits = ((Weight.INVALID, self.invalid), (Weight.WARNING, self.flag))
        object.__setattr__(self, "weights", tuple(weight for weight, limit in limits if limit is not None))

    def weight_of(self, value: float) -> Weight | None:
        """Return how severe a reading is; None where it is within both limits."""
        limits = ((Weight.INVALID, self.invalid), (Weight.WARNING, self.flag))
        return next((weight for weight, limit in limits if limit is not None and value > limit), None)


_ROWS: dict[str, list[dict[str, Any]]] = json.loads(pkgutil.get_data("virtune.model", "remarks.json") or b"")


def _kinds(of: str) -> tuple[RemarkKind, ...]:
    return tuple(RemarkKind(**{**row, "weights": tuple(map(Weight, row["weights"]))}) for row in _ROWS[of])


GATES: tuple[Gate, ...] = tuple(Gate(**row) for row in _ROWS["gates"])
"""Every gate, in the order in which it is said: id, label, unit, the limits of a warning and of an invalid trial.
Where `why` gives no measurement for a limit, it comes from experience with such counters.
"""

GATE_BY_ID: dict[str, Gate] = {gate.id: gate for gate in GATES}


def label_of(cause: str) -> str:
    """Return the words for a cause that makes a trial invalid, by its gate or the id of its remark."""
    if cause == "little":
        return "IOPS times latency is not the number of I/Os in flight"
    gate = GATE_BY_ID.get(cause)
    return cause.replace("-", " ") if gate is None else gate.label


OF_RESULTS, OF_LOADS, OF_SEVERAL_RESULTS = _kinds("results"), _kinds("loads"), _kinds("several results")
"""Of a fio result: asked of the whole result, asked of every job group; of results beside one another."""

OF_TRIALS, OF_HOSTS = _kinds("trials"), _kinds("hosts")
"""Of a trial, and of a host."""

REMARK_KINDS: tuple[RemarkKind, ...] = (*OF_RESULTS, *OF_LOADS, *OF_SEVERAL_RESULTS, *OF_TRIALS, *GATES, *OF_HOSTS)
"""All of them, with the gates. An id stands here once."""

_KIND = {kind.id: kind for kind in REMARK_KINDS}

COPY = _KIND["copy"]
UNVERIFIED = _KIND["unverified"]
ANOTHER_TRIAL = _KIND["another-trial"]
SIMULATED = _KIND["simulated"]
EMULATED = _KIND["functional-only"]
PERIODIC = _KIND["periodic"]


def remark_of(kind: str, *, text: str, advice: str | None = None, weight: Weight | None = None) -> Remark:
    """Return a remark of the kind of that id, as that kind makes it."""
    return _KIND[kind].remark(text=text, advice=advice, weight=weight)
