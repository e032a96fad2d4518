# SPDX-License-Identifier: Apache-2.0
"""The interface for observing a running VM: its disks, its process, and its counters."""

from collections.abc import Mapping
from typing import Protocol

from virtune.bench.live.places import PlaceReader
from virtune.bench.live.rings import RingReader
from virtune.model.live import DiskCount, LiveVm


class LiveView(Protocol):
    """A view of a VM that changes nothing."""

    vm: LiveVm

    def counts(self) -> Mapping[str, DiskCount]:
        """Return what QEMU has counted of each disk by now, by its target."""
        ...

    def rings(self, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...

    def places(self, target: str) -> PlaceReader | None:
        """Return what sees which places of a disk are asked for; None where they cannot be seen."""
        ...

    def jobs(self, target: str) -> tuple[str, ...]:
        """Return what works on a disk besides the guest, as far as it is seen."""
        ...

    def exits(self) -> int | str:
        """Return how often KVM has left the guest for the host, all vCPUs together, or why that is not known."""
        ...


class LiveSource(Protocol):
    """The running VMs behind one door: a libvirt, or a QEMU's monitor. Nothing is changed on them."""

    def vms(self) -> tuple[LiveVm, ...]:
        """Return the VMs as they were when last counted."""
        ...

    def counts(self) -> Mapping[str, Mapping[str, DiskCount]]:
        """Return what QEMU has counted of each disk by now, by VM and target."""
        ...

    def rings(self, vm: str, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...
