# SPDX-License-Identifier: Apache-2.0
"""A host's own settings as arms: changed on a real disk, seen to run so, and put back however the run ends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.bench.bound import HALTING, THP, halting_file, told
from tests.bench.loading import raw_job, run
from tests.conftest import CALM, User, eventually
from tests.killed import dies

from virtune import warden
from virtune.bench.host_settings import FoundHost, files_of, host_set, settable
from virtune.bench.metal import MetalBench
from virtune.model.contradictions import contradictions
from virtune.model.errors import LoadError, PreconditionError, RefusedTargetError, RigError
from virtune.model.event import Event
from virtune.model.stack import FileTarget, Host, Machine, Stack
from virtune.shell import Warden

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("loop devices")]

OF_DISK = ("scheduler", "nr_requests", "rq_affinity", "nomerges", "wbt_lat_usec", "read_ahead_kb")
DIRTY = ("dirty_ratio", "dirty_bytes", "dirty_background_ratio", "dirty_background_bytes")
MANY = 2**33
"""More than this host lets be dirty unasked: less would make every test beside these wait for the disk."""

ALL = Host(
    scheduler="bfq", nr_requests=64, rq_affinity="2", nomerges="2", wbt_lat_usec=7000, read_ahead_kb=64,
    dirty_ratio=37, dirty_background_ratio=12, cstate_latency=20,
)  # fmt: skip


ON_DISK = Stack(rig="metal", host=ALL)


def unheard(_: Event) -> None: ...


class LoopDisk:
    """A disk of the test's own, in memory, with a filesystem on it."""

    def __init__(self, device: str, place: Path) -> None:
        self.place, self.image = place, place / "image"
        self.queue = Path("/sys/block") / Path(device).name / "queue"

    def stack(self, **asked: Any) -> Stack:
        return Stack(rig="metal", host=Host(**asked))

    def state(self) -> dict[str, str | None]:
        files = [*(self.queue / name for name in OF_DISK), *(Path("/proc/sys/vm") / name for name in DIRTY)]
        wake_up = str(int.from_bytes(Path("/dev/cpu_dma_latency").read_bytes()[:4], sys.byteorder))
        files += [one for one in (HALTING, THP) if one.exists()]
        return {path.name: warden.setting_at(str(path)) for path in files} | {"cstate_latency": wake_up}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        backing, place = Path(memory) / "disk", tmp_path / "mounted"
        place.mkdir()
        with backing.open("wb") as file:
            file.truncate(160 * 1024**2)
        device = told("losetup", "--find", "--show", backing)
        try:
            told("mkfs.ext4", "-q", "-m", "0", device)
            told("mount", device, place)
            found = LoopDisk(device, place)
            found.image.write_bytes(bytes(1024**2))
            held = found.state()
            yield found
            for name in OF_DISK:  # the next file in this loop device would find it like that
                if found.state()[name] != held[name]:
                    (found.queue / name).write_text(str(held[name]))
        finally:
            subprocess.run(["umount", "--lazy", place], check=False)
            told("losetup", "--detach", device)


@contextlib.contextmanager
def unusual(disk: LoopDisk) -> Iterator[dict[str, str | None]]:
    """Have the disk run as no kernel does it unasked, and this host count its dirty memory in bytes."""
    held = disk.state()
    for name, value in (("scheduler", "mq-deadline"), ("nr_requests", "99"), ("wbt_lat_usec", "4321")):
        (disk.queue / name).write_text(value)
    dirty = Path("/proc/sys/vm/dirty_bytes")
    dirty.write_text(str(2 * MANY))
    try:
        yield disk.state()
    finally:
        back = "dirty_bytes" if held["dirty_bytes"] != "0" else "dirty_ratio"
        dirty.with_name(back).write_text(str(held[back]))


