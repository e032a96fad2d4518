# SPDX-License-Identifier: Apache-2.0
"""VMware's language: a VM's `.vmx`, lines of `key = "value"`, its disks read and altered in place (pure).

The case of keys does not matter.
"""

import re
from collections.abc import Mapping

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.text.lines import Settings, read_settings, safe
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

_SETTING = re.compile(r'\s*(?P<key>[\w:.-]+)\s*=\s*"(?P<value>[^"]*)"\s*$')
_KNOWN = re.compile(rb'(?im)^[ \t]*(\.encoding|config\.version|virtualHW\.version)[ \t]*=[ \t]*"')
_FILE = re.compile(r"(?P<disk>(?P<bus>scsi|sata|ide|nvme)\d+:\d+)\.filename")

_EMPTY = ("", "emptybackingstring", "auto detect")
"""What stands for a file in a CD-ROM drive that has none, or takes whatever the host's has."""

_IOPS = re.compile(r"(\d{1,12})([km]?)(?:iops)?", re.IGNORECASE | re.ASCII)
_THOUSANDS = {"": 1, "k": 1000, "m": 1000**2}
_UNLIMITED = ("", "off", "unlimited")

_CONTROLLERS: Mapping[str, str] = {"pvscsi": "pvscsi", "mptsas1068": "lsisas1068"}
"""The controllers that QEMU has as well, by VMware's names for them."""

_WORDS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "device.rotation_rate": ("virtualSSD", "0", {"0": "0", "1": "1"}),
    "disk.cache": ("writeThrough", "writeback", {"writeback": "FALSE", "writethrough": "TRUE"}),
}
"""Knobs of a disk: the key, the default, and VMware's word for each value. libvirt reads writeThrough likewise."""


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a text; raises ReadError."""
    config = read_settings(text, _SETTING, folded=True)
    if not config.by_key.keys() & {"config.version", "virtualhw.version"}:
        raise ReadError("it is no .vmx: it has neither config.version nor virtualHW.version")
    files = [one for one in map(_FILE.fullmatch, config.by_key) if one is not None and _is_there(config, one)]
    capped = (config.by_key.get(_cap(one["disk"]).lower()) for one in files)
    return (
        Domain(
            name=config.value("displayname"),
            uuid=None,
            kind="vmware",
            line=1,
            vcpus=config.vcpus("numvcpus"),
            machine=config.value("virtualhw.version") or None,
            disks=tuple(_disk(config, found["disk"], found["bus"]) for found in files),
            written=frozenset(config.by_key.keys() & {"mainmem.usenamedfile"}),
            language="vmx",
            elsewhere=tuple(f"{one.key} = {one.value!r}" for one in capped if one and _limit(one.value) is None),
        ),
    )


def _is_there(config: Settings, found: re.Match[str]) -> bool:
    return config.value(f"{found['disk']}.present", "TRUE").upper() == "TRUE"


def _cap(target: str) -> str:
    """Return the key of a disk's limit."""
    return f"sched.{target}.throughputCap"


def _limit(word: str) -> int | None:
    """Return a limit in I/Os a second, 0 for none; None for what is no such number, as one of bytes."""
    if word.lower() in _UNLIMITED:
        return 0
    found = _IOPS.fullmatch(word)
    return None if found is None else int(found[1]) * _THOUSANDS[found[2].lower()]


def _disk(config: Settings, target: str, bus: str) -> DomainDisk:
    file = config.by_key[f"{target}.filename"]
    kind = config.value(f"{target}.devicetype").lower()
    cdrom = "cdrom" in kind
    through = config.value(f"{target}.writethrough").upper() == "TRUE"
    return DomainDisk(
        target=target,
        line=config.by_key.get(f"{target}.mode", file).line.number,
        device="cdrom" if cdrom else "lun" if kind == "scsi-passthru" else "disk",
        bus=bus,
        source=_source(file.value, cdrom=cdrom),
        driver=config.value(f"{target.partition(':')[0]}.virtualdev").lower() or None,
        format="vmdk",
        cache="writethrough" if through else "writeback",
        limits=(("total_iops_sec", limit),) if (limit := _limit(config.value(_cap(target).lower()))) else (),
        rotation_rate=1 if config.value(f"{target}.virtualssd") == "1" else None,
        options=frozenset({config.value(f"{target}.mode", "persistent").lower()}),
    )


def _source(name: str, *, cdrom: bool) -> DiskSource:
    if cdrom and name.lower() in _EMPTY:
        return DiskSource(kind="none")
    return DiskSource(kind="block" if name.startswith(("/dev/", "/vmfs/devices/")) else "file", name=name)


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with `virtualSSD`, `writeThrough`, `virtualDev` or a limit changed; raises PlanError."""
    config, (domain,) = read_settings(text, _SETTING, folded=True), domains(text)
    if domain.disk(wanted.at.lower()) is None:
        raise no_disk(wanted, (one.target for one in domain.disks))
    if wanted.knob in _WORDS:
        word, default, values = _WORDS[wanted.knob]
        value = wanted.value or default
        if value not in values:
            raise PlanError(f"a .vmx has no {wanted.knob}={value[:40]}: it has {', '.join(values)}")
        return _with_key(config, wanted.at, word, values[value])
    if wanted.knob == "disk.throttle_iops":
        key, limit = _cap(wanted.at), None if wanted.value is None else safe(wanted.value, str.isdecimal)
        after = config.by_key[f"{wanted.at}.filename".lower()]
        return config.with_key(key.lower(), limit, line=f'{key} = "{limit}"', after=after)
    bus = wanted.at.partition(":")[0]  # VMware keeps the controller by the bus, for all disks on it
    if not bus.lower().startswith("scsi"):
        raise PlanError(f"there is no disk {wanted.at[:60]!r} here that hangs on a SCSI controller")
    return _with_key(config, bus, "virtualDev", one_of(wanted, _CONTROLLERS))


def _with_key(config: Settings, target: str, word: str, value: str) -> bytes:
    key = f"{target}.{word}".lower()
    beside = [one for name, one in config.by_key.items() if name.startswith(f"{target}.".lower())]
    if not beside:  # a controller that the file leaves to VMware's own default
        raise PlanError(f"there is no line of {target} here that {word} could follow")
    last = max(beside, key=lambda one: one.line.number)
    return config.with_key(key, value, line=f'{target}.{word} = "{value}"', after=last)


VMX = Language(
    name="vmx",
    title="VMware",
    text="a .vmx",
    knows=lambda text: _KNOWN.search(text) is not None,
    domains=domains,
    turn=turn,
)
"""VMware."""
