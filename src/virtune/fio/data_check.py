# SPDX-License-Identifier: Apache-2.0
"""The load that checks whether a disk keeps its data: a pattern that is written to it and read back from it.

A block holds a mark and its own offset, again and again, so that anyone who knows the mark can tell what must be
there: fio (`verify=pattern`), virtune-load with the same words, and whoever reads the image outside of its stack. The
begin of the disk is written in small blocks and its end in large ones, and between them places at equal distances,
from where a seed says.

So what is lost in one piece as long as that distance, a 32nd of the disk at most, is always found. Of blocks that are
lost or torn here and there, with probability q each, one of the n that are checked is found with probability
1 - (1 - q)^n. Of 1 GiB n is 4224: of one bad block in a thousand 98.5 % of checks find one, of one in a hundred all.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from virtune.fio.generator import FIO, Clients, program_for
from virtune.fio.job import FioJob, fio_job, targets_of
from virtune.model.stack import Target, VhostUserTarget
from virtune.model.text import format_bytes
from virtune.model.workload import Workload, job

Step = Literal["write", "read", "refill"]
"""What is done: the pattern is written and flushed, read back, and at last replaced by random data, since a disk that
compresses would serve the pattern faster than what else is measured.
"""

STEPS: tuple[Step, ...] = ("write", "read")

_SMALL, _LARGE = 4096, 64 * 1024
_SMALL_BYTES, _LARGE_BYTES = 4 * 1024**2, 8 * 1024**2
_PLACES, _PLACE_BYTES = 32, 384 * 1024
"""4096 small blocks and 128 large ones: some tenths of a second on a drive, seconds on an emulated guest's."""

_DEPTH, _DEPTH_OF_PLACES = "16", "4"
_MORE_THAN_ALL = "1000000"
"""A job with a number of I/Os ends without a run time; it ends with its extent, long before this number."""

_FOUND = re.compile(r"verify failed at (?:file .* )?offset (\d+)")

_FAILED = ("verify type mismatch", "Invalid or incomplete multibyte")
"""What fio says of data that differs where it does not say the place, the latter for its error EILSEQ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A part of the disk, written in blocks of one size, in bytes; at so many `places`, each `step` further."""

    name: str
    offset: int
    size: int
    block: int
    places: int = 1
    step: int = 0

    def each(self) -> Iterator["Region"]:
        """Yield each of its places as a region of its own."""
        for number in range(self.places):
            yield replace(self, offset=self.offset + number * self.step, places=1, step=0)

    def blocks(self, mark: str) -> Iterator[tuple[int, bytes]]:
        """Yield the offset of each block of one place, and what it must hold."""
        for offset in range(self.offset, self.offset + self.size, self.block):
            yield offset, (mark.encode() + offset.to_bytes(8, "little")) * (self.block // 16)


def regions_of(size_bytes: int, seed: int) -> tuple[Region, ...]:
    """Return the parts that are checked of a disk of this size, which is at least two large blocks. The seed decides
    where the places between its begin and its end lie, if there is room for them.
    """
    end = size_bytes // _LARGE * _LARGE
    quarter = size_bytes // 4 // _LARGE * _LARGE
    small, large = min(_SMALL_BYTES, quarter), min(_LARGE_BYTES, quarter)
    step = (end - large - small) // _PLACES // _SMALL * _SMALL
    if not quarter or not step:
        half = size_bytes // 2 // _LARGE * _LARGE
        small, large = min(_SMALL_BYTES, half), min(_LARGE_BYTES, half)
    parts = (
        Region(name="begin", offset=0, size=small, block=_SMALL),
        Region(name="end", offset=end - large, size=large, block=_LARGE),
    )
    if not quarter or not step:
        return parts
    each = min(_PLACE_BYTES, step)
    phase = Random(f"data {seed}").randrange((step - each) // _SMALL + 1) * _SMALL  # noqa: S311 - a place, no secret
    return (*parts, Region(name="spread", offset=small + phase, size=each, block=_SMALL, places=_PLACES, step=step))


def checked(regions: Iterable[Region], size_bytes: int) -> str:
    """Say how much of a disk is checked: `24 MiB of 1 GiB at 34 places`."""
    each = [place for region in regions for place in region.each()]
    size = format_bytes(sum(place.size for place in each))
    return f"{size} of {format_bytes(size_bytes)} at {len(each)} places"


def data_workload(step: Step, regions: Iterable[Region], *, disks: int = 1) -> Workload:
    """Return the workload of a step on these parts of so many disks."""
    writes = {} if step == "read" else {"end_fsync": "1"}
    jobs = tuple(
        job(
            region.name,
            {
                "rw": "read" if step == "read" else "write",
                "bs": str(region.block),
                "iodepth": _DEPTH if region.places == 1 else _DEPTH_OF_PLACES,
                "numjobs": str(disks * region.places),
                "offset": str(region.offset),
                **({"offset_increment": str(region.step)} if region.step else {}),
                "size": str(region.size),
                "number_ios": _MORE_THAN_ALL,
                **writes,
            },
        )
        for region in regions
    )
    return Workload(name="data-check", meaning="checks that the disk keeps its data", jobs=jobs)


def parts_for(target: Target, clients: Clients, seed: int) -> tuple[Region, ...]:
    """Return the parts that are checked of a target. Raises PreconditionError where nothing here can load it."""
    regions = regions_of(target.size_bytes, seed)
    if isinstance(target, VhostUserTarget) and program_for(data_workload("write", regions), target, clients) == FIO:
        return regions[: min(2, target.queues)]  # fio gives each clone a queue
    return regions


def data_job(step: Step, target: Target, *, mark: str, clients: Clients, seed: int) -> tuple[FioJob, Workload]:
    """Return the job of a step, and its workload; `mark` is eight letters or digits, `seed` decides the places.

    Raises PreconditionError where nothing here can load this target.
    """
    workload = data_workload(step, parts_for(target, clients, seed), disks=len(targets_of(target)))
    program = program_for(workload, target, clients)
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
