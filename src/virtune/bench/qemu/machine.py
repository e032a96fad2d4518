# SPDX-License-Identifier: Apache-2.0
"""A test VM: a QEMU that boots the appliance, with its monitor and its agent, from start to ready; and whether KVM
runs it, which is tried by booting one: access to /dev/kvm alone does not prove it.

Under TCG Linux boots for 2 to 3 s of CPU time, and a state that was saved after a boot is resumed in 0.1 s. A state
is the guest's memory, a file that every guest maps for itself (what it writes is its own), and what QEMU knows of its
devices. It lies with the appliance that was booted, and counts for this QEMU with these options until the host boots
again: a guest on TCG has the host's time-stamp counter, whose frequency it measured.

With a /dev/kvm that opens and makes VMs, guests may still hang (nested, under a hypervisor that lacks support). The
result is cached by everything it depends on: host kernel and boot, QEMU, guest. Temporary failures (no memory for a
guest, a KVM used by another hypervisor, a slow monitor) are not cached, and the next run tries again.
"""

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

from virtune import shell, warden
from virtune.bench.appliance.build import LOCK, SCHEDULERS, Appliance, appliances, is_whole, sign
from virtune.bench.guest.agent import (
    CHANNELS,
    WAIT_SECONDS,
    AgentGuest,
    GuestError,
    Mounted,
    ShellGuest,
    SocketLine,
    mount,
    read_clock,
    seen_in_guest,
    speed_words,
    unmount,
    wrong_speed,
)
from virtune.bench.live.monitor import exits_of, halt_polls_of
from virtune.bench.qmp import START_SECONDS, Monitor
from virtune.bounded import opened, read_bounded, write_whole
from virtune.dialects.qemu.guest import DEVICE, DRIVERS, GuestMachine, machine_argv
from virtune.dialects.qemu.qmp import Command
from virtune.model.counters import thread_role
from virtune.model.errors import MissingToolError, RigError
from virtune.model.remark import KVM_WITHOUT_HARDWARE
from virtune.model.stack import MEMORY, Kernel, Machine, Stack
from virtune.probe.access import read_trusted
from virtune.probe.process import Process

MEMORY_FILE, DEVICES_FILE = "memory", "devices"

_KEPT = 6
"""How many states an appliance keeps; each takes 0.1 GB."""

_REFUSED = "refused"
"""The file that says of a state that it could not be saved or resumed, so that it is not tried again."""

_ROOM_BYTES = 256 * 1024**2
"""The room that must be left on the disk, beside the guest's whole memory."""

_UNUSED_SECONDS = 24 * 3600
"""States of another boot are removed when they were not used for so long: a home directory may be that of several
hosts, and a guest whose memory is taken away by another host dies.
"""


def place_of(appliance: Appliance, program: str, machine: GuestMachine, *, prepared: str) -> Path:
    """Return where the state of a machine after its boot belongs, by everything that it depends on; `prepared` is
    what was run in the guest before it was saved.
    """
    path = Path(program).resolve()
    about = path.stat()
    plain = replace(machine, kernel=appliance.kernel.name, initramfs="", console="", monitor=-1, agent=None)
    words = machine_argv(str(path), replace(plain, channels=(-1,) * len(machine.channels)))
    parts = (appliance.key, machine.agent is not None, words, about.st_size, about.st_mtime_ns, prepared)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return appliance.kernel.parent / "booted" / f"{boot_id()[:8]}-{key}"


def is_saved(place: Path) -> bool:
    """Whether there is a state to resume, which nobody else could have changed; it counts as used now."""
    if (place / _REFUSED).exists() or not (place / DEVICES_FILE).exists() or not is_whole(place):
        return False
    with contextlib.suppress(OSError):
        os.utime(place)
    return True


