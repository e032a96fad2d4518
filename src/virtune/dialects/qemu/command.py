# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line, as `/proc/PID/cmdline`, libvirt's log or a script has it, read into Domains (pure).

`-drive`, `-blockdev` and `-device`, in JSON and as `key=value`. It is only read: a running process keeps its command
line, and the script that starts it belongs to others.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from virtune.dialects.language import Language
from virtune.dialects.qemu.opened import OpenedDisk, of_drive, of_nodes
from virtune.dialects.qemu.words import Options, begins_with_qemu, command_lines, given
from virtune.dialects.text.lines import BYTES_MAX
from virtune.model.domain import Controller, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.knobs import KNOBS

_DEVICES = {"scsi-hd": "scsi", "scsi-block": "scsi", "scsi-cd": "scsi", "ide-hd": "ide", "ide-cd": "ide",
            "ide-drive": "ide", "nvme": "nvme", "nvme-ns": "nvme", "usb-storage": "usb", "floppy": "fdc",
            "sd-card": "sd"}  # fmt: skip
_EMPTY = ("ide-cd", "scsi-cd")
"""Devices without a medium that show as a disk all the same."""

_SCSI = re.compile(r"virtio-scsi.*|lsi.*|megasas.*|mptsas1068|am53c974|dc390|pvscsi|spapr-vscsi")
_INTERFACES = {"virtio": "virtio", "ide": "ide", "scsi": "scsi", "sd": "sd", "floppy": "fdc", "xen": "xen"}
_NO_DISK = ("none", "pflash", "mtd")
_DEFAULT_BUSES = (("pc-q35", "sata"), ("q35", "sata"), ("virt", "virtio"), ("s390", "virtio"), ("pseries", "scsi"),
                  ("raspi", "sd"), ("vexpress", "sd"))  # fmt: skip
"""Where `-drive` and `-hda` go by the machine's type (QEMU, block_default_type); elsewhere to IDE."""

_TOPOLOGY = ("sockets", "drawers", "books", "dies", "clusters", "modules", "cores", "threads")
_CACHES = {(True, False): "none", (False, False): "writeback", (False, True): "unsafe", (True, True): "unsafe"}
_THROUGH = {"none": "directsync", "writeback": "writethrough"}
_KINDS = {"kvm": "kvm", "hvf": "hvf"}


@dataclass(frozen=True, slots=True)
class _Machine:
    """The machine, controllers and threads of a command line."""

    bus: str
    threads: Mapping[str, int]
    controllers: Mapping[str, Controller]
    sata: frozenset[str]


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VMs of a text, the last line of each: a log has every start. Raises ReadError."""
    if len(text) > BYTES_MAX:
        raise ReadError(f"it is larger than {BYTES_MAX // 1024} KiB, which no command line is")
    found: dict[tuple[str, str | None], Domain] = {}
    for number, words in enumerate(command_lines(text.decode(errors="replace"))):
        domain = read_words(words)
        found[(domain.name, domain.uuid) if domain.name or domain.uuid else (str(number), "")] = domain
    if not found:
        raise ReadError("it is no command line of QEMU")
    return tuple(found.values())


def read_words(words: Sequence[str]) -> Domain:
    """Read the words of a command line, the program first."""
    options = list(given(words))
    machine, name = _merged(options, "machine"), _merged(options, "name")
    threads = [one for flag, one in options if flag == "object" and one.get("qom-type") == "iothread"]
    numbers = _numbers([one.get("id", "") for one in threads])
    controllers = _controllers(options, numbers)
    ahci = (one.get("id", "") for flag, one in options if flag == "device" and one.get("driver", "").endswith("ahci"))
    kind = machine.get("type", "")
    bus = next((bus for start, bus in _DEFAULT_BUSES if kind.startswith(start)), "ide")
    around = _Machine(bus, numbers, controllers, frozenset(ahci) | ({"", "ide"} if bus == "sata" else set()))
    return Domain(
        name=name.get("guest", ""),
        uuid=_merged(options, "uuid").get("uuid"),
        kind=_kind(words[0], options, machine),
        line=1,
        vcpus=_vcpus(_merged(options, "smp")),
        machine=kind or None,
        emulator=words[0],
        threads=tuple(
            DomainThread(number=numbers[one.get("id", "")], poll_max_ns=_number(one.get("poll-max-ns")))
            for one in sorted(threads, key=lambda one: numbers[one.get("id", "")])
        ),
        threads_line=1,
        threads_elsewhere=frozenset(_threads_named(options, numbers)),
        host_devices=sum(flag == "device" and one.get("driver", "").startswith("vfio-pci") for flag, one in options),
        disks=tuple(_disks(options, around)),
        controllers=tuple(controllers.values()),
        language="qemu",
        elsewhere=tuple(_elsewhere(options)),
    )


def _elsewhere(options: Sequence[tuple[str, Options]]) -> Iterator[str]:
    """The parts of a line that are not in it: a file with options, the arguments of a script."""
    for flag, one in options:
        if flag in ("readconfig", "elsewhere"):
            yield f"{'-readconfig ' if flag == 'readconfig' else ''}{next(iter(one), '')}".rstrip()


def _merged(options: Sequence[tuple[str, Options]], flag: str) -> Options:
    """An option that is given several times is one, of which the last value of each key counts."""
    return {key: value for name, one in options if name == flag for key, value in one.items()}


def _kind(program: str, options: Sequence[tuple[str, Options]], machine: Options) -> str:
    """Who runs the guest's code: of several accelerators (`kvm:tcg`) the first is tried first."""
    asked = [one["accel"] for flag, one in options if flag == "accel" and "accel" in one]
    asked += ["kvm"] * any(flag == "enable-kvm" for flag, _ in options)
    asked += [machine.get("accel", ""), "kvm" if program.endswith("kvm") else ""]
    first = next((one for one in asked if one), "")
    return _KINDS.get(first.partition(":")[0], "qemu")


