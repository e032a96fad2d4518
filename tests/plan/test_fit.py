# SPDX-License-Identifier: Apache-2.0
"""A workload that an arm cannot carry is refused before anything is made."""

from dataclasses import replace

import pytest

from virtune.fio.generator import Clients
from virtune.fio.workloads import parse_workload, read_job_file
from virtune.model.errors import PlanError, PreconditionError
from virtune.model.study import Study, StudyKind
from virtune.model.workload import Workload
from virtune.plan.arms import arm_from_text
from virtune.plan.guests import require_fit
from virtune.plan.loads import at_loads, with_loads

ENGINES = frozenset({"io_uring", "libaio", "psync", "nbd"})


def study(*workloads: Workload, arms: tuple[str, ...] = ("bare:rig=metal", "nbd:", "fuse:disk.export=fuse")) -> Study:
    return Study(
        id="s",
        created="",
        kind=StudyKind.COMPARE,
        arms=tuple(arm_from_text(text) for text in arms),
        baseline="bare",
        workloads=workloads,
        rounds=1,
        seconds=1,
        ramp_seconds=0,
        seed=1,
        scratch="/s",
        span_bytes=2**24,
    )


def test_what_every_arm_can_carry_passes() -> None:
    require_fit(
        study(*parse_workload("four-corners"), *parse_workload("log-sync-16k")), clients=Clients(engines=ENGINES)
    )
    require_fit(
        study(*parse_workload("io-engine"), arms=("bare:rig=metal", "fuse:disk.export=fuse")),
        clients=Clients(engines=ENGINES),
    )


def test_what_one_arm_cannot_carry_is_refused_by_its_name() -> None:
    with pytest.raises(
        PreconditionError, match="arm nbd cannot carry io-engine: the target is an NBD export"
    ) as caught:
        require_fit(study(*parse_workload("io-engine")), clients=Clients(engines=ENGINES))
    assert "disk.export=fuse" in (caught.value.hint or "")
    with pytest.raises(PlanError, match="arm bare cannot carry own: the job file says runtime=60"):
        require_fit(study(read_job_file("[j]\nrw=read\nruntime=60\n", "own")), clients=Clients(engines=ENGINES))


def test_guests_that_share_a_load_are_not_offered_one_request_at_a_time() -> None:
    shared = study(*parse_workload("randread-4k,numjobs=2"), arms=("one:rig=qemu", "two:rig=qemu,guests.count=2"))
    offered = with_loads(replace(shared, baseline="one", at_load=("50%",)))
    require_fit(shared, clients=Clients(engines=ENGINES))
    require_fit(offered, clients=Clients(engines=ENGINES))
    assert [workload.name for workload in at_loads(offered, shared.workloads[0], 1000.0)] == [
        "randread-4k-numjobs-2-at-50pct"
    ]


def test_a_job_file_keeps_its_own_depth() -> None:
    file = replace(parse_workload("randread-4k")[0], verbatim="[a]\nrw=randread\n")
    with pytest.raises(PlanError, match="a job file runs as it is"):
        require_fit(study(file, arms=("deep:rig=metal,workload.iodepth=7",)), clients=Clients(engines=ENGINES))
