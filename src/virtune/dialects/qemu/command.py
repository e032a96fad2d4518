# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line, as `/proc/PID/cmdline`, libvirt's log or a script has it, read into Domains (pure).

`-drive`, `-blockdev` and `-device`, in JSON and as `key=value`. It is only read: a running process keeps its command
line, and the script that starts it belongs to others.

Since libvirt 5.10 disks are `-blockdev` in JSON. What was plugged in later is not on the command line.
"""

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from virtune.dialects.language import Language
from virtune.dialects.qemu.refused import Said, above_zero, limits_of, refused_limits, refused_numbers
from virtune.dialects.text.lines import BYTES_MAX, Word, commands_of
from virtune.model.domain import (
    DIRECT_UNSAFE,
    PROBED,
    Controller,
    DiskSource,
    Domain,
    DomainDisk,
    DomainThread,
    SettingChange,
    SourceKind,
)
from virtune.model.errors import PlanError, ReadError
from virtune.model.knobs import KNOBS
from virtune.model.stack import THROUGH_CACHES
from virtune.model.text import ESCAPE, prefix_of, setting_text, without_prefix

_DRIVERS = ("file", "host_device")
_FLAGS = {"on": True, "off": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedImage:
    """How one image was opened; None is QEMU's default."""

    filename: str
    aio: str | None
    direct: bool | None
    no_flush: bool | None


Options = Mapping[str, str]

_PROGRAM = re.compile(r"(?:[^\n]*/)?(?:qemu-system-[\w-]+|qemu-kvm|kvm)(?:\.exe)?")
_MARKS = re.compile(
    r"(?<![\w=,.-])-(?:drive|device|blockdev|machine|M|m|smp|cpu|object|name|netdev|enable-kvm|accel|display"
    r"|nographic|chardev|hda|cdrom|boot|nodefaults|readconfig)\b|\bqemu-(?:system-\w|kvm\b)"
)
"""What lines of a command begin with, where each has been quoted or has a time stamp before it."""

_PROMPT = re.compile(r"[+]+|\$")
"""What a shell puts before a command that it shows."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_WRAPPERS = frozenset({"sudo", "doas", "env", "exec", "command", "nice", "ionice", "chrt", "taskset", "numactl",
                       "nohup", "setsid", "time", "prlimit", "systemd-run"})  # fmt: skip
_HARMLESS = re.compile(r"set|cd|export|ulimit|umask")
"""Commands that may precede QEMU's."""

_START = re.compile(r"^\d{4}-\d\d-\d\d [^\n]*: starting up libvirt version[^\n]*\n", re.MULTILINE)
"""The line in libvirt's log (`/var/log/libvirt/qemu/NAME.log`) before each start's command."""

_WRAPPER_WORDS_MAX = 16
_HEAD = 64 * 1024
_ALONE = frozenset({"h", "help", "version", "S", "s", "snapshot", "enable-kvm", "no-kvm", "no-acpi", "no-hpet",
                     "no-reboot", "no-shutdown", "nographic", "curses", "sdl", "daemonize", "nodefaults",
                     "no-user-config", "nodefconfig", "usb", "full-screen", "no-frame", "no-quit", "alt-grab",
                     "ctrl-grab", "portrait", "show-cursor", "localtime", "preconfig", "only-migratable",
                     "mem-prealloc", "singlestep", "one-insn-per-tb", "old-param", "semihosting", "enable-fips",
                     "win2k-hack", "no-fd-bootchk", "no-kvm-irqchip", "no-kvm-pit", "xen-attach",
                     "xen-domid-restrict", "tdf"})  # fmt: skip
"""QEMU's options without an argument (qemu-options.hx); what follows one is an option, or an image."""

_IMAGE = re.compile(r"[/.:$]")
"""What a name of an image has, and the value of an option that is not known here has seldom."""

_MORE = re.compile(r"\$\{?\w+\}?|\$[@*]|.*\[[@*]\].*|[$`].*[)`]", re.DOTALL)
"""A whole word that a shell makes, a variable or the output of a command: one image, or many options."""

_MADE = re.compile(r"[$`]")
_HOLD_NO_SETTING = frozenset(
    {"file", "filename", "file.filename", "id", "node-name", "serial", "path", "url", "chardev"}
)
"""What of a disk a variable may hold without a setting being lost."""

_DISK_DEVICE = re.compile(r".*(?:blk|scsi|ide|ahci|nvme|sata|disk).*", re.IGNORECASE)
_NO_DISK_ID = re.compile(r"(?:ua-)?(?:hostdev|net|video|sound|serial|channel|input|balloon|rng|watchdog|tpm)\w*")

