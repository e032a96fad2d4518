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
from virtune.flows.run.prepare import all_come_up
from virtune.flows.run.trial import Tools
from virtune.flows.run.tune import those_that_come_up
from virtune.model.errors import (
    CorruptDataError,
    LoadError,
    NotInForceError,
    PreconditionError,
    RigError,
    VirtuneError,
)
from virtune.model.event import Event, StepEnded, StepProgressed, StepStarted
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
    seen: Mapping[str, str] = field(default_factory=dict)

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


@dataclass(slots=True, kw_only=True)
class Loaded(Up):
    """A stack that may be loaded, and what that ends in, by the number of the load."""

    loads: list[str]
    ends: Mapping[int, str]

    def run(self, jobs: Sequence[LoadJob], window: Window, keep: Keep) -> LoadOutput:
        self.loads += [f"{len(jobs)} of {one.workload.name}" for one in jobs[:1]]
        if (said := self.ends.get(len(self.loads) - 1)) is not None:
            raise LoadError(said, hint="look there")
        return LoadOutput(output=b"", log=b"", command="", checks=())


@dataclass(slots=True, kw_only=True)
class LoadedRigs:
    """Brings stacks up that keep what is written to them, or not."""

    ends: Mapping[int, str] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    ups: int = 0

    @contextlib.contextmanager
    def up(self, stack: Stack, ground: DiskImageSpec, *, restart: bool = False) -> Iterator[Bench]:
        self.ups += 1
        target = NbdTarget(socket="/s", export="e", size_bytes=2**26)
        yield Loaded(in_force=InForce(), target=target, loads=self.loads, ends=self.ends)


def without_images(arms: str) -> Study:
    found = study_of(list(arms))
    return replace(found, arms=tuple(replace(arm, stack=Stack(disk=Disk(backend="null-co"))) for arm in found.arms))


def checked(rigs: LoadedRigs, directory: Path, *, again: bool, check: bool = True, arms: str = "ab") -> list[Event]:
    """Bring the arms of a study up, as it begins or ends; returns what is said."""
    study = replace(without_images(arms), check_data=check, span_bytes=2**26)
    said: list[Event] = []
    made = replace(tools(Rigs({}), directory), rigs=rigs, clients=Clients(engines=frozenset({"nbd"})))
    found = all_come_up(study, made, said.append, again=again)
    assert set(found) == (set(arms) if check else set())
    for one in found.values():
        assert (one.setting, one.asked, one.found) == ("data", "kept", "kept")
        assert f"(seed {study.seed + again}) written, flushed and read back through it" in one.proof
    return said


def test_arms_are_brought_up_once_and_their_data_is_checked_where_that_is_asked(tmp_path: Path) -> None:
    rigs = LoadedRigs()
    assert checked(rigs, tmp_path, again=False, check=False) == []
    assert (rigs.ups, rigs.loads) == (2, [])
    assert checked(rigs, tmp_path, again=True, check=False) == []
    assert rigs.ups == 2, "at the end nothing is to be seen without data"
    for again, arms, words in ((False, "ab", "all arms keep"), (True, "ab", "all arms still keep"),
                               (True, "a", "the arm still keeps"), (False, "a", "the arm keeps")):  # fmt: skip
        rigs = LoadedRigs()
        first, *shares, last = checked(rigs, tmp_path, again=again, arms=arms)
        what = f"checking that {words} what is written to them"
        assert (first, last) == (StepStarted(what=what), StepEnded(what=what))
        each = [StepProgressed(what=what, fraction=(at + 1) / len(arms)) for at in range(len(arms))]
        assert shares == each
        assert (rigs.ups, len(rigs.loads)) == (2 * len(arms), 3 * len(arms)), "written, read, and written over"


@pytest.mark.parametrize("again", [False, True])
def test_an_arm_that_does_not_keep_its_data_is_named_and_written_over(again: bool, tmp_path: Path) -> None:
    rigs = LoadedRigs(ends={1: "verify failed at file /x offset 4096, length 512"})
    with pytest.raises(CorruptDataError, match=r"arm 'a' does not keep its data: .* is not what") as found:
        checked(rigs, tmp_path, again=again)
    assert ("trust no figure" in (found.value.hint or "")) is again
    assert len(rigs.loads) == 3, "what was written does not stay, and no other arm is looked at"
    for number in (0, 1):
        with pytest.raises(LoadError, match="the data of arm 'a' cannot be checked: no disk: look there"):
            checked(LoadedRigs(ends={number: "no disk"}), tmp_path, again=again)


def test_an_arm_that_does_not_start_is_named_with_the_reason(tmp_path: Path) -> None:
    study = without_images("ab")
    for hint, words in (("a flag", "arm 'a' does not start: no: a flag"), (None, "arm 'a' does not start: no")):
        rigs = Rigs({None: RigError("no", hint=hint)})
        with pytest.raises(PreconditionError) as found:
            all_come_up(study, tools(rigs, tmp_path), lambda _: None)
        assert found.value.message == words
