# SPDX-License-Identifier: Apache-2.0
"""Facts: what is read once about a host, and true for the whole study.

A fact that could not be read is an `Unknown` with the reason, never a guess and never a default.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Unknown:
    """What stands in the place of a fact that could not be read: why not, in one clause."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """One block device of the kernel. `kind` is disk, partition, loop, md or dm; `on` names what it stands on.

    `label` is the name people know it by (a volume `vg0-images`, a loop device's file), empty where there is none.
    """

    number: str
    name: str
    kind: str
    label: str = ""
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What stands behind a path: its filesystem, and the chain of block devices from there down.

    `devices` begins with what the filesystem sits on and lists each device once, always above what it stands on.
    Where the kernel shows no block device (memory, network, a pool of its own), `devices` is empty or ends early
    and `gap` says why. A path that is itself a block device has no filesystem.
    """

    path: str
    filesystem: str | None
    mount_point: str | None
    options: tuple[str, ...]
    source: str
    devices: tuple[BlockDevice, ...]
    gap: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its devices, top first: what to count I/O on."""
        return tuple(device.name for device in self.devices)

    @property
    def disks(self) -> tuple[BlockDevice, ...]:
        """The devices at the bottom, which stand on no other."""
        return tuple(device for device in self.devices if not device.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """How the kernel runs one block device. Sizes in bytes, times in microseconds."""

    name: str
    size_bytes: int | Unknown
    model: str | Unknown
    firmware: str | Unknown
    driver: str | Unknown
    read_only: bool | Unknown
    rotational: bool | Unknown
    scheduler: str | Unknown
    schedulers: tuple[str, ...] | Unknown
    queues: int | Unknown
    nr_requests: int | Unknown
    queue_depth: int | Unknown
    logical_block_bytes: int | Unknown
    physical_block_bytes: int | Unknown
    write_cache: str | Unknown
    wbt_us: int | Unknown
    discard: bool | Unknown
    read_ahead_bytes: int | Unknown
    max_request_bytes: int | Unknown
    nomerges: int | Unknown
    rq_affinity: int | Unknown
    iostats: bool | Unknown


class ClaimKind(StrEnum):
    """Why a block device must not be written to. `unseen`: it could not be looked at, so nobody knows."""

    MOUNTED = "mounted"
    SWAP = "swap"
    HELD = "held"
    OPEN = "open"
    SIGNED = "signed"
    READ_ONLY = "read-only"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One reason why a block device must not be written to, in a sentence that names who claims what."""

    kind: ClaimKind
    device: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """How much of a file the host's page cache holds. `source` is what was asked: `cachestat` or `fincore`.

    `dirty_bytes` (dirty and under writeback) is None where the source does not say.
    """

    cached_bytes: int
    dirty_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """How much of the first `length_bytes` of a file was never written. `method` is `fiemap` or `seek`.

    `hole_bytes` have no blocks; `unwritten_bytes` have blocks that hold no data yet (fallocate). By `seek` both
    are holes, and `unwritten_bytes` is None.
    """

    length_bytes: int
    hole_bytes: int
    unwritten_bytes: int | None
    method: str

    @property
    def never_written_bytes(self) -> int:
        """Bytes that are answered with zeroes and without the medium."""
        return self.hole_bytes + (self.unwritten_bytes or 0)