def test_every_setting_holds_while_it_is_asked_for_and_no_longer(disk: LoopDisk, warden: Warden) -> None:
    before = disk.state()
    with host_set(Stack(rig="metal", host=ALL), [disk.image], warden.directory) as checks:
        found = checks()
        meanwhile = disk.state()
    assert {check.setting: check.asked for check in found} == {f"host.{k}": v for k, v in ALL.asked.items()}
    assert [check for check in found if not check.agrees] == []
    assert {name: meanwhile[name] for name in ALL.asked} == ALL.asked
    assert disk.state() == before
    assert list(warden.directory.glob("settings")) == []


def test_what_another_scheduler_and_a_ratio_clear_by_themselves_comes_back_too(
    disk: LoopDisk, warden: Warden
) -> None:
    with unusual(disk) as before:
        with host_set(disk.stack(scheduler="bfq", dirty_ratio=50), [disk.image], warden.directory) as checks:
            assert all(check.agrees for check in checks())
            changed = {name for name, value in disk.state().items() if value != before[name]}
            assert {"scheduler", "nr_requests", "dirty_ratio", "dirty_bytes"} <= changed
        assert disk.state() == before


@pytest.mark.parametrize(("ahead", "least", "most"), [(0, 64, 70), (1024, 1, 8)])
def test_a_file_that_is_opened_then_is_read_as_far_ahead_as_was_asked_for(
    ahead: int, least: int, most: int, disk: LoopDisk, warden: Warden
) -> None:
    def reads() -> int:
        return int((disk.queue.parent / "stat").read_text().split()[0])

    with host_set(disk.stack(read_ahead_kb=ahead), [disk.image], warden.directory) as checks:
        assert [check.agrees for check in checks()] == [True]
        with disk.image.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = reads()
            for _ in range(64):
                file.read(4096)
    assert least <= reads() - before <= most


def test_a_kernel_reads_ahead_in_pages() -> None:
    assert contradictions(Stack(rig="metal", host=Host(read_ahead_kb=128))) == ()
    assert "a multiple of 4" in contradictions(Stack(rig="metal", host=Host(read_ahead_kb=65)))[0]


def test_the_device_that_holds_the_filesystem_says_how_far_ahead_is_read() -> None:
    stack = Stack(rig="metal", host=Host(read_ahead_kb=64))
    with pytest.raises(PreconditionError, match="does not read as far ahead as a device of it says"):
        files_of(stack, [Path("/dev/shm/image")])


def test_what_the_kernel_makes_of_a_value_is_what_is_said(disk: LoopDisk, warden: Warden) -> None:
    with host_set(disk.stack(scheduler="bfq", nr_requests=1), [disk.image], warden.directory) as checks:
        assert {check.setting: check.agrees for check in checks()} == {
            "host.scheduler": True, "host.nr_requests": False,
        }  # fmt: skip


def test_a_value_that_the_kernel_refuses_leaves_all_as_it_was(disk: LoopDisk, warden: Warden) -> None:
    before = disk.state()
    asked = disk.stack(scheduler="none", nr_requests=10**6, rq_affinity="2")
    with (
        pytest.raises(RigError, match=r"the kernel does not take 1000000 in /sys/block/loop\d+/queue/nr_requests"),
        host_set(asked, [disk.image], warden.directory),
    ):
        pytest.fail("it was taken")
    assert disk.state() == before


def test_what_somebody_else_has_set_meanwhile_is_seen_and_stays(disk: LoopDisk, warden: Warden) -> None:
    with host_set(disk.stack(nomerges="2", rq_affinity="2"), [disk.image], warden.directory) as checks:
        (disk.queue / "nomerges").write_text("1")
        found = {check.setting: check.agrees for check in checks()}
    assert found == {"host.nomerges": False, "host.rq_affinity": True}
    assert (disk.state()["nomerges"], disk.state()["rq_affinity"]) == ("1", "1")


