# SPDX-License-Identifier: Apache-2.0
"""Storage: the host's disks with their claims, and the scratch directory with its capabilities."""

import errno
import mmap
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from virtune.model.facts import ClaimKind, DiskFacts, Residency, ScratchFacts, Unknown
from virtune.probe import tree
from virtune.probe.claims import claims, open_devices
from virtune.probe.devices import all_disks, backing_of, device_facts, node_number
from virtune.probe.kernel import RECORDED
from virtune.probe.residency import cachestat

_TRIED_BYTES = 65536
_BLOCKS = (512, 4096)

_NVME = re.compile(r"nvme[0-9]+n[0-9]+")
"""A namespace; of one with several paths the kernel lists each path as well (`nvme0c1n1`), which has no node."""


def disk_facts(root: Path = tree.ROOT) -> tuple[DiskFacts, ...]:
    """Return every whole disk that has a size, with its claims."""
    opened = open_devices() if root == tree.ROOT else {}
    return tuple(
        DiskFacts(device=device_facts(name, root), claims=claims(f"/dev/{name.replace('!', '/')}", root, opened))
        for name in all_disks(root)
    )


def nvme_idle(root: Path = tree.ROOT) -> dict[str, bool | None]:
    """Return for every NVMe drive of this host whether nothing uses it and it holds nothing; None where that could
    not be checked.
    """
    names = [name for name in all_disks(root) if _NVME.fullmatch(name)]
    opened = open_devices() if names and root == tree.ROOT else {}
    return {name: _idle(f"/dev/{name}", root, opened) for name in names}


def _idle(node: str, root: Path, opened: Mapping[str, Sequence[str]]) -> bool | None:
    if node_number(node, root) is None:  # without its node nothing can be asked of it
        return None
    kinds = {claim.kind for claim in claims(node, root, opened)}
    return None if kinds == {ClaimKind.UNSEEN} else not kinds


def scratch_facts(directory: str | Path, root: Path = tree.ROOT) -> ScratchFacts:
    """Return the storage and capabilities of a directory for scratch files.

    For one that does not exist yet, the nearest existing directory above it is used; nothing is created.
    """
    backing = backing_of(directory, root)
    size: int | Unknown = RECORDED
    free: int | Unknown = RECORDED
    direct: bool | Unknown = RECORDED
    block: int | Unknown = RECORDED
    if root == tree.ROOT:
        place = _existing(Path(directory))
        size, free = _space(place)
        direct, block = _try_direct(place)
    return ScratchFacts(
        directory=str(directory),
        backing=backing,
        size_bytes=size,
        free_bytes=free,
        direct_io=direct,
        direct_block_bytes=block,
    )


def _existing(directory: Path) -> Path:
    place = directory.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place


def _space(place: Path) -> tuple[int | Unknown, int | Unknown]:
    try:
        status = os.statvfs(place)
    except OSError as error:
        unknown = Unknown(f"{place}: {_words(error)}")
        return unknown, unknown
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _try_direct(place: Path) -> tuple[bool | Unknown, int | Unknown]:
    """Write with O_DIRECT, and check that the written data is not in the page cache."""
    try:
        descriptor = _nameless(place)
    except OSError as error:
        unknown = Unknown(f"no file could be made in {place}: {_words(error)}")
        return (False if error.errno == errno.EINVAL else unknown), unknown
    try:
        buffer = mmap.mmap(-1, _TRIED_BYTES)
        os.pwrite(descriptor, buffer, 0)
        held = cachestat(f"/proc/self/fd/{descriptor}")
        if isinstance(held, Residency) and held.cached_bytes:
            return False, Unknown("O_DIRECT is taken, and goes through the page cache all the same")
        return True, _smallest_block(descriptor, buffer)
    except OSError as error:
        return False, Unknown(f"a write with O_DIRECT failed: {_words(error)}")
    finally:
        os.close(descriptor)


def _nameless(place: Path) -> int:
    """Open an unnamed file, or one that is removed at once if the filesystem has no unnamed files."""
    try:
        return os.open(place, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    made, name = tempfile.mkstemp(prefix="virtune-probe-", dir=place)
    try:
        return os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    finally:
        os.close(made)
        Path(name).unlink()


def _smallest_block(descriptor: int, buffer: mmap.mmap) -> int | Unknown:
    for block in _BLOCKS:
        try:
            os.preadv(descriptor, [memoryview(buffer)[:block]], block)
        except OSError:
            continue
        return block
    return Unknown(f"O_DIRECT takes blocks of more than {_BLOCKS[-1]} bytes")


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
