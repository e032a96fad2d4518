# SPDX-License-Identifier: Apache-2.0
"""bhyve's languages, read and altered in place (pure): its own `bhyve_config(5)` files (`pci.0.2.0.path=...`), and
vm-bhyve's configuration of a VM, lines of `disk0_opts="nocache"`.

Source of the latter: vm-bhyve, sample-templates/config.sample.
"""

import re
from collections.abc import Mapping

from virtune.dialects.language import Language, no_disk
from virtune.dialects.text.lines import Settings, options_of, read_settings, with_option, without_option
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

_SETTING = re.compile(r"\s*(?P<key>[\w.-]+)=(?P<value>(?:.*\S)?)\s*$")
_KNOWN = re.compile(rb"^pci\.\d+\.\d+\.\d+\.device=", re.MULTILINE)
_DEVICES = {"virtio-blk": "virtio", "nvme": "nvme", "ahci": "sata", "ahci-hd": "sata", "ahci-cd": "sata"}
_PLACE = re.compile(r"(?P<place>(?P<device>pci\.\d+\.\d+\.\d+)(?:\.port\.\d+)?)\.path")
"""Where a disk's file is written: at the device, or at a port of an AHCI controller."""

_CACHES: Mapping[str, frozenset[str]] = {
    "writeback": frozenset(),
    "none": frozenset({"nocache"}),
    "writethrough": frozenset({"direct"}),
    "directsync": frozenset({"nocache", "direct"}),
}
"""QEMU's words for what bhyve's two do: `nocache` is O_DIRECT, `direct` is O_SYNC."""


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a text; raises ReadError."""
    config = read_settings(text, _SETTING)
    files = filter(None, map(_PLACE.fullmatch, config.by_key))
    kinds = ((found["place"], config.value(f"{found['device']}.device")) for found in files)
    disks = tuple(_disk(config, place, device) for place, device in kinds if device in _DEVICES)
    if not disks and not _KNOWN.search(text):
        raise ReadError("it is no configuration of bhyve")
    uuid = config.value("uuid") if "uuid" in config.by_key else None
    return (
        Domain(
            name=config.value("name"), uuid=uuid, kind="bhyve", line=1, vcpus=config.vcpus("cpus"), disks=disks,
            language="bhyve",
        ),
    )  # fmt: skip


def _disk(config: Settings, place: str, device: str) -> DomainDisk:
    words = frozenset(word for word in ("nocache", "direct", "nodelete", "ro") if _is_on(config, f"{place}.{word}"))
    slots = f"{place}.ioslots"
    return _disk_of(
        place,
        file=config.value(f"{place}.path"),
        line=config.by_key[f"{place}.path"].line.number,
        bus=_DEVICES[device],
        cdrom=config.value(f"{place}.type", device.partition("-")[2]) == "cd",
        words=words | ({f"ioslots={config.value(slots)}"} if slots in config.by_key else set()),
    )


def _disk_of(
    target: str, *, file: str, line: int, bus: str | None, cdrom: bool, words: frozenset[str], block: bool = False
) -> DomainDisk:
    """Return a disk by what is said of it; `words` are the flags of a block device and the number of its slots."""
    flags = words & {"nocache", "direct"}
    return DomainDisk(
        target=target,
        line=line,
        device="cdrom" if cdrom else "disk",
        bus=bus,
        source=DiskSource(kind="block" if block or file.startswith("/dev/") else "file", name=file),
        format="raw",
        cache=next(cache for cache, wanted in _CACHES.items() if wanted == flags),
        discard="ignore" if "nodelete" in words else None,
        read_only="ro" in words,
        options=flags | {word for word in words if word.startswith("ioslots=")},
    )


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with a disk's setting changed: bhyve's flags, the NVMe's `maxq`; raises PlanError."""
    config = read_settings(text, _SETTING)
    if f"{wanted.at}.path" not in config.by_key:
        raise no_disk(wanted, (one.target for one in domains(text)[0].disks))
    if wanted.knob == "nvme.max_ioqpairs":
        if config.value(f"{wanted.at}.device") != "nvme":
            raise PlanError(f"{wanted.at} is no NVMe disk, and only those have maxq")
        if wanted.value is not None and not re.fullmatch(r"[1-9]\d{0,3}", wanted.value):
            raise PlanError(f"{wanted.value[:40]!r} is no number of queues")
        return _with_key(text, f"{wanted.at}.maxq", wanted.value)
    for flag, on in _flags_of(wanted).items():
        if _is_on(read_settings(text, _SETTING), f"{wanted.at}.{flag}") != on:
            text = _with_key(text, f"{wanted.at}.{flag}", str(on).lower())
    return text


