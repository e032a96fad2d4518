# SPDX-License-Identifier: Apache-2.0
"""Contradictions in a stack: knobs that have no meaning on its rig, and combinations that QEMU refuses. And several
disks in one guest, or several files of the host: the settings of each, and what contradicts them.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from virtune.model import stack as stacks
from virtune.model.knobs import BY_ID, TURNED
from virtune.model.rig import OF_PASSED, RIGS

_MMIO_DISKS = 7
"""microvm has eight places for virtio devices, and the line to the guest takes one."""

_PORTS = {"ahci": 6, "ide": 4}
"""The disks that fit on a bus: the ports of QEMU's ich9-ahci, and two channels with two units each."""

OF_SECOND: tuple[str, ...] = (
    "device.bus", "disk.throttle_iops", "disk.throttle_bps", "disk.throttle_iops_read", "disk.throttle_iops_write",
    "disk.throttle_bps_read", "disk.throttle_bps_write",
)  # fmt: skip
"""The settings in which every second disk may differ."""


def settings_of_second(text: str) -> tuple[tuple[str, str | int | bool], ...]:
    """Read `bus=virtio-scsi+throttle_iops=200`: the settings, by the ids of their knobs.

    Raises ValueError with what is wrong.
    """
    found = []
    for word in text.split("+"):
        name, equals, value = (part.strip() for part in word.partition("="))
        known = next((one for one in OF_SECOND if name in (one, one.partition(".")[2])), None)
        if not equals or known is None:
            offered = ", ".join(one.partition(".")[2] for one in OF_SECOND)
            raise ValueError(f"{word!r} is no setting in which every second disk may differ: {offered}")
        found.append((known, BY_ID[known].read(value)))
    if len({name for name, _ in found}) < len(found):
        raise ValueError("a setting is named twice")
    return tuple(found)


def stack_of_disk(stack: stacks.Stack, number: int) -> stacks.Stack:
    """Return the stack of one disk (0 is the first), as if the guest had no other.

    An IOThread of its own is named after the first one's: `io1`, `io1-2`, `io1-3`.
    """
    one = replace(stack, disks=1, own_iothreads=False, second=None)
    if number and stack.own_iothreads:
        one = replace(one, device=replace(one.device, iothread=f"{one.device.iothread}-{number + 1}"))
    if number % 2 and stack.second is not None:
        for name, value in settings_of_second(stack.second):
            one = stacks.with_setting(one, BY_ID[name], value)
    return one


def bare_target(stack: stacks.Stack, size_bytes: int) -> stacks.BareTarget:
    """Return the disks of a guest without an operating system, which the guest itself loads."""
    buses = [stack_of_disk(stack, number).device.bus_in_guest for number in range(stack.disks)]
    return stacks.BareTarget(size_bytes=size_bytes, bus=buses[0], more=tuple(buses[1:]))


def images_of(stack: stacks.Stack) -> int:
    """Return how many images a stack needs: one for each disk, or for each guest with an image of its own."""
    return stack.guests + stack.idle_guests if stack.own_images else stack.disks


def disks_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if stack.own_images and stack.guests + stack.idle_guests < 2:
        yield "guests.images=on needs two guests: one has an image of its own anyway"
    if stack.own_images and stack.spread is not None:
        yield "guests.images=on and guests.spread exclude each other"
    if stack.disks == 1:
        if stack.own_iothreads or stack.second is not None:
            yield "disks.iothreads and disks.second are for several disks: set disks.count"
        return
    if stack.guests + stack.idle_guests > 1:
        yield "disks.count is of one guest, and there are several: leave out guests.count and guests.idle"
    if not stack.kind.has_qemu:
        return
    if not stack.machine.has_pci and stack.disks > _MMIO_DISKS:
        yield f"machine.type=microvm has room for {_MMIO_DISKS} disks"
    if stack.disks > (ports := _PORTS.get(stack.device.bus, stack.disks)):
        yield f"bus={stack.device.bus} has {ports} ports for disks"
    if stack.own_iothreads and stack.device.iothread is None:
        yield "disks.iothreads=on gives each disk a thread like the first one's: set device.iothread"
    yield from _second_contradictions(stack)


