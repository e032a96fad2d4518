# SPDX-License-Identifier: Apache-2.0
"""A load that is stuck is told from one that is slow, and from one that the guest's page cache serves."""

import time
from collections.abc import Iterator

import pytest

from virtune.bench.load import STUCK_SECONDS, Progress, busy_words
from virtune.model.facts import BusyFacts, Pressure, Unknown
from virtune.model.workload import Workload, job


def looks(progress: Progress, counts: list[int], *, seconds: float) -> Iterator[bool]:
    """What is said at looks that are so far apart, when the disk has completed so many requests."""
    begun = time.monotonic()
    for number, count in enumerate(counts):
        yield progress.stuck(lambda count=count: count, begun + number * seconds)  # type: ignore[misc]


def test_a_disk_is_stuck_once_it_has_completed_nothing_for_long() -> None:
    half = STUCK_SECONDS / 2
    assert list(looks(Progress(direct=True), [7, 7, 7, 7], seconds=half)) == [False, False, False, True]
    assert list(looks(Progress(direct=True), [7, 7, 8, 8, 9, 9], seconds=half)) == [False] * 6


def test_a_load_that_may_never_ask_its_disk_is_not() -> None:
    assert list(looks(Progress(direct=False), [7] * 9, seconds=STUCK_SECONDS)) == [False] * 9


@pytest.mark.parametrize(
    ("options", "verbatim", "direct", "buffered"),
    [
        ([{}], None, True, False),
        ([{}], "[x]", False, True),
        ([{"direct": "1"}], "[x]", True, False),
        ([{"direct": "0"}], None, False, True),
        ([{"ioengine": "mmap"}], None, False, True),
        ([{"direct": "1"}, {"direct": "0"}], None, False, False),
    ],
)
def test_what_goes_past_the_page_cache(
    options: list[dict[str, str]], verbatim: str | None, *, direct: bool, buffered: bool
) -> None:
    jobs = tuple(job(f"j{number}", words) for number, words in enumerate(options))
    workload = Workload(name="x", meaning="x", jobs=jobs, verbatim=verbatim)
    assert (workload.direct, workload.buffered) == (direct, buffered)


def test_what_a_busy_host_waits_for_is_said() -> None:
    def busy(cpu: float | Unknown, io: float | Unknown) -> BusyFacts:
        pressure = tuple(
            Pressure(resource=name, some_percent=some, full_percent=0.0) for name, some in (("cpu", cpu), ("io", io))
        )
        return BusyFacts(load_1min=16.0, pressure=pressure)

    before = "in the last 10 s processes of this host waited"
    cpu, disks = "97 % of the time for a CPU", "88 % of the time for the host's disks"
    assert busy_words(busy(97.2, 88.0)) == f"{before} {cpu} and {disks}"
    assert busy_words(busy(97.2, Unknown("not counted"))) == f"{before} {cpu}"
    assert busy_words(busy(3.0, 88.0)) == f"{before} {disks}"
    assert busy_words(busy(3.0, 1.0)) is None
    assert busy_words(BusyFacts(load_1min=0.1, pressure=Unknown("no PSI"))) is None
