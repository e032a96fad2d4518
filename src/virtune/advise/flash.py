# SPDX-License-Identifier: Apache-2.0
"""The template `flash`: the configuration of the study of host datapaths, for disks on flash, with its exceptions.

cache=none, io=io_uring where that is sound, discard=unmap, an IOThread pinned to a CPU of its own. Spinning disks and
old kernels keep what they have, known-bad versions are respected, and no format, bus or image is changed, since that
needs a prepared guest and a new image.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from virtune.advise.qemu_versions import io_uring_crawls_on_ahci, io_uring_hangs
from virtune.advise.rule import below, words
from virtune.model.domain import IOTHREAD_BUSES, Domain, DomainDisk, SettingChange
from virtune.model.finding import LeftAlone, Subject
from virtune.model.reason import Reason, Why, because
from virtune.model.stack import THROUGH_CACHES

NAME = "flash"

KERNEL_MIN, QEMU_MIN = (5, 10), (5, 0)
"""The study: io_uring from kernel 5.1 on, 5.10 advised; QEMU has it since 5.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template's changes to a domain, and what it leaves unchanged with the reason."""

    turns: tuple[SettingChange, ...]
    left: tuple[LeftAlone, ...]


def flash(subject: Subject) -> Template:
    """Return the setting changes that bring a domain to the configuration, without those that have no effect."""
    turns: list[SettingChange] = []
    left: list[LeftAlone] = []
    threads = _Threads(subject.domain)
    for disk in subject.disks:
        if exempt := _exempt(subject, disk):
            left.append(LeftAlone(at=disk.target, why=exempt))
            continue
        turns += _engine(subject, disk, left)
        if disk.discard is None and not disk.shareable:
            turns.append(SettingChange(knob="disk.discard", at=disk.target, value="unmap"))
        if disk.bus in IOTHREAD_BUSES and not subject.domain.threads_of(disk):
            turns.append(SettingChange(knob="device.iothread", at=disk.target, value=threads.take()))
        elif disk.bus not in IOTHREAD_BUSES and disk.bus != "scsi":
            left.append(LeftAlone(at=disk.target, why=because(Reason.NO_IOTHREAD_ON_BUS, bus=disk.bus)))
    turns = [*threads.made(), *turns, *_pins(subject, threads.used, left)]
    return Template(turns=tuple(turns), left=tuple(left))


def _exempt(subject: Subject, disk: DomainDisk) -> Why | None:
    if not disk.opened_here:
        return because(Reason.NOT_OPENED_HERE, kind=disk.source.kind)
    if subject.image(disk).rotational:
        return because(Reason.SPINNING_DISK)
    return None


def _engine(subject: Subject, disk: DomainDisk, left: list[LeftAlone]) -> Iterator[SettingChange]:
    host = subject.host
    reasons = (
        (below(host.kernel, KERNEL_MIN), f"kernel {words(host.kernel)} is older than {words(KERNEL_MIN)}"),
        (below(host.qemu, QEMU_MIN), f"QEMU {words(host.qemu)} has no io_uring"),
        (host.qemu is not None and io_uring_hangs(host.qemu), f"QEMU {words(host.qemu)} hangs with io_uring"),
        (
            host.qemu is not None and io_uring_crawls_on_ahci(host.qemu) and disk.bus in ("ide", "sata"),
            "QEMU 10.2 is slow with it on this bus",
        ),
        (host.io_uring_disabled == 2 or host.io_uring_usable is False, "this host does not allow io_uring"),
    )
    refused = next((text for holds, text in reasons if holds), None)
    if disk.cache in THROUGH_CACHES:
        left.append(LeftAlone(at=disk.target, why=because(Reason.DURABLE_CACHE, cache=disk.cache)))
    elif disk.cache != "none":
        yield SettingChange(knob="disk.cache", at=disk.target, value="none")
    if refused:
        left.append(LeftAlone(at=disk.target, why=because(Reason.NO_IO_URING, why=refused)))
    elif subject.domain.language == "proxmox":
        if disk.io in ("threads", "native"):  # its own choice avoids io_uring on storage where it hangs (R15)
            yield SettingChange(knob="disk.aio", at=disk.target, value=None)
    elif disk.io != "io_uring":
        yield SettingChange(knob="disk.aio", at=disk.target, value="io_uring")


class _Threads:
    """Hands out IOThreads: those that nothing uses, then new ones."""

    def __init__(self, domain: Domain) -> None:
        self._count = len(domain.threads)
        used = domain.threads_used
        self._free = [one.number for one in domain.threads if one.number not in used]
        self._taken = {one.number for one in domain.threads}
        self._made = 0
        self.used: list[str] = []

    def take(self) -> str:
        if self._free:
            number = self._free.pop(0)
        else:
            self._made += 1
            # as libvirt numbers those that a count adds to a list: by the lowest numbers that are free
            number = next(one for one in itertools.count(1) if one not in self._taken)
            self._taken.add(number)
        self.used.append(str(number))
        return str(number)

    def made(self) -> tuple[SettingChange, ...]:
        if not self._made:
            return ()
        return (SettingChange(knob="iothread.count", value=str(self._count + self._made)),)


def _pins(subject: Subject, threads: list[str], left: list[LeftAlone]) -> Iterator[SettingChange]:
    """Pin new IOThreads to CPUs that no vCPU of this domain is pinned to; without such CPUs nothing is pinned."""
    online = subject.host.online
    if not threads:
        return
    if online is None or not subject.domain.pins:
        left.append(LeftAlone(why=because(Reason.FREE_CPUS_UNKNOWN)))
        return
    taken = {cpu for what, places in subject.domain.pins if what != "emulator" for cpu in cpus_of(places)}
    free = sorted(set(online) - taken)
    for thread, cpu in zip(threads, free, strict=False):
        yield SettingChange(knob="iothread.pin", at=f"iothread:{thread}", value=str(cpu))
    if len(free) < len(threads):
        left.append(LeftAlone(why=because(Reason.NO_FREE_CPU, count=len(threads) - len(free))))


def cpus_of(places: str) -> frozenset[int]:
    """Return the CPUs of a set as libvirt writes it: `0-3,^2,7`; empty for an invalid one."""
    chosen: set[int] = set()
    for word in places.split(","):
        first, _, last = word.strip().lstrip("^").partition("-")
        if not first.isdecimal() or len(first) > 5 or (last and (not last.isdecimal() or len(last) > 5)):
            continue
        span = set(range(int(first), int(last or first) + 1))
        chosen = chosen - span if word.strip().startswith("^") else chosen | span
    return frozenset(chosen)