def _second_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if stack.second is None:
        return
    try:
        bus = dict(settings_of_second(stack.second)).get("device.bus")
    except ValueError as error:
        yield f"disks.second={stack.second}: {error}"
        return
    if bus not in (None, "virtio-blk") and not stack.machine.has_pci:
        yield f"machine.type=microvm has no PCI, so disks.second cannot have bus={bus}"
    elif bus is not None and not {bus, stack.device.bus} <= stacks.PLUGGED:
        unplugged = bus if bus not in stacks.PLUGGED else stack.device.bus
        yield f"disks.second: bus={unplugged} cannot be plugged while the guest runs"


_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.ASCII)

BARE_BUSES = frozenset({"virtio-blk", "virtio-scsi", "nvme"})
"""The buses whose disks a guest without an operating system drives."""

BARE_VCPUS_MAX = 64
"""The most vCPUs of a guest without an operating system (loadgen/guest/src/cpus.rs)."""

_IN_THREADS = frozenset({"virtio-blk", "virtio-scsi"})


def contradictions(stack: stacks.Stack) -> tuple[str, ...]:
    """Return the contradictions of this stack, a sentence each; empty for a valid one. Each rule is QEMU's own."""
    disk = stack.disk
    found = [*_elsewhere(stack), *disks_contradictions(stack), *stacks.pin_contradictions(stack.pins)]
    found += (*_place_contradictions(stack), *_host_contradictions(stack), *_during_contradictions(stack))
    if not stack.kind.has_qemu:
        return tuple(found)
    match stack.kind.front:
        case "device":
            found += _guest_contradictions(stack)
            found += _domain_contradictions(stack) if stack.kind.users_guest else ()
        case "export":
            found += _export_contradictions(stack)
    if disk.aio == "native" and disk.cache not in stacks.DIRECT_CACHES and disk.backend == "file":
        found.append(f"aio=native needs O_DIRECT: use cache=none or directsync instead of {disk.cache}")
    if disk.detect_zeroes == "unmap" and disk.discard != "unmap":
        found.append("detect_zeroes=unmap needs discard=unmap")
    if disk.format != "qcow2":
        names = ("cluster_size", "extended_l2", "lazy_refcounts", "l2_cache_size")
        found += [
            f"{name} is a qcow2 option, and the format is raw" for name in names if getattr(disk, name) is not None
        ]
    if disk.extended_l2 and disk.cluster_size is not None and disk.cluster_size < 16384:
        found.append("extended_l2 needs clusters of at least 16k")
    found += _layout_contradictions(disk)
    found += _limit_contradictions(disk)
    found += _rbd_contradictions(stack)
    if disk.backend == "null-co" and disk.format != "raw":
        found.append("backend=null-co holds no data, so format=qcow2 cannot be on it")
    if disk.backend == "null-co":
        meaningless = ("aio", "cache", "discard", "detect_zeroes")
        found += [
            f"backend=null-co opens nothing, so {n} means nothing there"
            for n in meaningless
            if getattr(disk, n) != getattr(stacks.Disk(), n)
        ]
    if disk.format != "qcow2" and disk.preallocation is not None:
        found.append("preallocation is for qcow2 here: virtune writes raw images in full, whatever was asked")
    if disk.backend != "null-co" and disk.null_latency_ns:
        found.append("null_latency_ns belongs to backend=null-co")
    return tuple(found)


def _layout_contradictions(disk: stacks.Disk) -> Iterator[str]:
    """Yield what contradicts an image of several files, or an encrypted one."""
    plain = {"backing_depth": (None, 0), "data_file": (None, False), "encryption": (None, "none")}
    asked = [name for name, usual in plain.items() if getattr(disk, name) not in usual]
    if disk.format != "qcow2":
        yield from (f"{name} is a qcow2 option here, and the format is {disk.format}" for name in asked)
    if len(asked) > 1:
        yield f"{' and '.join(asked)} exclude each other here: an image has one of them"
    if disk.backing_depth and disk.preallocation not in (None, "off"):
        yield f"an image with images below it is empty at first, so preallocation={disk.preallocation} cannot be"
    if disk.data_file and disk.preallocation not in (None, "metadata"):
        yield f"data_file=on has its metadata preallocated here, so preallocation={disk.preallocation} cannot be"


