# SPDX-License-Identifier: Apache-2.0
"""The load that checks whether a disk keeps its data: a pattern that is written to it and read back from it.

A block holds a mark and its own offset, again and again, so that anyone who knows the mark can tell what must be
there: fio (`verify=pattern`), virtune-load with the same words, and whoever reads the image outside of its stack. The
begin of the disk is written in small blocks and its end in large ones.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from virtune.fio.exported import FIO, Clients, program_for
from virtune.fio.job import FioJob, fio_job
from virtune.fio.several import targets_of
from virtune.model.target import Target, VhostUserTarget
from virtune.model.workload import Workload, job

Step = Literal["write", "read", "refill"]
"""What is done: the pattern is written and flushed, read back, and at last replaced by random data, since a disk that
compresses would serve the pattern faster than what else is measured.
"""

STEPS: tuple[Step, ...] = ("write", "read")

_SMALL, _LARGE = 4096, 64 * 1024
_SMALL_BYTES, _LARGE_BYTES = 8 * 1024**2, 16 * 1024**2
"""2048 small blocks and 256 large ones: some tenths of a second on a drive, seconds on an emulated guest's."""

_DEPTH = "16"
_MORE_THAN_ALL = "1000000"
"""A job with a number of I/Os ends without a run time; it ends with its extent, long before this number."""

_FOUND = re.compile(r"verify failed at (?:file .* )?offset (\d+)")

_FAILED = ("verify type mismatch", "Invalid or incomplete multibyte")
"""What fio says of data that differs where it does not say the place, the latter for its error EILSEQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the disk that is written in blocks of one size, in bytes."""

    name: str
    offset: int
    size: int
    block: int

    def blocks(self, mark: str) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each block, and what it must hold."""
        for offset in range(self.offset, self.offset + self.size, self.block):
            yield offset, (mark.encode() + offset.to_bytes(8, "little")) * (self.block // 16)


def regions_of(size_bytes: int) -> tuple[Region, Region]:
    """Return the parts that are checked of a disk of this size, which is at least two large blocks."""
    half = size_bytes // 2 // _LARGE * _LARGE
    last = min(_LARGE_BYTES, half)
    return (
        Region(name="begin", offset=0, size=min(_SMALL_BYTES, half), block=_SMALL),
        Region(name="end", offset=size_bytes // _LARGE * _LARGE - last, size=last, block=_LARGE),
    )


def data_workload(step: Step, size_bytes: int, *, disks: int = 1, parts: int = 2) -> Workload:
    """Return the workload of a step on so many disks of this size, with that many of the parts."""
    writes = {} if step == "read" else {"end_fsync": "1"}
    jobs = tuple(
        job(
            region.name,
            {
                "rw": "read" if step == "read" else "write",
                "bs": str(region.block),
                "iodepth": _DEPTH,
                "numjobs": str(disks),
                "offset": str(region.offset),
                "size": str(region.size),
                "number_ios": _MORE_THAN_ALL,
                **writes,
            },
        )
        for region in regions_of(size_bytes)[:parts]
    )
    return Workload(name="data-check", meaning="checks that the disk keeps its data", jobs=jobs)


def data_job(step: Step, target: Target, *, mark: str, clients: Clients) -> tuple[FioJob, Workload]:
    """Return the job of a step, and its workload; `mark` is eight letters or digits.

    Raises PreconditionError where nothing here can load this target.
    """
    disks = len(targets_of(target))
    workload = data_workload(step, target.size_bytes, disks=disks)
    program = program_for(workload, target, clients)
    if isinstance(target, VhostUserTarget) and program == FIO and target.queues < len(workload.jobs):
        workload = data_workload(step, target.size_bytes, disks=disks, parts=1)  # fio gives each job a queue
    made = fio_job(workload, target, seconds=1.0, ramp_seconds=0.0, seed=1, clients=clients)
    if step == "refill":
        return made, workload
    words = ["verify=pattern", f'verify_pattern="{mark}"%o']
    if program == FIO:
        # nothing is left in the directory of whoever runs fio, and the first difference ends it
        words += ["verify_fatal=1", "verify_state_save=0", *(["do_verify=0"] if step == "write" else [])]
    begin = "[global]\n"
    return replace(made, text=made.text.replace(begin, begin + "".join(f"{word}\n" for word in words), 1)), workload


def difference_in(said: str) -> str | None:
    """Return where a load found something else than was written, from what it said at its end; None if it failed
    for another reason.
    """
    if found := _FOUND.search(said):
        return f"byte {found[1]}"
    return "a place that fio does not name" if any(words in said for words in _FAILED) else None
