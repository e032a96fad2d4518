# SPDX-License-Identifier: Apache-2.0
"""Block devices: those behind a path, their kernel settings, and the identity of an image or device, so that a
replaced one of the same name is not taken for the old one.

Device numbers come from the mount table, not from stat(): btrfs and overlay give every file an anonymous one.
"""

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from virtune import warden
from virtune.model.facts import Backing, BlockDevice, DeviceFacts, Unknown
from virtune.model.study import Identity
from virtune.probe import tree
from virtune.probe.tree import Mount, mount_of, mounts

T = TypeVar("T")

_NO_DEVICE = {
    "tmpfs": "tmpfs keeps files in memory and swap",
    "ramfs": "ramfs keeps files in memory",
    "zfs": "zfs hides the disks of its pool; `zpool status` lists them",
    "overlay": "the files lie in the overlay's upper layer, which cannot be seen from here",
}
_REMOTE = re.compile(r"nfs4?|cifs|smb3|9p|virtiofs|ceph|glusterfs|fuse(\..+)?|afs|lustre|gfs2|gpfs")


def backing_of(path: str | Path, root: Path = tree.ROOT) -> Backing:
    """Return the filesystem and the block devices behind a path.

    For a path that does not exist yet, the nearest existing directory above it is used.
    """
    return _backing(path, root, frozenset())


def _backing(path: str | Path, root: Path, above: frozenset[str]) -> Backing:
    name = answered(path, os.path.realpath) if root == tree.ROOT else os.path.normpath(path)
    if name is None:  # the mount table knows where it lies
        found = _on_mount(os.path.normpath(path), root, above)
        return replace(found, gap=f"{path} {UNANSWERED}")
    number = node_number(name, root)
    if number is not None:
        devices, gap = _chain([number], root, above)
        return Backing(
            path=name, filesystem=None, mount_point=None, options=(), source=name, devices=devices, gap=gap
        )
    return _on_mount(name, root, above)


_ANSWER_SECONDS = 2.0
UNANSWERED = f"did not answer for {_ANSWER_SECONDS:.0f} s: what serves it hangs"
"""What is said of a file whose server says nothing."""

_unanswered: dict[str, threading.Thread] = {}


