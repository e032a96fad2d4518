# SPDX-License-Identifier: Apache-2.0
"""The evidence behind the verdicts in a few lines: rounds, noise, time, error, why it stopped, how long deciding the
rest would take.
"""

from collections.abc import Iterator

from virtune.model.fitness import Drift
from virtune.model.result import Basis, Result, Stopped
from virtune.model.study import Study
from virtune.model.units import format_seconds, format_share
from virtune.model.verdict import Verdict
from virtune.model.workload import Workload
from virtune.report.text.words import TOO_FEW, count_text, share_text

_STOPPED = {
    Stopped.ROUNDS: "stopped: --rounds reached",
    Stopped.BUDGET: "stopped: time budget reached",
}
NOISY_SECONDS = 3600.0
"""If deciding the rest would take longer than this, the advice is a quieter host, not more time."""

DRIFT_TOLD = 1.0
"""A drift with a wider interval than this (100 % a minute) only shows that the rounds are too few."""


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
    return _STOPPED[result.stopped]


def resting_on(result: Result, workload: Workload) -> Iterator[str]:
    """Yield the lines on the evidence behind one workload's verdicts."""
    found = [one for one in result.verdicts if one.workload == workload.name]
    if any(one.verdict is not Verdict.UNDECIDED for one in found):
        looks = ", though it was looked at after every round" if result.study.sequential else ""
        yield f"{format_share(result.study.confidence)} confidence that all these verdicts are right together{looks}"
    for basis in (one for one in result.basis if one.workload == workload.name):
        yield _noise(basis)
        if said := "; ".join(steadiness(basis, result.study)):
            yield said
        yield checked_text(result.study)
        yield from what_deciding_takes(result, basis)


def _noise(basis: Basis) -> str:
    parts = [count_text(basis.rounds, "paired round")]
    if basis.noise is not None:
        parts.append(f"spread of paired differences: sd {share_text(basis.noise)}")
    if basis.lag1:
        parts.append(f"lag-1 autocorrelation {basis.lag1:.2f} (how alike neighbouring rounds are)")
    return "; ".join(parts)


def steadiness(basis: Basis, study: Study) -> Iterator[str]:
    """Describe how stationary the host was, in parts of a sentence."""
    few = basis.effective is not None and basis.lag1 is not None and basis.effective < FEWEST_TOLD
    if few:
        yield f"effective sample size: {TOO_FEW}"
    elif basis.effective is not None and basis.lag1:
        yield f"effective sample size: {basis.effective:.0f} of {count_text(basis.rounds, 'round')}"
    if basis.correlation_seconds is not None and not few:
        least = ">=" if basis.correlation_open else ""
        yield (f"autocorrelation time {least}{format_seconds(basis.correlation_seconds)} (closer values are alike)")
    if basis.drift is not None:
        yield drift_text(basis.drift)
    if basis.start_spread is not None:
        yield f"spread between {count_text(basis.starts, 'start')}: sd {share_text(basis.start_spread)}"
    elif basis.starts == 1:
        # an existing VM is never restarted
        own = all(arm.stack.kind.users_guest for arm in study.arms)
        includes = "" if own else " (--restart includes it)"
        yield f"one QEMU process throughout: how starts of QEMU differ is not included{includes}"


def drift_text(drift: Drift) -> str:
    """Say whether and how much the host drifted; empty with too few rounds."""
    if drift.high - drift.low > DRIFT_TOLD:
        return f"drift: {TOO_FEW}"
    ends = f"[{_percent(drift.low)}, {_percent(drift.high)}]"
    if drift.low <= 0 <= drift.high:
        return f"no drift detected {ends} a minute"
    return f"the host drifted by {_percent(drift.per_minute)} {ends} a minute"


def checked_text(study: Study) -> str:
    """Return the result of the last A/A test of this host."""
    found = study.checked
    if found is None:
        return "noise floor unknown: no `virtune check` of this host in the last 24 h"
    ends = (
        "" if found.low is None or found.high is None else f" [{_percent(found.low - 1)}, {_percent(found.high - 1)}]"
    )
    if found.verdict in (Verdict.SAME, Verdict.UNDECIDED):
        return f"A/A test of this host ({found.study}): no false difference{ends}"
    return f"A/A test of this host ({found.study}): a false difference{ends}, so distrust all verdicts"


def what_deciding_takes(result: Result, basis: Basis) -> Iterator[str]:
    """Say what deciding the rest would take; an old study, whose rounds were fixed, cannot go on."""
    if not result.study.sequential or basis.seconds_left == 0 or basis.noise is None:
        return
    if basis.seconds_left is None:
        yield "more rounds will not decide the rest at this noise"
    elif basis.seconds_left > NOISY_SECONDS:
        yield "this host is too noisy now to decide the rest: it would take more than an hour (see `virtune check`)"
    elif result.study.looks is None:
        yield f"deciding the rest needs about {format_seconds(basis.seconds_left)} more at this noise (90 % likely)"
    else:  # its error is spent, so a longer plan needs a new study
        whole = format_seconds(basis.seconds_left + (result.elapsed_seconds or 0.0))
        yield f"deciding the rest needs about {whole} from the start at this noise (--budget; 90 % likely)"


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
