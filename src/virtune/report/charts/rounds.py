# SPDX-License-Identifier: Apache-2.0
"""Every attempt in order of time: drift, outliers, first trials, and invalid attempts."""

from datetime import datetime
from typing import Any

from virtune.model.evidence import StudyRecord, TrialRecord
from virtune.model.gate import label_of
from virtune.model.metric import BY_ID, Metric
from virtune.model.result import Result
from virtune.report.charts.chart import MOST_ARMS, Chart, arms_scale, dash_scale, file_name, specification
from virtune.report.words import quantity

_SCALES = {
    "1/s": (1.0, ""),
    "B/s": (1e6, " in MB/s"),
    "ns": (1e6, " in ms"),
    "%": (1.0, " in %"),
    "s/io": (1e-6, " in us"),
    "1/io": (1.0, ""),
}


_LONG_SECONDS = 180


def rounds_in_time(result: Result, record: StudyRecord, workload: str) -> Chart | None:
    """Draw the main metric of every attempt; None where there are fewer than two or they have no times."""
    study, metric = result.study, BY_ID[result.study.metric]
    if study.imported or len(study.arms) > MOST_ARMS:
        return None
    attempts = [one for one in record.attempts or record.trials if one.trial.workload == workload]
    last = {(one.trial.number, one.attempt) for one in record.trials}
    rows = [
        row
        for one in attempts
        if (row := _row(result, one, metric, last=(one.trial.number, one.attempt) in last)) is not None
    ]
    if len(rows) < 2:
        return None
    bad = sum(not row["counts"] for row in rows)
    return Chart(
        name=file_name("rounds", workload),
        title=f"{workload}: {len(rows)} trials in order of time" + (f", {bad} of them did not count" if bad else ""),
        reading=(
            "Each mark is one trial; a line joins those of one arm. Arms that move together show the host, an arm "
            "that moves alone shows itself. Hollow marks do not count: something else disturbed the trial, or it was "
            "repeated."
        ),
        spec=specification(_spec(result, rows, metric), height=260),
        columns=("second", "arm", "round", metric.label, "did it count"),
        rows=tuple((f"{row['second']:.0f}", row["arm"], str(row["round"]), row["shown"], row["why"]) for row in rows),
    )


def _row(result: Result, one: TrialRecord, metric: Metric, *, last: bool) -> dict[str, Any] | None:
    """Return a mark of an attempt; only the last one of a trial may count."""
    measured = one.measurement.get(metric.id) if one.measurement is not None else None
    try:
        second = (datetime.fromisoformat(one.ended) - datetime.fromisoformat(result.study.created)).total_seconds()
    except (ValueError, TypeError):
        return None
    if measured is None or one.measurement is None:
        return None
    causes = ", ".join(map(label_of, one.measurement.causes))
    counts = last and result.counts(one.trial.arm, one.measurement)
    told = f"{causes}; repeated" if causes else "repeated"
    return {
        "second": second,
        "arm": one.trial.arm,
        "round": one.trial.round,
        "value": measured / _SCALES[metric.unit][0],
        "shown": quantity(metric, measured),
        "counts": counts,
        "why": f"no: {causes if last else told}" if not counts else f"yes, although: {causes}" if causes else "yes",
    }


def _spec(result: Result, rows: list[dict[str, Any]], metric: Metric) -> dict[str, Any]:
    better = "higher is better" if metric.better == "higher" else "lower is better"
    long = max(row["second"] for row in rows) > _LONG_SECONDS
    label = "format(datum.value / 60, '.3~g')" if long else "format(datum.value, '~g')"
    x = {
        "field": "second", "type": "quantitative",
        "axis": {"title": f"{'minutes' if long else 'seconds'} since the study began", "labelExpr": label},
    }  # fmt: skip
    y = {
        "field": "value", "type": "quantitative", "scale": {"zero": False},
        "axis": {"title": f"{metric.label}{_SCALES[metric.unit][1]}, {better}", "format": "~s"},
    }  # fmt: skip
    colour = {"field": "arm", "type": "nominal", "scale": arms_scale(result.study), "legend": {"title": None}}
    dash = {"field": "arm", "type": "nominal", "scale": dash_scale(result.study), "legend": {"title": None}}
    point = {"type": "point", "size": 45, "opacity": 1}
    return {
        "data": {"values": rows},
        "encoding": {"x": x, "y": y, "color": colour},
        "layer": [
            {"transform": [{"filter": "datum.counts"}], "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.6},
             "encoding": {"strokeDash": dash}},
            {"transform": [{"filter": "datum.counts"}], "mark": {**point, "filled": True}},
            {"transform": [{"filter": "!datum.counts"}], "mark": {**point, "filled": False, "strokeWidth": 1.5}},
        ],
    }  # fmt: skip
