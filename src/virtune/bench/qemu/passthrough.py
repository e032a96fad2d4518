# SPDX-License-Identifier: Apache-2.0
"""An NVMe drive of this host that a guest drives itself: which one is meant, whether it can be handed over, and the
way there and back. There are no block nodes below it, and QEMU counts nothing.

Whether it can be handed over is read from the kernel's own files before anything is changed. The host must see the
drive through its own driver, so that what is on it can be looked at. What is changed (the driver of the drive, and
the driver that it is reserved for) is recorded in the run's directory before, so that the guard gives the drive back
when virtune is killed, and the next run or `virtune host clean` when the guard is killed too. The drive is in the
machine from its start, and the machine ends with its trial, so that the host has its drive back.
"""

import contextlib
import functools
import os
import re
import resource
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virtune import shell, warden
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.carried import (
    Ask,
    Carried,
    machine_checks,
    memory_checks,
    place_checks,
    place_threads,
)
from virtune.bounded import opened
from virtune.dialects.qemu.guest import DEVICE
from virtune.model.errors import RefusedTargetError, RigError, words_of
from virtune.model.evidence import Check
from virtune.model.facts import Claim, ClaimKind
from virtune.model.stack import MEMORY, Machine, Stack
from virtune.model.text import format_bytes
from virtune.probe.claims import claims, lasting
from virtune.probe.devices import node_number
from virtune.shell import Warden

NVME_CLASS = "0x010802"
"""Mass storage, non-volatile memory, NVMe (PCI Code and ID Assignment)."""

NVME = "nvme"
"""The host's driver of NVMe drives."""

_NAMESPACE = re.compile(r"nvme\d+(c\d+)?n\d+", re.ASCII)
_CONTROLLER = re.compile(r"nvme\d+", re.ASCII)
_SECTOR_BYTES = 512
_CAP_IPC_LOCK = 14
"""The number of the capability that lifts the limit of locked memory (linux/capability.h)."""

_SPARE_BYTES = 64 * 1024**2
"""QEMU locks all of a guest's memory, and some of its firmware's and devices' besides."""

_UNSAFE = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """An NVMe drive that the host drives and could hand to a guest: its PCI address and IOMMU group, the device node
    of its only namespace with the kernel's number (`259:0`), its size and serial number.
    """

    address: str
    group: str
    node: str
    number: str
    size_bytes: int
    serial: str


def drive_at(address: str, root: Path = Path("/")) -> Drive:
    """Return the drive at a PCI address; raises RigError with the first reason why it cannot be handed to a guest."""
    groups, devices = root / "sys/kernel/iommu_groups", root / "sys/bus/pci/devices"
    _require_iommu(root, groups)
    place = devices / address
    if not place.exists():
        nvme = sorted(one.name for one in _listed(devices) if _word(one / "class") == NVME_CLASS)
        has = f"its NVMe disks: {', '.join(nvme)}" if nvme else "it has no NVMe disk"
        raise RigError(f"this host has no PCI device {address}", hint=has)
    if (kind := _word(place / "class")) != NVME_CLASS:
        raise RigError(f"the PCI device {address} is no NVMe disk: its class is {kind}")
    driver = warden.driver_of(place)
    if driver != NVME:
        raise RigError(
            f"the disk {address} is driven by {driver or 'nothing'}, so nobody can see what is on it",
            hint=f"give it back to the host (`driverctl unset-override {address}`): virtune takes it when needed",
        )
    group, controllers = _group(place, groups, devices), list(_controllers(place))
    found = [name for one in controllers for name in _namespaces(one)]
    if len(found) != 1:
        has = "no namespace" if not found else f"{len(found)} namespaces ({', '.join(found)})"
        raise RigError(f"the disk {address} has {has}, and virtune hands over drives with one")
    for subsystem in _listed(root / "sys/class/nvme-subsystem"):
        members = [one.name for one in _listed(subsystem) if _CONTROLLER.fullmatch(one.name)]
        if controllers[0].name in members and len(members) > 1:
            raise RigError(f"the disk {address} is one of several paths to the same data: {', '.join(members)}")
    home = root / "sys/class/block" / found[0]
    sectors, number = _word(home / "size"), _word(home / "dev")
    if not sectors.isdecimal() or not number:
        raise RigError(f"the size of /dev/{found[0]} cannot be read")
    node, size, serial = f"/dev/{found[0]}", int(sectors) * _SECTOR_BYTES, _word(controllers[0] / "serial")
    return Drive(address=address, group=group, node=node, number=number, size_bytes=size, serial=serial)


