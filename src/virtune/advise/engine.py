# SPDX-License-Identifier: Apache-2.0
"""Rules of the I/O engine, the cache and the image's format."""

from collections.abc import Iterator

from virtune.advise.rule import (
    below,
    direct_of,
    io_uring_crawls_on_ahci,
    io_uring_hangs,
    measuring,
    rule,
    turn,
    words,
)
from virtune.model.domain import HELD_HERE, DomainDisk, cache_of, in_page_cache
from virtune.model.finding import Seen, Subject
from virtune.model.stack import DIRECT_CACHES, THROUGH_CACHES

AIO_EVENTS_PER_CONTEXT = 1024
"""What one event loop with native AIO takes of `fs.aio-max-nr` (measured with QEMU 7.2)."""

L2_CACHE_DEFAULT = 32 * 1024**2
"""QEMU's default L2 cache of a qcow2 image since 3.1."""

BY_DEFAULT = "detect_zeroes by default"
"""Marks a disk for which nobody requested detect_zeroes and whose system (Proxmox) enables it by default."""

BACKING_MAX = 2
"""One snapshot or one template makes a chain of up to two images below."""


def _storage_unknown(subject: Subject, disk: DomainDisk) -> bool:
    """Whether nothing says who opens a disk: Proxmox names a storage, and QEMU itself reaches some (rbd)."""
    named = subject.domain.language == "proxmox" and disk.source.kind == "volume"
    return named and HELD_HERE not in disk.options


def _unless(subject: Subject, disk: DomainDisk) -> str:
    storage = disk.source.name.partition(":")[0]
    return f", unless QEMU reaches the storage {storage} by itself" if _storage_unknown(subject, disk) else ""


def _native_in_page_cache(disk: DomainDisk) -> bool:
    return disk.io == "native" and disk.opened_here and in_page_cache(disk)


