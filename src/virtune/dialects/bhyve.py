# SPDX-License-Identifier: Apache-2.0
"""bhyve's language: `bhyve_config(5)` files (`pci.0.2.0.path=...`), their disks read and altered in place (pure)."""

import re
from collections.abc import Mapping

from virtune.dialects.language import no_disk
from virtune.dialects.text.lines import Page, Setting, read_page, settings_of, with_line, with_value, without
from virtune.model.domain import DiskSource, Domain, DomainDisk, SettingChange
from virtune.model.errors import PlanError, ReadError

_SETTING = re.compile(r"\s*(?P<key>[\w.-]+)=(?P<value>(?:.*\S)?)\s*$")
_DEVICES = {"virtio-blk": "virtio", "nvme": "nvme", "ahci": "sata", "ahci-hd": "sata", "ahci-cd": "sata"}
_PLACE = re.compile(r"(?P<device>pci\.\d+\.\d+\.\d+)(?P<port>\.port\.\d+)?\.path")
"""Where a disk's file is written: at the device, or at a port of an AHCI controller."""


REFUSALS: Mapping[str, str] = {
    "disk.aio": "bhyve has no choice of engines: worker threads do the I/O",
    "device.iothread": "bhyve has worker threads for every disk and no word for them",
    "device.num_queues": "bhyve's virtio-blk has one queue",
    "device.queue_size": "bhyve's virtio-blk has a ring of 128, fixed",
    "disk.detect_zeroes": "bhyve has no word for it",
}
"""The settings that bhyve lacks, and why."""

CACHES: Mapping[str, frozenset[str]] = {
    "writeback": frozenset(),
    "none": frozenset({"nocache"}),
    "writethrough": frozenset({"direct"}),
    "directsync": frozenset({"nocache", "direct"}),
}
"""QEMU's words for what bhyve's two do: `nocache` is O_DIRECT, `direct` is O_SYNC."""


def is_bhyve(text: bytes) -> bool:
    """Whether a text has devices as bhyve_config(5) writes them."""
    return re.search(rb"^pci\.\d+\.\d+\.\d+\.device=", text, re.MULTILINE) is not None


def read_bhyve(text: bytes) -> Domain:
    """Read a VM's configuration; raises ReadError."""
    keys = {key: (one.line.number, one.value) for key, one in _read(text)[1].items()}
    disks = []
    for key, (line, path) in keys.items():
        found = _PLACE.fullmatch(key)
        device = keys.get(f"{found['device']}.device", (0, ""))[1] if found is not None else ""
        if device not in _DEVICES:
            continue
        place = key.removesuffix(".path")
        kind = keys.get(f"{place}.type", (0, device.partition("-")[2]))[1]
        flags = frozenset(name for name in ("nocache", "direct") if _true(keys.get(f"{place}.{name}")))
        disks.append(
            DomainDisk(
                target=place,
                line=line,
                device="cdrom" if kind == "cd" else "disk",
                bus=_DEVICES[device],
                source=DiskSource(kind="block" if path.startswith("/dev/") else "file", name=path),
                format="raw",
                cache=next(name for name, wanted in CACHES.items() if wanted == flags),
                discard="ignore" if _true(keys.get(f"{place}.nodelete")) else None,
                read_only=_true(keys.get(f"{place}.ro")),
                options=flags | ({f"ioslots={keys[f'{place}.ioslots'][1]}"} if f"{place}.ioslots" in keys else set()),
            )
        )
    if not disks and not is_bhyve(text):
        raise ReadError("it is no configuration of bhyve")
    cpus = keys.get("cpus", (0, "1"))[1]
    return Domain(
        name=keys.get("name", (0, ""))[1], uuid=keys.get("uuid", (0, None))[1], kind="bhyve", line=1,
        vcpus=int(cpus) if cpus.isdecimal() and len(cpus) < 6 else 1, disks=tuple(disks), language="bhyve",
    )  # fmt: skip


def alter_bhyve(text: bytes, *turns: SettingChange) -> bytes:
    """Return the configuration with settings of disks changed: bhyve's flags, the NVMe's `maxq`. Raises PlanError."""
    for turn in turns:
        if f"{turn.at}.path" not in _read(text)[1]:
            raise no_disk(turn, (one.target for one in read_bhyve(text).disks))
        if turn.knob == "nvme.max_ioqpairs":
            text = _with_queues(text, turn)
            continue
        for flag, on in flags_of(turn).items():
            text = _with_flag(text, turn.at, flag, on=on)
    return text


def flags_of(turn: SettingChange) -> dict[str, bool]:
    """Return the flags of a block device that a turn sets and clears; raises PlanError for what bhyve has not."""
    if turn.knob == "disk.discard" and turn.value in ("unmap", "ignore", None):
        return {"nodelete": turn.value == "ignore"}
    wanted = CACHES.get(turn.value or "writeback")
    if turn.knob != "disk.cache" or wanted is None:
        raise PlanError(f"bhyve has no {turn.knob}={(turn.value or '')[:40]}")
    return {flag: flag in wanted for flag in ("nocache", "direct")}


def _with_queues(text: bytes, turn: SettingChange) -> bytes:
    device = _read(text)[1].get(f"{turn.at}.device")
    if device is None or device.value != "nvme":
        raise PlanError(f"{turn.at} is no NVMe disk, and only those have maxq")
    if turn.value is not None and not re.fullmatch(r"[1-9]\d{0,3}", turn.value):
        raise PlanError(f"{turn.value[:40]!r} is no number of queues")
    return _with_value(text, turn.at, "maxq", turn.value)


def _with_flag(text: bytes, place: str, flag: str, *, on: bool) -> bytes:
    now = _read(text)[1].get(f"{place}.{flag}")
    if _true((now.line.number, now.value) if now is not None else None) == on:
        return text
    return _with_value(text, place, flag, str(on).lower())


def _with_value(text: bytes, place: str, word: str, value: str | None) -> bytes:
    """Set one key of a device in its line, or in a new one after its path; None takes the line away."""
    page, settings = _read(text)
    found = settings.get(f"{place}.{word}")
    if value is None:
        return text if found is None else without(page, found)
    if found is not None:
        return with_value(page, found, value)
    return with_line(page, settings[f"{place}.path"], f"{place}.{word}={value}")


def _read(text: bytes) -> tuple[Page, dict[str, Setting]]:
    page = read_page(text)
    return page, {one.key: one for one in settings_of(page, _SETTING)}


def _true(value: tuple[int, str] | None) -> bool:
    return value is not None and value[1].lower() in ("true", "on", "yes", "1")
