# SPDX-License-Identifier: Apache-2.0
"""Claims: the reasons why a block device must not be written to. Anything that cannot be checked counts as a claim.

The check includes the device's partitions and everything built on them (LVM, RAID, loop devices). The kernel gives no
lease on a device, so one that was given to an io_uring and closed is found by the names that the ring shows. What is
on its way through a socket no list has.

Disk images and databases that `blkid` does not know are recognised by their first and last bytes.
"""

import contextlib
import errno
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from virtune import shell, warden
from virtune.model.errors import MissingToolError, words_of
from virtune.model.facts import Claim, ClaimKind, Unknown
from virtune.probe import tree
from virtune.probe.devices import backing_of, node_number, sysfs_of
from virtune.probe.holders import locks_on, loops, mapped_files, processes_with
from virtune.probe.process import RING_FILES, RING_SECONDS, shown_of_ring
from virtune.probe.tree import mounts

_DONT_SYNC = 0x4000
"""AT_STATX_DONT_SYNC: what the kernel knows; a network filesystem whose server is gone would let its caller wait."""

_TYPE = 0x1
_MODE_AT, _RDEV_AT = 28, 128
"""Offsets in struct statx of `stx_mode` (u16), and of `stx_rdev_major` and `stx_rdev_minor` (u32 each)."""


def node_at(path: Path) -> str | None:
    """Return the number of the device node that a path leads to: `259:0` of a block device, `c 240:0` of a character
    device; None for anything else. Raises OSError where the path leads nowhere.
    """
    buffer = warden.statx(path, _DONT_SYNC, _TYPE)
    if buffer is None:
        status = path.stat()
        mode, major, minor = status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev)
    else:
        (mode,) = struct.unpack_from("=H", buffer, _MODE_AT)
        major, minor = struct.unpack_from("=II", buffer, _RDEV_AT)
    kind = "" if stat.S_ISBLK(mode) else "c " if stat.S_ISCHR(mode) else None
    return None if kind is None else f"{kind}{major}:{minor}"


_HEAD_BYTES = 4096
_TAIL_BYTES = 512

_HEADS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"QFI\xfb\0\0\0\1", "a qcow image"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"QED\0", "a QED image"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", "a VHD image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"COWD", "a VMDK image"),
    (0, b"# Disk DescriptorFile", "the descriptor of a VMDK image"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
    (0, b"WithoutFreeSpace", "a Parallels image"),
    (0, b"WithouFreSpacExt", "a Parallels image"),
    (0, b"Bochs Virtual HD Image", "a Bochs image"),
    (0, b"VMA\0", "a Proxmox backup"),
    (0, b"SQLite format 3\0", "an SQLite database"),
)
"""Offset, bytes and name, as QEMU's block drivers and docs/interop, Proxmox's vma-reader and SQLite's fileformat have
them."""

_TAILS: tuple[tuple[int, bytes, str], ...] = (
    (512, b"conectix", "a VHD image"),
    (511, b"conectix", "a VHD image"),
    (512, b"koly", "an Apple disk image"),
)
"""Bytes before the end: a fixed VHD has nothing but a footer, of 511 bytes if Virtual PC 2004 or older wrote it."""


def image_format(path: Path) -> str | None:
    """Return the format of a file or block device, None for an unknown one; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head = os.pread(descriptor, _HEAD_BYTES, 0)
        size = os.lseek(descriptor, 0, os.SEEK_END)
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    finally:
        os.close(descriptor)
    known = [name for offset, magic, name in _HEADS if head.startswith(magic, offset)]
    known += [name for before, magic, name in _TAILS if tail[-before:].startswith(magic)]
    return known[0] if known else None


_NVMET = "/sys/kernel/config/nvmet/subsystems"
"""The NVMe targets of this kernel, each with its namespaces (drivers/nvme/target/configfs.c)."""

_BLKID_NOTHING = 2
_BLKID_AMBIVALENT = 8


def claims(
    path: str | Path, root: Path = tree.ROOT, opened: Mapping[str, Sequence[str]] | None = None
) -> tuple[Claim, ...]:
    """Return every reason not to write to a block device; none for a path that is not a block device.

    For many devices pass `open_devices()`, so that all processes are scanned once.
    """
    # the opened descriptor is checked: a name that is a link may lead elsewhere when it is resolved again
    node = str(path) if root == tree.ROOT else os.path.normpath(path)
    number = node_number(node, root)
    if number is None:
        return ()
    called = os.path.realpath(path) if root == tree.ROOT else node
    home = sysfs_of(number, root)
    if home is None:
        return (claim(ClaimKind.UNSEEN, called, f"/sys/dev/block has no {number}"),)
    found = [*_read_only(home, root), *_held(home, root)]
    family = _family(home, root)
    found += _exported(family, root)
    found += _mounted(family, root)
    found += _swap(family, root)
    here = root == tree.ROOT
    if here:
        found += _looped(family)
        found += _under_loop(home)
        found += _exclusive(node, called)
    if opened is None:
        opened = open_devices() if here else {}
    found += _open_by(family | _generic(family, root), opened)
    if here:
        found += signed(node, called)
    return tuple(found)


_BRIEF_SECONDS = 1.0
"""How long what is open may stay so: blkid reads a disk that was written to, of udev's or of another virtune."""


