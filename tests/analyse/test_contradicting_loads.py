# SPDX-License-Identifier: Apache-2.0
"""Sweeps whose rounds contradict one another, as on a host that starves some of them of CPU: what is said of them
never contradicts the rows of the same page, nor the closed loop.
"""

import json
import math
from collections.abc import Sequence
from random import Random
from statistics import fmean

import pytest
from tests.analyse.swept_disks import Rounds, planted
from tests.published import complaints

from virtune.analyse.study.offered_load import TRIALS_MIN, is_saturated, swept
from virtune.analyse.study.summarise import summarise
from virtune.model.evidence import StudyRecord
from virtune.model.reason import Reason
from virtune.model.result import LoadSweep
from virtune.model.verdict import Outcome
from virtune.report.html.page import sweep_page
from virtune.report.json.result import sweep_document
from virtune.report.pages.sweep import answer_lines, curve, measured_lines

CLOSED = (599.0, 602.0, 600.0)
LIMITED: Rounds = {
    150.0: ((113.0, 4e8), (151.0, 9e5), (70.0, 7e8)),
    300.0: ((301.0, 9e5), (299.0, 9e5), (296.0, 9e5)),
    600.0: ((599.0, 0.88e6), (600.0, 1.231e6), (201.0, 612.7e6)),
    900.0: ((600.0, 2e8), (598.0, 2e8), (293.0, 8e8)),
}
"""A disk of 600 IOPS on a busy host: two rounds at 150 and one at 600 had no CPU."""


def said(record: StudyRecord) -> tuple[LoadSweep, str]:
    known = swept(record)
    return known, "\n".join(answer_lines(known))


def test_a_saturation_below_a_load_that_was_met_is_not_determined() -> None:
    known, text = said(planted(LIMITED, CLOSED, conditions=["iops < 250", "iops < 100", "iops < 1000"]))
    assert known.saturation is None
    assert [one.reason for one in known.why] == [Reason.LOADS_CONTRADICT]
    assert "saturation is not determined: 150 IOPS was not met (111 done), while 300 was; more --rounds" in text
    assert "closed loop, without an offered rate: 600 IOPS [597 to 604]" in text
    assert [one.outcome for one in known.rulings] == [Outcome.UNDECIDED] * 3, "300 was met: 250 is not too much"
    assert all(one.text == known.why[0].text for one in known.rulings)


def test_a_saturation_below_the_closed_loop_is_not_determined() -> None:
    slow: Rounds = {100.0: ((100.0, 1e6),) * 3, 700.0: ((300.0, 4e8), (305.0, 4e8), (298.0, 4e8))}
    known, text = said(planted(slow, CLOSED))
    assert known.saturation is None
    assert "700 IOPS was not met (301 done), while its closed loop did 600" in text
    near, _ = said(planted(slow, (310.0, 312.0, 309.0)))
    assert near.saturation is not None
    assert near.saturation.high == pytest.approx(310.33, rel=1e-4), "within what loads are told apart by"


def test_a_load_that_stalled_in_a_round_is_not_said_to_be_met() -> None:
    stalled: Rounds = {300.0: LIMITED[300.0], 600.0: LIMITED[600.0]}
    _, text = said(planted(stalled, CLOSED))
    assert "saturation was not reached" in text
    assert "every load was met" not in text


def test_without_a_load_that_was_met_there_is_no_knee() -> None:
    known, text = said(planted(dict.fromkeys((300.0, 600.0, 900.0), ((100.0, 1e8),) * 3), (100.0, 101.0, 99.0)))
    assert known.saturation is not None
    assert known.knee is None
    assert "a knee takes a load that is met, and 300 IOPS and more were not" in text


def test_a_limit_that_a_greater_load_kept_is_not_broken_at_the_least() -> None:
    conditions = ["iops < 250", "iops < 5000"]
    near: Rounds = {**LIMITED, 300.0: ((300.0, 15e6), (300.0, 15.1e6), (300.0, 14.9e6))}
    known, text = said(planted(near, CLOSED, limit="latency.mean<=20ms", conditions=conditions))
    assert known.most is None
    assert Reason.LIMIT_CONTRADICTED in [one.reason for one in known.why]
    assert "latency.mean<=20ms is not determined: 150 IOPS broke it, while 300 kept it" in text
    assert "at the least load already" not in text
    assert known.rulings[0].outcome is Outcome.UNDECIDED
    assert known.rulings[0].text in text


