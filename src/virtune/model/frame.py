# SPDX-License-Identifier: Apache-2.0
"""A TopFrame: what all disks of the running VMs did between two samples, and what that cost their host."""

from dataclasses import dataclass

from virtune.model.bottleneck import Bottleneck, DataPath
from virtune.model.counters import Use
from virtune.model.live import DiskRates
from virtune.model.threads import ThreadCost


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFrame:
    """A disk of a running VM between two samples.

    `cpu_per_io_ns` is the CPU time of QEMU's threads for each I/O, without vCPUs; None where it is unknown. `gone`
    says that it was unplugged or its VM ended, and that these are its last figures.
    """

    vm: str
    disk: str
    rates: DiskRates
    path: DataPath
    found: Bottleneck
    cpu_per_io_ns: float | None
    gone: bool = False

    @property
    def name(self) -> str:
        """VM and disk, as `virtune diagnose` takes them."""
        return f"{self.vm}:{self.disk}"

    @property
    def latency_ns(self) -> float | None:
        """The mean time of a request from where it is first seen; None without requests or without times."""
        layers = self.path.layers
        return None if layers is None or layers.total_ns <= 0 else layers.total_ns

    @property
    def in_flight(self) -> float:
        """How many requests were under way at a time, on average; of a disk that completed none, how many wait."""
        return float(self.path.held or 0) if self.path.layers is None else self.path.layers.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFrame:
    """A thread of a VM's QEMU; `iops` is the rate of the VM's disks together."""

    vm: str
    cost: ThreadCost
    iops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFrame:
    """A running VM: its disks together, and its QEMU's threads. `seen` says that these are visible, `emulated` that
    it runs without KVM (TCG).
    """

    vm: str
    disks: tuple[DiskFrame, ...]
    threads: tuple[ThreadFrame, ...]
    seen: bool
    emulated: bool = False

    @property
    def iops(self) -> float:
        """I/Os a second."""
        return sum(one.path.iops for one in self.disks)

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return sum(one.path.bandwidth for one in self.disks)

    @property
    def in_flight(self) -> float:
        """How many requests were under way at a time, on average."""
        return sum(one.in_flight for one in self.disks)

    @property
    def latency_ns(self) -> float | None:
        """The mean time of a request over all disks (Little's law)."""
        return self.in_flight / self.iops * 1e9 if self.iops > 0 and self.in_flight > 0 else None

    def cpus(self, *roles: str) -> float | None:
        """How many CPUs its threads used, or those of some roles; None where they are not visible."""
        chosen = [one.cost.busy for one in self.threads if not roles or one.cost.role in roles]
        return sum(chosen) if self.seen else None

    @property
    def stalled(self) -> float | None:
        """How many threads at a time could run and had no CPU, on average; None where they are not visible."""
        return sum(one.cost.stalled for one in self.threads) if self.seen else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFrame:
    """The running VMs of a host between two samples. `wall_seconds` is the time of the later one; `missing` says what
    cannot be seen, and what it would add.
    """

    wall_seconds: float
    seconds: float
    vms: tuple[VmFrame, ...]
    host: Use
    missing: tuple[str, ...] = ()

    @property
    def emulated(self) -> tuple[str, ...]:
        """The names of the VMs that run without KVM (TCG)."""
        return tuple(vm.vm for vm in self.vms if vm.emulated)

    @property
    def disks(self) -> tuple[DiskFrame, ...]:
        """The disks of all VMs."""
        return tuple(disk for vm in self.vms for disk in vm.disks)

    @property
    def threads(self) -> tuple[ThreadFrame, ...]:
        """The threads of all VMs."""
        return tuple(thread for vm in self.vms for thread in vm.threads)
