# SPDX-License-Identifier: Apache-2.0
"""How often verdicts are wrong, and what five minutes find: rounds whose truth is known, judged by the product.

    python -m benchmarks.decide [PART ...] [--runs 1000] [--arms 2 4 8]

Every part judges as `virtune compare` does: after every round from the fifth on (two arms: the sixth), by the plan of
a default comparison (five minutes of trials of 2.9 s). The noise is made here and shares nothing with the product:

  ar RHO     bound to the arm: lag-1 autocorrelation RHO from round to round
  host RHO   bound to the host: RHO from slot to slot, arms in a random order within each round
  drift      1 % a minute, arms in a random order;  t3: Student's t with 3 df;  dips: 1 slot in 20 loses 5 to 40 %
  uneven     one arm twice as noisy as the others;  quiet-base: a baseline with a third of the noise
  noisy-base K  a baseline with K times the noise
  unlike K  each arm's noise by a factor of its own, 1 to K;  noisy K  the last arm with K times the noise
  neighbour P   each trial, whichever arm's, is slowed 2 to 5 times with chance P
  bursts N      the same while a neighbour works, which it does and does not for N slots on average, in random order
  one-arm K     in K rounds the last arm's trial is slowed 2 to 5 times, and no other arm's

`odd-rounds` has the kinds of ROUGH: rounds that one arm, or each, spends at two levels, that are skewed, cold, or
that last. "Said" is that the result says of an arm that it is far from its level in rounds of its own, or changes it.

Seeds are fixed. The results are kept in decide.md.
"""

import argparse
import json
import math
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from benchmarks.batch import BETTER, ERROR, MARGIN, SAME, WORSE, Judged, Rounds, disagreements, judge_all
from virtune.analyse.search.tuning import Race
from virtune.analyse.stats.planned import dunnett_alpha, smallest_planned
from virtune.model.tuning import RaceRules, Standing
from virtune.model.verdict import fewest_planned

BUDGET_SECONDS, TRIAL_SECONDS = 300.0, 2.9

NOISES = (
    ("ar", 0.0), ("ar", 0.1), ("ar", 0.2), ("ar", 0.3), ("ar", 0.5), ("host", 0.3), ("host", 0.5), ("host", 0.8),
    ("t3", 0.0), ("dips", 0.0), ("drift", 0.0), ("uneven", 0.0), ("quiet-base", 0.0),
    ("noisy-base", 3.0), ("noisy-base", 10.0),
)  # fmt: skip

FOUND = ((2, 0.05, 0.03), (2, 0.08, 0.05), (2, 0.05, 0.05), (2, 0.05, 0.10), (4, 0.05, 0.05), (4, 0.08, 0.05),
         (8, 0.02, 0.03), (8, 0.05, 0.05), (8, 0.08, 0.10))  # fmt: skip
"""(arms, sd of one round's difference, difference)."""

FEW = (
    ("unlike", 1.0), ("unlike", 5.0), ("unlike", 20.0), ("noisy", 10.0), ("neighbour", 0.1), ("neighbour", 0.2),
    ("neighbour", 0.35), ("neighbour", 0.5), ("bursts", 3.0), ("bursts", 12.0), ("one-arm", 1.0), ("one-arm", 2.0),
    ("one-arm", 3.0), ("one-arm", 4.0), ("one-arm", 5.0), ("one-arm", 6.0),
    ("noisy-base", 2.0), ("noisy-base", 3.0),
)  # fmt: skip
"""What befalls a plan of the fewest rounds that can decide."""

FEW_NOISES = (("t3", 0.0), ("dips", 0.0), ("drift", 0.0), ("ar", 0.2), ("ar", 0.3))
"""The kinds of NOISES that such a plan is simulated under besides."""

RECORDED = 41
"""Rounds of a run on recorded ones: about five minutes of two arms."""


def rounds_for(arms: int) -> int:
    """Return how many rounds of so many arms five minutes have room for."""
    return int(BUDGET_SECONDS / arms / TRIAL_SECONDS)


