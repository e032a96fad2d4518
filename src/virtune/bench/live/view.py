# SPDX-License-Identifier: Apache-2.0
"""The interface for observing a running VM: its disks, its process, and its counters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.live.rings import RingReader
from virtune.model.live import DiskCount, LiveDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVm:
    """A running VM; `pid` is None where its process is not visible. `missing` names what cannot be observed."""

    name: str
    pid: int | None
    disks: tuple[LiveDisk, ...]
    missing: tuple[str, ...] = ()


class LiveView(Protocol):
    """A view of a VM that changes nothing."""

    vm: LiveVm

    def counts(self) -> Mapping[str, DiskCount]:
        """Return what QEMU has counted of each disk by now, by its target."""
        ...

    def rings(self, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...