_FIRST = {"device": "driver", "object": "qom-type", "smp": "cpus", "name": "guest", "uuid": "uuid", "machine": "type",
          "accel": "accel", "blockdev": "driver", "mon": "chardev"}  # fmt: skip
_IMAGES = {"hda": "0", "hdb": "1", "hdc": "2", "hdd": "3", "cdrom": "2", "fda": "0", "fdb": "1", "sd": "0"}
_IMAGE_BUS = {"fda": "floppy", "fdb": "floppy", "sd": "sd"}


def begins_with_qemu(text: bytes) -> bool:
    """Whether the first command of a text starts QEMU's system emulator."""
    return next(iter(command_lines(text[:_HEAD].decode(errors="replace"))), None) is not None


def command_lines(text: str) -> Iterator[list[Word]]:
    """Yield QEMU's command lines, each from its program on; nothing where another command comes first."""
    if "\0" in text:
        words = [Word(word, 1) for word in text.strip("\0\n").split("\0")]
        yield from _from_program(words)
        return
    text = _unquoted(text)
    lines = text.rstrip().split("\n")
    if _one_word_a_line(lines):
        yield [Word(word, number) for number, word in enumerate(lines, 1)]
        return
    starts = [found.end() for found in _START.finditer(text)]
    if not starts:
        yield from _commands(text)
    line = 1
    for last, begin, end in zip([0, *starts], starts, [*starts[1:], len(text)], strict=False):
        line += text.count("\n", last, begin)
        yield from itertools.islice(_commands(text[begin:end], line), 1)


def _unquoted(text: str) -> str:
    """Return a text without colours, and without what stands before its lines, if it stands before the program
    too.
    """
    text = ESCAPE.sub("", text) if "\x1b" in text else text
    prefix = prefix_of(text, _MARKS)
    if prefix is None or not re.search(rf"^{prefix.pattern}\S*(?:qemu-|kvm\b)", text, re.ASCII | re.MULTILINE):
        return text
    return without_prefix(text, _MARKS)


def _commands(text: str, line: int = 1) -> Iterator[list[Word]]:
    """The command lines of a script up to what no shell could read; none where another command comes first."""
    found = False
    with contextlib.suppress(ValueError):
        for words in commands_of(text, line):
            here = list(_from_program(words))
            if not (here or found or all(map(_ASSIGNMENT.fullmatch, words)) or _HARMLESS.fullmatch(words[0])):
                return
            found = found or bool(here)
            yield from here


def _from_program(words: Sequence[Word]) -> Iterator[list[Word]]:
    """The words from the program on, behind variables and the programs that start others."""
    shown = 1 if words and _PROMPT.fullmatch(words[0]) else 0
    variables = (n for n, word in enumerate(words) if n >= shown and not _ASSIGNMENT.fullmatch(word))
    at = next(variables, len(words))
    reach = at + 1
    if at < len(words) and words[at].rpartition("/")[2] in _WRAPPERS:
        reach = min(at + _WRAPPER_WORDS_MAX, len(words))
    for place in range(at, min(reach, len(words))):
        following = words[place + 1 : place + 2]
        # `modprobe kvm` and `kvm = 1` start nothing
        if _PROGRAM.fullmatch(words[place]) and following and (following[0].startswith("-") or "." in following[0]):
            yield list(words[place:])
            return


def _one_word_a_line(lines: Sequence[str]) -> bool:
    """Whether a text is `/proc/PID/cmdline` with line feeds, which needs no quotes."""
    return (
        len(lines) > 1
        and _PROGRAM.fullmatch(lines[0]) is not None
        and lines[1].startswith("-")
        and not any(line.startswith("-") and " " in line for line in lines)
    )


def given(words: Sequence[str]) -> Iterator[tuple[str, Options]]:
    """Yield the options of a command line with what is given to each; an image alone is `drive`."""
    return ((name, one) for _, name, one in _placed(words))


def _placed(words: Sequence[str]) -> Iterator[tuple[int, str, Options]]:
    """Yield the options as `given` does, each with the line on which it begins."""
    at = 1
    while at < len(words):
        line, word = _line(words[at]), str(words[at])
        at += 1
        if not word.startswith("-") or word == "-":
            if _MORE.fullmatch(word):
                yield line, "elsewhere", {word: "on"}
            elif _IMAGE.search(word):
                yield line, "drive", {"file": word, "index": "0"}
            continue
        name = word.removeprefix("-").removeprefix("-")
        name = "machine" if name == "M" else name
        following = str(words[at]) if at < len(words) else ""
        if name in _ALONE or (following.startswith("-") and len(following) > 1):
            yield line, name, {}
            continue
        at += 1
        if name in _IMAGES:
            media = {"media": "cdrom"} if name == "cdrom" else {}
            bus = {"if": _IMAGE_BUS[name]} if name in _IMAGE_BUS else {}
            yield line, "drive", {"file": following, "index": _IMAGES[name], **media, **bus}
        else:
            yield line, name, options_in(following, _FIRST.get(name, ""))


