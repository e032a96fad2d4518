# SPDX-License-Identifier: Apache-2.0
"""Latency against achieved IOPS at offered loads: how much an arm carries before its queue grows."""

from collections.abc import Iterable, Sequence
from typing import Any

from virtune.model.metric import BY_ID
from virtune.model.result import LoadEstimate, LoadPoint, LoadSweep, Result, Value
from virtune.model.search import Limit
from virtune.model.text import format_count, format_ns
from virtune.model.workload import Workload
from virtune.report.charts.chart import MOST_ARMS, Chart, axis_ticks, file_name, filled, latency_limits, scales_of
from virtune.report.pages.result import value_text
from virtune.report.words import estimate_text, quantity


def load_curve(result: Result, probe: Workload) -> Chart | None:
    """Draw p99 over IOPS at the offered loads of a workload; None where fewer than two marks have both."""
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for load in result.study.offered_under(probe):
        for arm in result.study.arms:
            iops, tail = (result.value(arm.name, load.name, name) for name in ("iops", "latency.p99"))
            if iops is None or tail is None or tail.value <= 0:
                continue
            ends = {"low": tail.low / 1e6, "high": tail.high / 1e6} if tail.low and tail.high else {}
            row = {"arm": arm.name, "load": load.name, "iops": iops.value, "latency": tail.value / 1e6}
            rows.append({**row, "offered": load.offered_iops, **ends})
            shown.append((arm.name, load.name, value_text(BY_ID["iops"], iops), _with_ends(tail)))
    if len(rows) < 2:
        return None
    limits = _lines(one for one in latency_limits(result.study) if one.metric == "latency.p99")
    drawn = [row[end] for row in rows for end in ("latency", "low", "high") if end in row]
    knees = [one for one in result.knees if one.workload == probe.name]
    return Chart(
        name=file_name("loads", probe.name),
        title=f"{probe.name}: {_tails(rows, len(result.study.arms))}",
        reading=(
            "Each mark is one offered load: to the right more I/Os a second were carried, upwards the slowest "
            "hundredth took longer, with a 95 % interval. Where a curve turns up, the arm is near what it can carry."
            + (" A vertical line is the knee of its arm, with a band for its interval: " if knees else "")
            + ("; ".join(f"{one.arm} {estimate_text(one.knee)}" for one in knees) + "." if knees else "")
            + (" The dashed line across is the limit that was asked for." if limits else "")
        ),
        spec=filled(
            "loads", height=300, rows=rows, limits=limits, ticks=axis_ticks(drawn + [one["limit"] for one in limits]),
            knees=[{"arm": one.arm, **_band(one.knee), "what": f"knee of {one.arm}"} for one in knees],
            **scales_of(result.study.arm_names),
        ),
        columns=("arm", "offered load", "IOPS", "latency p99"),
        rows=tuple(shown),
    )  # fmt: skip


def _with_ends(tail: Value) -> str:
    metric = BY_ID["latency.p99"]
    text = value_text(metric, tail)
    if tail.low is None or tail.high is None:
        return text
    return f"{text} [{quantity(metric, tail.low)}, {quantity(metric, tail.high)}]"


def _tails(rows: list[dict[str, Any]], arms: int) -> str:
    """Say between which arms the tail lies at the greatest load that all arms have."""
    by_load: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: float(row["offered"])):
        by_load.setdefault(row["load"], []).append(row)
    shared = [found for found in by_load.values() if len(found) == arms]
    if not shared:
        return "latency p99 at the loads that were offered"
    low, high = (choose(shared[-1], key=lambda row: float(row["latency"])) for choose in (min, max))
    least, most = (format_ns(float(row["latency"]) * 1e6) for row in (low, high))
    at = f"at {format_count(float(low['offered']))} IOPS offered latency p99 is {least}"
    return at if least == most else f"{at} ({low['arm']}) to {most} ({high['arm']})"


