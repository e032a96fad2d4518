# SPDX-License-Identifier: Apache-2.0
"""The reason for a verdict or a condition's result: a stable code for programs, and a sentence for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The codes. They are published in the JSON documents: a new reason gets a new code, and no code is reused."""

    BETTER_SIDE = "better-side"
    WORSE_SIDE = "worse-side"
    WITHIN_MARGIN = "within-margin"
    NOT_SETTLED = "not-settled"
    SIGN_TEST = "sign-test"
    RANK_TEST = "rank-test"
    TOO_FEW = "too-few"
    ONE_RUN_EACH = "one-run-each"
    NO_VALUE = "no-value"
    NO_INTERVAL = "no-interval"
    NO_NOISE = "no-noise"
    TOO_FEW_IOS = "too-few-ios"
    SATURATED = "saturated"
    ARM_LOST = "arm-lost"
    BEYOND_LIMIT = "beyond-limit"
    WITHIN_LIMIT = "within-limit"
    CROSSES_LIMIT = "crosses-limit"
    NOT_MEASURED = "not-measured"


WORDS: Mapping[Reason, str] = {
    Reason.BETTER_SIDE: "the whole interval is on the better side",
    Reason.WORSE_SIDE: "the whole interval is on the worse side",
    Reason.WITHIN_MARGIN: "any difference is smaller than {margin}",
    Reason.NOT_SETTLED: "could be no change or more than the {margin} margin",
    Reason.SIGN_TEST: "the sign test is not significant: a few rounds carry the difference",
    Reason.RANK_TEST: "the rank test is not significant: a few runs carry the difference",
    Reason.TOO_FEW: "{had}; {least} are the minimum for a verdict",
    Reason.ONE_RUN_EACH: "one run each cannot decide",
    Reason.NO_VALUE: "{which}",
    Reason.NO_INTERVAL: "the {units} vary too much for an interval",
    Reason.NO_NOISE: "every {unit} gave exactly the same {what}{so}",
    Reason.TOO_FEW_IOS: "p{percent} needs {needed} I/Os a run, and these have {had} at most: let each run {times} as"
    " long",
    Reason.SATURATED: "{arms} {are} saturated at this load: latency not comparable",
    Reason.ARM_LOST: "{arm} gave no measurement in {rounds} rounds: {failure}",
    Reason.BEYOND_LIMIT: "the whole interval is beyond the limit",
    Reason.WITHIN_LIMIT: "the whole interval is within the limit",
    Reason.CROSSES_LIMIT: "the interval crosses the limit; more {units} narrow it",
    Reason.NOT_MEASURED: "not measured{where}",
}
"""The sentence of each code, with placeholders for the facts of the case."""

NO_MEASUREMENT = ", which no measurement does"
"""Real counters and clocks never agree to the last digit: equal values are a sign of a stuck source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """A reason and its words."""

    reason: Reason
    text: str


def because(reason: Reason, **facts: object) -> Why:
    """Return a reason with its words; `facts` are what stands in them."""
    return Why(reason=reason, text=WORDS[reason].format(**facts))
