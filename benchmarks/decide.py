# SPDX-License-Identifier: Apache-2.0
"""How often verdicts are wrong, and what five minutes find: rounds whose truth is known, judged by the product.

    python -m benchmarks.decide [wrong|found|covered|recorded|forecast ...] [--runs 1000] [--arms 2 4 8]

Every part judges as `virtune compare` does: after every round from the sixth on, by the plan of a default comparison
(five minutes of trials of 2.9 s). The noise is made here and shares nothing with the product:

  ar RHO     bound to the arm: lag-1 autocorrelation RHO from round to round
  host RHO   bound to the host: RHO from slot to slot, arms in a random order within each round
  drift      1 % a minute, arms in a random order;  t3: Student's t with 3 df;  dips: 1 slot in 20 loses 5 to 40 %
  uneven     one arm twice as noisy as the others;  quiet-base: a baseline with a third of the noise

Seeds are fixed. The results are kept in decide.md.
"""

import argparse
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from virtune.analyse.stats.group_sequential import dunnett_alpha, level_of
from virtune.analyse.stats.paired import Levels, compare_planned
from virtune.analyse.stats.planned import smallest_planned
from virtune.model.metric import BY_ID
from virtune.model.verdict import ROUNDS_MIN, Comparison, Verdict

Rounds = NDArray[np.float64]
"""ln(metric), runs x rounds x arms; the first arm is the baseline."""

MARGIN, ERROR = 0.03, 0.05
BUDGET_SECONDS, TRIAL_SECONDS = 300.0, 2.9

NOISES = (
    ("ar", 0.0), ("ar", 0.1), ("ar", 0.2), ("ar", 0.3), ("ar", 0.5), ("host", 0.3), ("host", 0.5), ("host", 0.8),
    ("t3", 0.0), ("dips", 0.0), ("drift", 0.0), ("uneven", 0.0), ("quiet-base", 0.0),
)  # fmt: skip

FOUND = ((2, 0.05, 0.03), (2, 0.08, 0.05), (4, 0.05, 0.05), (4, 0.08, 0.05), (8, 0.02, 0.03), (8, 0.05, 0.05),
         (8, 0.08, 0.10))  # fmt: skip
"""(arms, sd of one round's difference, difference)."""

DIFFERENT = (Verdict.BETTER, Verdict.WORSE)


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
    if kind == "t3":
        return chance.standard_t(3, shape) * each / math.sqrt(3)
    hit = chance.random(shape) < 0.05
    return each * white + hit * np.log1p(-chance.uniform(0.05, 0.4, shape))


def drawn(kind: str, rho: float, *, runs: int, rounds: int, arms: int, sd: float, effect: float = 0.0) -> Rounds:
    """Draw runs of a comparison whose last arm is better by `effect`; what a whole round shares is added."""
    chance = np.random.default_rng([29, arms, rounds, round(1000 * sd), round(1000 * effect), round(100 * rho)])
    values = noise(chance, kind, rho, (runs, rounds, arms), sd) + 0.08 * chance.standard_normal((runs, rounds, 1))
    values[:, :, -1] += math.log1p(effect)
    return values + 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One run: each pair's comparison when it stopped, whether a pair was ever called different, and when first."""

    last: list[Comparison]
    ever: list[bool]
    first: list[int | None]


def judged(values: Rounds, *, pairs: str = "baseline") -> Ended:
    """Judge one run (rounds x arms) after every round, until every pair is decided or the plan is at its end."""
    planned, arms = values.shape
    names = [str(arm) for arm in range(arms)]
    wanted = [("0", name) for name in names[1:]]
    alpha = dunnett_alpha(len(wanted), ERROR)
    if pairs == "all":
        wanted = [(a, b) for index, a in enumerate(names) for b in names[index + 1 :]]
        alpha = ERROR / len(wanted)
    ever, first = [False] * len(wanted), list[int | None]([None] * len(wanted))
    found: list[Comparison] = []
    for count in range(ROUNDS_MIN, planned + 1):
        levels = Levels(alpha=alpha, level=_level(count, planned, alpha))
        rows = {name: list(np.exp(values[:count, arm])) for arm, name in enumerate(names)}
        found = compare_planned(BY_ID["iops"], rows, wanted, workload="w", margin=MARGIN, levels=levels)
        for index, one in enumerate(found):
            if one.verdict in DIFFERENT and not ever[index]:
                ever[index], first[index] = True, count
        if all(one.verdict is not Verdict.UNDECIDED for one in found):
            break
    return Ended(last=found, ever=ever, first=first)


@cache
def _level(count: int, planned: int, alpha: float) -> float:
    return level_of(tuple((float(n), n / planned) for n in range(ROUNDS_MIN, count + 1)), alpha)


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
            ended = [
                judged(one) for one in drawn(kind, rho, runs=runs, rounds=rounds_for(count), arms=count, sd=0.05)
            ]
            share = np.mean([any(one.ever) for one in ended])
            same = np.mean([one.verdict is Verdict.SAME for run in ended for one in run.last])
            holds = np.mean([all(_holds(one, 0.0) for one in run.last) for run in ended])
            print(
                f"equal, {count} arms, {kind} {rho:g}: called different {share:.3f}, same {same:.2f},"
                f" all intervals hold the truth {holds:.3f}",
                flush=True,
            )