def sweep_curve(known: LoadSweep, result: Result | None = None) -> Chart | None:
    """Draw latency over achieved IOPS of a sweep with its knee and its limit; None before there are two loads.

    The latency is the one that was limited, if one was and `result` has it; else the mean.
    """
    points = sorted(known.points, key=lambda one: one.offered)
    if len(points) < 2:
        return None
    limit, limited = _limited(known, points, result)
    label = BY_ID["latency.mean" if limit is None else limit.metric].label
    rows: list[dict[str, Any]] = [
        {"offered": one.offered, "iops": one.iops, "latency": limited[one.workload] / 1e6,
         "state": "load carried" if one.met else "less was done than offered"}
        for one in points
    ]  # fmt: skip
    limits = _lines([] if limit is None else [limit])
    told = (("knee", known.knee), ("most within the limit", known.most), ("saturation", known.saturation))
    ticks = axis_ticks([row["latency"] for row in rows] + [one["limit"] for one in limits])
    knee = "no knee found" if known.knee is None else f"the knee is at {format_count(known.knee.iops)} IOPS"
    return Chart(
        name="sweep",
        title=f"{known.study.workloads[0].name}: {knee}",
        reading=(
            "Each mark is an offered load: to the right more I/Os a second were carried, upwards each took longer. "
            "Vertical lines stand at what was found, with a band for its interval. A hollow mark is a load of which "
            "less was done than offered."
            + ("" if limit is None else " The dashed line across is the limit that was asked for.")
        ),
        spec=filled(
            "sweep", height=300, rows=rows, limits=limits, ticks=ticks, title=f"{label} in ms, lower is better",
            marks=[{**_band(one), "what": what} for what, one in told if one is not None],
        ),
        columns=("offered IOPS", "achieved IOPS", label, "carried"),
        rows=tuple(
            (
                format_count(one.offered),
                format_count(one.iops),
                format_ns(limited[one.workload]),
                "yes" if one.met else "no",
            )
            for one in points
        ),
    )  # fmt: skip


def _limited(
    known: LoadSweep, points: Sequence[LoadPoint], result: Result | None
) -> tuple[Limit | None, dict[str, float]]:
    """Return the limit on a latency, if each load has that latency, and by workload what is drawn of each load."""
    arm, limit = known.study.arms[0].name, next(iter(latency_limits(known.study)), None)
    found = {
        one.workload: value.value
        for one in points
        if limit is not None and result is not None and (value := result.value(arm, one.workload, limit.metric))
    }
    if len(found) == len(points):
        return limit, found
    return None, {one.workload: one.latency_ns for one in points}


def _band(found: LoadEstimate) -> dict[str, float]:
    return {"iops": found.iops, "low": found.low or found.iops, "high": found.high or found.iops}


def _lines(limits: Iterable[Limit]) -> list[dict[str, Any]]:
    return [{"limit": one.value / 1e6, "text": one.text} for one in limits]


_SHOWN = ("iops", "device.util", "cpu.host.usr", "cpu.host.sys")


def against_offered(result: Result, probe: Workload) -> Chart | None:
    """Draw what the rates at which a workload was offered came to; None of fewer than two rates."""
    loads = result.study.offered_under(probe)
    if len(loads) < 2 or len(result.study.arms) > MOST_ARMS:
        return None
    rows: list[dict[str, Any]] = []
    shown: list[tuple[str, ...]] = []
    for arm in result.study.arms:
        for load in loads:
            found = [(BY_ID[name], result.value(arm.name, load.name, name)) for name in _SHOWN]
            rows += [
                {"arm": arm.name, "offered": load.offered_iops, "of": metric.label, "value": value.value}
                for metric, value in found
                if value is not None
            ]
            cells = ("-" if value is None else str(value_text(metric, value)) for metric, value in found)
            shown.append((arm.name, f"{load.offered_iops:,.0f}", *cells))
    if not rows:
        return None
    labels = [BY_ID[name].label for name in _SHOWN]
    present = [label for label in labels if any(row["of"] == label for row in rows)]
    return Chart(
        name=file_name("offered", probe.name),
        title=f"{probe.name}: what {len(loads)} offered loads came to",
        reading=(
            "Where the curve of IOPS leaves the straight line, less is done than offered: the arm is saturated. A "
            "device that is busy all the time before that, or more CPU in the kernel than in programs, says why."
        ),
        spec=filled("offered", rows=rows, labels=present, **scales_of(result.study.arm_names)),
        columns=("arm", "offered", *labels),
        rows=tuple(shown),
    )
