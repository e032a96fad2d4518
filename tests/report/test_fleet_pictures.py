# SPDX-License-Identifier: Apache-2.0
"""Pictures of more hosts than fit: what is said of all of them is counted over all, and the worst are drawn."""

from virtune.model.fleet import FleetEffect, HostVerdict
from virtune.model.verdict import Verdict
from virtune.report.charts.fleet import HOSTS_SHOWN, matrix

HOSTS = [f"host{number:03}" for number in range(HOSTS_SHOWN + 10)]


def effect(candidate: str, *worse: str) -> FleetEffect:
    verdicts = {host: Verdict.WORSE if host in worse else Verdict.SAME for host in HOSTS}
    return FleetEffect(
        workload="randread-4k", candidate=candidate, estimates=(), left_out=(), pooled=None, points=(),
        verdicts=tuple(HostVerdict(host=host, verdict=one, ratio=None) for host, one in verdicts.items()),
    )  # fmt: skip


def test_the_last_of_many_hosts_is_counted_and_drawn_where_it_is_worse() -> None:
    """The first sixty were drawn and counted: `none is worse` stood above a fleet of which one host was."""
    chart = matrix([effect("native", HOSTS[-1]), effect("io_uring")])
    assert chart.title == f"{2 * len(HOSTS)} verdicts, 1 of them worse"
    drawn = {row["host"] for row in chart.spec["data"]["values"]}
    assert len(drawn) == HOSTS_SHOWN
    assert HOSTS[-1] in drawn
    assert chart.reading.endswith("10 more hosts in the table only.")
    assert {row[0] for row in chart.rows} == {*HOSTS}
