# SPDX-License-Identifier: Apache-2.0
"""Proxmox's configuration of a VM (`qemu-server/ID.conf`): read, and altered in place (pure).

A file has the running configuration, the changes that wait for a power-off in `[PENDING]`, and a section for every
snapshot, which is ignored. Unwritten settings have Proxmox's own defaults instead of QEMU's (cache=none, zeroes
looked for). Its engine is io_uring but on LVM, CIFS and a cached krbd: the file does not say the storage's type, so
`io` stays unknown, and io_uring stands where an engine has to be named, until the node says the type (`placed`).
Where a disk's setting waits in `[PENDING]`, that is the one which is altered, since it is what will start.

Source: qemu-server, PVE/QemuServer.pm (parse_vm_config), Drive.pm and DriveDevice.pm.
"""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.qemu.command import about_disks
from virtune.dialects.text.lines import (
    Option,
    Page,
    Setting,
    commands_of,
    option,
    options_of,
    read_page,
    safe,
    settings_of,
    whole,
    with_line,
    with_option,
    with_value,
    without,
    without_option,
)
from virtune.model import stack
from virtune.model.domain import HELD_HERE, Controller, DiskSource, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError, ReadError

LANGUAGE = "proxmox"
SINGLE = "virtio-scsi-single"
"""The SCSI controller that is one a disk, so that each can have an IOThread and queues."""

IGNORED = "iothread is ignored"
"""The option of a disk that requests an IOThread without getting one: Proxmox warns of it in the task's log."""

_CACHE_BY_DEFAULT = "cache by default"
_DEFAULTS = {"detect_zeroes by default": "detect_zeroes", _CACHE_BY_DEFAULT: "cache"}
"""The options of a disk that has one of Proxmox's defaults, by the setting that is not written then."""

MIB = 1024 * 1024
LIMITS: Mapping[str, str] = {limit.drive: limit.libvirt for limit in stack.LIMITS}
"""A limit's name here and libvirt's; `mbps` is `bps` in units of 1 MiB, and `_max`, `_max_length` may follow."""

_SETTING = re.compile(r"(?P<key>[a-z][a-z_-]*\d*):\s*(?P<value>\S(?:.*\S)?)\s*$")
_HEADING = re.compile(r"\[([^\]]*)\]\s*$")
_DISK = re.compile(r"(scsi|virtio|ide|sata)(\d{1,3})")
_DISKS_PER_LSI = 7
_DISKS_PER_SCSI = 256
_BOOLEANS = {"1": True, "on": True, "yes": True, "true": True, "0": False, "off": False, "no": False, "false": False}
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")
_KNOWN = re.compile(
    rb"^(?:(?:scsi|virtio|ide|sata|net|efidisk|unused)\d+|ostype|scsihw|vmgenid|smbios1|sockets|cores|memory|boot"
    rb"|bootdisk|numa|agent|onboot|machine|bios|meta|balloon|args):[ \t]*\S",
    re.MULTILINE,
)
_OWN = re.compile(
    rb"^(?:(?:scsi|virtio|sata|ide)\d{1,2}: ?\S|smbios1:[ \t]*(?:\S*,)?uuid=|vmgenid:[ \t]*[0-9a-f-]{36}\s)",
    re.MULTILINE,
)
"""Lines that nothing else has: one of them makes a text its file, also without a disk."""

