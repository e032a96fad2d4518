# SPDX-License-Identifier: Apache-2.0
"""Judge an accusation by the comparison in which the accused layer was replaced.

The condition on the change is judged like any `--fail-if`: held or breached only where the whole interval lies on one
side. An accusation that the measured stack itself repeats is refuted by a breach; one that it does not repeat is
undecided, since the conditions are then not those of the diagnosis.
"""

import math

from virtune.model.bottleneck import CAUSE_WORDS, Cause
from virtune.model.condition import Outcome, ThresholdResult
from virtune.model.metric import BY_ID
from virtune.model.proof import SIZE, Proof, ProofReason
from virtune.model.verdict import Comparison, Interval


def judge_proof(
    ruling: ThresholdResult, *, cause: Cause, again: Cause | None, share: float | None, stand_in: Comparison | None
) -> Proof:
    """Return the verdict on an accusation. `ruling` is of the arm with the replaced layer, `again` the diagnosis of
    the stack as it is in the same rounds (None without one), `stand_in` the arm with a device of the same mean
    latency, for an accusation of the device.
    """
    reason, why = _reason(ruling, cause=cause, again=again, share=share, stand_in=stand_in)
    return Proof(
        reason=reason,
        why=why,
        arm=ruling.comparison.candidate,
        metric=ruling.condition.metric,
        change=ruling.comparison.ratio,
        least=ruling.condition.limit,
        falls=_slower(ruling),
        share=share,
        stand_in=None if stand_in is None else stand_in.ratio,
        rounds=ruling.comparison.rounds,
    )


def _reason(
    ruling: ThresholdResult, *, cause: Cause, again: Cause | None, share: float | None, stand_in: Comparison | None
) -> tuple[ProofReason, str]:
    match ruling.outcome:
        case Outcome.UNDECIDED:
            return ProofReason.NOISE, f"the rounds do not decide it: {ruling.why}"
        case Outcome.BREACHED if again is not cause:
            words = "nothing" if again is None else CAUSE_WORDS[again]
            said = "which nothing seemed to limit" if again in (None, Cause.UNDECIDED) else f"limited by {words}"
            return ProofReason.NOT_ACCUSED_AGAIN, (
                f"the load changed too little, but these rounds had another stack to judge: {said}"
            )
        case Outcome.BREACHED:
            way = "slower" if _slower(ruling) else "faster"
            if share is None:
                return ProofReason.LESS_THAN_SAID, f"without it the load did not get {way}"
            return ProofReason.LESS_THAN_SAID, (
                f"without it the load got {way} by less than half of what follows from its share of the time, or not"
                " at all"
            )
        case Outcome.HELD if stand_in is not None:
            return _device(ruling, stand_in)
        case Outcome.HELD:
            size = "" if share is None else ", by at least half of what follows from its share of the time"
            return ProofReason.AS_SAID, f"without it the load got {'slower' if _slower(ruling) else 'faster'}{size}"


def _device(ruling: ThresholdResult, stand_in: Comparison) -> tuple[ProofReason, str]:
    """Tell the device from the file and the engine that were replaced with it: a stand-in with the device's latency
    must bring back at least half of the change.
    """
    gone, kept = ruling.comparison.ratio, stand_in.ratio
    if gone is None or kept is None:
        return ProofReason.NOISE, f"the rounds do not tell the device from what is above it: {stand_in.why}"
    higher = BY_ID[ruling.condition.metric].better == "higher"
    changed, left = _logs(gone, higher=higher), _logs(kept, higher=higher)
    if left[1] <= (1 - SIZE) * changed[0]:
        return ProofReason.AS_SAID, (
            "without it the load got faster, and a device of the same mean latency brought the time back"
        )
    if left[0] > (1 - SIZE) * changed[1]:
        return ProofReason.NOT_THE_DEVICE, (
            "a device of the same mean latency made the load as fast: the time is in the file, its engine, or the"
            " spread of the latencies"
        )
    return ProofReason.NOISE, "the rounds do not tell the device from the file and the engine above it"


def _logs(ratio: Interval, *, higher: bool) -> tuple[float, float]:
    """Return the ends of a change as logarithms of a speed: above 0 is faster."""
    ends = math.log(ratio.low), math.log(ratio.high)
    return ends if higher else (-ends[1], -ends[0])


def _slower(ruling: ThresholdResult) -> bool:
    """Whether the load was to get slower."""
    higher = BY_ID[ruling.condition.metric].better == "higher"
    return (ruling.condition.limit < 1) == higher
