# SPDX-License-Identifier: Apache-2.0
"""The pictures of single I/Os, for which the logs of trials are read from the store."""

from collections.abc import Iterator

from virtune.analyse.trial.usage import operation_times
from virtune.model.evidence import EACH_OPERATION, StudyRecord, TrialRecord
from virtune.model.remark import PERIODIC
from virtune.report.charts.chart import Chart
from virtune.report.charts.extents import each_operation
from virtune.store.store import Store

_PICTURES_MAX = 4
"""Of a study with many workloads: the first, and those with the most trials in which a period was found."""


def single_operations(store: Store, record: StudyRecord) -> Iterator[Chart]:
    """Yield a picture of every I/O of a trial of each arm, for some of the workloads whose I/Os were logged."""
    study = record.study
    names = [one.name for one in study.compared if one.recorded]
    counts = {name: sum(_periodic(one) for one in record.trials if one.trial.workload == name) for name in names}
    most = sorted((name for name in names[1:] if counts[name]), key=lambda name: -counts[name])
    for name in [*names[:1], *most][:_PICTURES_MAX]:
        series = {arm.name: _series(store, record, arm.name, name) for arm in study.arms}
        made = each_operation(study, name, series)
        if made is not None:
            yield made


def _series(store: Store, record: StudyRecord, arm: str, workload: str) -> tuple[int, ...]:
    """Return the times of the I/Os of one trial: the first in which a period was found, else the first measured."""
    mine = [
        one for one in record.trials
        if (one.trial.arm, one.trial.workload) == (arm, workload) and one.measurement is not None
    ]  # fmt: skip
    chosen = next((one for one in mine if _periodic(one)), mine[0] if mine else None)
    if chosen is None:
        return ()
    captures = store.captures(record.study.id, chosen.trial.number, attempt=chosen.attempt)
    return next((operation_times(one.content) for one in captures if one.name == EACH_OPERATION), ())


def _periodic(one: TrialRecord) -> bool:
    return one.measurement is not None and any(remark.id == PERIODIC.id for remark in one.measurement.remarks)