@contextlib.contextmanager
def to_save(place: Path, machine: GuestMachine) -> Iterator[Path | None]:
    """Yield a directory for the files of a state that becomes `place` with the end of the block; None where there is
    one already, it was refused, another process is at it, or there is no room.
    """
    with contextlib.ExitStack() as ends:
        work = None
        with contextlib.suppress(OSError):
            room = (machine.asked.memory or MEMORY) + _ROOM_BYTES
            if not _has_one(place) and _is_first(place, ends) and shutil.disk_usage(place.parent).free >= room:
                for left in place.parent.glob(f"{place.name}.*{warden.PARTIAL}"):
                    gone = warden.is_abandoned(left) and warden.remove(left)
                    warden.note_removed([f"half a saved guest {left}"] if gone else [])
                work = ends.enter_context(warden.filled(place))
        if work is None:
            yield None
            return
        yield work
        with contextlib.suppress(OSError):
            sign(work)
            warden.remove(place)  # what others may have changed
            work.rename(place)
        _remove_old(place)


def refuse(place: Path) -> None:
    """Note that a state cannot be saved or resumed, and remove it; whoever runs on it keeps it until the end."""
    warden.remove(place)
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with warden.filled(place) as work:
            (work / _REFUSED).touch()
            work.rename(place)


def _has_one(place: Path) -> bool:
    """Whether there is a state, a refusal of one, or something else in its place that has to stay."""
    there = (place / _REFUSED).exists() or (place.exists() and warden.doubt(place) is not None)
    return there or is_saved(place)