def address_of(node: Path, root: Path = Path("/")) -> str:
    """Return the PCI address of the NVMe drive that a device node is; raises RigError for any other node."""
    number = node_number(str(node), root)
    home = root / "sys/dev/block" / str(number)
    name = home.resolve().name if number is not None and home.exists() else ""
    for device in _listed(root / "sys/bus/pci/devices"):
        if name and any(name in _namespaces(one) for one in _controllers(device)):
            return device.name
    raise RigError(f"{node} is no NVMe drive of this host's PCI bus, so it cannot be handed to a guest")


def require_lockable(machine: Machine) -> None:
    """Raise RigError where a guest's memory may not be locked: a drive reaches all of it at any time, so that the
    kernel keeps it in place.
    """
    needed = (machine.memory or MEMORY) + _SPARE_BYTES
    most, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    status = dict(line.partition(":")[::2] for line in _word(Path("/proc/self/status")).splitlines())
    may_lock = int(status.get("CapEff", "0"), 16) >> _CAP_IPC_LOCK & 1
    if most == resource.RLIM_INFINITY or most >= needed or may_lock:
        return
    raise RigError(
        f"a guest that drives a disk itself has its memory locked, {format_bytes(needed)}, and we may lock "
        f"{format_bytes(most)}",
        hint="run as root, or raise the limit (`ulimit -l`, or memlock in /etc/security/limits.conf)",
    )


def _require_iommu(root: Path, groups: Path) -> None:
    if any(_word(one / "name") != "vfio-noiommu" for one in _listed(groups)):
        return
    unsafe = _word(root / _UNSAFE) in ("Y", "1")
    without = " (enable_unsafe_noiommu_mode is no substitute: the drive could then write to all of its memory)"
    raise RigError(
        f"this host has no IOMMU in use, so no device can be handed to a guest{without if unsafe else ''}",
        hint="the firmware's switch (VT-d, AMD-Vi) and `intel_iommu=on` on the kernel's command line turn it on",
    )


def _group(place: Path, groups: Path, devices: Path) -> str:
    """Return the drive's IOMMU group; raises RigError where it cannot be handed over alone."""
    group = ""
    with contextlib.suppress(OSError):
        group = (place / "iommu_group").readlink().name
    if not group or _word(groups / group / "name") == "vfio-noiommu":
        raise RigError(f"the disk {place.name} is behind no IOMMU, and could write to all of the host's memory")
    others = sorted(one.name for one in _listed(groups / group / "devices") if one.name != place.name)
    free = (warden.VFIO, "pcieport", "")
    held = [one for one in others if warden.driver_of(devices / one) not in free]
    if held:
        raise RigError(f"the disk {place.name} shares its IOMMU group {group} with {held[0]}, which the host drives")
    if not os.access(place / "driver_override", os.W_OK):
        raise RigError(f"the driver of the disk {place.name} may not be changed by us", hint="run as root")
    return group


def _controllers(device: Path) -> Iterator[Path]:
    """Yield the NVMe controllers of a PCI device that its driver runs: one."""
    yield from (one for one in _listed(device / NVME) if _CONTROLLER.fullmatch(one.name))


def _namespaces(controller: Path) -> list[str]:
    """Return the block devices of a controller; where the kernel could take several paths to it, of all paths."""
    names = (one.name for one in _listed(controller) if _NAMESPACE.fullmatch(one.name))
    return [re.sub(r"c\d+", "", name) for name in names]


