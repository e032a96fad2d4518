# SPDX-License-Identifier: Apache-2.0
"""Single I/Os: the least, mean and greatest time on every system, one picture for each background load, and each I/O
against its index.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtune.model.result import Result
from virtune.model.study import Study
from virtune.model.text import format_ns
from virtune.model.workload import Workload
from virtune.report.charts.chart import MOST_ARMS, Chart, colours_of, file_name, filled, tens_of

_ENDS = ("latency.min", "latency.mean", "latency.max")
_LOAD = "-load"
"""Before the number of background processes, in the name of a workload of the built-in study."""

_ROW = 16

DRAWN_MAX = 1_000
"""The most I/Os of an arm that are drawn. Each is two marks: 10,000 of two arms made 3.7 MB of a page."""

Series = Mapping[str, Sequence[int]]
"""The time of each I/O in ns, by arm."""


def extents(result: Result) -> Iterator[Chart]:
    """Yield a picture for each background load; nothing where no I/O was timed by itself."""
    if len(result.study.arms) > MOST_ARMS:
        return
    loads: dict[str, list[Workload]] = {}
    for workload in result.study.compared:
        if workload.recorded:
            loads.setdefault(workload.name.partition(_LOAD)[2], []).append(workload)
    for load, workloads in loads.items():
        rows = [row for one in workloads for row in _rows(result, one)]
        if rows:
            yield _extents(result.study, load, rows)


def _extents(study: Study, load: str, rows: list[dict[str, Any]]) -> Chart:
    under = f"beside {load} background processes" if load not in ("", "0") else "alone"
    slowest = max(rows, key=lambda row: float(row["max"]))
    names = study.arm_names
    return Chart(
        name=file_name("extents", f"load-{load}" if load else "single"),
        title=f"{under}: the slowest I/O took {format_ns(slowest['max'] * 1e6)}, on {slowest['arm']}",
        reading=(
            "Each line goes from the quickest I/O to the slowest, the mark is the mean. A long line to the right of "
            "its mark is a system that is usually quick and sometimes stalls."
        ),
        spec=filled(
            "extents", rows=rows, panel=_ROW * len(names), arms=names, colours=colours_of(names),
            ticks=tens_of([row[end] for row in rows for end in ("min", "max")]),
        ),
        columns=("workload", "arm", "least", "mean", "greatest"),
        rows=tuple(
            (row["workload"], row["arm"], *(format_ns(row[end] * 1e6) for end in ("min", "mean", "max")))
            for row in rows
        ),
    )  # fmt: skip


def _rows(result: Result, workload: Workload) -> Iterator[dict[str, Any]]:
    for arm in result.study.arms:
        values = [result.value(arm.name, workload.name, end) for end in _ENDS]
        least, mean, greatest = [0.0 if one is None else one.value / 1e6 for one in values]
        if least > 0 and mean > 0:
            kind = workload.name.partition(_LOAD)[0]
            yield {"arm": arm.name, "workload": kind, "min": least, "mean": mean, "max": greatest}


def each_operation(study: Study, workload: str, series: Series) -> Chart | None:
    """Draw the time of each I/O of a trial against its index, a panel for each arm; None without any."""
    drawn = {arm: latencies[:DRAWN_MAX] for arm, latencies in series.items()}
    rows: list[dict[str, Any]] = [
        {"arm": arm, "index": index, "ms": latency / 1e6}
        for arm, latencies in drawn.items()
        for index, latency in enumerate(latencies, 1)
        if latency > 0
    ]
    if not rows:
        return None
    arm, slowest = max(((arm, max(one)) for arm, one in drawn.items() if one), key=lambda pair: pair[1])
    cut = any(len(one) > DRAWN_MAX for one in series.values())
    which = f"the first {DRAWN_MAX:,} I/Os" if cut else "every single I/O"
    return Chart(
        name=file_name("operations", workload),
        title=f"{workload}: {which} of a trial; the slowest took {format_ns(slowest)}, on {arm}",
        reading=(
            "Each mark is one I/O, in the order in which they were made. Peaks at equal distances have something "
            "with a period behind them: a timer, a poll, a flush. A step is another way that I/Os are served."
        ),
        spec=filled(
            "operations", rows=rows, arms=study.arm_names, colours=colours_of(study.arm_names),
            ticks=tens_of([row["ms"] for row in rows]),
        ),
        columns=("arm", "I/Os", "least", "greatest"),
        rows=tuple(
            (name, str(len(one)), format_ns(min(one)), format_ns(max(one))) for name, one in series.items() if one
        ),
    )  # fmt: skip