def _is_first(place: Path, ends: contextlib.ExitStack) -> bool:
    """Whether no other process saves this state now; if so, none does until the end, which removes the lock."""
    place.parent.mkdir(exist_ok=True)
    name = place.with_name(f"{place.name}{LOCK}")
    lock = ends.enter_context(opened(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # who had it may have removed it since we opened it, and the next one has a file of its own
    if not name.exists() or not os.path.samestat(os.fstat(lock), name.stat()):
        return False
    ends.callback(warden.remove_file, name, warden.is_empty)
    return not _has_one(place)


def _remove_old(place: Path) -> None:
    """Remove what other boots left, with any appliance, and of this boot what was not used for the longest time."""
    home, now = place.parent.parent.parent, time.time()
    with contextlib.suppress(OSError):
        every = {path: path.stat().st_mtime for path in home.glob("*/booted/*")}
        boot, oldest = f"{boot_id()[:8]}-", now - _UNUSED_SECONDS
        old = [path for path, used in every.items() if not path.name.startswith(boot) and used < oldest]
        ours = [path for path in every if path.parent == place.parent and path.name.startswith(boot)]
        states = [path for path in ours if path.is_dir() and not path.name.endswith(warden.PARTIAL)]
        old += sorted(states, key=lambda path: every[path])[:-_KEPT]
        for path in old:
            if path.suffix == LOCK:
                warden.remove_file(path, warden.is_empty)
            else:
                warden.remove(path)


def boot_id() -> str:
    """Return the id of this boot of the host."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "unknown"


PROGRAM = "qemu-system-x86_64"

BOOT_SECONDS = 90.0
"""A guest boots in 3 s under TCG on an idle machine, and took 12 s with three busy programs per CPU; one that is not
ready by then hangs.
"""

FIRST_BOOT_SECONDS = 40.0
"""The time limit if a second boot is possible: under TCG about one boot in a hundred hangs."""

_GREETING_SECONDS = 0.25
_END_SECONDS = 1.0
_DYING_SECONDS = 2.0
_CONSOLE_BYTES = 4000
_DISK = re.compile(r"(^|/)(disk\d)/")
"""The test disks among the devices of a guest, by the ids that they have."""

_DRIVERS = frozenset({"virtio_blk", "virtio_scsi", "sd_mod"})
_BEFORE_SAVING = f"""
for name in {" ".join(sorted(_DRIVERS))}; do
    for m in $(cat /lib/modules/$name.order); do insmod /lib/modules/$m.ko; done
done 2>/dev/null; sleep 1
""".replace("\n", " ")
"""The drivers of most disks, and time for what a kernel does after its start."""

_MEMORY_IS_SHARED = {"capabilities": [{"capability": "x-ignore-shared", "state": True}]}
"""A state without the memory, which is a file of its own."""

_LOOK_SECONDS = 0.01

_BOOTS = 3
"""How often a guest is booted whose clock is wrong."""

_NUMBERS = itertools.count()
"""Numbers the guests of this run, for the names of their files."""


class HungError(RigError):
    """A guest was not ready in time, or with a clock that is wrong."""


class EndedError(RigError):
    """QEMU ended before its guest was ready: with a status, negative for a signal; `refused`: before it began."""

    def __init__(self, message: str, *, hint: str | None, status: int, refused: bool) -> None:
        super().__init__(message, hint=hint)
        self.status, self.refused = status, refused


@dataclass(slots=True, kw_only=True)
class QemuGuest:
    """A running guest with any system in it. `exit_ns` is what an exit to QEMU took at least, where measured."""

    child: shell.Child
    monitor: Monitor
    console: Path
    kvm: bool
    vcpus: int
    version: str
    boot_seconds: float
    exit_ns: int | None = field(default=None, kw_only=True)

    def trouble(self) -> str | None:
        """Say how QEMU ended, None while it runs."""
        status = self.child.poll()
        if status is None:
            return None
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = self.child.last_words()
        return f"{PROGRAM} {how}" + (f": {words}" if words else "")

    def operations(self) -> int:
        """Return the number of requests that the guest's disk has completed: a disk on which it does not rise under
        load is stuck.
        """
        counts = self.block_statistics()
        return sum(
            counts.get(name, 0) for name in ("rd_operations", "wr_operations", "flush_operations", "unmap_operations")
        )

    def disk_statistics(self) -> dict[str, dict[str, Any]]:
        """Return QEMU's own counters of each disk by the id of its device, in the order of these."""
        shown = ((_DISK.search(f"{one.get('qdev', '')}/"), one) for one in self.monitor.execute("query-blockstats"))
        found = {name[2]: dict(one["stats"]) for name, one in shown if name is not None}
        return dict(sorted(found.items()))

    def block_statistics(self) -> dict[str, Any]:
        """Return QEMU's own counters of the disk; of several disks what they counted together."""
        found = list(self.disk_statistics().values())
        numbers = {name for stats in found for name, value in stats.items() if type(value) is int}
        together = {name: sum(stats.get(name, 0) for stats in found) for name in numbers}
        return {**found[0], **together} if found else {}

    def exits(self) -> int | None:
        """Return how often KVM has left the guest for the host; None if KVM does not run it, or does not count."""
        return exits_of(self.monitor) if self.kvm else None

    def halt_polls(self) -> int | None:
        """Return how often KVM has polled for a vCPU that had halted; None as for `exits`."""
        return halt_polls_of(self.monitor) if self.kvm else None

    def evidence(self) -> str:
        """Return the evidence of a failed guest: QEMU's state and counters, the end of its console."""
        said: dict[str, Any] = {"trouble": self.trouble()}
        if said["trouble"] is None:
            try:
                said["status"] = self.monitor.execute("query-status")
                said["block"] = self.monitor.execute("query-blockstats")
            except RigError:
                # A killed QEMU closes its sockets a moment before its exit status can be read.
                self.child.wait(_DYING_SECONDS)
                said["trouble"] = self.trouble()
        return json.dumps(said) + "\n" + console_end(self.console)


@dataclass(slots=True, kw_only=True)
class Vm(QemuGuest):
    """A guest with Linux that is up. `drivers` are the kernel modules of disks that it has loaded already."""

    guest: ShellGuest
    agent: AgentGuest | None
    drivers: frozenset[str] = frozenset()


def console_end(console: Path) -> str:
    """Return the end of a guest's console output."""
    with contextlib.suppress(OSError):
        return read_bounded(console, _CONSOLE_BYTES, from_end=True).decode(errors="replace")
    return ""


@contextlib.contextmanager
def running(
    appliance: Appliance,
    warden: shell.Warden,
    *,
    kvm: bool,
    host_cpu: str = "host",
    asked: Machine | None = None,
    first: Sequence[Command] = (),
    boot_seconds: float = BOOT_SECONDS,
) -> Iterator[Vm]:
    """Boot a guest and yield it when its agent answers; it ends with the block.

    Under TCG it goes on from the state of an earlier boot, which is saved first where there is none. `asked` is the
    requested machine, `first` the disk that it must have from its start. Raises RigError when it is not ready in
    time, with the end of its console as hint.
    """
    asked = asked or Machine()
    start = _Start(appliance, warden, kvm, host_cpu, asked, first, max(START_SECONDS, boot_seconds / 2))
    with contextlib.ExitStack() as ends:
        vm = None
        if not kvm and not first and not asked.minds_memory:
            vm = _resumed(start, ends, boot_seconds)
        yield vm or ends.enter_context(_booted(start, boot_seconds))


@dataclass(frozen=True, slots=True)
class _Start:
    """What a guest is started with."""

    appliance: Appliance
    warden: shell.Warden
    kvm: bool
    host_cpu: str
    asked: Machine
    first: Sequence[Command]
    patience_seconds: float

    @property
    def program(self) -> str:
        return shell.find(self.asked.emulator or PROGRAM)

    def machine(self, ends: Sequence[int], console: Path, *, memory: int | None, resumes: bool) -> GuestMachine:
        """Return the machine with the descriptors of its ports: channels, agent if any, monitor."""
        return GuestMachine(
            kernel=str(self.appliance.kernel), initramfs=str(self.appliance.initramfs), console=str(console),
            channels=tuple(ends[: len(CHANNELS)]), agent=ends[len(CHANNELS)] if self.appliance.agent else None,
            monitor=ends[-1], kvm=self.kvm, host_cpu=self.host_cpu, vcpus=self.asked.cpus,
            asked=self.asked, first=self.first, memory_file=memory, resumes=resumes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launched:
    """A QEMU that has just been started: our ends of its guest's ports, and when that was (monotonic)."""

    child: shell.Child
    monitor: Monitor
    ports: tuple[socket.socket, ...]
    console: Path
    begun: float


@contextlib.contextmanager
def launched(
    run: shell.Warden,
    program: str,
    ports: int,
    machine: Callable[[Sequence[int], Path], GuestMachine],
    *,
    patience_seconds: float,
    keep: tuple[int, ...] = (),
) -> Iterator[Launched]:
    """Start QEMU, whose machine gets the descriptors of so many ports and of its monitor, and the file of its
    console; it ends with the block. Raises RigError when its monitor does not answer.
    """
    name = f"guest{next(_NUMBERS)}"
    console = run.directory / f"{name}.console"
    with contextlib.ExitStack() as ends:
        pairs = [socket.socketpair() for _ in range(ports + 1)]
        for ours, _ in pairs:
            ends.enter_context(ours)
        theirs = [end.fileno() for _, end in pairs]
        begun = time.monotonic()
        try:
            command = machine_argv(program, machine(theirs, console))
            child = ends.enter_context(run.running(command, name=name, keep=(*theirs, *keep)))
        finally:
            for _, end in pairs:
                end.close()
        monitor = ends.enter_context(monitored(pairs[-1][0], child, start_seconds=patience_seconds))
        yield Launched(child, monitor, tuple(pair[0] for pair in pairs[:-1]), console, begun)


@contextlib.contextmanager
def _started(start: _Start, memory: IO[bytes] | None = None, *, resumes: bool = False) -> Iterator[tuple[Vm, float]]:
    """Start QEMU and yield its guest, which is not ready yet, and when that was."""
    file = () if memory is None else (memory.fileno(),)
    count, agent = len(CHANNELS), start.appliance.agent
    machine = functools.partial(start.machine, memory=file[0] if file else None, resumes=resumes)
    patience = start.patience_seconds
    with launched(start.warden, start.program, count + agent, machine, patience_seconds=patience, keep=file) as qemu:
        vm = Vm(
            child=qemu.child,
            monitor=qemu.monitor,
            guest=ShellGuest(qemu.ports[:count]),
            agent=AgentGuest(SocketLine(qemu.ports[count])) if agent else None,
            console=qemu.console,
            kvm=start.kvm,
            vcpus=start.asked.cpus,
            version="",
            boot_seconds=0.0,
        )
        yield vm, qemu.begun


@contextlib.contextmanager
def _booted(start: _Start, seconds: float, memory: IO[bytes] | None = None) -> Iterator[Vm]:
    """Boot a guest and yield it when it is ready; boots again where its clock is wrong, and raises HungError where it
    is so each time.
    """
    wrong = 0.0
    for _ in range(_BOOTS):
        if memory is not None:
            memory.truncate(0)
        with _started(start, memory) as (vm, begun):
            _until_ready(vm.guest, vm.child, vm.console, begun, seconds)
            speed = None
            if not start.kvm:
                first = read_clock(vm.guest, timeout_seconds=seconds)
                time.sleep(WAIT_SECONDS)
                speed = wrong_speed(first, read_clock(vm.guest, timeout_seconds=seconds))
            if speed is None:
                yield _ready(vm, begun)
                return
            wrong = speed
    raise HungError(
        speed_words("the guest", wrong),
        hint="its kernel measured it while the host's CPUs were busy; try again on a quiet host",
    )


def _ready(vm: Vm, begun: float) -> Vm:
    vm.version = version_of(vm.monitor.execute("query-version"))
    vm.boot_seconds = time.monotonic() - begun
    return vm


def _resumed(start: _Start, ends: contextlib.ExitStack, seconds: float) -> Vm | None:
    """Return a guest that goes on from a saved state and ends with `ends`; None where there is none that can."""
    machine = start.machine([-1] * (len(CHANNELS) + 2), Path(), memory=None, resumes=False)
    place = place_of(start.appliance, start.program, machine, prepared=_BEFORE_SAVING)
    try:
        with to_save(place, machine) as work:
            if work is not None:
                _save(start, work, seconds)
    except HungError:
        raise
    except (RigError, OSError):
        refuse(place)
    if is_saved(place):
        try:
            return ends.enter_context(_going_on(start, place, seconds))
        except (RigError, OSError):
            if is_saved(place):  # and was not removed meanwhile
                refuse(place)
    return None


def _save(start: _Start, work: Path, seconds: float) -> None:
    """Boot a guest whose memory is a file, and save the rest of its state when it rests."""
    part, whole = (shlex.quote(str(work / name)) for name in ("part", DEVICES_FILE))
    with (work / MEMORY_FILE).open("wb+") as memory, _booted(start, seconds, memory) as vm:
        vm.guest.look.run(_BEFORE_SAVING, timeout_seconds=seconds)
        vm.monitor.execute("migrate-set-capabilities", _MEMORY_IS_SHARED)
        vm.monitor.execute("migrate", {"uri": f"exec:cat >{part} && mv {part} {whole}"})
        deadline = time.monotonic() + seconds
        while not (work / DEVICES_FILE).exists():
            if vm.monitor.execute("query-migrate").get("status") == "failed" or time.monotonic() > deadline:
                raise RigError("the state of the guest could not be saved")
            time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def _going_on(start: _Start, place: Path, seconds: float) -> Iterator[Vm]:
    """Yield a guest that goes on from a saved state."""
    with (
        (place / MEMORY_FILE).open("rb+") as memory,
        _started(start, memory, resumes=True) as (vm, begun),
    ):
        vm.monitor.execute("migrate-set-capabilities", _MEMORY_IS_SHARED)
        devices = shlex.quote(str(place / DEVICES_FILE))
        vm.monitor.execute("migrate-incoming", {"uri": f"exec:cat {devices}"})
        while (status := vm.monitor.execute("query-migrate").get("status")) != "completed":
            if status == "failed" or time.monotonic() > begun + seconds:
                raise RigError("the guest did not go on from its saved state")
            time.sleep(_LOOK_SECONDS)
        vm.guest.resume(timeout_seconds=max(0.0, begun + seconds - time.monotonic()))
        vm.drivers = _DRIVERS
        yield _ready(vm, begun)


@contextlib.contextmanager
def monitored(
    connection: socket.socket, child: shell.Child, *, start_seconds: float = START_SECONDS
) -> Iterator[Monitor]:
    """Yield the monitor of a QEMU that has just been started, which answers when all devices are made.

    Raises RigError with the end of its log.
    """
    with contextlib.ExitStack() as ends:
        try:
            monitor = ends.enter_context(Monitor(connection, start_seconds=start_seconds))
        except RigError as error:
            status = child.wait(_END_SECONDS)
            words = child.last_words()
            if status is None:
                raise RigError(error.message, hint=words) from None
            raise EndedError(f"{PROGRAM} ended at its start", hint=words, status=status, refused=True) from None
        yield monitor


def version_of(shown: Mapping[str, Any]) -> str:
    """Return the version in an answer of `query-version`."""
    numbers = ".".join(str(shown["qemu"][part]) for part in ("major", "minor", "micro"))
    return f"QEMU {numbers} {shown['package']}".rstrip()


def _until_ready(guest: ShellGuest, child: shell.Child, console: Path, begun: float, seconds: float) -> None:
    """Wait until the guest answers; `begun` is when QEMU was started, and `seconds` the limit from then on."""
    while True:
        try:
            if guest.greet(timeout_seconds=_GREETING_SECONDS):
                return
        except GuestError:  # its QEMU is gone
            time.sleep(_GREETING_SECONDS)
        if (status := child.poll()) is not None:
            words = child.last_words()
            raise EndedError(f"{PROGRAM} ended while the guest booted", hint=words, status=status, refused=False)
        if time.monotonic() > begun + seconds:
            vcpus = (one for one in Process(child.pid).threads() if thread_role(one.name, main=False) == "vcpu")
            used = sum(one.cpu_ns for one in vcpus) / 1e9
            words = shell.last_line(console_end(console)) or "it wrote nothing to its console"
            hint = f"{words}; its vCPUs used {used:.0f} s of CPU"
            raise HungError(f"the guest did not come up within {seconds:g} s", hint=hint)


_DRIVER_SECONDS = 20.0

_CHECKSUMS = "crc32c_generic"
"""ext4 asks for it by the name of the sum, which no dependency of modules says."""


class Linux:
    """The appliance, as it runs in a machine."""

    fixed = False
    proof = "the guest's /sys/block"

    def __init__(self, vm: Vm, appliance: Appliance) -> None:
        self._vm, self.appliance = vm, appliance
        self._drivers = set(vm.drivers)
        self._mounted: Mounted | None = None
        self._kernel = Kernel()
        self.drives = vm.vcpus

    def prepare(self, stack: Stack) -> None:
        bus, self._kernel = stack.device.bus_in_guest, stack.kernel
        for module in DRIVERS[bus]:
            self._load(module, f"bus={bus}")
        if (scheduler := SCHEDULERS.get(stack.kernel.scheduler or "")) is not None:
            self._load(scheduler, f"guest.scheduler={stack.kernel.scheduler}")
        if stack.kernel.blk_poll_queues and "poll_queues" not in self._drivers:  # before the machine has a disk
            if "virtio_blk" not in self.appliance.modules:
                raise RigError(f"the guest's kernel {self.appliance.release} has virtio_blk built in")
            words = (
                f"rmmod virtio_blk && insmod /lib/modules/virtio_blk.ko poll_queues={stack.kernel.blk_poll_queues}"
            )
            self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
            self._drivers.add("poll_queues")

    def mount(self, devices: Sequence[str], kind: str, *, writes: bool) -> Mounted:
        """Mount the filesystem of each device; raises RigError when the guest's kernel lacks it, or one fails."""
        if self.appliance.drives(_CHECKSUMS):  # a kernel without that module has it in its library
            self._load(_CHECKSUMS, kind)
        self._load(kind, f"disk.filesystem={kind}")
        self._mounted = mount(self._vm.guest, devices, kind, self._kernel, writes=writes)
        return self._mounted

    def unmount(self) -> None:
        """Unmount what is mounted; raises RigError when it stays mounted."""
        mounted, self._mounted = self._mounted, None
        if mounted is not None:
            unmount(self._vm.guest, mounted)

    def _load(self, module: str, wanted: str) -> None:
        """Load a kernel module with what it depends on, once."""
        if module in self._drivers:
            return
        if not self.appliance.drives(module):
            raise RigError(f"the guest's kernel {self.appliance.release} has no {module}, which {wanted} needs")
        words = f"for m in $(cat /lib/modules/{module}.order); do insmod /lib/modules/$m.ko; done 2>/dev/null; true"
        if module in self.appliance.modules:
            self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
        self._drivers.add(module)

    def protect(self, device: str) -> None:
        words = f"blockdev --setro {device} && blockdev --getro {device}"
        done = self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
        if done.stdout.strip() != b"1":
            raise RigError(f"the guest did not set {device} to read-only", hint=done.stderr.decode(errors="replace"))

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        return seen_in_guest(self._vm.guest, serial, self._kernel)


TRIAL_SECONDS = 20.0
"""On KVM the appliance is ready within 2 s; ten times that cannot be explained by a busy host."""

KVM = Path("/dev/kvm")

HOST_CPUS = ("host", "host,-arch-capabilities")
"""The CPU model of a guest on KVM, and another for when QEMU aborts with it: some KVMs show a feature whose MSR
(0x10a) they then refuse to set.
"""

_OWN_FAULTS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP})
"""The signals of a crash of QEMU; any other was sent by a user, or by a host out of memory."""


class Boot(Protocol):
    """Boots a guest on KVM with that CPU; raises RigError when it does not come up."""

    def __call__(self, *, host_cpu: str) -> AbstractContextManager[QemuGuest]:
        """Yield the guest; it ends with the block."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """The accelerator of guests on this host: `kvm` or `tcg`, with the reason in one clause. `tried` is False if
    there was nothing to try.

    `host_cpu` is the default CPU model of a guest on KVM.
    """

    kvm: bool
    why: str
    tried: bool
    host_cpu: str = HOST_CPUS[0]

    @property
    def name(self) -> str:
        """QEMU's name for it."""
        return "kvm" if self.kvm else "tcg"


def accelerator_for(
    appliance: Appliance,
    warden: shell.Warden,
    cache: Path,
    *,
    emulator: str | None = None,
    again: bool = False,
    device: Path = KVM,
    trial_seconds: float = TRIAL_SECONDS,
) -> Accelerator:
    """Return the accelerator of guests: the cached result, else try now (`again`: try in any case).

    `emulator` is the QEMU, if another than the PATH's; `device` is the path of KVM.
    """
    boot = functools.partial(
        running, appliance, warden, kvm=True, asked=Machine(emulator=emulator), boot_seconds=trial_seconds
    )
    key = _key(appliance.key, emulator or PROGRAM)
    return remembered(cache / "accelerators.json", key, boot, device=device, again=again)


def bare_accelerator(guest: Path, cache: Path, boot: Boot, *, emulator: str | None = None) -> Accelerator:
    """The same for a guest without an operating system, the program `guest`; `boot` starts it with a CPU."""
    about = guest.stat()
    key = _key(f"{guest.name}-{about.st_size}-{about.st_mtime_ns}", emulator or PROGRAM)
    return remembered(cache / "bare-accelerators.json", key, boot, device=KVM)


def remembered(place: Path, key: str, boot: Boot, *, device: Path, again: bool = False) -> Accelerator:
    """Return the cached result under that key, else boot a guest on KVM and cache a lasting result."""
    if not device.exists():
        return Accelerator(kvm=False, why=f"there is no {device}", tried=False)
    if not os.access(device, os.R_OK | os.W_OK):
        return Accelerator(kvm=False, why=f"{device} is not accessible", tried=False)
    known = _known(place)
    if key in known and not again:
        return known[key]
    found, lasting = _try(boot)
    if not lasting:
        return found
    place.parent.mkdir(parents=True, exist_ok=True)
    every = {name: asdict(one) for name, one in {**known, key: found}.items()}
    write_whole(place, json.dumps(every).encode(), mode=0o644)
    return found


def last_tried(cache: Path) -> Accelerator | None:
    """Return the result of the newest test guest on this kernel, boot and QEMU; None without one."""
    known = _known(cache / "accelerators.json")
    with contextlib.suppress(MissingToolError):
        for appliance in reversed(appliances(cache / "appliances")):
            if (found := known.get(_key(appliance.key, PROGRAM))) is not None:
                return found
    return None


def _try(boot: Boot, cpus: Sequence[str] = HOST_CPUS) -> tuple[Accelerator, bool]:
    """Boot a guest on KVM; returns the result, and whether it is lasting."""
    cpu, *others = cpus
    try:
        with boot(host_cpu=cpu) as vm:
            exits = (
                "" if vm.exit_ns is None else f", and an exit from the guest to QEMU took {vm.exit_ns / 1e3:.0f} us"
            )
            why = f"a test guest started under KVM in {vm.boot_seconds:.1f} s ({kvm_kind()}{exits})"
            return Accelerator(kvm=True, why=why, tried=True, host_cpu=cpu), True
    except RigError as error:
        if others and isinstance(error, EndedError) and error.status == -signal.SIGABRT:
            return _try(boot, others)
        lasting = _lasts(error)
        said = f" ({error.hint})" if error.hint else ""
        once = "" if lasting else "; that may pass, so the next run tries again"
        return Accelerator(kvm=False, why=f"on KVM {error.message}{said}{once}", tried=True), lasting


def kvm_kind(cpuinfo: str | None = None) -> str:
    """Return the kind of KVM, by the features of this host's CPUs: the cost of a VM exit differs by a factor of
    twenty.
    """
    if cpuinfo is None:
        cpuinfo = ""
        with contextlib.suppress(OSError):
            cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    if not {"vmx", "svm"} & set(flags):
        return KVM_WITHOUT_HARDWARE
    return "nested KVM" if "hypervisor" in flags else "KVM with hardware virtualization"


def _lasts(error: RigError) -> bool:
    """Whether a failure is KVM's own and lasting: the guest hangs, QEMU crashes, or the guest ends while it boots.

    A QEMU that refuses with a message at its start is tried again each time, which takes some milliseconds.
    """
    match error:
        case HungError():
            return True
        case EndedError(status=status) if status < 0:
            return -status in _OWN_FAULTS
        case EndedError(refused=refused):
            return not refused
        case _:
            return False


def _known(place: Path) -> dict[str, Accelerator]:
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return {key: Accelerator(**one) for key, one in json.loads(read_trusted(place)).items()}
    return {}


def _key(guest: str, emulator: str) -> str:
    program = Path(shell.find(emulator)).resolve()
    found = program.stat()
    parts = (platform.release(), boot_id(), str(program), found.st_size, found.st_mtime_ns, guest)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
