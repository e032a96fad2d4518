# SPDX-License-Identifier: Apache-2.0
"""`--wait-quiet`: it waits as long as the host is busy, says so, and gives up in time."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from virtune.bench.scratch import Scratch
from virtune.cli import run
from virtune.flows.probe import wait_until_quiet
from virtune.model.errors import PreconditionError
from virtune.model.event import Event, StepProgressed
from virtune.model.facts import BusyFacts, Pressure, Unknown


def busy_for(percents: list[float]) -> Callable[[], BusyFacts]:
    """A host whose tasks wait for CPU for these shares of the time, one look after the other."""
    shares: Iterator[float] = iter([*percents, *[percents[-1]] * 100])

    def look() -> BusyFacts:
        cpu = Pressure(resource="cpu", some_percent=next(shares), full_percent=0.0)
        return BusyFacts(load_1min=9.0, pressure=(cpu, Pressure(resource="io", some_percent=1.0, full_percent=0.0)))

    return look


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def waited(percents: list[float], seconds: float) -> tuple[float, list[Event]]:
    clock, said = Clock(), list[Event]()
    wait_until_quiet(seconds, said.append, busy=busy_for(percents), clock=clock, sleep=clock.sleep)
    return clock.now, said


def test_it_waits_until_tasks_wait_for_nothing_and_no_longer() -> None:
    assert waited([1.0], 60.0)[0] == 0.0
    after, said = waited([80.0, 30.0, 12.0, 4.0], 60.0)
    assert 0 < after < 10
    told = [one for one in said if isinstance(one, StepProgressed)]
    assert [one.what for one in told][:2] == [
        "waiting for a quiet host (cpu 80 %)",
        "waiting for a quiet host (cpu 30 %)",
    ]
    assert told[0].seconds_left == 60.0


def test_it_waits_for_another_virtune_in_the_same_scratch_directory(tmp_path: Path) -> None:
    clock = Clock()
    told: list[Event] = []

    def wait(seconds: float, scratch: Path) -> None:
        wait_until_quiet(seconds, told.append, busy=busy_for([1.0]), scratch=scratch, clock=clock, sleep=clock.sleep)

    wait(5.0, tmp_path / "never-made")
    wait(5.0, tmp_path)
    begun = clock.now
    with Scratch(tmp_path, span_bytes=1 << 20, say=lambda _: None):
        with pytest.raises(PreconditionError, match=r"not quiet after 5\.0 s: another virtune is measuring in "):
            wait(5.0, tmp_path)
        assert clock.now - begun == 5.0
        assert {one.what for one in told if isinstance(one, StepProgressed)} == {
            "waiting for a quiet host (another virtune)"
        }
    begun = clock.now
    wait(5.0, tmp_path)
    assert clock.now - begun < 5.0, "it has ended"


@pytest.mark.parametrize(
    "load",
    [
        ("--rw=randread", "--bs=128k", "--iodepth=4"),
        ("--rw=randrw", "--bs=64k", "--iodepth=16"),
        # which keeps a disk busy only where it gets a CPU after each I/O
        pytest.param(("--rw=randwrite", "--bs=4k", "--iodepth=1"), marks=pytest.mark.first),
    ],
)
def test_it_waits_for_a_neighbour_on_the_disk_whom_no_pressure_shows(
    load: tuple[str, ...], scratch_directory: Path
) -> None:
    """Asynchronous direct I/O, as of another QEMU: tasks wait for nothing."""
    file = scratch_directory / "neighbour"
    file.write_bytes(os.urandom(64 << 20))
    words = (
        "fio",
        "--name=n",
        f"--filename={file}",
        "--ioengine=libaio",
        "--direct=1",
        "--time_based",
        "--runtime=60",
    )
    told: list[Event] = []
    with subprocess.Popen([*words, *load], stdout=subprocess.DEVNULL) as neighbour:
        try:
            time.sleep(2)
            with pytest.raises(PreconditionError, match=r"not quiet after 3\.0 s: others moved .* which was busy"):
                wait_until_quiet(3.0, told.append, busy=busy_for([1.0]), scratch=scratch_directory)
            # what is measured is a target elsewhere, of which no disk is known: its own is looked at, and no other
            wait_until_quiet(3.0, told.append, busy=busy_for([1.0]), scratch=scratch_directory, target=Path("/proc"))
        finally:
            neighbour.terminate()
    assert any(isinstance(one, StepProgressed) and "%)" in one.what for one in told)
    file.unlink()


def test_it_gives_up_in_time_with_a_sentence() -> None:
    clock = Clock()
    with pytest.raises(PreconditionError, match=r"not quiet after 5\.0 s: tasks waited for cpu in 50 %"):
        wait_until_quiet(5.0, lambda _: None, busy=busy_for([50.0]), clock=clock, sleep=clock.sleep)
    assert clock.now == 5.0


@pytest.mark.parametrize(
    ("pressure", "why"),
    [
        (Unknown("the kernel counts no pressure stalls"), "the kernel counts no pressure stalls"),
        ((), "the kernel tells of no resource"),
        (
            (
                Pressure(resource="cpu", some_percent=Unknown("it cannot be read"), full_percent=0.0),
                Pressure(resource="io", some_percent=0.0, full_percent=0.0),
            ),
            "it cannot be read",
        ),
    ],
)
def test_a_kernel_that_does_not_tell_is_no_quiet_one(pressure: tuple[Pressure, ...] | Unknown, why: str) -> None:
    facts = BusyFacts(load_1min=0.0, pressure=pressure)
    with pytest.raises(PreconditionError, match=f"is not known: {why}"):
        wait_until_quiet(1.0, lambda _: None, busy=lambda: facts)


@pytest.mark.parametrize("verb", ["compare", "compare measure", "compare study run", "sweep", "tune", "host check"])
def test_every_verb_that_measures_can_wait(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--help-all" if verb != "host check" else "--help"]) == 0
    assert "--wait-quiet TIME" in capsys.readouterr().out
