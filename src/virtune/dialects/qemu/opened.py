# SPDX-License-Identifier: Apache-2.0
"""Find how QEMU opens a disk: follow its nodes (`-blockdev`) or its `-drive` from the device to the file (pure)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from virtune.dialects.qemu.words import Options
from virtune.model.domain import DiskSource, SourceKind
from virtune.model.stack import THROUGH_CACHES

PROTOCOLS = frozenset({"file", "host_device", "host_cdrom", "nbd", "rbd", "iscsi", "http", "https", "ftp", "ftps",
                       "ssh", "nfs", "gluster", "null-co", "null-aio", "nvme", "vvfat", "vxhs", "nvme-io_uring",
                       "virtio-blk-vhost-vdpa", "virtio-blk-vhost-user", "virtio-blk-vfio-pci",
                       "io_uring"})  # fmt: skip
"""Drivers that open something; all others stand above one of them."""

FILTERS = frozenset(
    {"throttle", "copy-on-read", "preallocate", "compress", "blkdebug", "blklogwrites", "alloc-track"}
)
"""Drivers that pass requests on and have no format of their own."""

_KINDS: Mapping[str, SourceKind] = {"": "file", "file": "file", "host_device": "file", "host_cdrom": "file",
                                    "nvme": "nvme", "vvfat": "dir", "virtio-blk-vhost-vdpa": "vhostvdpa",
                                    "virtio-blk-vhost-user": "vhostuser"}  # fmt: skip
_NAMES = ("filename", "url", "image", "export", "target", "path", "device", "server.path", "server.host")
_INHERITED = ("cache.direct", "cache.no-flush", "read-only")
_LIMITS = {"iops-total": "total_iops_sec", "iops-read": "read_iops_sec", "iops-write": "write_iops_sec",
           "bps-total": "total_bytes_sec", "bps-read": "read_bytes_sec", "bps-write": "write_bytes_sec"}  # fmt: skip
_OLD_LIMITS = {"iops": "iops-total", "iops_rd": "iops-read", "iops_wr": "iops-write",
               "bps": "bps-total", "bps_rd": "bps-read", "bps_wr": "bps-write"}  # fmt: skip
_CHAIN_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDisk:
    """How QEMU opens one disk. `through` is what `-drive cache=` says of the device's write cache."""

    filename: str = ""
    protocol: str = ""
    format: str | None = None
    direct: bool = False
    no_flush: bool = False
    through: bool = False
    aio: str | None = None
    discard: str | None = None
    detect_zeroes: str | None = None
    copy_on_read: str | None = None
    read_only: bool = False
    cdrom: bool = False
    snapshot: bool = False
    limits: tuple[tuple[str, int], ...] = ()

    @property
    def source(self) -> DiskSource:
        """Where its data is. A descriptor that libvirt passes (`/dev/fdset/1`) is no block device."""
        kind = _KINDS.get(self.protocol, "network")
        if kind != "file":
            protocol = self.protocol if kind == "network" else None
            return DiskSource(kind=kind, name=self.filename or self.protocol, protocol=protocol)
        if not self.filename:
            return DiskSource(kind="none")
        device = self.filename.startswith("/dev/") and not self.filename.startswith("/dev/fdset/")
        return DiskSource(kind="block" if device or self.protocol.startswith("host_") else "file", name=self.filename)


def of_nodes(nodes: Mapping[str, Options], name: str, groups: Mapping[str, Options]) -> OpenedDisk:
    """Follow a disk's nodes from the device's down to the one that opens the file.

    A guest's discard is passed down only while every node on the way unmaps (QEMU, bdrv_co_pdiscard); a node that is
    written inside another does so unless told otherwise, and has that one's cache.
    """
    found = OpenedDisk()
    limits: dict[str, int] = {}
    unmaps = True
    at: Options | None = nodes.get(name)
    for _ in range(_CHAIN_MAX):
        if at is None:
            break
        driver = at.get("driver", "")
        said = _discard(at)
        if unmaps and said != "unmap":
            found, unmaps = replace(found, discard=said), False
        found = _with_node(found, at, driver)
        for limit, value in limits_of(groups.get(at.get("throttle-group", ""), {})):
            limits[limit] = min(value, limits.get(limit, value))
        if driver in PROTOCOLS:
            break
        at = _below(nodes, at)
    return replace(found, discard="unmap" if unmaps and found.format else found.discard, limits=tuple(limits.items()))


