# SPDX-License-Identifier: Apache-2.0
"""The command that gives a disk of a running domain other limits (pure)."""

import shlex

from virtune.dialects.libvirt.domain import FILTERED
from virtune.model.domain import DomainDisk

_LIMITS, _BURSTS, _SIZE = "_sec", "_sec_max", "size_iops_sec"


def limits_command(uri: str, domain: str, now: DomainDisk, wanted: dict[str, int]) -> str | None:
    """Return the command of virsh that gives a running disk the `wanted` limits (by libvirt's names) in place of its
    present ones; None for a disk with limits of groups, which can have none of its own.
    """
    if FILTERED in now.options:
        return None
    # virsh resets what it is not told of a kind of limit, and a burst cannot be without its limit
    names = [name for name in {**dict(now.limits), **wanted} if name.endswith((_LIMITS, _BURSTS))]
    words = [word for name in names for word in (f"--{name.replace('_', '-')}", str(wanted.get(name, 0)))]
    return shlex.join(["virsh", "-c", uri, "blkdeviotune", domain, now.target, *words, "--live"])


def without(limit: str, disk: DomainDisk) -> dict[str, int]:
    """Return the limits of a disk without one of them and its bursts, and without the size of what counts as one
    request where no limit counts them any more, which QEMU refuses.
    """
    left = {name: value for name, value in disk.limits if name != limit and not name.startswith(f"{limit}_max")}
    if not any(value and name.endswith("_iops_sec") and name != _SIZE for name, value in left.items()):
        left.pop(_SIZE, None)
    return left