def _line(word: str) -> int:
    return word.line if isinstance(word, Word) else 1


def disks_of_argv(argv: Sequence[str]) -> dict[str, OpenedImage]:
    """Return the images of a command line by their file names; what is not understood is left out."""
    nodes = [one for flag, one in given(argv) if flag == "blockdev" and one.get("driver") in _DRIVERS]
    return {
        one["filename"]: OpenedImage(
            filename=one["filename"], aio=one.get("aio"), direct=_FLAGS.get(one.get("cache.direct", "")),
            no_flush=_FLAGS.get(one.get("cache.no-flush", "")),
        )
        for one in nodes if "filename" in one
    }  # fmt: skip


def monitor_sockets(words: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the sockets on which a QEMU of this command line serves QMP: `-qmp`, and `-mon` of a
    `-chardev`. One that was handed over as a descriptor has no path, and one that QEMU connects to is another's.
    """
    every = list(given(words))
    served = {
        one.get("id", ""): one["path" if "path" in one else "backend.data.addr.data.path"]
        for flag, one in every
        if flag == "chardev" and _listens(one)
    }
    found = [
        served.get(one.get("chardev", ""), "")
        for flag, one in every
        if flag == "mon" and one.get("mode") == "control"
    ]
    for flag, one in every:
        kind, _, path = next(iter(one), "").partition(":")
        if flag in ("qmp", "qmp-pretty") and kind == "unix" and _SERVER & one.keys() and one.get("server") != "off":
            found.append(path)
    return tuple(dict.fromkeys(filter(None, found)))


_SERVER = frozenset({"server", "backend.data.server"})


def _listens(one: Options) -> bool:
    if "backend.data.addr.data.path" in one:
        return one.get("backend.data.server", "on") != "off"
    return "path" in one and one.get("server", "off") != "off" and next(iter(one), "") == "socket"


def name_and_id(words: Sequence[str]) -> tuple[str, str]:
    """Return the name of a VM and the number that Proxmox VE gives it, by its command line; empty for none."""
    options = dict(given(words))
    return options.get("name", {}).get("guest", ""), next(iter(options.get("id", {})), "")


def unread(flag: str, one: Options) -> str:
    """Return what of an option is not in the command line: in a file, or made by a shell. Empty where nothing is."""
    if flag in ("readconfig", "elsewhere"):
        return f"{'-readconfig ' if flag == 'readconfig' else ''}{next(iter(one), '')}".rstrip()
    driver = one.get("driver", "")
    if flag in ("drive", "blockdev") or (
        flag == "device" and (_MADE.search(driver) or _DISK_DEVICE.fullmatch(driver))
    ):
        made = (
            (key, value)
            for key, value in one.items()
            if _MADE.search(key + ("" if key in _HOLD_NO_SETTING else value))
        )
        return ",".join(f"-{flag} {key}" if value == "on" else f"-{flag} {key}={value}" for key, value in made)
    return ""


def about_disks(words: Sequence[str]) -> Iterator[str]:
    """Yield those of QEMU's options that make a disk or change one, where they are given beside a configuration."""
    for flag, one in given(["", *words]):
        of = next(iter(one), "")
        group, _, rest = of.partition(".")
        if (
            flag in ("drive", "blockdev", "readconfig", "elsewhere")
            or (flag == "device" and ("drive" in one or _DISK_DEVICE.fullmatch(one.get("driver", ""))))
            or (flag == "global" and _DISK_DEVICE.fullmatch(group))
            or (flag == "set" and (group == "drive" or (group == "device" and not _NO_DISK_ID.match(rest))))
        ):
            yield f"-{flag} {of}={one[of]}" if one else f"-{flag}"


def changes_a_disk(alias: str) -> bool:
    """Whether a device may be a disk or its controller, by libvirt's name of it."""
    return not _NO_DISK_ID.match(alias)


def options_in(text: str, first: str) -> Options:
    """Read `a=b,c=d` with `,,` for a comma, or JSON with its parts named by dots and its lists by numbers."""
    if text.startswith("{"):
        try:
            return dict(_flat("", json.loads(text)))
        except (ValueError, RecursionError):
            return {}
    found = {}
    for place, part in enumerate(text.replace(",,", "\0").split(",")):
        key, equals, value = part.replace("\0", ",").partition("=")
        if place == 0 and first and not equals:
            found[first] = key
        else:
            found[key] = value if equals else "on"
    return found


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is not None:
        for key, inner in items:
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif value is not None:
        yield prefix, setting_text(value)


PROTOCOLS = frozenset({"file", "host_device", "host_cdrom", "nbd", "rbd", "iscsi", "http", "https", "ftp", "ftps",
                       "ssh", "nfs", "gluster", "null-co", "null-aio", "nvme", "vvfat", "vxhs", "nvme-io_uring",
                       "virtio-blk-vhost-vdpa", "virtio-blk-vhost-user", "virtio-blk-vfio-pci",
                       "io_uring"})  # fmt: skip
"""Drivers that open something; all others stand above one of them."""

FILTERS = frozenset(
    {"throttle", "copy-on-read", "preallocate", "compress", "blkdebug", "blklogwrites", "alloc-track"}
)
"""Drivers that pass requests on and have no format of their own."""

_KINDS: Mapping[str, SourceKind] = {"": "file", "file": "file", "host_device": "file", "host_cdrom": "file",
                                    "nvme": "nvme", "vvfat": "dir", "virtio-blk-vhost-vdpa": "vhostvdpa",
                                    "virtio-blk-vhost-user": "vhostuser"}  # fmt: skip
_NAMES = ("filename", "url", "image", "export", "target", "path", "device", "server.path", "server.host")
_INHERITED = ("cache.direct", "cache.no-flush", "read-only")
_CHAIN_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDisk:
    """How QEMU opens one disk. `through` is what `-drive cache=` says of the device's write cache."""

    filename: str = ""
    protocol: str = ""
    format: str | None = None
    direct: bool = False
    no_flush: bool = False
    through: bool = False
    aio: str | None = None
    discard: str | None = None
    detect_zeroes: str | None = None
    copy_on_read: str | None = None
    werror: str | None = None
    rerror: str | None = None
    read_only: bool = False
    cdrom: bool = False
    snapshot: bool = False
    limits: tuple[tuple[str, int], ...] = ()
    refused: tuple[Said, ...] = ()

    @property
    def source(self) -> DiskSource:
        """Where its data is. A descriptor that libvirt passes (`/dev/fdset/1`) is no block device."""
        kind = _KINDS.get(self.protocol, "network")
        if kind != "file":
            protocol = self.protocol if kind == "network" else None
            return DiskSource(kind=kind, name=self.filename or self.protocol, protocol=protocol)
        if not self.filename:
            return DiskSource(kind="none")
        device = self.filename.startswith("/dev/") and not self.filename.startswith("/dev/fdset/")
        return DiskSource(kind="block" if device or self.protocol.startswith("host_") else "file", name=self.filename)


def of_nodes(nodes: Mapping[str, Options], name: str, groups: Mapping[str, Options]) -> OpenedDisk:
    """Follow a disk's nodes from the device's down to the one that opens the file.

    A guest's discard is passed down only while every node on the way unmaps (QEMU, bdrv_co_pdiscard); a node that is
    written inside another does so unless told otherwise, and has that one's cache.
    """
    found = OpenedDisk()
    limits: dict[str, int] = {}
    refused: list[Said] = []
    unmaps = True
    at: Options | None = nodes.get(name)
    for _ in range(_CHAIN_MAX):
        if at is None:
            break
        driver = at.get("driver", "")
        said = _discard(at)
        if unmaps and said != "unmap":
            found, unmaps = replace(found, discard=said), False
        found = _with_node(found, at, driver)
        own = dict(limits_of(groups.get(at.get("throttle-group", ""), {})))
        refused += refused_limits(own)
        for limit, value in above_zero(own):
            limits[limit] = min(value, limits.get(limit, value))
        if driver in PROTOCOLS:
            break
        at = _below(nodes, at)
    found = replace(found, limits=tuple(limits.items()), refused=tuple(refused))
    return replace(found, discard="unmap") if unmaps and found.format else found


def _below(nodes: Mapping[str, Options], at: Options) -> Options | None:
    inner = {key.removeprefix("file."): value for key, value in at.items() if key.startswith("file.")}
    if not inner:
        return nodes.get(at.get("file", ""))
    return {key: at[key] for key in _INHERITED if key in at} | {"discard": "unmap"} | inner


def _with_node(found: OpenedDisk, at: Options, driver: str) -> OpenedDisk:
    """What one more node adds: of formats and switches the first counts, of the file the last."""
    form = found.format
    if form is None and driver not in FILTERS:
        form = "raw" if driver in PROTOCOLS else driver or None
    return replace(
        found,
        format=form,
        filename=_name(at) or found.filename,
        protocol=driver if driver in PROTOCOLS else found.protocol,
        direct=at.get("cache.direct") == "on",
        no_flush=at.get("cache.no-flush") == "on",
        aio=at.get("aio") or found.aio,
        detect_zeroes=found.detect_zeroes or at.get("detect-zeroes"),
        copy_on_read="on" if driver == "copy-on-read" else found.copy_on_read,
        read_only=found.read_only or at.get("read-only") == "on",
    )


def _name(at: Options) -> str:
    image = f"{at['pool']}/{at['image']}" if "pool" in at and "image" in at else ""
    return image or next((at[key] for key in _NAMES if at.get(key)), "")


def _discard(at: Options) -> str | None:
    said = at.get("discard")
    return {"on": "unmap", "off": "ignore"}.get(said or "", said)


def of_drive(drive: Options) -> OpenedDisk:
    """How a `-drive` is opened."""
    word = drive.get("cache", "writeback")
    direct, no_flush = word in ("none", "off", "directsync"), word == "unsafe"
    filename = drive.get("file") or drive.get("file.filename") or drive.get("filename", "")
    cdrom = drive.get("media") == "cdrom"
    form = drive.get("format") or drive.get("driver") or None
    prefix = drive.get("file.driver") or filename.partition(":")[0]
    protocol = {"fat": "vvfat"}.get(prefix, prefix)
    limits = dict(limits_of(drive))
    return OpenedDisk(
        filename=filename,
        protocol=protocol if protocol in PROTOCOLS else "file",
        format="raw" if form in PROTOCOLS else form,
        direct=drive.get("cache.direct", "on" if direct else "off") == "on",
        no_flush=drive.get("cache.no-flush", "on" if no_flush else "off") == "on",
        through=drive.get("cache.writeback", "off" if word in THROUGH_CACHES else "on") == "off",
        aio=drive.get("aio"),
        discard=_discard(drive),
        detect_zeroes=drive.get("detect-zeroes"),
        copy_on_read=drive.get("copy-on-read"),
        werror=drive.get("werror"),
        rerror=drive.get("rerror"),
        read_only="on" in (drive.get("readonly"), drive.get("read-only")) or cdrom,
        cdrom=cdrom,
        snapshot=drive.get("snapshot") == "on",
        limits=tuple(above_zero(limits)),
        refused=tuple(refused_limits(limits)),
    )


_DEVICES = {"scsi-hd": "scsi", "scsi-block": "scsi", "scsi-cd": "scsi", "ide-hd": "ide", "ide-cd": "ide",
            "ide-drive": "ide", "nvme": "nvme", "nvme-ns": "nvme", "usb-storage": "usb", "floppy": "fdc",
            "sd-card": "sd"}  # fmt: skip
_EMPTY = ("ide-cd", "scsi-cd")
"""Devices without a medium that show as a disk all the same."""

_SCSI = re.compile(r"virtio-scsi.*|lsi.*|megasas.*|mptsas1068|am53c974|dc390|pvscsi|spapr-vscsi")
_BUSES = {"floppy": "fdc"}
"""The bus of a drive's interface, where it is called otherwise."""

_BLK = "virtio-blk"
_SERVED = "vhost-user-blk"
"""A disk that another process serves; it has a socket and no drive."""

_NO_DISK = ("none", "pflash", "mtd")
_DEFAULT_BUSES = (("pc-q35", "sata"), ("q35", "sata"), ("virt", "virtio"), ("s390", "virtio"), ("pseries", "scsi"),
                  ("raspi", "sd"), ("vexpress", "sd"))  # fmt: skip
"""Where `-drive` and `-hda` go by the machine's type (QEMU, block_default_type); elsewhere to IDE."""

_TOPOLOGY = ("sockets", "drawers", "books", "dies", "clusters", "modules", "cores", "threads")
_CACHES = {(True, False): "none", (False, False): "writeback", (False, True): "unsafe", (True, True): "unsafe"}
_THROUGH = {"none": "directsync", "writeback": "writethrough"}
_ACCELERATORS = {"kvm": "kvm", "hvf": "hvf"}


@dataclass(frozen=True, slots=True)
class _Machine:
    """The machine, controllers and threads of a command line, and the line of each of its options."""

    bus: str
    threads: Mapping[str, int]
    controllers: Mapping[str, Controller]
    sata: frozenset[str]
    lines: Sequence[int]


def domains(text: bytes) -> tuple[Domain, ...]:
    """Read the VMs of a text, the last line of each: a log has every start. Raises ReadError."""
    if len(text) > BYTES_MAX:
        raise ReadError(f"it is larger than {BYTES_MAX // 1024} KiB, which no command line is")
    found: dict[tuple[str, str | None], Domain] = {}
    for number, words in enumerate(command_lines(text.decode(errors="replace"))):
        domain = read_words(words)
        found[(domain.name, domain.uuid) if domain.name or domain.uuid else (str(number), "")] = domain
    if not found:
        raise ReadError("it is no command line of QEMU")
    return tuple(found.values())


def read_words(words: Sequence[str]) -> Domain:
    """Read the words of a command line, the program first."""
    placed = list(_placed(words))
    options = list(_completed([(flag, one) for _, flag, one in placed]))
    machine, name = _merged(options, "machine"), _merged(options, "name")
    kind = machine.get("type", "")
    bus = next((bus for start, bus in _DEFAULT_BUSES if kind.startswith(start)), "ide")
    options = list(_named(options, bus))
    threads = [one for flag, one in options if flag == "object" and one.get("qom-type") == "iothread"]
    numbers = _numbers([one.get("id", "") for one in threads])
    lines = tuple(line for line, _, _ in placed)  # of each option: none was added or left out
    controllers = _controllers(options, numbers, lines)
    ahci = (one.get("id", "") for flag, one in options if flag == "device" and one.get("driver", "").endswith("ahci"))
    around = _Machine(bus, numbers, controllers, frozenset(ahci) | ({"", "ide"} if bus == "sata" else set()), lines)
    return Domain(
        name=name.get("guest", ""),
        uuid=_merged(options, "uuid").get("uuid"),
        kind=_kind(words[0], options, machine),
        line=_line(words[0]),
        vcpus=_vcpus(_merged(options, "smp")),
        machine=kind or None,
        emulator=str(words[0]),
        threads=tuple(
            DomainThread(number=numbers[one.get("id", "")], poll_max_ns=_number(one.get("poll-max-ns")))
            for one in sorted(threads, key=lambda one: numbers[one.get("id", "")])
        ),
        threads_line=_line(words[0]),
        threads_elsewhere=frozenset(_threads_named(options, numbers)),
        host_devices=sum(flag == "device" and one.get("driver", "").startswith("vfio-pci") for flag, one in options),
        disks=_told_apart(_disks(options, around)),
        controllers=tuple(controllers.values()),
        language="qemu",
        elsewhere=tuple(_elsewhere(options)),
    )


def _completed(options: Sequence[tuple[str, Options]]) -> Iterator[tuple[str, Options]]:
    """Each option with what `-set` and `-global` of the same line say of it. `-global` is of all devices of a driver,
    of which virtio-blk-pci has virtio-blk-device inside.
    """
    everywhere = [one for flag, one in options if flag == "global"]
    common = [(one["driver"], one.get("property", ""), one.get("value", "")) for one in everywhere if "driver" in one]
    common += [(*key.rpartition(".")[::2], value) for one in everywhere for key, value in one.items() if "." in key]
    changes = [(key.split(".", 2), value) for flag, one in options if flag == "set" for key, value in one.items()]
    for flag, one in options:
        driver = one.get("driver", "") if flag == "device" else ""
        alike = _BLK if driver.startswith(_BLK) else driver
        shared = {key: value for of, key, value in common if driver and of.startswith(alike)}
        later = {key[2]: value for key, value in changes if key[:2] == [flag, one.get("id")] and len(key) > 2}
        yield flag, {**shared, **one, **later}


def _named(options: Sequence[tuple[str, Options]], bus: str) -> Iterator[tuple[str, Options]]:
    """Each option, a drive with its interface and `-snapshot`, and without an id with the one of QEMU's monitor
    (`virtio0`, `ide1-cd0`): its interface and its place there (QEMU, drive_new). `bus` is the machine's default.
    """
    units = {"ide": 1 if bus == "sata" else 2, "scsi": 7}
    after: dict[tuple[str, int], int] = {}
    thrown_away = {"snapshot": "on"} if any(flag == "snapshot" for flag, _ in options) else {}
    for flag, one in options:
        if flag != "drive":
            yield flag, one
            continue
        interface = one.get("if") or {"sata": "ide"}.get(bus, bus)
        wide = units.get(interface, 0)
        place = _number(one.get("index")) or (_number(one.get("bus")) or 0) * wide + (_number(one.get("unit")) or 0)
        passed = [place]
        while (place := after.get((interface, place), -1)) >= 0:
            passed.append(place)
        place = passed[-1]
        after |= {(interface, number): place + 1 for number in passed}  # of all at once: lines may be made to be slow
        medium = "-cd" if one.get("media") == "cdrom" else "-hd"
        at = f"{place // wide}{medium}{place % wide}" if wide else f"{place}"
        yield flag, {"id": f"{interface}{at}", **thrown_away, **one, "if": interface}


def _elsewhere(options: Sequence[tuple[str, Options]]) -> Iterator[str]:
    """What of a line is not read: a file of options, what a shell makes, a device of an unknown driver, no drive."""
    opened = {one.get(key) for flag, one in options for key in ("id", "node-name") if flag in ("drive", "blockdev")}
    plain = any(one.get("if") == "virtio" for flag, one in options if flag == "drive")
    for flag, one in options:
        if what := unread(flag, one):
            yield what
        elif flag == "global" and plain and next(iter(one), "").startswith(_BLK):
            yield f"-global {','.join(f'{key}={value}' for key, value in one.items())}"  # of a device without a line
        elif flag == "device" and "drive" in one and (_bus_of(one) is None or one["drive"] not in opened):
            yield f"-device {one.get('driver', '')},drive={one['drive']}"


def _merged(options: Sequence[tuple[str, Options]], flag: str) -> Options:
    """An option that is given several times is one, of which the last value of each key counts."""
    return {key: value for name, one in options if name == flag for key, value in one.items()}


def _kind(program: str, options: Sequence[tuple[str, Options]], machine: Options) -> str:
    """Who runs the guest's code: of several accelerators (`kvm:tcg`) the first is tried first."""
    asked = [one["accel"] for flag, one in options if flag == "accel" and "accel" in one]
    asked += ["kvm"] * any(flag == "enable-kvm" for flag, _ in options)
    asked += [machine.get("accel", ""), "kvm" if program.endswith("kvm") else ""]
    first = next((one for one in asked if one), "")
    return _ACCELERATORS.get(first.partition(":")[0], "qemu")


def _vcpus(smp: Options) -> int:
    """How many vCPUs are there at the start: as many as asked for, or as the topology has."""
    counts = [_number(smp.get(key)) or 1 for key in _TOPOLOGY]
    return _number(smp.get("cpus")) or _number(smp.get("maxcpus")) or math.prod(counts)


def _numbers(names: Sequence[str]) -> Mapping[str, int]:
    """Number IOThreads: as libvirt does where all have its names (`iothread2`), else in their order."""
    found = [re.fullmatch(r"iothread(\d{1,6})", name) for name in names]
    theirs = [int(one[1]) for one in found if one is not None]
    ours = theirs if len(set(theirs)) == len(names) else range(1, len(names) + 1)
    return dict(zip(names, ours, strict=True))


def _controllers(
    options: Sequence[tuple[str, Options]], numbers: Mapping[str, int], lines: Sequence[int]
) -> Mapping[str, Controller]:
    hosts = [
        (line, one)
        for line, (flag, one) in zip(lines, options, strict=True)
        if flag == "device" and _SCSI.fullmatch(one.get("driver", ""))
    ]
    return {
        one.get("id", f"scsi{index}"): Controller(
            kind="scsi", index=index, line=line, model=one["driver"], queues=_number(one.get("num_queues")),
            iothread=numbers.get(one.get("iothread", "")), mapping=_mapping(one, numbers),
        )
        for index, (line, one) in enumerate(hosts)
    }  # fmt: skip


def _threads_named(options: Sequence[tuple[str, Options]], numbers: Mapping[str, int]) -> Iterator[int]:
    """The IOThreads that any device or object names: one that compares packets serves no disk and is not idle."""
    for flag, one in options:
        if flag in ("device", "object", "global"):
            yield from (numbers[value] for key, value in one.items() if "iothread" in key and value in numbers)


def _mapping(one: Options, numbers: Mapping[str, int]) -> tuple[int, ...]:
    named = (value for key, value in one.items() if re.fullmatch(r"iothread-vq-mapping\.\d+\.iothread", key))
    return tuple(numbers[value] for value in named if value in numbers)


def _disks(options: Sequence[tuple[str, Options]], around: _Machine) -> Iterator[DomainDisk]:
    nodes = {one["node-name"]: one for flag, one in options if flag == "blockdev" and "node-name" in one}
    groups = {one.get("id", ""): one for _, one in options if one.get("qom-type") == "throttle-group"}
    drives = {one["id"]: one for flag, one in options if flag == "drive"}
    devices = [(line, one) for line, (flag, one) in zip(around.lines, options, strict=True) if flag == "device"]
    lines = {
        one.get("node-name", one.get("id", "")): line
        for line, (flag, one) in zip(around.lines, options, strict=True)
        if flag in ("drive", "blockdev")
    }
    sockets = {one.get("id", ""): one.get("path", "") for flag, one in options if flag == "chardev"}
    for number, (line, one) in enumerate(devices):
        driver = one.get("driver", "")
        bus = _bus_of(one)
        name = one.get("drive", "")
        if bus is None or not (name or driver in _EMPTY or driver.startswith(_SERVED)):
            continue
        if driver.startswith(_SERVED):
            opened = OpenedDisk(filename=sockets.get(one.get("chardev", ""), ""), protocol="virtio-blk-vhost-user")
        else:
            opened = of_nodes(nodes, name, groups) if name in nodes else of_drive(drives.pop(name, {}))
        target = one.get("id") or name or f"device{number}"
        yield _device(one, bus, opened, around, target=target, line=lines.get(name, line))
    for identity, one in drives.items():
        interface = one["if"]
        bus = "sata" if (interface, around.bus) == ("ide", "sata") else _BUSES.get(interface, interface)
        if interface not in _NO_DISK:
            yield _device({}, bus, of_drive(one), around, target=identity, line=lines[identity])


def _told_apart(disks: Iterable[DomainDisk]) -> tuple[DomainDisk, ...]:
    found = tuple(disks)
    names = told_apart(one.target for one in found)
    return tuple(replace(one, target=name) for one, name in zip(found, names, strict=True))


def told_apart(names: Iterable[str]) -> Iterator[str]:
    """Yield the names of a VM's disks: devices without an id that share a node have its name, the second `NAME#2`."""
    seen: dict[str, int] = {}
    for name in names:
        number = seen[name] = seen.get(name, 0) + 1
        yield name if number == 1 else f"{name}#{number}"


def cache_mode(*, direct: bool, no_flush: bool, through: bool) -> str:
    """Return what the flags of a node and the write cache of its device are called together."""
    cache = _CACHES[direct, no_flush]
    return _THROUGH.get(cache, cache) if through else cache


def _bus_of(one: Options) -> str | None:
    """The bus of a disk by its device; None for a device that is no disk, or is not known."""
    driver = one.get("driver", "")
    return "virtio" if driver.startswith((_BLK, _SERVED)) else _DEVICES.get(driver)


def _device(one: Options, bus: str, opened: OpenedDisk, around: _Machine, *, target: str, line: int) -> DomainDisk:
    driver = one.get("driver", "")
    through = one.get("write-cache", "off" if opened.through else "on") == "off"
    cache = cache_mode(direct=opened.direct, no_flush=opened.no_flush, through=through)
    parent = one.get("bus", "").partition(".")[0]
    controller = around.controllers.get(parent)
    if bus == "ide" and driver and parent in around.sata:
        bus = "sata"
    own = {key: word for key, word in one.items() if word != "auto"}  # the other words are its drive's
    kind = "lun" if driver == "scsi-block" else "floppy" if bus == "fdc" else "disk"
    return DomainDisk(
        target=target,
        line=line,
        device="cdrom" if opened.cdrom or driver.endswith("-cd") else kind,
        bus=bus,
        source=opened.source,
        driver="qemu",
        format=opened.format,
        cache=cache,
        io=opened.aio,
        discard=opened.discard,
        detect_zeroes=opened.detect_zeroes,
        copy_on_read=opened.copy_on_read,
        werror=own.get("werror", opened.werror),
        rerror=own.get("rerror", opened.rerror),
        iothread=around.threads.get(one.get("iothread", "")),
        mapping=_mapping(one, around.threads),
        queues=_number(one.get("num-queues")),
        queue_size=_number(one.get("queue-size")),
        limits=opened.limits,
        controller=controller.index if controller is not None else 0,
        rotation_rate=_number(one.get("rotation_rate")),
        read_only=opened.read_only,
        shareable=one.get("share-rw") == "on",
        transient=opened.snapshot,
        refused=(*opened.refused, *refused_numbers(one)),
        options=frozenset(_marks(opened)),
    )


def _marks(opened: OpenedDisk) -> Iterator[str]:
    if opened.direct and opened.no_flush:
        yield DIRECT_UNSAFE
    if opened.format is None and opened.source.kind in ("file", "block", "network", "nvme"):
        yield PROBED


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _no_turn(_text: bytes, turn: SettingChange, _domain: str) -> bytes:
    raise PlanError(f"{turn.knob} is not turned on a command line")


QEMU = Language(
    name="qemu",
    title="QEMU's command line",
    text="a command line of QEMU",
    knows=begins_with_qemu,
    domains=domains,
    turn=_no_turn,
    says={},
    refusals=dict.fromkeys(
        (one.id for one in KNOBS),
        "change it in what starts the VM; a process keeps the line that it was started with",
    ),
)
"""QEMU's command line, which is only read."""