def test_a_load_that_was_met_is_carried_however_wide_the_interval_is() -> None:
    rounds: Rounds = {100.0: ((100.0, 1e6),) * 2, 400.0: ((100.0, 2e9), (320.0, 1e9))}
    (found,) = said(planted(rounds, (300.0, 300.0), conditions=["iops < 90"]))[0].rulings
    assert found.outcome is Outcome.HELD, found.text


def starved(chance: Random) -> tuple[Rounds, Sequence[float]]:
    """Loads of a disk of some capacity; in some rounds it has but a part of it."""
    capacity, load = 1000 * math.exp(chance.gauss(0, 0.3)), 200.0
    share, noise, rounds = (
        chance.choice((0, 0.1, 0.4)),
        chance.choice((0.005, 0.05, 0.2)),
        chance.choice((1, 2, 3, 6)),
    )
    found: dict[float, Sequence[tuple[float, float]]] = {}

    def able() -> float:
        part = chance.uniform(0.1, 0.5) if chance.random() < share else 1.0
        return capacity * part * math.exp(chance.gauss(0, noise))

    for _ in range(chance.choice((2, 3, 5, 8))):
        now = [able() for _ in range(rounds)]
        found[float(round(load))] = [
            (min(load, one), 1e6 / (1 - load / one) if load < 0.99 * one else 5e8) for one in now
        ]
        load *= chance.choice((1.05, 1.1, 1.3, 2))
    return found, [able() for _ in range(rounds)]


@pytest.mark.parametrize("seed", range(150))
def test_no_result_of_a_sweep_contradicts_its_rows(seed: int) -> None:
    rounds, closed = starved(Random(seed))
    asked = [f"iops < {load - 1:.0f}" for load in rounds]
    record = planted(rounds, closed, limit="latency.mean<=20ms" if seed % 2 else "", conditions=asked)
    known, text = said(record)
    carried = [one for one in known.points if not is_saturated(one)]
    if known.saturation is not None:
        high = known.saturation.high or math.inf
        assert all(one.iops <= known.saturation.iops for one in carried)
        assert high >= max(known.saturation.iops, known.closed_loop.iops if known.closed_loop else 0)
        for found in (known.knee, known.most):
            assert found is None or found.iops <= known.saturation.iops * 1.02, "a load is met from 98 % of it on"
    elif any(map(is_saturated, known.points)):
        assert Reason.LOADS_CONTRADICT in [one.reason for one in known.why]
    for one in (known.saturation, known.knee, known.most):
        assert one is None or (one.low or 0) <= one.iops <= (one.high or math.inf)
    for ruling, load in zip(known.rulings, known.points, strict=True):
        kept = load.met and (load.beyond is None or load.beyond <= 0)
        assert ruling.outcome is not Outcome.BREACHED or not kept, (ruling.text, load)
        fails = is_saturated(load) and len(load.achieved) >= TRIALS_MIN
        assert ruling.outcome is not Outcome.HELD or not fails, (ruling.text, load)
    assert (known.saturation is None) == ("saturation: " not in text)


def test_a_row_is_of_all_rounds_together() -> None:
    record = planted(LIMITED, CLOSED, limit="latency.mean<=20ms")
    known, result = swept(record), summarise(record)
    document = json.loads(json.dumps(sweep_document(known, result, facts="")))
    assert not [one for one in complaints("sweep", document) if "$.study." not in one], "that study is made up"
    assert document["closed_loop"]["iops"] == pytest.approx(fmean(CLOSED), rel=1e-5)
    assert document["reasons"] == ["loads-contradict"]
    for one, trials in zip(document["points"], LIMITED.values(), strict=True):
        done = sum(iops for iops, _ in trials)
        mean = sum(iops * mean for iops, mean in trials) / done
        assert one["values"]["iops"] == one["achieved_iops"] == pytest.approx(done / 3, rel=1e-5)
        assert one["values"]["latency.mean"] == pytest.approx(mean, rel=1e-5)
        assert one["values"]["cpu_per_io"] == pytest.approx(3 / done, rel=1e-5)
    for point, (_, trials) in zip(known.points, LIMITED.items(), strict=True):
        assert point.beyond == pytest.approx(math.log(point.latency_ns / 20e6))
        assert point.latency_ns == pytest.approx(sum(i * m for i, m in trials) / sum(i for i, _ in trials))
    rows = [row[:3] for row in curve(known, result)[1]]
    assert rows[2] == ("600", "467 <", "88.9 ms")
    label = "all rounds together: rates and shares are means of the time, latencies and CPU per I/O of all I/Os"
    assert any(label in one for one in measured_lines(known, ""))
    assert label in sweep_page(known, result, record).tables[0].caption
