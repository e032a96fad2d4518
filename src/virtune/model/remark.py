# SPDX-License-Identifier: Apache-2.0
"""A Remark: an interpretation of the figures in words, with the figures it rests on."""

from dataclasses import dataclass
from enum import StrEnum


class Weight(StrEnum):
    """How much a remark matters: `invalid` forbids conclusions, `warning` limits them, `note` explains."""

    NOTE = "note"
    WARNING = "warning"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing a good reader notices. `id` is stable (`page-cache`, `spread`, `depth`, `little`, ...)."""

    id: str
    weight: Weight
    text: str
    advice: str = ""


SIMULATED = "simulated"
"""The id of the remark that a trial was simulated: its figures are invented."""

EMULATED = "functional-only"
"""The id of the remark that a guest ran under software emulation, so that its figures are not comparable."""

PERIODIC = "periodic"
"""The id of the remark on single I/Os whose latencies have a period."""

PERIODIC_LEVEL = 0.01
"""The false-alarm rate, by shuffles, up to which a period is reported."""

PERIODIC_CHANCE = 0.1
"""The most of such remarks among trials without a period: 1 % where I/Os are independent of one another, 4 to 10 %
where neighbours are alike (simulated: AR(1) with 0.3 to 0.9, and noise)."""

KVM_WITHOUT_HARDWARE = "KVM without hardware virtualization"
"""The name, in results, of the kind of KVM that runs a guest's programs on the CPU and emulates its kernel."""
