# SPDX-License-Identifier: Apache-2.0
"""The host's facts of the files and devices behind a domain's disks. Nothing is opened for writing.

A qcow2 image is read by `qemu-img info` with its format given, which opens no other file that the image names.
"""

import array
import contextlib
import fcntl
import json
import os
import stat
from typing import Any

from virtune import shell
from virtune.model.domain import Domain, DomainDisk
from virtune.model.errors import VirtuneError
from virtune.model.facts import Unknown
from virtune.model.finding import ImageView
from virtune.probe.devices import backing_of, device_facts

_GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS, as on every architecture but alpha, mips, powerpc and sparc, where the answer is then an error."""

_NOCOW = 0x00800000
"""FS_NOCOW_FL."""

_SILENT_DRIVERS = ("virtio_blk", "virtblk")
"""Drivers of disks that cannot say whether they rotate."""

_PATIENCE_SECONDS = 10.0


def image_views(domain: Domain) -> dict[str, ImageView]:
    """Return the known facts of the images of a domain's disks, by the names of their sources."""
    wanted = [disk for disk in domain.disks if disk.source.kind in ("file", "block") and disk.holds_data]
    return {disk.source.name: image_view(disk) for disk in wanted}


def image_view(disk: DomainDisk) -> ImageView:
    """Return the known facts of one image; unreadable ones are None."""
    path = disk.source.name
    if not path.startswith("/"):
        return ImageView()
    try:
        status = os.stat(path)  # noqa: PTH116 - one call for all that is asked
    except OSError:
        return ImageView()
    backing = backing_of(path)
    bottom = [device_facts(device.name) for device in backing.disks]
    # a virtio disk says that it rotates, whatever it stands on (K13)
    told = [one for one in bottom if one.driver not in _SILENT_DRIVERS]
    rotational = {facts.rotational for facts in told if not isinstance(facts.rotational, Unknown)}
    schedulers = {facts.scheduler for facts in bottom if not isinstance(facts.scheduler, Unknown)}
    plain = stat.S_ISREG(status.st_mode)
    size: int | None = status.st_size if plain else None
    header = _header(path) if plain and disk.format == "qcow2" else {}
    special = header.get("format-specific", {}).get("data", {})
    return ImageView(
        size_bytes=header.get("virtual-size", size),
        allocated_bytes=status.st_blocks * 512 if plain else None,
        filesystem=backing.filesystem,
        copy_on_write=_copies_on_write(path) if backing.filesystem == "btrfs" else None,
        free_share=_free_share(path) if plain else None,
        rotational=rotational.pop() if len(rotational) == 1 else None,
        scheduler=schedulers.pop() if len(schedulers) == 1 else None,
        cluster_bytes=header.get("cluster-size"),
        extended_l2=special.get("extended-l2"),
        backing="backing-filename" in header if header else None,
    )


def _header(path: str) -> dict[str, Any]:
    try:
        said = shell.run(
            [shell.find("qemu-img"), "info", "--force-share", "--output=json", "-f", "qcow2", "--", path],
            timeout_seconds=_PATIENCE_SECONDS,
        )
        found = json.loads(said.stdout)
    except (VirtuneError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _copies_on_write(path: str) -> bool | None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = array.array("l", [0])
            fcntl.ioctl(descriptor, _GET_FLAGS, flags)
            return not flags[0] & _NOCOW
        finally:
            os.close(descriptor)
    return None


def _free_share(path: str) -> float | None:
    with contextlib.suppress(OSError):
        space = os.statvfs(path)
        return space.f_bavail / space.f_blocks if space.f_blocks else None
    return None
