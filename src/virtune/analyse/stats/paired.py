# SPDX-License-Identifier: Apache-2.0
"""Two arms, paired by round, or unpaired runs of different days: a ratio with its interval, and a verdict that may
be "undecided".

A round holds every arm once, so drift of the host affects all of them alike: what is analysed are the differences
within rounds, on the logarithm, because disks speed up and slow down by factors. A sequential study has intervals
that hold at all looks of its plan together (`planned`), and before the first look at any time (`anytime`); one whose
rounds were fixed beforehand has Student's t. Turns of a running VM have that of Wilcoxon's signed-rank test. No
interval is computed from the number of I/Os: the ten million I/Os of a run are not independent; rounds are.

The observations are repeated runs. The interval is Welch's t on ln(metric), which allows different variances; a rank
test must agree, so that one outlier run cannot cause a difference. Changes of the host between the runs of the two
arms are part of the difference, and the interval cannot include them.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean, linear_regression, stdev, variance
from typing import TYPE_CHECKING

from virtune.analyse.stats.student import mean_and_radius, two_sided
from virtune.model.metric import Metric
from virtune.model.reason import NO_MEASUREMENT, Reason, Why, because
from virtune.model.text import format_seconds, format_share
from virtune.model.tuning import Contrast
from virtune.model.verdict import (
    REPEATS_MIN,
    ROUNDS_MIN,
    SIBLINGS_MIN,
    BetweenRuns,
    Comparison,
    Interval,
    RunDrift,
    Verdict,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOG_MAX = 700.0
"""exp() of more than this overflows."""


_SIGN_LEVEL = 0.05
"""A difference must also pass the sign test at this level, so that one outlier round cannot cause it."""

_NO_SIGN_TEST = 1.0
"""The level where the interval itself is that of a test of ranks, which one outlier cannot move either."""

_SIGN_LEVEL_PLANNED = 0.5
"""The level for a planned comparison, whose mean is already robust: about six of ten rounds must agree. At 0.05 the
sign test would reject one in six of the real differences that a t test finds.
"""


FEW_ROUNDS = 38
"""A difference that is decided in fewer rounds says in how many. From here on at most 6 % of equal arms that keep a
level for many rounds, or are seldom far from theirs, are called different without a word on it, from 30 on 9 %
(benchmarks/decide.md).
"""


Arm = tuple[str, Sequence[float]]
"""An arm: its name, and its values; of the same rounds for all arms, where they are paired."""

Places = tuple[Sequence[float], Sequence[float]]
"""The place of each value of two arms in the order of time, among all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is asked of comparisons that share their error: `confidence` is that of each of them, whenever and however
    often one looks; `fewest` are the rounds that a verdict takes at least, and the loads of one take `round_seconds`.
    A value counts what completed in `trial_seconds`, 0 where that is not known.
    `between_runs` is given where each arm is one run of its own time, and its values are that run's rounds.
    """

    metric: Metric
    workload: str
    margin: float
    confidence: float
    fewest: int = ROUNDS_MIN
    round_seconds: float = 0.0
    trial_seconds: float = 0.0
    between_runs: BetweenRuns | None = None

    @property
    def alpha(self) -> float:
        """The two-sided error of one comparison."""
        return 1 - self.confidence


def compare(family: Family, baseline: Arm, candidate: Arm, places: Places | None = None) -> Comparison:
    """Compare two arms by their values in the same rounds, whose number was fixed before; of those that have `places`
    without their drift.

    A round with a value that is missing, zero or not finite is left out; degenerate input is undecided with its
    reason, never an exception and never a difference.
    """
    pairs = _usable(baseline[1], candidate[1])
    if places and (drift := drift_of_runs(family, baseline, candidate, places)):
        return replace(compare(family, *_levelled(drift, baseline, candidate, places)), drift=drift)
    ratio = interval_of(pairs, confidence=family.confidence)
    if ratio is not None and (step := _one_more(family, pairs)):
        ratio = _interval(0.0, step, family.confidence)
    verdict, why = _judge(family, pairs, ratio, asked=len(baseline[1]))
    return _comparison(family, baseline, candidate, len(pairs), ratio, verdict, why)


def compare_by_ranks(family: Family, baseline: Arm, candidate: Arm, *, level: float) -> Comparison:
    """Compare two arms as `compare` does, with interval and verdict of the signed-rank test alone. `level` is its
    two-sided error at this look; the family's confidence is that of all looks together.
    """
    pairs = _usable(baseline[1], candidate[1])
    ratio = rank_interval(pairs, level=level, confidence=family.confidence)
    verdict, why = _judge(family, pairs, ratio, asked=len(baseline[1]), sign_level=_NO_SIGN_TEST)
    return _comparison(family, baseline, candidate, len(pairs), ratio, verdict, why)


def _comparison(
    family: Family,
    baseline: Arm,
    candidate: Arm,
    rounds: int,
    ratio: Interval | None,
    verdict: Verdict,
    why: Why,
) -> Comparison:
    return Comparison(
        workload=family.workload,
        metric=family.metric.id,
        baseline=baseline[0],
        candidate=candidate[0],
        rounds=rounds,
        ratio=ratio,
        verdict=verdict,
        why=why.text,
        reason=why.reason,
    )


def compare_at_any_time(
    family: Family, arms: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]]
) -> list[Comparison]:
    """Compare pairs (baseline, candidate) of arms by their values of the same rounds, NaN where a round gave none.
    Degenerate input is undecided with its reason, never an exception and never a difference.
    """
    from virtune.analyse.stats.anytime import contrasts
    from virtune.analyse.stats.planned import far_alone, plain_means

    values, wanted = _table(arms), _columns(arms, pairs)
    beside = zip(*plain_means(values, wanted, alpha=family.alpha), far_alone(values, wanted), strict=True)
    found = [
        replace(one, plain=(float(plain), float(radius)), far=bool(far))
        for one, (plain, radius, far) in zip(contrasts(values, wanted, alpha=family.alpha), beside, strict=True)
    ]
    return _compared(family, arms, pairs, found, planned=False)


def compare_planned(
    family: Family, arms: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]], *, level: float
) -> list[Comparison]:
    """Compare pairs (baseline, candidate) of arms at a look of a plan, by their values of the same rounds, NaN where
    a round gave none. `level` is the two-sided level of one comparison at this look; the family's is over the whole
    plan.

    A difference is decided by the interval of the plan, "same" by that or by the anytime-valid one, which is narrower
    early in a plan; the deciding interval is returned. "Same" takes that the plain means are within the margin as
    well, and that no arm is far off in rounds of its own. Degenerate input is undecided with its reason, never an
    exception and never a difference.
    """
    from virtune.analyse.stats.anytime import contrasts
    from virtune.analyse.stats.planned import plain_means, planned_contrasts

    values, wanted, reach = _table(arms), _columns(arms, pairs), math.log1p(family.margin)
    plain = zip(*plain_means(values, wanted, alpha=family.alpha), strict=True)
    planned = [
        replace(one, plain=(float(mean), float(radius)))
        for one, (mean, radius) in zip(
            planned_contrasts(values, wanted, level=level, alpha=family.alpha), plain, strict=True
        )
    ]
    found = [
        replace(one, mean=any_.mean, radius=any_.radius, why=any_.why)
        if abs(any_.mean) + any_.radius < reach and _quiet(one, reach)
        else one
        for one, any_ in zip(planned, contrasts(values, wanted, alpha=family.alpha), strict=True)
    ]
    return _compared(family, arms, pairs, found, planned=True)


def _table(arms: Mapping[str, Sequence[float]]) -> "NDArray[np.float64]":
    """Return ln of the values, a row for each round and a column for each arm."""
    # numpy takes longer to load than `--help` takes, so it is imported only for comparisons
    import numpy as np

    from virtune.analyse.stats.anytime import logs

    return np.array([logs(row) for row in arms.values()], dtype=np.float64).T.reshape(-1, len(arms))


def _columns(arms: Mapping[str, Sequence[float]], pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    places = {name: index for index, name in enumerate(arms)}
    return [(places[candidate], places[baseline]) for baseline, candidate in pairs]


def _quiet(found: Contrast, reach: float) -> bool:
    """Whether no arm is far off in rounds of its own or changes its level, and the plain means are alike as well."""
    plain, radius = (math.inf, 0.0) if found.plain is None else found.plain
    return not found.far and not found.lasts and abs(plain) + radius < reach


def _compared(
    family: Family,
    arms: Mapping[str, Sequence[float]],
    pairs: Sequence[tuple[str, str]],
    contrasts: Sequence[Contrast],
    *,
    planned: bool,
) -> list[Comparison]:
    from virtune.analyse.stats.anytime import EQUAL_BLOCKS

    made = []
    for (baseline, candidate), contrast in zip(pairs, contrasts, strict=True):
        usable = _usable(arms[baseline], arms[candidate])
        step, equal = _one_more(family, usable), contrast.why == EQUAL_BLOCKS or not contrast.radius
        found = replace(contrast, mean=0.0, radius=step, why=None) if step and equal else contrast
        ratio = _interval(found.mean, found.radius, family.confidence)
        if found.why is not None and found.blocks >= family.fewest:
            verdict, why = Verdict.UNDECIDED, found.why
        else:
            level = _SIGN_LEVEL_PLANNED if planned else _SIGN_LEVEL
            asked = len(arms[baseline])
            verdict, why = _judge(family, usable, ratio, asked=asked, sign_level=level, found=found)
            why = _if_few(family, why, len(usable)) if planned else why
        # more rounds need not change that
        told_by_rounds = why.reason in (Reason.FAR_ROUNDS, Reason.RARE_ROUNDS, Reason.PLAIN_MEAN)
        is_open = verdict is Verdict.UNDECIDED and not told_by_rounds
        one, other = (baseline, arms[baseline]), (candidate, arms[candidate])
        made.append(
            replace(
                _comparison(family, one, other, found.blocks, ratio, verdict, why),
                plain=_plain_of(found, family.confidence),
                noise=found.sd,
                lag1=None if found.sd is None else found.lag1,
                rounds_left=_rounds_left(family, found, len(arms), planned=planned) if is_open else None,
            )
        )
    return made


def _if_few(family: Family, why: Why, rounds: int) -> Why:
    """Return the reason for a difference: that its rounds are few, where they are and nothing else is to be said."""
    if rounds >= FEW_ROUNDS or why.reason not in (Reason.BETTER_SIDE, Reason.WORSE_SIDE):
        return why
    return because(Reason.FEW_ROUNDS, rounds=rounds, seconds=format_seconds(rounds * family.round_seconds))


def _plain_of(found: Contrast | None, confidence: float) -> Interval | None:
    """Return the ratio of arithmetic means; None where that has no interval."""
    return None if found is None or found.plain is None else _interval(*found.plain, confidence)


def _interval(mean: float, radius: float, confidence: float) -> Interval | None:
    """Return the interval of a ratio from ln of it; None where an end would be no finite number."""
    if not abs(mean) + radius <= _LOG_MAX:
        return None
    return Interval(
        estimate=math.exp(mean), low=math.exp(mean - radius), high=math.exp(mean + radius), confidence=confidence
    )


def _words(ratio: Interval) -> str:
    change, low, high = (format_share(one - 1, 1, signed=True) for one in (ratio.estimate, ratio.low, ratio.high))
    return f"{change} [{low.removesuffix(' %')}, {high.removesuffix(' %')}]"


def _rounds_left(family: Family, found: Contrast, arms: int, *, planned: bool) -> int | None:
    """Forecast how many more rounds decide the difference, or that it is within the margin."""
    from virtune.analyse.stats.anytime import blocks_to_decide
    from virtune.analyse.stats.planned import rounds_to_decide

    forecast = rounds_to_decide if planned else blocks_to_decide
    count = forecast(found, margin=family.margin, alpha=family.alpha, arms=arms)
    return None if count is None else max(1, max(count, family.fewest) - found.blocks)


def mean_of_rounds(values: Sequence[float], *, robust: bool) -> float | None:
    """Return the mean of an arm's rounds as a change is one: of logarithms, and where it is `robust` extreme rounds
    count less. None where no round has a usable value.
    """
    import numpy as np

    from virtune.analyse.stats.anytime import logs
    from virtune.analyse.stats.noise import pseudo_values
    from virtune.analyse.stats.planned import CLIP

    found = np.array([one for one in logs(values) if math.isfinite(one)], dtype=np.float64).reshape(-1, 1)
    if not len(found):
        return None
    return math.exp(float((pseudo_values(found, clip=CLIP) if robust else found).mean()))


def interval_of(pairs: Sequence[tuple[float, float]], *, confidence: float) -> Interval | None:
    """Return candidate/baseline with Student's t interval on ln ratios; None for fewer than two rounds, and where the
    rounds differ so much that the interval is unbounded.

    Source: the t interval of a mean of paired differences, any textbook; the ratio is that of geometric means.
    """
    if not pairs:
        return None
    mean, radius = mean_and_radius([math.log(candidate) - math.log(base) for base, candidate in pairs], confidence)
    return None if radius is None else _interval(mean, radius, confidence)


def rank_interval(pairs: Sequence[tuple[float, float]], *, level: float, confidence: float) -> Interval | None:
    """Return candidate/baseline with the interval of all ratios that Wilcoxon's signed-rank test does not reject at
    this two-sided level; None where so few rounds cannot reject any. `confidence` is what is said of it.

    Where the order of the two within a round was drawn by lot, and nothing but a constant factor is between them, the
    sign of what remains is a fair coin, whatever the noise is: heavy tails, drift, rounds that resemble one another.
    Source: Wilcoxon 1945; the interval after Hodges, Lehmann 1963, by the means of every two ln ratios.
    """
    logs = sorted(math.log(candidate) - math.log(base) for base, candidate in pairs)
    means = sorted((one + other) / 2 for index, one in enumerate(logs) for other in logs[index:])
    cut = _ranks_cut(len(logs), level)
    if not cut or max(-means[cut - 1], means[-cut]) > _LOG_MAX:
        return None
    ends = (means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2, means[cut - 1], means[-cut]
    estimate, low, high = map(math.exp, ends)
    return Interval(estimate=estimate, low=low, high=high, confidence=confidence)


def _ranks_cut(rounds: int, level: float) -> int:
    """Return which of the sorted means of two, from either end, ends the interval; 0 where none does."""
    most = rounds * (rounds + 1) // 2
    ways = [1] + [0] * most  # in how many ways ranks add up to each sum
    for rank in range(1, rounds + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return bisect_left(list(accumulate(ways)), level / 2 * 2**rounds + 1e-9) if rounds else 0


def sign_test(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the two-sided p of the sign test that candidate and baseline are equal; ties are left out."""
    signs = [candidate > base for base, candidate in pairs if candidate != base]
    if not signs:
        return 1.0
    fewer = min(sum(signs), len(signs) - sum(signs))
    return float(min(1.0, 2 * sum(math.comb(len(signs), k) for k in range(fewer + 1)) / 2 ** len(signs)))


