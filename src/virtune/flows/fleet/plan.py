# SPDX-License-Identifier: Apache-2.0
"""The plan of a study on many hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from virtune.fleet.schedule import require_reference, tasks_of
from virtune.flows.fleet.here import require_words
from virtune.flows.fleet.kept_plans import RUNS
from virtune.flows.stored.study_id import study_id
from virtune.model.fleet import FleetHost
from virtune.model.fleet_task import FleetRun


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How hosts are shared out: so many at once, in batches, a reference host between them, what they share."""

    at_once: int = 1
    batch: int | None = None
    reference: str = ""
    shares: str = "shares"
    seed: int = 0


def plan_run(
    hosts: Sequence[FleetHost], words: Sequence[str], policy: FleetPolicy, *, now: datetime, virtune: str
) -> FleetRun:
    """Plan a study on these hosts and keep the plan. Raises UsageError for words that no fleet can run."""
    require_words(words)
    require_reference(hosts, policy.reference)
    name = study_id(now)
    tasks = tasks_of(name, hosts, reference=policy.reference, batch=policy.batch, seed=policy.seed)
    run = FleetRun(
        name=name, created=now.isoformat(timespec="seconds"), words=tuple(words), tasks=tasks, virtune=virtune,
        at_once=policy.at_once, shares=policy.shares, reference=policy.reference,
    )  # fmt: skip
    RUNS.keep(run)
    return run
