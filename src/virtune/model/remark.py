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

KVM_WITHOUT_HARDWARE = "KVM without hardware virtualization"
"""The name, in results, of the kind of KVM that runs a guest's programs on the CPU and emulates its kernel."""