def lasting(look: Callable[[], Iterable[Claim]]) -> tuple[Claim, ...]:
    """Return what is claimed, without what a process has open only for a moment."""
    found = tuple(look())  # which may take long on a busy host
    until = time.monotonic() + _BRIEF_SECONDS
    while ClaimKind.OPEN in {one.kind for one in found} and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
        found = tuple(look())
    return found


HIDDEN, UNSHOWN = "", "?"
"""In place of a device's number: what a process was given is shown under a name that leads nowhere; or not at all."""

_HIDDEN_SECONDS, _LOOK_SECONDS = 0.5, 0.02
"""An io_uring is made before its descriptor is anybody's, and outlives its process for some 20 ms."""


def open_devices() -> dict[str, list[str]]:
    """Return which processes have which device open, by `node_at`: a VM on a raw device does not hold it."""
    until = time.monotonic() + _HIDDEN_SECONDS
    while not {HIDDEN, UNSHOWN}.isdisjoint(found := _open_now()) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    return found


def _open_now() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in tree.names("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            comm = tree.text(f"/proc/{entry}/comm")
            program = f" ({comm})" if isinstance(comm, str) else ""
            for number in _open_nodes(entry):
                found.setdefault(number, []).append(f"process {entry}{program}")
    return found


def _family(home: str, root: Path) -> dict[str, str]:
    """Return number -> name of a device, its partitions, and all devices built on them."""
    family: dict[str, str] = {}
    waiting = [home]
    while waiting:
        here = waiting.pop()
        number = tree.text(f"{here}/dev", root)
        if isinstance(number, Unknown) or number in family:
            continue
        name = tree.last(here)
        family[number] = name
        waiting += _partitions(here, root)
        holders = (tree.real(f"{here}/holders/{holder}", root) for holder in tree.names(f"{here}/holders", root))
        waiting += [holder for holder in holders if holder]
    return family


def _partitions(home: str, root: Path) -> list[str]:
    entries = (f"{home}/{entry}" for entry in tree.names(home, root))
    return [entry for entry in entries if _is_partition(entry, root)]


def _is_partition(home: str, root: Path) -> bool:
    return tree.exists(f"{home}/partition", root)


def _read_only(home: str, root: Path) -> Iterator[Claim]:
    if tree.flag(f"{home}/ro", root) is True:
        name = tree.last(home)
        yield claim(ClaimKind.READ_ONLY, name, f"{name} is read-only")


def _held(home: str, root: Path) -> Iterator[Claim]:
    # a partition's disk counts too: multipath and RAID hold the whole disk and show its partitions besides
    family = [home, *_partitions(home, root)]
    if _is_partition(home, root):
        family.append(tree.parent(home))
    for member in family:
        for holder in tree.names(f"{member}/holders", root):
            label = tree.text(f"{member}/holders/{holder}/dm/name", root)
            called = "" if isinstance(label, Unknown) else f" ({label})"
            name = tree.last(member)
            yield claim(ClaimKind.HELD, name, f"{name} is part of {holder}{called}")


def _exported(family: dict[str, str], root: Path) -> Iterator[Claim]:
    """Say which NVMe target of the kernel offers a device to other hosts: it does not hold what it has open."""
    for system in tree.names(_NVMET, root):
        home = f"{_NVMET}/{system}"
        for place in (
            f"{home}/passthru",
            *(f"{home}/namespaces/{one}" for one in tree.names(f"{home}/namespaces", root)),
        ):
            path = tree.text(f"{place}/device_path", root)
            if tree.flag(f"{place}/enable", root) is not True or isinstance(path, Unknown):
                continue
            for number, name in family.items():
                if number == node_number(path, root) or name.startswith(f"{tree.last(path)}n"):
                    yield claim(ClaimKind.HELD, name, f"{name} is offered to other hosts by the NVMe target {system}")


def _generic(family: dict[str, str], root: Path) -> dict[str, str]:
    """Return number -> name of the character devices through which NVMe commands reach members of a family."""
    generic = {
        name: tree.text(f"/sys/class/nvme-generic/{name.replace('nvme', 'ng')}/dev", root) for name in family.values()
    }
    return {f"c {number}": name for name, number in generic.items() if not isinstance(number, Unknown)}


def _mounted(family: dict[str, str], root: Path) -> Iterator[Claim]:
    members = set(family.values())
    for mount in mounts(root):
        name = family.get(mount.number)
        if name is None and mount.number.startswith("0:") and mount.source.startswith("/dev/"):
            # btrfs: the mount shows one device of its pool, and an anonymous number
            devices = backing_of(mount.point, root).devices
            name = next((device.name for device in devices if device.name in members), None)
        if name is not None:
            text = f"{name} is mounted on {mount.point} ({mount.filesystem})"
            yield claim(ClaimKind.MOUNTED, name, text)


def _swap(family: dict[str, str], root: Path) -> Iterator[Claim]:
    for line in list(tree.lines("/proc/swaps", root))[1:]:
        path = line.split()[0].replace("\\040", " ")
        node = os.path.realpath(path) if root == tree.ROOT else path
        name = family.get(node_number(node, root) or "")
        if name is not None:
            yield claim(ClaimKind.SWAP, name, f"{name} is swap space")


def _looped(family: dict[str, str]) -> Iterator[Claim]:
    numbers = {os.makedev(*map(int, number.split(":"))): name for number, name in family.items()}
    for loop in loops():
        node = loop.node
        if node is None and loop.backing.startswith("/dev/"):
            with contextlib.suppress(OSError):
                node = Path(loop.backing).stat().st_rdev
        if node and node in numbers:
            yield claim(ClaimKind.HELD, numbers[node], f"{numbers[node]} is behind {loop.name}")


def _under_loop(home: str) -> Iterator[Claim]:
    """Say who else uses the backing file of a loop device."""
    name = tree.last(tree.parent(home)) if _is_partition(home, tree.ROOT) else tree.last(home)
    known = list(loops())
    ours = next((loop for loop in known if loop.name == name), None)
    if ours is None or ours.file is None or ours.node:
        return
    for loop in known:
        if loop.file == ours.file and loop.name != name:
            yield claim(ClaimKind.HELD, name, f"{loop.name} stands on the same file as {name}: {ours.backing}")
    for pid, program in processes_with(ours.file):
        yield claim(ClaimKind.OPEN, name, f"the file behind {name} is open in process {pid} ({program})")
    with contextlib.suppress(OSError):
        file = Path(ours.backing)
        if (file.stat().st_dev, file.stat().st_ino) == ours.file:
            for words in locks_on(file):
                yield claim(ClaimKind.OPEN, name, f"of the file behind {name}: {words}")


def _exclusive(node: str, called: str) -> Iterator[Claim]:
    """Ask the kernel: an exclusive open fails while a mount (in any container), RAID, LVM or swap has the device."""
    try:
        os.close(os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            yield claim(ClaimKind.HELD, called, f"{called} is in use: the kernel refuses an exclusive open")
        else:
            reason = words_of(error)
            yield claim(ClaimKind.UNSEEN, called, f"{called} could not be opened to look at it: {reason}")


def _open_by(family: dict[str, str], opened: Mapping[str, Sequence[str]]) -> Iterator[Claim]:
    for number, name in family.items():
        for process in opened.get(number, ()):
            yield claim(ClaimKind.OPEN, name, f"{name} is open in {process}")
    hidden = (
        (HIDDEN, "has given an io_uring a file that cannot be looked at, and that may be it"),
        (UNSHOWN, "has an io_uring whose files the kernel does not show, and one of them may be it"),
    )
    for kind, words in hidden:
        for process in opened.get(kind, ()):
            yield claim(ClaimKind.UNSEEN, next(iter(family.values()), ""), f"{process} {words}")


def _open_nodes(entry: str) -> set[str]:
    """Return the devices that a process has open or mapped, under any name: a jail has nodes of its own, which lie
    anywhere.
    """
    process = Path(f"/proc/{entry}")
    found: set[str | None] = set()
    rings = mapped_rings = 0
    until = time.monotonic() + RING_SECONDS
    # a node lies on a devtmpfs or tmpfs, whose number the kernel makes up, and so does a ring
    for mapped in mapped_files(process, major=b"0+"):
        with contextlib.suppress(OSError):
            path = process / "map_files" / mapped.place
            mapped_rings += str(path.readlink()) == _RING
            found.add(node_at(path))
    with contextlib.suppress(OSError):  # it ended while we looked, or belongs to somebody else
        for path in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(path.readlink())
                found.add(node_at(path) if name.startswith("/") else None)
                if name == _RING:
                    rings += 1
                    found |= _registered(process, path.name, until)
        if mapped_rings and not rings:
            found.add(HIDDEN)
    return {number for number in found if number is not None}


_RING = "anon_inode:[io_uring]"
_SLOT = re.compile(rb" *[0-9]+: (.+)")


def _registered(process: Path, ring: str, until: float) -> set[str | None]:
    """Return the devices among the files that an io_uring has been given, by the names that the kernel has for them:
    each may be closed everywhere else. Before Linux 6.11 it shows the last part of the name alone. UNSHOWN where the
    kernel does not show them: of a ring in use it may show their number alone, or nothing.
    """
    found: set[str | None] = set()
    text = shown_of_ring(process / "fdinfo" / ring, RING_FILES, until=until)
    if not RING_FILES.search(text):
        return {UNSHOWN}
    _, _, slots = text.partition(b"UserFiles:")
    for line in slots.splitlines()[1:]:
        if (slot := _SLOT.fullmatch(line)) is None:
            break
        name = tree.unescaped(os.fsdecode(slot[1]))
        if "/" not in name and ":[" not in name:
            with contextlib.suppress(OSError):
                found.add(node_at(Path("/dev", name)))
        elif name.startswith("/"):
            found |= _named(process, name)
    return found


def _named(process: Path, name: str) -> set[str | None]:
    """Return the device of a name as the process sees it, and as we do: the kernel does not say whose name it is. One
    that leads nowhere may be of a device only if it was in a directory of devices.
    """
    found: set[str | None] = set()
    for path in (process / "root" / name.lstrip("/"), Path(name)):
        with contextlib.suppress(OSError):
            found.add(node_at(path))
    return found or ({HIDDEN} if "/dev/" in name else set())


def signed(node: str, called: str | None = None) -> Iterator[Claim]:
    """Yield the signatures (file system, image, database) found in a block device or file; failing to check is a
    claim too.

    `called` is the name to report, if it was reached by another one.
    """
    name = called or node
    unsearched = f"{name} was not searched for filesystems"
    try:
        found = shell.run(
            [shell.find("blkid"), "-p", "-o", "export", node],
            timeout_seconds=10,
            ok=(0, _BLKID_NOTHING, _BLKID_AMBIVALENT),
        )
        known = image_format(Path(node))
    except MissingToolError:
        yield claim(ClaimKind.UNSEEN, name, f"{unsearched}: `blkid` is not installed (util-linux)")
        return
    except shell.CommandError as error:
        yield claim(ClaimKind.UNSEEN, name, f"{unsearched}: {error.message}")
        return
    except OSError as error:
        yield claim(ClaimKind.UNSEEN, name, f"{unsearched}: {words_of(error)}")
        return
    if found.status == _BLKID_AMBIVALENT:
        yield claim(ClaimKind.SIGNED, name, f"{name} carries the signatures of several filesystems or tables")
    elif found.status == 0:
        yield claim(ClaimKind.SIGNED, name, f"{name} holds {_contents(found.stdout)}")
    elif found.stderr.strip():
        # blkid exits with 2 both when it found nothing and when it could not read
        yield claim(ClaimKind.UNSEEN, name, f"{unsearched}: {shell.last_line(found.stderr) or ''}")
    elif known is not None:
        yield claim(ClaimKind.SIGNED, name, f"{name} is {known}")


def _contents(export: str) -> str:
    values = dict(line.partition("=")[::2] for line in export.splitlines() if "=" in line)
    if "TYPE" in values:
        label = f" labelled {values['LABEL']}" if "LABEL" in values else ""
        return f"{values['TYPE']}{label}"
    if "PTTYPE" in values:
        return f"a {values['PTTYPE']} partition table"
    return "a signature that `blkid` knows"


def claim(kind: ClaimKind, device: str, text: str) -> Claim:
    return Claim(kind=kind, device=device, text=text)
