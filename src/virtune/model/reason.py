# SPDX-License-Identifier: Apache-2.0
"""The reason for a verdict, a condition's result, a recommendation, what a sweep did not find, a host that is not
fit, or a setting that advice leaves: a stable code for programs, and a sentence for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The codes. They are published in the JSON documents: a new reason gets a new code, and no code is reused."""

    BETTER_SIDE = "better-side"
    WORSE_SIDE = "worse-side"
    UNLESS_LASTING = "unless-lasting"
    WITHIN_MARGIN = "within-margin"
    NOT_SETTLED = "not-settled"
    FAR_ROUNDS = "far-rounds"
    RARE_ROUNDS = "rare-rounds"
    PLAIN_MEAN = "plain-mean"
    LASTING_LEVELS = "lasting-levels"
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
    ALL_BREAK_A_LIMIT = "all-break-a-limit"
    NO_LEADER = "no-leader"
    NOT_FINISHED = "not-finished"
    MAY_BREAK_A_LIMIT = "may-break-a-limit"
    BASELINE_LEADS = "baseline-leads"
    NOT_CONFIRMED = "not-confirmed"
    UNSTABLE = "unstable"
    CONFIRMED = "confirmed"
    CONFIRMATION_OPEN = "confirmation-open"
    CONFIRMED_NO_BETTER = "confirmed-no-better"
    EMULATED = "emulated"
    NOTHING_MEASURED = "nothing-measured"
    NOT_SATURATED = "not-saturated"
    TOO_FEW_LOADS = "too-few-loads"
    LIMIT_ALWAYS_KEPT = "limit-always-kept"
    LIMIT_ALWAYS_BROKEN = "limit-always-broken"
    KERNEL_REFUSES = "kernel-refuses"
    NOT_SUPPORTED = "not-supported"
    CONTRADICTION = "contradiction"
    MEASURES_MEMORY = "measures-memory"
    DOES_NOT_START = "does-not-start"
    TOO_FEW_TRIALS = "too-few-trials"
    ONLY_LARGE_DIFFERENCES = "only-large-differences"
    FALSE_DIFFERENCE = "false-difference"
    MOSTLY_INVALID = "mostly-invalid"
    NOT_OPENED_HERE = "not-opened-here"
    SPINNING_DISK = "spinning-disk"
    DURABLE_CACHE = "durable-cache"
    NO_IO_URING = "no-io-uring"
    NO_IOTHREAD_ON_BUS = "no-iothread-on-bus"
    FREE_CPUS_UNKNOWN = "free-cpus-unknown"
    NO_FREE_CPU = "no-free-cpu"
    NO_SETTING = "no-setting"
    NOT_WRITABLE = "not-writable"
    LIMIT_IS_LIVE = "limit-is-live"


