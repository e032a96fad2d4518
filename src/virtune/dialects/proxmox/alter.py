# SPDX-License-Identifier: Apache-2.0
"""Change a setting in Proxmox VE's configuration of a VM, and write the same change as `qm set` lines (pure).

Where a disk's setting waits in `[PENDING]`, that is the one which is altered, since it is what will start.
"""

import re
import shlex
from collections.abc import Mapping

from virtune.dialects.language import Language, no_disk, one_of
from virtune.dialects.proxmox.domain import LANGUAGE, MIB, SINGLE, Config, is_disk, live, matches, read, read_config
from virtune.dialects.text.lines import (
    Setting,
    option,
    options_of,
    safe,
    with_line,
    with_option,
    with_value,
    without,
    without_option,
)
from virtune.model.domain import SettingChange
from virtune.model.errors import PlanError

_ARGS = "Proxmox has it only as QEMU's own words in `args:`, which virtune does not write"
_ERRORS = {"report": "report", "ignore": "ignore", "stop": "stop"}
_WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "disk.aio": ("aio", {"threads": "threads", "native": "native", "io_uring": "io_uring"}),
    "disk.cache": ("cache", {c: c for c in ("none", "writethrough", "writeback", "unsafe", "directsync")}),
    "disk.discard": ("discard", {"unmap": "on", "ignore": "ignore"}),
    "device.werror": ("werror", {**_ERRORS, "enospc": "enospc"}),
    "device.rerror": ("rerror", _ERRORS),
}
"""Options of a disk that are one of a few words."""

_LIMIT_KNOBS: Mapping[str, str] = {
    "disk.throttle_iops": "iops",
    "disk.throttle_iops_read": "iops_rd",
    "disk.throttle_iops_write": "iops_wr",
    "disk.throttle_bps": "bps",
    "disk.throttle_bps_read": "bps_rd",
    "disk.throttle_bps_write": "bps_wr",
}
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
    return with_value(config.page, setting, _disk(config, key, setting.value, wanted))


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


def _disk(config: Config, key: str, value: str, wanted: SettingChange) -> str:
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


def commands(before: bytes, after: bytes, name: str) -> tuple[str, ...]:
    """Return the change between two texts as `qm set` lines; `name` is the VMID, or what the file is called.

    A number that is only part of a name (a date) is no VMID: the line would change a VM that is not this one.
    """
    vmid = name if re.fullmatch(r"[1-9]\d{2,8}", name, re.ASCII) else "VMID"
    old, new = read_config(before).next_start, read_config(after).next_start
    lines = [_qm(vmid, new[key]) for key in new if _said(old.get(key)) != _said(new[key])]
    gone = [f"qm set {vmid} --delete {key}" for key in old if key not in new]
    return (*lines, *gone)


def _said(setting: Setting | None) -> str | None:
    return setting.value if setting is not None else None


def _qm(vmid: str, setting: Setting) -> str:
    return f"qm set {vmid} --{setting.key} {shlex.quote(setting.value)}"


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
    says={
        **{knob: f"{name}={'|'.join(words.values())}" for knob, (name, words) in _WORDS.items()},
        **{knob: f"{'m' if 'bps' in name else ''}{name}=" for knob, name in _LIMIT_KNOBS.items()},
        "disk.detect_zeroes": "detect_zeroes=0|1 (it unmaps where discard=on)",
        "device.iothread": f"iothread=1 (virtio, or scsi with scsihw: {SINGLE}); a thread for each disk",
        "device.rotation_rate": "ssd=0|1 (not for virtio)",
        "device.scsi_controller": "scsihw: " + " | ".join(_CONTROLLERS.values()),
        "scsi.num_queues": f"queues= (scsi with scsihw: {SINGLE})",
    },
    refusals={
        "device.bus": "the bus is the disk's name: detach it and attach it as virtioN or scsiN, and update `boot:`",
        "iothread.count": "there is one for each disk that asks for it (iothread=1), so none is counted",
        "iothread.pin": "`affinity:` pins the whole VM, not one thread",
        "vcpu.pin": "`affinity:` pins the whole VM, not one thread",
        "emulator.pin": "`affinity:` pins the whole VM, not one thread",
        "device.scsi_passthrough": "scsiblock=1 may lead to I/O errors, as Proxmox itself warns; write it by hand",
        "disk.discard_no_unref": "Proxmox sets it by itself for snapshots as volume chains",
        **dict.fromkeys(
            ("disk.throttle_iops_max", "disk.throttle_bps_max", "disk.throttle_iops_max_length",
             "disk.throttle_bps_max_length"),
            "bursts (iops_max=, mbps_max= and their lengths) are read, and left as they are",
        ),
        **dict.fromkeys(
            ("device.queue_size", "device.packed", "device.num_queues", "device.iothread_vq_mapping",
             "iothread.poll_max_ns", "scsi.virtqueue_size", "device.physical_block_size", "disk.cache_size",
             "disk.l2_cache_size", "cpu.kvm_hint_dedicated", "cpu.kvm_poll_control"),
            _ARGS,
        ),
    },
)  # fmt: skip
"""Proxmox VE."""