@pytest.mark.parametrize("asked", [{"scheduler": "none"}, {"scheduler": "bfq", "nr_requests": 99}])
def test_what_the_arm_has_as_it_was_comes_back_too_where_the_scheduler_moves_it(
    asked: dict[str, Any], disk: LoopDisk, warden: Warden
) -> None:
    with unusual(disk):
        if asked["scheduler"] == "none":  # whose number of requests is the depth of the disk
            (disk.queue / "nr_requests").write_text("128")
        before = disk.state()
        with host_set(disk.stack(**asked), [disk.image], warden.directory):
            assert disk.state()["nr_requests"] == before["nr_requests"]
        assert disk.state() == before


def test_what_a_scheduler_was_told_for_itself_comes_back(disk: LoopDisk, warden: Warden) -> None:
    with unusual(disk):
        told = {"fifo_batch": "3", "read_expire": "80"}
        for name, value in told.items():
            (disk.queue / "iosched" / name).write_text(value)
        with host_set(disk.stack(scheduler="bfq"), [disk.image], warden.directory):
            assert not (disk.queue / "iosched/fifo_batch").exists()
        assert {name: (disk.queue / "iosched" / name).read_text().strip() for name in told} == told


@pytest.mark.parametrize("name", ["dirty_bytes", "dirty_background_bytes"])
def test_a_limit_in_bytes_leaves_no_record_by_which_somebody_elses_were_undone(
    name: str, disk: LoopDisk, warden: Warden
) -> None:
    before = disk.state()
    with host_set(disk.stack(**{name: 3 * MANY}), [disk.image], warden.directory) as checks:
        assert checks()[0].agrees
        assert disk.state()[name.replace("bytes", "ratio")] == "0"
    assert disk.state() == before
    assert not (warden.directory / "settings").exists()


def test_where_somebody_chose_another_scheduler_what_it_brought_is_theirs(disk: LoopDisk, warden: Warden) -> None:
    (disk.queue / "nr_requests").write_text("99")
    with host_set(disk.stack(scheduler="bfq"), [disk.image], warden.directory):
        (disk.queue / "scheduler").write_text("mq-deadline")
        (disk.queue / "nr_requests").write_text("256")
    assert (disk.state()["scheduler"], disk.state()["nr_requests"]) == ("mq-deadline", "256")


def test_what_somebody_told_the_queue_under_our_scheduler_outlives_it(disk: LoopDisk, warden: Warden) -> None:
    with unusual(disk):
        with host_set(disk.stack(scheduler="bfq"), [disk.image], warden.directory):
            (disk.queue / "nr_requests").write_text("200")
        assert (disk.state()["scheduler"], disk.state()["nr_requests"]) == ("mq-deadline", "200")


def test_another_number_of_requests_does_not_take_the_depth_with_it(disk: LoopDisk, warden: Warden) -> None:
    with unusual(disk):
        depth = disk.queue / "iosched/async_depth"
        if depth.exists():
            depth.write_text("17")
        with host_set(disk.stack(nr_requests=64), [disk.image], warden.directory):
            pass
        assert not depth.exists() or depth.read_text().strip() == "17"


@pytest.mark.parametrize(
    ("asked", "theirs", "left"),
    [
        ("dirty_bytes", ("dirty_bytes", MANY), {"dirty_bytes": str(MANY), "dirty_ratio": "0"}),
        ("dirty_bytes", ("dirty_ratio", 33), {"dirty_bytes": "0", "dirty_ratio": "33"}),
        ("dirty_ratio", ("dirty_bytes", MANY), {"dirty_bytes": str(MANY), "dirty_ratio": "0"}),
        ("dirty_ratio", ("dirty_ratio", 33), {"dirty_bytes": "0", "dirty_ratio": "33"}),
    ],
)
def test_a_limit_of_dirty_memory_that_somebody_sets_meanwhile_is_theirs_in_both_its_forms(
    asked: str, theirs: tuple[str, int], left: dict[str, str], disk: LoopDisk, warden: Warden
) -> None:
    with unusual(disk):
        for before in ("dirty_ratio", "dirty_bytes"):  # this host counts in the one or in the other
            Path("/proc/sys/vm", before).write_text("25" if before == "dirty_ratio" else str(2 * MANY))
            value = 3 * MANY if asked == "dirty_bytes" else 40
            with host_set(disk.stack(**{asked: value}), [disk.image], warden.directory) as checks:
                Path("/proc/sys/vm", theirs[0]).write_text(str(theirs[1]))
                assert not checks()[0].agrees
            assert {name: disk.state()[name] for name in left} == left


