# SPDX-License-Identifier: Apache-2.0
"""Rules of durability and correctness, which take precedence over rules of speed."""

from collections.abc import Iterator

from virtune.advise.rule import rule, words
from virtune.model.domain import DomainDisk, SettingChange
from virtune.model.finding import Confidence, Need, Seen, Severity, Subject
from virtune.model.knob import Change, Risk
from virtune.model.text import format_share

FREE_SHARE_MIN = 0.05
"""Below this share of free space a sparse image may fill its filesystem at any time."""


@rule(
    "R01",
    Severity.ERROR,
    takes=Change.POWEROFF,
    risk=Risk.PERFORMANCE,
    source="https://www.qemu.org/docs/master/system/qemu-manpage.html",
)
def unsafe_cache(subject: Subject) -> Iterator[Seen]:
    """`cache=unsafe` ignores the guest's flushes: what the guest believes written is lost when the host dies.

    Only for a disk whose content may be lost at any time; `<transient/>` marks such a one.
    """
    # a domain without a type is a template of one: whoever runs it will read the mode as it is written
    theirs = subject.disks if subject.domain.kind else [disk for disk in subject.domain.disks if disk.holds_data]
    for disk in theirs:
        if disk.cache == "unsafe" and not disk.transient:
            turns = (SettingChange(knob="disk.cache", at=disk.target, value="none"),)
            yield Seen(at=disk, seen="cache=unsafe", advice="set cache=none (or writeback)", turns=turns)


@rule(
    "R04",
    Severity.ERROR,
    needs=(Need.QEMU,),
    confidence=Confidence.PUBLISHED,
    source="https://github.com/proxmox/pve-qemu/blob/master/debian/changelog (11.0.0-1 picks the fix)",
)
def discard_corrupts_qcow2(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    """QEMU 11.0.0 may corrupt a qcow2 image when a discard overlaps a copy-on-write.

    A distribution's 11.0.0 may carry the fix of 2026-04-27: look into its changelog.
    """
    if subject.host.qemu != (11, 0, 0):
        return
    if disk.format == "qcow2" and disk.discard == "unmap":
        turns = (SettingChange(knob="disk.discard", at=disk.target, value="ignore"),)
        yield Seen(
            seen="qcow2 with discard=unmap under QEMU 11.0.0",
            advice="update QEMU; until then discard=ignore",
            turns=turns,
        )


@rule(
    "R08",
    Severity.ERROR,
    needs=(Need.STATE, Need.IMAGE),
    takes=None,
    source="https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html",
)
def paused_or_about_to_be(subject: Subject) -> Iterator[Seen]:
    """A guest whose disk cannot grow is paused by QEMU (`werror=enospc`): it looks like a disk of endless latency."""
    if subject.running and subject.running.state == "paused" and "i/o" in subject.running.reason.lower():
        yield Seen(
            seen="the domain is paused: I/O error", advice="look for space and for the device, then `virsh resume`"
        )
    for disk in subject.disks:
        image = subject.image(disk)
        if image.sparse and image.free_share is not None and image.free_share < FREE_SHARE_MIN:
            yield Seen(
                at=disk,
                seen=f"a sparse image on a filesystem with {format_share(image.free_share, 1)} free",
                advice="free space before the guest fills it",
            )


@rule("R36", Severity.ERROR, source="tested with QEMU 7.2 and libvirt 9.0")
def queue_size_refused(subject: Subject) -> Iterator[Seen]:
    """libvirt takes any `queue_size`; QEMU takes only a power of two from 4 to 1024, and the VM does not start."""
    for disk in subject.domain.disks:
        size = disk.queue_size
        if size is not None and (size & (size - 1) or not 2 < size <= 1024):
            turns = (SettingChange(knob="device.queue_size", at=disk.target, value="256"),)
            yield Seen(at=disk, seen=f"queue_size={size}", advice="set 256, QEMU's default", turns=turns)


@rule(
    "R83",
    Severity.ERROR,
    needs=(Need.BUS,),
    source="libvirt, qemuDomainDiskCheck and virDomainDiskDefIOThread checks; tested with 9.0",
)
def refused_by_libvirt(subject: Subject) -> Iterator[Seen]:
    """libvirt refuses to define or start such a domain; the file cannot have been tried."""
    known = {thread.number for thread in subject.domain.threads}
    for disk in subject.domain.disks if subject.domain.language == "libvirt" else ():
        missing = [number for number in subject.domain.threads_of(disk) if number not in known]
        if missing:
            yield Seen(
                at=disk,
                seen=f"IOThread {missing[0]} is named, and the domain has {len(known)}",
                advice="raise <iothreads>, or name one that is there",
            )
        if disk.iothread is not None and disk.bus in ("sata", "ide", "usb", "nvme", "scsi"):
            turns = (SettingChange(knob="device.iothread", at=disk.target, value=None),)
            yield Seen(
                at=disk,
                seen=f"iothread on a {disk.bus} disk",
                turns=turns,
                advice="only virtio disks name an IOThread; SCSI disks share that of their controller",
            )
        if disk.mapping and disk.iothread is not None:
            yield Seen(at=disk, seen="iothread= and <iothreads> on one disk", advice="keep one of the two")


LIBVIRT_KNOWS = {
    "iothreadids/iothread/poll": (9, 4),
    "disk/driver/iothreads": (10, 0),
    "disk/source/dataStore": (10, 10),
    "controller/driver/iothreads": (11, 2),
}
"""Since which libvirt it keeps an element; older ones drop it without a word (tried with 9.0)."""


@rule(
    "R37",
    Severity.ERROR,
    needs=(Need.LIBVIRT,),
    source="https://libvirt.org/news.html; dropping tested with libvirt 9.0",
)
def dropped_by_libvirt(subject: Subject) -> Iterator[Seen]:
    """A libvirt that does not know an element drops it without a message: the setting is in the file and has no
    effect.
    """
    version = subject.host.libvirt
    for element in sorted(subject.domain.written):
        since = LIBVIRT_KNOWS.get(element, (0,))
        if version is not None and version < since:
            yield Seen(
                seen=f"<{element}> under libvirt {words(version)}",
                advice=f"libvirt {words(since)} is the first that keeps it",
            )
