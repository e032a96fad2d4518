# SPDX-License-Identifier: Apache-2.0
"""Linux in a test VM: the drivers its disk needs, and what it sees."""

from collections.abc import Mapping

from virtune.bench.appliance.build import Appliance
from virtune.bench.guest.disk import seen_in_guest
from virtune.bench.qemu.machine import Vm
from virtune.dialects.qemu.guest import DEVICE, DRIVERS
from virtune.model.errors import RigError

_SEEN_SECONDS = 20.0
_DRIVER_SECONDS = 20.0


class Linux:
    """The appliance, as it runs in a machine."""

    fixed = False
    proof = "the guest's /sys/block"

    def __init__(self, vm: Vm, appliance: Appliance) -> None:
        self._vm, self._appliance = vm, appliance
        self._drivers: set[str] = set()
        self.drives = vm.vcpus

    def prepare(self, bus: str) -> None:
        """Load the drivers of a bus; raises RigError when the guest's kernel lacks them."""
        for module in DRIVERS[bus]:
            if module in self._drivers:
                continue
            if not self._appliance.drives(module):
                release = self._appliance.release
                raise RigError(f"the guest's kernel {release} has no {module}, which bus={bus} needs")
            words = (
                f"for m in $(cat /lib/modules/{module}.order); do insmod /lib/modules/$m.ko; done 2>/dev/null; true"
            )
            if module in self._appliance.modules:
                self._vm.guest.look.run(words, timeout_seconds=_DRIVER_SECONDS)
            self._drivers.add(module)

    def look(self, serial: str = DEVICE) -> Mapping[str, str]:
        """Wait until the guest sees the disk with that serial number, and return its properties there."""
        return seen_in_guest(self._vm.guest, serial, timeout_seconds=_SEEN_SECONDS)
