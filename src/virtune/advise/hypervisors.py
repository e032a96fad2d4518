# SPDX-License-Identifier: Apache-2.0
"""Rules of Proxmox VE, OpenStack, Xen, VMware and bhyve."""

from collections.abc import Iterator

from virtune.advise.rule import rule
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.finding import Confidence, Seen, Severity, Subject
from virtune.model.knob import Risk

_NETWORK = ("iscsi", "nbd", "rbd", "drbd", "nfs")


def _of(subject: Subject, language: str) -> tuple[DomainDisk, ...]:
    domain = subject.domain
    return (
        tuple(disk for disk in domain.disks if disk.holds_data) if language in (domain.language, domain.kind) else ()
    )


def _by_qdisk(disk: DomainDisk) -> bool:
    """Whether xl serves a disk by qdisk: told to, or by itself where blkback cannot, which takes raw devices only
    (libxl_device.c, disk_try_backend).
    """
    device = disk.source.kind == "block" and disk.format == "raw"
    return disk.driver == "qdisk" or (disk.driver is None and not device and "script" not in disk.options)


def _on_network(disk: DomainDisk) -> bool:
    return (
        disk.source.kind == "network"
        or any(word in disk.source.name for word in _NETWORK)
        or disk.source.name.startswith("/mnt/")
    )


@rule("R31", Severity.WARNING, source="qemu-server, print_drivedevice_full: a warning, and the option is dropped")
def iothread_ignored(subject: Subject) -> Iterator[Seen]:
    """Proxmox ignores `iothread=1` of a SCSI disk unless `scsihw` is virtio-scsi-single: one controller for each."""
    for disk in _of(subject, "proxmox"):
        if "iothread is ignored" in disk.options:
            model = next((one.model for one in subject.domain.controllers if one.index == disk.controller), None)
            turns = (
                (SettingChange(knob="device.scsi_controller", value="virtio-scsi-single"),)
                if disk.bus == "scsi"
                else ()
            )
            yield Seen(
                at=disk,
                seen=f"iothread=1 with scsihw={model}",
                advice="`qm set ID --scsihw virtio-scsi-single`",
                turns=turns,
            )


@rule("R85", Severity.WARNING, source="Nova: virt/libvirt/driver.py, _can_quiesce and quiesce's callers")
def quiesced_by_nobody(subject: Subject) -> Iterator[Seen]:
    """Nova freezes a guest's filesystems for a snapshot through the guest's agent. Where an image requires that
    and has no agent, snapshots of its guests are refused.
    """
    for disk in _of(subject, "openstack"):
        if "quiesce needs the agent" in disk.options:
            advice = "set hw_qemu_guest_agent=yes as well, and install the agent"
            yield Seen(at=disk, seen="os_require_quiesce without hw_qemu_guest_agent", advice=advice)


@rule(
    "R70",
    Severity.TRY,
    risk=Risk.AVAILABILITY,
    source="https://xenbits.xen.org/docs/unstable/man/xl-disk-configuration.5.html",
)
def qdisk_through_the_cache(subject: Subject) -> Iterator[Seen]:
    """A qdisk goes through dom0's page cache unless it is marked direct-io-safe. On network storage that mark
    can crash dom0, and a QEMU built without native AIO refuses it (Debian 12's: the domain then waits for its
    disk).
    """
    for disk in _of(subject, "xl"):
        if _by_qdisk(disk) and "direct-io-safe" not in disk.options and not _on_network(disk):
            how = "qdisk" if disk.driver == "qdisk" else "qdisk, by xl's own choice,"
            yield Seen(at=disk, seen=f"{how} without direct-io-safe", advice="on local storage, compare with it")


@rule("R71", Severity.TRY, source="https://xenbits.xen.org/docs/unstable/man/xl-disk-configuration.5.html")
def device_behind_qdisk(subject: Subject) -> Iterator[Seen]:
    """A raw block device can be served by blkback in dom0's kernel (phy); a qdisk takes it through a QEMU."""
    for disk in _of(subject, "xl"):
        if disk.driver == "qdisk" and disk.source.kind == "block" and disk.format == "raw":
            yield Seen(at=disk, seen=f"{disk.source.name} behind qdisk", advice="compare with backendtype=phy")


@rule(
    "R72",
    Severity.TRY,
    risk=Risk.AVAILABILITY,
    source="https://xenbits.xen.org/docs/unstable/man/xl-disk-configuration.5.html",
)
def emulated_xen_disk(subject: Subject) -> Iterator[Seen]:
    """An `hd*` or `sd*` disk of an HVM domain is an emulated IDE or SCSI disk until the guest's PV driver takes it
    over.
    """
    for disk in _of(subject, "xl"):
        if disk.bus in ("ide", "scsi") and disk.device == "disk" and subject.domain.machine == "hvm":
            yield Seen(at=disk, seen=f"vdev={disk.target}", advice="xvd*, once the guest has PV drivers")


@rule("R73", Severity.WARNING, source="https://man.freebsd.org/cgi/man.cgi?query=bhyve_config&sektion=5")
def direct_is_not_direct(subject: Subject) -> Iterator[Seen]:
    """bhyve's `direct` means O_SYNC: every write is durable before it is acknowledged. O_DIRECT is `nocache`."""
    for disk in _of(subject, "bhyve"):
        if "direct" in disk.options and "nocache" not in disk.options:
            # no change is proposed: nocache alone would acknowledge writes that are not durable yet, which the owner
            # must decide
            advice = "keep it if durable writes are meant; nocache if O_DIRECT is"
            yield Seen(at=disk, seen="direct without nocache", advice=advice)


@rule("R74", Severity.TRY, source="https://man.freebsd.org/cgi/man.cgi?query=bhyve_config&sektion=5")
def few_nvme_slots(subject: Subject) -> Iterator[Seen]:
    """bhyve's NVMe takes 8 requests at a time unless `ioslots` says more."""
    for disk in _of(subject, "bhyve"):
        if disk.bus == "nvme" and not any(word.startswith("ioslots=") for word in disk.options):
            yield Seen(at=disk, seen="ioslots is not set (8)", advice="at depth 8 and more, compare with ioslots=64")


@rule("R76", Severity.ERROR, confidence=Confidence.PUBLISHED, source="VMware: disk modes of Workstation")
def data_vanishes(subject: Subject) -> Iterator[Seen]:
    """What is written to an independent-nonpersistent disk is thrown away when the VM is powered off."""
    for disk in _of(subject, "vmx"):
        if "independent-nonpersistent" in disk.options:
            yield Seen(at=disk, seen="mode independent-nonpersistent", advice='set mode = "independent-persistent"')


@rule("R77", Severity.WARNING, confidence=Confidence.PLAUSIBLE, source="VMware: mainMem.useNamedFile")
def memory_file_is_no_disk(subject: Subject) -> Iterator[Seen]:
    """`mainMem.useNamedFile` says where the guest's memory is kept; it is often recommended for disks, which it
    does not affect.
    """
    if "mainmem.usenamedfile" in subject.domain.written:
        yield Seen(seen="mainMem.useNamedFile is set", advice="expect nothing of it for the disks")
