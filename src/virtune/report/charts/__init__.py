# SPDX-License-Identifier: Apache-2.0
"""The pictures of a result as Vega-Lite specifications (pure): a module makes the rows, `NAME.vl.json` draws them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.model.study import Study
from virtune.report.charts.chart import Chart
from virtune.report.charts.distribution import extents, heat_map, percentile_curve, rounds_in_time
from virtune.report.charts.forest import forest, narrowing
from virtune.report.charts.loads import against_offered, load_curve
from virtune.report.charts.stacked import cpu_by_thread, layer_times
from virtune.report.charts.tradeoff import iops_bars, speed_against_cost

SIMULATED = "SIMULATED: invented figures, no disk was measured"
"""What stands above every picture of a simulated study, also where it stands alone."""


def charts_of(result: Result, record: StudyRecord) -> Iterator[Chart]:
    """Return every picture that the study has data for, in the order of the report."""
    return labelled(result.study, filter(None, _charts(result, record)))


def labelled(study: Study, charts: Iterable[Chart]) -> Iterator[Chart]:
    """Yield pictures of a study, of a simulated one with that written above each."""
    for chart in charts:
        if study.simulated:
            yield replace(chart, title=f"{SIMULATED}: {chart.title}", spec={**chart.spec, "title": SIMULATED})
        else:
            yield chart


def _charts(result: Result, record: StudyRecord) -> Iterator[Chart | None]:
    study, probes = result.study, [one for one in result.study.workloads if one.probe]
    yield from (draw(result, one) for draw in (load_curve, against_offered) for one in probes)
    for name in (one.name for one in study.compared):
        yield iops_bars(result, name) if study.builtin == "datapath" else None
        yield from (forest(result, name), percentile_curve(result, name), rounds_in_time(result, record, name))
        yield from (narrowing(result, name), heat_map(result, record, name), cpu_by_thread(result, record, name))
        yield from (layer_times(result, name), speed_against_cost(result, name))
    yield from extents(result)