def answered(path: str | Path, work: Callable[[str], T]) -> T | None:
    """Return what some work on a file returns; None where its server (NFS, FUSE) does not answer in time. The thread
    that waits for it ends with virtune, and no second one waits for the same file.
    """
    name, found = str(path), list[T]()
    if name in _unanswered and _unanswered[name].is_alive():
        return None

    def run() -> None:
        with contextlib.suppress(OSError, ValueError):
            found.append(work(name))

    thread = threading.Thread(target=run, name="patience", daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if thread.is_alive():
        _unanswered[name] = thread
        return None
    return found[0] if found else work(name)


def _on_mount(name: str, root: Path, above: frozenset[str]) -> Backing:
    table = mounts(root)
    mount = mount_of(name, table)
    if mount is None:
        return Backing(
            path=name, filesystem=None, mount_point=None, options=(), source="", devices=(),
            gap="/proc/self/mountinfo names no mount for it",
        )  # fmt: skip
    devices, gap = _of_mount(mount, table, root, above)
    return Backing(
        path=name,
        filesystem=mount.filesystem,
        mount_point=mount.point,
        options=mount.options,
        source=mount.source,
        devices=devices,
        gap=gap,
    )


def node_number(path: str, root: Path = tree.ROOT) -> str | None:
    """Return major:minor of a block device node; None when the path is something else.

    Where there is no such node, as in a recorded tree or a container, /dev/NAME is the device sysfs has under NAME.
    """
    try:
        status = tree.below(root, path).stat()
    except OSError:
        status = None
    if status is not None:
        if not stat.S_ISBLK(status.st_mode):
            return None
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if not path.startswith("/dev/"):
        return None
    label = path.removeprefix("/dev/").removeprefix("mapper/")
    for name in tree.names("/sys/class/block", root):
        if label in (name, tree.text(f"/sys/class/block/{name}/dm/name", root)):
            found = tree.text(f"/sys/class/block/{name}/dev", root)
            return None if isinstance(found, Unknown) else found
    return None


def sysfs_of(device: str, root: Path = tree.ROOT) -> str | None:
    """Return the sysfs directory of a device given by name (`sda1`) or number (`8:1`)."""
    where = "/sys/dev/block" if ":" in device else "/sys/class/block"
    return tree.real(f"{where}/{device.replace('/', '!')}", root)


def swap_devices(root: Path = tree.ROOT) -> tuple[str, ...]:
    """Return the names of the devices that this host swaps to."""
    places = [line.split()[0] for line in tree.lines("/proc/swaps", root) if line.startswith("/")]
    return tuple(dict.fromkeys(name for place in places for name in backing_of(place, root).names[:1]))


def all_disks(root: Path = tree.ROOT) -> tuple[str, ...]:
    """Return the names of all whole block devices that have a size (an unbound loop device has none)."""
    return tuple(name for name in tree.names("/sys/block", root) if tree.number(f"/sys/block/{name}/size", root))


def device_facts(name: str, root: Path = tree.ROOT) -> DeviceFacts:
    """Return a device's kernel settings. A partition uses the queue of its disk."""
    own = sysfs_of(name, root) or f"/sys/class/block/{name}"
    whole = tree.parent(own) if tree.exists(f"{own}/partition", root) else own
    queue = f"{whole}/queue"
    scheduler, schedulers = _schedulers(f"{queue}/scheduler", root)
    discard_max = tree.number(f"{queue}/discard_max_bytes", root)
    return DeviceFacts(
        name=name,
        size_bytes=tree.times(tree.number(f"{own}/size", root), 512),
        model=_first((f"{whole}/device/model", f"{whole}/device/name"), root, "the driver names no model"),
        firmware=_first(
            (f"{whole}/device/firmware_rev", f"{whole}/device/rev"), root, "the driver names no firmware"
        ),
        driver=_driver(whole, root),
        read_only=tree.flag(f"{own}/ro", root),
        rotational=tree.flag(f"{queue}/rotational", root),
        scheduler=scheduler,
        schedulers=schedulers,
        queues=len(tree.names(f"{whole}/mq", root)) or Unknown("no multi-queue device"),
        nr_requests=tree.number(f"{queue}/nr_requests", root),
        queue_depth=_queue_depth(whole, root),
        logical_block_bytes=tree.number(f"{queue}/logical_block_size", root),
        physical_block_bytes=tree.number(f"{queue}/physical_block_size", root),
        write_cache=tree.text(f"{queue}/write_cache", root),
        wbt_us=tree.number(f"{queue}/wbt_lat_usec", root),
        discard=discard_max if isinstance(discard_max, Unknown) else discard_max > 0,
        read_ahead_bytes=tree.times(tree.number(f"{queue}/read_ahead_kb", root), 1024),
        max_request_bytes=tree.times(tree.number(f"{queue}/max_sectors_kb", root), 1024),
        nomerges=tree.number(f"{queue}/nomerges", root),
        rq_affinity=tree.number(f"{queue}/rq_affinity", root),
        iostats=tree.flag(f"{queue}/iostats", root),
    )


def _of_mount(
    mount: Mount, table: tuple[Mount, ...], root: Path, above: frozenset[str]
) -> tuple[tuple[BlockDevice, ...], str | None]:
    if not mount.number.startswith("0:"):
        return _chain([mount.number], root, above)
    if mount.filesystem == "overlay":
        upper = next((option.partition("=")[2] for option in mount.options if option.startswith("upperdir=")), "")
        below = mount_of(upper, table) if upper and tree.exists(upper, root) else None
        if below is not None and below.filesystem != "overlay":
            return _of_mount(below, table, root, above)
    if mount.source.startswith("/dev/"):
        source = os.path.realpath(mount.source) if root == tree.ROOT else mount.source
        number = node_number(source, root)
        if number is not None:
            return _chain(_pool(number, root), root, above)
        return (), f"{mount.source} is no block device that can be seen from here"
    if _REMOTE.fullmatch(mount.filesystem):
        return (), f"{mount.filesystem} is served from elsewhere ({mount.source})"
    return (), _NO_DEVICE.get(mount.filesystem, f"{mount.filesystem} shows no block device")


def _pool(number: str, root: Path) -> list[str]:
    """Return the numbers of all devices of the btrfs that one device belongs to."""
    for identifier in tree.names("/sys/fs/btrfs", root):
        members = tree.names(f"/sys/fs/btrfs/{identifier}/devices", root)
        found = [tree.text(f"/sys/class/block/{member}/dev", root) for member in members]
        numbers = [member for member in found if not isinstance(member, Unknown)]
        if number in numbers:
            return numbers
    return [number]


def _chain(numbers: Iterable[str], root: Path, above: frozenset[str]) -> tuple[tuple[BlockDevice, ...], str | None]:
    """Walk down from devices by number, breadth first, each device once and before the devices below it.

    `above` are the loop devices on the way here.
    """
    found: dict[str, BlockDevice] = {}
    gaps: list[str] = []
    waiting = list(numbers)
    while waiting:
        number = waiting.pop(0)
        home = sysfs_of(number, root)
        if number in above:
            # its file is named as another mount namespace sees it: a live system's root, a container's image
            gaps.append(f"{_name(number, root)} stands on a file that cannot be seen from here")
            continue
        if home is None:
            gaps.append(f"/sys/dev/block has no {number}")
            continue
        kind, label, below, gap = _describe(home, root, above | {number})
        gaps += [gap] if gap else []
        known = [(one, _name(one, root)) for one in below]
        # A device found again moves behind the one built on it.
        found.pop(number, None)
        found[number] = BlockDevice(
            number=number, name=tree.last(home), kind=kind, label=label, on=tuple(name for _, name in known)
        )
        waiting += [one for one, _ in known]
    return tuple(found.values()), "; ".join(gaps) or None


def _describe(home: str, root: Path, above: frozenset[str]) -> tuple[str, str, list[str], str | None]:
    """Return a device's kind, label, the numbers of the devices below it, and why those may be incomplete."""
    name = tree.last(home)
    if tree.exists(f"{home}/partition", root):
        parent = tree.text(f"{tree.parent(home)}/dev", root)
        return "partition", "", [] if isinstance(parent, Unknown) else [parent], None
    if name.startswith("loop"):
        file = tree.text(f"{home}/loop/backing_file", root)
        if isinstance(file, Unknown):
            return "loop", "", [], f"{name} has no file"
        behind = _backing(file.removesuffix(" (deleted)"), root, above)
        inner = {lower for device in behind.devices for lower in device.on}
        tops = [device.number for device in behind.devices if device.name not in inner]
        return "loop", file, tops, f"{name}: {behind.gap}" if behind.gap else None
    slaves = [tree.text(f"{home}/slaves/{slave}/dev", root) for slave in tree.names(f"{home}/slaves", root)]
    below = [slave for slave in slaves if not isinstance(slave, Unknown)]
    label = tree.text(f"{home}/dm/name", root)
    if not isinstance(label, Unknown):
        return "dm", label, below, None
    if tree.exists(f"{home}/md", root):
        level = tree.text(f"{home}/md/level", root)
        return "md", "" if isinstance(level, Unknown) else level, below, None
    return "disk", "", below, None


def _name(number: str, root: Path) -> str:
    home = sysfs_of(number, root)
    return tree.last(home) if home else number


def _schedulers(path: str, root: Path) -> tuple[str | Unknown, tuple[str, ...] | Unknown]:
    found = tree.text(path, root)
    if isinstance(found, Unknown):
        return found, found
    return warden.at_work(found), tuple(found.replace("[", " ").replace("]", " ").split())


def _first(paths: Iterable[str], root: Path, otherwise: str) -> str | Unknown:
    for path in paths:
        found = tree.text(path, root)
        if found and not isinstance(found, Unknown):
            return found
    return Unknown(otherwise)


def _queue_depth(home: str, root: Path) -> int | Unknown:
    found = tree.number(f"{home}/device/queue_depth", root)
    return Unknown("only SCSI devices show it") if isinstance(found, Unknown) else found


def _driver(home: str, root: Path) -> str | Unknown:
    # NVMe's namespace hangs below its controller, which hangs below the PCI device that has the driver
    for step in ("device", "device/device"):
        target = tree.real(f"{home}/{step}/driver", root)
        if target is not None:
            return tree.last(target)
    return Unknown("no driver link in sysfs")


_NAMES = ("dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial")
"""The sysfs files with a device's persistent name, the best first."""


def identity_of(path: Path) -> Identity | None:
    """Return what identifies a file or block device; None when there is none.

    A loop device is identified by the file that it stands on. A filesystem gives the inode of a file that was removed
    to the next one, so that the time of birth is needed beside it. A qcow2 file grows and shrinks by itself.
    """
    try:
        found = path.stat()
        if stat.S_ISBLK(found.st_mode):
            return _of_device(path, found)
        size = None if path.suffix == ".qcow2" else found.st_size
        return Identity(
            path=str(path), device=_below(path), inode=found.st_ino, born_ns=warden.born_ns(path), size_bytes=size
        )
    except OSError:
        return None


def loop_file(path: str | Path) -> Path | None:
    """Return the file that a loop device stands on; None for anything else, and where it cannot be seen from here."""
    devices = backing_of(path).devices
    if not devices or devices[0].kind != "loop" or not Path(path).is_block_device():
        return None
    file = Path(devices[0].label)
    return file if file.is_file() else None


def _of_device(path: Path, found: os.stat_result) -> Identity:
    number = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"
    sectors = tree.number(f"/sys/dev/block/{number}/size")
    size = None if isinstance(sectors, Unknown) else sectors * 512
    file = loop_file(path)
    if file is not None:
        inode, born, device = file.stat().st_ino, warden.born_ns(file), f"{_below(file)} {file}"
        return Identity(path=str(path), device=device, inode=inode, born_ns=born, size_bytes=size)
    return Identity(path=str(path), device=_lasting(number), inode=None, born_ns=None, size_bytes=size)


def _below(path: Path) -> str:
    """Name the first device behind a file, or its filesystem where no device is seen."""
    backing = backing_of(path)
    return _lasting(backing.devices[0].number) if backing.devices else f"{backing.filesystem} {backing.source}"


def _lasting(number: str) -> str:
    """Name a device by its persistent name; by its number if the kernel has none."""
    home = sysfs_of(number)
    if home is None:
        return number
    partition = tree.text(f"{home}/partition")
    whole = home if isinstance(partition, Unknown) else tree.parent(home)
    names = (tree.text(f"{whole}/{name}") for name in _NAMES)
    name = next((found for found in names if found and not isinstance(found, Unknown)), None)
    if name is None:
        return number
    return name if isinstance(partition, Unknown) else f"{name} partition {partition}"
