# SPDX-License-Identifier: Apache-2.0
"""The parts of a guest other than its disk: the machine, and the host CPUs of its threads.

Values that QEMU would refuse are reported as a sentence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from virtune.model.units import Bytes

_TYPE = re.compile(r"microvm|(q35|pc|pc-q35-\d+\.\d+|pc-i440fx-\d+\.\d+)(\.\d+)?", re.ASCII)
_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,=+-]{0,199}", re.ASCII)
_CPUS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}", re.ASCII)
_QUEUES = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?", re.ASCII)


System = Literal["bare", "linux"]
"""The system in a guest: Linux, or only the load generator, without an operating system."""

VCPUS = 2
"""The default vCPUs of a test VM with Linux: as many as can run at once on the smallest host that we measure on."""

MEMORY = Bytes(512 * 1024**2)
"""The default memory of a test VM, which needs only a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The arguments of a guest's process. `None` is the default of virtune's test VMs.

    `emulator` is the path of a `qemu-system-...` program, `type` QEMU's machine (q35), `cpu` its model (`host` on
    KVM, `max` without), `hugepages` the size of the pages that the guest's memory lies on. `system` is what runs in
    it: `bare` is the load generator alone, without an operating system.
    """

    emulator: str | None = None
    type: str | None = None
    cpu: str | None = None
    vcpus: int | None = None
    memory: Bytes | None = None
    hugepages: Bytes | None = None
    system: System | None = None

    @property
    def is_bare(self) -> bool:
        """Whether the guest has no operating system."""
        return self.system == "bare"

    @property
    def cpus(self) -> int:
        """Its vCPUs, those of a test VM that is asked for none: one without an operating system, else two."""
        return self.vcpus or (1 if self.is_bare else VCPUS)

    @property
    def has_isa(self) -> bool:
        """Whether the board is the older one (i440fx), with IDE on board and without PCI Express."""
        return self.type is not None and (self.type == "pc" or self.type.startswith("pc-i440fx"))

    @property
    def has_pci(self) -> bool:
        """Whether the board has PCI: microvm has virtio devices at fixed places of its memory (virtio-mmio)."""
        return self.type != "microvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The host CPUs on which the threads of a guest's process may run, as `2-3,8`, by their role; `None`: any. `load`
    are those of a load that runs on the host.
    """

    vcpu: str | None = None
    iothread: str | None = None
    emulator: str | None = None
    load: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """An IOThread and the virtqueues that it serves; without queues QEMU deals them out in turn."""

    iothread: str
    queues: tuple[int, ...] = ()


def mapping_of(text: str) -> tuple[Mapped, ...]:
    """Read `io1+io2`, or with queues `io1:0-1+io2:2-3`.

    Raises ValueError with what is wrong; QEMU checks that all queues are served.
    """
    found = []
    for part in text.split("+"):
        name, colon, words = part.partition(":")
        if not _ID.fullmatch(name):
            raise ValueError(f"{name!r} is no id of an IOThread")
        span = _QUEUES.fullmatch(words)
        if colon and span is None:
            raise ValueError(f"{words!r} are no virtqueues: write {name}:0 or {name}:0-1")
        last = int(span[2] or span[1]) if span else -1
        found.append(Mapped(iothread=name, queues=tuple(range(int(span[1]), last + 1)) if span else ()))
    if len({one.iothread for one in found}) < len(found):
        raise ValueError("an IOThread is named twice")
    if len({bool(one.queues) for one in found}) > 1:
        raise ValueError("name the virtqueues of every IOThread, or of none")
    return tuple(found)


def is_thread_id(text: str) -> bool:
    """Whether QEMU takes this for the id of an IOThread."""
    return _ID.fullmatch(text) is not None


def machine_contradictions(machine: Machine) -> Iterator[str]:
    """Yield the contradictions in a guest's machine."""
    if machine.emulator is not None and not machine.emulator.startswith("/"):
        yield f"machine.emulator={machine.emulator} is no absolute path of a program"
    if machine.type is not None and not _TYPE.fullmatch(machine.type):
        yield f"machine.type={machine.type} is not known here: q35, pc, or with a version, as pc-q35-7.2, or microvm"
    if not machine.has_pci and not machine.is_bare:
        yield "machine.type=microvm needs guest.system=bare: the kernels of distributions do not find a disk there"
    if machine.cpu is not None and not _CPU.fullmatch(machine.cpu):
        yield f"machine.cpu={machine.cpu} is no name of a CPU model"
    if machine.hugepages is not None and (machine.memory or MEMORY) % machine.hugepages:
        yield "machine.memory must be a multiple of memory.hugepages"


def pin_contradictions(pins: Pins) -> Iterator[str]:
    """Yield what is no list of CPUs."""
    for role in ("vcpu", "iothread", "emulator", "load"):
        cpus = getattr(pins, role)
        if cpus is not None and not _CPUS.fullmatch(cpus):
            yield f"{role}.pin={cpus} is no list of CPUs: write 2-3,8"
