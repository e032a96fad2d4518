# SPDX-License-Identifier: Apache-2.0
"""VMware's language: a VM's `.vmx`, lines of `key = "value"`, its disks read and altered in place (pure)."""

import re
from collections.abc import Mapping

from virtune.dialects.language import no_disk, one_of
from virtune.dialects.text.lines import Page, Setting, read_page, settings_of, with_line, with_value
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

_SETTING = re.compile(r'\s*(?P<key>[\w:.-]+)\s*=\s*"(?P<value>[^"]*)"\s*$')
_KNOWN = re.compile(rb'(?im)^[ \t]*(\.encoding|config\.version|virtualHW\.version)[ \t]*=[ \t]*"')
_DISK = re.compile(r"(?P<bus>scsi|sata|ide|nvme)\d+:\d+", re.IGNORECASE)

_EMPTY = ("", "emptybackingstring", "auto detect")
"""What stands for a file in a CD-ROM drive that has none, or takes whatever the host's has."""

CONTROLLERS: Mapping[str, str] = {"pvscsi": "pvscsi", "mptsas1068": "lsisas1068"}
"""The controllers that QEMU has as well, by VMware's names for them."""

WORDS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "device.rotation_rate": ("virtualSSD", "0", {"0": "0", "1": "1"}),
    "disk.cache": ("writeThrough", "writeback", {"writeback": "FALSE", "writethrough": "TRUE"}),
}
"""Knobs of a disk: the key, the default, and VMware's word for each value. libvirt reads writeThrough likewise."""

REFUSALS: Mapping[str, str] = {
    "disk.aio": "VMware has no word for its engine",
    "disk.discard": "VMware has no word for it on a hosted disk",
    "device.iothread": "VMware has no IOThreads to give",
    "device.num_queues": "VMware has no word for it",
    "device.bus": "the bus is the disk's name (scsi0:0, nvme0:0): move it by hand, once the guest has the driver",
}
"""The settings that a .vmx lacks, and why."""


def is_vmx(text: bytes) -> bool:
    """Whether a text begins as VMware's files do; the case of keys does not matter."""
    return _KNOWN.search(text) is not None


def read_vmx(text: bytes) -> Domain:
    """Read a VM's configuration; raises ReadError."""
    keys = {key: (one.line.number, one.value) for key, one in _read(text)[1].items()}
    if "config.version" not in keys and "virtualhw.version" not in keys:
        raise ReadError("it is no .vmx: it has neither config.version nor virtualHW.version")
    disks = []
    for key, (line, value) in keys.items():
        target, _, word = key.rpartition(".")
        found = _DISK.fullmatch(target)
        if (
            word == "filename"
            and found is not None
            and keys.get(f"{target}.present", (0, "TRUE"))[1].upper() == "TRUE"
        ):
            mode = keys.get(f"{target}.mode", (0, "persistent"))
            kind = keys.get(f"{target}.devicetype", (0, "disk"))[1].lower()
            disks.append(
                DomainDisk(
                    target=target,
                    line=mode[0] or line,
                    device="cdrom" if "cdrom" in kind else "lun" if kind == "scsi-passthru" else "disk",
                    bus=found["bus"].lower(),
                    source=_source(value, cdrom="cdrom" in kind),
                    driver=keys.get(f"{target.partition(':')[0]}.virtualdev", (0, ""))[1].lower() or None,
                    format="vmdk",
                    cache="writethrough" if _through(keys.get(f"{target}.writethrough")) else "writeback",
                    rotation_rate=1 if keys.get(f"{target}.virtualssd", (0, ""))[1] == "1" else None,
                    options=frozenset({mode[1].lower()}),
                )
            )
    cpus = keys.get("numvcpus", (0, "1"))[1]
    return Domain(
        name=keys.get("displayname", (0, ""))[1],
        uuid=None,
        kind="vmware",
        line=1,
        vcpus=int(cpus) if cpus.isdecimal() and len(cpus) < 6 else 1,
        machine=keys.get("virtualhw.version", (0, ""))[1] or None,
        disks=tuple(disks),
        written=frozenset({"mainmem.usenamedfile"}) if "mainmem.usenamedfile" in keys else frozenset(),
        language="vmx",
    )


def _source(name: str, *, cdrom: bool) -> DiskSource:
    if cdrom and name.lower() in _EMPTY:
        return DiskSource(kind="none")
    return DiskSource(kind="block" if name.startswith(("/dev/", "/vmfs/devices/")) else "file", name=name)


def alter_vmx(text: bytes, *turns: SettingChange) -> bytes:
    """Return the configuration with `virtualSSD`, `writeThrough` or `virtualDev` changed. Raises PlanError."""
    for turn in turns:
        there = [one.target for one in read_vmx(text).disks]
        if turn.at.lower() not in there:
            raise no_disk(turn, there)
        if turn.knob == "device.scsi_controller":
            text = _with_controller(text, turn)
            continue
        if turn.knob not in WORDS:
            because = REFUSALS.get(turn.knob, "a .vmx has no word for it")
            raise PlanError(f"{turn.knob} cannot be written into a .vmx: {because}")
        word, default, values = WORDS[turn.knob]
        value = turn.value or default
        if value not in values:
            raise PlanError(f"a .vmx has no {turn.knob}={value[:40]}: it has {', '.join(values)}")
        text = _with_key(text, turn.at, word, values[value])
    return text


def _with_controller(text: bytes, turn: SettingChange) -> bytes:
    """The controller of a disk: VMware keeps it by the bus, for all disks on it."""
    bus, _, number = turn.at.partition(":")
    if not re.fullmatch(r"scsi\d+", bus, re.IGNORECASE) or not number:
        raise PlanError(f"there is no disk {turn.at[:60]!r} here that hangs on a SCSI controller")
    return _with_key(text, bus, "virtualDev", one_of(turn, CONTROLLERS))


def _with_key(text: bytes, target: str, word: str, value: str) -> bytes:
    page, settings = _read(text)
    found = settings.get(f"{target}.{word}".lower())
    if found is not None:
        return with_value(page, found, value)
    beside = [one for key, one in settings.items() if key.startswith(f"{target}.".lower())]
    if not beside:  # a controller that the file leaves to VMware's own default
        raise PlanError(f"there is no line of {target} here that {word} could follow")
    return with_line(page, max(beside, key=lambda one: one.line.number), f'{target}.{word} = "{value}"')


def _through(setting: tuple[int, str] | None) -> bool:
    return setting is not None and setting[1].upper() == "TRUE"


def _read(text: bytes) -> tuple[Page, dict[str, Setting]]:
    page = read_page(text)
    return page, {one.key.lower(): one for one in settings_of(page, _SETTING)}
