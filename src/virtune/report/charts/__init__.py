# SPDX-License-Identifier: Apache-2.0
"""The pictures of a result as Vega-Lite specifications (pure): a module makes the rows, `NAME.vl.json` draws them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.report.charts.chart import Chart
from virtune.report.charts.distribution import heat_map, percentile_curve, rounds_in_time
from virtune.report.charts.extents import extents
from virtune.report.charts.forest import forest, narrowing
from virtune.report.charts.loads import against_offered, load_curves
from virtune.report.charts.stacked import cpu_by_thread, layer_times
from virtune.report.charts.tradeoff import iops_bars, speed_against_cost

SIMULATED = "SIMULATED: invented figures, no disk was measured"
"""What stands above every picture of a simulated study, also where it stands alone."""


def charts_of(result: Result, record: StudyRecord) -> Iterator[Chart]:
    """Return every picture that the study has data for, in the order of the report."""
    return labelled(result.study, _charts(result, record))


def labelled(study: Study, charts: Iterable[Chart]) -> Iterator[Chart]:
    """Yield pictures of a study, of a simulated one with that written above each."""
    for chart in charts:
        if study.simulated:
            yield replace(chart, title=f"{SIMULATED}: {chart.title}", spec={**chart.spec, "title": SIMULATED})
        else:
            yield chart


def _charts(result: Result, record: StudyRecord) -> Iterator[Chart]:
    yield from load_curves(result)
    yield from against_offered(result)
    for workload in result.study.workloads:
        if workload.probe:
            continue
        for made in (
            iops_bars(result, workload.name) if result.study.builtin == "datapath" else None,
            forest(result, workload.name),
            percentile_curve(result, workload.name),
            rounds_in_time(result, record, workload.name),
            narrowing(result, workload.name),
            heat_map(result, record, workload.name),
            cpu_by_thread(result, record, workload.name),
            layer_times(result, workload.name),
            speed_against_cost(result, workload.name),
        ):
            if made is not None:
                yield made
    yield from extents(result)
