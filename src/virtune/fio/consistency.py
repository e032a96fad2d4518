# SPDX-License-Identifier: Apache-2.0
"""Check that a fio result is consistent: its numbers of I/Os, bytes and rates must agree."""

from virtune.model.errors import ReadError
from virtune.model.measurement import FioResult, Stream
from virtune.model.units import format_bandwidth, format_bytes, format_count

IOS_ENOUGH = 1000
"""With fewer I/Os, those in flight at the end of the ramp matter: fio counts their bytes, but not the I/Os."""

FACTOR_MAX = 2.0
"""fio derives both rates from the same counts and the same time, so they agree within rounding; a result in which
they differ by this much was written or changed by something else."""


def require_consistent(result: FioResult) -> FioResult:
    """Return a result unchanged; raises ReadError for an inconsistent one."""
    for load in result.loads:
        for stream in load.streams:
            where = f"{load.name or 'a job'}, {stream.direction}"
            why = _rates(stream) or _counts(stream)
            if why is not None:
                raise ReadError(f"this fio result contradicts itself ({where}): {why}", hint=_HINT)
    return result


def _rates(stream: Stream) -> str | None:
    """Check IOPS against bandwidth, by the size of an I/O."""
    if not stream.ios or not stream.bytes or stream.ios < IOS_ENOUGH or not stream.iops or not stream.bandwidth_bps:
        return None
    each, said = stream.bytes / stream.ios, stream.bandwidth_bps / stream.iops
    # a rate too small for a float divides to 0, which is no size that an I/O had
    if said and max(each / said, said / each) <= FACTOR_MAX:
        return None
    expected = stream.iops * each
    return (
        f"{format_count(stream.iops)} IOPS of {format_bytes(each)} are {format_bandwidth(expected)}, "
        f"and it says {format_bandwidth(stream.bandwidth_bps)}"
    )


def _counts(stream: Stream) -> str | None:
    """Check the number of I/Os against the number of their latencies."""
    counted = next((kind.count for kind in (stream.lat, stream.clat) if kind is not None and kind.count), None)
    if not counted or not stream.ios or min(counted, stream.ios) < IOS_ENOUGH:
        return None
    if max(counted / stream.ios, stream.ios / counted) <= FACTOR_MAX:
        return None
    return f"it counts {stream.ios:,} I/Os and {counted:,} latencies"


_HINT = "measure again with the fio of your distribution; was the result edited, or written by something else?"
