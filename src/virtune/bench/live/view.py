# SPDX-License-Identifier: Apache-2.0
"""What every way to look at a VM gives: its disks, its process, and its counters whenever they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from virtune.bench.live.rings import RingReader
from virtune.model.live import DiskCount, LiveDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveVm:
    """A VM that runs; `pid` is None where its process is not seen. `missing` says what cannot be seen of it."""

    name: str
    pid: int | None
    disks: tuple[LiveDisk, ...]
    missing: tuple[str, ...] = ()


class LiveView(Protocol):
    """A way to look at a VM, which changes nothing of it."""

    vm: LiveVm

    def counts(self) -> Mapping[str, DiskCount]:
        """Return what QEMU has counted of each disk by now, by its target."""
        ...

    def rings(self, target: str) -> RingReader | str:
        """Return the virtqueues of a disk, or say why they cannot be seen."""
        ...