def _rbd_contradictions(stack: stacks.Stack) -> Iterator[str]:
    disk = stack.disk
    if (disk.backend == "rbd") != (disk.rbd is not None):
        yield "backend=rbd and disk.rbd=POOL belong together"
    if disk.rbd is not None:
        try:
            stacks.rbd_place(disk.rbd)
        except ValueError as error:
            yield f"disk.rbd={disk.rbd}: {error}"
    if disk.backend != "rbd":
        return
    if disk.format != "raw" or disk.filesystem != "none":
        yield "an image on Ceph is raw here, without a filesystem"
    if disk.aio != stacks.Disk().aio:
        yield "backend=rbd does its I/O by librbd, so aio means nothing there"
    if stack.disks > 1 or stack.guests + stack.idle_guests > 1:
        yield "backend=rbd has one disk of one guest here"


def _place_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if stack.place not in ("target", "scratch") and not stack.place.startswith("/"):
        yield f"disk.place={stack.place} is neither target nor scratch nor the absolute path of a directory or device"
    for path in (one for one in (stack.place, stack.spread) if one is not None and "," in one):
        yield f"an arm cannot name {path}: a comma ends a setting"
    if stack.place.startswith("/") and stack.disk.backend != "file":
        yield f"disk.place={stack.place} is where an image lies, and disk.backend={stack.disk.backend} has none"


def _host_contradictions(stack: stacks.Stack) -> Iterator[str]:
    asked, disk = stack.host.asked, stack.disk
    if (ahead := stack.host.read_ahead_kb) is not None and ahead % 4:
        yield f"host.read_ahead_kb={ahead}: the kernel reads ahead in pages, so it is a multiple of 4"
    for kind in ("dirty", "dirty_background"):
        if {f"{kind}_ratio", f"{kind}_bytes"} <= asked.keys():
            yield f"host.{kind}_ratio and host.{kind}_bytes exclude each other: the kernel clears one for the other"
    if stack.host.of_disks and disk.backend != "file":
        name = next(iter(stack.host.of_disks))
        yield f"backend={disk.backend} is on no disk of this host, so host.{name} means nothing there"


def _during_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if stack.during == "none" or not stack.kind.has_qemu:
        return
    if stack.disks > 1 or stack.guests + stack.idle_guests > 1:
        yield "disk.during is of one disk of one guest here: leave out disks.count, guests.count and guests.idle"
    if stack.disk.backend != "file" and stack.during != "migration":
        yield f"disk.during={stack.during} needs an image, and backend={stack.disk.backend} has none here"
    if stack.kind.users_guest and stack.during == "snapshot" and stack.disk.detect_zeroes != "off":
        yield "libvirt opens a snapshot without detect_zeroes, whatever the disk has"
    if stack.during in ("mirror", "snapshot") and stack.disk.limits and not stack.kind.users_guest:
        what = {"mirror": "mirrors", "snapshot": "merges a snapshot into"}[stack.during]
        yield f"QEMU {what} only what a device stands on, which with a limit is the limit: leave out disk.throttle_*"
    if stack.during in stacks.IN_LINUX and (stack.kind.users_guest or stack.machine.is_bare):
        yield f"disk.during={stack.during} needs programs in a test guest: rig=qemu with guest.system=linux has them"
    if stack.during == "discard" and stack.disk.discard != "unmap":
        yield "QEMU drops what a guest discards, so disk.during=discard needs disk.discard=unmap"
    if stack.during == "discard" and stack.device.bus not in _IN_THREADS:
        yield f"the disk grows for disk.during=discard, and no guest sees that of a disk on {stack.device.bus}"
    if stack.during == "migration" and stack.device.bus == "nvme":
        yield "QEMU migrates no VM with an NVMe disk: disk.during=migration needs another device.bus"


