# SPDX-License-Identifier: Apache-2.0
"""A host over time: what each of its checks found, as a drawing and as rows, the newest first."""

from dataclasses import dataclass

from virtune.flows.run.check import fitness
from virtune.model.evidence import Listed
from virtune.model.study import StudyKind
from virtune.model.units import format_count
from virtune.report.charts.chart import Chart
from virtune.report.charts.host import HostCheck, host_over_time
from virtune.report.text.host.check import sentence
from virtune.report.text.study.basis import drift_text
from virtune.report.text.study.header import host_line
from virtune.report.text.words import share_text
from virtune.store.store import Store

CHECKS_SHOWN = 25
"""Each is derived from its trials when it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShown:
    """The page: a row for each of the newest checks, and their drawing, None of fewer than two."""

    rows: tuple[dict[str, str], ...]
    chart: Chart | None


def host_shown(store: Store) -> HostShown:
    """Return when each of the newest checks was, on which host, how noisy that was, how it drifted, fit or not."""
    rows, checks = [], []
    for one in store.page(words="", kind=StudyKind.CHECK, limit=CHECKS_SHOWN, offset=0, own=True).rows:
        if not isinstance(one, Listed) or not one.done:
            continue
        record = store.get(one.study.id)
        found = fitness(record)
        load = f"{found.workload} on {one.study.arms[0].stack.rig}"
        checks.append(HostCheck(created=one.study.created, load=load, fitness=found))
        rows.append(
            {
                "id": one.study.id,
                "created": one.study.created[:16].replace("T", " "),
                "host": host_line(one.study, record.facts),
                "load": load,
                "iops": "-" if found.iops is None else format_count(found.iops),
                "noise": "-" if found.windows_cv is None else share_text(found.windows_cv),
                "drift": "-" if found.drift is None else drift_text(found.drift),
                "said": sentence(found),
            }
        )
    return HostShown(rows=tuple(rows), chart=host_over_time(checks))