def _below(nodes: Mapping[str, Options], at: Options) -> Options | None:
    inner = {key.removeprefix("file."): value for key, value in at.items() if key.startswith("file.")}
    if not inner:
        return nodes.get(at.get("file", ""))
    return {key: at[key] for key in _INHERITED if key in at} | {"discard": "unmap"} | inner


def _with_node(found: OpenedDisk, at: Options, driver: str) -> OpenedDisk:
    """What one more node adds: of formats and switches the first counts, of the file the last."""
    form = found.format
    if form is None and driver not in FILTERS:
        form = "raw" if driver in PROTOCOLS else driver or None
    return replace(
        found,
        format=form,
        filename=_name(at) or found.filename,
        protocol=driver if driver in PROTOCOLS else found.protocol,
        direct=at.get("cache.direct") == "on",
        no_flush=at.get("cache.no-flush") == "on",
        aio=at.get("aio") or found.aio,
        detect_zeroes=found.detect_zeroes or at.get("detect-zeroes"),
        copy_on_read="on" if driver == "copy-on-read" else found.copy_on_read,
        read_only=found.read_only or at.get("read-only") == "on",
    )


def _name(at: Options) -> str:
    image = f"{at['pool']}/{at['image']}" if "pool" in at and "image" in at else ""
    return image or next((at[key] for key in _NAMES if at.get(key)), "")


def _discard(at: Options) -> str | None:
    said = at.get("discard")
    return {"on": "unmap", "off": "ignore"}.get(said or "", said)


def of_drive(drive: Options) -> OpenedDisk:
    """How a `-drive` is opened."""
    word = drive.get("cache", "writeback")
    direct, no_flush = word in ("none", "off", "directsync"), word == "unsafe"
    filename = drive.get("file") or drive.get("file.filename") or drive.get("filename", "")
    cdrom = drive.get("media") == "cdrom"
    form = drive.get("format") or drive.get("driver") or None
    prefix = drive.get("file.driver") or filename.partition(":")[0]
    protocol = {"fat": "vvfat"}.get(prefix, prefix)
    return OpenedDisk(
        filename=filename,
        protocol=protocol if protocol in PROTOCOLS else "file",
        format="raw" if form in PROTOCOLS else form,
        direct=drive.get("cache.direct", "on" if direct else "off") == "on",
        no_flush=drive.get("cache.no-flush", "on" if no_flush else "off") == "on",
        through=drive.get("cache.writeback", "off" if word in THROUGH_CACHES else "on") == "off",
        aio=drive.get("aio"),
        discard=_discard(drive),
        detect_zeroes=drive.get("detect-zeroes"),
        copy_on_read=drive.get("copy-on-read"),
        read_only="on" in (drive.get("readonly"), drive.get("read-only")) or cdrom,
        cdrom=cdrom,
        snapshot=drive.get("snapshot") == "on",
        limits=tuple(limits_of(drive)),
    )


def limits_of(options: Options) -> Iterator[tuple[str, int]]:
    """Yield limits by libvirt's names, as a group (`limits.iops-total`, `x-iops-total`) or a drive has them
    (`throttling.iops-total`, `iops`); 0 is none.
    """
    for key, text in options.items():
        word = key.removeprefix("limits.").removeprefix("throttling.").removeprefix("x-")
        old, _, ending = word.partition("_max")
        if old in _OLD_LIMITS:
            word = _OLD_LIMITS[old] + ("-max" if "_max" in word else "") + ending.replace("_", "-")
        base = word.removesuffix("-length").removesuffix("-max")
        value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
        if base in _LIMITS and value:
            yield _LIMITS[base] + word[len(base) :].replace("-", "_"), value
