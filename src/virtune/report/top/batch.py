# SPDX-License-Identifier: Apache-2.0
"""Frames as CSV for other programs: a row for each disk and interval, in base units."""

import csv
import io
from collections.abc import Iterator

from virtune.model.frame import DiskFrame, TopFrame
from virtune.model.text import spreadsheet_cell
from virtune.report.top.tables import letter_of

LAYERS = {"v": "virtqueue_ns", "q": "qemu_ns", "d": "device_ns", "=": "joined_ns"}
"""The column of each layer; `joined_ns` is of layers that are not told apart."""

CSV_COLUMNS = (
    "time", "seconds", "vm", "disk", "iops", "read_iops", "write_iops", "flushes_per_second", "bandwidth_bps",
    "read_bps", "write_bps", "latency_ns", *LAYERS.values(), "in_flight", "cpu_per_io_ns", "cause", "limit_used",
    "read_latency_ns", "write_latency_ns", "flush_latency_ns", "discards_per_second", "discard_latency_ns",
    "failed_per_second",
)  # fmt: skip


def csv_head() -> str:
    """Return the line of column names."""
    return _line(CSV_COLUMNS)


def csv_rows(frame: TopFrame) -> str:
    """Return a line for each disk; a value that is unknown is empty."""
    return "".join(_line(_cells(frame, one)) for one in frame.disks)


def _cells(frame: TopFrame, one: DiskFrame) -> Iterator[object]:
    rates, seconds = one.rates, one.rates.seconds
    yield from (f"{frame.wall_seconds:.3f}", repr(seconds), spreadsheet_cell(one.vm), spreadsheet_cell(one.disk))
    yield from (one.path.iops, rates.reads / seconds, rates.writes / seconds, rates.flushes / seconds)
    yield from (one.path.bandwidth, rates.read_bytes / seconds, rates.written_bytes / seconds, one.latency_ns)
    layers = () if one.path.layers is None else one.path.layers.layers
    for letter in LAYERS:
        mine = [layer.mean_ns for layer in layers if letter_of(layer) == letter]
        yield sum(mine) if mine else None
    yield from (one.in_flight, one.cpu_per_io_ns, one.found.cause.value, one.path.limit_used)
    kinds = {each.kind: each for each in one.path.operations}
    yield from (kinds[name].mean_ns for name in ("read", "write", "flush"))
    discards = kinds.get("discard")
    yield from (None, None) if discards is None else (discards.iops, discards.mean_ns)
    yield None if rates.failed is None else rates.failed / seconds


def _line(cells: object) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)  # type: ignore[arg-type]
    return text.getvalue()
