# SPDX-License-Identifier: Apache-2.0
"""The sampler on this machine: what a real process, file and disk do is in what it kept."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virtune.analyse.trial.counters import read_counters
from virtune.analyse.trial.usage import use
from virtune.bench.counters import Sampler
from virtune.probe.devices import backing_of

BURN = """import time; input(); t = time.process_time()
while time.process_time() < t + 0.4: pass
print(flush=True); input()"""
FORK = f"import os\nif os.fork() == 0:\n exec({BURN!r})\nelse: os.wait()"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def start(children: list[subprocess.Popen[str]], program: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    children.append(child)
    return child


def lines(sampler: Sampler) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sampler.content().splitlines()]


@pytest.mark.parametrize("program", [BURN, FORK], ids=["itself", "its child"])
def test_the_cpu_time_of_a_process_and_its_children_is_counted(
    program: str, children: list[subprocess.Popen[str]]
) -> None:
    with Sampler() as sampler:
        child = start(children, program)
        sampler.add_process("load", child.pid)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout is not None
        child.stdout.readline()
    found = use(read_counters(sampler.content())).role("load")
    assert found is not None
    assert 0.3 < found.cpu_seconds < 1.0
    assert found.wait_seconds is not None
    assert found.cpu_seconds == pytest.approx(found.user_seconds + found.system_seconds, abs=0.05)
    assert sum(thread.cpu_seconds for thread in found.threads) == pytest.approx(found.cpu_seconds)


def test_disk_and_process_see_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    backing = backing_of(path)
    if not backing.disks:
        pytest.skip(f"{tmp_path} has no block device: {backing.gap}; set TMPDIR to a disk")
    with Sampler(devices=backing.names, processes={"us": os.getpid()}, files={"file": path}) as sampler:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        sampler.sample(mark="made")
        os.write(descriptor, os.urandom(16 << 20))
        os.fsync(descriptor)
        os.close(descriptor)
    counters = read_counters(sampler.content())
    found = use(counters, begin_ns=counters.mark("made"))
    disk, us = found.disk(backing.disks[0].name), found.role("us")
    assert disk is not None
    assert us is not None
    assert us.written_bytes is not None
    assert us.written_bytes >= 16 << 20
    assert disk.written_bytes >= 16 << 20
    assert disk.writes > 0
    share = found.foreign_share(disk.name, ("us",))
    assert share is not None
    assert 0 <= share < 1
    (cache,) = found.caches
    assert cache.end_bytes - cache.begin_bytes == 16 << 20


@pytest.mark.first
def test_samples_come_on_time_and_do_not_drift() -> None:
    with Sampler(interval_seconds=0.05) as sampler:
        time.sleep(1.02)
    times = [line["t"] / 1e9 for line in lines(sampler)[1:]]
    due = (times[-1] - times[0]) / 0.05  # 20, unless a busy machine slept for longer
    assert 0.5 * due <= len(times) <= due + 3  # start, end, and those between; a busy machine may drop some
    # each is due at a multiple of the interval after the start, however long the one before took
    late = [(moment - times[0]) % 0.05 for moment in times[1:-1]]
    assert sorted(late)[len(late) // 2] < 0.025


def test_processes_that_vanish_are_left_out(children: list[subprocess.Popen[str]]) -> None:
    with Sampler(interval_seconds=0.001) as sampler:
        for _ in range(12):
            child = start(children, "import threading\nfor _ in range(20): threading.Thread(target=input).start()")
            sampler.add_process("load", child.pid)
            time.sleep(0.02)
            child.kill()
        for child in children:
            child.wait()
        sampler.sample(mark="gone")
    last = lines(sampler)[-1]
    assert last["threads"] == {}
    found = use(read_counters(sampler.content()))
    role = found.role("load")
    assert role is not None
    assert role.ended > 0
    assert any("ended on the way" in gap for gap in found.gaps)


def test_a_pid_that_is_not_there_is_no_error() -> None:
    with Sampler(processes={"nobody": 2**22 + 1}, files={"nothing": "/nowhere"}, devices=("nosuch",)) as sampler:
        pass
    first = lines(sampler)[1]
    assert (first["threads"], first["residency"], first["diskstats"]) == ({}, {}, [])


def test_threads_are_told_apart_by_name(children: list[subprocess.Popen[str]]) -> None:
    program = (
        "import threading, pathlib\n"
        "def work():\n"
        " pathlib.Path(f'/proc/self/task/{threading.get_native_id()}/comm').write_text('odd (name) x')\n"
        " print(flush=True); input()\n"
        "threading.Thread(target=work).start()"
    )
    child = start(children, program)
    assert child.stdout is not None
    child.stdout.readline()
    with Sampler(processes={"daemon": child.pid}) as sampler:
        pass
    threads = lines(sampler)[-1]["threads"]["daemon"].values()
    assert min(values[0] for values in threads) == "odd (name) x"
    assert read_counters(sampler.content()).samples[0].processes["daemon"][child.pid].read_bytes is not None


def test_samples_may_be_asked_for_from_any_thread() -> None:
    with Sampler(interval_seconds=0.005) as sampler:
        askers = [
            threading.Thread(target=lambda: [sampler.sample(mark="asked") for _ in range(20)]) for _ in range(4)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    counters = read_counters(sampler.content())
    assert sum(sample.mark == "asked" for sample in counters.samples) == 80
    assert (counters.samples[0].mark, counters.samples[-1].mark) == ("start", "end")