def found(runs: int, arms: tuple[int, ...]) -> None:
    """One arm is better: how often that is told within five minutes, and by a test that looks once, at the end."""
    for count, sd, effect in (row for row in FOUND if row[0] in arms):
        values = drawn("ar", 0.0, runs=runs, rounds=rounds_for(count), arms=count, sd=sd, effect=effect)
        ended = [judged(one) for one in values]
        share, ideal = np.mean([one.ever[-1] for one in ended]), fixed_dunnett(values)[:, -1].mean()
        every = np.mean([judged(one, pairs="all").ever[count - 2] for one in values[: max(1, runs // 2)]])
        when = np.median([one.first[-1] or math.inf for one in ended])
        print(
            f"found, {count} arms, sd {sd:.0%}, difference {effect:.0%}: {share:.3f} (median round {when:g} of"
            f" {rounds_for(count)}), Dunnett once at the end {ideal:.3f}: {share / ideal:.2f} of it;"
            f" --pairs all {every:.2f}",
            flush=True,
        )


def covered(runs: int, arms: tuple[int, ...]) -> None:
    """One arm is better: whether the intervals hold the truth when it stops, and how often a verdict is wrong."""
    for count in (one for one in arms if one < 8):
        for effect, sd in ((0.05, 0.05), (0.10, 0.05), (0.03, 0.02)):
            for kind, rho in (("ar", 0.0), ("ar", 0.3), ("host", 0.5), ("t3", 0.0), ("dips", 0.0)):
                values = drawn(kind, rho, runs=runs, rounds=rounds_for(count), arms=count, sd=sd, effect=effect)
                ended = [judged(one) for one in values]
                truth = [0.0] * (count - 2) + [math.log1p(effect)]
                holds = np.mean([all(map(_holds, run.last, truth)) for run in ended])
                side = np.mean([run.last[-1].verdict is Verdict.WORSE for run in ended])
                same = np.mean([run.last[-1].verdict is Verdict.SAME for run in ended])
                told = np.mean([run.last[-1].verdict is Verdict.BETTER for run in ended])
                print(
                    f"stopped, {count} arms, {effect:.0%} at sd {sd:.0%}, {kind} {rho:g}: all intervals hold the"
                    f" truth {holds:.3f}, wrong side {side:.4f}, called the same {same:.4f}, found {told:.3f}",
                    flush=True,
                )


def _holds(one: Comparison, truth: float) -> bool:
    return one.ratio is None or one.ratio.low <= math.exp(truth) <= one.ratio.high


def recorded(runs: int, arms: tuple[int, ...]) -> None:
    """Real rounds, all arms made alike (each less its mean), in their order; then one moved by half a round's sd."""
    for name in ("tune-truth", "tune-truth-restless"):
        rows = _recorded(name)
        chance = np.random.default_rng(31)
        for count in arms:
            alarms, told, ideal = [], [], []
            for _ in range(runs):
                begin = chance.integers(0, len(rows) - 41 + 1)
                some = chance.permutation(rows.shape[1])[:count]
                values = rows[begin : begin + 41, some].copy()
                alarms.append(any(judged(values).ever))
                values[:, -1] += 0.5 * np.median(np.std(np.diff(values, axis=1), axis=0))
                told.append(judged(values).ever[-1])
                ideal.append(fixed_dunnett(values[None])[0, -1])
            print(
                f"{name}, {count} arms, 41 rounds: called different {np.mean(alarms):.3f}; half a round's sd found"
                f" {np.mean(told):.2f}, by Dunnett once at the end {np.mean(ideal):.2f}",
                flush=True,
            )


def _recorded(name: str) -> Rounds:
    """Return ln IOPS of the recorded rounds, each configuration less its mean."""
    rows = json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text(encoding="utf-8"))
    values = np.log([[row[arm] for arm in rows[0]] for row in rows if len(row) == len(rows[0])])
    level: Rounds = values - values.mean(axis=0)
    return level


def forecast(runs: int, arms: tuple[int, ...]) -> None:
    """A difference of the size that is said beforehand to be found nine times in ten: how often it is."""
    for count in arms:
        for sd in (0.02, 0.05, 0.15):
            planned = rounds_for(count)
            least = smallest_planned(planned, sd=sd, alpha=dunnett_alpha(count - 1, ERROR), arms=count)
            assert least is not None
            values = drawn("ar", 0.0, runs=runs, rounds=planned, arms=count, sd=sd, effect=least)
            share = np.mean([judged(one).ever[-1] for one in values])
            print(f"forecast, {count} arms, sd {sd:.0%}: {least:.1%} is found in {share:.3f}", flush=True)


PARTS = {"wrong": wrong, "found": found, "covered": covered, "recorded": recorded, "forecast": forecast}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--arms", type=int, nargs="+", default=[2, 4, 8])
    asked = parser.parse_args()
    for part in asked.parts or PARTS:
        PARTS[part](asked.runs, tuple(asked.arms))
