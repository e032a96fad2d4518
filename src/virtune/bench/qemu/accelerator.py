# SPDX-License-Identifier: Apache-2.0
"""Find out whether KVM works by booting a test VM on it: access to /dev/kvm alone does not prove it.

With a /dev/kvm that opens and makes VMs, guests may still hang (nested, under a hypervisor that lacks support). The
result is cached by everything it depends on: host kernel and boot, QEMU, guest. Temporary failures (no memory for a
guest, a KVM used by another hypervisor, a slow monitor) are not cached, and the next run tries again.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from virtune import shell
from virtune.bench.appliance.build import Appliance, appliances
from virtune.bench.qemu.machine import PROGRAM, EndedError, HungError, QemuGuest, boot_id, running
from virtune.bounded import write_whole
from virtune.model.errors import MissingToolError, RigError
from virtune.model.remark import KVM_WITHOUT_HARDWARE
from virtune.model.stack import Machine
from virtune.probe.access import read_trusted

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


def bare_accelerator(
    guest: Path, cache: Path, boot: Boot, *, emulator: str | None = None, device: Path = KVM
) -> Accelerator:
    """The same for a guest without an operating system, the program `guest`; `boot` starts it with a CPU."""
    about = guest.stat()
    key = _key(f"{guest.name}-{about.st_size}-{about.st_mtime_ns}", emulator or PROGRAM)
    return remembered(cache / "bare-accelerators.json", key, boot, device=device)


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