def _vcpus(smp: Options) -> int:
    """How many vCPUs are there at the start: as many as asked for, or as the topology has."""
    counts = [_number(smp.get(key)) or 1 for key in _TOPOLOGY]
    return _number(smp.get("cpus")) or _number(smp.get("maxcpus")) or math.prod(counts)


def _numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Number IOThreads: as libvirt does where all have its names (`iothread2`), else in their order."""
    found = [re.fullmatch(r"iothread(\d{1,6})", name) for name in names]
    theirs = [int(one[1]) for one in found if one is not None]
    ours = theirs if len(set(theirs)) == len(names) else range(1, len(names) + 1)
    return dict(zip(names, ours, strict=True))


def _controllers(options: Sequence[tuple[str, Options]], numbers: Mapping[str, int]) -> Mapping[str, Controller]:
    hosts = [one for flag, one in options if flag == "device" and _SCSI.fullmatch(one.get("driver", ""))]
    return {
        one.get("id", f"scsi{index}"): Controller(
            kind="scsi", index=index, line=1, model=one["driver"], queues=_number(one.get("num_queues")),
            iothread=numbers.get(one.get("iothread", "")), mapping=_mapping(one, numbers),
        )
        for index, one in enumerate(hosts)
    }  # fmt: skip


def _threads_named(options: Sequence[tuple[str, Options]], numbers: Mapping[str, int]) -> Iterator[int]:
    """The IOThreads that any device or object names: one that compares packets serves no disk and is not idle."""
    for flag, one in options:
        if flag in ("device", "object"):
            yield from (numbers[value] for key, value in one.items() if "iothread" in key and value in numbers)


def _mapping(one: Options, numbers: Mapping[str, int]) -> tuple[int, ...]:
    named = (value for key, value in one.items() if re.fullmatch(r"iothread-vq-mapping\.\d+\.iothread", key))
    return tuple(numbers[value] for value in named if value in numbers)


def _disks(options: Sequence[tuple[str, Options]], around: _Machine) -> Iterator[DomainDisk]:
    nodes = {one["node-name"]: one for flag, one in options if flag == "blockdev" and "node-name" in one}
    groups = {one.get("id", ""): one for _, one in options if one.get("qom-type") == "throttle-group"}
    given_drives = (one for flag, one in options if flag == "drive")
    drives = {one.get("id", f"drive{number}"): one for number, one in enumerate(given_drives)}
    devices = [one for flag, one in options if flag == "device"]
    for number, one in enumerate(devices):
        driver = one.get("driver", "")
        bus = "virtio" if driver.startswith("virtio-blk") else _DEVICES.get(driver)
        name = one.get("drive", "")
        if bus is None or (not name and driver not in _EMPTY):
            continue
        opened = of_nodes(nodes, name, groups) if name in nodes else of_drive(drives.pop(name, {}))
        yield _device(one, bus, opened, around, target=one.get("id") or f"device{number}")
    for identity, one in drives.items():
        interface = one.get("if", "")
        bus = _INTERFACES.get(interface, around.bus)
        if interface not in _NO_DISK:
            yield _device({}, bus, of_drive(one), around, target=identity)


def _device(one: Options, bus: str, opened: OpenedDisk, around: _Machine, *, target: str) -> DomainDisk:
    driver = one.get("driver", "")
    cache = _CACHES[opened.direct, opened.no_flush]
    if one.get("write-cache", "off" if opened.through else "on") == "off":
        cache = _THROUGH.get(cache, cache)
    parent = one.get("bus", "").partition(".")[0]
    controller = around.controllers.get(parent)
    if bus == "ide" and driver and parent in around.sata:
        bus = "sata"
    kind = "lun" if driver == "scsi-block" else "floppy" if bus == "fdc" else "disk"
    return DomainDisk(
        target=target,
        line=1,
        device="cdrom" if opened.cdrom or driver.endswith("-cd") else kind,
        bus=bus,
        source=opened.source,
        driver="qemu",
        format=opened.format,
        cache=cache,
        io=opened.aio,
        discard=opened.discard,
        detect_zeroes=opened.detect_zeroes,
        copy_on_read=opened.copy_on_read,
        iothread=around.threads.get(one.get("iothread", "")),
        mapping=_mapping(one, around.threads),
        queues=_number(one.get("num-queues")),
        queue_size=_number(one.get("queue-size")),
        limits=opened.limits,
        controller=controller.index if controller is not None else 0,
        rotation_rate=_number(one.get("rotation_rate")),
        read_only=opened.read_only,
        shareable=one.get("share-rw") == "on",
        transient=opened.snapshot,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _no_turn(_text: bytes, turn: SettingChange, _domain: str) -> bytes:
    raise PlanError(f"{turn.knob} is not turned on a command line")


QEMU = Language(
    name="qemu",
    title="QEMU's command line",
    text="the command line of a process",
    knows=begins_with_qemu,
    domains=domains,
    turn=_no_turn,
    says={},
    refusals=dict.fromkeys(
        (one.id for one in KNOBS), "a process keeps the line that it was started with; change what starts it"
    ),
)
"""QEMU's command line, which is only read."""