def test_an_arm_that_does_not_name_a_setting_has_it_as_it_was_found_first(disk: LoopDisk, warden: Warden) -> None:
    found = FoundHost(frozenset({"host.scheduler"}))
    plain, named = Stack(rig="metal"), disk.stack(scheduler="bfq")
    for stack in (plain, named, plain):
        with host_set(stack, [disk.image], warden.directory, found) as checks:
            assert [(check.setting, check.agrees) for check in checks()] == [("host.scheduler", True)]
    (disk.queue / "scheduler").write_text("mq-deadline")
    with host_set(plain, [disk.image], warden.directory, found) as checks:
        assert [(check.asked, check.found) for check in checks()] == [("none", "mq-deadline")]
    later = FoundHost(frozenset({"host.scheduler"}))
    with host_set(plain, [disk.image], warden.directory, found) as checks:
        later.resumed(checks())
    with host_set(plain, [disk.image], warden.directory, later) as checks:
        assert [check.agrees for check in checks()] == [False], "of the run before"


def test_after_a_refused_value_the_next_look_leaves_alone_what_somebody_set_since(
    disk: LoopDisk, warden: Warden
) -> None:
    with contextlib.ExitStack() as ends:
        with (
            pytest.raises(PreconditionError, match="does not take back"),
            host_set(disk.stack(nomerges="2", rq_affinity="2"), [disk.image], warden.directory),
        ):
            ends.enter_context(read_only(disk.queue / "nomerges"))
        (disk.queue / "rq_affinity").write_text("0")
    with host_set(Stack(rig="metal"), [disk.image], warden.directory):
        assert (disk.state()["nomerges"], disk.state()["rq_affinity"]) == ("0", "0")


def test_a_run_that_changes_this_host_is_alone(disk: LoopDisk) -> None:
    def both(stack: Stack) -> None:
        with settable({stack: [disk.image]}, unheard, allow_in_use=True):
            pytest.fail("both do")

    with settable({disk.stack(dirty_ratio=50): [disk.image]}, unheard, allow_in_use=True):
        for asked in ({"scheduler": "none"}, {"dirty_bytes": MANY}):
            with pytest.raises(PreconditionError, match="another virtune changes settings of this host"):
                both(disk.stack(**asked))
        with settable({Stack(): [disk.image]}, unheard, allow_in_use=False):
            pass  # who changes nothing is not kept from measuring