_KEYS = frozenset({"acpi", "affinity", "agent", "allow-ksm", "amd-sev", "arch", "args", "audio", "autostart",
                   "balloon", "bios", "boot", "bootdisk", "cdrom", "cicustom", "cipassword", "citype", "ciupgrade",
                   "ciuser", "cores", "cpu", "cpulimit", "cpuunits", "description", "efidisk", "freeze",
                   "hookscript", "hostpci", "hotplug", "hugepages", "ide", "intel-tdx", "ipconfig", "ivshmem",
                   "keephugepages", "keyboard", "kvm", "localtime", "lock", "machine", "memory", "meta",
                   "migrate_downtime", "migrate_speed", "name", "nameserver", "net", "numa", "onboot", "ostype",
                   "parallel", "protection", "reboot", "rng", "sata", "scsi", "scsihw", "searchdomain", "serial",
                   "shares", "smbios", "sockets", "smp", "spice_enhancements", "sshkeys", "startdate", "startup",
                   "tablet", "tags", "tdf", "template", "tpmstate", "unused", "usb", "vcpus", "vga", "virtio",
                   "virtiofs", "vmgenid", "vmstatestorage", "watchdog"})  # fmt: skip
"""What its files have as keys, without numbers."""

_HARDLY_ELSEWHERE = frozenset({"ostype", "smbios", "vmgenid", "scsihw", "machine", "sockets", "agent", "bios", "vga",
                               "startdate", "amd-sev", "smp"})  # fmt: skip
_LINES_MIN = 3
"""So many lines that Proxmox would write make it its file."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a file by key: those that run, and those of the next start, with their places. `others` are
    those of snapshots and other sections, `deleted` is the line that deletes settings.
    """

    page: Page
    running: Mapping[str, Setting]
    next_start: Mapping[str, Setting]
    pending: bool
    others: tuple[Setting, ...] = ()
    deleted: int | None = None


def matches(text: bytes) -> bool:
    """Whether a text is such a file."""
    head = text[:65536]
    if len({one[0].split(b":")[0] for one in _KNOWN.finditer(head)}) >= _LINES_MIN or _OWN.search(text) is not None:
        return True
    # or all lines are settings of Proxmox, and one of them is hardly anybody else's
    lines = [one for one in head.split(b"\n") if one.strip() and not one.startswith((b"#", b"["))]
    keys = [re.sub(rb"\d+$", b"", one.partition(b":")[0]).decode("latin-1") for one in lines]
    return all(key in _KEYS for key in keys) and not _HARDLY_ELSEWHERE.isdisjoint(keys)


