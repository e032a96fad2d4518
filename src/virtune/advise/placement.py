# SPDX-License-Identifier: Apache-2.0
"""Rules of Proxmox VE, OpenStack, Xen, VMware and bhyve; of a domain's placement on the host: CPUs, memory, weights;
and of running domains: requested settings compared with those that the process has. And the template `flash`: the
configuration of the study of host datapaths, for disks on flash, with its exceptions.

cache=none, io=io_uring where that is sound, discard=unmap, an IOThread pinned to a CPU of its own. Spinning disks and
old kernels keep what they have, known-bad versions are respected, and no format, bus or image is changed, since that
needs a prepared guest and a new image.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from virtune.advise.device import can_have_a_thread, scsi_model, thread_place
from virtune.advise.rule import below, io_uring_crawls_on_ahci, io_uring_hangs, rule, words
from virtune.model.domain import Domain, DomainDisk, SettingChange, cache_of
from virtune.model.finding import LeftAlone, Seen, Subject
from virtune.model.reason import Reason, Why, because
from virtune.model.stack import DIRECT_CACHES, THROUGH_CACHES

_NETWORK = ("iscsi", "nbd", "rbd", "drbd", "nfs")


def _of(subject: Subject, language: str) -> tuple[DomainDisk, ...]:
    domain = subject.domain
    return (
        tuple(disk for disk in domain.disks if disk.holds_data) if language in (domain.language, domain.kind) else ()
    )


def _on_network(disk: DomainDisk) -> bool:
    return (
        disk.source.kind == "network"
        or any(word in disk.source.name for word in _NETWORK)
        or disk.source.name.startswith("/mnt/")
    )


@rule("R31")
def iothread_ignored(subject: Subject) -> Iterator[Seen]:
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


@rule("R85")
def quiesced_by_nobody(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "openstack"):
        if "quiesce needs the agent" in disk.options:
            advice = "set hw_qemu_guest_agent=yes as well, and install the agent"
            yield Seen(at=disk, seen="os_require_quiesce without hw_qemu_guest_agent", advice=advice)


@rule("R70")
def qdisk_through_the_cache(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "xl"):
        # xl takes it by itself where blkback cannot, which takes raw devices only (libxl_device.c, disk_try_backend)
        device = disk.source.kind == "block" and disk.format == "raw"
        by_itself = disk.driver is None and not device and "script" not in disk.options
        if (disk.driver == "qdisk" or by_itself) and "direct-io-safe" not in disk.options and not _on_network(disk):
            how = "qdisk" if disk.driver == "qdisk" else "qdisk, by xl's own choice,"
            yield Seen(at=disk, seen=f"{how} without direct-io-safe", advice="on local storage, compare with it")


@rule("R71")
def device_behind_qdisk(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "xl"):
        if disk.driver == "qdisk" and disk.source.kind == "block" and disk.format == "raw":
            yield Seen(at=disk, seen=f"{disk.source.name} behind qdisk", advice="compare with backendtype=phy")


@rule("R72")
def emulated_xen_disk(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "xl"):
        if disk.bus in ("ide", "scsi") and disk.device == "disk" and subject.domain.machine == "hvm":
            yield Seen(at=disk, seen=f"vdev={disk.target}", advice="xvd*, once the guest has PV drivers")


@rule("R73")
def direct_is_not_direct(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "bhyve"):
        if "direct" in disk.options and "nocache" not in disk.options:
            # no change is proposed: nocache alone would acknowledge writes that are not durable yet, which the owner
            # must decide
            advice = "keep it if durable writes are meant; nocache if O_DIRECT is"
            yield Seen(at=disk, seen="direct without nocache", advice=advice)


@rule("R74")
def few_nvme_slots(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "bhyve"):
        if disk.bus == "nvme" and not any(word.startswith("ioslots=") for word in disk.options):
            yield Seen(at=disk, seen="ioslots is not set (8)", advice="at depth 8 and more, compare with ioslots=64")


_TRANSIENT = {"libvirt": "<transient/>", "proxmox": "snapshot=1", "qemu": "snapshot=on, or -snapshot"}
"""What throws away what was written to a disk, by the language; where it is what a volume is for, nothing is said."""


@rule("R76")
def data_vanishes(subject: Subject) -> Iterator[Seen]:
    for disk in _of(subject, "vmx"):
        if "independent-nonpersistent" in disk.options:
            yield Seen(at=disk, seen="mode independent-nonpersistent", advice='set mode = "independent-persistent"')
    word = _TRANSIENT.get(subject.domain.language)
    for disk in subject.disks:
        if disk.transient and word is not None:
            yield Seen(at=disk, seen=word, advice="take it away, unless the disk is scratch space")


@rule("R77")
def memory_file_is_no_disk(subject: Subject) -> Iterator[Seen]:
    if "mainmem.usenamedfile" in subject.domain.written:
        yield Seen(seen="mainMem.useNamedFile is set", advice="expect nothing of it for the disks")


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
    threads = Threads(subject.domain)
    for disk in subject.disks:
        if exempt := _exempt(subject, disk):
            left.append(LeftAlone(at=disk.target, why=exempt))
            continue
        turns += _engine(subject, disk, left)
        if disk.discard is None and not disk.shareable:
            turns.append(SettingChange(knob="disk.discard", at=disk.target, value="unmap"))
        turns += _thread(subject.domain, disk, threads, left)
    turns = [*threads.made(), *turns, *_pins(subject, threads.used, left)]
    return Template(turns=tuple(dict.fromkeys(turns)), left=tuple(left))


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


def _thread(domain: Domain, disk: DomainDisk, threads: "Threads", left: list[LeftAlone]) -> Iterator[SettingChange]:
    """Give a disk an IOThread, or its SCSI controller one for all its disks; in Proxmox each disk gets its own."""
    at, first = thread_place(domain, disk)
    if domain.threads_of(disk) or at in threads.served:
        return
    if not can_have_a_thread(domain, disk) or not at:
        why = because(Reason.NO_IOTHREAD_ON_BUS, bus=disk.bus)
        if disk.bus == "scsi":
            model = (scsi_model(domain, disk)[0] or "of an unknown model") if at else "not written"
            why = because(Reason.NO_IOTHREAD_ON_CONTROLLER, model=model)
        left.append(LeftAlone(at=disk.target, why=why))
        return
    yield from first
    yield SettingChange(knob="device.iothread", at=at, value=threads.take())
    threads.served.add(at)


class Threads:
    """Hands out IOThreads: those that nothing uses, then new ones."""

    def __init__(self, domain: Domain) -> None:
        self._count = len(domain.threads)
        used = domain.threads_used
        self._free = [one.number for one in domain.threads if one.number not in used]
        self._taken = {one.number for one in domain.threads}
        self._made = 0
        self.used: list[str] = []
        self.served: set[str] = set()

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


DIRTY_BYTES_MAX = 10 * 10**9
"""Ten seconds of a drive that writes 1 GB/s: a host that may hold more dirty pages stalls its guests for longer."""


@rule("R41")
def more_vcpus_than_cpus(subject: Subject) -> Iterator[Seen]:
    cpus = subject.host.cpus
    if cpus is not None and subject.domain.vcpus > cpus:
        yield Seen(
            seen=f"{subject.domain.vcpus} vCPUs on {cpus} CPUs",
            advice="fewer vCPUs, or pin vCPUs, IOThreads and emulator to CPUs of their own",
        )


@rule("R84")
def pinned_to_no_cpu(subject: Subject) -> Iterator[Seen]:
    online = subject.host.online
    if online is None:
        return
    for what, places in subject.domain.pins:
        cpus = cpus_of(places)
        if cpus and cpus.isdisjoint(online):
            yield Seen(
                seen=f"{what} is pinned to {places}, and no such CPU is online",
                advice="pin it to a CPU that is online",
                turns=(_pin(what, None),),
            )


def _pin(what: str, cpus: str | None) -> SettingChange:
    role, _, number = what.partition(":")
    return SettingChange(knob=f"{role}.pin", at=what if number else "", value=cpus)


@rule("R87")
def iothread_beside_a_vcpu(subject: Subject) -> Iterator[Seen]:
    pins = [(what, cpus_of(places)) for what, places in subject.domain.pins]
    vcpus = frozenset[int]().union(*(cpus for what, cpus in pins if what.startswith("vcpu:")))
    online, taken = subject.host.online, frozenset[int]().union(*(cpus for _, cpus in pins))
    free = sorted(set(online or ()) - taken)
    for what, cpus in pins:
        if what.startswith("iothread:") and free and cpus and cpus <= vcpus:
            yield Seen(
                seen=f"{what} is pinned to {subject.domain.pin(what)}, where vCPUs are pinned too",
                advice=f"compare with a CPU of its own, such as {free[0]}",
                turns=(_pin(what, str(free.pop(0))),),
            )


@rule("R88")
def across_nodes(subject: Subject) -> Iterator[Seen]:
    nodes = {node: cpus_of(cpus) for node, cpus in (subject.host.nodes or {}).items()}
    at = {what: {one for one in nodes if nodes[one] & cpus_of(cpus)} for what, cpus in subject.domain.pins}
    home = set[int]().union(*(some for what, some in at.items() if what.startswith("vcpu:")))
    if len(home) != 1:  # vCPUs that run anywhere, or on several nodes, are at home on each
        return
    (node,) = home
    for what, some in at.items():
        if what.startswith("iothread:") and some and node not in some:
            yield Seen(
                seen=f"{what} is pinned to {subject.domain.pin(what)}, and all vCPUs to NUMA node {node}",
                advice="compare with the CPUs of their node, where the disk's device is not on the other one",
                turns=(_pin(what, (subject.host.nodes or {})[node]),),
            )
    lies = cpus_of(subject.domain.memory_nodes or "")
    if lies and node not in lies and lies <= nodes.keys():
        seen = f"memory on NUMA node {subject.domain.memory_nodes}, and all vCPUs on node {node}"
        yield Seen(seen=seen, advice="pin both to one node: <numatune> and <vcpupin>")


@rule("R44")
def slow_governor(subject: Subject) -> Iterator[Seen]:
    slow = sorted(set(subject.host.governors or ()) - {"performance"})
    if slow and any(disk.opened_here for disk in subject.disks):
        yield Seen(seen=f"CPU governor {', '.join(slow)}", advice="for latency at depth 1, compare with performance")


@rule("R45")
def much_dirty_memory(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    host = subject.host
    if host.memory_bytes is None or host.dirty_percent is None or host.dirty_bytes:
        return
    held = host.memory_bytes * host.dirty_percent // 100
    if cache_of(disk) == "writeback" and disk.opened_here and held > DIRTY_BYTES_MAX:
        yield Seen(
            seen=f"cache=writeback, and the host may hold {held / 1e9:.0f} GB dirty",
            advice="bound it by vm.dirty_bytes and vm.dirty_background_bytes",
        )


@rule("R46")
def weight_without_effect(subject: Subject, disk: DomainDisk) -> Iterator[Seen]:
    if subject.domain.io_weight is None:
        return
    scheduler = subject.image(disk).scheduler
    if scheduler is not None and scheduler != "bfq":
        yield Seen(
            seen=f"a weight, and the scheduler below is {scheduler}",
            advice="remove the weight, or set up bfq or io.cost",
        )


COMPARED: tuple[str, ...] = (
    "bus",
    "format",
    "cache",
    "io",
    "discard",
    "detect_zeroes",
    "iothread",
    "mapping",
    "queues",
    "queue_size",
    "limits",
)
"""The attributes of a disk that are compared between the running and the next configuration."""

RING_OF_THE_LOOP = (10, 2)
"""Since QEMU 10.2 the event loop itself runs on io_uring, so a ring proves nothing about a disk."""


def differences(next_start: DomainDisk, live: DomainDisk, *, of: Sequence[str] = COMPARED) -> list[str]:
    """Return the differences of two descriptions of one disk: `cache: writeback now, none after a power-off`."""
    found = []
    for name in of:
        now, then = getattr(live, name), getattr(next_start, name)
        if now != then and not (name == "cache" and cache_of(live) == cache_of(next_start)):
            found.append(f"{name} {_word(now)} now, {_word(then)} after a power-off")
    return found


@rule("R80")
def waits_for_a_power_off(subject: Subject) -> Iterator[Seen]:
    if subject.running is None:
        return
    compared = [one for one in COMPARED if one != "limits"]  # of these R47 says more
    live = {disk.target: disk for disk in subject.running.live.disks}
    proxmox = subject.domain.language == "proxmox"
    for disk in subject.disks:
        now, then = live.get(disk.target), disk
        if now is not None and proxmox:  # which has iothread=1 and no numbers: those are of our reading
            now, then = (replace(one, iothread=one.iothread and 1) for one in (now, then))
        changed = differences(then, now, of=compared) if now is not None else ["it is not plugged in now"]
        if changed:
            yield Seen(at=disk, seen="; ".join(changed), advice="power the VM off and on when it suits")
    for target in sorted(live.keys() - {disk.target for disk in subject.domain.disks}):
        if live[target].holds_data and proxmox:
            advice = "nothing, if it is meant; `qm set ID --revert` takes the deletion back"
            yield Seen(at=live[target], seen="[PENDING] deletes it: it is gone after a power-off", advice=advice)
        elif live[target].holds_data:
            yield Seen(
                seen=f"{target} is plugged in now and gone after a power-off", advice="add it to the configuration"
            )


@rule("R13")
def engine_not_in_force(subject: Subject) -> Iterator[Seen]:
    running = subject.running
    if running is None or running.rings is None or running.contexts is None:
        return
    old = subject.host.qemu is not None and subject.host.qemu < RING_OF_THE_LOOP
    for disk in running.live.disks:
        if disk.io == "io_uring" and disk.opened_here and running.rings == 0 and old:
            yield Seen(
                at=disk, seen="io=io_uring, and the process holds no io_uring", advice="look why; R12 lists causes"
            )
        if disk.io == "native" and disk.opened_here and running.contexts == 0:
            yield Seen(
                at=disk, seen="io=native, and the process has no AIO context", advice="look at fs.aio-nr, and why"
            )


@rule("R81")
def cache_not_in_force(subject: Subject) -> Iterator[Seen]:
    if subject.running is None:
        return
    shown = {disk.target: disk for disk in subject.running.disks}
    for disk in subject.running.live.disks:
        found = shown.get(disk.target)
        if found is None or found.direct is None:
            continue
        if found.direct != (cache_of(disk) in DIRECT_CACHES):
            how = "with" if found.direct else "without"
            yield Seen(
                at=disk,
                seen=f"cache={cache_of(disk)}, and the image is open {how} O_DIRECT",
                advice="somebody changed it by QMP, or the filesystem does not do O_DIRECT",
            )


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join("=".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value) or "unset"
    return "unset" if value is None else str(value)
