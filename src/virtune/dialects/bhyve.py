# SPDX-License-Identifier: Apache-2.0
"""bhyve's language: `bhyve_config(5)` files (`pci.0.2.0.path=...`), their disks read and altered in place (pure)."""

import re
from collections.abc import Mapping

from virtune.dialects.lines import decoded, with_line
from virtune.model.domain import DiskSource, Domain, DomainDisk, Turn
from virtune.model.errors import PlanError, ReadError

_LINE = re.compile(r"([\w.-]+)=(.*)")
_DEVICES = {"virtio-blk": "virtio", "nvme": "nvme", "ahci": "sata", "ahci-hd": "sata"}

REFUSALS: Mapping[str, str] = {
    "disk.aio": "bhyve has no choice of engines: worker threads do the I/O",
    "disk.discard": "bhyve offers discard where the backing file or zvol has it",
    "device.iothread": "bhyve has worker threads for every disk and no word for them",
    "device.num_queues": "bhyve's virtio-blk has one queue",
    "device.queue_size": "bhyve's virtio-blk has a ring of 128, fixed",
    "disk.detect_zeroes": "bhyve has no word for it",
}
"""What bhyve has no words for, and why."""

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
    keys = {found[1]: (number, found[2]) for number, found in _lines(text)}
    disks = []
    for key, (line, device) in keys.items():
        place, _, word = key.rpartition(".")
        if word != "device" or device not in _DEVICES or f"{place}.path" not in keys:
            continue
        flags = frozenset(name for name in ("nocache", "direct") if _true(keys.get(f"{place}.{name}")))
        path = keys[f"{place}.path"][1]
        disks.append(
            DomainDisk(
                target=place,
                line=keys[f"{place}.path"][0] or line,
                bus=_DEVICES[device],
                source=DiskSource(kind="block" if path.startswith("/dev/") else "file", name=path),
                format="raw",
                cache=next(name for name, wanted in CACHES.items() if wanted == flags),
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


def alter_bhyve(text: bytes, *turns: Turn) -> bytes:
    """Return the configuration with `disk.cache` turned, by bhyve's `nocache` and `direct`. Raises PlanError."""
    for turn in turns:
        if turn.knob != "disk.cache" or turn.value == "unsafe":
            because = REFUSALS.get(turn.knob, "bhyve has no word for it")
            raise PlanError(f"{turn.knob} cannot be written into a configuration of bhyve: {because}")
        if f"{turn.at}.path=".encode() not in text:
            raise PlanError(f"the VM has no disk {turn.at!r}")
        wanted = CACHES[turn.value or "writeback"]
        for flag in ("nocache", "direct"):
            text = _with_flag(text, turn.at, flag, on=flag in wanted)
    return text


def _with_flag(text: bytes, place: str, flag: str, *, on: bool) -> bytes:
    last = 0
    for number, found in _lines(text):
        if found[1] == f"{place}.{flag}":
            return (
                text if _true((number, found[2])) == on else with_line(text, number, f"{found[1]}={str(on).lower()}")
            )
        if found[1] == f"{place}.path":
            last = number
    if not on:
        return text
    lines = text.splitlines(keepends=True)
    if not lines[last - 1].endswith(b"\n"):
        lines[last - 1] += b"\n"
    lines.insert(last, f"{place}.{flag}=true\n".encode())
    return b"".join(lines)


def _lines(text: bytes) -> list[tuple[int, re.Match[str]]]:
    numbered = enumerate(decoded(text).split("\n"), 1)
    return [(number, found) for number, line in numbered if (found := _LINE.fullmatch(line.strip()))]


def _true(value: tuple[int, str] | None) -> bool:
    return value is not None and value[1].lower() in ("true", "on", "yes", "1")
