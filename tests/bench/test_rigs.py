# SPDX-License-Identifier: Apache-2.0
"""What every rig promises, over real stacks: it comes up, carries load, shows its verified settings, leaves nothing
behind.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from tests.bench.loading import Kept, ground, here, load, load_until_seen, run, seen_under_load
from tests.conftest import SPAN, User, eventually, generator, marked_processes

from virtune.bench.port import Bench, DiskImageSpec, LoadJob, Session
from virtune.bench.scratch import Scratch
from virtune.bench.verify import require_verified
from virtune.dialects.qemu.images import files_of
from virtune.fio.generator import Clients
from virtune.fio.job import fio_job
from virtune.fio.workloads import parse_workload
from virtune.model.errors import LoadError, NotInForceError, RigError
from virtune.model.stack import Disk, Stack
from virtune.model.text import Bytes, setting_text
from virtune.shell import Warden

pytestmark = pytest.mark.real

STACKS = {
    "metal": Stack(rig="metal"),
    "threads": Stack(disk=Disk(aio="threads")),
    "native": Stack(disk=Disk(aio="native")),
    "io_uring": Stack(disk=Disk(aio="io_uring")),
    "writeback": Stack(disk=Disk(aio="io_uring", cache="writeback")),
    "writethrough": Stack(disk=Disk(cache="writethrough")),
    "directsync": Stack(disk=Disk(aio="native", cache="directsync")),
    "unsafe": Stack(disk=Disk(cache="unsafe")),
    "fuse": Stack(export="fuse", disk=Disk(aio="native")),
    "fuse-qcow2": Stack(export="fuse", disk=Disk(aio="io_uring", format="qcow2")),
    "qcow2": Stack(disk=Disk(format="qcow2", cluster_size=Bytes(131072), extended_l2=True, lazy_refcounts=False)),
    "qcow2-full": Stack(disk=Disk(format="qcow2", preallocation="full", l2_cache_size=Bytes(1024**2))),
    "chain": Stack(disk=Disk(format="qcow2", aio="native", backing_depth=3, l2_cache_size=Bytes(1024**2))),
    "data-file": Stack(disk=Disk(format="qcow2", aio="io_uring", data_file=True)),
    "luks": Stack(disk=Disk(format="qcow2", encryption="luks", backing_depth=0, data_file=False)),
    "fuse-chain": Stack(export="fuse", disk=Disk(format="qcow2", cache="unsafe", backing_depth=1)),
    "limited": Stack(disk=Disk(throttle_iops=5000, throttle_bps=Bytes(50 * 1024**2))),
    "unmap": Stack(disk=Disk(aio="native", discard="unmap", detect_zeroes="unmap")),
    "fuse-iothread": Stack(export="fuse", iothread=True, poll_max_ns=0, disk=Disk(aio="native")),
    "vhost-threads": Stack(export="vhost-user-blk"),
    "vhost-native": Stack(export="vhost-user-blk", disk=Disk(aio="native")),
    "vhost-io_uring": Stack(export="vhost-user-blk", poll_max_ns=0, disk=Disk(aio="io_uring")),
    "vhost-two-queues": Stack(export="vhost-user-blk", num_queues=2, disk=Disk(aio="io_uring", cache="writeback")),
    "vhost-qcow2": Stack(export="vhost-user-blk", disk=Disk(aio="native", format="qcow2")),
    "vhost-main-loop": Stack(export="vhost-user-blk", iothread=False, disk=Disk(aio="io_uring")),
    "vhost-limited": Stack(export="vhost-user-blk", disk=Disk(throttle_iops=5000, throttle_bps=Bytes(50 * 1024**2))),
    "vhost-null": Stack(export="vhost-user-blk", disk=Disk(backend="null-co")),
    "null": Stack(disk=Disk(backend="null-co", null_latency_ns=100_000)),
}


def shown_by(bench: Bench) -> set[str]:
    """The settings that were seen under load."""
    return {check.setting for check in seen_under_load(bench)}


def found_of(bench: Bench) -> dict[str, str]:
    """What was found of each setting."""
    return {check.setting: check.found for check in bench.in_force.checks if check.found is not None}


def open_files(pid: int) -> set[str]:
    """What a process has open; nothing where it has ended."""
    found = set[str]()
    with contextlib.suppress(FileNotFoundError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(entry))
    return found


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_comes_up_carries_load_and_shows_its_settings(
    name: str, scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    stack = STACKS[name]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        output = load(bench, warden, seconds=0.25)
        if stack.in_iothread and not stack.disk.throttle_iops and "export.iothread" not in shown_by(bench):
            load_until_seen("export.iothread", bench, warden)
        if stack.rig == "storage-daemon" and "disk.aio" not in found_of(bench) and stack.disk.backend == "file":
            load_until_seen("disk.aio", bench, warden)
    assert b'"total_ios"' in output
    require_verified(name, list(bench.in_force.checks))
    found = found_of(bench)
    if stack.rig == "storage-daemon" and stack.disk.backend == "file":
        assert found["disk.aio"] == stack.disk.aio
        assert found["O_DIRECT"] == ("on" if stack.disk.cache in ("none", "directsync") else "off")
        assert found["disk.format"] == stack.disk.format
        assert found["cache.no-flush"] == ("on" if stack.disk.cache == "unsafe" else "off")
    if stack.export == "vhost-user-blk":
        assert found["export.num_queues"] == str(stack.queues)
        assert found["export.iothread"] == ("on" if stack.in_iothread else "off")
    if stack.in_iothread and not stack.disk.throttle_iops:
        assert {one.found for one in seen_under_load(bench) if one.setting == "export.iothread"} == {"on"}
    if stack.poll_max_ns is not None:
        assert found["iothread.poll_max_ns"] == str(stack.poll_max_ns)
    if stack.disk.throttle_iops:
        assert found["disk.throttle_iops"] == "5000"
        assert found["disk.throttle_bps"] == str(50 * 1024**2)
    if name == "qcow2":
        assert found["disk.cluster_size"] == "131072"
        assert found["disk.extended_l2"] == "on"
    layout = {name: found.get(f"disk.{name}") for name in ("backing_depth", "data_file", "encryption")}
    assert layout == {
        name: None if (one := getattr(stack.disk, name)) is None else setting_text(one) for name in layout
    }
    for pid in here(bench).processes.values():  # which may carry the next stack, and has let go of this one's image
        assert open_files(pid).isdisjoint(map(str, files_of(stack.disk, here(bench).image or Path())))


def test_what_the_daemon_does_not_show_is_said_to_be_unseen_and_never_to_agree(
    scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    stack = STACKS["directsync"]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        cache = next(check for check in bench.in_force.checks if check.setting == "disk.cache")
    assert cache.found is None
    assert cache.agrees is None


def test_what_is_only_read_is_opened_read_only(scratch: Scratch, warden: Warden, rigs: Session) -> None:
    stack = STACKS["native"]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        image = here(bench).image
        assert image is not None
        pid = here(bench).processes["daemon"]
        links = {entry.name: os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        number = next(name for name, link in links.items() if link == str(image.resolve()))
        flags = Path(f"/proc/{pid}/fdinfo/{number}").read_text().split("flags:")[1].split()[0]
    assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY


@pytest.mark.parametrize("engine", ["native", "io_uring"])
@pytest.mark.usefixtures("lying_path")
def test_a_daemon_that_runs_another_engine_than_asked_is_found_out(
    engine: str, scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    stack = STACKS[engine]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        load_until_seen("disk.aio", bench, warden)
        with pytest.raises(NotInForceError, match=f"disk.aio={engine} was requested, but threads is running"):
            require_verified("x", list(bench.in_force.checks))
        assert [check.found for check in seen_under_load(bench)] == ["threads"]


@pytest.mark.parametrize(
    ("lie", "stack", "message"),
    [
        ("aio", STACKS["vhost-native"], "disk.aio=native was requested, but threads is running"),
        ("aio", STACKS["vhost-io_uring"], "disk.aio=io_uring was requested, but threads is running"),
        ("iothread", STACKS["vhost-native"], "export.iothread=on was requested, but off is running"),
        ("queues", STACKS["vhost-two-queues"], "export.num_queues=2 was requested, but 1 is running"),
        ("poll", STACKS["vhost-io_uring"], "iothread.poll_max_ns=0 was requested, but 32768 is running"),
    ],
)
@pytest.mark.usefixtures("lying_path")
def test_a_daemon_that_serves_vhost_user_otherwise_than_asked_is_found_out(
    lie: str,
    stack: Stack,
    message: str,
    scratch: Scratch,
    warden: Warden,
    rigs: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIE", lie)
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        for setting in {"aio": ("disk.aio", "export.iothread"), "iothread": ("export.iothread",)}.get(lie, ()):
            if setting not in shown_by(bench):
                load_until_seen(setting, bench, warden)
        with pytest.raises(NotInForceError, match=message):
            require_verified("x", list(bench.in_force.checks))
        under_load = {check.setting: check.found for check in seen_under_load(bench)}
        if lie == "aio":  # workers do the I/O, and the IOThread still serves
            assert under_load == {"disk.aio": "threads", "export.iothread": "on"}


def test_one_export_is_loaded_again_and_again(scratch: Scratch, warden: Warden, rigs: Session) -> None:
    stack = STACKS["vhost-native"]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        for _ in range(5):
            load(bench, warden, seconds=0.2)


def test_qemu_s_own_words_come_through_when_it_refuses(rigs: Session, tmp_path: Path) -> None:
    with (
        pytest.raises(RigError, match=r"QEMU refused `blockdev-add`.*No such file"),
        rigs.up(STACKS["native"], DiskImageSpec(image=tmp_path / "none.raw", size_bytes=SPAN, writes=False)),
    ):
        pytest.fail("a stack without its image came up")
    assert marked_processes() == []


@pytest.mark.parametrize("victim", ["daemon", "load"])
@pytest.mark.parametrize("name", ["native", "vhost-native"])
def test_a_process_killed_under_load_is_a_load_error_that_names_it(
    name: str, victim: str, scratch: Scratch, warden: Warden, rigs: Session
) -> None:
    stack = STACKS[name]
    named = "qemu-storage-daemon was" if victim == "daemon" else "fio.*" if name == "native" else "virtune-load.*"

    begun = time.monotonic()
    with (
        pytest.raises(LoadError, match=f"^{named}.*killed by SIGKILL"),
        rigs.up(stack, ground(stack, scratch, warden)) as bench,
    ):
        daemon = here(bench).processes["daemon"]
        keep = Kept(lambda pid: os.kill(daemon if victim == "daemon" else pid, signal.SIGKILL))
        (workload,) = parse_workload("randread-4k")
        clients = Clients(engines=frozenset({"nbd"}))
        job = fio_job(workload, bench.target, seconds=90, ramp_seconds=0, seed=1, clients=clients)
        program = generator() if name == "vhost-native" else "fio"
        run(bench, LoadJob(job=job, workload=workload, program=program), seconds=5, keep=keep)
    assert time.monotonic() - begun < 60, "the load would have taken 90 s"
    assert eventually(lambda: marked_processes() == [])


def test_a_fuse_mount_is_gone_even_when_its_daemon_is_killed(scratch: Scratch, warden: Warden, rigs: Session) -> None:
    stack = STACKS["fuse"]
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        os.kill(here(bench).processes["daemon"], signal.SIGKILL)
    with rigs.up(stack, ground(stack, scratch, warden)) as bench:
        load(bench, warden, seconds=0.3)
    assert str(warden.directory) not in Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.0, marks=pytest.mark.long)])
def test_a_daemon_that_lies_is_found_out_however_short_its_load_is(
    seconds: float, lying_path: str, user: User
) -> None:
    """The half-way look of a short load comes before fio has done any I/O; it is looked at again until its end."""
    words = ["--vary", "disk.aio=io_uring,threads", "--rounds", "1", "--seconds", str(seconds), "--ramp", "50ms"]
    ran = user.run("compare", *words, "-q", path=lying_path, status=3)
    assert "disk.aio=io_uring was requested, but threads is running" in ran.stderr