WORDS: Mapping[Reason, str] = {
    Reason.BETTER_SIDE: "the whole interval is on the better side",
    Reason.WORSE_SIDE: "the whole interval is on the worse side",
    Reason.UNLESS_LASTING: "the whole interval is on the {side} side, unless arms keep a level for some rounds: with"
    " as much of that as {rounds} rounds leave open, the change is {lasting}",
    Reason.WITHIN_MARGIN: "any difference is smaller than {margin}",
    Reason.NOT_SETTLED: "the interval includes 0 and reaches beyond the {margin} margin",
    Reason.FAR_ROUNDS: "the mean differs by less than {margin}, but an arm alone is far off in some of its rounds",
    Reason.RARE_ROUNDS: "an arm alone is far off in so few of its rounds that how often it is, and its mean, are"
    " uncertain",
    Reason.PLAIN_MEAN: "{how} only with extreme rounds counting less: the plain means differ by {plain}",
    Reason.LASTING_LEVELS: "an arm changes its level for many rounds at a time, and the interval that this allows"
    " includes 0 and reaches beyond the {margin} margin",
    Reason.SIGN_TEST: "the sign test is not significant: a few rounds carry the difference",
    Reason.RANK_TEST: "the rank test is not significant: a few runs carry the difference",
    Reason.TOO_FEW: "{had}; {least} are the minimum for a verdict",
    Reason.ONE_RUN_EACH: "one run each cannot decide",
    Reason.NO_VALUE: "{which}",
    Reason.NO_INTERVAL: "the {units} vary too much for an interval",
    Reason.NO_NOISE: "every {unit} gave exactly the same {what}{so}",
    Reason.TOO_FEW_IOS: "p{percent} needs {needed} I/Os a run, and these have {had} at most: let each run {times} as"
    " long (--seconds, fio's runtime)",
    Reason.SATURATED: "{arms} {are} saturated at this load: latency not comparable",
    Reason.ARM_LOST: "{arm} gave no measurement in {rounds} rounds: {failure}",
    Reason.BEYOND_LIMIT: "the whole interval is beyond the limit",
    Reason.WITHIN_LIMIT: "the whole interval is within the limit",
    Reason.CROSSES_LIMIT: "the interval crosses the limit; more {units} narrow it",
    Reason.NOT_MEASURED: "not measured{where}",
    Reason.ALL_BREAK_A_LIMIT: "every configuration breaks a limit",
    Reason.NO_LEADER: "nothing has been measured often enough yet",
    Reason.NOT_FINISHED: "the search is not finished",
    Reason.MAY_BREAK_A_LIMIT: "it may break a limit, and no configuration is sure to keep it",
    Reason.BASELINE_LEADS: "no better configuration was found",
    Reason.NOT_CONFIRMED: "the winner was not confirmed on fresh data",
    Reason.UNSTABLE: "unstable: its starts differ by more than {most}",
    Reason.CONFIRMED: "better than the baseline on fresh data, across starts",
    Reason.CONFIRMATION_OPEN: "against the baseline: {why}",
    Reason.CONFIRMED_NO_BETTER: "against the baseline: {why}",
    Reason.EMULATED: "under software emulation (TCG) the ranking is the emulator's",
    Reason.NOTHING_MEASURED: "no load was measured yet",
    Reason.NOT_SATURATED: "saturation was not reached: every load was met, up to {most:,.0f} IOPS",
    Reason.TOO_FEW_LOADS: "a knee takes three loads at least",
    Reason.LIMIT_ALWAYS_KEPT: "{limit} holds at every load that was offered, up to {most:,.0f} IOPS",
    Reason.LIMIT_ALWAYS_BROKEN: "{limit} is broken at the least load already, {least:,.0f} IOPS",
    Reason.KERNEL_REFUSES: "the kernel refuses io_uring to us (`virtune probe` says why)",
    Reason.NOT_SUPPORTED: "{program} {how}",
    Reason.CONTRADICTION: "{which}",
    Reason.MEASURES_MEMORY: "a span of {span} fits into this host's {memory}, so the page cache would be measured and"
    " not the disk: a larger --span, or name them: --vary disk.cache=none,writeback",
    Reason.DOES_NOT_START: "does not start: {why}",
    Reason.TOO_FEW_TRIALS: "too few usable trials to tell how small a difference can be detected",
    Reason.ONLY_LARGE_DIFFERENCES: "a 5-minute comparison detects only differences of {least} and more (90 % power)",
    Reason.FALSE_DIFFERENCE: "the same stack was called different from itself (A/A test)",
    Reason.MOSTLY_INVALID: "most trials are invalid: {cause}",
    Reason.NOT_OPENED_HERE: "{kind} disks are not opened by this host's kernel",
    Reason.SPINNING_DISK: "it lies on a spinning disk, where the study keeps the old engine",
    Reason.DURABLE_CACHE: "cache={cache} promises durable writes, so it stays",
    Reason.NO_IO_URING: "io stays, {why}",
    Reason.NO_IOTHREAD_ON_BUS: "bus={bus} has no IOThread; virtio needs the guest's driver first",
    Reason.FREE_CPUS_UNKNOWN: "IOThreads are not pinned: which CPUs are free is known only where vCPUs are pinned",
    Reason.NO_FREE_CPU: "{count} IOThreads are not pinned: every other CPU is taken by a vCPU",
    Reason.NO_SETTING: "{seen}; {advice}",
    Reason.NOT_WRITABLE: "{refusal}",
    Reason.LIMIT_IS_LIVE: "{limits} is on the running VM alone, and not in its configuration: {how}",
}
"""The sentence of each code, with placeholders for the facts of the case."""

OF_RECOMMENDATIONS = (
    Reason.ALL_BREAK_A_LIMIT,
    Reason.NO_LEADER,
    Reason.NOT_FINISHED,
    Reason.MAY_BREAK_A_LIMIT,
    Reason.BASELINE_LEADS,
    Reason.NOT_CONFIRMED,
    Reason.UNSTABLE,
    Reason.CONFIRMED,
    Reason.CONFIRMATION_OPEN,
    Reason.CONFIRMED_NO_BETTER,
    Reason.EMULATED,
)
OF_SWEEPS = (
    Reason.NOTHING_MEASURED,
    Reason.NOT_SATURATED,
    Reason.TOO_FEW_LOADS,
    Reason.LIMIT_ALWAYS_KEPT,
    Reason.LIMIT_ALWAYS_BROKEN,
)
OF_REFUSALS = (
    Reason.KERNEL_REFUSES,
    Reason.NOT_SUPPORTED,
    Reason.CONTRADICTION,
    Reason.MEASURES_MEMORY,
    Reason.DOES_NOT_START,
)
"""Why a configuration is left out of a search."""

OF_HOSTS = (Reason.TOO_FEW_TRIALS, Reason.ONLY_LARGE_DIFFERENCES, Reason.FALSE_DIFFERENCE, Reason.MOSTLY_INVALID)
"""Why a host is not fit to measure on."""

OF_ADVICE = (
    Reason.NOT_OPENED_HERE,
    Reason.SPINNING_DISK,
    Reason.DURABLE_CACHE,
    Reason.NO_IO_URING,
    Reason.NO_IOTHREAD_ON_BUS,
    Reason.FREE_CPUS_UNKNOWN,
    Reason.NO_FREE_CPU,
    Reason.NO_SETTING,
    Reason.NOT_WRITABLE,
    Reason.LIMIT_IS_LIVE,
)
"""Why advice leaves something as it is."""

_OTHERS = (*OF_RECOMMENDATIONS, *OF_SWEEPS, *OF_REFUSALS, *OF_HOSTS, *OF_ADVICE)
OF_VERDICTS = tuple(one for one in Reason if one not in _OTHERS)
"""Of a verdict, a condition's result, and an interval that there is not."""

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