def _limit_contradictions(disk: stacks.Disk) -> Iterator[str]:
    for short in ("iops", "bps"):
        if f"{short}-total" in disk.limits and {f"{short}-read", f"{short}-write"} & disk.limits.keys():
            yield f"throttle_{short} limits the sum, so reads or writes cannot have a limit of their own beside it"


def _elsewhere(stack: stacks.Stack) -> Iterator[str]:
    """Yield the requested settings that have no meaning on this rig, with the rigs where they have one."""
    plain, applies = stacks.Stack(), stack.kind.applies
    for knob in TURNED:
        if knob.id not in applies and stacks.setting_of(stack, knob) != stacks.setting_of(plain, knob):
            rigs = (row for row in RIGS.values() if knob.id in row.applies and not row.hidden)
            names = " or ".join(f"{row.name}{f':{row.where}' if row.needs_where else ''}" for row in rigs)
            yield f"{knob.id} means nothing with rig={stack.rig}: it belongs to rig={names}"


def _guest_contradictions(stack: stacks.Stack) -> Iterator[str]:
    yield from stacks.machine_contradictions(stack.machine)
    if stack.device.vfio_pci is not None:
        yield from _passed_contradictions(stack)
        return
    yield from _thread_contradictions(stack)
    yield from _bare_contradictions(stack)
    yield from _filesystem_contradictions(stack)
    device = stack.device
    several = stack.guests + stack.idle_guests > 1 or stack.disks > 1
    if stack.spread is not None and not (several and stack.spread.startswith("/")):
        yield (
            "spread is an absolute path of a directory for the images of every second guest or disk, and needs two "
            "guests or two disks"
        )
    if device.bus not in stacks.BUSES:
        offered = ", ".join(stacks.BUSES)
        yield f"a guest of virtune's has its disk on {offered}: {device.bus} cannot be plugged while it runs"
    for bus, names in stacks.OF_BUS.items():
        yield from (
            f"{name} belongs to bus={bus}, and the bus is {device.bus}"
            for name in names
            if device.bus != bus and getattr(device, name) is not None
        )
    if (device.logical_block_size or 512) > (device.physical_block_size or 512):
        yield "logical_block_size must not exceed physical_block_size"
    polls, queues = stack.kernel.blk_poll_queues, min(device.num_queues or stack.machine.cpus, stack.machine.cpus)
    if polls is not None and device.bus != "virtio-blk":
        yield f"guest.blk_poll_queues is of virtio-blk, and the bus is {device.bus}"
    elif polls and polls >= queues:
        yield f"guest.blk_poll_queues={polls} leaves none of the disk's {queues} queues to complete by interrupts"
    if device.bus in stacks.WRITABLE and device.logical_block_size not in (None, 512):
        yield f"bus={device.bus} has sectors of 512 bytes in QEMU, so logical_block_size cannot be another"
    if device.write_cache is not None and device.bus == "nvme":
        yield "bus=nvme has the write cache that QEMU gives it: write_cache belongs to the other buses"
    if device.write_cache and stack.disk.cache in stacks.THROUGH_CACHES:
        yield f"cache={stack.disk.cache} is a device without a write cache, so write_cache=on cannot be with it"
    if device.bus == "ide" and not stack.machine.has_isa:
        yield "bus=ide needs machine.type=pc: the board q35 has no IDE"


def _filesystem_contradictions(stack: stacks.Stack) -> Iterator[str]:
    mounting = [f"guest.{name}" for name in stack.kernel.mounting]
    if mounting and stack.disk.filesystem == "none":
        yield f"{mounting[0]} means nothing without a filesystem: set disk.filesystem"
    if set(mounting) - {"guest.mount_noatime"} and stack.disk.filesystem == "xfs":
        yield f"{mounting[-1]} is an option of ext4, and disk.filesystem is xfs"
    if stack.disk.filesystem == "none":
        return
    if stack.disk.backend == "null-co":
        yield "disk.filesystem needs an image: null-co keeps nothing"
    if stack.guests + stack.idle_guests > 1 and not stack.own_images:
        yield "only one guest may mount a filesystem: set guests.images=on, and leave out guests.spread"