def read(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a file as it will start next; raises ReadError."""
    config = read_config(text)
    return (_domain(config.next_start),)


def live(text: bytes) -> Domain | None:
    """Read the VM as it runs, where something waits for a power-off; None where nothing does. A disk that will be
    deleted is on the line that says so.
    """
    config = read_config(text)
    if not config.pending:
        return None
    domain = _domain(config.running)
    disks = (
        disk if config.deleted is None or disk.target in config.next_start else replace(disk, line=config.deleted)
        for disk in domain.disks
    )
    return replace(domain, disks=tuple(disks))


def read_config(text: bytes) -> Config:
    """Read the settings of a file; raises ReadError for any other text."""
    page = read_page(text)
    settings = list(settings_of(page, _SETTING, _HEADING))
    running = {_key(one): one for one in settings if one.section == ""}
    waiting = {_key(one): one for one in settings if one.section.upper() == "PENDING"}
    removed = waiting.pop("delete", None)
    gone = set(re.split(r"[\s,;]+", removed.value.replace("!", ""))) if removed is not None else set()
    next_start = {key: one for key, one in running.items() if key not in gone} | waiting
    if not running:
        raise ReadError("it has no line that Proxmox would write (`scsi0: local-lvm:vm-100-disk-0`)")
    others = tuple(one for one in settings if one.section and one.section.upper() != "PENDING")
    deleted = None if removed is None else removed.line.number
    return Config(page, running, next_start, bool(waiting or removed), others, deleted)


def _key(setting: Setting) -> str:
    return "ide2" if setting.key == "cdrom" else setting.key


def truth(word: str | None) -> bool | None:
    """Read a boolean as Proxmox does (PVE::JSONSchema, parse_boolean); None for what is none, or not written."""
    return _BOOLEANS.get((word or "").lower())


def is_disk(key: str) -> bool:
    return _DISK.fullmatch(key) is not None


def _domain(settings: Mapping[str, Setting]) -> Domain:
    first = min(setting.line.number for setting in settings.values()) if settings else 1
    numbers = itertools.count(1)  # Proxmox makes an IOThread for every disk that asks
    disks: list[DomainDisk] = []
    controllers: dict[int, Controller] = {}
    hardware = settings.get("scsihw")
    for key in sorted((key for key in settings if is_disk(key)), key=_in_order):
        disk, controller = _disk(settings[key], key, hardware, numbers)
        disks.append(disk)
        if controller is not None:
            controllers.setdefault(controller.index, controller)
    uuid = option(options_of(_value(settings, "smbios1")), "uuid")
    return Domain(
        name=_value(settings, "name") or "",
        uuid=uuid or None,
        kind="qemu" if truth(_value(settings, "kvm")) is False else "kvm",
        line=first,
        vcpus=_vcpus(settings),
        machine=_machine(_value(settings, "machine")),
        threads=tuple(DomainThread(number=number) for number in range(1, next(numbers))),
        threads_line=first,
        host_devices=sum(key.startswith("hostpci") for key in settings),
        disks=tuple(disks),
        controllers=tuple(controllers[index] for index in sorted(controllers)),
        language=LANGUAGE,
        elsewhere=tuple(f"{what} of args" for what in _around(_value(settings, "args"))),
    )


def _around(args: str) -> Iterator[str]:
    """What is told to QEMU of disks past Proxmox; all of it where it cannot be taken apart."""
    try:
        return about_disks([word for words in commands_of(args) for word in words])
    except ValueError:
        return iter([args])


def _in_order(key: str) -> tuple[str, int]:
    found = _DISK.fullmatch(key)
    return (found[1], int(found[2])) if found else ("", 0)


def _value(settings: Mapping[str, Setting], key: str) -> str:
    return settings[key].value if key in settings else ""


def _machine(text: str) -> str | None:
    """The type of the machine: `pc-q35-9.0+pve1`, or with its key (`type=q35,viommu=virtio`)."""
    options = options_of(text)
    kind = option(options, "type") or next((one.name for one in options if one.value is None), "")
    return re.sub(r"\+pve\d+$", "", kind) or None


def _vcpus(settings: Mapping[str, Setting]) -> int:
    def number(key: str, otherwise: int) -> int:
        setting = settings.get(key)
        return whole(setting.value, f"line {setting.line.number}", most=10_000) if setting else otherwise

    return number("vcpus", number("sockets", 1) * number("cores", 1))


def _disk(
    setting: Setting, key: str, hardware: Setting | None, numbers: Iterator[int]
) -> tuple[DomainDisk, Controller | None]:
    options = options_of(setting.value)
    bus, index = _in_order(key)
    model = hardware.value if hardware is not None else "lsi"
    per = 1 if model == SINGLE else _DISKS_PER_LSI if model.startswith("lsi") else _DISKS_PER_SCSI
    served = bus == "virtio" or (bus == "scsi" and model == SINGLE)
    asked = truth(option(options, "iothread")) is True
    thread = next(numbers) if asked and served else None
    queues = option(options, "queues")
    controller = None
    if bus == "scsi":
        controller = Controller(
            kind="scsi",
            index=index // per,
            line=hardware.line.number if hardware is not None else setting.line.number,
            model=model,
            queues=whole(queues, f"line {setting.line.number}") if queues and model == SINGLE else None,
            iothread=thread,
        )
    disk = _one_disk(setting, options, target=key, bus=bus, controller=index // per if bus == "scsi" else 0)
    ignored = frozenset({IGNORED}) if asked and not served else frozenset()
    return replace(disk, iothread=thread if bus == "virtio" else None, options=disk.options | ignored), controller


def _one_disk(setting: Setting, options: tuple[Option, ...], *, target: str, bus: str, controller: int) -> DomainDisk:
    cdrom = option(options, "media") == "cdrom"
    source = _source(options, cdrom=cdrom)
    discard = option(options, "discard")
    asked = option(options, "detect_zeroes")
    zeroes = truth(asked) is not False
    return DomainDisk(
        target=target,
        line=setting.line.number,
        device="cdrom" if cdrom else "lun" if truth(option(options, "scsiblock")) else "disk",
        bus=bus,
        source=source,
        driver="qemu",
        format=_format(options, source.name),
        cache=option(options, "cache") or "none",
        io=option(options, "aio"),
        io_default="io_uring",
        discard={"on": "unmap", "ignore": "ignore"}.get(discard or ""),
        detect_zeroes=("unmap" if discard == "on" else "on") if zeroes else "off",
        werror=option(options, "werror"),
        rerror=option(options, "rerror"),
        limits=tuple(_limits(options, setting)),
        controller=controller,
        rotation_rate=1 if truth(option(options, "ssd")) else None,
        read_only=truth(option(options, "ro")) is True,
        transient=truth(option(options, "snapshot")) is True,
        options=frozenset(one for one, written in _DEFAULTS.items() if not option(options, written)),
    )


def _source(options: tuple[Option, ...], *, cdrom: bool) -> DiskSource:
    name = option(options, "file") or option(options, "volume") or ""
    if not name and options and options[0].value is None:
        name = options[0].name
    if name in ("", "none", "cdrom"):
        return DiskSource(kind="none")
    if name.startswith("/"):
        return DiskSource(kind="block" if name.startswith("/dev/") else "file", name=name)
    if "://" in name:
        return DiskSource(kind="network", name=name, protocol=name.partition("://")[0])
    return DiskSource(kind="file" if cdrom else "volume", name=name)


def _format(options: tuple[Option, ...], name: str) -> str:
    written = option(options, "format")
    ending = name.rpartition(".")[2]
    return written or (ending if ending in ("qcow2", "vmdk", "raw", "qed") else "raw")


def _limits(options: tuple[Option, ...], setting: Setting) -> Iterator[tuple[str, int]]:
    for one in options:
        root = one.name.removesuffix("_length").removesuffix("_max")
        scale = MIB if root.startswith("mbps") else 1
        known = LIMITS.get(root.removeprefix("m") if scale > 1 else root)
        if known is None or one.value is None:
            continue
        if not _NUMBER.fullmatch(one.value):
            raise ReadError(f"line {setting.line.number}: {one.name}={one.value[:40]!r} is not a number")
        ending = one.name[len(root) :]
        yield known + ending, round(float(one.value) * (1 if ending.endswith("_length") else scale))


_ERRORS = {"report": "report", "ignore": "ignore", "stop": "stop"}
_WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "disk.aio": ("aio", {"threads": "threads", "native": "native", "io_uring": "io_uring"}),
    "disk.cache": ("cache", {c: c for c in ("none", "writethrough", "writeback", "unsafe", "directsync")}),
    "disk.discard": ("discard", {"unmap": "on", "ignore": "ignore"}),
    "device.werror": ("werror", {**_ERRORS, "enospc": "enospc"}),
    "device.rerror": ("rerror", _ERRORS),
}
"""Options of a disk that are one of a few words."""

_LIMIT_KNOBS: Mapping[str, str] = {limit.knob: limit.drive for limit in stack.LIMITS}
_CONTROLLERS = {
    SINGLE: SINGLE,
    "virtio-scsi-pci": "virtio-scsi-pci",
    "lsi53c895a": "lsi",
    "megasas": "megasas",
    "pvscsi": "pvscsi",
}


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with one setting changed; raises PlanError for an invalid place or value."""
    config = read_config(text)
    if wanted.knob == "device.scsi_controller":
        return _hardware(config, wanted)
    key = wanted.at if not wanted.at.startswith("scsi:") else f"scsi{wanted.at[5:]}"
    setting = config.next_start.get(key)
    if setting is None or not is_disk(key):
        raise no_disk(wanted, filter(is_disk, config.next_start))
    return with_value(config.page, setting, _altered_disk(config, key, setting.value, wanted))


def _hardware(config: Config, wanted: SettingChange) -> bytes:
    setting = config.next_start.get("scsihw")
    if wanted.value is None:
        return config.page.text.encode(config.page.codec) if setting is None else without(config.page, setting)
    word = one_of(wanted, _CONTROLLERS)
    if setting is not None:
        return with_value(config.page, setting, word)
    scsi = [one for key, one in config.running.items() if key.startswith("scsi")]
    after = max(scsi or config.running.values(), key=lambda one: one.line.number)
    return with_line(config.page, after, f"scsihw: {word}")


def _altered_disk(config: Config, key: str, value: str, wanted: SettingChange) -> str:
    if wanted.knob in _WORDS:
        name, words = _WORDS[wanted.knob]
        if wanted.value is None or (name in ("werror", "rerror") and wanted.value == "auto"):
            return without_option(value, name)
        return with_option(value, name, one_of(wanted, words))
    if wanted.knob in _LIMIT_KNOBS:
        return _limit(value, wanted)
    if wanted.knob == "disk.detect_zeroes":
        return _zeroes(value, wanted)
    if wanted.knob == "device.iothread":
        return _thread(config, key, value, wanted)
    if wanted.knob == "device.rotation_rate":
        if key.startswith("virtio") and wanted.value not in (None, "0"):
            raise PlanError("ssd=1 is for scsi, sata and ide disks: virtio-blk cannot say that it is flash")
        words = {"1": "1", "0": "0"}
        return (
            without_option(value, "ssd") if wanted.value is None else with_option(value, "ssd", one_of(wanted, words))
        )
    return _queues(config, key, value, wanted)


def _limit(value: str, wanted: SettingChange) -> str:
    name = _LIMIT_KNOBS[wanted.knob]
    kind = name.partition("_")[0]
    options = options_of(value)
    rivals = (f"{kind}_rd", f"{kind}_wr") if name == kind else (kind,)
    clash = next((one.name for one in options if one.name.removeprefix("m") in rivals and one.value != "0"), None)
    if wanted.value is None:
        return without_option(without_option(value, f"m{name}"), name)
    if clash is not None:
        raise PlanError(f"a disk has either a limit for all or one each way, and this one has {clash}")
    number = int(safe(wanted.value, str.isdecimal))
    if kind == "iops":
        return with_option(value, name, str(number))
    # what Proxmox itself would make of bps= at its next writing
    value = without_option(value, name)
    return with_option(value, f"m{name}", f"{number / MIB:.6f}".rstrip("0").rstrip("."))


def _zeroes(value: str, wanted: SettingChange) -> str:
    if wanted.value is None:
        return without_option(value, "detect_zeroes")
    unmaps = option(options_of(value), "discard") == "on"
    if wanted.value == "unmap" and not unmaps:
        raise PlanError("Proxmox unmaps zeroes where discard=on: turn disk.discard first")
    if wanted.value == "on" and unmaps:
        raise PlanError("with discard=on Proxmox unmaps the zeroes that it finds: it has unmap and off")
    return with_option(value, "detect_zeroes", one_of(wanted, {"off": "0", "on": "1", "unmap": "1"}))


def _thread(config: Config, key: str, value: str, wanted: SettingChange) -> str:
    if wanted.value is None:
        return without_option(value, "iothread")
    hardware = config.next_start.get("scsihw")
    if key.startswith("scsi") and (hardware is None or hardware.value != SINGLE):
        raise PlanError(
            f"with this SCSI controller Proxmox ignores iothread=1: device.scsi_controller={SINGLE} comes first"
        )
    if key.startswith(("ide", "sata")):
        raise PlanError("only virtio and scsi disks can have an IOThread")
    return with_option(value, "iothread", "1")


def _queues(config: Config, key: str, value: str, wanted: SettingChange) -> str:
    hardware = config.next_start.get("scsihw")
    if not key.startswith("scsi") or hardware is None or hardware.value != SINGLE:
        raise PlanError(f"queues= is for scsi disks with scsihw={SINGLE}")
    if wanted.value is None:
        return without_option(value, "queues")
    number = int(safe(wanted.value, str.isdecimal))
    if number < 2:
        raise PlanError("Proxmox takes 2 queues or more")
    return with_option(value, "queues", str(number))


def vmid_of(name: str) -> str | None:
    """Return the VMID that a file is called after; None for a number that is only part of a name (a date): a command
    with it would change another VM.
    """
    return name if re.fullmatch(r"[1-9]\d{2,8}", name, re.ASCII) else None


def set_words(before: bytes, after: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings of the next start that are new or other in a changed text, and those that are gone."""
    old, new = read_config(before).next_start, read_config(after).next_start
    changed = {key: one.value for key, one in new.items() if key not in old or old[key].value != one.value}
    return changed, tuple(key for key in old if key not in new)


def commands(before: bytes, after: bytes, name: str) -> tuple[str, ...]:
    """Return the change between two texts as `qm set` lines; `name` is the VMID, or what the file is called."""
    vmid = vmid_of(name) or "VMID"
    changed, gone = set_words(before, after)
    lines = (f"qm set {vmid} --{key} {shlex.quote(value)}" for key, value in changed.items())
    return (*lines, *(f"qm set {vmid} --delete {key}" for key in gone))


PROXMOX = Language(
    name=LANGUAGE,
    title="Proxmox VE",
    text="a Proxmox configuration",
    knows=matches,
    domains=read,
    turn=turn,
    live=live,
    commands=commands,
    implied=frozenset({"iothread.count"}),
)  # fmt: skip
"""Proxmox VE."""


_STORAGE = re.compile(r"([a-z0-9]+):\s*([A-Za-z][A-Za-z0-9._-]*)\s*", re.ASCII)


def storages(text: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return of a `storage.cfg` the type of each storage, and its options, by its name. A storage begins in the first
    column, its options do not.
    """
    found: dict[str, tuple[str, dict[str, str]]] = {}
    options: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        if not line[0].isspace():
            head = _STORAGE.fullmatch(line)
            options = {}
            if head is not None:
                found[head[2]] = (head[1], options)
        else:
            options[words[0]] = words[1].strip() if len(words) > 1 else ""
    return found


def placed(domain: Domain, known: Mapping[str, tuple[str, Mapping[str, str]]]) -> Domain:
    """Return a VM of a node with what the types of its storages decide: who opens each disk, and with which engine
    and cache where none are written. Disks of storages that are not among `known` stay as they are.

    Source: PVE/QemuServer.pm, storage_allows_io_uring_default and drive_uses_cache_direct.
    """
    return replace(domain, disks=tuple(_placed(one, known) for one in domain.disks))


def _placed(disk: DomainDisk, known: Mapping[str, tuple[str, Mapping[str, str]]]) -> DomainDisk:
    kind, its = known.get(disk.source.name.partition(":")[0], ("", {}))
    if disk.source.kind != "volume" or not kind:
        return disk
    krbd = truth(its.get("krbd")) is True
    if kind == "iscsidirect" or (kind == "rbd" and not krbd):
        protocol = "rbd" if kind == "rbd" else "iscsi"
        return replace(disk, source=replace(disk.source, kind="network", protocol=protocol))
    copies = kind == "btrfs" and truth(its.get("nocow")) is not True
    cache = "writeback" if copies and _CACHE_BY_DEFAULT in disk.options else disk.cache
    uncached = cache in ("off", *stack.DIRECT_CACHES)
    hangs = kind in ("lvm", "cifs") or (krbd and not uncached)
    engine = "io_uring" if not hangs else "native" if uncached else "threads"
    return replace(disk, cache=cache, io_default=engine, options=disk.options | {HELD_HERE})