def noise(chance: np.random.Generator, kind: str, rho: float, shape: tuple[int, int, int], sd: float) -> Rounds:
    """Draw the noise of equal arms; `sd` is that of one round's difference of two."""
    runs, rounds, arms = shape
    each = sd / math.sqrt(2)
    white = chance.standard_normal(shape)
    if kind in ("ar", "uneven", "quiet-base"):
        for number in range(1, rounds):
            white[:, number] = rho * white[:, number - 1] + math.sqrt(1 - rho**2) * white[:, number]
        if kind == "uneven":
            white[:, :, -1] *= 2
        if kind == "quiet-base":
            white[:, :, 0] /= 3
        return each * white
    if kind in ("host", "drift"):
        slots = white.reshape(runs, rounds * arms)
        for slot in range(1, slots.shape[1] if kind == "host" else 0):
            slots[:, slot] = rho * slots[:, slot - 1] + math.sqrt(1 - rho**2) * slots[:, slot]
        moved = each * slots - (kind == "drift") * 0.01 / 60 * TRIAL_SECONDS * np.arange(slots.shape[1])
        order = chance.random(shape).argsort(axis=2)
        drawn = np.empty(shape)
        np.put_along_axis(drawn, order, moved.reshape(shape), 2)
        return drawn
    if kind == "noisy-base":
        white[:, :, 0] *= rho
        return each * white
    if kind == "t3":
        return chance.standard_t(3, shape) * each / math.sqrt(3)
    hit = chance.random(shape) < 0.05
    return each * white + hit * np.log1p(-chance.uniform(0.05, 0.4, shape))


def disturbed(chance: np.random.Generator, kind: str, size: float, shape: tuple[int, int, int], sd: float) -> Rounds:
    """Draw the rounds of equal arms that are unequally noisy, or that a neighbour slows."""
    runs, rounds, arms = shape
    white: Rounds = sd / math.sqrt(2) * chance.standard_normal(shape)
    if kind == "unlike":
        white *= np.exp(chance.uniform(0, math.log(size), (runs, 1, arms)))
    if kind in ("noisy", "noisy-base"):
        white[:, :, -1 if kind == "noisy" else 0] *= size
    hit = np.zeros(shape, bool)
    if kind == "neighbour":
        hit = chance.random(shape) < size
    elif kind == "one-arm":
        hit[:, :, -1] = chance.random((runs, rounds)).argsort(axis=1) < size
    elif kind == "bursts":
        turns = chance.random((runs, rounds * arms)) < 1 / size
        turns[:, 0] = chance.random(runs) < 0.5
        works = np.cumsum(turns, axis=1).reshape(shape) % 2 == 1
        np.put_along_axis(hit, chance.random(shape).argsort(axis=2), works, 2)
    white -= hit * np.log(chance.uniform(2, 5, shape))
    return white


ROUGH = (
    ("independent", 0.0), ("steps", 0.0), ("unequal-rounds", 0.0), ("cold-rounds", 0.0), ("cold-arm", 1.0),
    ("cold-arm", 2.0), ("cold-arm", 3.0), ("skewed", 0.0), ("skewed-arm", 0.0), ("growing", 0.0), ("freezes", 0.0),
    ("carried", 0.3), ("carried", 0.5), ("two-point-arm", 0.2), ("two-point-arm", 0.4), ("uneven-point-arm", 0.2),
    ("two-point-base", 0.4), ("first-slower", 0.08), ("first-slower", 0.16), ("first-slower", 0.3),
    ("two-point-all", 0.2), ("two-point-all", 0.4), ("states", 0.05), ("states", 0.15), ("slow-share", 1 / 3),
    ("slow-share", 0.1),
    # relatives of those: other shares and distances, three levels, the last place, drifts, waves
    ("two-point-arm", 0.1), ("two-point-arm", 0.8), ("two-point-base", 0.15), ("point-arm-10", 0.3),
    ("point-arm-10", 1.0), ("point-arm-25", 0.6), ("point-arm-40", 0.3), ("point-arm-75", 0.4), ("point-arm-90", 0.8),
    ("point-base-25", 0.3), ("three-point-arm", 0.2), ("three-point-arm", 0.5), ("three-point-all", 0.3),
    ("last-slower", 0.08), ("last-slower", 0.3), ("second-slower", 0.2), ("again-faster", 0.1), ("again-faster", 0.3),
    ("alternates", 0.1), ("drift-arm", 0.05), ("drift-arm", 0.2), ("drift-all", 0.1), ("wave-arm", 0.1),
    ("step-arm", 0.1), ("states-3", 0.1), ("short-states", 0.1), ("states-arm", 0.1),
)  # fmt: skip
"""Rounds of equal arms that are not normal, not alike or not independent: kind and size."""

