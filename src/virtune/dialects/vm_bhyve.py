# SPDX-License-Identifier: Apache-2.0
"""vm-bhyve's configuration of a VM: lines of `disk0_opts="nocache"`, read and altered in place (pure).

Source: vm-bhyve, sample-templates/config.sample.
"""

import re

from virtune.dialects.bhyve import CACHES, flags_of
from virtune.dialects.bhyve import REFUSALS as BHYVE_REFUSALS
from virtune.dialects.language import Language, no_disk
from virtune.dialects.text.lines import (
    Setting,
    options_of,
    read_page,
    settings_of,
    with_line,
    with_option,
    with_value,
    without_option,
)
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import ReadError

_SETTING = re.compile(r"(?P<key>[a-z][a-z0-9_]*)=\"?(?P<value>[^\"#]*)\"?")
_KNOWN = re.compile(rb"^disk\d+_(?:type|name)=", re.MULTILINE)
_BUSES = {
    "virtio-blk": "virtio",
    "ahci-hd": "sata",
    "ahci-cd": "sata",
    "ahci": "sata",
    "nvme": "nvme",
    "virtio-scsi": "scsi",
}


def knows(text: bytes) -> bool:
    """Whether a text has a disk as vm-bhyve writes one."""
    return _KNOWN.search(text) is not None


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a text; raises ReadError."""
    settings = _read(text)
    names = _names(settings)
    if not names:
        raise ReadError("it has no disk as vm-bhyve writes one (`disk0_name=`)")
    cpus = settings["cpu"].value if "cpu" in settings else "1"
    first = min(one.line.number for one in settings.values())
    return (
        Domain(
            name="",
            uuid=settings["uuid"].value or None if "uuid" in settings else None,
            kind="bhyve",
            line=first,
            vcpus=int(cpus) if cpus.isascii() and cpus.isdecimal() and len(cpus) < 6 else 1,
            disks=tuple(_disk(settings, name) for name in names),
            language="vm-bhyve",
        ),
    )


def turn(text: bytes, wanted: SettingChange, _domain: str = "") -> bytes:
    """Return the text with a disk's setting changed, by flags of its options; raises PlanError."""
    page, settings = read_page(text), _read(text)
    name = settings.get(f"{wanted.at}_name")
    if name is None:
        raise no_disk(wanted, _names(settings))
    found = settings.get(f"{wanted.at}_opts")
    options = found.value if found is not None else ""
    for flag, on in flags_of(wanted).items():
        there = any(one.name == flag for one in options_of(options))
        if on and not there:
            options = with_option(options, flag, None, flag=True)
        elif there and not on:
            options = without_option(options, flag)
    if found is not None:
        return with_value(page, found, options)
    return with_line(page, name, f'{wanted.at}_opts="{options}"') if options else text


def _names(settings: dict[str, Setting]) -> list[str]:
    return sorted({found[1] for key in settings if (found := re.fullmatch(r"(disk\d{1,3})_name", key))})


def _disk(settings: dict[str, Setting], name: str) -> DomainDisk:
    def value(word: str) -> str:
        return settings[f"{name}_{word}"].value if f"{name}_{word}" in settings else ""

    options = frozenset(one.name for one in options_of(value("opts")))
    flags = options & {"nocache", "direct"}
    block = value("dev") in ("zvol", "sparse-zvol") or value("name").startswith("/dev/")
    return DomainDisk(
        target=name,
        line=settings[f"{name}_name"].line.number,
        device="cdrom" if value("type") == "ahci-cd" else "disk",
        bus=_BUSES.get(value("type")),
        source=DiskSource(kind="block" if block else "file", name=value("name")),
        format="raw",
        cache=next(cache for cache, wanted in CACHES.items() if wanted == flags),
        discard="ignore" if "nodelete" in options else None,
        read_only="ro" in options,
        options=flags | {f"ioslots={one.value}" for one in options_of(value("opts")) if one.name == "ioslots"},
    )


def _read(text: bytes) -> dict[str, Setting]:
    return {one.key: one for one in settings_of(read_page(text), _SETTING)}


VM_BHYVE = Language(
    name="vm-bhyve",
    title="vm-bhyve",
    text="a vm-bhyve configuration",
    knows=knows,
    domains=domains,
    turn=turn,
    says={
        "disk.cache": 'disk0_opts="nocache,direct" (O_DIRECT, O_SYNC)',
        "disk.discard": 'disk0_opts="nodelete" (ignore), without it unmap',
    },
    refusals={**BHYVE_REFUSALS, "device.bus": "diskN_type= changes it; the guest must have the driver first"},
)
"""vm-bhyve."""
