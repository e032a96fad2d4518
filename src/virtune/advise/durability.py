# SPDX-License-Identifier: Apache-2.0
"""Rules of durability and correctness, which take precedence over rules of speed."""

from collections.abc import Iterator

from virtune.advise.rule import direct_of, rule, turn, words
from virtune.model.domain import (
    QUEUES_AUTO,
    QUEUES_MAX,
    SCSI_QUEUES_AUTO,
    SCSI_QUEUES_MAX,
    DiskSource,
    DomainDisk,
    SettingChange,
    cache_of,
    in_page_cache,
)
from virtune.model.finding import Seen, Subject
from virtune.model.text import format_share

FREE_SHARE_MIN = 0.05
"""Below this share of free space a sparse image may fill its filesystem at any time."""


@rule("R01")
def unsafe_cache(subject: Subject) -> Iterator[Seen]:
    # a domain without a type is a template of one: whoever runs it will read the mode as it is written
    theirs = subject.disks if subject.domain.kind else [disk for disk in subject.domain.disks if disk.holds_data]
    for disk in theirs:
        if disk.cache == "unsafe" and not disk.transient:
            turns = turn(disk, "disk.cache", "none")
            yield Seen(at=disk, seen="cache=unsafe", advice="set cache=none (or writeback)", turns=turns)


@rule("R89")
def write_errors_hidden(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.werror == "ignore":
        turns = turn(disk, "device.werror", None)
        yield Seen(seen="failed writes are ignored", advice="take it away: QEMU reports them by default", turns=turns)


@rule("R90")
def read_errors_hidden(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.rerror == "ignore":
        turns = turn(disk, "device.rerror", None)
        yield Seen(seen="failed reads are ignored", advice="take it away: QEMU reports them by default", turns=turns)


@rule("R91")
def shared_through_the_page_cache(_subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if disk.shareable and disk.opened_here and in_page_cache(disk):
        cache = cache_of(disk)
        direct = direct_of(cache)
        turns = turn(disk, "disk.cache", direct)
        yield Seen(seen=f"a shared disk with cache={cache}", advice=f"set cache={direct}", turns=turns)


@rule("R92")
def one_image_twice(subject: Subject) -> Iterator[Seen]:
    first: dict[DiskSource, DomainDisk] = {}
    for disk in subject.disks:
        if not disk.opened_here or disk.transient:  # of a transient one QEMU writes an overlay
            continue
        other = first.setdefault(disk.source, disk)
        if other is not disk and not (disk.shareable and other.shareable):
            seen = f"{disk.source.name} is the image of {other.target} too"
            yield Seen(at=disk, seen=seen, advice="give each disk an image of its own, or make both shareable")


@rule("R04")
def discard_corrupts_qcow2(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if subject.host.qemu != (11, 0, 0):
        return
    if disk.format == "qcow2" and disk.discard == "unmap":
        turns = turn(disk, "disk.discard", "ignore")
        yield Seen(
            seen="qcow2 with discard=unmap under QEMU 11.0.0",
            advice="update QEMU; until then discard=ignore",
            turns=turns,
        )


@rule("R08")
def paused_or_about_to_be(subject: Subject) -> Iterator[Seen]:
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


@rule("R36")
def queue_size_refused(subject: Subject) -> Iterator[Seen]:
    for disk in subject.domain.disks:
        size = disk.queue_size
        if size is not None and (size & (size - 1) or not 2 < size <= 1024):
            turns = turn(disk, "device.queue_size", "256")
            yield Seen(at=disk, seen=f"queue_size={size}", advice="set 256, QEMU's default", turns=turns)
        queues = disk.queues
        if disk.bus == "virtio" and queues is not None and not 1 <= queues <= QUEUES_MAX and queues != QUEUES_AUTO:
            advice = f"set one for each vCPU; QEMU takes 1 to {QUEUES_MAX:,}"
            turns = turn(disk, "device.num_queues", str(min(subject.domain.vcpus, QUEUES_MAX)))
            yield Seen(at=disk, seen=f"queues={queues}", advice=advice, turns=turns)
        for said, todo in disk.refused:
            yield Seen(at=disk, seen=said, advice=todo or "give it a number that QEMU takes")
    for one in subject.domain.controllers if subject.domain.language == "qemu" else ():
        number = SCSI_QUEUES_AUTO if one.queues is None else one.queues
        if not 1 <= number <= SCSI_QUEUES_MAX and number != SCSI_QUEUES_AUTO:
            advice = f"set one for each vCPU; QEMU takes 1 to {SCSI_QUEUES_MAX:,}"
            yield Seen(at=one, seen=f"num_queues={number}", advice=advice)


@rule("R83")
def refused_by_libvirt(subject: Subject) -> Iterator[Seen]:
    domain = subject.domain
    controllers = {f"{one.kind}:{one.index}": one for one in domain.controllers}
    for place, said, hint, knob in domain.refused if domain.runs_qemu or not domain.kind else ():
        turns = (SettingChange(knob=knob, at=place, value=None),) if knob else ()
        at = domain.disk(place) or controllers.get(place)
        advice = "take it away" if knob else hint or "take it away, or give it a value that is taken"
        yield Seen(at=at, seen=said, advice=advice, turns=turns)


LIBVIRT_KNOWS = {
    "iothreadids/iothread/poll": (9, 4),
    "disk/driver/iothreads": (10, 0),
    "disk/source/dataStore": (10, 10),
    "controller/driver/iothreads": (11, 2),
}
"""Since which libvirt it keeps an element; older ones drop it without a word (tried with 9.0)."""


@rule("R37")
def dropped_by_libvirt(subject: Subject) -> Iterator[Seen]:
    version = subject.host.libvirt
    for element in sorted(subject.domain.written):
        since = LIBVIRT_KNOWS.get(element, (0,))
        if version is not None and version < since:
            yield Seen(
                seen=f"<{element}> under libvirt {words(version)}",
                advice=f"libvirt {words(since)} is the first that keeps it",
            )
