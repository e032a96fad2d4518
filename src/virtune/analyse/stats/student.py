# SPDX-License-Identifier: Apache-2.0
"""Student's t: its quantile for an interval, and the interval of a mean. Fisher's exact test of two counts. The
Hodges-Lehmann shift of paired values with Wilcoxon's exact interval. Intervals for an arm's own percentiles, from
sections of its rounds, never from the number of I/Os.

It depends on the order of the values only, so outliers do no harm.

Ten million I/Os of one run have an effective sample size of a few hundred, so an interval from their order statistics
covers the true value in a tenth of all cases. Up to p99 the sample is the percentile of each of ten sections
(sectioning; Asmussen, Glynn 2007). Beyond p99 a section has too few I/Os, so the interval is that of the share of
I/Os below the value over the sections, converted back to latencies (Woodruff 1952). Where that is unbounded above,
there is only a lower bound; the same holds for less than ten minutes of data: the causes of a tail are rare and come
in clusters, and a short run may miss them. Over one minute of simulated stalls
(tests/analyse/test_percentile_intervals.py) the interval of p99.9 covers the true value in 76 % of cases, over three
in 81 %, over ten in 89 %, its lower end in 94 to 96 %.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, stdev

from virtune.model.measurement import Histogram, merge


def two_sided(confidence: float, df: float) -> float:
    """Return the two-sided quantile of Student's t with so many degrees of freedom."""
    # scipy takes longer to load than reading a study of a thousand trials, so it is imported only for comparisons
    from scipy.special import stdtrit

    return float(stdtrit(df, 1 - (1 - confidence) / 2))


def mean_and_radius(values: Sequence[float], confidence: float) -> tuple[float, float | None]:
    """Return the mean of at least one value and the half-width of its interval; None for a single value."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, two_sided(confidence, len(values) - 1) * stdev(values) / math.sqrt(len(values))


@lru_cache(maxsize=4096)
def fisher(hit: int, tried: int, others_hit: int, others_tried: int) -> float:
    """Return the one-sided p of Fisher's exact test that one of two groups is not hit more often than the other."""
    if not hit or not others_tried:
        return 1.0
    # exact, as scipy.stats.fisher_exact, which takes a second to load in the middle of a study
    total, all_hit = tried + others_tried, hit + others_hit
    as_many = (
        math.comb(all_hit, mine) * math.comb(total - all_hit, tried - mine)
        for mine in range(hit, min(all_hit, tried) + 1)
    )
    return sum(as_many) / math.comb(total, tried)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The median of all means of two differences, with its interval and that interval's confidence."""

    estimate: float
    low: float
    high: float
    confidence: float


def shift_of(differences: Sequence[float], *, confidence: float) -> Shift | None:
    """Return the shift of paired differences; None where there are none, or where one is no number.

    The interval is the narrowest of Wilcoxon's that has at least `confidence`. Few pairs allow less: then it is the
    widest that they allow, with its true confidence (5 pairs: 0.9375, 6: 0.969). Source: Hollander, Wolfe, Chicken,
    Nonparametric Statistical Methods, 3rd ed., 3.3.
    """
    if not differences or not all(math.isfinite(one) for one in differences):
        return None
    count = len(differences)
    means = sorted((differences[i] + differences[j]) / 2 for i in range(count) for j in range(i, count))
    cut, has = _cut(count, confidence)
    return Shift(estimate=median(means), low=means[cut], high=means[len(means) - 1 - cut], confidence=has)


def _cut(count: int, confidence: float) -> tuple[int, float]:
    """Return how many of the sorted means lie outside on each side, and the resulting confidence.

    P(T+ <= k) of the signed-rank statistic by counting the subsets of 1..n with each sum.
    """
    ways = [1]
    for rank in range(1, count + 1):
        longer = [*ways, *[0] * rank]
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    below, cut = ways[0], 0
    while 1 - 2 * (below + ways[cut + 1]) / 2**count >= confidence:
        below += ways[cut + 1]
        cut += 1
    return cut, 1 - 2 * below / 2**count


SECTIONS = 10
SECTIONS_MIN = 5
"""The fewest sections: Student's t with four degrees of freedom is 2.8, and grows quickly with fewer."""

SECTIONED_MAX = 99.0
"""The highest percentile beyond which a section still holds enough I/Os."""

TAIL_SECONDS = 600.0
"""From this total time on there is an upper bound, with nearly the stated confidence (92 % for 95 %)."""

CONFIDENCE = 0.95

Ends = tuple[float | None, float | None]


def sections_of(histograms: Sequence[Histogram]) -> list[Histogram]:
    """Add the histograms of an arm's rounds, in their order, into ten sections at most."""
    histograms = [one for one in histograms if one.count]
    count = min(SECTIONS, len(histograms))
    edges = [round(index * len(histograms) / count) for index in range(count + 1)] if count else []
    return [merge(histograms[start:end]) for start, end in itertools.pairwise(edges)]


def ends_of(sections: Sequence[Histogram], percent: float, *, seconds: float, whole: Histogram | None = None) -> Ends:
    """Return the interval of a percentile in ns, from an arm's sections, with their total length in seconds. `whole`
    is their sum where the caller has it.

    (None, None) with too few sections; (low, None) where the data give only a lower bound.
    """
    if len(sections) < SECTIONS_MIN:
        return None, None
    whole = merge(sections) if whole is None else whole
    if percent <= SECTIONED_MAX:
        return _sectioned(sections, whole, percent)
    low, high = _woodruff(sections, whole, percent)
    return low, high if seconds >= TAIL_SECONDS else None


def _sectioned(sections: Sequence[Histogram], whole: Histogram, percent: float) -> Ends:
    center = whole.percentile(percent)
    values = [one.percentile(percent) for one in sections]
    logs = [math.log(value) for value in values if value]
    if not center or len(logs) < len(sections):
        return None, None
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    radius = two_sided(CONFIDENCE, len(logs) - 1) * math.sqrt(variance / len(logs))
    return center * math.exp(-radius), center * math.exp(radius)


def _woodruff(sections: Sequence[Histogram], whole: Histogram, percent: float) -> Ends:
    center = whole.percentile(percent)
    if center is None:
        return None, None
    count = whole.count
    below = [one.count_to(center) for one in sections]
    share = sum(below) / count
    # a ratio of sums over sections: its residuals are the sections' own excess over the common share
    rest = [found - share * one.count for found, one in zip(below, sections, strict=True)]
    k = len(sections)
    radius = two_sided(CONFIDENCE, k - 1) * math.sqrt(k / (k - 1) * math.fsum(one**2 for one in rest)) / count
    low = whole.percentile(max(0.0, percent - 100 * radius))
    high = percent + 100 * radius
    resolved = count * (1 - high / 100) >= 1
    return low, whole.percentile(high) if resolved else None
