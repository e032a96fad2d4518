# SPDX-License-Identifier: Apache-2.0
"""A Proof: what replacing the accused layer says of a diagnosis."""

from dataclasses import dataclass
from enum import StrEnum

from virtune.model.verdict import Interval

SIZE = 0.5
"""The share of the promised size that must be there. A diagnosis names a layer from half of an I/O's time on, and a
replacement takes some time of its own, so less than half of the promise is not what was said.
"""


class ProofOutcome(StrEnum):
    """What became of an accusation. `untested`: nothing was measured, and the proof says why."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    UNTESTED = "untested"


class ProofReason(StrEnum):
    """Why an accusation ended as it did."""

    AS_SAID = "as-said"
    LESS_THAN_SAID = "less-than-said"
    NOT_THE_DEVICE = "not-the-device"
    NOISE = "noise"
    NOT_ACCUSED_AGAIN = "not-accused-again"
    NOTHING_ACCUSED = "nothing-accused"
    NO_INTERVENTION = "no-intervention"
    NOT_OURS = "not-ours"


OUTCOMES: dict[ProofReason, ProofOutcome] = {
    ProofReason.AS_SAID: ProofOutcome.CONFIRMED,
    ProofReason.LESS_THAN_SAID: ProofOutcome.REFUTED,
    ProofReason.NOT_THE_DEVICE: ProofOutcome.REFUTED,
    ProofReason.NOISE: ProofOutcome.UNDECIDED,
    ProofReason.NOT_ACCUSED_AGAIN: ProofOutcome.UNDECIDED,
    ProofReason.NOTHING_ACCUSED: ProofOutcome.UNTESTED,
    ProofReason.NO_INTERVENTION: ProofOutcome.UNTESTED,
    ProofReason.NOT_OURS: ProofOutcome.UNTESTED,
}
"""The outcome that each reason stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The verdict on an accusation, with its reason and what was measured.

    `what` says what was replaced, in the arm `arm` of the comparison `study`; both are empty where nothing was
    measured, and `by_hand` then says what to try. `change` is the replaced stack's `metric` over that of the stack as
    it is, over `rounds` rounds; `least` is the ratio that it must reach (it must stay below it where `falls`), and
    `share` the part of an I/O's time that the diagnosis gave to the layer, None where it gave none. `stand_in` is the
    change with a device of the same mean latency. `notes` are what else a reader must know.
    """

    reason: ProofReason
    why: str
    what: str = ""
    arm: str = ""
    study: str = ""
    metric: str = ""
    change: Interval | None = None
    least: float | None = None
    falls: bool = False
    share: float | None = None
    stand_in: Interval | None = None
    rounds: int = 0
    by_hand: str = ""
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> ProofOutcome:
        """What became of the accusation."""
        return OUTCOMES[self.reason]
