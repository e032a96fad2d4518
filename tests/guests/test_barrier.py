# SPDX-License-Identifier: Apache-2.0
"""Two guests at once: their loads stand at a barrier and begin together; one that is stopped ends in evidence."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.loading import raw_job
from tests.conftest import SPAN, first_served
from tests.guests.conftest import TCG

from virtune import shell
from virtune.bench.appliance.build import Appliance
from virtune.bench.load import let_go, skew_seconds
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.load import LinuxLoad
from virtune.bench.qemu.rig import GuestSession
from virtune.model.stack import Disk, GuestTarget, Stack

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("guests")]

SKEW_SECONDS = 0.05
"""On a busy machine a guest may wait for a CPU when its barrier opens, so only the best of three is held to this."""

LATE_SECONDS = 0.5
"""And none is ever so late: it would be a barrier that opens for one guest after the other."""


@pytest.mark.long(
    always="test_study.py has two guests in each run, whose skew would be that of one load after the other"
)
def test_two_guests_begin_together(appliance: Appliance, image: Path, one_warden: shell.Warden) -> None:
    ground = DiskImageSpec(image=image, size_bytes=SPAN, writes=False)
    with ExitStack() as ends:
        ends.enter_context(first_served())  # or a skew is that of the CPUs, which other tests use
        sessions = [GuestSession(appliance, TCG, one_warden) for _ in range(2)]
        for session in sessions:
            ends.callback(session.give_up)
        stack = Stack(rig="qemu", disk=replace(Disk(), aio="native"))
        benches = [ends.enter_context(session.up(stack, ground)) for session in sessions]
        assert len({bench.vm.child.pid for bench in benches}) == 2
        skews = []
        for _ in range(3):
            loads = []
            for bench in benches:
                assert isinstance(bench.target, GuestTarget)
                text = (
                    f"[x]\nioengine=libaio\ndirect=1\niodepth=4\nbs=4k\nrw=randread\nfilename={bench.target.path}\n"
                )
                text += f"size={SPAN}\ntime_based=1\nruntime=300ms\nallow_file_create=0\n"
                loads.append(LinuxLoad(bench, raw_job(text, engine="libaio")))
            for one in loads:
                one.start()
            for one in loads:
                one.arm()
                one.bench.begin()
            before = [bench.vm.operations() for bench in benches]
            assert all(one.process.wait(0.3) is None for one in loads), "a load waits at the barrier"
            assert [bench.vm.operations() for bench in benches] == before, "and does nothing there"
            let_go(loads)
            skews.append(skew_seconds(loads))
            for one in loads:
                output = one.process.wait(60)
                assert output is not None
                assert output.status == 0
        assert min(skews) <= SKEW_SECONDS, skews
        assert max(skews) <= LATE_SECONDS, skews
