# SPDX-License-Identifier: Apache-2.0
"""Rules of the I/O engine, the cache and the image's format."""

from collections.abc import Iterator

from virtune.advise.rule import below, io_uring_crawls_on_ahci, io_uring_hangs, measuring, rule, words
from virtune.model.domain import DomainDisk, SettingChange, cache_of
from virtune.model.finding import Confidence, Need, Seen, Severity, Subject
from virtune.model.knob import Change, Risk
from virtune.model.stack import DIRECT_CACHES, THROUGH_CACHES

AIO_EVENTS_PER_CONTEXT = 1024
"""What one event loop with native AIO takes of `fs.aio-max-nr` (measured with QEMU 7.2)."""

L2_CACHE_DEFAULT = 32 * 1024**2
"""QEMU's default L2 cache of a qcow2 image since 3.1."""

BY_DEFAULT = "detect_zeroes by default"
"""Marks a disk for which nobody requested detect_zeroes and whose system (Proxmox) enables it by default."""

BACKING_MAX = 2
"""One snapshot or one template makes a chain of up to two images below."""


def _turn(disk: DomainDisk, knob: str, value: str | None) -> tuple[SettingChange, ...]:
    return (SettingChange(knob=knob, at=disk.target, value=value),)


@rule("R10", Severity.ERROR, source="tested; https://libvirt.org/formatdomain.html")
def native_without_direct(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Native AIO needs O_DIRECT (cache none or directsync); with another cache the VM does not start."""
    if disk.io == "native" and disk.opened_here and cache_of(disk) not in DIRECT_CACHES:
        yield Seen(
            seen=f"io=native with cache={cache_of(disk)}",
            advice="set cache=none",
            turns=_turn(disk, "disk.cache", "none"),
        )


@rule(
    "R11",
    Severity.TRY,
    needs=(Need.IMAGE,),
    risk=Risk.AVAILABILITY,
    source="https://specs.openstack.org/openstack/nova-specs/specs/mitaka/implemented/libvirt-aio-mode.html",
)
def native_on_sparse(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Native AIO blocks QEMU's event loop while the filesystem allocates, as a sparse image does when written."""
    if disk.io == "native" and disk.source.kind == "file" and disk.format == "raw" and subject.image(disk).sparse:
        yield Seen(
            seen="io=native on a sparse file",
            turns=_turn(disk, "disk.aio", "io_uring"),
            advice="compare with io_uring and threads, or allocate the image in full",
            measure=measuring(subject, disk, {}, {"disk.aio": "io_uring"}),
        )


@rule(
    "R12",
    Severity.ERROR,
    needs=(Need.IO_URING, Need.KERNEL, Need.QEMU),
    source="https://docs.kernel.org/admin-guide/sysctl/kernel.html; https://www.qemu.org/2025/12/24/qemu-10-2-0/",
)
def io_uring_cannot_be(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Where io_uring is not available, QEMU before 10.2 runs a thread pool without a message; 10.2 does not
    open the disk.
    """
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
            seen=f"io=io_uring, and {because}",
            turns=_turn(disk, "disk.aio", "threads"),
            advice="allow io_uring on the host, or set io=threads (or native with cache=none)",
        )


@rule(
    "R14",
    Severity.ERROR,
    needs=(Need.QEMU, Need.BUS),
    confidence=Confidence.PUBLISHED,
    risk=Risk.AVAILABILITY,
    source="QEMU commits 2ae361ef1d7d, 961fcc0f2276",
)
def io_uring_known_bad(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Known-bad versions: QEMU 7.1 and 10.1 hang with io_uring; 10.2.0 and 10.2.1 take up to 499 ms a request
    on IDE and SATA disks (a 128 MB read took 25.76 s, 1.30 s once fixed). A distribution may carry the fix.
    """
    version = subject.host.qemu
    if disk.io != "io_uring" or version is None or not disk.opened_here:
        return
    if io_uring_hangs(version) or (io_uring_crawls_on_ahci(version) and disk.bus in ("ide", "sata")):
        yield Seen(
            seen=f"io=io_uring on {disk.bus} under QEMU {words(version)}",
            advice="update QEMU, or set io=threads meanwhile",
            turns=_turn(disk, "disk.aio", "threads"),
        )


@rule("R16", Severity.WARNING, source="nova spec libvirt-aio-mode: only files and block devices have an AIO mode")
def engine_of_a_network_disk(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """`io=` says how QEMU hands I/O on files and block devices to the kernel; on a network disk it has no effect."""
    if disk.io and disk.source.kind == "network":
        yield Seen(
            seen=f"io={disk.io} on {disk.source.protocol}", advice="remove it", turns=_turn(disk, "disk.aio", None)
        )


@rule(
    "R17",
    Severity.ERROR,
    needs=(Need.AIO_EVENTS,),
    takes=Change.LIVE,
    source="https://docs.kernel.org/admin-guide/sysctl/fs.html; 1024 per context measured",
)
def aio_limit_reached(subject: Subject) -> Iterator[Seen]:
    """Every event loop with native AIO takes 1024 of `fs.aio-max-nr`; beyond it QEMU fails or falls back to
    threads.
    """
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


@rule("R18", Severity.TRY, confidence=Confidence.PUBLISHED, source="https://github.com/virt-manager/virt-manager")
def cached_twice(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """A block device through the host's page cache is cached twice; without that cache, latency is steadier and
    cold reads are slower.
    """
    passed = disk.device == "lun" and disk.bus == "scsi"  # its requests go to the device as SCSI commands
    if disk.source.kind == "block" and cache_of(disk) == "writeback" and not passed:
        yield Seen(
            seen="a block device with cache=writeback",
            turns=_turn(disk, "disk.cache", "none"),
            advice="compare with cache=none",
            measure=measuring(subject, disk, {}, {"disk.cache": "none"}),
        )


@rule(
    "R19",
    Severity.TRY,
    needs=(Need.QEMU,),
    confidence=Confidence.PUBLISHED,
    risk=Risk.DATA,
    source="QEMU commit 984a32f17e8d",
)
def flush_after_each_write(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """writethrough and directsync make every write durable before it is acknowledged; before QEMU 10.0 each pays a
    whole flush. A guest that flushes itself is as safe with cache=none: that is for its owner to know.
    """
    if disk.cache in THROUGH_CACHES and below(subject.host.qemu, (10, 0)):
        yield Seen(
            seen=f"cache={disk.cache} under QEMU {words(subject.host.qemu)}",
            advice="if the guest flushes, compare with cache=none; QEMU 10.0 has FUA",
            measure=measuring(subject, disk, {}, {"disk.cache": "none"}),
        )


@rule(
    "R20",
    Severity.WARNING,
    needs=(Need.IMAGE,),
    confidence=Confidence.PUBLISHED,
    takes=Change.OFFLINE,
    risk=Risk.DATA,
    source="Linux commit 968f19c5b1b7",
)
def direct_on_btrfs(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """btrfs serves O_DIRECT on a checksummed file through the page cache since Linux 6.15, and copies on every
    write.
    """
    image = subject.image(disk)
    if image.filesystem == "btrfs" and image.copy_on_write and cache_of(disk) in DIRECT_CACHES:
        yield Seen(
            seen=f"cache={cache_of(disk)} on a btrfs file with copy-on-write",
            advice="a new file in a directory with `chattr +C` (it loses its checksums), or accept the cache",
        )


@rule(
    "R22",
    Severity.TRY,
    needs=(Need.HEADER,),
    takes=Change.POWEROFF,
    source="https://gitlab.com/qemu-project/qemu/-/blob/master/docs/qcow2-cache.txt",
)
def l2_cache_too_small(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Where the L2 tables of a qcow2 image do not fit their cache, a random read needs a second one for the
    table: in QEMU's test, IOPS fell by a factor of up to 8.5.
    """
    image = subject.image(disk)
    if disk.format != "qcow2" or image.size_bytes is None or not image.cluster_bytes:
        return
    needed = image.size_bytes * (16 if image.extended_l2 else 8) // image.cluster_bytes
    if needed > (disk.metadata_cache_bytes or L2_CACHE_DEFAULT):
        yield Seen(
            seen=f"L2 tables of {needed // 1024**2} MiB, cache of "
            f"{(disk.metadata_cache_bytes or L2_CACHE_DEFAULT) // 1024**2} MiB",
            advice="if the load is random over the whole disk, a larger metadata_cache",
            turns=_turn(disk, "disk.cache_size", str(needed * 5 // 4)),
        )


@rule(
    "R23",
    Severity.TRY,
    needs=(Need.CHAIN,),
    takes=Change.LIVE,
    risk=Risk.DATA,
    source="https://libvirt.org/manpages/virsh.html",
)
def long_chain(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """A read may have to look into every image of a backing chain, and a write copies clusters from the images
    below.
    """
    if disk.backing is not None and disk.backing > BACKING_MAX:
        yield Seen(
            seen=f"{disk.backing} images below",
            advice="`virsh blockcommit` or `blockpull` off-peak; the snapshots below are then gone",
        )


@rule(
    "R24",
    Severity.TRY,
    needs=(Need.HEADER,),
    confidence=Confidence.PUBLISHED,
    takes=Change.OFFLINE,
    source="QEMU commit 46cd1e8a47",
)
def clusters_without_subclusters(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """A first small write to a cluster of an overlay copies all 64 KiB; with subclusters (extended_l2) 4 KiB."""
    image = subject.image(disk)
    if disk.format == "qcow2" and image.backing and image.cluster_bytes == 65536 and image.extended_l2 is False:
        yield Seen(
            seen="an overlay with clusters of 64 KiB and no subclusters",
            advice="make it anew with cluster_size=128k,extended_l2=on (QEMU 5.2 on all hosts)",
            measure=measuring(subject, disk, {}, {"disk.cluster_size": "128k", "disk.extended_l2": "on"}),
        )


@rule(
    "R25",
    Severity.TRY,
    needs=(Need.MEDIUM, Need.IMAGE),
    confidence=Confidence.PUBLISHED,
    risk=Risk.DATA,
    source="https://libvirt.org/formatdomain.html",
)
def discard_unset(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """Without discard=unmap what the guest deletes is never given back to an SSD or a thin image. What is unmapped
    cannot be recovered; run `fstrim` from a timer, since a `discard` mount may stall.
    """
    flash = subject.image(disk).rotational is False or subject.image(disk).sparse
    if disk.discard is None and disk.opened_here and flash and not disk.shareable:
        yield Seen(
            seen="discard is not set, on flash or a thin image",
            advice="discard=unmap",
            turns=_turn(disk, "disk.discard", "unmap"),
        )


@rule(
    "R26",
    Severity.TRY,
    confidence=Confidence.PUBLISHED,
    source="qemu-server Drive.pm; libvirt calls it compute intensive",
)
def zeroes_are_looked_for(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """detect_zeroes scans every buffer that is written, which gains nothing where data is never zero. Proxmox
    turns it on for every disk; this default is not reported.
    """
    if disk.detect_zeroes in ("on", "unmap") and disk.opened_here and BY_DEFAULT not in disk.options:
        yield Seen(
            seen=f"detect_zeroes={disk.detect_zeroes}",
            advice="compare with off, on your data",
            turns=_turn(disk, "disk.detect_zeroes", "off"),
        )


@rule("R82", Severity.WARNING, source="tested with libvirt 9.0 (domxml-to-native)")
def zeroes_not_unmapped(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """detect_zeroes=unmap without discard=unmap acts as `on`: QEMU looks for zeroes and frees nothing."""
    if disk.detect_zeroes == "unmap" and disk.discard != "unmap":
        yield Seen(
            seen="detect_zeroes=unmap with discard off",
            advice="discard=unmap, or detect_zeroes=off",
            turns=_turn(disk, "disk.detect_zeroes", "off"),
        )
