# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line, as `/proc/PID/cmdline` or a script has it, read into a Domain (pure).

`-drive`, `-blockdev` and `-device`, in JSON and as `key=value`. It is only read: a process keeps the line that it was
started with, and what starts it is another's text.
"""

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.dialects.language import Language
from virtune.dialects.text.lines import BYTES_MAX
from virtune.model.domain import Controller, DiskSource, Domain, DomainDisk, DomainThread, SettingChange
from virtune.model.errors import PlanError, ReadError
from virtune.model.knobs import KNOBS

Options = Mapping[str, str]

_KNOWN = re.compile(rb"\s*(?:exec\s+)?(?:[^\s\0]*/)?(?:qemu-system-\w+|qemu-kvm|kvm)[\s\0]")
_DEVICES = {"virtio-blk": "virtio", "scsi-hd": "scsi", "scsi-block": "scsi", "scsi-cd": "scsi", "ide-hd": "ide",
            "ide-cd": "ide", "nvme": "nvme", "nvme-ns": "nvme", "usb-storage": "usb"}  # fmt: skip
_FLAT_DRIVERS = ("file", "host_device", "nbd", "rbd", "iscsi", "null-co", "nvme")
_CACHES = {(True, False): "none", (False, False): "writeback", (False, True): "unsafe", (True, True): "unsafe"}
_THROUGH = {"none": "directsync", "writeback": "writethrough"}
_ARGUMENTS = ("drive", "blockdev", "device", "object", "smp", "name", "uuid", "machine", "M", "accel", "hda")
_LIMITS = {"iops-total": "total_iops_sec", "iops-read": "read_iops_sec", "iops-write": "write_iops_sec",
           "bps-total": "total_bytes_sec", "bps-read": "read_bytes_sec", "bps-write": "write_bytes_sec"}  # fmt: skip
_CHAIN_MAX = 32


def knows(text: bytes) -> bool:
    """Whether a text begins as a command line of QEMU's system emulator does."""
    return _KNOWN.match(text[:4096]) is not None


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VM of a command line; raises ReadError."""
    if len(text) > BYTES_MAX or not knows(text):
        raise ReadError("it is no command line of QEMU")
    line = text.decode(errors="replace")
    try:
        words = line.strip("\0").split("\0") if "\0" in line else shlex.split(line, comments=True)
    except ValueError as error:
        raise ReadError(f"it is no command line: {str(error).lower()}") from None
    return (read_words(words),)


def read_words(words: Sequence[str]) -> Domain:
    """Read the words of a command line."""
    given = list(_given(words))
    all_of = {flag: [options for name, options in given if name == flag] for flag in _ARGUMENTS}
    threads = [one for one in all_of["object"] if one.get("qom-type") == "iothread"]
    numbers = {one.get("id", ""): number for number, one in enumerate(threads, 1)}
    controllers = {
        one.get("id", ""): Controller(
            kind="scsi", index=index, line=1, model=one["driver"],
            queues=_number(one.get("num_queues")), iothread=numbers.get(one.get("iothread", "")),
        )
        for index, one in enumerate(o for o in all_of["device"] if o.get("driver", "").startswith("virtio-scsi"))
    }  # fmt: skip
    name, smp = _first(all_of["name"]), _first(all_of["smp"])
    machine = _first(all_of["machine"] or all_of["M"])
    accelerator = _first(all_of["accel"]).get("accel") or machine.get("accel", "")
    return Domain(
        name=name.get("guest", ""),
        uuid=_first(all_of["uuid"]).get("uuid"),
        kind="kvm" if accelerator == "kvm" or "-enable-kvm" in words else "qemu",
        line=1,
        vcpus=_number(smp.get("cpus")) or 1,
        machine=machine.get("type"),
        threads=tuple(
            DomainThread(number=numbers[one.get("id", "")], poll_max_ns=_number(one.get("poll-max-ns")))
            for one in threads
        ),
        threads_line=1,
        host_devices=sum(one.get("driver") == "vfio-pci" for one in all_of["device"]),
        disks=tuple(_disks(all_of, numbers, controllers)),
        controllers=tuple(controllers.values()),
        language="qemu",
    )


def _given(words: Sequence[str]) -> Iterator[tuple[str, Options]]:
    """The options with an argument that matter, each as keys and values."""
    first = {"device": "driver", "object": "qom-type", "smp": "cpus", "name": "guest", "uuid": "uuid",
             "machine": "type", "M": "type", "accel": "accel", "hda": "file"}  # fmt: skip
    for flag, argument in itertools.pairwise(words):
        name = flag.removeprefix("-").removeprefix("-")
        if flag.startswith("-") and name in _ARGUMENTS:
            yield name, _options(argument, first.get(name, ""))


def _options(text: str, first: str) -> Options:
    """Read `a=b,c=d` with `,,` for a comma, or JSON with its parts named by dots."""
    if text.startswith("{"):
        try:
            return dict(_flat("", json.loads(text)))
        except (ValueError, RecursionError):
            return {}
    found = {}
    for place, part in enumerate(re.split(r"(?<!,),(?!,)", text)):
        key, equals, value = part.replace(",,", ",").partition("=")
        if place == 0 and first and (not equals or first == "file"):
            found[first] = part.replace(",,", ",")
        else:
            found[key] = value if equals else "on"
    return found


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _disks(
    given: Mapping[str, list[Options]], numbers: Mapping[str, int], controllers: Mapping[str, Controller]
) -> Iterator[DomainDisk]:
    nodes = {one["node-name"]: one for one in given["blockdev"] if "node-name" in one}
    drives = {one.get("id", f"drive{number}"): one for number, one in enumerate(given["drive"])}
    for number, one in enumerate(given["device"]):
        driver = one.get("driver", "")
        kind = next((k for k in _DEVICES if driver == k or driver.startswith("virtio-blk-")), None)
        kind = "virtio-blk" if driver.startswith("virtio-blk") else kind
        if kind is None or "drive" not in one:
            continue
        opened = _opened(nodes, one["drive"]) if one["drive"] in nodes else _drive(drives.pop(one["drive"], {}))
        yield _device(one, kind, opened, numbers, controllers, target=one.get("id") or f"device{number}")
    for identity, one in drives.items():
        if one.get("if", "ide") not in ("none", "pflash"):
            bare = {"driver": "virtio-blk" if one.get("if") == "virtio" else "ide-hd"}
            kind = bare["driver"]
            yield _device(bare, kind, _drive(one), numbers, controllers, target=identity)
    for one in given["hda"]:
        yield _device({}, "ide-hd", _drive(one), numbers, controllers, target="hda")


def _opened(nodes: Mapping[str, Options], name: str) -> Options:
    """Collect what the nodes of a disk say, from the device's down to the one that opens the file."""
    found: dict[str, str] = {}
    at: Options | None = nodes.get(name)
    for _ in range(_CHAIN_MAX):
        if at is None:
            break
        inner = {key.removeprefix("file."): value for key, value in at.items() if key.startswith("file.")}
        driver = at.get("driver", "")
        found.setdefault("format", "raw" if driver in _FLAT_DRIVERS else driver)
        for key in ("aio", "cache.direct", "cache.no-flush", "discard", "detect-zeroes", "read-only", "filename"):
            if key in at:
                found.setdefault(key, at[key])
        if driver in _FLAT_DRIVERS:
            found["protocol"] = driver
        at = inner or nodes.get(at.get("file", ""))
    return found


