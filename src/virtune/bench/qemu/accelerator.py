# SPDX-License-Identifier: Apache-2.0
"""KVM by trial: a guest of ours either comes up on it or it does not, whatever /dev/kvm says of itself.

A /dev/kvm that opens and makes VMs may still stop every guest (nested, with a hypervisor above that does not play its
part). The answer is kept by everything it depends on: host kernel and boot, QEMU, guest. What may pass (no memory for
a guest, a KVM that another hypervisor has, a monitor that is late) is no answer, and the next run tries again.
"""

import contextlib
import hashlib
import json
import os
import platform
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from virtune import shell
from virtune.bench.appliance.build import Appliance, appliances
from virtune.bench.qemu.machine import PROGRAM, EndedError, HungError, running
from virtune.model.errors import MissingToolError, RigError
from virtune.model.machine import Machine

TRIAL_SECONDS = 20.0
"""On KVM the appliance is ready within 2 s; ten times that is no matter of a busy host any more."""

KVM = Path("/dev/kvm")

_OWN_FAULTS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP})
"""By which QEMU ends through its own doing; any other is sent by somebody, or by a host that has no memory left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """What guests run on here: `kvm` or `tcg`, and why in one clause. `tried` is false where there was nothing to."""

    kvm: bool
    why: str
    tried: bool

    @property
    def name(self) -> str:
        """QEMU's word for it."""
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
    """Return what guests run on: what was found when it was last tried, else try now (`again`: try in any case).

    `emulator` is the QEMU that is meant, where it is another than the PATH's; `device` is where KVM is found.
    """
    if not device.exists():
        return Accelerator(kvm=False, why=f"there is no {device}", tried=False)
    if not os.access(device, os.R_OK | os.W_OK):
        return Accelerator(kvm=False, why=f"{device} is not accessible", tried=False)
    place, key = cache / "accelerators.json", _key(appliance, emulator or PROGRAM)
    known = _known(place)
    if key in known and not again:
        return known[key]
    found, lasting = _try(appliance, warden, Machine(emulator=emulator), trial_seconds)
    if not lasting:
        return found
    place.parent.mkdir(parents=True, exist_ok=True)
    work = place.with_name(f"{place.name}.{os.getpid()}.partial")
    work.write_text(json.dumps({name: asdict(one) for name, one in {**known, key: found}.items()}))
    work.rename(place)
    return found


def last_tried(cache: Path) -> Accelerator | None:
    """Return what came of the newest guest that was tried on this kernel, boot and QEMU; None where none was."""
    known = _known(cache / "accelerators.json")
    with contextlib.suppress(MissingToolError):
        for appliance in reversed(appliances(cache / "appliances")):
            if (found := known.get(_key(appliance, PROGRAM))) is not None:
                return found
    return None


def _try(
    appliance: Appliance, warden: shell.Warden, asked: Machine, trial_seconds: float
) -> tuple[Accelerator, bool]:
    """Boot a guest on KVM; returns what came of it, and whether it would come of it again."""
    try:
        with running(appliance, warden, kvm=True, asked=asked, boot_seconds=trial_seconds) as vm:
            return Accelerator(kvm=True, why=f"a guest came up on KVM in {vm.boot_seconds:.1f} s", tried=True), True
    except RigError as error:
        lasting = _lasts(error)
        said = f" ({error.hint})" if error.hint else ""
        once = "" if lasting else "; that may pass, so the next run tries again"
        return Accelerator(kvm=False, why=f"on KVM {error.message}{said}{once}", tried=True), lasting


def _lasts(error: RigError) -> bool:
    """Whether KVM itself failed a guest: it hangs there, QEMU trips over it, or the guest ends while it boots.

    A QEMU that refuses with words before it begins is asked again each time: that takes it some milliseconds.
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
        return {key: Accelerator(**one) for key, one in json.loads(place.read_text()).items()}
    return {}


def _key(appliance: Appliance, emulator: str) -> str:
    program = Path(shell.find(emulator)).resolve()
    found = program.stat()
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    parts = (platform.release(), boot, str(program), found.st_size, found.st_mtime_ns, appliance.key)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
