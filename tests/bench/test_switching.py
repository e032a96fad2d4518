# SPDX-License-Identifier: Apache-2.0
"""Arms switched in one process: quickly, leaving nothing behind, and proven although the process has a past."""

import contextlib
import os
import signal
import statistics
from pathlib import Path

import pytest
from tests.bench.loading import ground, load, load_until_seen
from tests.conftest import SPAN, marked_processes

from virtune.bench.daemon import DaemonBench, DaemonSession
from virtune.bench.port import DiskImageSpec, Session
from virtune.bench.scratch import Scratch
from virtune.bench.verify import require_verified
from virtune.model.errors import LoadError, NotInForceError, RigError
from virtune.model.evidence import Changeover
from virtune.model.stack import Disk, Stack
from virtune.model.text import Bytes
from virtune.probe.process import Process
from virtune.shell import Warden

pytestmark = pytest.mark.real

MAIN_LOOP = {
    engine: Stack(export="vhost-user-blk", iothread=False, disk=Disk(aio=engine))
    for engine in ("threads", "native", "io_uring")
}
"""An IOThread takes its io_uring with it when it goes; a main loop keeps what it ever had."""

ARMS = {
    **{f"main {engine}": stack for engine, stack in MAIN_LOOP.items()},
    "native": Stack(export="vhost-user-blk", poll_max_ns=0, disk=Disk(aio="native")),
    "io_uring": Stack(export="vhost-user-blk", num_queues=2, disk=Disk(aio="io_uring", cache="writeback")),
    "limited": Stack(export="vhost-user-blk", disk=Disk(throttle_iops=5000, throttle_bps=Bytes(50 * 1024**2))),
    "nbd": Stack(disk=Disk(aio="io_uring")),
    "nbd qcow2": Stack(disk=Disk(aio="native", format="qcow2", cluster_size=Bytes(131072))),
    "fuse": Stack(export="fuse", iothread=True, disk=Disk(aio="threads", cache="directsync")),
    "null": Stack(export="vhost-user-blk", disk=Disk(backend="null-co")),
}