DIPS = ((0.10, 0.5), (0.10, 0.3), (0.15, 0.3), (0.20, 0.3), (0.25, 0.33), (0.05, 0.3), (0.40, 0.5), (0.30, 0.7),
        (0.10, 2.0), (0.20, 1.5), (0.10, 4.0))  # fmt: skip
"""The share of its rounds in which the last arm alone falls or rises, and to what."""


def orders(chance: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Draw each arm's place in each round as `plan.interleave` does: a random order, and then its reverse."""
    drawn = chance.random(shape).argsort(axis=2)
    later = shape[1] // 2 * 2
    drawn[:, 1:later:2] = shape[2] - 1 - drawn[:, 0:later:2]
    return drawn


def rough(chance: np.random.Generator, kind: str, size: float, shape: tuple[int, int, int], sd: float) -> Rounds:
    """Draw rounds of equal arms of a kind of ROUGH; `sd` is that of one round's difference of two calm arms."""
    runs, rounds, arms = shape
    each = sd / math.sqrt(2)
    white: Rounds = each * chance.standard_normal(shape)
    match kind:
        case "steps" | "freezes":
            slots = _of_host(chance, kind, (runs, rounds * arms)).reshape(shape)
            white += np.take_along_axis(slots, orders(chance, shape), 2)
        case "first-slower":
            white += math.log1p(-size) * (orders(chance, shape) == 0)
        case "last-slower" | "second-slower":
            white += math.log1p(-size) * (orders(chance, shape) == (arms - 1 if kind == "last-slower" else 1))
        case "again-faster":  # a trial right after one of the same arm
            places = orders(chance, shape)
            white[:, 1:] += math.log1p(size) * ((places[:, 1:] == 0) & (places[:, :-1] == arms - 1))
        case "unequal-rounds":
            white *= np.exp(0.8 * chance.standard_normal((runs, rounds, 1)))
        case "cold-rounds":
            white[:, 0] += np.log(chance.uniform(0.2, 0.6, (runs, arms)))
            white[:, 1] += np.log(chance.uniform(0.7, 0.95, (runs, arms)))
        case "carried":
            white = _carried(white / each, size) * each
        case "states" | "short-states" | "states-3":
            white += _states(chance, shape, (2, 5) if kind == "short-states" else (3, 20)) * math.log1p(size)
            if kind == "states-3":
                white += _states(chance, shape) * math.log1p(size)
        case "drift-all":
            white += (
                np.linspace(-0.5, 0.5, rounds)[:, None] * chance.choice((-1, 1), (runs, 1, arms)) * math.log1p(size)
            )
        case "slow-share":
            slow = _carried(chance.standard_normal(shape), 0.9)
            white = math.sqrt(1 - size) * white + math.sqrt(size) * each * slow
        case _:
            return _of_an_arm(chance, kind, size, white, each)
    return white


def _of_an_arm(chance: np.random.Generator, kind: str, size: float, white: Rounds, each: float) -> Rounds:
    """Add to `white` what one arm does, or each by itself, in rounds that are independent."""
    shape = runs, rounds, arms = white.shape
    point = np.where(chance.random(shape) < 0.5, 0.5, -0.5) * math.log1p(size)
    match kind:
        case "cold-arm":
            white[:, : int(size), -1] -= math.log(2)
        case "skewed" | "skewed-arm":
            tail = -np.exp(chance.standard_normal(shape))
            tail = each * (tail + math.exp(0.5)) / math.sqrt(math.exp(2) - math.exp(1))
            return np.where(np.arange(arms) == arms - 1, tail, white) if kind == "skewed-arm" else tail
        case "growing":
            white[:, :, -1] *= np.linspace(1, 5, rounds)
        case "two-point-arm" | "two-point-base":
            place = -(kind == "two-point-arm")
            white[:, :, place] += point[:, :, place]
        case "uneven-point-arm":
            white[:, :, -1] += math.log1p(size) * ((chance.random((runs, rounds)) < 0.25) - 0.25)
        case "two-point-all":
            white += point
        case "three-point-arm" | "three-point-all":
            several = chance.integers(-1, 2, shape) * math.log1p(size)
            white += several * (np.arange(arms) == arms - 1) if kind == "three-point-arm" else several
        case "alternates":
            white[:, :, -1] += math.log1p(size) * (np.arange(rounds) % 2 - 0.5)
        case "states-arm":
            white[:, :, -1] += _states(chance, (runs, rounds, 1))[:, :, 0] * math.log1p(size)
        case "drift-arm" | "step-arm" | "wave-arm":
            white[:, :, -1] += _moves(chance, kind, (runs, rounds)) * math.log1p(size)
        case _ if kind.startswith(("point-arm-", "point-base-")):
            share = int(kind.rpartition("-")[2]) / 100
            white[:, :, -("arm" in kind)] += math.log1p(size) * ((chance.random((runs, rounds)) < share) - share)
    return white


def _of_host(chance: np.random.Generator, kind: str, shape: tuple[int, int]) -> Rounds:
    """Draw what a host does to the slots of runs: its level steps by 15 % (sd) every 8 to 60, or it freezes."""
    found = np.zeros(shape)
    for run in range(shape[0]):
        begin = 0
        while begin < shape[1]:
            lasts = int(chance.integers(8, 61) if kind == "steps" else chance.integers(3, 11))
            if kind == "steps":
                found[run, begin:] = 0.15 * chance.standard_normal()
            else:
                found[run, begin : begin + lasts] = math.log(chance.uniform(0.05, 0.5))
                lasts += int(chance.integers(10, 61))
            begin += lasts
    return found


def _carried(white: Rounds, rho: float) -> Rounds:
    found = white.copy()
    for number in range(1, white.shape[1]):
        found[:, number] = rho * found[:, number - 1] + math.sqrt(1 - rho**2) * white[:, number]
    return found


def _moves(chance: np.random.Generator, kind: str, shape: tuple[int, int]) -> Rounds:
    """Draw how an arm moves through a plan, by 1 in all and by nothing in the mean of it: a line, a step, a wave."""
    runs, rounds = shape
    line, up = np.linspace(-0.5, 0.5, rounds), chance.choice((-1, 1), (runs, 1))
    if kind == "drift-arm":
        return np.asarray(line * up)
    if kind == "wave-arm":
        turns = np.arange(rounds) / chance.uniform(8, 40, (runs, 1)) + chance.random((runs, 1))
        return np.asarray(np.sin(2 * math.pi * turns) / 2)
    moved = line * rounds > chance.uniform(-0.4, 0.4, (runs, 1)) * rounds
    return np.asarray(up * (moved - moved.mean(axis=1, keepdims=True)))


def _states(chance: np.random.Generator, shape: tuple[int, int, int], lasts: tuple[float, float] = (3, 20)) -> Rounds:
    """Draw which of two levels, half below or above 0, each arm has in each round; one `lasts` so many on average."""
    runs, _, arms = shape
    turns = chance.random(shape) < 1 / chance.uniform(*lasts, (runs, 1, arms))
    turns[:, 0] = chance.random((runs, arms)) < 0.5
    found: Rounds = turns.cumsum(axis=1) % 2 - 0.5
    return found


def drawn(kind: str, rho: float, *, runs: int, rounds: int, arms: int, sd: float, effect: float = 0.0) -> Rounds:
    """Draw runs of a comparison whose last arm is better by `effect`; what a whole round shares is added."""
    chance = np.random.default_rng([29, arms, rounds, round(1000 * sd), round(1000 * effect), round(100 * rho)])
    values = noise(chance, kind, rho, (runs, rounds, arms), sd) + 0.08 * chance.standard_normal((runs, rounds, 1))
    values[:, :, -1] += math.log1p(effect)
    return values + 9


def fixed_dunnett(values: Rounds) -> NDArray[np.bool_]:
    """Dunnett's test of all runs at their planned end, which looks once and trusts the rounds: what it finds."""
    _, rounds, arms = values.shape
    rest = values - values.mean(1, keepdims=True) - values.mean(2, keepdims=True) + values.mean((1, 2), keepdims=True)
    df = (rounds - 1) * (arms - 1)
    error = np.sqrt(2 * (rest**2).sum((1, 2)) / df / rounds)
    apart = (values[:, :, 1:] - values[:, :, :1]).mean(1)
    beyond: NDArray[np.bool_] = np.abs(apart) > dunnett_quantile(arms - 1, df) * error[:, None]
    return beyond


@cache
def dunnett_quantile(others: int, df: int) -> float:
    """Return the two-sided critical value of Dunnett's test at 5 %, correlation 0.5 (0.1 % off at most)."""
    if others == 1:
        return float(stats.t.isf(ERROR / 2, df))
    common, weights = np.polynomial.hermite_e.hermegauss(64)
    scales = np.sqrt(stats.chi2.ppf((np.arange(400) + 0.5) / 400, df) / df)[:, None]
    half = math.sqrt(0.5)

    def beyond(bound: float) -> float:
        ends = (special.ndtr((sign * bound * scales - half * common) / half) for sign in (1, -1))
        return 1 - ERROR - float(((next(ends) - next(ends)) ** others @ (weights / weights.sum())).mean())

    return float(optimize.brentq(beyond, 1, 8))


def wrong(runs: int, arms: tuple[int, ...]) -> None:
    """Equal arms: how often any of them is ever called better or worse than the baseline."""
    for count in arms:
        for kind, rho in NOISES:
            ended = judge_all(drawn(kind, rho, runs=runs, rounds=rounds_for(count), arms=count, sd=0.05))
            print(
                f"equal, {count} arms, {kind} {rho:g}: called different"
                f" {(ended.first > 0).any(axis=1).mean():.4f},"
                f" same {(ended.last.verdict == SAME).mean():.2f}, all intervals hold the truth"
                f" {_holds(ended.last, np.zeros(count - 1)).mean():.3f}",
                flush=True,
            )


def few(runs: int, arms: tuple[int, ...]) -> None:
    """The fewest rounds of equal arms, unequally noisy or beside a neighbour: how often any is called different. Of
    those with a noise of their own also what five minutes make of it.
    """
    for count in arms:
        fewest = fewest_planned(count)
        for number, (kind, size) in enumerate(FEW):
            for rounds in (fewest, rounds_for(count)) if kind == "unlike" else (fewest,):
                chance, shape = np.random.default_rng([37, count, number, rounds]), (runs, rounds, count)
                common = 9 + 0.08 * chance.standard_normal((runs, rounds, 1))
                values = common + disturbed(chance, kind, size, shape, 0.05)
                if differ := disagreements(values[:12], planned=rounds):
                    raise SystemExit(f"{differ} verdicts differ from the product's: {count} arms, {kind} {size:g}")
                share = (judge_all(values).first > 0).any(axis=1).mean()
                print(f"{rounds} rounds, {count} arms, {kind} {size:g}: called different {share:.4f}", flush=True)
        for kind, rho in FEW_NOISES:
            share = (judge_all(drawn(kind, rho, runs=runs, rounds=fewest, arms=count, sd=0.05)).first > 0).any(axis=1)
            print(f"{fewest} rounds, {count} arms, {kind} {rho:g}: called different {share.mean():.4f}", flush=True)


def found(runs: int, arms: tuple[int, ...]) -> None:
    """One arm is better: how often that is told within five minutes, and by a test that looks once, at the end."""
    for count, sd, effect in (row for row in FOUND if row[0] in arms):
        values = drawn("ar", 0.0, runs=runs, rounds=rounds_for(count), arms=count, sd=sd, effect=effect)
        ended = judge_all(values)
        first, told = ended.first[:, -1], np.isin(ended.last.verdict, (BETTER, WORSE)).any(axis=1)
        share, ideal = (first > 0).mean(), fixed_dunnett(values)[:, -1].mean()
        every = (judge_all(values, every=True).first[:, count - 2] > 0).mean()
        print(
            f"found, {count} arms, sd {sd:.0%}, difference {effect:.0%}: {share:.3f} (median round"
            f" {np.median(np.where(first > 0, first, 999)):g} of {rounds_for(count)}), Dunnett once at the end"
            f" {ideal:.3f}: {share / ideal:.3f} of it; --pairs all {every:.2f}; decided in few rounds"
            f" {(told & ended.last.few).sum() / told.sum():.2f}",
            flush=True,
        )


def covered(runs: int, arms: tuple[int, ...]) -> None:
    """One arm is better: whether the intervals hold the truth when it stops, and how often a verdict is wrong."""
    for count in arms:
        for effect, sd in ((0.05, 0.05), (0.10, 0.05), (0.03, 0.02)):
            for kind, rho in (("ar", 0.0), ("ar", 0.3), ("host", 0.5), ("t3", 0.0), ("dips", 0.0)):
                values = drawn(kind, rho, runs=runs, rounds=rounds_for(count), arms=count, sd=sd, effect=effect)
                last = judge_all(values).last
                truth = np.array([0.0] * (count - 2) + [math.log1p(effect)])
                told = {word: (last.verdict[:, -1] == word).mean() for word in (BETTER, SAME, WORSE)}
                print(
                    f"stopped, {count} arms, {effect:.0%} at sd {sd:.0%}, {kind} {rho:g}: all intervals hold the"
                    f" truth {_holds(last, truth).mean():.3f}, found {told[BETTER]:.3f},"
                    f" wrong side {told[WORSE]:.4f},"
                    f" called the same {told[SAME]:.4f}",
                    flush=True,
                )


def _holds(last: Judged, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = np.abs(last.mean - truth) <= last.radius
    return np.asarray(inside.all(axis=1))


def recorded(runs: int, arms: tuple[int, ...]) -> None:
    """Real rounds, all arms made alike (each less its mean), in their order; then one moved by half a round's sd."""
    for name in ("tune-truth", "tune-truth-restless"):
        rows = _recorded(name)
        chance = np.random.default_rng(31)
        for count in arms:
            begins = chance.integers(0, len(rows) - RECORDED + 1, runs)
            some = [chance.permutation(rows.shape[1])[:count] for _ in range(runs)]
            values = np.array([rows[a : a + RECORDED, which] for a, which in zip(begins, some, strict=True)])
            alarms = (judge_all(values).first > 0).any(axis=1).mean()
            values[:, :, -1] += 0.5 * np.median(np.std(values[:, :, 1:] - values[:, :, :1], axis=1))
            told, ideal = (judge_all(values).first[:, -1] > 0).mean(), fixed_dunnett(values)[:, -1].mean()
            print(
                f"{name}, {count} arms, {RECORDED} rounds: called different {alarms:.3f}; half a round's sd found"
                f" {told:.2f}, by Dunnett once at the end {ideal:.2f}",
                flush=True,
            )


def _recorded(name: str) -> Rounds:
    """Return ln IOPS of the recorded rounds, each configuration less its mean: rounds x configurations."""
    rows = json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8"))
    values = np.log([[row[arm] for arm in rows[0]] for row in rows if len(row) == len(rows[0])])
    level: Rounds = values - values.mean(axis=0)
    return level


def agreed(arms: tuple[int, ...]) -> None:
    """Stop where the batch's judging is not the product's."""
    for count in arms:
        planned = rounds_for(count)
        for kind, rho in (("ar", 0.3), ("t3", 0.0), ("dips", 0.0)):
            for seen in (fewest_planned(count), (fewest_planned(count) + planned) // 2, planned):
                values = drawn(kind, rho, runs=12, rounds=seen, arms=count, sd=0.03, effect=0.04)
                if differ := disagreements(values, planned=planned):
                    raise SystemExit(
                        f"{differ} verdicts differ from the product's: {count} arms, {kind}, {seen} rounds"
                    )


def forecast(runs: int, arms: tuple[int, ...]) -> None:
    """A difference of the size that is said beforehand to be found with 90 % probability: how often it is."""
    for count in arms:
        for sd in (0.02, 0.05, 0.15):
            planned = rounds_for(count)
            least = smallest_planned(planned, sd=sd, alpha=dunnett_alpha(count - 1, ERROR), arms=count)
            assert least is not None
            values = drawn("ar", 0.0, runs=runs, rounds=planned, arms=count, sd=sd, effect=least)
            share = (judge_all(values).first[:, -1] > 0).mean()
            print(f"forecast, {count} arms, sd {sd:.0%}: {least:.1%} is found in {share:.3f}", flush=True)


def odd_rounds(runs: int, arms: tuple[int, ...]) -> None:
    """Equal arms whose rounds are not normal, alike or independent: what is called different when it stops, and how
    much of that without a word on the arm's rounds.
    """
    for count in arms:
        for number, (kind, size) in enumerate(ROUGH):
            chance, shape = np.random.default_rng([41, count, number]), (runs, rounds_for(count), count)
            common = 9 + 0.08 * chance.standard_normal((*shape[:2], 1))
            values = common + rough(chance, kind, size, shape, 0.05)
            _agree(values[:6], f"{count} arms, {kind} {size:g}")
            last = judge_all(values).last
            told = np.isin(last.verdict, (BETTER, WORSE)).any(axis=1)
            print(
                f"{count} arms, {kind} {size:.2g}: called different {told.mean():.3f}, of these no word on rounds"
                f" {(told & ~last.said).mean():.3f}, nor that levels may last"
                f" {(told & ~last.said & ~last.unless).mean():.3f}, nor that its rounds are few"
                f" {(told & ~last.said & ~last.unless & ~last.few).mean():.3f}; said"
                f" {last.said.mean():.3f}, same"
                f" {(last.verdict == SAME).mean():.2f}, all intervals hold the truth"
                f" {_holds(last, np.zeros(count - 1)).mean():.3f}; Dunnett once at the end"
                f" {fixed_dunnett(values).any(axis=1).mean():.3f}",
                flush=True,
            )


def dips(runs: int, arms: tuple[int, ...]) -> None:
    """The last arm alone falls in some rounds: how often it is called the same, though it fell in a round by then."""
    for count in arms:
        for number, (share, to) in enumerate(DIPS):
            chance, shape = np.random.default_rng([43, count, number]), (runs, rounds_for(count), count)
            common = 9 + 0.08 * chance.standard_normal((*shape[:2], 1))
            values = common + 0.02 / math.sqrt(2) * chance.standard_normal(shape)
            fell = chance.random(shape[:2]) < share
            values[:, :, -1] += math.log(to) * fell
            _agree(values[:6], f"{count} arms, dips {share:g}")
            ended = judge_all(values)
            verdict = ended.last.verdict[:, -1]
            seen = np.cumsum(fell, axis=1)[np.arange(runs), ended.last.rounds - 1] > 0
            print(
                f"{count} arms, {share:.0%} of its rounds at {to:.0%}: same {(verdict == SAME).mean():.3f}, after a"
                f" round in which it fell {(seen & (verdict == SAME)).mean():.3f}, better"
                f" {(verdict == BETTER).mean():.3f}, worse {(verdict == WORSE).mean():.3f},"
                f" said {ended.last.said.mean():.3f}",
                flush=True,
            )


SEARCHED = (
    ("independent", 0.0), ("host", 0.8), ("steps", 0.0), ("unequal-rounds", 0.0), ("cold-rounds", 0.0), ("dips", 0.0),
    ("t3", 0.0), ("freezes", 0.0), ("carried", 0.3), ("carried", 0.5), ("two-point-all", 0.4), ("two-point-arm", 0.4),
    ("point-arm-10", 1.0), ("point-arm-90", 0.8), ("states", 0.05), ("states", 0.15), ("slow-share", 1 / 3),
    ("slow-share", 0.1), ("states-arm", 0.1),
)  # fmt: skip
"""What a search is tried under: kinds of ROUGH and of NOISES."""


def search(runs: int, arms: tuple[int, ...]) -> None:  # noqa: ARG001 - every part is called alike
    """Searches of a dozen configurations by 100 and 200 slices on restless hosts: how good what they choose is, and
    how often it is further from the best than is said.
    """
    for slices in (100, 200):
        for kind, size in SEARCHED:
            found = [_searched(kind, size, seed, slices) for seed in range(runs)]
            gap = np.array([one for one, _ in found])
            said = [(one, most.distance) for one, most in found if most.distance is not None]
            false = np.mean([most.certified and one > MARGIN + 1e-9 for one, most in found])
            print(
                f"{slices} slices, {kind} {size:.2g}: within 3 % {(gap <= MARGIN).mean():.2f}, {gap.mean():.1%} below"
                f" the best; states a distance in {len(said) / runs:.2f}, true"
                f" {np.mean([one <= most + 1e-9 for one, most in said]):.3f}; certified and false {false:.3f}",
                flush=True,
            )


def _searched(kind: str, size: float, seed: int, slices: int) -> tuple[float, Standing]:
    """Return how far the leader of a search is below the best, and what the search says at its end."""
    chance, shape = np.random.default_rng([61, seed, slices, len(kind), round(100 * size)]), (1, 300, 12)
    truth = chance.permutation(np.r_[0, -np.sort(chance.exponential(0.06, shape[2] - 1))])
    values = 9 + 0.08 * chance.standard_normal((shape[1], 1))
    drawn_by = noise if kind in ("dips", "t3", "host") else rough
    values = values + drawn_by(chance, kind, size, shape, 0.05)[0] + truth
    race = Race([str(arm) for arm in range(shape[2])], RaceRules(contenders_first=True, slices_max=slices))
    for block in values:
        if not (asked := race.standing.up_next):
            break
        race.add({arm: block[int(arm)] for arm in asked})
    standing = race.standing
    return math.expm1(truth.max() - truth[int(standing.leader or 0)]), standing


def _agree(values: Rounds, what: str) -> None:
    if differ := disagreements(values, planned=values.shape[1]):
        raise SystemExit(f"{differ} verdicts differ from the product's: {what}")


PARTS = {
    "wrong": wrong,
    "odd-rounds": odd_rounds,
    "dips": dips,
    "few": few,
    "found": found,
    "covered": covered,
    "recorded": recorded,
    "forecast": forecast,
    "search": search,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--arms", type=int, nargs="+", default=[2, 4, 8])
    asked = parser.parse_args()
    agreed(tuple(asked.arms))
    for part in asked.parts or PARTS:
        PARTS[part](asked.runs, tuple(asked.arms))
