# SPDX-License-Identifier: Apache-2.0
"""The winner of a search as configuration text: QEMU's command line, libvirt's disk element."""

from dataclasses import dataclass

from virtune.dialects.libvirt.disk import disk_xml
from virtune.dialects.qemu.device import guest_arguments, guest_command_line, image_line, machine_arguments
from virtune.model.knob import Knob
from virtune.model.knobs import BY_ID
from virtune.model.stack import Stack
from virtune.model.tuning import Tuning

IMAGE = "/path/to/disk.img"
"""A placeholder for the user's image: the measured one was a scratch image."""


_NOT_OF_QEMU = frozenset({"machine.emulator", "pins", "guests", "idle_guests", "spread"})
_NOT_OF_LIBVIRT = frozenset({"machine", "pins", "guests", "idle_guests", "spread"})
"""The settings of a Stack that these lines cannot express."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """A configuration as one program writes it; `text` is empty where it cannot be written, and a note says why."""

    program: str
    title: str
    text: str
    notes: tuple[str, ...] = ()


def spelled(known: Tuning) -> tuple[Spelled, ...]:
    """Write the winner for every program that can express it; nothing before the search is finished."""
    if known.winner is None or not known.finished:
        return ()
    study, stack = known.study, known.study.arm(known.winner).stack
    image, device = study.target or IMAGE, (study.target or "").startswith("/dev/")
    disk = guest_arguments(stack, image=image, size_bytes=study.span_bytes, block_device=device)
    lines = guest_command_line((*machine_arguments(stack), *disk))
    notes = (*_beside(known, _NOT_OF_QEMU), *_memory(stack))
    found = [Spelled(program="qemu", title="QEMU command line", text=lines, notes=notes)]
    if line := image_line(stack, image=image, size_bytes=study.span_bytes):
        found.append(Spelled(program="qemu-img", title="an image of that layout", text=line))
    title, notes = "libvirt domain XML", _beside(known, _NOT_OF_LIBVIRT)
    try:
        xml = disk_xml(stack, image=image, block_device=device)
    except ValueError as error:
        return (*found, Spelled(program="libvirt", title=title, text="", notes=(str(error), *notes)))
    inside = "\n".join(part for part in (xml.controller, xml.disk) if part)
    text = f"<!-- inside <devices> -->\n{inside}"
    if xml.domain:
        text = f"<!-- inside <domain>, beside <vcpu> -->\n{xml.domain}\n{text}"
    return (*found, Spelled(program="libvirt", title=title, text=text, notes=(*xml.notes, *notes)))


def _beside(known: Tuning, places: frozenset[str]) -> tuple[str, ...]:
    """Name the winner's settings that the lines lack: without them the configuration is not the winner."""
    assert known.winner is not None  # noqa: S101 - only a winner is written
    settings = known.study.arm(known.winner).settings
    own = [f"{name}={value}" for name, value in settings if name in BY_ID and _place(BY_ID[name]) & places]
    return (
        (f"also measured with these settings, which the lines above do not contain: {', '.join(own)}",) if own else ()
    )


def _place(knob: Knob) -> frozenset[str]:
    return frozenset((".".join(knob.place), *knob.place[:1]))


def _memory(stack: Stack) -> tuple[str, ...]:
    if stack.machine.hugepages is None:
        return ()
    return ("-m and the size of memory0 are those of the guest that was measured: write your own in both",)