def test_a_value_that_is_not_taken_back_ends_the_run_before_anything_else_is_measured(
    disk: LoopDisk, warden: Warden, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as ends:
        with (
            pytest.raises(PreconditionError, match=r"nomerges is 2, and the kernel does not take back .*: 0"),
            host_set(disk.stack(nomerges="2"), [disk.image], warden.directory),
        ):
            ends.enter_context(read_only(disk.queue / "nomerges"))
        for stack in (Stack(rig="metal"), disk.stack(rq_affinity="2")):
            with (
                pytest.raises(PreconditionError, match="does not take back"),
                host_set(stack, [disk.image], warden.directory),
            ):
                pytest.fail("it is measured under the other's setting")
    with host_set(Stack(rig="metal"), [disk.image], warden.directory):
        assert disk.state()["nomerges"] == "0"


@contextlib.contextmanager
def read_only(file: Path) -> Iterator[None]:
    told("mount", "--bind", "-o", "ro", file, file)
    try:
        yield
    finally:
        told("umount", file)


def test_an_interruption_stays_one_where_a_value_is_not_taken_back(disk: LoopDisk, warden: Warden) -> None:
    with (
        contextlib.ExitStack() as ends,
        pytest.raises(KeyboardInterrupt),
        host_set(disk.stack(nomerges="2"), [disk.image], warden.directory),
    ):
        ends.enter_context(read_only(disk.queue / "nomerges"))
        raise KeyboardInterrupt


def fill_up(place: Path) -> None:
    with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_a_full_disk_for_records_keeps_nothing_from_being_put_back(disk: LoopDisk, tmp_path: Path) -> None:
    before, small = disk.state(), tmp_path / "small"
    small.mkdir()
    told("mount", "-t", "tmpfs", "-o", "size=64k", "none", small)
    try:
        with host_set(disk.stack(nomerges="2", scheduler="bfq"), [disk.image], small):
            fill_up(small)
        assert disk.state() == before
        with pytest.raises(RigError, match=r"cannot note in .* what the host's settings are: no space left"):
            host_set(disk.stack(nomerges="2"), [disk.image], small).__enter__()
        assert disk.state() == before
    finally:
        told("umount", small)


def test_another_disk_of_the_same_name_is_not_written_to(disk: LoopDisk, tmp_path: Path) -> None:
    (disk.queue / "nomerges").write_text("2")
    warden.note_settings(tmp_path, {str(disk.queue / "nomerges"): ("0", None)})
    record = tmp_path / "settings"
    number = (disk.queue.parent / "diskseq").read_text().strip()
    record.write_text(record.read_text().replace(f'"{number}"', f'"{int(number) - 1}"'))
    assert warden.put_back(tmp_path) == []
    assert disk.state()["nomerges"] == "2"


def test_images_beside_one_another_each_lie_on_a_disk_of_this_host(disk: LoopDisk) -> None:
    with (
        tempfile.NamedTemporaryFile(dir="/dev/shm") as file,
        pytest.raises(PreconditionError, match=f"{file.name} lies on no disk of this host"),
    ):
        files_of(disk.stack(scheduler="bfq"), [disk.image, Path(file.name)])


def test_a_device_whose_requests_no_queue_holds_is_refused(disk: LoopDisk, tmp_path: Path) -> None:
    (none := tmp_path / "none").mkdir()
    told("mount", "--bind", none, disk.queue.parent / "mq")
    try:
        with pytest.raises(PreconditionError, match=r"loop\d+ has no queue of its own for it"):
            files_of(disk.stack(nomerges="2"), [disk.image])
    finally:
        told("umount", disk.queue.parent / "mq")


def dies_at(instant: int, disk: LoopDisk, *, asked: Stack = ON_DISK, guarded: bool = True) -> bool:
    """Change all in a process that SIGKILL ends at its N-th write, and its guard too unless `guarded`; whether it
    died, and did not get to the end.
    """

    def change() -> None:
        with Warden(f"h{os.getpid()}") as run:
            sys.addaudithook(_killer(instant, run.run_id, guarded=guarded))
            with host_set(asked, [disk.image], run.directory) as checks:
                assert all(check.agrees for check in checks())

    return dies(change)


def _killer(left: int, run_id: str, *, guarded: bool) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in ("os.rename", "os.remove")):
            return
        if left == 0 and not guarded:
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if f"\0{run_id}\0".encode() in place.read_bytes():
                        os.kill(int(place.parent.name), signal.SIGKILL)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    return hook


