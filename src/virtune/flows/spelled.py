# SPDX-License-Identifier: Apache-2.0
"""The winner of a search in the words of those who are to use it: QEMU's command line, libvirt's disk element."""

from dataclasses import dataclass

from virtune.dialects.libvirt_disk import disk_xml
from virtune.dialects.qemu_device import guest_arguments, guest_command_line, image_line
from virtune.model.tuning import Tuning

IMAGE = "/path/to/disk.img"
"""Stands for the image that the reader has: what was measured was a scratch image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """A configuration as one program writes it."""

    program: str
    title: str
    text: str
    notes: tuple[str, ...] = ()


def spelled(known: Tuning) -> tuple[Spelled, ...]:
    """Write the winner for every program that has words for it; nothing before the search is finished."""
    if known.winner is None or not known.finished:
        return ()
    study, stack = known.study, known.study.arm(known.winner).stack
    image, device = study.target or IMAGE, (study.target or "").startswith("/dev/")
    words = guest_arguments(stack, image=image, size_bytes=study.span_bytes, block_device=device)
    found = [Spelled(program="qemu", title="for QEMU's command line", text=guest_command_line(words))]
    if line := image_line(stack, image=image, size_bytes=study.span_bytes):
        found.append(Spelled(program="qemu-img", title="an image of that layout", text=line))
    try:
        xml = disk_xml(stack, image=image, block_device=device)
    except ValueError:  # a disk without an image is for the bench, and libvirt has no words for it
        return tuple(found)
    text = "\n".join(part for part in (xml.disk, xml.domain) if part)
    found.append(Spelled(program="libvirt", title="for libvirt's domain", text=text, notes=xml.notes))
    return tuple(found)
