# SPDX-License-Identifier: Apache-2.0
"""Before a race every configuration is brought up once; one that cannot be is left out, and the others race."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.analyse.search_worlds import study_of

from virtune.bench.port import Bench, DiskImageSpec, Keep, LoadJob, LoadOutput, Window
from virtune.bench.scratch import Scratch
from virtune.fio.generator import Clients
from virtune.flows.run.trial import Tools
from virtune.flows.run.tune import those_that_come_up
from virtune.model.errors import LoadError, NotInForceError, PreconditionError, RigError, VirtuneError
from virtune.model.event import Event
from virtune.model.evidence import Changeover, Check, InForce
from virtune.model.stack import Disk, NbdTarget, Stack, Target
from virtune.model.study import Study
from virtune.shell import Warden


@dataclass(slots=True, kw_only=True)
class Up:
    """A stack of which only the verified settings are known."""

    in_force: InForce
    target: Target = field(default_factory=lambda: NbdTarget(socket="", export="", size_bytes=1))
    processes: Mapping[str, int] = field(default_factory=dict)
    image: Path | None = None
    command: str = ""
    changeover: Changeover | None = None

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        raise LoadError("nothing is loaded here")


class Rigs:
    """Brings stacks up, or not, by the IOPS that they are limited to."""

    def __init__(self, ends: Mapping[int | None, VirtuneError | Check]) -> None:
        self.ends = ends

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[Bench]:
        end = self.ends.get(stack.disk.throttle_iops)
        if isinstance(end, VirtuneError):
            raise end
        yield Up(in_force=InForce(checks=() if end is None else (end,)))


def tools(rigs: Rigs, directory: Path) -> Tools:
    return Tools(
        programs={},
        clients=Clients(engines=frozenset()),
        rigs=rigs,
        scratch=Scratch(directory, span_bytes=1, say=lambda _: None),
        warden=Warden("come-up"),
        target=None,
    )


def study() -> Study:
    found = study_of(["base", "a", "b", "c"])
    disk = Disk(backend="null-co")
    limits = (None, 100, 200, 300)
    arms = tuple(
        replace(arm, stack=Stack(disk=replace(disk, throttle_iops=limit)))
        for arm, limit in zip(found.arms, limits, strict=True)
    )
    return replace(found, arms=arms)


NOT_SO = Check(setting="disk.aio", asked="io_uring", found="threads", proof="made up")


def test_an_arm_that_is_refused_or_runs_as_something_else_is_left_out_with_the_reason(tmp_path: Path) -> None:
    rigs = Rigs({100: RigError("QEMU refused", hint="no such property"), 200: NOT_SO})
    said: list[Event] = []
    found = those_that_come_up(study(), tools(rigs, tmp_path), said.append)
    assert found.search is not None
    assert found.search.ranked == ("base", "c")
    assert [arm.name for arm in found.arms] == ["base", "c"]
    reasons = {one.what: one.why for one in found.search.removed}
    assert reasons["a"] == "does not start: QEMU refused: no such property"
    assert "disk.aio=io_uring was requested, but threads is running" in reasons["b"]
    assert said


def test_a_baseline_that_is_not_what_was_asked_for_ends_it(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="the baseline does not start") as caught:
        those_that_come_up(study(), tools(Rigs({None: NOT_SO}), tmp_path), lambda _: None)
    assert not isinstance(caught.value, NotInForceError)


def test_a_guest_under_emulation_is_not_left_out(tmp_path: Path) -> None:
    emulated = Check(setting="accelerator", asked="tcg", found="tcg", proof="made up")
    with pytest.raises(PreconditionError, match="software emulation"):
        those_that_come_up(study(), tools(Rigs({100: emulated}), tmp_path), lambda _: None)
