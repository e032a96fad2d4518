# SPDX-License-Identifier: Apache-2.0
"""Hand an NVMe drive of this host to a guest, and give it back.

What is changed (the driver of the drive, and the driver that it is reserved for) is recorded in the run's directory
before, so that the guard gives the drive back when virtune is killed, and the next run or `virtune clean` when the
guard is killed too.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from virtune import shell, warden
from virtune.bench.qemu.passthrough import NVME, Drive, drive_at
from virtune.model.errors import RefusedTargetError, RigError
from virtune.model.facts import Claim, ClaimKind
from virtune.probe.claims import claims

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
    found = claims(drive.node)
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
    _load_driver()
    try:
        _take(drive, directory)
        yield drive
    finally:
        if address in warden.noted_drives(directory):
            _give_back(drive, directory)


def _load_driver() -> None:
    if not _DRIVER.is_dir():
        try:
            shell.run([shell.find("modprobe"), warden.VFIO], timeout_seconds=_MODULE_SECONDS)
        except shell.CommandError as error:
            raise RigError(f"the driver {warden.VFIO} could not be loaded", hint=error.message) from None


def _take(drive: Drive, directory: Path) -> None:
    """Unbind a drive from the host's driver. It is open exclusively until then, so that nothing can begin to use it
    after the look.
    """
    with _alone_on(drive):
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


@contextlib.contextmanager
def _alone_on(drive: Drive) -> Iterator[None]:
    """Hold a drive open exclusively while the block runs; raises RefusedTargetError while something else uses it."""
    _until(lambda: not _uses(claims(drive.node)), _SETTLE_SECONDS)
    require_free(drive, allow_in_use=True)
    try:
        descriptor = os.open(drive.node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedTargetError(f"{drive.node} is in use: {(error.strerror or str(error)).lower()}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _give_back(drive: Drive, directory: Path) -> None:
    """Give a drive back, and wait until the host sees it as before."""
    if not warden.give_back(directory, drive.address):
        driver = warden.driver_of(DEVICES / drive.address) or "none"
        raise RigError(
            f"the disk {drive.address} did not come back to the driver {NVME}: it has {driver}",
            hint="`virtune clean` tries again",
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