def _listed(directory: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(directory.iterdir())
    return []


def _word(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


DEVICES = Path("/sys/bus/pci/devices")

_DRIVER = Path("/sys/bus/pci/drivers") / warden.VFIO
_NEVER = frozenset({ClaimKind.MOUNTED, ClaimKind.HELD, ClaimKind.SWAP, ClaimKind.OPEN})
"""The claims that end with the drive: whoever has one would lose it."""

_MODULE_SECONDS = 30.0
_BACK_SECONDS = 60.0
"""A drive that was reset may take the time that it states for its start: up to two minutes by its register, and 60 s
in the kernel's patience for one command.
"""

_SETTLE_SECONDS = 5.0
"""A drive that has just come back is looked at by the host's udev."""

_NODE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


def recover() -> None:
    """Give back the drives that killed runs left with a guest, and wait until this host sees them again."""
    for left in warden.abandoned():
        if addresses := warden.noted_drives(left):
            warden.note_removed(warden.sweep(warden.run_id_of(left), left))
            for address in {*addresses} - {*warden.noted_drives(left)}:
                _until(functools.partial(_seen, address), _BACK_SECONDS)


def require_free(drive: Drive, *, allow_in_use: bool) -> None:
    """Raise RefusedTargetError while anything of this host uses a drive, or something is on it.

    `allow_in_use` permits what is on it; what uses it would lose it, and nothing permits that.
    """
    found = lasting(lambda: claims(drive.node))
    if uses := _uses(found):
        raise RefusedTargetError(
            f"{drive.node} is in use, and would be gone from this host: {'; '.join(uses)}",
            hint="unmount it, or end what has it open; no option overrides this",
        )
    if found and not allow_in_use:
        words = "; ".join(one.text for one in found)
        raise RefusedTargetError(
            f"{drive.node} is not empty, and nothing below a guest protects a drive that it has: {words}",
            hint="if what is there may be lost: `--allow-in-use`",
        )


def _uses(found: Sequence[Claim]) -> list[str]:
    return [one.text for one in found if one.kind in _NEVER]


@contextlib.contextmanager
def handed_over(address: str, directory: Path) -> Iterator[Drive]:
    """Take a drive from the host's driver while the block runs. `directory` is the run's.

    Raises RigError when this host cannot, RefusedTargetError when something uses the drive, and RigError when it did
    not come back as it was.
    """
    drive = drive_at(address)
    if not _DRIVER.is_dir():
        try:
            shell.run([shell.find("modprobe"), warden.VFIO], timeout_seconds=_MODULE_SECONDS)
        except shell.CommandError as error:
            raise RigError(f"the driver {warden.VFIO} could not be loaded", hint=error.message) from None
    try:
        _take(drive, directory)
        yield drive
    finally:
        if address in warden.noted_drives(directory):
            _give_back(drive, directory)


def _take(drive: Drive, directory: Path) -> None:
    """Unbind a drive from the host's driver. It is open exclusively until then, so that nothing can begin to use it
    after the look. Raises RefusedTargetError while something else uses it.
    """
    _until(lambda: not _uses(claims(drive.node)), _SETTLE_SECONDS)
    require_free(drive, allow_in_use=True)
    with contextlib.ExitStack() as ends:
        try:
            ends.enter_context(opened(drive.node, os.O_EXCL | os.O_NONBLOCK))
        except OSError as error:
            raise RefusedTargetError(f"{drive.node} is in use: {words_of(error)}") from None
        warden.note_drive(directory, drive.address, driver=NVME, group=drive.group)
        try:
            warden.bind(DEVICES / drive.address, warden.VFIO, override=warden.VFIO)
        except OSError as error:
            raise RigError(f"the disk {drive.address} could not be handed over: {error.strerror}") from None
    driver = warden.driver_of(DEVICES / drive.address)
    if driver != warden.VFIO:
        raise RigError(f"the disk {drive.address} could not be handed over: its driver is {driver or 'none'}")
    node = Path("/dev/vfio") / drive.group
    _until(node.exists, _NODE_SECONDS)
    if not os.access(node, os.R_OK | os.W_OK):
        raise RigError(f"{node} is not accessible", hint="run as root, or own that file")


def _give_back(drive: Drive, directory: Path) -> None:
    """Give a drive back, and wait until the host sees it as before."""
    if not warden.give_back(directory, drive.address):
        driver = warden.driver_of(DEVICES / drive.address) or "none"
        raise RigError(
            f"the disk {drive.address} did not come back to the driver {NVME}: it has {driver}",
            hint="`virtune host clean` tries again",
        )
    if not _until(lambda: _same(drive), _BACK_SECONDS):
        raise RigError(
            f"the disk {drive.address} is back with the driver {NVME}, but not as {drive.node} ({drive.number}) "
            f"of {drive.size_bytes} bytes",
            hint="the kernel's log (`dmesg`) says why",
        )


def _seen(address: str) -> bool:
    """Whether this host sees a drive; the kernel asks it for its namespace after its driver has it."""
    with contextlib.suppress(RigError):
        return Path(drive_at(address).node).exists()
    return False


def _same(drive: Drive) -> bool:
    with contextlib.suppress(RigError, OSError):
        node = Path(drive.node).stat().st_rdev
        return drive_at(drive.address) == drive and f"{os.major(node)}:{os.minor(node)}" == drive.number
    return False


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


BOOT_SECONDS = 180.0
"""Before the guest starts, the kernel locks all of its memory (some seconds for each 10 GiB) and resets the drive."""


def taken(stack: Stack, run: Warden, ends: contextlib.ExitStack) -> Drive | None:
    """Take the drive of a stack from the host until `ends`; None for a stack that has none."""
    address = stack.device.vfio_pci
    return None if address is None else ends.enter_context(handed_over(address, run.directory))


def machine_of(drive: Drive | None, **started: Any) -> Carried:
    """Return a running machine, as `Carried` takes it: with a disk of QEMU's, or with a real drive."""
    return Carried(**started) if drive is None else Passed(drive=drive, **started)


@dataclass(kw_only=True)
class Passed(Carried):
    """A running machine whose guest has a drive of the host."""

    drive: Drive
    stays = False

    def unfit(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:  # noqa: ARG002 - whatever they are
        return "a drive that is passed through comes with the machine"

    def place(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:  # noqa: ARG002 - always anew
        """Have the guest look for the drive, and keep it from writing where the load does not."""
        self.system.prepare(stack)
        place_threads(stack, self.process)
        # a guest without a system does not ask its only disk for its name
        self.seen = self.system.look() if self.system.fixed else self.system.look(self.drive.serial)
        if not ground.writes:
            self.system.protect(self.seen.get("device", ""))
        self.stack = stack
        self.count += 1
        return "disk"

    def checks(self, stack: Stack, ground: DiskImageSpec) -> Iterator[Check]:  # noqa: ARG002 - there is no image
        yield self._accelerator_check()
        here = HostsSide(
            driver=warden.driver_of(DEVICES / self.drive.address),
            pid=self.process.pid,
            held=frozenset((self.process.descriptors() or {}).values()),
            locked_bytes=self.process.locked_bytes(),
        )
        yield passed_check(self._execute, self.drive, here, self.seen, by_serial=not self.system.fixed)
        yield from machine_checks(self._execute, stack, self.process, self.vm.version, self.seen.get("cpus"))
        yield from memory_checks(stack.machine, self.process)
        yield from place_checks(stack, self.process)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsSide:
    """What this host shows of a drive that is with a guest: its driver, and QEMU's process with what it has open and
    how much memory it has locked.
    """

    driver: str
    pid: int
    held: Collection[str]
    locked_bytes: int


def passed_check(ask: Ask, drive: Drive, here: HostsSide, seen: Mapping[str, str], *, by_serial: bool) -> Check:
    """Check that QEMU has the drive, that the host's driver has not, and that the guest sees that very drive.

    The guest found it by its serial number, or because it has no other disk.
    """
    at = f"/machine/peripheral/{DEVICE}"
    kind, host = (str(ask("qom-get", {"path": at, "property": name})) for name in ("type", "host"))
    group = f"/dev/vfio/{drive.group}"
    size = int(seen.get("sectors", "0")) * _SECTOR_BYTES
    wrong = {
        f"QEMU's device is a {kind}": kind != warden.VFIO,
        f"QEMU has the device {host}": host != drive.address,
        f"its driver is {here.driver or 'none'}": here.driver != warden.VFIO,
        f"QEMU does not hold {group}": group not in here.held,
        f"the guest's drive has {size} bytes": size != drive.size_bytes,
    }
    differs = [words for words, holds in wrong.items() if holds]
    named = f" under the serial number {drive.serial}" if by_serial else ""
    proof = (
        f"QMP qom-get {DEVICE}: {kind} of {host}; its driver on this host is {here.driver}; process {here.pid} holds "
        f"{group} and has {format_bytes(here.locked_bytes)} of memory locked; the guest sees {size} bytes{named}"
    )
    found = "; ".join(differs) or drive.address
    return Check("storage.vfio_pci", drive.address, found, proof)
