# SPDX-License-Identifier: Apache-2.0
"""The identity of an image or device, so that a replaced one of the same name is not taken for the old one."""

import os
import stat
from pathlib import Path

from virtune import warden
from virtune.model.facts import Unknown
from virtune.model.study import Identity
from virtune.probe import tree
from virtune.probe.devices import backing_of, sysfs_of

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
