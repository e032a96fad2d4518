# SPDX-License-Identifier: Apache-2.0
"""What the verdicts rest on, in a few lines: rounds, noise, time, error, why it stopped, what going on would take."""

from collections.abc import Iterator

from virtune.model.result import Basis, Result, Stopped
from virtune.model.study import Study
from virtune.model.units import format_seconds
from virtune.model.verdict import Verdict
from virtune.model.workload import Workload

_STOPPED = {
    Stopped.DECIDED: "stopped because every pair is decided{conditions}",
    Stopped.ROUNDS: "stopped after the most rounds that it was to take",
    Stopped.BUDGET: "stopped because the next round has no room in its budget",
}


def resting_on(result: Result, workload: Workload) -> Iterator[str]:
    """Yield what a reader of one workload's verdicts must know to weigh them."""
    found = [one for one in result.verdicts if one.workload == workload.name]
    if any(one.verdict is not Verdict.UNDECIDED for one in found):
        whenever = ", however often they were looked at" if result.study.sequential else ""
        yield f"all of these hold together at {result.study.confidence:.3g} confidence{whenever}"
    for basis in (one for one in result.basis if one.workload == workload.name):
        yield _noise(result, basis)
        if said := ", ".join(steadiness(basis, result.study)):
            yield said
        yield checked_text(result.study)
        yield from _left(result, basis)


def _noise(result: Result, basis: Basis) -> str:
    rounds = "1 paired round" if basis.rounds == 1 else f"{basis.rounds} paired rounds"
    parts = [rounds]
    if basis.noise is not None:
        parts.append(f"a round's difference varies by {basis.noise:.1%}")
    if basis.lag1:
        parts.append(f"neighbours taken to be alike by {basis.lag1:.2f}")
    parts.append(f"measured {format_seconds(result.measured_seconds)}")
    if result.elapsed_seconds is not None:
        parts[-1] += f" in {format_seconds(result.elapsed_seconds)}"
    if result.stopped is not None:
        conditions = " and every condition" if result.study.conditions else ""
        parts.append(_STOPPED[result.stopped].format(conditions=conditions))
    return ", ".join(parts)


def steadiness(basis: Basis, study: Study) -> Iterator[str]:
    """Say how steady the host was, in parts of a sentence."""
    if basis.effective is not None and basis.lag1:
        yield f"worth {basis.effective:.0f} independent rounds"
    if basis.correlation_seconds is not None:
        least = "at least " if basis.correlation_open else ""
        yield f"the load is alike for {least}{format_seconds(basis.correlation_seconds)}"
    if (drift := basis.drift) is not None:
        moved = drift.low > 0 or drift.high < 0
        words = f"the host drifted by {drift.per_minute:+.1%} a minute" if moved else "no drift shown"
        yield f"{words} [{drift.low:+.1%}, {drift.high:+.1%}]"
    if basis.start_spread is not None:
        yield f"starts differ by {basis.start_spread:.1%} ({basis.starts} of them)"
    elif basis.starts == 1:
        # a VM of the user's own is never restarted
        own = all(arm.stack.rig == "libvirt" for arm in study.arms)
        yield "all in one process, so what a start changes is not in it" + ("" if own else " (--restart)")


def checked_text(study: Study) -> str:
    """Say what the last A/A of this host gave."""
    found = study.checked
    if found is None:
        return "no A/A of this host in the day before (`virtune check` makes one)"
    ends = "" if found.low is None or found.high is None else f" [{found.low - 1:+.1%}, {found.high - 1:+.1%}]"
    alarm = "" if found.verdict in (Verdict.SAME, Verdict.UNDECIDED) else ": a false alarm, so beware of all verdicts"
    return f"A/A of this host ({found.study}): {found.verdict.value}{ends}{alarm}"


def _left(result: Result, basis: Basis) -> Iterator[str]:
    """Say what deciding the rest would take; an old study, whose rounds were fixed, cannot go on."""
    if not result.study.sequential or basis.seconds_left == 0 or basis.noise is None:
        return
    if basis.seconds_left is None:
        yield "under this noise more rounds will not decide the rest"
    else:
        left = format_seconds(basis.seconds_left)
        yield f"deciding the rest would take about {left} more (9 times in 10), if the noise stays"