def _usable(baseline: Sequence[float], candidate: Sequence[float]) -> list[tuple[float, float]]:
    return [
        (base, value)
        for base, value in zip(baseline, candidate, strict=True)
        if math.isfinite(base) and math.isfinite(value) and base > 0 and value > 0
    ]


def _one_more(family: Family, pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return as ln of a ratio how far two arms may lie apart of which each round counted as many I/Os, as those do
    that a limit of the disk holds back: a count tells no more than to one I/O. None for any others, and where one
    I/O is more than the margin.
    """
    alike = family.metric.unit == "1/s" and family.trial_seconds and all(base == other for base, other in pairs)
    step = math.log1p(2 / (min(pairs)[0] * family.trial_seconds)) if alike and pairs else 0.0
    return step if 0 < step < math.log1p(family.margin) else None


def _judge(
    family: Family,
    pairs: Sequence[tuple[float, float]],
    ratio: Interval | None,
    *,
    asked: int,
    sign_level: float = _SIGN_LEVEL,
    found: Contrast | None = None,
) -> tuple[Verdict, Why]:
    fewest, margin = family.fewest, family.margin
    if ratio is None and len(pairs) >= fewest:
        return Verdict.UNDECIDED, because(Reason.NO_INTERVAL, units="rounds")
    if ratio is None or len(pairs) < fewest:
        lost = f" ({asked - len(pairs)} of {asked} had no usable value)" if len(pairs) < asked else ""
        rounds = "1 paired round" if len(pairs) == 1 else f"{len(pairs)} paired rounds"
        return Verdict.UNDECIDED, because(Reason.TOO_FEW, had=f"{rounds}{lost}", least=fewest)
    if ratio.low == ratio.high:
        return Verdict.UNDECIDED, because(Reason.NO_NOISE, unit="round", what="ratio", so=NO_MEASUREMENT)
    plain, said = _plain_of(found, ratio.confidence), format_share(margin)
    if ratio.within(margin) and found is not None and found.far:
        return Verdict.UNDECIDED, because(Reason.FAR_ROUNDS, margin=said)
    if ratio.within(margin) and plain is not None and not plain.within(margin):
        return Verdict.UNDECIDED, because(Reason.PLAIN_MEAN, how=f"within {said}", plain=_words(plain))
    if ratio.within(margin):
        return Verdict.SAME, because(Reason.WITHIN_MARGIN, margin=said)
    if ratio.low <= 1.0 <= ratio.high:
        lasts, rare = found is not None and found.lasts, found is not None and found.rare
        so = Reason.LASTING_LEVELS if lasts else Reason.RARE_ROUNDS if rare else Reason.NOT_SETTLED
        return Verdict.UNDECIDED, because(so, margin=said)
    if sign_test(pairs) > sign_level:
        return Verdict.UNDECIDED, because(Reason.SIGN_TEST)
    if plain is not None and (plain.estimate > 1.0) != (ratio.low > 1.0):
        return Verdict.UNDECIDED, because(Reason.PLAIN_MEAN, how="different", plain=_words(plain))
    better = (ratio.low > 1.0) == (family.metric.better == "higher")
    verdict, why = (Verdict.BETTER, Reason.BETTER_SIDE) if better else (Verdict.WORSE, Reason.WORSE_SIDE)
    if found is not None and found.if_lasting is not None and abs(found.mean) <= found.if_lasting:
        lasting = _interval(found.mean, found.if_lasting, ratio.confidence)
        told = "unbounded" if lasting is None else _words(lasting)
        return verdict, because(Reason.UNLESS_LASTING, side=verdict, rounds=len(pairs), lasting=told)
    return verdict, because(why)


_EXACT_RUNS = 8
"""Up to so many runs of one arm the rank test counts all orders, which scipy does as well."""

_RANK_LEVEL = 0.05


_DRIFT_LEVEL, _DRIFT_LEAST = 0.99, 0.005
"""One in a hundred comparisons of runs without a drift may be said to have one; one that makes less than this over
all runs is no matter.
"""


def drift_of_runs(family: Family, baseline: Arm, candidate: Arm, places: Places) -> RunDrift | None:
    """Return how two arms move from run to run: by a slope in common, beside a level of each; None where either
    has too few runs, or does not move that way.

    Source: the analysis of covariance, any textbook, on ln(metric).
    """
    sides = [
        [(place, math.log(value)) for place, value in zip(where, values, strict=True) if 0 < value < math.inf]
        for (_, values), where in zip((baseline, candidate), places, strict=True)
    ]
    if min(map(len, sides)) < REPEATS_MIN:
        return None
    from virtune.analyse.stats.noise import drift_of  # which needs numpy, longer to load than `--help` takes

    common = drift_of({"baseline": sides[0], "candidate": sides[1]}, level=_DRIFT_LEVEL)
    if common is None or common.low <= 0 <= common.high:
        return None
    slope, every = math.log1p(common.per_minute), [*sides[0], *sides[1]]
    one_way = all(linear_regression(*zip(*side, strict=True)).slope * slope > 0 for side in sides)
    if not one_way or abs(slope) * (len(every) - 1) < _DRIFT_LEAST:
        return None
    (one, low), (other, high) = (tuple(map(fmean, zip(*side, strict=True))) for side in sides)
    width = sum(variance(place for place, _ in side) * (len(side) - 1) for side in sides)
    left = sum(variance(value - slope * place for place, value in side) * (len(side) - 1) for side in sides)
    free, apart = len(every) - 3, other - one
    error = left / free * (1 / len(sides[0]) + 1 / len(sides[1]) + apart**2 / width)
    radius = two_sided(family.confidence, free) * math.sqrt(error)
    rest = _interval(high - low - slope * apart, radius, family.confidence)
    carried = _interval(slope * apart, 0.0, family.confidence)
    if rest is None or carried is None:
        return None
    return RunDrift(per_run=common.per_minute, low=common.low, high=common.high, carried=carried.estimate, rest=rest)


def _levelled(drift: RunDrift, baseline: Arm, candidate: Arm, places: Places) -> tuple[Arm, Arm]:
    """Return two arms without the drift, all at the level of the place in their middle."""
    slope, middle = math.log1p(drift.per_run), fmean((*places[0], *places[1]))

    def level(arm: Arm, where: Sequence[float]) -> Arm:
        away = (max(-_LOG_MAX, min(_LOG_MAX, slope * (middle - place))) for place in where)
        return arm[0], [value * math.exp(one) for value, one in zip(arm[1], away, strict=True)]

    return level(baseline, places[0]), level(candidate, places[1])


def compare_unpaired(family: Family, baseline: Arm, candidate: Arm, places: Places | None = None) -> Comparison:
    """Compare two arms by their repeats. Values that are missing, zero or not finite are left out. Of those that have
    `places` and drift, the interval includes what is left without that.

    `rounds` of the Comparison are the usable repeats of the arm that has fewer. With one run each there is a `change`
    and no interval; degenerate input is undecided with its reason, never an exception.
    """
    base, other = _logs(baseline[1]), _logs(candidate[1])
    fewest = min(len(base), len(other))
    change = math.exp(max(-_LOG_MAX, min(_LOG_MAX, fmean(other) - fmean(base)))) if fewest else None
    ratio = welch(base, other, confidence=family.confidence)
    if family.between_runs is not None and ratio is not None:
        ratio = _of_different_times(ratio, family.between_runs)
    drift = drift_of_runs(family, baseline, candidate, places) if places else None
    if places and drift is not None and not drift.apart:
        base, other = (_logs(arm[1]) for arm in _levelled(drift, baseline, candidate, places))
        ratio = drift.rest
    elif drift is not None and ratio is not None:
        low, high = min(ratio.low, drift.rest.low), max(ratio.high, drift.rest.high)
        ratio = replace(ratio, low=low, high=high)
    verdict, why = _judge_unpaired(family, base, other, ratio)
    near = ratio is not None and ratio.low < 1 + family.margin and ratio.high > 1 / (1 + family.margin)
    if drift is not None and drift.apart and near and verdict is not Verdict.SAME:
        verdict, why = Verdict.UNDECIDED, because(Reason.RUN_DRIFT, baseline=baseline[0], candidate=candidate[0])
    lost = len(baseline[1]) + len(candidate[1]) - len(base) - len(other)
    said = why.text + (f" ({lost} run{'' if lost == 1 else 's'} had no usable value)" if lost else "")
    found = _comparison(family, baseline, candidate, fewest, ratio, verdict, replace(why, text=said))
    return replace(found, change=change, drift=drift)


def welch(base: Sequence[float], other: Sequence[float], *, confidence: float) -> Interval | None:
    """Return exp(mean(other) - mean(base)) with Welch's interval; None for fewer than two values of either.

    Source: Welch 1947, the degrees of freedom after Satterthwaite; any textbook.
    """
    if min(len(base), len(other)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (base, other)]
    difference, squared = fmean(other) - fmean(base), math.fsum(parts)
    weights = math.fsum(part**2 / (len(values) - 1) for part, values in zip(parts, (base, other), strict=True))
    freedom = squared**2 / weights if weights > 0 else float(len(base) + len(other) - 2)
    return _interval(difference, two_sided(confidence, freedom) * math.sqrt(squared), confidence)


def _of_different_times(ratio: Interval, between: BetweenRuns) -> Interval | None:
    """Widen the interval of two runs' rounds to what two runs of one configuration differ by; None where too few are
    known. The spread of a run's rounds does not show what they share: the hour, the state of the host and the disk.
    """
    if between.runs < SIBLINGS_MIN:
        return None
    apart = max(two_sided(ratio.confidence, between.runs - 1) * between.spread * math.sqrt(2), between.widest)
    mean = math.log(ratio.estimate)
    return _interval(mean, max(apart, math.log(ratio.high) - mean), ratio.confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run of one configuration by the values of its rounds: whether it was disturbed as what is compared was
    (`alike`), whether nothing disturbed it (`calm`), and whether it is of a time `after` the reference. `name` is its
    study's.
    """

    rounds: Sequence[float]
    name: str = ""
    alike: bool = True
    calm: bool = True
    after: bool = False


_ENOUGH_BEFORE = 3
"""So many runs tell by themselves what is usual. Those after them may be what the comparison is to find."""

_UNUSUAL = 0.999


def between_runs(runs: Sequence[EarlierRun], *, disturbed: str = "") -> BetweenRuns:
    """Return how far runs of one configuration lie apart, in order of time; those of the names `disturbed` were so.

    What is compared with the reference must not excuse the next that is like it: where enough runs lead up to the
    reference, none after it tells, and a run that nothing disturbed does not where it is beyond what those before it
    let one expect. Where nothing that is compared was disturbed, those that were do not tell either, if there are
    enough of the others.
    """
    kept = [(fmean(logs), one) for one in runs if (logs := _logs(one.rounds))]
    if not disturbed and sum(one.calm for _, one in kept) >= _ENOUGH_BEFORE:
        kept = [(mean, one) for mean, one in kept if one.calm]
    lead = [one for one in kept if not one[1].after]
    told: list[float] = []
    telling: list[EarlierRun] = []
    for mean, one in lead if len(lead) >= _ENOUGH_BEFORE else kept:
        if not (one.calm and _unusual(mean, told)):
            told.append(mean)
            telling.append(one)
    alike = sum(one.alike for one in telling)
    return BetweenRuns(
        runs=alike,
        names=tuple(one.name for one in telling),
        spread=stdev(told) if len(told) > 1 else 0.0,
        disturbed=disturbed,
        unlike=len(told) - alike,
        widest=max(told) - min(told) if disturbed and told else 0.0,
    )


def _unusual(value: float, before: Sequence[float]) -> bool:
    """Whether a value is outside the prediction interval of those before it, where there are enough of these."""
    if len(before) < _ENOUGH_BEFORE:
        return False
    radius = two_sided(_UNUSUAL, len(before) - 1) * stdev(before) * math.sqrt(1 + 1 / len(before))
    return abs(value - fmean(before)) > radius


def rank_test(base: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney test that both arms are equal: exact for few runs without ties, else
    by the normal distribution with both corrections. As scipy.stats.mannwhitneyu, which takes a third of a second to
    load.
    """
    values, (few, many) = sorted((*base, *other)), sorted((len(base), len(other)))
    total, ties = few + many, Counter(values)
    rank = {value: bisect_left(values, value) + (count + 1) / 2 for value, count in ties.items()}
    above = math.fsum(rank[value] for value in base) - len(base) * (len(base) + 1) / 2
    above = max(above, few * many - above)
    if few <= _EXACT_RUNS and len(ties) == total:
        ways = [1] + [0] * (few * many)  # by the statistic: the coefficients of a Gaussian binomial
        for one in range(1, few + 1):
            for at in range(few * many, many + one - 1, -1):
                ways[at] -= ways[at - many - one]
            for at in range(one, few * many + 1):
                ways[at] += ways[at - one]
        return min(1.0, 2 * sum(ways[math.ceil(above) :]) / math.comb(total, few))
    tied = sum(count**3 - count for count in ties.values()) / (total * (total - 1))
    spread = math.sqrt(few * many / 12 * (total + 1 - tied))
    away = (above - few * many / 2 - 0.5) / spread if spread else 0.0
    return min(1.0, math.erfc(away / math.sqrt(2)))


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values if math.isfinite(value) and value > 0]


def _judge_unpaired(
    family: Family, base: Sequence[float], other: Sequence[float], ratio: Interval | None
) -> tuple[Verdict, Why]:
    fewest, margin = min(len(base), len(other)), family.margin
    if not fewest:
        return Verdict.UNDECIDED, because(Reason.NO_VALUE, which="one of the two has no usable value")
    if len(base) == len(other) == 1:
        return Verdict.UNDECIDED, because(Reason.ONE_RUN_EACH)
    if fewest < REPEATS_MIN:
        runs = f"{len(base)} and {len(other)} runs"
        return Verdict.UNDECIDED, because(Reason.TOO_FEW, had=runs, least=f"{REPEATS_MIN} of each")
    between = family.between_runs
    if between is not None and between.runs < SIBLINGS_MIN:
        alike = f", disturbed as {between.disturbed}," if between.disturbed else ""
        unlike = f" ({between.unlike} more {'was' if between.unlike == 1 else 'were'} not)" if between.unlike else ""
        had = f"{between.runs}{unlike}"
        return Verdict.UNDECIDED, because(Reason.BETWEEN_RUNS, had=had, least=SIBLINGS_MIN, alike=alike)
    if ratio is None:
        return Verdict.UNDECIDED, because(Reason.NO_INTERVAL, units="runs")
    if ratio.low == ratio.high:
        return Verdict.UNDECIDED, because(Reason.NO_NOISE, unit="run", what="value", so=NO_MEASUREMENT)
    if ratio.within(margin):
        return Verdict.SAME, because(Reason.WITHIN_MARGIN, margin=format_share(margin))
    if ratio.low <= 1.0 <= ratio.high:
        return Verdict.UNDECIDED, because(Reason.NOT_SETTLED, margin=format_share(margin))
    if rank_test(base, other) > _RANK_LEVEL:
        return Verdict.UNDECIDED, because(Reason.RANK_TEST)
    if (ratio.low > 1.0) == (family.metric.better == "higher"):
        return Verdict.BETTER, because(Reason.BETTER_SIDE)
    return Verdict.WORSE, because(Reason.WORSE_SIDE)
