# SPDX-License-Identifier: Apache-2.0
"""Verify the settings of a disk in an existing domain: its process, its guest, and what libvirt says of it.

libvirt's own connection to QEMU's monitor is not used: a command on it taints the domain, and the mark stays. So a
setting that only the monitor shows (whether flushes are honoured) is taken from libvirt's live XML, and marked so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from virtune.bench.verify.guest import guest_checks
from virtune.bench.verify.image import Opened, direct_check, opened, words
from virtune.dialects.libvirt.attach import driver_words
from virtune.dialects.text.xml import Element
from virtune.model.evidence import Check
from virtune.model.knobs import BY_ID
from virtune.model.stack import LIMITS, Stack, setting_of
from virtune.probe.process import IO_URING, Process, Ring, Rings
from virtune.probe.qcow2 import read_qcow2

_LIVE = "libvirt's live XML"

_SHARE = 0.5
"""A ring that takes at least half as many requests as the disk completes is taken to serve this disk."""


def accelerator_of(kind: str, process: Process | None) -> tuple[str, str]:
    """Return the guest's accelerator, `kvm` or `tcg`, and the proof."""
    said = f"libvirt runs it as a domain of type {kind}"
    links = None if process is None else process.descriptors()
    if links:
        held = "anon_inode:kvm-vm" in links.values()
        return ("kvm" if held else "tcg"), f"{said}; its process holds {'a' if held else 'no'} VM of KVM's"
    return ("kvm" if kind == "kvm" else "tcg"), said


_KNOBS = {
    "type": "disk.format",
    "discard": "disk.discard",
    "detect_zeroes": "disk.detect_zeroes",
    "queues": "device.num_queues",
    "iothread": "driver.iothread",
}
"""The knobs of the attributes of libvirt's <driver>; the others have the knob's own name. An IOThread named there
need not serve the disk; that is verified under load.
"""


def driver_checks(stack: Stack, asked: Element, found: Element) -> Iterator[Check]:
    """Compare each attribute of the requested <driver> with the live XML; libvirt may drop some."""
    has = driver_words(found)
    for name, value in driver_words(asked).items():
        # these are verified on the process and in the guest
        if name in ("name", "cache", "io"):
            continue
        yield Check(
            setting=_KNOBS.get(name, f"device.{name}"),
            asked=value,
            found=has.get(name, "libvirt's default"),
            proof=_LIVE,
        )
    limits = {one.tag: str(one.text) for limit in LIMITS for one in found.all(f"iotune/{limit.libvirt}")}
    cache = found.child("driver")
    sizes = [] if cache is None else [str(one.text) for one in cache.all("metadata_cache/max_size")]
    rows = (
        *((one.knob, setting_of(stack, BY_ID[one.knob]), limits.get(one.libvirt, "0")) for one in LIMITS),
        ("disk.l2_cache_size", stack.disk.l2_cache_size, next(iter(sizes), "libvirt's default")),
    )
    for knob, limit, shown in rows:
        if limit is not None:
            yield Check(setting=knob, asked=str(limit), found=shown, proof=_LIVE)
    target = found.child("target")
    bus = None if target is None else target.get("bus")
    plugged = "virtio-blk" if bus == "virtio" else bus
    yield Check(setting="device.bus", asked=stack.device.bus, found=plugged, proof=_LIVE)


def image_checks(stack: Stack, image: Path) -> Iterator[Check]:
    """Compare the image's options with the request; a domain's monitor is not used for that."""
    disk, header = stack.disk, read_qcow2(image)
    for knob, asked, found in (
        ("disk.cluster_size", disk.cluster_size, header and header.cluster_size),
        ("disk.extended_l2", disk.extended_l2, header and header.extended_l2),
        ("disk.lazy_refcounts", disk.lazy_refcounts, header and header.lazy_refcounts),
    ):
        if asked is not None:
            shown = None if found is None else words(found)
            yield Check(setting=knob, asked=words(asked), found=shown, proof=f"the header of {image}")


def cache_check(
    stack: Stack, process: Process | None, image: Path, found: Element, seen: Mapping[str, str]
) -> Iterator[Check]:
    """Verify the cache mode of the image: by its descriptor, by the guest, and the rest by libvirt."""
    held = (
        Opened(direct=None, proof="the domain's process is not seen from here", hidden=True)
        if process is None
        else opened(process, image)
    )
    asked, direct = stack.disk.cache, held.direct
    yield direct_check(stack.disk, held)
    said = driver_words(found).get("cache", "default")
    through = seen.get("write_cache") == "write through"
    if direct is None:
        mode, how = None, f"libvirt's live XML says {said}; the image's descriptor could not be looked at"
    else:
        likely = (
            ("directsync" if through else "none") if direct == "on" else ("writethrough" if through else "writeback")
        )
        mode = said if (likely, said) == ("writeback", "unsafe") else likely
        how = (
            f"O_DIRECT {direct} on the image's descriptor, {seen.get('write_cache')} in the guest, {said} in libvirt"
        )
    yield Check(setting="disk.cache", asked=asked, found=mode, proof=how, hidden=held.hidden)


def disk_checks(
    stack: Stack, asked: Element, found: Element, seen: Mapping[str, str], *, vcpus: int, writes: bool
) -> Iterator[Check]:
    """Compare the disk's settings at libvirt and in the guest with the request."""
    yield from driver_checks(stack, asked, found)
    yield from guest_checks(stack, seen, vcpus=vcpus, writes=writes)


def serving(rings: Rings, now: Rings, brought: set[Ring], requests: int) -> set[Ring]:
    """Return the rings that may serve the disk: those that appeared with it, and others that took its requests.

    A ring may be shared with another disk of the domain, because an event loop has one of each kind.
    """
    came = {
        ring: (after - place) % 2**32
        for ring, place in rings.places.items()
        if ring[0] == IO_URING and place is not None and (after := now.places.get(ring)) is not None
    }
    return brought | {ring for ring, count in came.items() if requests and count >= _SHARE * requests}
