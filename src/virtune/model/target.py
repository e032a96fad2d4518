# SPDX-License-Identifier: Apache-2.0
"""A Target: where the load lands. The fio job follows from its type."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """A file or block device of this host. `size_bytes` bounds the offsets that fio may touch. The load's clones are
    divided among it and `more` of the same size. `keeps_cache`: what the page cache has of it must stay there.
    """

    path: str
    size_bytes: int
    more: tuple[str, ...] = ()
    keeps_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTarget(FileTarget):
    """A block device in a guest, loaded by the guest's own fio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NbdTarget:
    """An NBD export on a unix socket; only fio's `nbd` engine can load it."""

    socket: str
    export: str
    size_bytes: int

    @property
    def uri(self) -> str:
        """The address in the NBD URI form that libnbd reads."""
        return f"nbd+unix:///{self.export}?socket={self.socket}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostUserTarget:
    """A vhost-user-blk export on a unix socket: the virtqueues of a guest's disk, without the guest.

    fio's `libblkio` engine can load it, and `virtune-load`, whose clones share its `queues` where there are fewer.
    """

    socket: str
    size_bytes: int
    queues: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTarget:
    """A disk of a guest without an operating system, on that bus: the guest itself is the load generator, with
    virtune-load's options. The load's clones are divided among it and further disks of the same size; `more` are the
    buses of these. `number` is 0 for the guest's first disk.
    """

    size_bytes: int
    bus: str = "virtio-blk"
    more: tuple[str, ...] = ()
    number: int = 0


Target = FileTarget | NbdTarget | VhostUserTarget | BareTarget
