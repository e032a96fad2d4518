# SPDX-License-Identifier: Apache-2.0
"""A recording of `virtune top`: JSON lines, from which the same frames come again.

The first line says what the file is, a line with `vms` which VMs run from there on, and every other line is a sample:
QEMU's counters, the virtqueues, and the kernel's counters as they were read.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from virtune import __version__
from virtune.analyse.trial.counters import read_counters
from virtune.model.errors import StoreError, VirtuneError
from virtune.model.live import DiskCount, LiveSample, LiveVm, RingCount

RECORDING = "virtune/top-recording/2"
READABLE = ("virtune/top-recording/1", RECORDING)
"""Those of the first kind count no discards, no failed requests and no stalls."""

VMS = b'{"vms":'
"""How a line begins that says which VMs run."""

_Natural = Annotated[int, Field(ge=0, strict=True)]
_Real = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[tuple[_Natural | None, ...], Field(min_length=9)]
_Ring = Annotated[tuple[_Real, ...], Field(min_length=6)]
"""The values of a count in the order of its fields; those that came later are missing in older recordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    schema: str
    kernel: dict[str, Any]
    virtune: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningVms:
    """Which VMs run from a line of a recording on, and what cannot be seen of them."""

    vms: tuple[LiveVm, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    kernel: dict[str, Any]
    counts: dict[str, dict[str, _Count]] = field(default_factory=dict)
    rings: dict[str, dict[str, tuple[_Ring, ...]]] = field(default_factory=dict)


_read_header = TypeAdapter(_Header).validate_json
_read_vms = TypeAdapter(RunningVms).validate_json
_read_line = TypeAdapter(_Line).validate_json
_read_count = TypeAdapter(DiskCount).validate_python
_read_ring = TypeAdapter(RingCount).validate_python


def header_line(kernel: bytes) -> bytes:
    """Return the first line of a recording; `kernel` is the first line of the kernel's counters."""
    return _written({"schema": RECORDING, "virtune": __version__, "kernel": json.loads(kernel)})


def vms_line(sample: LiveSample) -> bytes:
    """Return the line that says which VMs run."""
    return _written({"vms": [dataclasses.asdict(one) for one in sample.vms], "missing": sample.missing})


def sample_line(sample: LiveSample) -> bytes:
    """Return the line of a sample."""
    counts = {vm: {disk: _values(one) for disk, one in disks.items()} for vm, disks in sample.counts.items()}
    rings = {
        vm: {disk: [_values(one) for one in some] for disk, some in disks.items()}
        for vm, disks in sample.rings.items()
    }
    head = json.dumps({"counts": counts, "rings": rings}, separators=(",", ":")).encode()
    return head[:-1] + b',"kernel":' + sample.kernel.rstrip() + b"}\n"


def read_header(line: bytes) -> bytes:
    """Return the first line of the kernel's counters, by the first line of a recording; raises StoreError."""
    try:
        found = _read_header(line)
    except (ValidationError, ValueError):
        raise StoreError(
            "this is no recording of `virtune top`", hint="`virtune top --record FILE` makes one"
        ) from None
    if found.schema not in READABLE:
        raise StoreError(f"this is a file of the kind {found.schema[:60]!r}, not {RECORDING!r}")
    return _written(found.kernel)


def read_vms(line: bytes, number: int) -> RunningVms:
    """Read a line that says which VMs run; raises StoreError with its number."""
    try:
        return _read_vms(line)
    except (ValidationError, ValueError):
        raise StoreError(f"the recording is damaged: line {number} does not say which VMs run") from None


def read_sample(header: bytes, line: bytes, number: int, running: RunningVms) -> LiveSample:
    """Read a sample; `header` is of the kernel's counters. Raises StoreError with the number of its line."""
    try:
        found = _read_line(line)
        kernel = _written(found.kernel)
        return LiveSample(
            kernel=kernel,
            host=read_counters(header + kernel).samples[0],
            vms=running.vms,
            counts={
                vm: {disk: _read_count(_named(DiskCount, values)) for disk, values in disks.items()}
                for vm, disks in found.counts.items()
            },
            rings={
                vm: {disk: tuple(_read_ring(_named(RingCount, one)) for one in some) for disk, some in disks.items()}
                for vm, disks in found.rings.items()
            },
            missing=running.missing,
        )
    except (ValidationError, ValueError, VirtuneError):
        raise StoreError(f"the recording is damaged: line {number} is no sample") from None


def _named(kind: type[DiskCount] | type[RingCount], values: Sequence[float | None]) -> dict[str, float | None]:
    return dict(zip((one.name for one in dataclasses.fields(kind)), values, strict=False))


def _values(one: DiskCount | RingCount) -> list[Any]:
    return [getattr(one, name.name) for name in dataclasses.fields(one)]


def _written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