def waits(process: int) -> dict[Path, float]:
    """How long this thread, and each of that process, has waited for a CPU, in seconds."""
    found = {}
    for task in (Path("/proc/thread-self"), *Path(f"/proc/{process}/task").iterdir()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # an IOThread goes with its arm
            found[task] = int((task / "schedstat").read_text().split()[1]) / 1e9
    return found


def waited(since: dict[Path, float], until: dict[Path, float]) -> float:
    """What others on the CPUs added between two looks: no cost of what was done."""
    return sum(seconds - since.get(task, 0.0) for task, seconds in until.items())


def changeover(bench: object) -> Changeover:
    assert isinstance(bench, DaemonBench)
    assert bench.changeover is not None
    return bench.changeover


@pytest.mark.first
@pytest.mark.parametrize("switches", [80, pytest.param(200, marks=pytest.mark.long)])
def test_many_switches_in_one_process_are_quick_and_leave_nothing(
    switches: int, scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    grounds = {name: ground(stack, scratch, warden) for name, stack in ARMS.items()}
    ways: list[Changeover] = []
    open_files, memory, seconds = [], [], []
    for _ in range(switches // len(ARMS)):
        for name, stack in ARMS.items():
            before = waits(ways[-1].process) if ways else {}
            with rigs.up(stack, grounds[name]) as bench:
                way = changeover(bench)
                seconds.append(way.seconds - waited(before, waits(way.process)))
                require_verified(name, bench.in_force.checks)
                seen = {check.setting: check.found for check in bench.in_force.checks}
                assert seen["disk.format"] == stack.disk.format
                if stack.disk.backend == "file":
                    assert seen["O_DIRECT"] == ("on" if stack.disk.cache in ("none", "directsync") else "off")
                ways.append(changeover(bench))
                if name == "null":
                    place = Path(f"/proc/{ways[-1].process}")
                    open_files.append(len(list((place / "fd").iterdir())))
                    memory.append(int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))
    assert {way.why for way in ways[1:]} == {""}
    assert [way.swapped for way in ways] == [None, *["export"] * (switches - 1)]
    assert (ways[-1].carried, len({way.process for way in ways})) == (switches - 1, 1)
    # 15 ms is the median on an idle machine; beside two busy loops it is 55 ms, and less the waits for a CPU 27 ms
    assert statistics.median(seconds[1:]) <= 0.05
    assert open_files[-1] == open_files[1]
    assert memory[-1] - memory[4] < 2 * 1024**2


def test_every_engine_is_proven_in_a_process_that_has_carried_the_others(
    scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    before_load = []
    for engine in ("io_uring", "native", "threads", "io_uring", "native"):
        stack = MAIN_LOOP[engine]
        with rigs.up(stack, ground(stack, scratch, warden)) as bench:
            load_until_seen("disk.aio", bench, warden)
        require_verified(engine, bench.in_force.checks)
        seen = [check for check in bench.in_force.checks if check.setting == "disk.aio"]
        assert (seen[-1].found, "under load" in seen[-1].proof) == (engine, True)
        before_load.append([check.found for check in seen if "under load" not in check.proof])
    # what the first two arms left is still there, and that it is proves nothing
    assert before_load == [["io_uring"], ["native"], [None], [None], [None]]


@pytest.mark.parametrize("asked", ["native", "io_uring"])
@pytest.mark.parametrize("iothread", [False, True])
@pytest.mark.usefixtures("lying_path")
def test_what_an_earlier_arm_left_does_not_hide_that_another_engine_runs(
    asked: str,
    iothread: bool,
    scratch: Scratch,
    warden: Warden,
    rigs: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = tmp_path / "honest"
    monkeypatch.setenv("HONEST", str(honest))
    honest.touch()
    for engine in ("io_uring", "native"):
        stack = MAIN_LOOP[engine]
        with rigs.up(stack, ground(stack, scratch, warden)) as bench:
            load(bench, warden, seconds=0.3)
        require_verified(engine, bench.in_force.checks)
    honest.unlink()
    stack = Stack(export="vhost-user-blk", iothread=iothread, disk=MAIN_LOOP[asked].disk)
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        held = Process(changeover(bench).process).rings()
        assert (held.count("io_uring"), held.count("native")) == (1, 1)
        require_verified("lie", bench.in_force.checks)  # nothing gives it away until it is loaded
        load_until_seen("disk.aio", bench, warden)
        assert changeover(bench).carried == 2
    with pytest.raises(NotInForceError, match=f"disk.aio={asked} was requested, but threads is running"):
        require_verified("lie", bench.in_force.checks)


def test_a_new_process_is_started_when_asked_and_when_the_last_one_died_or_failed(
    scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    stack = ARMS["native"]
    here = ground(stack, scratch, warden)
    seen = []
    for restart in (False, False, True):
        with rigs.up(stack, here, restart=restart) as bench:
            seen.append(changeover(bench))
    os.kill(seen[-1].process, signal.SIGKILL)
    with rigs.up(stack, here) as bench:
        seen.append(changeover(bench))
    with pytest.raises(LoadError), rigs.up(stack, here):
        raise LoadError("as a load that failed")
    with (
        pytest.raises(RigError, match="No such file"),
        rigs.up(stack, DiskImageSpec(image=Path("/none"), size_bytes=SPAN, writes=False)),
    ):
        pytest.fail("a stack without its image came up")
    with rigs.up(stack, here) as bench:
        seen.append(changeover(bench))
    died = seen[3].why  # whoever looks at once sees it go, and else that it is gone
    assert died == "the one before ended by itself" or died.startswith("the one before failed: QEMU's monitor went")
    assert [seen[n].why for n in (0, 1, 2, 4)] == [
        "the first one",
        "",
        "asked for",
        "the trial in the one before failed",
    ]
    assert [one.swapped for one in seen] == [None, "export", None, None, None]
    assert [one.carried for one in seen] == [0, 1, 0, 0, 0]
    assert seen[0].process == seen[1].process
    assert len({one.process for one in seen}) == 4
    assert len(marked_processes()) == 1


def test_a_daemon_that_hangs_is_replaced(scratch: Scratch, warden: Warden, rigs: Session) -> None:
    stack = ARMS["native"]
    here = ground(stack, scratch, warden)
    with rigs.up(stack, here) as bench:
        hung = changeover(bench).process
        os.kill(hung, signal.SIGSTOP)
    with rigs.up(stack, here) as bench:
        assert "did not let go of its disk: QEMU's monitor said nothing" in changeover(bench).why
        load(bench, warden, seconds=0.2)
    assert not Path(f"/proc/{hung}").exists()


def test_where_the_kernel_hides_what_an_engine_completes_each_arm_gets_a_process(
    scratch: Scratch, warden: Warden, tmp_path: Path
) -> None:
    rig = DaemonSession(warden, proc=tmp_path)
    stack = MAIN_LOOP["native"]
    here = ground(stack, scratch, warden)
    try:
        with rig.up(MAIN_LOOP["io_uring"], here) as bench:
            old = changeover(bench).process
        place = tmp_path / str(old)
        (place / "fd").mkdir(parents=True)
        (place / "fdinfo").mkdir()
        (place / "fd" / "11").symlink_to("anon_inode:[io_uring]")
        (place / "fdinfo" / "11").write_text("pos:\t0\nflags:\t02000002\nmnt_id:\t14\nUserFiles:\t0\nUserBufs:\t0\n")
        assert Process(old, tmp_path).rings().places == {("io_uring", 11): None}  # as Linux 5.10 shows it
        with rig.up(ARMS["null"], ground(ARMS["null"], scratch, warden)) as bench:
            assert changeover(bench).process == old  # nothing of that stack's could be hidden
        with rig.up(stack, here) as bench:
            assert changeover(bench).process != old
            assert changeover(bench).why.startswith("this kernel does not show whether what an earlier arm left")
    finally:
        rig.close()
