# SPDX-License-Identifier: Apache-2.0
"""The load of a running VM's disk as fio options, from QEMU's counters.

Counters give the number of reads and writes, their mean size, queue depth and rate. They do not give the offsets:
random access is assumed, which read-ahead and caches do not flatter.
"""

import math

from virtune.model.live import DiskRates

_BLOCK_MIN, _BLOCK_MAX = 512, 1024**2


def workload_words(rates: DiskRates) -> str:
    """Return the load as fio options, as `--workload` takes them; empty where nothing was read or written."""
    if rates.requests <= 0:
        return ""
    reads, writes = rates.reads, rates.writes
    mixed = reads > 0 and writes > 0
    words = [f"rw={'randrw' if mixed else 'randread' if reads else 'randwrite'}"]
    if mixed:
        words.append(f"rwmixread={min(99, max(1, round(100 * reads / rates.requests)))}")
    sizes = [_block(rates.read_bytes, reads), _block(rates.written_bytes, writes)]
    told = [size for size, count in zip(sizes, (reads, writes), strict=True) if count]
    words.append(f"bs={_size(told[0])}" if len(set(told)) == 1 else f"bs={_size(told[0])},{_size(told[-1])}")
    # an idle disk has nothing in flight, so the depth is averaged over the busy time
    words.append(f"iodepth={max(1, round(rates.in_flight))}")
    if rates.flushes and writes:
        words.append(f"fsync={max(1, round(writes / rates.flushes))}")
    return ",".join(words)


def rate_words(rates: DiskRates) -> str:
    """Return the rate of I/Os as fio options."""
    return f"rate_iops={max(1, round(rates.requests / rates.seconds))}"


def _block(total: int, count: int) -> int:
    """Return the power of two nearest to the mean size of a request."""
    if not count or total <= 0:
        return _BLOCK_MIN
    return int(min(_BLOCK_MAX, max(_BLOCK_MIN, 2 ** round(math.log2(total / count)))))


def _size(size: int) -> str:
    return f"{size // 1024}k" if size % 1024 == 0 else str(size)
