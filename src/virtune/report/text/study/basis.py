# SPDX-License-Identifier: Apache-2.0
"""The evidence behind the verdicts in a few lines: rounds, noise, time, error, why it stopped, how long deciding the
rest would take.
"""

import math
from collections.abc import Iterator, Sequence

from virtune.model.fitness import Drift
from virtune.model.metric import BY_ID
from virtune.model.result import Basis, Result, Stopped
from virtune.model.study import Study
from virtune.model.units import format_seconds, format_share
from virtune.model.verdict import Verdict
from virtune.model.workload import Workload
from virtune.report.text.words import TOO_FEW, count_text, names_text, percent_text, share_text

_STOPPED = {
    Stopped.ROUNDS: "stopped: --rounds reached",
    Stopped.BUDGET: "stopped: time budget reached",
}
NOISY_SECONDS = 3600.0
"""If deciding the rest would take longer than this, the advice is a quieter host, not more time."""

DRIFT_TOLD = 1.0
"""A drift with a wider interval than this (100 % a minute) only shows that the rounds are too few."""

DRIFT_WARNED = 0.1
"""If a study's metric rose or fell by more than this while it ran, that is a warning: the arms' own values then are
those of no one moment.
"""

STARTS_TOLD = 3
"""Fewer starts tell nothing of how much starts differ."""

_GROUPS_TOLD, _NAMES_TOLD = 3, 5
"""The most groups of arms whose starts are told apart, and the most names of each."""

FEWEST_TOLD = 1.5
"""An effective sample size below this is not shown."""


def stopped_text(result: Result) -> str:
    """Say why a study ended; empty where it has not, or its rounds were fixed beforehand."""
    if result.stopped is None:
        return ""
    if result.stopped is Stopped.DECIDED and any(one.verdict is Verdict.UNDECIDED for one in result.verdicts):
        return "stopped: more rounds alone would decide nothing more"
    if result.stopped is Stopped.DECIDED:
        pairs = "every pair of arms" if result.study.pairs == "all" else f"every arm against {result.study.baseline}"
        # one whose percentile has too few I/Os stays undecided however many rounds there are
        others = ", and every --fail-if condition that more rounds can decide" if result.study.conditions else ""
        return f"stopped: {pairs} is decided{others}"
    room = result.study.budget_seconds if result.stopped is Stopped.BUDGET else None
    why = "" if room is None else f" (another round and its repeats may exceed {format_seconds(room)})"
    return f"{_STOPPED[result.stopped]}{why}"


def resting_on(result: Result, workload: Workload) -> Iterator[str]:
    """Yield the lines on the evidence behind one workload's verdicts."""
    found = [one for one in result.verdicts if one.workload == workload.name]
    if found and workload == result.study.compared[0]:
        yield meaning_of_verdicts(result.study)
    if any(one.verdict is not Verdict.UNDECIDED for one in found):
        right = "all of these verdicts are right" if len(found) > 1 else "this verdict is right"
        looks = "the intervals account for checking after every round, to stop early"
        looks = f"; {looks}" if result.study.sequential else ""
        few = [one.starts for one in result.basis if one.workload == workload.name and 0 < one.starts < STARTS_TOLD]
        start = f" for {'this start' if few == [1] else 'these starts'} of QEMU (see below)" if few else ""
        sure = f"with {format_share(result.study.confidence)} confidence"
        if result.study.imported:  # runs from elsewhere were not in turn: no interval knows what changed between them
            yield f"if nothing but the change differed between the runs, {right} {sure}"
        else:
            yield f"{sure} {right}{start}{looks}"
    for basis in (one for one in result.basis if one.workload == workload.name):
        yield _noise(basis, result.study, [one.rounds for one in found])
        yield from steadiness(basis, result.study, drift=not _drifts(result, basis))
        yield checked_text(result.study)
        yield from what_deciding_takes(result, basis)


def meaning_of_verdicts(study: Study) -> str:
    """Say when a verdict is better or worse, when same, and when neither."""
    margin = format_share(study.margin, 0 if study.margin * 100 == round(study.margin * 100) else 1)
    return (
        "better, worse: the whole interval is on that side of 0; same: it lies within the margin of"
        f" {margin} (--margin); undecided: neither"
    )


def _noise(basis: Basis, study: Study, used: Sequence[int]) -> str:
    """Say on how many rounds verdicts rest, and how much their ratios vary; pairs differ in the rounds that count."""
    least, most, ran = min(used), max(used), study.rounds_begun or study.rounds
    several = f"{least} to {most}" if least < most else f"{most}"
    told = (
        f"{count_text(ran, 'round')}, in each of which every arm ran"
        if least == most == ran
        else f"each verdict rests on {several} of {count_text(ran, 'round')}: those in which both of its arms"
        " gave a result that was not disturbed"
    )
    if basis.noise is None:
        return told
    how = ["the median of these verdicts"] if len(used) > 1 else []
    how += ["estimated from the rounds of all arms, extreme ones counting less"] if study.sequential else []
    spread = f"a standard deviation of {share_text(basis.noise)}" + (f" ({'; '.join(how)})" if how else "")
    ratio = "the ratio of an arm to the one it is compared with"
    return f"{told}; the intervals allow for {ratio} to vary from round to round with {spread}"


