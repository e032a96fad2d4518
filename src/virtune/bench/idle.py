# SPDX-License-Identifier: Apache-2.0
"""What a stack's processes cost while they have nothing to do: their CPU time in a second without a load."""

import json
import time
from collections.abc import Iterable

from virtune.probe.process import Process

SECONDS = 1.0
"""How long is measured. An IOThread that polls ends that poll_max_ns after its last work, long before."""

_VCPU = "CPU "
"""How QEMU names the threads of its vCPUs, which belong to the guest's own system."""


def idle_cost(pids: Iterable[int], *, seconds: float = SECONDS) -> str:
    """Let time pass, and write what the threads of these processes used meanwhile, without vCPUs, as JSON."""
    mine = [Process(pid) for pid in pids]
    before, begun = _cpu_ns(mine), time.monotonic()
    time.sleep(seconds)
    used, passed = _cpu_ns(mine) - before, time.monotonic() - begun
    return json.dumps({"seconds": passed, "cpu_seconds": max(0, used) / 1e9}) + "\n"


def _cpu_ns(processes: Iterable[Process]) -> int:
    return sum(one.cpu_ns for process in processes for one in process.threads() if not one.name.startswith(_VCPU))
