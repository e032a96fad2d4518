# SPDX-License-Identifier: Apache-2.0
"""Proxmox VE's language: `/etc/pve/qemu-server/ID.conf`, read and altered in place, and the same as `qm set` (pure).

What is not written has Proxmox's default, which is not QEMU's: cache=none, aio=io_uring, detect_zeroes on.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from virtune.dialects.lines import decoded
from virtune.model.domain import Controller, DiskSource, Domain, DomainDisk, DomainThread, Turn
from virtune.model.errors import PlanError, ReadError

_DISK = re.compile(
    r"(?P<name>(?P<bus>scsi|virtio|sata|ide)\d{1,2}): *(?P<value>[^\s,]+)(?P<options>(?:,[^,\s]*)*)\s*"
)
_KEY = re.compile(r"([a-z][a-z0-9_]*): *(.*?)\s*")
_NUMBER = re.compile(r"\d{1,9}")
_LIMITS = {"iops": "total_iops_sec", "iops_rd": "read_iops_sec", "iops_wr": "write_iops_sec"}

OPTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "disk.cache": ("cache", {}),
    "disk.aio": ("aio", {}),
    "disk.discard": ("discard", {"unmap": "on", "ignore": "ignore"}),
    "disk.detect_zeroes": ("detect_zeroes", {"on": "1", "unmap": "1", "off": "0"}),
    "device.iothread": ("iothread", {}),
    "device.rotation_rate": ("ssd", {"1": "1", "0": "0"}),
    "disk.throttle_iops": ("iops", {}),
    "disk.throttle_iops_read": ("iops_rd", {}),
    "disk.throttle_iops_write": ("iops_wr", {}),
    "scsi.num_queues": ("queues", {}),
}
"""Knobs of a disk's line: the option, and its words where they differ."""

_ARGS = "Proxmox has no key for it, only `args:`, which goes past everything that it knows"
REFUSALS: Mapping[str, str] = {
    "device.num_queues": "virtio-blk has no key for queues there; QEMU gives one a vCPU",
    "device.queue_size": _ARGS,
    "device.packed": _ARGS,
    "device.iothread_vq_mapping": _ARGS,
    "iothread.poll_max_ns": _ARGS,
    "iothread.pin": "Proxmox pins a VM as a whole (`affinity:`), no thread of it",
    "disk.cache_size": _ARGS,
    "device.bus": "a disk on another bus is another key: `qm set ID --delete` and `--virtioN`, with the VM off",
    "disk.format": "`qm disk move` makes the image anew",
}
"""What Proxmox has no words for, and why."""


def is_proxmox(text: bytes) -> bool:
    """Whether a text has a disk as Proxmox writes one."""
    return re.search(rb"^(scsi|virtio|sata|ide)\d{1,2}: ?\S+", text, re.MULTILINE) is not None


def read_proxmox(text: bytes) -> Domain:
    """Read a VM's configuration, without its snapshots; raises ReadError."""
    keys: dict[str, tuple[int, str]] = {}
    disks: list[DomainDisk] = []
    for number, line in _current(decoded(text)):
        found = _DISK.fullmatch(line)
        if found is not None and found["value"] != "none":
            disks.append(_disk(found, number))
        elif key := _KEY.fullmatch(line):
            keys[key[1]] = (number, key[2])
    if not disks and "scsihw" not in keys and "cores" not in keys:
        raise ReadError("it is no configuration of a Proxmox VM")
    hardware = keys.get("scsihw", (0, "lsi"))[1]
    single = hardware == "virtio-scsi-single"
    threads = [disk for disk in disks if disk.iothread is not None and (disk.bus == "virtio" or single)]
    numbered = {disk.target: place for place, disk in enumerate(threads, 1)}
    return Domain(
        name=keys.get("name", (0, ""))[1],
        uuid=None,
        kind="kvm",
        line=1,
        vcpus=_whole(keys, "cores", 1) * _whole(keys, "sockets", 1),
        machine=keys["machine"][1] if "machine" in keys else None,
        threads=tuple(DomainThread(number=place) for place in numbered.values()),
        disks=tuple(_numbered(disk, numbered) for disk in disks),
        controllers=tuple(
            Controller(
                kind="scsi", index=disk.controller, line=disk.line, model=hardware,
                iothread=numbered.get(disk.target), queues=disk.queues,
            )
            for disk in disks if disk.bus == "scsi"
        ),
        language="proxmox",
    )  # fmt: skip


def alter_proxmox(text: bytes, *turns: Turn) -> bytes:
    """Return the configuration with knobs turned: only the option that each names changes. Raises PlanError."""
    for turn in turns:
        if turn.knob != "iothread.count":  # Proxmox makes one for each disk that has iothread=1
            text = _turn(text, turn)
    return text


