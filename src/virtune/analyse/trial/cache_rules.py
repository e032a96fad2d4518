# SPDX-License-Identifier: Apache-2.0
"""Rules on what served the I/Os: the disk, the page cache, or the file system without reading any block."""

from collections.abc import Iterator

from virtune.fio.job_options import SYNCHRONOUS
from virtune.model.gate import GATE_BY_ID
from virtune.model.measurement import FioResult, LoadResult, Stream
from virtune.model.remark import Remark, Weight
from virtune.model.remark_kinds import CACHED_SYNC, UNSERVED
from virtune.model.units import format_bytes, format_ns, format_share

CACHEABLE = SYNCHRONOUS - {"dev-dax", "libpmem"} | {"libaio", "posixaio", "io_uring"}
"""Engines that open files or block devices through the kernel, so that `direct=` decides about the page cache."""

NO_DEVICE_NS = 2_000
"""No block device completes an I/O in 2 us: the request, its transfer over PCIe and the interrupt take longer than
that on the quickest drives, which need 5 us and more. Anything faster was copied from memory (or never submitted)."""

SERVED_SHARE = 0.5
"""If the device saw less than this share of fio's I/Os, most were served by something else. fio's device counters
miss up to half a second of a run, hence the wide margin and COUNTED_SECONDS."""

WRITTEN_SHARE = 0.8
"""From this share of fio's bytes on, the device kept up with the page cache; the rest was not yet written back."""

COUNTED_SECONDS = 2.0
"""fio reads the device counters every 250 ms; in shorter runs what it misses is too large a share."""


def page_cache(result: FioResult) -> Iterator[Remark]:
    """Judge by `page-cache`."""
    loads = [load for load in result.loads if load.engine is None or load.engine in CACHEABLE]
    if len(loads) < len(result.loads) or not any(load.streams for load in loads):
        return
    served = _served(result)
    signs = [*_too_fast(loads), *([_missed(result, served)] if served is not None and served < SERVED_SHARE else [])]
    buffered = [load for load in loads if load.direct is False and not _syncs(load)]
    if signs and all(load.direct for load in loads):
        yield UNSERVED.remark(
            text=f"No disk answered these I/Os, although direct=1 was set: {'; '.join(signs)}. Blocks that were never"
            " written are answered without asking the device, and some file systems ignore O_DIRECT.",
        )
    elif signs and (moved := _moved(result)) is not None and moved[0] >= WRITTEN_SHARE:
        yield _kept_up(result, [*map(_how_buffered, buffered[:1]), *signs], *moved)
    elif signs or buffered:
        yield _page_cache(buffered, signs, served, _reached(result))


def _page_cache(buffered: list[LoadResult], signs: list[str], served: float | None, reached: str | None) -> Remark:
    advice = "run it again with direct=1, on a file that was written once in full"
    how = [_how_buffered(load) for load in buffered[:1]]
    if signs:
        text = f"This measured the page cache, not the disk: {'; '.join([*how, *signs])}." + (reached or "")
        return GATE_BY_ID["page-cache"].remark(weight=Weight.INVALID, text=text, advice=advice)
    if served is not None and buffered[0].engine != "mmap":
        text = (
            f"The page cache stood between fio and the disk: {how[0]}. The device completed"
            f" {format_share(served)} as many"
            " requests as fio, so the cache was mostly cold, but its work is in the numbers."
        )
        return GATE_BY_ID["page-cache"].remark(weight=Weight.WARNING, text=text, advice=advice)
    ios = sum(stream.ios or 0 for load in buffered for stream in load.streams)
    text = f"This went through the page cache: {how[0]}." + (
        reached or f" Nothing shows how many of its {ios:,} I/Os reached a disk."
    )
    return GATE_BY_ID["page-cache"].remark(weight=Weight.INVALID, text=text, advice=advice)


def _reached(result: FioResult) -> str | None:
    """Say what share of fio's bytes the device moved meanwhile; None where that was not counted."""
    moved = _moved(result)
    if moved is None:
        return None
    names = ", ".join(dict.fromkeys(device.name for device in result.devices))
    return (
        f" Meanwhile {names} moved {format_share(moved[0])} of as many bytes, those of its other users included, in"
        f" requests of {format_bytes(moved[1])}."
    )