def _bare_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if not stack.machine.is_bare:
        return
    if stack.device.bus not in BARE_BUSES:
        yield f"guest.system=bare drives {', '.join(sorted(BARE_BUSES))}, and the bus is {stack.device.bus}"
    if not stack.machine.has_pci and stack.device.bus != "virtio-blk":
        yield f"machine.type=microvm has no PCI, so its disk is on virtio-blk, and the bus is {stack.device.bus}"
    if stack.device.packed:
        yield "guest.system=bare has no packed rings"
    if stack.disk.filesystem != "none":
        yield "guest.system=bare has no filesystems"
    if stack.host.halt_poll_ns is not None:
        yield "guest.system=bare polls and never halts, so host.halt_poll_ns means nothing there"
    if stack.kernel.asked:
        yield f"guest.system=bare has no kernel, so guest.{next(iter(stack.kernel.asked))} means nothing there"
    if (stack.machine.vcpus or 1) > BARE_VCPUS_MAX:
        yield f"guest.system=bare runs on at most {BARE_VCPUS_MAX} vCPUs"


def _passed_contradictions(stack: stacks.Stack) -> Iterator[str]:
    address = str(stack.device.vfio_pci)
    if address != stacks.PASSED_TARGET and not _PCI.fullmatch(address):
        yield f"{address} is no PCI address: write 0000:01:00.0, or `target` for the drive of --target"
    for knob in TURNED:
        if knob.id not in OF_PASSED and stacks.setting_of(stack, knob) != stacks.setting_of(stacks.Stack(), knob):
            why = "is not set" if knob.place[0] == "kernel" else "means nothing"
            yield f"the guest drives the disk {address} itself, so {knob.id} {why} there"
    if not stack.machine.has_pci:
        yield "machine.type=microvm has no PCI, so no disk can be passed through to it"


def _thread_contradictions(stack: stacks.Stack) -> Iterator[str]:
    device = stack.device
    mapping = device.iothread_vq_mapping
    if mapping is not None:
        try:
            stacks.mapping_of(mapping)
        except ValueError as error:
            yield f"iothread_vq_mapping={mapping}: {error}"
            return
    if mapping is not None and device.iothread is not None:
        yield "iothread and iothread_vq_mapping exclude each other: the mapping names the IOThreads"
    for thread in device.iothreads:
        if not stacks.is_thread_id(thread):
            yield f"{thread} is no id of an IOThread: letters, digits, - and _, a letter first"
    if device.bus not in _IN_THREADS and device.iothreads:
        yield f"bus={device.bus} has no IOThread in QEMU: use virtio-blk or virtio-scsi"
    own = {
        "poll_max_ns": stack.poll_max_ns,
        "thread_pool_max": stack.thread_pool_max,
        "iothread.pin": stack.pins.iothread,
    }
    for name, value in own.items():
        if value is not None and not device.iothreads:
            yield f"{name} belongs to an IOThread, and the disk has none: set device.iothread"


def _domain_contradictions(stack: stacks.Stack) -> Iterator[str]:
    """Yield the settings that a running domain not made by virtune cannot take, or must not lose."""
    device = stack.device
    if device.bus != "virtio-blk":
        yield (
            f"bus={device.bus} is not plugged into a domain of yours: libvirt would add a controller, which stays; "
            "only virtio-blk leaves nothing behind"
        )
    if device.iothread is not None and stacks.thread_number(device.iothread) is None:
        yield f"the IOThreads of a domain are numbered: write device.iothread=iothread1 instead of {device.iothread}"


def _export_contradictions(stack: stacks.Stack) -> Iterator[str]:
    if stack.num_queues is not None and stack.export != "vhost-user-blk":
        yield f"num_queues belongs to export=vhost-user-blk, and the export is {stack.export}"
    if stack.iothread and stack.export == "nbd":
        yield (
            "iothread=on cannot be with export=nbd: QEMU 7.2 aborts when a client of such an export disconnects; "
            "use export=vhost-user-blk or fuse"
        )
    if stack.poll_max_ns is not None and not stack.in_iothread:
        yield "poll_max_ns belongs to an IOThread, and the export has none: only an IOThread polls this way"
