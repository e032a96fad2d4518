# SPDX-License-Identifier: Apache-2.0
"""How often a fleet's answers are wrong: fleets whose truth is known, judged by the product's own statistics.

    python -m benchmarks.fleet [wrong|groups|found|covered ...] [--runs 1000]

A host's level is the mean of the natural logarithm of its rounds, and its error their standard deviation over the
root of their number, as the product has them; hosts vary by `tau` besides. Fixed seeds. The results are in fleet.md.
"""

import argparse
import math
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from virtune.analyse.fleet import funnel, pooled, smaller_group
from virtune.model.fleet import HostEstimate

NOISE = 0.05
"""Standard deviation of a round (ln)."""

NOW = datetime(2026, 1, 1, tzinfo=UTC)

Values = NDArray[np.float64]


def fleet(chance: np.random.Generator, true: Values, rounds: Values, *, tails: bool = False) -> list[HostEstimate]:
    """Measure hosts of these true levels, with so many rounds each; `tails`: rounds of Student's t with 3 df."""
    found = []
    for number, (level, count) in enumerate(zip(true, rounds, strict=True)):
        noise = chance.standard_t(3, int(count)) / math.sqrt(3) if tails else chance.normal(size=int(count))
        values = level + NOISE * noise
        error = float(values.std(ddof=1)) / math.sqrt(count)
        found.append(
            HostEstimate(
                host=str(number), value=float(values.mean()), error=error, df=count - 1, begun=NOW, ended=NOW
            )
        )
    return found


