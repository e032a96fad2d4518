# SPDX-License-Identifier: Apache-2.0
"""A machine whose guest drives a real NVMe drive itself: there are no block nodes below it, and QEMU counts nothing.

The drive is there from the machine's start, and the machine ends with its trial, so that the host has its drive back.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from virtune import warden
from virtune.bench.port import DiskImageSpec
from virtune.bench.qemu.carried import Carried, StartedMachine
from virtune.bench.qemu.device_settings import Ask, machine_checks
from virtune.bench.qemu.handed import DEVICES, handed_over
from virtune.bench.qemu.passthrough import Drive
from virtune.bench.qemu.placement import pages_check, place_checks, place_threads
from virtune.dialects.qemu.guest import DEVICE
from virtune.model.evidence import Check
from virtune.model.stack import Stack
from virtune.model.units import format_bytes
from virtune.shell import Warden

_SECTOR_BYTES = 512

BOOT_SECONDS = 180.0
"""Before the guest starts, the kernel locks all of its memory (some seconds for each 10 GiB) and resets the drive."""


def taken(stack: Stack, run: Warden, ends: contextlib.ExitStack) -> Drive | None:
    """Take the drive of a stack from the host until `ends`; None for a stack that has none."""
    address = stack.device.vfio_pci
    return None if address is None else ends.enter_context(handed_over(address, run.directory))


def machine_of(started: StartedMachine, drive: Drive | None) -> Carried:
    """Return a running machine: with a disk of QEMU's, or with a real drive."""
    return Carried(started) if drive is None else Passed(started, drive)


class Passed(Carried):
    """A running machine whose guest has a drive of the host."""

    stays = False

    def __init__(self, started: StartedMachine, drive: Drive) -> None:
        super().__init__(started)
        self._drive = drive

    def unfit(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:  # noqa: ARG002 - whatever they are
        """Say that it is of no use for another stack."""
        return "a drive that is passed through comes with the machine"

    def place(self, stack: Stack, ground: DiskImageSpec, *, anew: bool) -> str:  # noqa: ARG002 - always anew
        """Have the guest look for the drive, and keep it from writing where the load does not."""
        self._system.prepare(stack.device.bus_in_guest)
        place_threads(stack, self.process)
        # a guest without a system does not ask its only disk for its name
        self.seen = self._system.look() if self._system.fixed else self._system.look(self._drive.serial)
        if not ground.writes:
            self._system.protect(self.seen.get("device", ""))
        self.stack = stack
        self.count += 1
        return "disk"

    def checks(self, stack: Stack, ground: DiskImageSpec) -> Iterator[Check]:  # noqa: ARG002 - there is no image
        """Check the settings that are active now."""
        yield self._accelerator_check()
        here = HostsSide(
            driver=warden.driver_of(DEVICES / self._drive.address),
            pid=self.process.pid,
            held=frozenset((self.process.descriptors() or {}).values()),
            locked_bytes=self.process.locked_bytes(),
        )
        yield passed_check(self._execute, self._drive, here, self.seen, by_serial=not self._system.fixed)
        yield from machine_checks(self._execute, stack, self.process, self.vm.version, self.seen.get("cpus"))
        yield from pages_check(stack.machine, self.process)
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
    return Check(setting="storage.vfio_pci", asked=drive.address, found=found, proof=proof)
