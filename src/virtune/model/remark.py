# SPDX-License-Identifier: Apache-2.0
"""A Remark: what the numbers mean together, in words, with the numbers it rests on."""

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
"""The id of the remark that a guest ran under software emulation, so that its figures rank nothing."""

KVM_WITHOUT_HARDWARE = "KVM without hardware virtualization"
"""The kind of KVM that runs a guest's programs on the CPU and emulates its kernel, as results name it."""
