# SPDX-License-Identifier: Apache-2.0
"""The reason for a verdict, a condition's result, a recommendation, what a sweep did not find, a host that is not
fit, or a setting that advice leaves: a stable code for programs, and a sentence for people.
"""

from dataclasses import dataclass

from virtune.model.text import Worded


class Reason(Worded):
    """The codes, each with its sentence, in which placeholders stand for the facts of the case. They are published in
    the JSON documents: a new reason gets a new code, and no code is reused.
    """

    BETTER_SIDE = "better-side", "the whole interval is on the better side"
    WORSE_SIDE = "worse-side", "the whole interval is on the worse side"
    UNLESS_LASTING = (
        "unless-lasting",
        "the whole interval is on the {side} side, unless arms keep a level for some rounds: with as much of that",
        " as {rounds} rounds leave open, the change is {lasting}",
    )
    FEW_ROUNDS = (
        "few-rounds",
        "decided in {rounds} rounds ({seconds} of load): what changes more slowly, or happens more rarely, is not",
        " excluded; a second run tells",
    )
    WITHIN_MARGIN = "within-margin", "any difference is smaller than {margin}"
    NOT_SETTLED = "not-settled", "the interval includes 0 and reaches beyond the {margin} margin"
    FAR_ROUNDS = (
        "far-rounds",
        "the mean differs by less than {margin}, but an arm alone is far off in some of its rounds",
    )
    RARE_ROUNDS = (
        "rare-rounds",
        "an arm alone is far off in so few of its rounds that how often it is, and its mean, are uncertain",
    )
    PLAIN_MEAN = "plain-mean", "{how} only with extreme rounds counting less: the plain means differ by {plain}"
    LASTING_LEVELS = (
        "lasting-levels",
        "an arm changes its level for many rounds at a time, and the interval that this allows includes 0 and",
        " reaches beyond the {margin} margin",
    )
    SIGN_TEST = "sign-test", "the sign test is not significant: a few rounds carry the difference"
    RANK_TEST = "rank-test", "the rank test is not significant: a few runs carry the difference"
    TOO_FEW = "too-few", "{had}; {least} are the minimum for a verdict"
    RUN_DRIFT = (
        "run-drift",
        "the runs of each arm drift in order of time, and by their order the arms cannot be told from that: take",
        " turns ({baseline}, {candidate}, {baseline}, {candidate}, ...)",
    )
    DISTURBED_APART = (
        "disturbed-apart",
        "the runs are of different times, and most of one side was disturbed ({causes}): too much to leave out",
    )
    BETWEEN_RUNS = (
        "between-runs",
        "too few earlier runs to tell how far runs of different times lie apart here: {least} of one",
        " configuration{alike} are needed, and beside the one that is compared the store has {had}; arms that are",
        " measured in turn need none",
    )
    UNLIKE_FLUSHES = (
        "unlike-flushes",
        "a flush has not the same work in both: {baseline}: {kept}; {candidate}: {other}",
    )
    ONE_RUN_EACH = "one-run-each", "one run each cannot decide"
    NO_VALUE = "no-value", "{which}"
    NO_INTERVAL = "no-interval", "the {units} vary too much for an interval"
    NO_NOISE = "no-noise", "every {unit} gave exactly the same {what}{so}"
    TOO_FEW_IOS = (
        "too-few-ios",
        "p{percent} needs {needed} I/Os a run, and these have {had} at most: let each run {times} as long",
        " (--seconds, fio's runtime)",
    )
    SATURATED = (
        "saturated",
        "{arms} {are} saturated at this load: latency not comparable, as less was done than was offered{did}",
    )
    ARM_LOST = "arm-lost", "{arm} gave no measurement in {rounds} rounds: {failure}"
    BEYOND_LIMIT = "beyond-limit", "the whole interval is beyond the limit"
    WITHIN_LIMIT = "within-limit", "the whole interval is within the limit"
    CROSSES_LIMIT = "crosses-limit", "the interval crosses the limit; more {units} narrow it"
    NOT_BY_ALL = "not-by-all", "by the mean of the {units} it is {which} the limit, by all I/Os together it is not"
    LIMIT_TOO_NEAR = (
        "limit-too-near",
        "the interval crosses the limit: by what such studies in this store show, nearly every one in which nothing",
        " changed holds `{least}`; more of them may narrow that",
    )
    NOT_MEASURED = "not-measured", "not measured{where}"
    ALL_BREAK_A_LIMIT = "all-break-a-limit", "every configuration breaks a limit"
    NO_LEADER = "no-leader", "nothing has been measured often enough yet"
    NOT_FINISHED = "not-finished", "the search is not finished"
    MAY_BREAK_A_LIMIT = "may-break-a-limit", "it may break a limit, and no configuration is sure to keep it"
    BASELINE_LEADS = "baseline-leads", "no better configuration was found"
    NOT_CONFIRMED = "not-confirmed", "the winner was not confirmed on fresh data"
    UNSTABLE = "unstable", "unstable: its starts differ by more than {most}"
    CONFIRMED = "confirmed", "better than the baseline on fresh data, across starts"
    CONFIRMATION_OPEN = "confirmation-open", "against the baseline: {why}"
    CONFIRMED_NO_BETTER = "confirmed-no-better", "against the baseline: {why}"
    EMULATED = "emulated", "under software emulation (TCG) the ranking is the emulator's"
    NOTHING_MEASURED = "nothing-measured", "no load was measured yet"
    NOT_SATURATED = "not-saturated", "saturation was not reached: {met}, up to {most:,.0f} IOPS"
    LOADS_CONTRADICT = (
        "loads-contradict",
        "saturation is not determined: {least:,.0f} IOPS was not met ({done:,.0f} done), while {other}; more",
        " --rounds tell",
    )
    TOO_FEW_LOADS = "too-few-loads", "a knee takes three loads at least"
    NO_LOAD_MET = "no-load-met", "a knee takes a load that is met, and {least:,.0f} IOPS and more were not"
    LIMIT_CONTRADICTED = (
        "limit-contradicted",
        "{limit} is not determined: {least:,.0f} IOPS broke it, while {most:,.0f} kept it; more --rounds tell",
    )
    LIMIT_ALWAYS_KEPT = "limit-always-kept", "{limit} {holds}, up to {most:,.0f} IOPS{shown}"
    LIMIT_ALWAYS_BROKEN = "limit-always-broken", "{limit} {broken} at the least load already, {least:,.0f} IOPS"
    KERNEL_REFUSES = "kernel-refuses", "the kernel refuses io_uring to us (`virtune host probe` says why)"
    NOT_SUPPORTED = "not-supported", "{program} {how}"
    CONTRADICTION = "contradiction", "{which}"
    MEASURES_MEMORY = (
        "measures-memory",
        "a span of {span} fits into this host's {memory}, so the page cache would be measured and not the disk: a",
        " larger --span, or name them: --vary disk.cache=none,writeback",
    )
    DOES_NOT_START = "does-not-start", "does not start: {why}"
    TOO_FEW_TRIALS = "too-few-trials", "too few usable trials to tell how small a difference can be detected"
    ONLY_LARGE_DIFFERENCES = (
        "only-large-differences",
        "a 5-minute comparison detects only differences of {least} and more (90 % power)",
    )
    FALSE_DIFFERENCE = "false-difference", "the same stack was called different from itself (A/A test)"
    MOSTLY_INVALID = "mostly-invalid", "most trials are invalid: {cause}"
    NOT_OPENED_HERE = "not-opened-here", "{kind} disks are not opened by this host's kernel"
    SPINNING_DISK = "spinning-disk", "it lies on a spinning disk, where the study keeps the old engine"
    DURABLE_CACHE = "durable-cache", "cache={cache} promises durable writes, so it stays"
    NO_IO_URING = "no-io-uring", "io stays, {why}"
    NO_IOTHREAD_ON_BUS = "no-iothread-on-bus", "bus={bus} has no IOThread; virtio needs the guest's driver first"
    NO_IOTHREAD_ON_CONTROLLER = (
        "no-iothread-on-controller",
        "no IOThread: its SCSI controller is {model}; write one of virtio-scsi, once the guest has its driver",
    )
    FREE_CPUS_UNKNOWN = (
        "free-cpus-unknown",
        "IOThreads are not pinned: which CPUs are free is known only where vCPUs are pinned",
    )
    NO_FREE_CPU = "no-free-cpu", "{count} IOThreads are not pinned: every other CPU is taken by a vCPU"
    NO_SETTING = "no-setting", "{seen}; {advice}"
    TO_BE_MEASURED = (
        "to-be-measured",
        "{rules}: it is to be measured whether that helps (`virtune fix`), so only `--rule` changes it",
    )
    MEANT = "meant", "{seen}; it may be meant, so only `--rule {rule}` changes it"
    NOT_WRITABLE = "not-writable", "{refusal}"
    LIMIT_IS_LIVE = "limit-is-live", "{limits} is on the running VM alone, and not in its configuration: {how}"
    NOT_AS_MEASURED = (
        "not-as-measured",
        "{knob} is {now} here and was {was} in the study, so its change was not measured",
    )


def _from(first: Reason, last: Reason) -> tuple[Reason, ...]:
    """Return the reasons of one kind, which stand together."""
    every = tuple(Reason)
    return every[every.index(first) : every.index(last) + 1]


OF_RECOMMENDATIONS = _from(Reason.ALL_BREAK_A_LIMIT, Reason.EMULATED)
OF_SWEEPS = _from(Reason.NOTHING_MEASURED, Reason.LIMIT_ALWAYS_BROKEN)
OF_REFUSALS = _from(Reason.KERNEL_REFUSES, Reason.DOES_NOT_START)
"""Why a configuration is left out of a search."""

OF_HOSTS = _from(Reason.TOO_FEW_TRIALS, Reason.MOSTLY_INVALID)
"""Why a host is not fit to measure on."""

OF_ADVICE = _from(Reason.NOT_OPENED_HERE, Reason.NOT_AS_MEASURED)
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
    return Why(reason=reason, text=reason.words.format(**facts))
