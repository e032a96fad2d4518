# SPDX-License-Identifier: Apache-2.0
"""A race over many hosts: what it may say of hosts of their kind, of these hosts only, and what more rounds tell."""

import math

import numpy as np
import pytest

from virtune.analyse.search.fleet_race import TURNS, FleetRace, hosts_values, over_hosts, rounds_of
from virtune.model.tuning import Place, RaceRules

ARMS = ("best", "near", "far", "worst")
LEVELS = {"best": 0.0, "near": -0.08, "far": -0.2, "worst": -0.4}


def raced(
    hosts: int, *, own: float, noise: float = 0.03, seed: int = 1, levels: dict[str, float] = LEVELS
) -> FleetRace:
    """A race to its end; `own` is the standard deviation of what an arm does on one host."""
    chance = np.random.default_rng(seed)
    there = {host: {arm: level + own * chance.normal() for arm, level in levels.items()} for host in range(hosts)}
    race, up = FleetRace(tuple(levels), RaceRules()), tuple(levels)
    for turn in range(TURNS):
        race.turn([
            (str(host), {arm: mine[arm] + noise * chance.normal() for arm in up})
            for host, mine in there.items() for _ in range(rounds_of(turn, hosts))
        ])  # fmt: skip
        up = race.standing.up_next
        if not up or race.more_hosts_only:
            break
    return race


@pytest.mark.parametrize("hosts", [2, 4, 6, 12])
def test_the_best_on_hosts_that_are_alike_is_certified(hosts: int) -> None:
    race = raced(hosts, own=0.0)
    assert (race.standing.leader, race.standing.certified) == ("best", True)
    assert race.of_their_kind is (hosts >= 5)


def test_hosts_that_are_unlike_need_more_hosts_and_not_more_rounds() -> None:
    race = raced(6, own=0.3)
    assert race.of_their_kind
    assert race.more_hosts_only
    assert not race.standing.certified
    assert not raced(6, own=0.0).more_hosts_only


def test_many_rounds_on_one_odd_host_do_not_outvote_the_others() -> None:
    race = FleetRace(("x", "y"), RaceRules())
    chance = np.random.default_rng(2)
    odd = [("odd", {"x": 0.0, "y": 1.0 + 0.01 * chance.normal()}) for _ in range(200)]
    others = [(f"h{n}", {"x": 0.1 + 0.01 * chance.normal(), "y": 0.0}) for n in range(9) for _ in range(2)]
    race.turn([*odd, *others])
    found = next(one.against_leader for one in race.standing.runners if one.arm != race.standing.leader)
    assert found is not None
    assert abs(found.mean) < 0.05
    assert found.low < 0 < found.high


@pytest.mark.parametrize("effects", [(0.3, -0.04, -0.04, -0.04), (0.3, -0.04, -0.04)])
def test_of_few_hosts_one_that_differs_counts_as_much_as_the_others(effects: tuple[float, ...]) -> None:
    chance = np.random.default_rng(4)
    race = FleetRace(("x", "y"), RaceRules())
    for turn in range(TURNS):
        race.turn([
            (str(host), {"x": 0.02 * chance.normal(), "y": effect + 0.02 * chance.normal()})
            for host, effect in enumerate(effects) for _ in range(rounds_of(turn, len(effects)))
        ])  # fmt: skip
    standing = race.standing
    assert (standing.leader, race.of_their_kind) == ("y", False)
    assert {one.arm: one.place for one in standing.runners}["x"] is Place.ELIMINATED


def test_of_few_hosts_none_is_left_out_of_what_is_said_of_them() -> None:
    race = FleetRace(("x", "y"), RaceRules())
    rows = [(host, {"x": 0.1 + 0.001 * number, "y": math.nan if host == "c" else 0.002 * number})
            for host in "abc" for number in range(5)]  # fmt: skip
    race.turn(rows)
    found = next(one.against_leader for one in race.standing.runners if one.arm == "y")
    assert found is not None
    assert math.isinf(found.radius)
    assert not race.standing.certified


def test_an_arm_without_values_fails_and_hosts_without_some_are_left_out_of_them() -> None:
    race = FleetRace(("x", "y", "dead"), RaceRules())
    chance = np.random.default_rng(3)
    rows = [(str(host), {"x": 0.0, "y": -0.3 + 0.01 * chance.normal(), "dead": math.nan})
            for host in range(6) for _ in range(3)]  # fmt: skip
    rows += [("broken", {"x": math.nan, "y": math.nan, "dead": math.nan})] * 3
    race.turn(rows)
    places = {one.arm: one.place for one in race.standing.runners}
    assert places == {"x": Place.LEADER, "y": Place.ELIMINATED, "dead": Place.FAILED}
    assert next(one.against_leader for one in race.standing.runners if one.arm == "y").blocks == 6  # type: ignore[union-attr]


def test_a_wrong_word_about_hosts_of_this_kind_is_rare() -> None:
    # two arms that are equally good over all hosts, and each host has its own: eliminating either is an error
    wrong = 0
    for seed in range(150):
        race = raced(8, own=0.05, seed=seed, levels={"a": 0.0, "b": 0.0})
        wrong += any(one.place is Place.ELIMINATED for one in race.standing.runners)
    assert wrong <= 5  # 1 as it is, and 12 where each look has the whole error


def test_the_mean_over_hosts_and_what_its_rounds_explain() -> None:
    values = np.array([[1.0], [3.0], [2.0], [math.nan]])
    means, noise, free = hosts_values(values, ["a", "a", "b", "c"])
    assert means[:, 0].tolist()[:2] == [2.0, 2.0]
    assert math.isnan(means[2, 0])
    assert free.tolist() == [1.0]
    assert noise.tolist() == [pytest.approx(2.0 * (1 / 2 + 1) / 2)]
    (one,), _ = over_hosts(*hosts_values(np.array([[1.0], [2.0]]), ["a", "a"]), alpha=0.05)
    assert (one.blocks, one.radius) == (1, math.inf)
    assert one.why is not None
