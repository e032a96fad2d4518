# SPDX-License-Identifier: Apache-2.0
"""What surrounds a load on this host: its CPUs, the page cache, a loud neighbour."""

import os
import sys
from pathlib import Path

import pytest
from tests.bench.loading import raw_job, run
from tests.conftest import eventually

from virtune import shell
from virtune.bench.load import pin_check, pin_load
from virtune.bench.metal import MetalSession
from virtune.bench.port import DiskImageSpec
from virtune.bench.surroundings import cache_state_checks, neighbour, set_cache
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.workloads import parse_workload
from virtune.model.errors import LoadError
from virtune.model.facts import Residency
from virtune.model.stack import CacheState, FileTarget, Stack
from virtune.probe.images import cachestat
from virtune.probe.process import Process

SIZE = 4 * 1024**2

THREADS = """
import threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,)).start()
"""


@pytest.fixture
def file(scratch_directory: Path) -> Path:
    """A file on a disk, not in memory, which the page cache has."""
    path = scratch_directory / f"surroundings-{os.getpid()}"
    path.write_bytes(os.urandom(SIZE))
    return path


def cached(path: Path) -> int:
    found = cachestat(path)
    assert isinstance(found, Residency)
    return found.cached_bytes


def test_the_page_cache_is_dropped_filled_or_left(file: Path) -> None:
    set_cache([file], "cold")
    assert cached(file) < SIZE / 50
    (check,) = cache_state_checks([file], "warm")
    assert (check.agrees, check.found) == (False, "cold")
    set_cache([file], "as-found")
    assert cached(file) < SIZE / 50
    set_cache([file], "warm")
    for state in ("warm", "as-found"):
        (check,) = cache_state_checks([file], state)
        assert check.agrees is True
        assert f"{SIZE // 1024**2} MiB of" in check.proof
    assert cache_state_checks([file], "cold") == ()
    file.unlink()


@pytest.mark.parametrize(("state", "invalidates"), [("cold", "1"), ("warm", "0"), ("as-found", "0")])
def test_fio_drops_only_a_cache_that_is_to_be_cold(state: CacheState, invalidates: str) -> None:
    target = FileTarget(path="/file", size_bytes=SIZE, keeps_cache=state != "cold")
    workload = parse_workload("rw=randread,direct=0")[0]
    clients = Clients(engines=frozenset({"psync"}), installed=False)
    job = fio_job(workload, target, seconds=1, ramp_seconds=0, seed=1, clients=clients)
    assert f"invalidate={invalidates}" in job.text.splitlines()


@pytest.mark.real
def test_a_load_is_pinned_with_all_its_threads() -> None:
    mine = min(os.sched_getaffinity(0))
    words = [sys.executable, "-c", THREADS]
    with shell.Warden(f"pinned-{os.getpid()}") as warden, warden.running(words, name="load") as child:
        assert eventually(lambda: len(list(Process(child.pid).threads())) == 4, seconds=60)
        assert pin_check(child.pid, None) == ()
        pin_load(child.pid, str(mine))
        (check,) = pin_check(child.pid, str(mine))
        assert check.agrees is True
        (check,) = pin_check(child.pid, "4000")
        assert check.found == str(mine)
        with pytest.raises(LoadError, match="was refused"):
            pin_load(child.pid, "4000")


@pytest.mark.real
@pytest.mark.parametrize("kind", ["cpu", "io"])
def test_a_neighbour_is_loud_and_ends_with_the_trial(file: Path, kind: str) -> None:
    with shell.Warden(f"neighbour-{kind}-{os.getpid()}") as warden:
        with neighbour(kind, warden, lambda: file) as loud:  # type: ignore[arg-type]
            assert loud.pid is not None
            assert eventually(lambda: loud.check()[0].agrees is True)
        assert not Process(loud.pid).exists
    with shell.Warden(f"quiet-{os.getpid()}") as warden, neighbour("none", warden, lambda: file) as none:
        assert (none.pid, none.check()) == (None, ())
    file.unlink()


@pytest.mark.real
def test_a_load_of_a_few_requests_that_begins_late_is_excused_and_not_taken_for_another(
    file: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "slow-fio"
    # it is looked at while it does nothing yet; its five requests are over before the next look
    slow.write_text(f'#!/bin/sh\nsleep 0.4\nexec {shell.find("fio")} "$@"\n')
    slow.chmod(0o755)
    words = "ioengine=libaio\nrw=randread\nbs=4k\ndirect=1\nnumber_ios=5\nallow_file_create=0"
    with shell.Warden(f"late-{os.getpid()}") as warden:
        ground = DiskImageSpec(image=file, size_bytes=SIZE, writes=False)
        with MetalSession(warden).up(Stack(rig="metal"), ground) as bench:
            job = f"[each]\n{words}\nfilename={file}\nsize={SIZE}\n"
            counted = "name=each,rw=randread,bs=4k,number_ios=5"
            loaded = run(bench, raw_job(job, engine="libaio", workload=counted, program=str(slow)), seconds=0.2)
    named = {check.setting: check for check in loaded.checks}
    assert named.keys() >= {"load.engine", "load.direct"}
    assert all(check.found is not None or check.hidden for check in loaded.checks), loaded.checks
    file.unlink()
