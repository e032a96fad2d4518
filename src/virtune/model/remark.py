# SPDX-License-Identifier: Apache-2.0
"""A Remark: an interpretation of the figures in words, with the figures it rests on; and the kinds of them."""

from dataclasses import dataclass
from enum import StrEnum


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
