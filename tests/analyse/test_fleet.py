# SPDX-License-Identifier: Apache-2.0
"""Fleet statistics: worked examples that were published, planted odd hosts, and inputs that decide nothing."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtune.analyse.facts import traits
from virtune.analyse.fleet import (
    HOSTS_MIN,
    arrays,
    funnel,
    pooled,
    ranks,
    require_comparable,
    smaller_group,
)
from virtune.analyse.stats.many import deleted_residuals, false_discoveries, restricted_likelihood
from virtune.analyse.stats.noise import Values
from virtune.analyse.stats.student import fisher
from virtune.model.errors import PreconditionError, UsageError
from virtune.model.fleet import FleetLevel, HostEstimate
from virtune.report.pages.fleet import level_lines

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

BCG = (
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600),
    (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
)  # fmt: skip
"""Thirteen trials of the BCG vaccine (Colditz et al. 1994): ill and not ill, vaccinated and not. The data set on
which Viechtbauer (2010, Journal of Statistical Software 36(3), section 5) shows random-effects models."""


def host(name: str, value: float, error: float, *, df: float = 1e9, at: datetime = NOON) -> HostEstimate:
    return HostEstimate(host=name, value=value, error=error, df=df, begun=at, ended=at + timedelta(minutes=5))


def bcg() -> list[HostEstimate]:
    """Log risk ratios and their errors, as the publication computes them."""
    return [
        host(f"trial{n}", math.log(a / (a + b) * (c + d) / c), math.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)))
        for n, (a, b, c, d) in enumerate(BCG, 1)
    ]


def planted(chance: Random, *, hosts: int, tau: float, error: float, slow: float = 0.0) -> list[HostEstimate]:
    values = [chance.gauss(9.0, tau) + chance.gauss(0.0, error) for _ in range(hosts)]
    values[min(3, hosts - 1)] += slow
    return [host(f"h{number}", value, error) for number, value in enumerate(values)]


def test_the_mean_is_that_of_the_published_example() -> None:
    found = pooled(bcg())
    # Viechtbauer 2010: tau^2 0.3132, I^2 92.22 %, Q(12) 152.2330, estimate -0.7145
    assert found.tau**2 == pytest.approx(0.3132, abs=5e-5)
    assert found.i_squared == pytest.approx(0.9222, abs=5e-5)
    assert found.q == pytest.approx(152.2330, abs=5e-5)
    assert found.q_p < 1e-15
    assert found.mean == pytest.approx(-0.7145, abs=5e-5)
    # the same with the test of Hartung and Knapp, by metafor: 0.1808, -1.1084 to -0.3206
    assert found.error == pytest.approx(0.1808, abs=5e-5)
    assert (found.low, found.high) == pytest.approx((-1.1084, -0.3206), abs=5e-5)


def test_the_moments_and_the_deleted_residuals_are_those_of_the_published_example() -> None:
    # metafor's own test of rstudent(), on the first six trials, with DerSimonian and Laird's estimate of 1986
    def dersimonian_laird(values: Values, variances: Values, subsets: Values) -> Values:
        weights = subsets / variances
        means = weights @ values / weights.sum(axis=1)
        q = (weights * (values - means[:, None]) ** 2).sum(axis=1)
        scale = weights.sum(axis=1) - (weights**2).sum(axis=1) / weights.sum(axis=1)
        return np.asarray(np.maximum(0.0, (q - (subsets.sum(axis=1) - 1)) / scale))

    values, variances = arrays(bcg()[:6])
    found = [
        round(d / math.sqrt(v), 4)
        for d, v in zip(*deleted_residuals(values, variances, dersimonian_laird), strict=True)
    ]
    assert found == [0.1394, -1.0279, -0.4796, -1.4694, 1.8682, 0.3783]


def test_the_next_host_is_bounded_by_the_published_formula() -> None:
    # Higgins, Thompson and Spiegelhalter 2009: mean -+ t(k - 2) * sqrt(tau^2 + se^2); t(11) is 2.201 at 95 %
    found = pooled(bcg())
    assert found.next_high is not None
    reach = 2.200985 * math.sqrt(found.tau**2 + found.error**2)
    assert found.next_high - found.mean == pytest.approx(reach, rel=1e-6)
    assert pooled(bcg()[:2]).next_low is None


def test_false_discoveries_are_bounded_as_in_the_published_example() -> None:
    # Benjamini and Hochberg 1995, section 3.2: of these fifteen, four are found at 5 %
    from scipy.stats import false_discovery_control

    published = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
                 0.6528, 0.7590, 1.0]  # fmt: skip
    assert sum(false_discovery_control(published) <= 0.05) == 4
    found = funnel(planted(Random(2), hosts=40, tau=0.02, error=0.01, slow=-0.12))
    assert [one.adjusted for one in found] == pytest.approx(false_discovery_control([one.p for one in found]))


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(1e-3, 2)), min_size=2, max_size=30))
def test_the_variance_between_hosts_is_where_its_likelihood_is_highest(pairs: list[tuple[float, float]]) -> None:
    values, variances = arrays([host(str(number), *pair) for number, pair in enumerate(pairs)])
    found = float(restricted_likelihood(values, variances, np.ones((1, len(values))))[0])

    def likelihood(between: float) -> float:
        total = variances + between
        weights = 1 / total
        mean = weights @ values / weights.sum()
        return float(-0.5 * (np.log(total).sum() + np.log(weights.sum()) + (weights * (values - mean) ** 2).sum()))

    assert found >= 0
    near = [found * 0.99, found * 1.01 + 1e-9 * float(variances.mean())]
    assert all(likelihood(found) >= likelihood(one) - 1e-9 * (1 + abs(likelihood(one))) for one in near)


def test_alike_hosts_are_seldom_called_odd_and_a_slow_one_is_found() -> None:
    # benchmarks/fleet.md has this with thousands of runs; two standard errors of 100 runs are added here
    chance = Random(11)
    alike = [funnel(planted(chance, hosts=20, tau=0.02, error=0.01)) for _ in range(100)]
    assert sum(any(one.odd for one in points) for points in alike) <= 9
    slow = [funnel(planted(chance, hosts=40, tau=0.01, error=0.0125, slow=math.log(0.9))) for _ in range(40)]
    assert sum(points[3].odd for points in slow) >= 36


def test_two_generations_of_hosts_are_two_groups_and_alike_hosts_are_one() -> None:
    chance = Random(13)
    alike = [smaller_group(planted(chance, hosts=20, tau=0.02, error=0.01)) for _ in range(200)]
    assert sum(map(bool, alike)) <= 9  # 1 to 2 % of them, in benchmarks/fleet.md
    alone = [planted(chance, hosts=20, tau=0.01, error=0.01, slow=-0.2) for _ in range(20)]
    assert not any("h3" in smaller_group(one) for one in alone), "one host is no group, but odd"
    older = {f"h{number}" for number in range(4)}
    mixed = [planted(chance, hosts=20, tau=0.01, error=0.01) for _ in range(20)]
    mixed = [[replace(one, value=one.value - 0.2 * (one.host in older)) for one in found] for found in mixed]
    assert all(set(smaller_group(found)) == older for found in mixed)
    assert smaller_group(mixed[0][:4]) == smaller_group([host(f"h{n}", 9.0, 0.1) for n in range(8)]) == ()
    level = FleetLevel(workload="w", arm="a", estimates=tuple(mixed[0]), left_out=(), group=("h0", "h1"))
    _, said, *more = level_lines(level)
    assert said.startswith("two groups of hosts: h0, h1 are -1")
    assert not more


def test_a_noisy_host_is_not_odd_for_its_noise_and_the_order_given_is_kept() -> None:
    estimates = planted(Random(5), hosts=12, tau=0.01, error=0.01)
    estimates[3] = host("h3", 8.85, 0.2)
    quiet = [*estimates[:3], host("h3", 8.85, 0.01), *estimates[4:]]
    assert not any(one.odd for one in funnel(estimates))
    assert [one.host for one in funnel(quiet) if one.odd] == ["h3"]
    assert [one.host for one in funnel(quiet)] == [one.host for one in quiet]
    assert funnel(quiet)[3].distance < -funnel(quiet)[3].limit


def test_an_error_of_few_rounds_counts_for_less() -> None:
    sure = planted(Random(5), hosts=12, tau=0.0, error=0.01, slow=-0.06)
    unsure = [host(one.host, one.value, one.error, df=2) for one in sure]
    assert funnel(unsure)[3].p > 3 * funnel(sure)[3].p


def test_too_few_hosts_and_unusable_errors_are_refused() -> None:
    few = planted(Random(1), hosts=HOSTS_MIN - 1, tau=0.01, error=0.01)
    with pytest.raises(UsageError, match="2 hosts cannot tell"):
        funnel(few)
    with pytest.raises(UsageError, match="one host has no mean"):
        pooled(few[:1])
    for error in (0.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="bad has no usable standard error"):
            pooled([*few, host("bad", 9.0, error)])


def test_ranks_have_intervals_and_ties() -> None:
    found = ranks([host("a", 1.0, 0.1), host("b", 9.0, 0.1), host("c", 1.05, 0.1)], seed=1)
    assert [one.host for one in found] == ["b", "c", "a"]
    assert (found[0].low, found[0].high, found[0].tied) == (1, 1, ())
    assert (found[1].low, found[1].high, found[1].tied) == (2, 3, ("a",))
    assert found == ranks([host("a", 1.0, 0.1), host("b", 9.0, 0.1), host("c", 1.05, 0.1)], seed=1)


def test_the_share_of_draws_in_which_a_host_leads_is_that_of_the_normal_law() -> None:
    # P(a > b) of two normal values 1 standard deviation of their difference apart is 0.8413
    found = {one.host: one for one in ranks([host("a", math.sqrt(2), 1.0), host("b", 0.0, 1.0)], seed=3)}
    assert found["a"].rank == pytest.approx(1 + (1 - 0.8413), abs=0.015)


def facts(**odd: str) -> dict[str, dict[str, str]]:
    alike = {"kernel": "6.1", "governor": "performance", "qemu": "7.2"}
    fleet = {f"h{number}": {**alike, "serial": str(number)} for number in range(8)}
    fleet["h5"]["kernel"] = "5.10"
    return fleet | {"odd": {**alike, "serial": "99", **odd}}


def test_what_the_odd_host_has_that_the_others_have_not_comes_first() -> None:
    found = traits(facts(governor="powersave", kernel="5.10"), {"odd"})
    assert [(one.key, one.value, one.usual) for one in found] == [
        ("governor", "powersave", "performance"),
        ("kernel", "5.10", "6.1"),
    ]
    assert (found[0].odd_with, found[0].odd, found[0].others_with, found[0].others) == (1, 1, 0, 8)
    assert found[0].p == pytest.approx(1 / 9)
    assert found[1].p == pytest.approx(2 / 9)


def test_what_all_have_and_what_only_names_a_host_explains_nothing() -> None:
    assert traits(facts(), {"odd"}) == ()
    assert traits(facts(governor="powersave"), set()) == ()
    assert [(one.key, one.value) for one in traits(facts(raid="5"), {"odd"})] == [("raid", "5")]
    assert [one.key for one in traits({**facts(), "odd": {"kernel": "5.9"}}, {"odd"})] == ["kernel"]


def test_levels_measured_too_far_apart_are_refused() -> None:
    together = [host("a", 9.0, 0.1), host("b", 9.0, 0.1, at=NOON + timedelta(hours=23))]
    require_comparable(together)
    require_comparable([])
    late = [*together, host("late", 9.0, 0.1, at=NOON + timedelta(hours=30))]
    with pytest.raises(PreconditionError, match="a began 2026-11-20 12:00 UTC and late ended 2026-11-21 18:05 UTC"):
        require_comparable(late)
    require_comparable(late, window=timedelta(hours=31))


def test_a_clock_that_was_set_is_refused() -> None:
    wrong = HostEstimate(host="w", value=1, error=1, df=1, begun=NOON, ended=NOON - timedelta(seconds=1))
    with pytest.raises(PreconditionError, match="w ended its study before it began it"):
        require_comparable([wrong])


def estimates_of(values: Sequence[float]) -> list[HostEstimate]:
    return [host(str(number), value, 0.01) for number, value in enumerate(values)]


def test_equal_hosts_have_no_variation_and_no_odd_one() -> None:
    found = pooled(estimates_of([9.0] * 6))
    assert (found.tau, found.i_squared) == (0.0, 0.0)
    assert found.q == pytest.approx(0.0, abs=1e-12)
    assert not any(one.odd for one in funnel(estimates_of([9.0] * 6)))


def test_of_three_hosts_only_one_that_is_far_from_two_alike_is_odd() -> None:
    def of(values: Sequence[float], errors: Sequence[float]) -> list[str]:
        known = [host(*one, df=5) for one in zip("abc", values, errors, strict=True)]
        return [one.host for one in funnel(known) if one.odd]

    alike = (0.001, 0.001, 0.001)
    assert of((9.0, 9.002, 8.3), alike) == ["c"]
    assert of((9.0, 9.002, 8.3), (0.001, 0.001, 0.0001)) == ["c"], "also where it is quieter than the others"
    assert of((9.0, 9.05, 8.9), alike) == [], "hosts that are this unlike may have a third at that distance"


def test_what_is_written_here_is_what_scipy_says() -> None:
    from scipy.stats import false_discovery_control, fisher_exact

    chances = [0.02, 0.5, 0.001, 0.02, 0.9]
    assert false_discoveries(chances).tolist() == pytest.approx(false_discovery_control(chances).tolist())
    for having, odd, others_having, others in ((1, 1, 0, 2), (2, 3, 1, 9), (3, 3, 9, 9)):
        table = [[having, odd - having], [others_having, others - others_having]]
        exact = fisher_exact(table, alternative="greater").pvalue
        assert fisher(having, odd, others_having, others) == pytest.approx(exact)
