# SPDX-License-Identifier: Apache-2.0
"""What a stack costs while it has nothing to do."""

import json
import os

import pytest
from tests.conftest import eventually

from virtune import shell
from virtune.bench.surroundings import idle_cost
from virtune.probe.process import Process

pytestmark = pytest.mark.real

LOUD = "while :; do :; done"


def cost(*pids: int) -> float:
    found = json.loads(idle_cost(pids, seconds=0.3))
    assert found["seconds"] >= 0.3
    return float(found["cpu_seconds"])


def test_a_process_that_polls_costs_cpu_time_when_idle_and_one_that_sleeps_none() -> None:
    with (
        shell.Warden(f"idle-{os.getpid()}") as warden,
        warden.running(["sh", "-c", LOUD], name="polls") as polls,
        warden.running(["sleep", "60"], name="sleeps") as sleeps,
    ):
        assert eventually(lambda: sum(one.cpu_ns for one in Process(polls.pid).threads()) > 10_000_000)
        assert eventually(lambda: cost(polls.pid) > 0.005)
        assert eventually(lambda: cost(sleeps.pid) < 0.001), "once it sleeps"
        assert cost(polls.pid, sleeps.pid) > cost(sleeps.pid)


def test_a_process_that_is_gone_costs_nothing() -> None:
    assert cost(2**22 + 1) == 0