def _moved(result: FioResult) -> tuple[float, float] | None:
    """The share of fio's bytes that the devices moved, and how large their requests were; None where not counted."""
    streams = [stream for load in result.loads for stream in load.streams]
    reading = any(stream.direction != "write" for stream in streams)
    writing = any(stream.direction != "read" for stream in streams)
    counted = [
        (size, requests)
        for device in result.devices
        for size, requests, on in (
            (device.read_bytes, device.reads, reading),
            (device.written_bytes, device.writes, writing),
        )
        if on
    ]
    asked = sum(stream.bytes or 0 for stream in streams)
    sizes = [size for size, _ in counted if size is not None]
    requests = sum(number for _, number in counted)
    if not asked or not requests or not sizes or len(sizes) < len(counted):
        return None
    return sum(sizes) / asked, sum(sizes) / requests


def _kept_up(result: FioResult, signs: list[str], share: float, request: float) -> Remark:
    names = ", ".join(dict.fromkeys(device.name for device in result.devices))
    return GATE_BY_ID["page-cache"].remark(
        weight=Weight.WARNING,
        text=f"The latencies and the operations a second are the page cache's: {'; '.join(signs)}. The bandwidth is"
        f" that of {names}, which moved {format_share(share)} of the bytes, in requests of {format_bytes(request)}.",
        advice="compare bandwidth only; run it again with direct=1 for the latency of the disk",
    )


def _how_buffered(load: LoadResult) -> str:
    return "mmap always goes through it" if load.engine == "mmap" else "the job is buffered (direct=1 was not set)"


def _too_fast(loads: list[LoadResult]) -> Iterator[str]:
    for load in loads:
        for stream in load.streams:
            if stream.clat is not None and stream.clat.mean_ns < NO_DEVICE_NS:
                yield (
                    f"a {one(stream)} completes in {format_ns(stream.clat.mean_ns)} in the mean (clat), and no device"
                    f" does within {format_ns(NO_DEVICE_NS)}"
                )
                return


def _served(result: FioResult) -> float | None:
    """The share of fio's I/Os that the devices completed; None if unknown.

    Requests are comparable for random I/O only: sequential I/O is merged and read ahead into larger ones.
    """
    patterns = [load.pattern or "" for load in result.loads]
    streams = [stream for load in result.loads for stream in load.streams]
    asked = sum(stream.ios or 0 for stream in streams)
    long_enough = all((stream.seconds or 0) >= COUNTED_SECONDS for stream in streams)
    if not result.devices or not asked or not long_enough or not all(p.startswith("rand") for p in patterns):
        return None
    return _device_requests(result, streams) / asked


def _device_requests(result: FioResult, streams: list[Stream]) -> int:
    directions = {stream.direction for stream in streams}
    reads = sum(device.reads + (device.read_merges or 0) for device in result.devices)
    writes = sum(device.writes + (device.write_merges or 0) for device in result.devices)
    both = "mixed" in directions
    return (reads if both or "read" in directions else 0) + (writes if both or directions - {"read"} else 0)


def _missed(result: FioResult, served: float) -> str:
    streams = [stream for load in result.loads for stream in load.streams]
    requests, asked = _device_requests(result, streams), sum(stream.ios or 0 for stream in streams)
    names = ", ".join(dict.fromkeys(device.name for device in result.devices))
    return f"of fio's {asked:,} I/Os, {names} saw {requests:,} requests ({format_share(served, 1)})"


def _syncs(load: LoadResult) -> bool:
    """Whether the writes are made durable: by fsync, or by opening with O_SYNC."""
    return load.sync is not None or load.option("sync") not in (None, "0", "none")


def cached_sync(result: FioResult) -> Iterator[Remark]:
    """Judge by `cached-sync`."""
    for load in result.loads:
        writes = [stream for stream in load.streams if stream.direction == "write" and stream.clat is not None]
        if load.direct is not False or load.sync is None or not load.sync.count or not writes:
            continue
        clat = writes[0].clat
        if clat is not None and writes[0].ios:
            yield CACHED_SYNC.remark(
                text=f"The write latency ({format_ns(clat.mean_ns)} mean) is the page cache's: the job is buffered."
                f" The disk is in the sync, {format_ns(load.sync.mean_ns)} mean, one for every"
                f" {writes[0].ios / load.sync.count:.3g} writes.",
            )


def one(stream: Stream) -> str:
    """Return the word for one operation of a stream."""
    return "request" if stream.direction == "mixed" else stream.direction