def test_killed_at_any_instant_its_guard_puts_all_back(disk: LoopDisk, tmp_path: Path) -> None:
    instants, changed, kvm = 0, set(), HALTING.exists()
    thp = {"always": "never"}.get(str(warden.setting_at(str(THP))), "always") if THP.exists() else None
    host = replace(ALL, halt_poll_ns=7000 if kvm else None)
    asked = replace(ON_DISK, host=host, machine=Machine(thp=cast(Any, thp)))
    with halting_file(tmp_path) if kvm else contextlib.nullcontext():
        before = disk.state()
        while dies_at(instants, disk, asked=asked):
            changed |= {name for name, value in disk.state().items() if value != before[name]}
            assert eventually(lambda: disk.state() == before), f"{instants}: {disk.state()}"
            instants += 1
        assert disk.state() == before
    assert instants >= 20
    assert changed, "it always died before anything was changed"


def test_where_the_guard_was_killed_too_the_next_run_or_clean_puts_all_back(disk: LoopDisk, user: User) -> None:
    before = disk.state()
    assert dies_at(8, disk, guarded=False)
    assert disk.state() != before
    said = user.run("host", "clean", "--scratch", str(user.scratch)).stdout
    assert "the change of /sys/block/" in said
    assert disk.state() == before
    assert dies_at(8, disk, guarded=False)
    assert disk.state() != before
    with Warden("next"):
        assert disk.state() == before


def test_a_run_that_begins_while_the_guard_of_a_killed_one_works_is_not_disturbed_by_it(disk: LoopDisk) -> None:
    before = disk.state()
    for _ in range(8):
        assert dies_at(8, disk)
        with Warden("next"):
            assert eventually(lambda: disk.state() == before)


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "/sys/block/../../etc/hostname", "/proc/sys/vm/dirty_x/../swappiness"]
)
def test_a_record_of_anything_but_such_settings_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(json.dumps({"boot": boot(), "files": {path: ["0", None]}}))
    held = Path(path).resolve().read_text()
    assert warden.put_back(tmp_path) == []
    assert Path(path).resolve().read_text() == held


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_after_a_restart_of_the_host_nothing_is_put_back(disk: LoopDisk, tmp_path: Path) -> None:
    path = disk.queue / "nomerges"
    said = {"boot": "another", "files": {str(path): ["2", None]}}
    (tmp_path / "settings").write_text(json.dumps(said))
    assert warden.put_back(tmp_path) == []
    assert path.read_text().strip() == "0"
    assert not (tmp_path / "settings").exists()


def test_what_lies_in_memory_is_on_no_disk(warden: Warden) -> None:
    stack = Stack(rig="metal", host=Host(scheduler="none"))
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        with pytest.raises(PreconditionError, match=r"host.scheduler cannot be set: .* lies on no disk of this host"):
            files_of(stack, [Path(file.name)])
        assert files_of(Stack(rig="simulated", host=stack.host), [Path(file.name)]) == {}