def rounds_of(hosts: int, rounds: int, *, unequal: bool) -> Values:
    """Return rounds for each host; unequal: every second host has only half."""
    return np.array([rounds // 2 if unequal and number % 2 else rounds for number in range(hosts)], dtype=np.float64)


def wrong(runs: int) -> None:
    """Count fleets without an odd host in which one is called odd."""
    print("## No host is odd: fleets in which one is called so\n")
    print("| hosts | rounds each | tau | noise of rounds | fleets |\n|---|---|---|---|---|")
    for hosts, rounds, tau, noise in (
        (5, 6, 0.0, ""), (5, 12, 0.02, ""), (10, 6, 0.0, ""), (10, 12, 0.02, ""), (40, 6, 0.0, ""), (40, 6, 0.02, ""),
        (40, 12, 0.01, ""), (40, 12, 0.05, ""), (40, 12, 0.01, "unequal"), (40, 12, 0.01, "tails"),
    ):  # fmt: skip
        chance = np.random.default_rng([hosts, rounds, round(tau * 1000), len(noise)])
        each = rounds_of(hosts, rounds, unequal=noise == "unequal")
        count = sum(
            any(one.odd for one in funnel(fleet(chance, chance.normal(0, tau, hosts), each, tails=noise == "tails")))
            for _ in range(runs)
        )
        words = {"": "normal", "unequal": "every second host has half the rounds", "tails": "t, 3 df"}[noise]
        print(f"| {hosts} | {rounds} | {tau:.0%} | {words} | {share(count, runs)} |", flush=True)


def groups(runs: int) -> None:
    """Count fleets with a host that is called odd, and those that are told as two groups: hosts of two generations,
    or whose levels have long tails.
    """
    print("\n## Two generations of hardware, and long tails\n")
    print("| hosts | levels of hosts | one called odd | two groups |\n|---|---|---|---|")
    for hosts in (10, 20, 40):
        for number, (words, share_, apart, tau) in enumerate((
            ("normal, 2 %", 0.0, 0.0, 0.02), ("t with 3 df, 2 %", 0.0, 0.0, 0.02), ("lognormal, 2 %", 0.0, 0.0, 0.02),
            ("a tenth 20 % apart, 1 %", 0.1, 0.2, 0.01), ("a fifth 10 % apart, 1 %", 0.2, 0.1, 0.01),
            ("a fifth 30 % apart, 2 %", 0.2, 0.3, 0.02), ("half 10 % apart, 1 %", 0.5, 0.1, 0.01),
        )):  # fmt: skip
            chance, odd, two = np.random.default_rng([47, hosts, number]), 0, 0
            for _ in range(runs):
                level = chance.normal(0, tau, hosts) + apart * (chance.random(hosts) < share_)
                if words.startswith("t "):
                    level = tau * chance.standard_t(3, hosts) / math.sqrt(3)
                elif words.startswith("log"):
                    level = tau * (np.exp(chance.normal(size=hosts)) - math.exp(0.5)) / math.sqrt(math.e**2 - math.e)
                estimates = fleet(chance, level, rounds_of(hosts, 12, unequal=False))
                group = smaller_group(estimates)
                odd += any(one.odd and one.host not in group for one in funnel(estimates))
                two += bool(group)
            print(f"| {hosts} | {words} | {share(odd, runs)} | {share(two, runs)} |", flush=True)


def found(runs: int) -> None:
    """Count fleets of forty in which the host that is 10 % slow is found, and others called odd with it."""
    print("\n## One host, or three, of forty 10 % slow\n")
    print("| slow | rounds each | tau | found, of the slow ones | fleets with a wrong one |\n|---|---|---|---|---|")
    for slow, rounds, tau in (
        (1, 6, 0.01), (1, 12, 0.0), (1, 12, 0.01), (1, 12, 0.015), (1, 12, 0.02), (1, 25, 0.01), (1, 25, 0.015),
        (1, 25, 0.02), (3, 12, 0.01), (3, 25, 0.01),
    ):  # fmt: skip
        chance = np.random.default_rng([slow, rounds, round(tau * 1000)])
        right = besides = 0
        for _ in range(runs):
            true = chance.normal(0, tau, 40)
            true[:slow] += math.log(0.9)
            estimates = fleet(chance, true, rounds_of(40, rounds, unequal=False))
            points, group = funnel(estimates), smaller_group(estimates)
            right += sum(one.odd or one.host in group for one in points[:slow])
            besides += any(one.odd or one.host in group for one in points[slow:])
        print(f"| {slow} | {rounds} | {tau:.1%} | {share(right, runs * slow)} | {share(besides, runs)} |", flush=True)


def covered(runs: int) -> None:
    """Count intervals of the mean and of the next host that hold the truth."""
    print("\n## The mean and the next host: intervals of 95 % that hold the truth\n")
    print("| hosts | rounds each | tau | mean | next host |\n|---|---|---|---|---|")
    for hosts, rounds, tau, unequal in (
        (3, 12, 0.0, False), (3, 12, 0.02, False), (5, 6, 0.02, True), (5, 12, 0.05, False), (10, 12, 0.02, True),
        (40, 6, 0.02, False), (40, 12, 0.0, True), (40, 12, 0.02, True),
    ):  # fmt: skip
        chance = np.random.default_rng([hosts, rounds, round(tau * 1000), unequal])
        mean = after = 0
        for _ in range(runs):
            true = chance.normal(0, tau, hosts + 1)
            one = pooled(fleet(chance, true[:-1], rounds_of(hosts, rounds, unequal=unequal)))
            mean += one.low <= 0 <= one.high
            assert one.next_low is not None
            assert one.next_high is not None
            after += one.next_low <= true[-1] <= one.next_high
        print(
            f"| {hosts} | {rounds}{' or half' * unequal} | {tau:.0%} | {share(mean, runs)} | {share(after, runs)} |"
        )


def share(count: int, of: int) -> str:
    return f"{count / of:.1%}".replace("%", " %")


def main() -> None:
    parts = {"wrong": wrong, "groups": groups, "found": found, "covered": covered}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description="Judge fleets of known truth.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--runs", type=int, default=1000)
    asked = parser.parse_args()
    for name in asked.parts or parts:
        parts[name](asked.runs)


if __name__ == "__main__":
    main()
