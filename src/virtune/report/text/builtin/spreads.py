# SPDX-License-Identifier: Apache-2.0
"""How latencies are spread, as the authors of a study print it: extremes, deviations, fio's 17 percentiles."""

from collections.abc import Callable, Iterator, Sequence

from virtune.model.measurement import Histogram
from virtune.model.metric import BY_ID
from virtune.model.result import ArmSummary
from virtune.report.text.layout import Column, Records
from virtune.report.text.study.result import value_text
from virtune.report.text.words import quantity

PERCENTILES: tuple[float, ...] = (
    1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.5, 99.9, 99.95, 99.99,
)  # fmt: skip
"""Those that fio prints unless it is told otherwise."""

_BESIDE = 3
"""How many of them stand in one line."""

_KINDS = (("slat", "slat"), ("clat", "clat"), ("latency", "lat"), ("iops", "IOPS"))
_ENDS: tuple[tuple[str, Callable[[Histogram], float]], ...] = (
    ("min", lambda histogram: float(histogram.bins[0][0])),
    ("max", lambda histogram: float(histogram.bins[-1][0])),
)


def extremes(arms: Sequence[ArmSummary]) -> Iterator[Records]:
    """Yield the table of the least, the greatest and the standard deviation of latencies and IOPS."""
    ends = ("min", "max", "stdev")
    columns = [Column(title=f"{arm.arm} {end}", right=True) for arm in arms for end in ends]
    rows = [(label, *(_cell(arm, kind, end) for arm in arms for end in ends)) for kind, label in _KINDS]
    if any(cell != "-" for row in rows for cell in row[1:]):
        yield Records([Column(title=""), *columns], rows)


def percentiles(arms: Sequence[ArmSummary]) -> Iterator[Records]:
    """Yield the table of all percentiles of the total latency that fio prints."""
    found = [arm.histogram for arm in arms]
    if any(histogram is None or not histogram.bins for histogram in found):
        return
    lines = -(-len(PERCENTILES) // _BESIDE)
    titles = [
        Column(title=title, right=True) for _ in range(_BESIDE) for title in ("lat", *(arm.arm for arm in arms))
    ]
    rows = []
    for line in range(lines):
        cells: list[str] = []
        for percent in PERCENTILES[line::lines]:
            each = (None if one is None else one.percentile(percent) for one in found)
            times = ("-" if value is None else quantity(BY_ID["latency.mean"], value) for value in each)
            cells += [f"p{percent:g}", *times]
        rows.append((*cells, *[""] * (len(titles) - len(cells))))
    yield Records(titles, rows)


def _cell(arm: ArmSummary, kind: str, end: str) -> str:
    read = dict(_ENDS).get(end)
    if kind == "latency" and read is not None:
        histogram = arm.histogram
        return "-" if histogram is None or not histogram.bins else quantity(BY_ID["latency.mean"], read(histogram))
    return str(value_text(BY_ID[f"{kind}.{end}"], arm.get(f"{kind}.{end}")))
