# SPDX-License-Identifier: Apache-2.0
"""The load of a running VM's disk as fio options, from QEMU's counters and its virtqueue.

Counters give the number of reads and writes, their mean size, queue depth and rate. They do not give the offsets,
which only the requests in the virtqueue show. Where these are not seen random access is assumed, which read-ahead and
caches do not flatter.
"""

import math
from collections.abc import Sequence

from virtune.model.live import DiskRates, Move

_BLOCK_MIN, _BLOCK_MAX = 512, 1024**2

_SECTOR = 512

_MOVES_MIN = 30
"""With fewer looks at the virtqueue nothing is said of places: the standard error of a share is up to 9 %."""

_NEAR = 2.0
"""A later request follows an earlier one if it begins at most so many times as far beyond it as the bytes between
them: requests differ in size, and only their mean is known."""

_WHOLLY = 0.1
"""Up to this share of the others a load counts as random, or as sequential."""


def sequential_share(moves: Sequence[Move], rates: DiskRates) -> float | None:
    """Return the share of requests (0..1) that follow those before them on the disk; None where too few were seen."""
    data = rates.reads + rates.writes
    if len(moves) < _MOVES_MIN or data <= 0 or not any(one.sectors for one in moves):
        return None
    each = (rates.read_bytes + rates.written_bytes) / data
    near = [one for one in moves if 0 < one.sectors * _SECTOR <= _NEAR * one.requests * each]
    return len(near) / len(moves)


def workload_words(rates: DiskRates, sequential: float | None = None) -> str:
    """Return the load as fio options, as `--workload` takes them; empty where nothing was read or written.
    `sequential` is the share of requests that follow those before them, None if unknown.
    """
    reads, writes = rates.reads, rates.writes
    if reads + writes <= 0:
        return ""
    mixed = reads > 0 and writes > 0
    share = sequential or 0.0
    wholly = share >= 1 - _WHOLLY
    words = [f"rw={'' if wholly else 'rand'}{'rw' if mixed else 'read' if reads else 'write'}"]
    if not wholly and share > _WHOLLY:
        words.append(f"percentage_random={round(100 * (1 - share))}")
    if mixed:
        words.append(f"rwmixread={min(99, max(1, round(100 * reads / (reads + writes))))}")
    sizes = [_block(rates.read_bytes, reads), _block(rates.written_bytes, writes)]
    told = [size for size, count in zip(sizes, (reads, writes), strict=True) if count]
    words.append(f"bs={_size(told[0])}" if len(set(told)) == 1 else f"bs={_size(told[0])},{_size(told[-1])}")
    # an idle disk has nothing in flight, so the depth is averaged over the busy time
    in_flight = (rates.read_ns + rates.write_ns) / 1e9 / rates.seconds
    words.append(f"iodepth={max(1, round(in_flight))}")
    if rates.flushes and writes:
        words.append(f"fsync={max(1, round(writes / rates.flushes))}")
    return ",".join(words)


def rate_words(rates: DiskRates) -> str:
    """Return the rate of I/Os as fio options."""
    return f"rate_iops={max(1, round((rates.reads + rates.writes) / rates.seconds))}"


def _block(total: int, count: int) -> int:
    """Return the power of two nearest to the mean size of a request."""
    if not count or total <= 0:
        return _BLOCK_MIN
    return int(min(_BLOCK_MAX, max(_BLOCK_MIN, 2 ** round(math.log2(total / count)))))


def _size(size: int) -> str:
    return f"{size // 1024}k" if size % 1024 == 0 else str(size)
