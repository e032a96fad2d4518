#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for `qm set`, for machines that are no Proxmox node: NOT the real one, and never run beside it.

It follows the source of qemu-server 9.2.6 (2026-08-17): PVE/API2/Qemu.pm (update_vm_api: lock, digest, pending,
delete), PVE/QemuServer.pm (parse_vm_config, write_vm_config, vmconfig_hotplug_pending, vmconfig_apply_pending,
vmconfig_update_disk), and PVE/AbstractConfig.pm of pve-guest-common (cleanup_pending). It keeps the real file's
format and its order, writes into [PENDING] what a running VM does not take, and refuses what the real one refuses.

QM_DIR is where the configurations lie, and a file `VMID.running` beside one says that its VM runs. QM_WRITES_ELSE has
it change a value that it is given, as a Proxmox of another version might.
"""

import hashlib
import os
import re
import sys
from pathlib import Path

DRIVE = re.compile(r"(scsi|virtio|ide|sata)\d+")
KNOWN = re.compile(r"(scsi|virtio|ide|sata|net|unused)\d+|name|scsihw|memory|cores|sockets|machine|ostype|boot|agent")
NOT_HOTPLUGGED = ("aio", "discard", "iothread", "queues", "product", "cache", "ssd", "vendor", "ro")
FAST = ("name",)


def die(why: str) -> None:
    print(why, file=sys.stderr)
    sys.exit(255)


def parse(raw: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The running settings, the pending ones, and the other sections as they are."""
    head, *rest = re.split(r"(?m)^(?=\[)", raw)
    running, pending, others = settings(head), {}, []
    for section in rest:
        if section.startswith("[PENDING]"):
            pending = settings(section)
        else:
            others.append(section.rstrip("\n"))
    return running, pending, others


def settings(text: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and line[0] not in "#[")
    found = {key.strip(): value.strip() for key, value in pairs}
    notes = [line for line in text.splitlines() if line.startswith("#")]
    return found | ({"description": "\n".join(notes)} if notes else {})


def written(running: dict[str, str], pending: dict[str, str], others: list[str]) -> str:
    def lines(of: dict[str, str]) -> str:
        notes = f"{of['description']}\n" if "description" in of else ""
        return notes + "".join(f"{key}: {of[key]}\n" for key in sorted(of) if key != "description")

    sections = ([f"[PENDING]\n{lines(pending)}"] if pending else []) + [f"{one}\n" for one in others]
    return "\n".join([lines(running), *sections])


def options(value: str) -> dict[str, str]:
    first, *rest = value.split(",")
    return {"file": first.removeprefix("file=")} | dict(one.split("=", 1) for one in rest)


def printed(drive: dict[str, str]) -> str:
    return ",".join([drive["file"], *(f"{key}={drive[key]}" for key in sorted(drive) if key != "file")])


def main(vmid: str, words: list[str]) -> None:
    path = Path(os.environ["QM_DIR"]) / f"{vmid}.conf"
    if not path.exists():
        die(f"Configuration file 'nodes/pve/qemu-server/{vmid}.conf' does not exist")
    asked = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True))
    digest, delete = asked.pop("digest", None), [key for key in asked.pop("delete", "").split(",") if key]
    for key in (*asked, *delete):
        if not KNOWN.fullmatch(key):
            die(f"Unknown option: {key}\n400 unable to parse option")
    if not (asked or delete):
        die("no options specified")
    raw = path.read_bytes()
    if digest and digest != hashlib.sha1(raw, usedforsecurity=False).hexdigest():
        die("checksum mismatch (file change by other user?)")
    running, pending, others = parse(raw.decode())
    if "lock" in running:
        die(f"VM is locked ({running['lock']})")
    change(running, pending, asked, delete, runs=path.with_suffix(".running").exists())
    new = path.with_suffix(".new")
    new.write_text(written(running, pending, others))
    new.rename(path)
    print(f"update VM {vmid}: {' '.join(words)}")


def change(
    running: dict[str, str], pending: dict[str, str], asked: dict[str, str], delete: list[str], *, runs: bool
) -> None:
    """Write what is asked for into what is pending, and from there into what runs, as far as that takes it."""
    gone = ({*pending.pop("delete", "").split(",")} | {*delete}) - {"", *asked}
    for key in delete:
        pending.pop(key, None)
    for key, value in asked.items():
        if os.environ.get("QM_WRITES_ELSE") and DRIVE.fullmatch(key):
            value = value.replace("cache=none", "cache=writeback")  # noqa: PLW2901
        pending[key] = printed(options(value)) if DRIVE.fullmatch(key) else value
    for key, value in [*pending.items()]:
        if running.get(key) == value:
            del pending[key]
        elif not runs or plugged(key, running.get(key), value):
            running[key] = pending.pop(key)
    gone &= running.keys()
    for key in gone if not runs else ():
        del running[key]
    if gone and runs:
        pending["delete"] = ",".join(sorted(gone))


def plugged(key: str, old: str | None, new: str) -> bool:
    """Whether a running VM takes it at once: limits of a disk, and names."""
    if key in FAST:
        return True
    if not DRIVE.fullmatch(key) or old is None:
        return False
    was, now = options(old), options(new)
    if was["file"] != now["file"]:
        die("this stand-in unplugs no disk")
    return all(was.get(one) == now.get(one) for one in NOT_HOTPLUGGED)


if __name__ == "__main__":
    if sys.argv[1] != "set":
        die(f"unknown command 'qm {sys.argv[1]}'")
    main(sys.argv[2], sys.argv[3:])
