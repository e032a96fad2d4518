# SPDX-License-Identifier: Apache-2.0
"""A Workload: the load on the disk, in fio's options."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from virtune.model.text import parse_bytes

WRITING = frozenset(
    {"write", "randwrite", "rw", "readwrite", "randrw", "trim", "randtrim", "trimwrite", "randtrimwrite"}
)
"""fio's `rw` words that change what is on the disk."""

READING = frozenset({"read", "randread", "rw", "readwrite", "randrw"})

BACKGROUND = "background"
"""The name of a background job: it runs beside the others, and its I/Os are not in the result."""

ENDS_ITSELF = frozenset({"number_ios", "io_size", "loops"})
"""With one of these a job file's job ends after an amount of I/O; `time_based` would run it for ever."""

OPERATIONS_MAX = 10_000
"""A job with at most this many I/Os has each of them recorded: time, latency, offset."""

INLINE = "fio: "
"""The beginning of a workload's description if it was given as fio options; the options follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One fio job: its options as fio spells them, values as text. `name` is free of spaces."""

    name: str
    options: tuple[tuple[str, str], ...]

    def get(self, option: str, default: str) -> str:
        return self.as_dict().get(option, default)

    def as_dict(self) -> dict[str, str]:
        return dict(self.options)

    @property
    def pattern(self) -> str:
        """The `rw` word, without an offset modifier such as `randread:8`."""
        return self.get("rw", "read").partition(":")[0]

    @property
    def writes(self) -> bool:
        return self.pattern in WRITING

    @property
    def reads(self) -> bool:
        return self.pattern in READING

    @property
    def recorded(self) -> bool:
        return int(self.get("number_ios", str(OPERATIONS_MAX + 1))) <= OPERATIONS_MAX and self.name != BACKGROUND

    @property
    def depth(self) -> int:
        """I/Os in flight that the job asks for, over all its clones."""
        return int(self.get("iodepth", "1")) * int(self.get("numjobs", "1"))

    @property
    def block_size(self) -> int:
        """Bytes of one read request (the first of a `bs=read,write,trim` triple)."""
        return parse_bytes(self.get("bs", "4k").partition(",")[0].partition("-")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One or more jobs that run together.

    `verbatim` holds a user's own fio job file, which fio gets unchanged; `jobs` was parsed from it to show and to
    judge the result. `offered_iops` is the rate of an open loop, None for a closed loop (a new I/O starts when an
    earlier one has ended). Only the baseline runs a `probe`, which finds its saturation.
    """

    name: str
    meaning: str
    jobs: tuple[Job, ...]
    verbatim: str | None = None
    offered_iops: float | None = None
    probe: bool = False

    @property
    def writes(self) -> bool:
        return any(job.writes for job in self.jobs)

    @property
    def reads(self) -> bool:
        return any(job.reads for job in self.jobs)

    @property
    def direct(self) -> bool:
        """Whether every job bypasses the page cache of the system it runs on."""
        return not any(self._through_page_cache(job) for job in self.jobs)

    @property
    def buffered(self) -> bool:
        """Whether every job uses the page cache of the system it runs on."""
        return all(self._through_page_cache(job) for job in self.jobs)

    def _through_page_cache(self, job: Job) -> bool:
        # a job file runs as it is, and fio's default is not ours
        unsaid = "1" if self.verbatim is None else "0"
        return job.get("direct", unsaid) in ("0", "false") or job.get("ioengine", "") == "mmap"

    @property
    def counted(self) -> bool:
        """Whether a job of it ends after so many I/Os, however long they take."""
        return any(job.get("number_ios", "") for job in self.jobs)

    @property
    def ends_itself(self) -> bool:
        """Whether a job of it may end before the study's time is over."""
        said = {name for job in self.jobs for name, _ in job.options}
        return self.counted or (self.verbatim is not None and not said.isdisjoint(ENDS_ITSELF))

    @property
    def recorded(self) -> bool:
        return self.verbatim is None and any(job.recorded for job in self.jobs)

    @property
    def depth(self) -> int:
        return sum(job.depth for job in self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)


def name_of_disk(name: str, number: int) -> str:
    """Return the name of the part of a job that loads one of several disks; 0 is the first, which keeps the name."""
    return f"{name}-disk{number + 1}" if number else name


def name_at_load(name: str, load: str) -> str:
    """Return the name of a workload whose I/Os are offered at a load, as it was asked for: `50%`, `5000iops`."""
    return f"{name[:50]}-at-{load.replace('%', 'pct')}"


def job(name: str, options: Mapping[str, str]) -> Job:
    return Job(name=name, options=tuple(options.items()))