@rule("R10")
def native_without_direct(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    cache = cache_of(disk)
    if _native_in_page_cache(disk) and not _storage_unknown(subject, disk):
        direct = direct_of(cache)
        yield Seen(
            seen=f"io=native with cache={cache}",
            advice=f"set cache={direct}",
            turns=turn(disk, "disk.cache", direct),
        )


@rule("R93")
def native_on_unknown_storage(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if _native_in_page_cache(disk) and _storage_unknown(subject, disk):
        yield Seen(
            seen=f"io=native with cache={cache_of(disk)} on {disk.source.name}, whose storage's type is not known",
            advice="take aio= away: Proxmox chooses an engine that the storage and the cache allow",
            turns=turn(disk, "disk.aio", None),
        )


@rule("R11")
def native_on_sparse(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.io == "native" and disk.source.kind == "file" and disk.format == "raw" and subject.image(disk).sparse:
        yield Seen(
            seen="io=native on a sparse file",
            turns=turn(disk, "disk.aio", "io_uring"),
            advice="compare with io_uring and threads, or allocate the image in full",
            measure=measuring(subject, disk, {}, {"disk.aio": "io_uring"}),
        )


@rule("R12")
def io_uring_cannot_be(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    host = subject.host
    reasons = (
        (host.io_uring_disabled == 2, "kernel.io_uring_disabled=2"),
        (below(host.kernel, (5, 1)), f"kernel {words(host.kernel)} has none"),
        (below(host.qemu, (5, 0)), f"QEMU {words(host.qemu)} has none"),
        (host.io_uring_usable is False, "the kernel refuses to set one up"),
    )
    because = next((text for holds, text in reasons if holds), None)
    if because and disk.io == "io_uring" and disk.opened_here:
        yield Seen(
            seen=f"io=io_uring, and {because}{_unless(subject, disk)}",
            turns=turn(disk, "disk.aio", "threads"),
            advice="allow io_uring on the host, or set io=threads (or native with cache=none)",
        )


@rule("R14")
def io_uring_known_bad(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    version = subject.host.qemu
    if disk.io != "io_uring" or version is None or not disk.opened_here:
        return
    if io_uring_hangs(version) or (io_uring_crawls_on_ahci(version) and disk.bus in ("ide", "sata")):
        yield Seen(
            seen=f"io=io_uring on {disk.bus} under QEMU {words(version)}{_unless(subject, disk)}",
            advice="update QEMU, or set io=threads meanwhile",
            turns=turn(disk, "disk.aio", "threads"),
        )


@rule("R16")
def engine_of_a_network_disk(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.io and disk.source.kind == "network":
        yield Seen(
            seen=f"io={disk.io} on {disk.source.protocol}", advice="remove it", turns=turn(disk, "disk.aio", None)
        )


@rule("R17")
def aio_limit_reached(subject: Subject) -> Iterator[Seen]:
    used, limit = subject.host.aio_used, subject.host.aio_limit
    native = [disk for disk in subject.disks if disk.io == "native" and disk.opened_here]
    if used is None or limit is None or not native or subject.running:
        return
    contexts = len({subject.domain.threads_of(disk) for disk in native})
    if used + AIO_EVENTS_PER_CONTEXT * contexts > limit:
        yield Seen(
            at=native[0],
            seen=f"fs.aio-nr={used} of {limit}, and {contexts} more contexts",
            advice="`sysctl fs.aio-max-nr=1048576` on the host",
        )


@rule("R18")
def cached_twice(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    passed = disk.device == "lun" and disk.bus == "scsi"  # its requests go to the device as SCSI commands
    if disk.source.kind == "block" and cache_of(disk) == "writeback" and not passed:
        yield Seen(
            seen="a block device with cache=writeback",
            turns=turn(disk, "disk.cache", "none"),
            advice="compare with cache=none",
            measure=measuring(subject, disk, {}, {"disk.cache": "none"}),
        )


@rule("R19")
def flush_after_each_write(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    version = subject.host.qemu
    if disk.cache in THROUGH_CACHES and (version is None or below(version, (10, 0))):
        where = f" under QEMU {words(version)}" if version else ", under which QEMU is not known"
        yield Seen(
            seen=f"cache={disk.cache}{where}",
            advice="if the guest flushes, compare with cache=none; QEMU 10.0 has FUA",
            turns=turn(disk, "disk.cache", "none"),
            # which reads back whether writes go through: only a guest's disk tells
            measure=measuring(subject, disk, {}, {"disk.cache": "none"}, rig="qemu", load="randwrite-4k-qd1"),
        )


@rule("R20")
def direct_on_btrfs(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    image = subject.image(disk)
    if image.filesystem == "btrfs" and image.copy_on_write and cache_of(disk) in DIRECT_CACHES:
        yield Seen(
            seen=f"cache={cache_of(disk)} on a btrfs file with copy-on-write",
            advice="a new file in a directory with `chattr +C` (it loses its checksums), or accept the cache",
        )


@rule("R22")
def l2_cache_too_small(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    image = subject.image(disk)
    if disk.format != "qcow2" or image.size_bytes is None or not image.cluster_bytes:
        return
    needed = image.size_bytes * (16 if image.extended_l2 else 8) // image.cluster_bytes
    if needed > (disk.metadata_cache_bytes or L2_CACHE_DEFAULT):
        yield Seen(
            seen=f"L2 tables of {needed // 1024**2} MiB, cache of "
            f"{(disk.metadata_cache_bytes or L2_CACHE_DEFAULT) // 1024**2} MiB",
            advice="if the load is random over the whole disk, a larger metadata_cache",
            turns=turn(disk, "disk.cache_size", str(needed * 5 // 4)),
        )


@rule("R23")
def long_chain(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    depth = subject.image(disk).below if disk.backing is None else disk.backing
    if depth is not None and depth > BACKING_MAX:
        yield Seen(
            seen=f"{depth} images below",
            advice="`virsh blockcommit` or `blockpull` off-peak; the snapshots below are then gone",
        )


@rule("R24")
def clusters_without_subclusters(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    image = subject.image(disk)
    if disk.format == "qcow2" and image.backing and image.cluster_bytes == 65536 and image.extended_l2 is False:
        yield Seen(
            seen="an overlay with clusters of 64 KiB and no subclusters",
            advice="make it anew with cluster_size=128k,extended_l2=on (QEMU 5.2 on all hosts)",
            measure=measuring(subject, disk, {}, {"disk.cluster_size": "128k", "disk.extended_l2": "on"}),
        )


@rule("R25")
def discard_unset(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    flash = subject.image(disk).rotational is False or subject.image(disk).sparse
    if disk.discard is None and disk.opened_here and flash and not disk.shareable:
        yield Seen(
            seen="discard is not set, on flash or a thin image",
            advice="discard=unmap",
            turns=turn(disk, "disk.discard", "unmap"),
        )


@rule("R26")
def zeroes_are_looked_for(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.detect_zeroes in ("on", "unmap") and disk.opened_here and BY_DEFAULT not in disk.options:
        yield Seen(
            seen=f"detect_zeroes={disk.detect_zeroes}",
            advice="compare with off, on your data",
            turns=turn(disk, "disk.detect_zeroes", "off"),
        )


@rule("R82")
def zeroes_not_unmapped(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.detect_zeroes == "unmap" and disk.discard != "unmap":
        yield Seen(
            seen="detect_zeroes=unmap with discard off",
            advice="discard=unmap, or detect_zeroes=off",
            turns=turn(disk, "disk.detect_zeroes", "off"),
        )