def _drive(drive: Options) -> Options:
    """What a -drive says, in the words of nodes."""
    word = drive.get("cache", "writeback")
    direct, no_flush = word in ("none", "off", "directsync"), word == "unsafe"
    found = {
        "format": drive.get("format") or drive.get("driver", ""),
        "filename": drive.get("file") or drive.get("filename", ""),
        "protocol": "file",
        "cache.direct": drive.get("cache.direct", "on" if direct else "off"),
        "cache.no-flush": drive.get("cache.no-flush", "on" if no_flush else "off"),
        "read-only": drive.get("readonly") or drive.get("read-only", "off"),
        "through": "on" if word in ("writethrough", "directsync") else "off",
        "media": drive.get("media", "disk"),
        "snapshot": drive.get("snapshot", "off"),
    }
    kept = {key: drive[key] for key in ("aio", "discard", "detect-zeroes") if key in drive}
    limits = {key: value for key, value in drive.items() if key.startswith("throttling.")}
    return found | kept | limits


def _device(
    one: Options, kind: str, opened: Options, numbers: Mapping[str, int], controllers: Mapping[str, Controller],
    *, target: str,
) -> DomainDisk:  # fmt: skip
    on = (opened.get("cache.direct") == "on", opened.get("cache.no-flush") == "on")
    cache = _CACHES[on]
    if one.get("write-cache", opened.get("through") == "on" and "off") == "off":
        cache = _THROUGH.get(cache, cache)
    limits = ((_LIMITS.get(key.removeprefix("throttling.")), _number(value)) for key, value in opened.items())
    filename, protocol = opened.get("filename", ""), opened.get("protocol", "")
    device = filename.startswith("/dev/") or protocol == "host_device"
    source = DiskSource(kind="block" if device else "file", name=filename)
    if protocol not in ("file", "host_device", "") or "://" in filename:
        source = DiskSource(kind="network", name=filename, protocol=protocol)
    controller = controllers.get(one.get("bus", "").partition(".")[0])
    return DomainDisk(
        target=target,
        line=1,
        device="cdrom" if kind.endswith("-cd") or opened.get("media") == "cdrom" else "disk",
        bus=_DEVICES[kind],
        source=source if filename or source.kind == "network" else DiskSource(kind="none"),
        driver="qemu",
        format=opened.get("format") or None,
        cache=cache,
        io=opened.get("aio"),
        discard={"on": "unmap", "off": "ignore"}.get(opened.get("discard", ""), opened.get("discard")),
        detect_zeroes=opened.get("detect-zeroes"),
        iothread=numbers.get(one.get("iothread", "")),
        queues=_number(one.get("num-queues")),
        queue_size=_number(one.get("queue-size")),
        limits=tuple((name, value) for name, value in limits if name is not None and value is not None),
        controller=controller.index if controller is not None else 0,
        rotation_rate=_number(one.get("rotation_rate")),
        read_only=opened.get("read-only") == "on",
        transient=opened.get("snapshot") == "on",
    )


def _first(options: Sequence[Options]) -> Options:
    return options[-1] if options else {}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _no_turn(_text: bytes, turn: SettingChange, _domain: str) -> bytes:
    raise PlanError(f"{turn.knob} is not turned on a command line")


QEMU = Language(
    name="qemu",
    title="QEMU's command line",
    text="the command line of a process",
    knows=knows,
    domains=domains,
    turn=_no_turn,
    says={},
    refusals=dict.fromkeys(
        (one.id for one in KNOBS), "a process keeps the line that it was started with; change what starts it"
    ),
)
"""QEMU's command line, which is only read."""
