# SPDX-License-Identifier: Apache-2.0
"""One race of many arms on many hosts at once: which configuration is the best on hosts of this kind.

What a setting does differs from host to host, and no number of rounds on some hosts tells what it does on others. So
from HOSTS_MIN hosts on the host is the unit: the difference of two arms is the mean over hosts of what each host's
rounds show, and its variance is that of the hosts' values, whatever it comes from (noise, heavy tails, rounds that
are alike, hosts that are unlike). Of fewer hosts the claim is about these hosts only: each counts alike, with the
noise of its own rounds. How often it is wrong, on simulated fleets: benchmarks/fleet_race.py.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from virtune.analyse.search.tuning import Race
from virtune.analyse.stats.anytime import contrasts, lent_by, too_few
from virtune.analyse.stats.noise import EQUAL, Values, moderated
from virtune.analyse.stats.student import two_sided
from virtune.model.tuning import Contrast, RaceRules

HOSTS_MIN = 5
"""From so many racing hosts on a race speaks of hosts of this kind, not only of those that it ran on: of fewer, their
own variation is hardly known."""

TURNS = 8
"""After so many turns a race stops as it is: by then a turn has ten times as many rounds as the first."""

_ROUNDS, _GROWTH = 12, 1.4
"""The first turn has so many rounds on all hosts together, and each later one so many times as many."""


_UNLIKE = 0.95
"""Hosts are unlike where their values vary by more than this quantile of F allows for the noise of their rounds."""


def rounds_of(turn: int, hosts: int) -> int:
    """Return how many rounds each of so many hosts measures in a turn, 0 is the first."""
    return max(1, math.ceil(_ROUNDS / hosts * _GROWTH**turn))


class FleetRace(Race):
    """A race in turns: in each turn every host that races measures the arms of `up_next` in some rounds.

    It is judged after each of at most TURNS turns. Each look has its share of the error (Bonferroni), since the
    intervals of Student's t hold for one look.
    """

    def __init__(self, arms: Sequence[str], rules: RaceRules) -> None:
        super().__init__(arms, rules)
        self._hosts: list[str] = []
        self._lasting: dict[int, float] = {}

    def turn(self, rounds: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """Add the rounds of a turn, each with its host: ln values by arm, higher is better, NaN without a value."""
        for host, block in rounds:
            self._hosts.append(host)
            self._take(block)
        self._judge()

    @property
    def of_their_kind(self) -> bool:
        """Whether what is said holds for hosts of this kind, and not only for those that measured."""
        return len(set(self._hosts)) >= HOSTS_MIN

    @property
    def more_hosts_only(self) -> bool:
        """Whether any number of rounds on these hosts would leave open what is open: only more hosts would tell."""
        open_ = [index for index in self._up_next if index in self._found]
        if not self.of_their_kind or not open_:
            return False
        ends = [(self._found[index].mean, self._lasting[index]) for index in open_]
        return all(abs(mean) < end and end - mean > math.log1p(self._rules.margin) for mean, end in ends)

    @property
    def _alpha(self) -> float:
        return super()._alpha / TURNS

    def _against(self, leader: int, values: Values, alive: Sequence[int]) -> dict[int, Contrast]:
        others = [index for index in alive if index != leader]
        if not self.of_their_kind:
            each = [values[[one == host for one in self._hosts]] for host in dict.fromkeys(self._hosts)]
            pairs = [(leader, index) for index in others]
            by_host = [contrasts(mine, pairs, alpha=self._alpha, doubt=0.0) for mine in each]
            told = [of_these_hosts(found, alpha=self._alpha) for found in zip(*by_host, strict=True)]
            return dict(zip(others, told, strict=True))
        found = hosts_values(values[:, [leader]] - values[:, others], self._hosts)
        told, lasting = over_hosts(*found, alpha=self._alpha)
        self._lasting = dict(zip(others, lasting, strict=True))
        return dict(zip(others, told, strict=True))


def of_these_hosts(found: Sequence[Contrast], *, alpha: float) -> Contrast:
    """Return the mean of what these hosts show, each counting alike, with the interval of one look at it; none where
    one of them shows nothing.

    The variance is that of the hosts' own means, by the noise of their rounds; degrees of freedom by Satterthwaite.
    """
    variances = [one.sd**2 / one.blocks if one.sd and one.blocks > 1 else 0.0 for one in found]
    lacking = next((one for one in found if one.blocks < 2), None)
    if lacking is not None or not any(variances):
        why = too_few(0 if lacking is None else lacking.blocks)
        return Contrast(blocks=min(one.blocks for one in found), mean=fmean(one.mean for one in found), why=why)
    whole = math.fsum(variances)
    parts = ((value, one.df) for value, one in zip(variances, found, strict=True) if value)
    df = whole**2 / math.fsum(value**2 / own for value, own in parts)
    return Contrast(
        blocks=sum(one.blocks for one in found),
        mean=fmean(one.mean for one in found),
        radius=two_sided(1 - alpha, df) * math.sqrt(whole) / len(found),
        df=df,
    )


def hosts_values(values: Values, hosts: Sequence[str]) -> tuple[Values, Values, Values]:
    """Return what each host's rounds show of pairs: their means (hosts x pairs, NaN without any), and of each pair
    how much of the variance of these means is the noise of rounds, with its degrees of freedom (0: unknown).

    `values` are rounds x pairs, NaN where one of a pair gave nothing.
    """
    named = list(dict.fromkeys(hosts))
    of_host = np.array([[name == host for host in hosts] for name in named], dtype=np.float64)
    here = np.isfinite(values)
    filled = np.where(here, values, 0.0)
    count, total, squares = of_host @ here, of_host @ filled, of_host @ filled**2
    some = np.where(count > 0, count, np.nan)
    rest = np.nansum(squares - total**2 / some, axis=0)
    free = (count - 1).clip(min=0).sum(axis=0)
    noise = rest / np.maximum(free, 1) * np.nan_to_num(np.nanmean(np.where(count > 0, 1 / some, np.nan), axis=0))
    return total / some, noise, free


def over_hosts(means: Values, noise: Values, free: Values, *, alpha: float) -> tuple[list[Contrast], list[float]]:
    """Return the mean over hosts of each difference, with the interval of one look at it; and the radius that any
    number of rounds on these hosts would leave: 0 where hosts differ by no more than their rounds explain.

    The variance of hosts is moderated by the other pairs of the same leader, as that of rounds is.
    """
    from scipy.special import fdtri

    hosts = (~np.isnan(means)).sum(axis=0)
    known = hosts >= 2
    answers = [Contrast(blocks=int(n), why=too_few(int(n))) for n in hosts]
    lasting = [0.0] * len(answers)
    if not known.any():
        return answers, lasting
    here = means[:, known]
    mean, own = np.nanmean(here, axis=0), np.maximum(np.nanvar(here, axis=0, ddof=1), EQUAL**2)
    variance, df = moderated(own, hosts[known] - 1.0, arms=int(known.sum()) + 1, lent=lent_by)
    for place, index in enumerate(np.flatnonzero(known)):
        n, whole = int(hosts[index]), float(variance[place])
        radius = two_sided(1 - alpha, float(df[place])) * math.sqrt(whole / n)
        answers[index] = Contrast(blocks=n, mean=float(mean[place]), radius=radius, df=float(df[place]))
        if free[index] and whole > noise[index] * fdtri(float(df[place]), free[index], _UNLIKE):
            lasting[index] = radius * math.sqrt(1 - float(noise[index]) / whole)
    return answers, lasting
