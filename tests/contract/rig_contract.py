# SPDX-License-Identifier: Apache-2.0
"""What every rig promises. A rig's tests subclass it and say which stacks it brings up, and on what."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.loading import Kept

from virtune.bench.port import Bench, DiskImageSpec, LoadJob, LoadOutput, Session, Window
from virtune.bench.verify import require_verified
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.results import read_result
from virtune.fio.workloads import parse_workload
from virtune.model.contradictions import contradictions
from virtune.model.errors import LoadError
from virtune.model.evidence import not_shown_checks, unverified
from virtune.model.stack import Stack

Image = Callable[[Stack], Path | None]
ENGINES = frozenset({"nbd", "io_uring", "libaio", "psync"})


class RigContract:
    """Give `stacks` and `program`, and the fixtures `session` and `image_of`."""

    stacks: Sequence[Stack]
    size_bytes: int

    def program(self) -> str:
        """The path of what loads this rig."""
        return "fio"

    def spec(self, stack: Stack, image_of: Image) -> DiskImageSpec:
        return DiskImageSpec(image=image_of(stack), size_bytes=self.size_bytes, writes=False)

    def load(self, bench: Bench, *, seconds: float, kept: Kept | None = None) -> LoadOutput:
        """Load a bench with the job that a trial would write for its target."""
        (workload,) = parse_workload("randread-4k")
        clients = Clients(engines=ENGINES, installed=True)
        job = fio_job(workload, bench.target, seconds=seconds, ramp_seconds=0, seed=7, clients=clients)
        load = LoadJob(job=job, workload=workload, program=self.program() if job.program == "virtune-load" else "fio")
        window = Window(seconds=seconds, ramp_seconds=0.0, round=1, seed=7)
        return bench.run([load], window, kept or Kept())

    def test_stacks_follow_one_another_are_loaded_and_every_setting_of_them_is_verified(
        self, session: Session, image_of: Image
    ) -> None:
        for stack in self.stacks:
            assert contradictions(stack) == ()
            kept = Kept()
            with session.up(stack, self.spec(stack, image_of)) as bench:
                assert bench.changeover is None or (bench.changeover.swapped or bench.changeover.why)
                output, missing = self.judged(bench, stack, kept, seconds=0.5)
                for seconds in (2.0, 6.0):  # a guest that hardly has a CPU shows its engine and its log then
                    if missing or not output.log:
                        output, missing = self.judged(bench, stack, kept, seconds=seconds)
            assert missing == ()
            require_readable(output)
            require_named(kept)

    def judged(self, bench: Bench, stack: Stack, kept: Kept, *, seconds: float) -> tuple[LoadOutput, tuple[str, ...]]:
        """Load a bench; return what that left, and the settings that were not verified."""
        output = self.load(bench, seconds=seconds, kept=kept)
        checks = (*bench.in_force.checks, *output.checks)
        require_verified("the arm", checks)
        return output, unverified(stack, (*checks, *not_shown_checks(stack, checks)))

    def test_after_a_job_that_its_program_refuses_the_first_stack_comes_up_again(
        self, session: Session, image_of: Image
    ) -> None:
        stack = self.stacks[0]
        with pytest.raises(LoadError), session.up(stack, self.spec(stack, image_of)) as bench:
            self.refused(bench)
        with session.up(stack, self.spec(stack, image_of)) as bench:
            assert self.load(bench, seconds=0.3).output

    def refused(self, bench: Bench) -> LoadOutput:
        """Run a job that no program takes."""
        (workload,) = parse_workload("randread-4k")
        clients = Clients(engines=ENGINES, installed=True)
        job = fio_job(workload, bench.target, seconds=1, ramp_seconds=0, seed=7, clients=clients)
        wrong = replace(job, text="[x]\nrw=sideways\n")
        program = self.program() if job.program == "virtune-load" else "fio"
        load = LoadJob(job=wrong, workload=workload, program=program)
        return bench.run([load], Window(seconds=1.0, ramp_seconds=0.0), Kept())


def require_readable(output: LoadOutput) -> None:
    """Hold that a load leaves a result that fio's own reader reads."""
    found = read_result(output.output.decode())
    assert sum(load.iops for load in found.loads) > 0
    assert found.loads[0].streams[0].clat is not None
    assert output.command
    assert output.log.count(b",") > 1


def require_named(kept: Kept) -> None:
    """Hold that what a rig keeps has a name and says something."""
    assert all(name and content for name, content in kept.captures.items())
    for name, content in kept.captures.items():
        if name.endswith(".json"):
            json.loads(content)