def test_a_scheduler_that_the_kernel_does_not_offer_is_refused_with_what_it_offers(
    disk: LoopDisk, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.write_text("[none] mq-deadline\n")
    told("mount", "--bind", few, disk.queue / "scheduler")
    try:
        with (
            pytest.raises(PreconditionError, match=r"host.scheduler=bfq: .* offers none, mq-deadline"),
            settable({disk.stack(scheduler="bfq"): [disk.image]}, unheard, allow_in_use=True),
        ):
            pytest.fail("it is offered")
    finally:
        told("umount", disk.queue / "scheduler")


A_VM = """import fcntl, os, sys
vm = fcntl.ioctl(os.open("/dev/kvm", os.O_RDWR), 0xAE01, 0)  # KVM_CREATE_VM
print(vm, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/dev/kvm").exists(), reason="without KVM no other VMM runs anything either")
def test_a_vm_of_another_vmm_than_qemu_is_a_vm(disk: LoopDisk) -> None:
    words = [sys.executable, "-c", A_VM]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as vmm:
        assert vmm.stdout is not None
        vmm.stdout.readline()
        with (
            pytest.raises(RefusedTargetError, match=f"for the VMs? .*of process {vmm.pid}"),
            settable({disk.stack(nomerges="2"): [disk.image]}, unheard, allow_in_use=False),
        ):
            pytest.fail("it was not seen")
        vmm.kill()


def on_it(disk: LoopDisk, *words: str) -> tuple[str, ...]:
    """Words of a short run on that disk."""
    load = (*CALM, "--seconds", "0.3", "--ramp", "0s", "--attempts", "1")
    return (*words, *load, "--scratch", str(disk.place), "--span", "16M")


def test_while_a_vm_runs_here_its_disk_is_not_changed_unless_allowed(disk: LoopDisk, user: User) -> None:
    before = disk.state()
    words = on_it(disk, "compare", "measure", "--rig", "metal", "--set", "host.nomerges=2", "--rounds", "1")
    qemu = [shutil.which("qemu-system-x86_64") or "", "-name", "web1", "-M", "none", "-S", "-display", "none"]
    with subprocess.Popen([*qemu, "-monitor", "none"]) as vm:
        try:
            assert eventually(lambda: b"web1" in Path(f"/proc/{vm.pid}/cmdline").read_bytes())
            refused = user.run(*words, status=3, exactly=True)
            assert "error: host.nomerges would change for the VM" in refused.stderr
            assert "web1" in refused.stderr
            assert f"{disk.queue}/nomerges (now 0)" in refused.stderr, "which disk it would be is said beforehand"
            said = user.run(*words, "--allow-in-use", exactly=True)
        finally:
            vm.kill()
    assert f"put back after each: {disk.queue}/nomerges (now 0)" in said.stderr
    assert disk.state() == before


def test_arms_of_a_comparison_differ_in_the_hosts_scheduler_and_say_so(disk: LoopDisk, user: User) -> None:
    before = disk.state()
    words = on_it(disk, "compare", "--rig", "storage-daemon", "--vary", "host.scheduler=none,mq-deadline")
    result = user.run(*words, "--rounds", "2", "--allow-in-use", "--json", exactly=True).json()
    assert [arm["stack"]["host"]["scheduler"] for arm in result["arms"]] == ["none", "mq-deadline"]
    seen = [
        (check["asked"], check["found"])
        for arm in result["arms"] for check in arm["in_force"] if check["setting"] == "host.scheduler"
    ]  # fmt: skip
    assert seen == [("none", "none"), ("mq-deadline", "mq-deadline")]
    assert disk.state() == before


@pytest.mark.long(always="killed at each of its writes above; each of these starts a whole virtune")
def test_a_comparison_killed_at_twenty_instants_leaves_the_host_as_it_was(disk: LoopDisk, user: User) -> None:
    before, changed = disk.state(), 0
    words = on_it(disk, "compare", "--rig", "metal", "--vary", "host.scheduler=mq-deadline,bfq")
    command = [sys.executable, "-m", "virtune", *words, "--rounds", "4", "--allow-in-use"]
    for instant in range(20):
        with subprocess.Popen(command, env=user.env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            assert eventually(lambda: disk.state() != before), instant
            time.sleep(0.08 * instant)
            process.kill()
            changed += disk.state() != before
        assert eventually(lambda: disk.state() == before), instant
    assert changed > 3, "it died between trials only"


def test_a_load_that_polls_is_refused_by_a_disk_without_poll_queues(disk: LoopDisk, warden: Warden) -> None:
    """Linux 6.1 completes its requests by interrupts and says nothing."""
    target = FileTarget(path=str(disk.image), size_bytes=1024**2)
    bench = MetalBench(target=target, image=disk.image, stack=Stack(rig="metal"), warden=warden)
    job = f"[x]\nioengine=io_uring\nhipri=1\ndirect=1\nrw=randread\nfilename={disk.image}\n"
    asked = raw_job(job, engine="io_uring", workload="rw=randread,ioengine=io_uring,hipri=1")
    told = f"the disk has no poll queues: {disk.queue}/io_poll is 0"
    with pytest.raises(LoadError, match=told):
        run(bench, asked, seconds=0.5)
