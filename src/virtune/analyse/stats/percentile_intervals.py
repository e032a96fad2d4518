# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals for an arm's own percentiles, from sections of its rounds, never from the number of I/Os.

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

from virtune.analyse.stats.student import two_sided
from virtune.model.measurement import Histogram, merge

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
