# SPDX-License-Identifier: Apache-2.0
"""What is in force of a disk in a domain of the user's: its process, its guest, and what libvirt says of it.

libvirt's own connection to QEMU's monitor is not used: a command on it taints the domain, and the mark stays. So what
only the monitor could show (whether flushes are honoured) is taken from libvirt's live XML, and said to be.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from virtune.bench.qemu.settings import Ring, Rings, guest_checks
from virtune.bench.verify.process import direct_of
from virtune.dialects.libvirt.attach import driver_words
from virtune.dialects.text.xml import Element
from virtune.model.evidence import Check
from virtune.model.stack import DIRECT_CACHES, Stack

_SHARE = 0.5
"""A ring that takes at least half as many requests as the disk completes serves this disk, and not another one."""


def accelerator_of(kind: str, pid: int | None) -> tuple[str, str]:
    """Return what the guest runs on, `kvm` or `tcg`, and how that was seen."""
    said = f"libvirt runs it as a domain of type {kind}"
    if pid is not None:
        with contextlib.suppress(OSError):
            links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
            held = "anon_inode:kvm-vm" in links
            return ("kvm" if held else "tcg"), f"{said}; its process holds {'a' if held else 'no'} VM of KVM's"
    return ("kvm" if kind == "kvm" else "tcg"), said


def driver_checks(stack: Stack, asked: Element, found: Element) -> Iterator[Check]:
    """Hold each word of the disk's driver that libvirt was given against what it runs now; it may drop some."""
    has = driver_words(found)
    for name, value in driver_words(asked).items():
        # these are seen better: on the process and in the guest
        if name in ("name", "cache", "io"):
            continue
        setting = {"type": "disk.format", "discard": "disk.discard", "detect_zeroes": "disk.detect_zeroes"}
        yield Check(
            setting=setting.get(name, f"device.{name}"),
            asked=value,
            found=has.get(name, "libvirt's default"),
            proof="libvirt's live XML",
        )
    limits = {one.tag: one.text for one in (found.child("iotune") or found).children if one.tag.startswith("total_")}
    for knob, tag, limit in (
        ("disk.throttle_iops", "total_iops_sec", stack.disk.throttle_iops),
        ("disk.throttle_bps", "total_bytes_sec", stack.disk.throttle_bps),
    ):
        if limit:
            yield Check(setting=knob, asked=str(limit), found=limits.get(tag, "none"), proof="libvirt's live XML")


def cache_check(
    stack: Stack, pid: int | None, image: Path, found: Element, seen: Mapping[str, str]
) -> Iterator[Check]:
    """Say with which cache mode the image is open: by its descriptor, by the guest, and the rest by libvirt."""
    direct, proof = (None, "the domain's process is not seen from here") if pid is None else direct_of(pid, image)
    asked = stack.disk.cache
    yield Check(setting="O_DIRECT", asked=_on(asked in DIRECT_CACHES), found=direct, proof=proof)
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
    yield Check(setting="disk.cache", asked=asked, found=mode, proof=how)


def disk_checks(
    stack: Stack, asked: Element, found: Element, seen: Mapping[str, str], *, vcpus: int, writes: bool
) -> Iterator[Check]:
    """Hold what libvirt and the guest say of the disk against what was asked for."""
    yield from driver_checks(stack, asked, found)
    yield from guest_checks(stack, seen, vcpus=vcpus, writes=writes)


def serving(rings: Rings, now: Rings, brought: set[Ring], requests: int) -> set[Ring]:
    """Return the rings that may serve the disk: those that came with it, and others that took its requests.

    Another disk of the domain may have made the ring that serves this one too: an event loop has one of each kind.
    """
    came = {
        ring: (after - tail) % 2**32
        for ring, tail in rings.items()
        if ring[0] == "io_uring" and tail is not None and (after := now.get(ring)) is not None
    }
    return brought | {ring for ring, count in came.items() if requests and count >= _SHARE * requests}


def _on(value: bool) -> str:  # noqa: FBT001
    return "on" if value else "off"
