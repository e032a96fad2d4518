# SPDX-License-Identifier: Apache-2.0
"""The limits and the numbers of a disk in QEMU's words, and which of them QEMU refuses (pure).

Tried with QEMU 7.2; throttle_is_valid in its util/throttle.c, set_blocksize in its hw/core/qdev-properties-system.c.
"""

import re
from collections.abc import Iterator, Mapping

from virtune.model.stack import LIMITS

_LIMITS = {limit.qmp: limit.libvirt for limit in LIMITS}
_OLD_LIMITS = {limit.drive: limit.qmp for limit in LIMITS}
_UNITS, _WAYS = ("bytes_sec", "iops_sec"), ("total", "read", "write")

LIMIT_MAX = 10**15
"""THROTTLE_VALUE_MAX, and libvirt's QEMU_BLOCK_IOTUNE_MAX."""

SECTOR_MIN, SECTOR_MAX = 512, 2 * 1024**2
ROTATION_MAX = 2**16 - 1
_SECTORS = ("logical_block_size", "physical_block_size")
_COUNTS = ("num-queues", "queue-size")
_NUMBER = re.compile(r"(-?\d{1,18})([kKmM]?)", re.ASCII)
_SCALE = {"": 1, "k": 1024, "m": 1024**2}

Said = tuple[str, str]
"""What is refused, and what to do about it (or nothing)."""


def limits_of(options: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield limits by libvirt's names, as a group (`limits.iops-total`, `x-iops-total`) or a drive has them
    (`throttling.iops-total`, `iops`); 0 is none.
    """
    for key, text in options.items():
        word = key.removeprefix("limits.").removeprefix("throttling.").removeprefix("x-")
        old, _, ending = word.partition("_max")
        if old in _OLD_LIMITS:
            word = _OLD_LIMITS[old] + ("-max" if "_max" in word else "") + ending.replace("_", "-")
        base = word.removesuffix("-length").removesuffix("-max")
        value = _number(text)
        if base in _LIMITS and value:
            yield _LIMITS[base] + word[len(base) :].replace("-", "_"), value


def above_zero(limits: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the limits that a disk can have."""
    return ((name, value) for name, value in limits.items() if value > 0)


def _number(text: str) -> int:
    found = _NUMBER.fullmatch(text)
    return int(found[1]) * _SCALE[found[2].lower()] if found else 0


def refused_limits(values: Mapping[str, int], name: str = "the disk") -> Iterator[Said]:
    """Yield what QEMU refuses of the limits of one disk or group, by libvirt's names."""
    for unit in _UNITS:
        for word in (unit, f"{unit}_max"):
            each = [f"{way}_{word}" for way in _WAYS[1:] if values.get(f"{way}_{word}")]
            if values.get(f"total_{word}") and each:
                yield f"{name} has a limit for all ({word}) and {each[0]}: it is one or the other", "take one away"
        for way in _WAYS:
            base, burst = values.get(f"{way}_{unit}", 0), values.get(f"{way}_{unit}_max", 0)
            if burst and not base:
                yield f"a burst ({way}_{unit}_max) of {name} needs the limit {way}_{unit} that it may go beyond", ""
            elif burst and burst < base:
                yield f"the burst {way}_{unit}_max of {name} is lower than its limit", ""
            if values.get(f"{way}_{unit}_max_length", 0) > 1 and not burst:
                yield f"{way}_{unit}_max_length of {name} is the length of a burst, and it has none", ""
    if any(not 0 <= value <= LIMIT_MAX for value in values.values()):
        yield f"a limit of {name} is below 0, or larger than {LIMIT_MAX:,}, the most that is taken", ""


def refused_numbers(device: Mapping[str, str], name: str = "the disk") -> Iterator[Said]:
    """Yield what QEMU refuses of the sizes of sectors and the rotation rate of a disk's device; 0 is its default."""
    sizes = [_number(device.get(word, "0")) for word in _SECTORS]
    wrong = [
        (word, size)
        for word, size in zip(_SECTORS, sizes, strict=True)
        if size and (size & (size - 1) or not SECTOR_MIN <= size <= SECTOR_MAX)
    ]
    for word, size in wrong:
        yield f"{word}={size} of {name}", f"QEMU takes a power of two from {SECTOR_MIN} to {SECTOR_MAX:,}"
    if not wrong and sizes[0] > (sizes[1] or SECTOR_MIN):
        yield (
            f"the physical blocks of {name} cannot be smaller than its sectors of {sizes[0]} bytes",
            "set physical_block_size as well",
        )
    for word in _COUNTS:
        if _number(device.get(word, "0")) < 0:
            yield f"{word}={device[word]} of {name}", "QEMU takes none below 0"
    rate = _number(device.get("rotation_rate", "0"))
    if not 0 <= rate <= ROTATION_MAX:
        yield f"{name} turns {rate:,} times a minute, and QEMU takes at most {ROTATION_MAX:,}", ""
