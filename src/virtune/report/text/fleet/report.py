# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet in words: does it help everywhere, which host is odd, what has it, and the ranks."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from virtune.model.fleet import FleetEffect, FleetLevel, FleetReport, FunnelPoint, Pooled
from virtune.model.metric import BY_ID
from virtune.model.text import printable
from virtune.model.units import format_share
from virtune.model.verdict import Interval, Verdict
from virtune.report.text.fleet.hosts import columns, names
from virtune.report.text.words import change_words, count_text, difference_text, end_words, limits_text
from virtune.report.view import SIMULATED_ONLY

TRAITS_SHOWN = 8

TOO_FEW_HOSTS = "too few hosts or rounds to tell"
"""The text in the place of an interval of a mean that is too wide."""


def report_lines(found: FleetReport) -> Iterator[str]:
    """Yield the report: the question, the answer of each candidate, the level of each workload."""
    study = found.study
    arms = ", ".join(arm.name for arm in study.arms)
    yield printable(f"{arms} on {count_text(len(found.hosts), 'host')}: {BY_ID[study.metric].label}")
    if study.simulated:
        yield SIMULATED_ONLY
    if found.others:
        yield printable(others_words(found.others))
    for effect in found.effects:
        yield ""
        first, *more = effect_lines(effect, study.baseline)
        yield from (printable(line) for line in (first, *(f"  {line}" for line in more)))
    for level in found.levels:
        yield ""
        yield from map(printable, _level(level))


def others_words(hosts: Sequence[str]) -> str:
    """Say which hosts are not in the report, since they have measured something else."""
    return f"not in it: {names(hosts)}, where something else was measured"


def verdict_words(effect: FleetEffect) -> str:
    """Count the verdicts of the hosts: `better on 38 of 40 hosts, undecided on 2, worse on none`."""
    counts = Counter(verdict for _, verdict in effect.verdicts)
    first, *rest = sorted(Verdict, key=lambda one: -counts[one])
    said = [f"{first.value} on {counts[first]} of {count_text(len(effect.verdicts), 'host')}"]
    said += [f"{one.value} on {counts[one]}" for one in rest if counts[one]]
    return ", ".join(said + (["worse on none"] if not counts[Verdict.WORSE] else []))


def mean_words(pooled: Pooled) -> Iterator[str]:
    """Say the mean over hosts, how unlike they are, and the next host."""
    varies = f"hosts vary by {_spread(pooled.tau)}" if pooled.tau else "hosts vary by no more than noise"
    yield f"mean over hosts: {difference_text(mean_ratio(pooled), TOO_FEW_HOSTS)}; {varies}"
    if (ratio := next_ratio(pooled)) is not None:
        ends = (end_words(end, ratio.estimate) for end in (ratio.low, ratio.high))
        yield f"the next host: {' to '.join(ends)} ({format_share(pooled.confidence)})"


def mean_ratio(pooled: Pooled) -> Interval:
    """Return the mean over hosts as a ratio."""
    return _ratio(pooled.mean, pooled.low, pooled.high, pooled.confidence)


def next_ratio(pooled: Pooled) -> Interval | None:
    """Return the interval of one more host as ratios; None where there are too few hosts for it."""
    if pooled.next_low is None or pooled.next_high is None:
        return None
    return _ratio(pooled.mean, pooled.next_low, pooled.next_high, pooled.confidence)


def effect_lines(effect: FleetEffect, baseline: str) -> Iterator[str]:
    """Yield the answer of one candidate: the verdicts counted, the mean and the next host, hosts that stand apart."""
    yield f"{effect.candidate} against {baseline} ({effect.workload}): {verdict_words(effect)}"
    if effect.pooled is not None:
        yield from mean_words(effect.pooled)
    for one in effect.points:
        if one.odd:
            yield f"on {one.host} it is another: {_change(one.distance)} against the other hosts"
    if effect.left_out:
        yield f"left out, with too few rounds: {names(effect.left_out)}"


def level_lines(level: FleetLevel) -> Iterator[str]:
    """Yield which hosts are odd, or why hosts are not compared."""
    yield f"level of {level.arm} ({level.workload})"
    if level.left_out:
        yield f"left out, with too few rounds: {names(level.left_out)}"
    if level.refused is not None:
        yield f"hosts are not compared: {level.refused}"
        return
    odd = [one for one in level.points if one.odd]
    for one in odd:
        yield f"odd: {one.host} is {_change(one.distance)} against the others (adjusted p {one.adjusted:.2g})"
    if not odd:
        yield "no host is further from the others than noise and their own variation explain"


def trait_lines(level: FleetLevel) -> Iterator[str]:
    """Yield what the odd hosts have and the others seldom have, the most telling first."""
    for trait in level.traits[:TRAITS_SHOWN]:
        yield (
            f"{trait.key} = {trait.value} on {trait.odd_with} of {trait.odd} odd and {trait.others_with} of"
            f" {count_text(trait.others, 'other')}; usual: {trait.usual}"
        )
    if any(one.odd for one in level.points) and not level.traits:
        yield "no recorded fact sets it apart"


def odd_words(host: str, points: Sequence[FunnelPoint]) -> str:
    """Say of a host that stands apart how far; nothing of others."""
    return next(
        (f"odd: {_change(one.distance)} against the others" for one in points if one.host == host and one.odd), ""
    )


def rank_rows(level: FleetLevel) -> list[tuple[str, ...]]:
    """Return the heads and the rows of the table of ranks."""
    points = {one.host: one for one in level.points}
    rows: list[tuple[str, ...]] = [("host", "rank", "against the others", "limits")]
    rows += [
        (one.host, f"{one.low}" if one.low == one.high else f"{one.low} to {one.high}",
         _change(points[one.host].distance), limits_text(points[one.host].limit))
        for one in level.ranks
    ]  # fmt: skip
    return rows


def _level(level: FleetLevel) -> Iterator[str]:
    first, *more = level_lines(level)
    yield first
    yield from (f"  {line}" for line in more)
    if level.refused is not None:
        return
    yield from (f"    {line}" for line in trait_lines(level))
    yield from (f"  {line}" for line in columns(rank_rows(level)))


def _change(distance: float) -> str:
    return change_words(math.exp(distance))


def _spread(tau: float) -> str:
    """Write a standard deviation of logarithms as a share, as changes are written."""
    return change_words(math.exp(tau)).removeprefix("+")


def _ratio(mean: float, low: float, high: float, confidence: float) -> Interval:
    return Interval(estimate=math.exp(mean), low=math.exp(low), high=math.exp(high), confidence=confidence)