def qm_set(identity: str, text: bytes, *turns: Turn) -> str:
    """Return the `qm set` line that turns knobs of one disk, which carries all of the disk's options."""
    altered = decoded(alter_proxmox(text, *turns))
    wanted = dict.fromkeys(turn.at for turn in turns)
    found = (match for _, line in _current(altered) if (match := _DISK.fullmatch(line)))
    lines = [f"--{match['name']} {match['value']}{match['options']}" for match in found if match["name"] in wanted]
    return f"qm set {identity} {' '.join(lines)}"


def _turn(text: bytes, turn: Turn) -> bytes:
    if turn.knob not in OPTIONS:
        because = REFUSALS.get(turn.knob, "Proxmox has no word for it")
        raise PlanError(f"{turn.knob} cannot be written into a Proxmox configuration: {because}")
    option, words = OPTIONS[turn.knob]
    value = turn.value if turn.value is None else words.get(turn.value, turn.value)
    value = "1" if option == "iothread" and value is not None else value
    if value is not None and not re.fullmatch(r"[\w.]+", value):
        raise PlanError(f"{value[:60]!r} is no value of {turn.knob}")
    offset = 0
    for raw in text.splitlines(keepends=True):
        if raw.startswith(b"["):
            break
        line = raw.decode(errors="surrogateescape")
        found = _DISK.fullmatch(line)
        if found is not None and found["name"] == turn.at:
            changed = f"{line[: found.start('options')]}{_options(found['options'], option, value)}"
            whole = f"{changed}{line[found.end('options') :]}".encode(errors="surrogateescape")
            return text[:offset] + whole + text[offset + len(raw) :]
        offset += len(raw)
    raise PlanError(f"the VM has no disk {turn.at!r}")


def _options(text: str, option: str, value: str | None) -> str:
    """Set, change or take away one option among those of a disk."""
    parts = text.split(",")[1:]
    kept = [part for part in parts if part.partition("=")[0] != option or value is not None]
    made = [f"{option}={value}" if part.partition("=")[0] == option else part for part in kept]
    if value is not None and made == kept and f"{option}={value}" not in kept:
        made.append(f"{option}={value}")
    return "".join(f",{part}" for part in made)


def _current(text: str) -> Iterator[tuple[int, str]]:
    """The lines of the VM as it is now: snapshots and pending changes follow in sections of their own."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            return
        if not line.startswith("#"):
            yield number, line


def _disk(found: re.Match[str], line: int) -> DomainDisk:
    options = dict(part.partition("=")[::2] for part in found["options"].split(",") if part)
    value, bus = found["value"].removeprefix("file="), found["bus"]
    limits = tuple(
        (_LIMITS[name], int(options[name])) for name in _LIMITS if _NUMBER.fullmatch(options.get(name, ""))
    )
    queues = options.get("queues", "")
    return DomainDisk(
        target=found["name"],
        line=line,
        device="cdrom" if options.get("media") == "cdrom" else "disk",
        bus=bus,
        source=DiskSource(kind="block" if value.startswith("/dev/") else "volume", name=value),
        format=options.get("format") or ("qcow2" if value.endswith(".qcow2") else "raw"),
        cache=options.get("cache", "none"),
        io=options.get("aio"),
        discard="unmap" if options.get("discard") == "on" else None,
        detect_zeroes="off" if options.get("detect_zeroes") in ("0", "off") else "on",
        iothread=0 if options.get("iothread") in ("1", "on", "yes") else None,
        queues=int(queues) if _NUMBER.fullmatch(queues) else None,
        limits=limits,
        controller=int(found["name"].removeprefix(bus)),
        rotation_rate=1 if options.get("ssd") in ("1", "on") else None,
        read_only=options.get("ro") in ("1", "on"),
    )


def _numbered(disk: DomainDisk, numbers: Mapping[str, int]) -> DomainDisk:
    """Give a disk with an IOThread its number; on a SCSI disk it is the controller that has it."""
    if disk.iothread is None:
        return disk
    if disk.bus == "virtio":
        return replace(disk, iothread=numbers[disk.target])
    ignored = frozenset() if disk.target in numbers else frozenset({"iothread is ignored"})
    return replace(disk, iothread=None, options=ignored)


def _whole(keys: Mapping[str, tuple[int, str]], name: str, default: int) -> int:
    line, text = keys.get(name, (0, str(default)))
    if not _NUMBER.fullmatch(text):
        raise ReadError(f"line {line}: {name}={text[:40]!r} is not a whole number")
    return int(text)