def _flags_of(wanted: SettingChange) -> dict[str, bool]:
    """Return the flags of a block device that a change sets and clears; raises PlanError for what bhyve has not."""
    if wanted.knob == "disk.discard" and wanted.value in ("unmap", "ignore", None):
        return {"nodelete": wanted.value == "ignore"}
    flags = _CACHES.get(wanted.value or "writeback")
    if wanted.knob != "disk.cache" or flags is None:
        raise PlanError(f"bhyve has no {wanted.knob}={(wanted.value or '')[:40]}")
    return {flag: flag in flags for flag in ("nocache", "direct")}


def _with_key(text: bytes, key: str, value: str | None) -> bytes:
    """Set one key of a device in its line, or in a new one after its path; None takes the line away."""
    config = read_settings(text, _SETTING)
    return config.with_key(key, value, line=f"{key}={value}", after=config.by_key[f"{key.rpartition('.')[0]}.path"])


def _is_on(config: Settings, key: str) -> bool:
    return config.value(key).lower() in ("true", "on", "yes", "1")


BHYVE = Language(
    name="bhyve",
    title="bhyve",
    text="a configuration of bhyve",
    knows=lambda text: _KNOWN.search(text) is not None,
    domains=domains,
    turn=turn,
)
"""bhyve itself."""


_VM_SETTING = re.compile(r"(?P<key>[a-z][a-z0-9_]*)=\"?(?P<value>[^\"#]*)\"?")
_VM_KNOWN = re.compile(rb"^disk\d+_(?:type|name)=", re.MULTILINE)
_VM_BUSES = _DEVICES | {"virtio-scsi": "scsi"}


def vm_domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a text of vm-bhyve's; raises ReadError."""
    config = read_settings(text, _VM_SETTING)
    names = _vm_names(config)
    if not names:
        raise ReadError("it has no disk as vm-bhyve writes one (`disk0_name=`)")
    return (
        Domain(
            name="",
            uuid=config.value("uuid") or None,
            kind="bhyve",
            line=min(one.line.number for one in config.by_key.values()),
            vcpus=config.vcpus("cpu"),
            disks=tuple(_vm_disk(config, name) for name in names),
            language="vm-bhyve",
        ),
    )


def _vm_names(config: Settings) -> list[str]:
    return sorted({found[1] for key in config.by_key if (found := re.fullmatch(r"(disk\d{1,3})_name", key))})


def _vm_disk(config: Settings, name: str) -> DomainDisk:
    options = options_of(config.value(f"{name}_opts"))
    kind = config.value(f"{name}_type")
    return _disk_of(
        name,
        file=config.value(f"{name}_name"),
        line=config.by_key[f"{name}_name"].line.number,
        bus=_VM_BUSES.get(kind),
        cdrom=kind == "ahci-cd",
        words=frozenset(f"ioslots={one.value}" if one.name == "ioslots" else one.name for one in options),
        block=config.value(f"{name}_dev") in ("zvol", "sparse-zvol"),
    )


def vm_turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return vm-bhyve's text with a disk's setting changed, by flags of its options; raises PlanError."""
    config, key = read_settings(text, _VM_SETTING), f"{wanted.at}_opts"
    name = config.by_key.get(f"{wanted.at}_name")
    if name is None:
        raise no_disk(wanted, _vm_names(config))
    options = config.value(key)
    for flag, on in _flags_of(wanted).items():
        there = any(one.name == flag for one in options_of(options))
        if on and not there:
            options = with_option(options, flag, None, flag=True)
        elif there and not on:
            options = without_option(options, flag)
    if not options and key not in config.by_key:
        return text
    return config.with_key(key, options, line=f'{key}="{options}"', after=name)


VM_BHYVE = Language(
    name="vm-bhyve",
    title="vm-bhyve",
    text="a vm-bhyve configuration",
    knows=lambda text: _VM_KNOWN.search(text) is not None,
    domains=vm_domains,
    turn=vm_turn,
)
"""vm-bhyve."""
