# SPDX-License-Identifier: Apache-2.0
"""A drive as it is in service: what was written to a disk before its trials, and the load that ran until it was
steady.

The order is that of SNIA's Solid State Storage Performance Test Specification (PTS 2.0.2): purge, which is not
virtune's to do; workload independent preconditioning (the whole disk written twice, in order, 128 KiB at a time);
workload dependent preconditioning (the load itself until it is steady); measurement. What is steady is judged by
fio's own `steadystate`.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from virtune.model.text import format_bytes, format_count, format_seconds, parse_seconds

PASSES, BLOCK_BYTES = 2, 128 * 1024
"""PTS 2.0.2, workload independent preconditioning: twice the user capacity, sequentially, 128 KiB."""

STEADY_RULE = "iops_slope:0.3%/30s"
"""The example of fio's manual. The slope may amount to 9 % over the window: PTS 2.0.2 allows 10 % of the average."""

STEADY_LIMIT_SECONDS = 600.0
"""A drive that still changes after ten minutes of its load needs another plan, and the user's decision."""

WINDOW_MIN, WINDOW_MAX = 2, 86_400
_PERCENT_MAX = 100.0

_RULE = re.compile(
    r"(?P<criterion>(iops|bw)(_slope)?):(?P<percent>[0-9]{1,3}(\.[0-9]{1,4})?)%(/(?P<window>[0-9a-z]{1,8}))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyRule:
    """When a load counts as steady: `criterion` is fio's (`iops_slope`, `iops`, `bw_slope`, `bw`), `percent` its
    limit, over the last `window_seconds`. A load that is not steady after `limit_seconds` is given up.
    """

    criterion: str
    percent: float
    window_seconds: int
    limit_seconds: float

    @property
    def fio(self) -> str:
        """The value of fio's `steadystate`."""
        return f"{self.criterion}:{self.percent:g}%"

    @property
    def text(self) -> str:
        """The rule as it is given: `iops_slope:0.3%/30s`."""
        return f"{self.fio}/{self.window_seconds}s"


def read_steady_rule(text: str, limit_seconds: float) -> SteadyRule:
    """Read `iops_slope:0.3%/30s`; without a time the window is 30 s. Raises ValueError with what is wrong."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError("it is not a rule such as iops_slope:0.3%/30s, iops:10%/60s or bw_slope:1%")
    window = parse_seconds(found["window"] or "30s")
    if window != int(window) or not WINDOW_MIN <= window <= WINDOW_MAX:
        raise ValueError(f"fio's window is a whole number of seconds, {WINDOW_MIN} at least")
    percent = float(found["percent"])
    if not 0 < percent <= _PERCENT_MAX:
        raise ValueError("its limit is more than 0 % and at most 100 %")
    if limit_seconds <= window:
        raise ValueError(f"its window of {format_seconds(window)} does not fit into {format_seconds(limit_seconds)}")
    return SteadyRule(
        criterion=found["criterion"], percent=percent, window_seconds=int(window), limit_seconds=limit_seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditioned:
    """That a disk was written in full before its trials, whatever their workload, through one of the arms."""

    arm: Annotated[str, "The arm through which it was written, without its I/O limits."]
    size_bytes: Annotated[int, "The size of all disks of that arm together.", {"minimum": 0}]
    written_bytes: Annotated[int, "What the load says that it wrote, in two passes.", {"minimum": 0}]
    seconds: Annotated[float, "How long that took.", {"minimum": 0}]

    @property
    def words(self) -> str:
        speed = format_bytes(self.written_bytes / max(self.seconds, 0.001))
        wrote = f"{format_bytes(self.written_bytes)} in {format_seconds(self.seconds)}, {speed}/s"
        return f"written in full {PASSES} times through {self.arm}, 128 KiB in order ({wrote}); it was not purged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadied:
    """The load of an arm that ran before its trials until it was steady, as fio judged it."""

    arm: Annotated[str, "The arm."]
    workload: Annotated[str, "The workload."]
    rule: Annotated[str, "The rule: fio's `steadystate`, and behind `/` the time that it looks back over."]
    attained: Annotated[bool, "Whether it became steady by that rule before the time for it was over."]
    seconds: Annotated[float, "How long the load ran.", {"minimum": 0}]
    iops: Annotated[float | None, "Operations a second in the last window; null where fio had none.", {"minimum": 0}]
    found_percent: Annotated[
        float | None, "What was compared with the rule's limit at the end, in its unit; null where fio had none."
    ]

    @property
    def words(self) -> str:
        unit = "% a second" if "slope" in self.rule else "% from the mean"
        found = "" if self.found_percent is None else f": {self.found_percent:.2g} {unit}"
        rate = "" if self.iops is None else f", {format_count(self.iops)} IOPS"
        ended = "steady after" if self.attained else "NOT steady after"
        return (
            f"{self.arm} under {self.workload} was {ended} {format_seconds(self.seconds)} ({self.rule}{found}{rate})"
        )
