# SPDX-License-Identifier: Apache-2.0
"""A host over time: its level, its noise and its drift by its checks, and whether it was fit to measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from virtune.model.fitness import Fitness
from virtune.report.charts.chart import DASHES, PALETTE, Chart, specification
from virtune.report.pages.evidence import DRIFT_TOLD
from virtune.report.words import count_text

_LEVEL, _NOISE, _DRIFT = "IOPS", "spread in %", "drift in % a minute"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """A check of the host: when it was begun (ISO 8601), which load it ran on what, and what it found."""

    created: str
    load: str
    fitness: Fitness


def host_over_time(checks: Sequence[HostCheck]) -> Chart | None:
    """Draw checks of one host in order of time; None before there are two with figures."""
    known = [one for one in sorted(checks, key=lambda one: one.created) if one.fitness.iops is not None]
    if len(known) < 2:
        return None
    rows = [row for one in known for row in _rows(one)]
    fit = sum(not one.fitness.unfit for one in known)
    return Chart(
        name="host",
        title=f"in {fit} of {count_text(len(known), 'check')} this host was fit to measure",
        reading=(
            "Each column of marks is one check, a hollow mark one that found the host unfit. A level that moves is "
            "the host or its disk: a study before it and one after it are not comparable. The spread is that of IOPS "
            "within a check; the drift has its 95 % interval, and the dashed line is no drift."
        ),
        spec=specification(_spec(rows)),
        columns=(),  # the page has a table of its checks
        rows=(),
    )


def _rows(one: HostCheck) -> list[dict[str, Any]]:
    found = one.fitness
    shared = {"begun": one.created, "load": one.load, "fit": not found.unfit}
    rows = [{**shared, "figure": _LEVEL, "value": found.iops}]
    if found.windows_cv is not None:
        rows.append({**shared, "figure": _NOISE, "value": 100 * found.windows_cv})
    if (drift := found.drift) is not None and drift.high - drift.low <= DRIFT_TOLD:
        ends = {"low": 100 * drift.low, "high": 100 * drift.high, "none": 0}
        rows.append({**shared, "figure": _DRIFT, "value": 100 * drift.per_minute, **ends})
    return rows


def _spec(rows: list[dict[str, Any]]) -> dict[str, Any]:
    loads = list(dict.fromkeys(row["load"] for row in rows))
    figures = [one for one in (_LEVEL, _NOISE, _DRIFT) if any(row["figure"] == one for row in rows)]
    legend = {"title": None, "orient": "top"} if len(loads) > 1 else None
    x = {"field": "begun", "type": "temporal", "scale": {"type": "utc"},
         "axis": {"title": "begun (UTC)", "grid": False}}  # fmt: skip
    y = {"field": "value", "type": "quantitative", "scale": {"zero": False}, "axis": {"title": None, "format": "~s"}}
    colours = {"domain": loads, "range": [PALETTE[at % len(PALETTE)] for at in range(len(loads))]}
    dashes = {"domain": loads, "range": [list(DASHES[at % len(DASHES)]) for at in range(len(loads))]}
    colour = {"field": "load", "type": "nominal", "legend": legend, "scale": colours}
    dash = {"field": "load", "type": "nominal", "legend": legend, "scale": dashes}
    point = {"type": "point", "size": 55, "opacity": 1}
    header = {"title": None, "labelAngle": 0, "labelOrient": "top", "labelAnchor": "start"}
    return {
        "data": {"values": rows},
        "facet": {"row": {"field": "figure", "type": "nominal", "sort": figures, "header": header}},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 560, "height": 90,
            "encoding": {"x": x, "color": colour},
            "layer": [
                {"transform": [{"filter": "isValid(datum.none)"}],
                 "mark": {"type": "rule", "strokeDash": [4, 3], "color": "currentColor", "opacity": 0.7},
                 "encoding": {"x": None, "color": None, "y": {**y, "field": "none"}}},
                {"transform": [{"filter": "isValid(datum.low)"}], "mark": {"type": "rule", "strokeWidth": 1.5},
                 "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
                {"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.6},
                 "encoding": {"y": y, "strokeDash": dash}},
                {"transform": [{"filter": "datum.fit"}], "mark": {**point, "filled": True}, "encoding": {"y": y}},
                {"transform": [{"filter": "!datum.fit"}],
                 "mark": {**point, "filled": False, "strokeWidth": 1.5}, "encoding": {"y": y}},
            ],
        },
    }  # fmt: skip
