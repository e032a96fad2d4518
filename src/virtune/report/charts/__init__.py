# SPDX-License-Identifier: Apache-2.0
"""The pictures of a result as Vega-Lite specifications: values, which are tested and rendered elsewhere (pure)."""

from collections.abc import Iterator

from virtune.model.evidence import StudyRecord
from virtune.model.result import Result
from virtune.report.charts.chart import Chart
from virtune.report.charts.forest import forest
from virtune.report.charts.heat import heat_map
from virtune.report.charts.loads import load_curve
from virtune.report.charts.percentiles import percentile_curve
from virtune.report.charts.rounds import rounds_in_time
from virtune.report.charts.tradeoff import speed_against_cost


def charts_of(result: Result, record: StudyRecord) -> Iterator[Chart]:
    """Yield every picture that the study has data for, in the order of the report."""
    for workload in result.study.workloads:
        if workload.probe:
            continue
        for made in (
            forest(result, workload.name),
            percentile_curve(result, workload.name),
            rounds_in_time(result, record, workload.name),
            heat_map(result, record, workload.name),
            speed_against_cost(result, workload.name),
        ):
            if made is not None:
                yield made
    curve = load_curve(result)
    if curve is not None:
        yield curve