def steadiness(basis: Basis, study: Study, *, drift: bool = True) -> Iterator[str]:
    """Yield how stationary the host was, a line for each thing; `drift` is left out where a warning says it."""
    few = basis.effective is not None and basis.lag1 is not None and basis.effective < FEWEST_TOLD
    if few:
        yield f"effective sample size: {TOO_FEW}"
    elif basis.effective is not None and basis.lag1:
        yield (
            f"effective sample size: {basis.effective:.0f} of {count_text(basis.rounds, 'round')}, since consecutive"
            f" rounds resemble one another (lag-1 autocorrelation {basis.lag1:.2f}); the intervals are wider for it"
        )
    if drift and basis.drift is not None:
        yield drift_text(basis.drift, BY_ID[study.metric].label)
    if 0 < basis.starts < STARTS_TOLD:
        # an existing VM is never restarted, and a search decides by itself what it starts anew
        offered = study.search is None and not all(arm.stack.kind.users_guest for arm in study.arms)
        includes = " (--restart starts it for each trial)" if offered else ""
        told = "what another start would change, or a level that an arm keeps for longer, is not in the intervals"
        yield f"QEMU was started {_starts_text(basis)}; {told}{includes}"
    elif basis.start_spread is not None:
        varied = f"standard deviation {share_text(basis.start_spread)}" if basis.start_spread else "none detected"
        yield f"QEMU was started {_starts_text(basis)}; variation between these starts, over all arms: {varied}"


def _starts_text(basis: Basis) -> str:
    """Say how often QEMU was started, and for which arms, where these did not share one process."""
    if not 1 < len(basis.started) <= _GROUPS_TOLD:
        return _times(basis.starts)
    return " and ".join(f"{_times(count)} for {names_text(arms, _NAMES_TOLD)}" for arms, count in basis.started)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def drift_text(drift: Drift, what: str = "IOPS") -> str:
    """Say whether and how much the host became faster or slower; that the rounds are too few, where they are."""
    if drift.high - drift.low > DRIFT_TOLD:
        return f"drift: {TOO_FEW}"
    if drift.low <= 0 <= drift.high:
        none = max(-drift.low, drift.high) <= DRIFT_WARNED
        ends = f"{_percent(drift.low)} to {_percent(drift.high)} a minute (95 % confidence)"
        return f"{'no drift detected' if none else 'drift not ruled out'}: {what} may have changed by {ends}"
    moved, low, high = (percent_text(1 + one) for one in (drift.per_minute, drift.low, drift.high))
    return f"{what} changed by {moved} % [{low}, {high}] a minute (compounded) while this was measured"


def drift_warnings(result: Result) -> Iterator[str]:
    """Yield a warning for each workload under which the host clearly became faster or slower, and what it means."""
    study, seconds = result.study, result.elapsed_seconds
    for basis in result.basis:
        if basis.drift is None or seconds is None or not _drifts(result, basis):
            continue
        told = drift_text(basis.drift, f"{BY_ID[study.metric].label} of all arms")
        of_load = f" under {basis.workload}" if len(study.compared) > 1 else ""
        each = format_seconds(seconds / max(1, study.rounds_begun or basis.rounds))
        yield (
            f"{told}{of_load}. Arms are compared within rounds of {each}, in random order: no arm gains from it, and"
            " what it adds to the noise is in the intervals"
        )


def _drifts(result: Result, basis: Basis) -> bool:
    """Whether a host clearly became so much faster or slower while a study ran that it is a warning."""
    drift, seconds = basis.drift, result.elapsed_seconds
    if drift is None or seconds is None or drift.high - drift.low > DRIFT_TOLD or drift.low <= 0 <= drift.high:
        return False
    return abs(math.log1p(drift.per_minute)) * seconds / 60 > math.log1p(DRIFT_WARNED)


def correlation_text(basis: Basis) -> str:
    """Say for how long a trial's values resemble one another; empty where that is unknown."""
    if basis.correlation_seconds is None:
        return ""
    least = "at least " if basis.correlation_open else ""
    return (
        f"Values closer than {least}{format_seconds(basis.correlation_seconds)} resemble one another"
        f" (autocorrelation time, {basis.workload}), so a trial counts as one observation."
    )


def checked_text(study: Study) -> str:
    """Return the result of the last A/A test of this host."""
    found = study.checked
    if found is None:
        return (
            "to try this host besides: `virtune check` (not run here in the last 24 h) tells whether it shows a"
            " difference where there is none"
        )
    ends = (
        "" if found.low is None or found.high is None else f" [{_percent(found.low - 1)}, {_percent(found.high - 1)}]"
    )
    told = f"`virtune check` ({found.study}) compared one arm with itself"
    if found.verdict in (Verdict.SAME, Verdict.UNDECIDED):
        return f"{told}: no false difference{ends}"
    return f"{told}: a false difference{ends}, so distrust all verdicts"


def what_deciding_takes(result: Result, basis: Basis) -> Iterator[str]:
    """Say what deciding the rest would take; an old study, whose rounds were fixed, cannot go on."""
    if not result.study.sequential or basis.seconds_left == 0 or basis.noise is None:
        return
    if basis.seconds_left is None:
        yield "more rounds will not decide the rest at this noise"
    elif basis.seconds_left > NOISY_SECONDS:
        rest = "" if all(one.verdict is Verdict.UNDECIDED for one in result.verdicts) else " the rest"
        yield f"this host is too noisy now to decide{rest}: it would take more than an hour (see `virtune check`)"
    elif result.study.looks is None:
        yield f"deciding the rest needs about {format_seconds(basis.seconds_left)} more at this noise (90 % likely)"
    else:  # its error is spent, so a longer plan needs a new study
        whole = format_seconds(basis.seconds_left + (result.elapsed_seconds or 0.0))
        yield f"deciding the rest needs a new run of about {whole} (--budget) at this noise (90 % likely)"


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
