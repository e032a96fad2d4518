# SPDX-License-Identifier: Apache-2.0
"""Linux in a test VM: the drivers its disk needs, and what it sees."""

from collections.abc import Mapping, Sequence

from virtune.bench.appliance.build import Appliance
from virtune.bench.guest.disk import seen_in_guest
from virtune.bench.guest.mounted import Mounted, mount, unmount
from virtune.bench.qemu.machine import Vm
from virtune.dialects.qemu.guest import DEVICE, DRIVERS
from virtune.model.errors import RigError

_SEEN_SECONDS = 20.0
_DRIVER_SECONDS = 20.0

_CHECKSUMS = "crc32c_generic"
"""ext4 asks for it by the name of the sum, which no dependency of modules says."""


class Linux:
    """The appliance, as it runs in a machine."""

    fixed = False
    proof = "the guest's /sys/block"

    def __init__(self, vm: Vm, appliance: Appliance) -> None:
        self._vm, self._appliance = vm, appliance
        self._drivers = set(vm.drivers)
        self._mounted: Mounted | None = None
        self.drives = vm.vcpus

    def drives_module(self, module: str) -> bool:
        """Whether it has this kernel module, or has it built in."""
        return self._appliance.drives(module)

    def prepare(self, bus: str) -> None:
        """Load the drivers of a bus; raises RigError when the guest's kernel lacks them."""
        for module in DRIVERS[bus]:
            self._load(module, f"bus={bus}")

    def mount(self, devices: Sequence[str], kind: str, *, writes: bool) -> Mounted:
        """Mount the filesystem of each device; raises RigError when the guest's kernel lacks it, or one fails."""
        if self._appliance.drives(_CHECKSUMS):  # a kernel without that module has it in its library
            self._load(_CHECKSUMS, kind)
        self._load(kind, f"disk.filesystem={kind}")
        self._mounted = mount(self._vm.guest, devices, kind, writes=writes)
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
        if not self._appliance.drives(module):
            raise RigError(f"the guest's kernel {self._appliance.release} has no {module}, which {wanted} needs")
        words = f"for m in $(cat /lib/modules/{module}.order); do insmod /lib/modules/$m.ko; done 2>/dev/null; true"
        if module in self._appliance.modules:
            self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
        self._drivers.add(module)

    def protect(self, device: str) -> None:
        """Have the kernel refuse all writes to a disk; raises RigError when it does not."""
        words = f"blockdev --setro {device} && blockdev --getro {device}"
        done = self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
        if done.stdout.strip() != b"1":
            raise RigError(f"the guest did not set {device} to read-only", hint=done.stderr.decode(errors="replace"))

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        """Wait until the guest sees the disk with that serial number, and return its properties there."""
        return seen_in_guest(self._vm.guest, serial, timeout_seconds=_SEEN_SECONDS)
