# SPDX-License-Identifier: Apache-2.0
"""The plain report: the result's table, and after it all that is needed to judge it and to run it again."""

import json
from collections import Counter
from collections.abc import Iterator
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from virtune.model.durability import durability_of
from virtune.model.evidence import StudyRecord
from virtune.model.measurement import METHOD
from virtune.model.metric import BY_ID
from virtune.model.result import Result, Value
from virtune.model.study import Arm, Study
from virtune.model.units import format_seconds
from virtune.report.reproduce import command_again
from virtune.report.text import imported
from virtune.report.text.result import render, value_text
from virtune.report.text.studies import ending
from virtune.report.text.verified import all_checks


def plain_report(result: Result, record: StudyRecord) -> RenderableType:
    """Set the whole report: result, single rounds, method, arms, workloads, host."""
    return Group(
        render(result, record.facts, first=ending(result)),
        *_section("single rounds", _rounds(result, record)),
        *_section("verified settings, check by check", all_checks(result)),
        *_section("how it was measured", Text("\n".join(_method(result, record)))),
        *_section("arms", _arms(result.study)),
        *_section("workloads", Text("\n".join(_workloads(result.study)))),
        *(() if result.study.imported else _section("to run it again", Text(command_again(result.study)))),
        *_section("host", Text("\n".join(_host(record.facts)))),
    )


def _section(title: str, body: RenderableType) -> tuple[RenderableType, RenderableType]:
    return Text(f"\n{title}\n{'-' * len(title)}"), body


def _rounds(result: Result, record: StudyRecord) -> Table:
    """One line a round and workload, one column an arm, the main metric: what the verdicts rest on."""
    study = result.study
    measured_as = (value.measured for one in result.arms for value in one.values if value.metric == study.metric)
    metric = next(measured_as, BY_ID[study.metric])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"{metric.label}: workload")
    table.add_column("round", justify="right")
    for arm in study.arms:
        table.add_column(arm.name, justify="right")
    found = {(t.trial.workload, t.trial.round, t.trial.arm): t for t in record.trials}
    for workload in study.workloads:
        for number in range(1, (study.rounds_begun or study.rounds) + 1):
            cells = []
            for arm in study.arms:
                trial = found.get((workload.name, number, arm.name))
                measured = None if trial is None or trial.measurement is None else trial.measurement.get(metric.id)
                shown = None if measured is None else Value(metric=metric.id, value=measured, rounds=1, spread=None)
                cells.append(value_text(metric, shown))
            table.add_row(workload.name, str(number), *cells)
    return table


def _method(result: Result, record: StudyRecord) -> Iterator[str]:
    study = result.study
    if study.imported:
        yield from imported.method(study)
        return
    yield f"virtune's method {METHOD}; {result.trials_done} of {len(study.trials)} trials, each of"
    yield f"{format_seconds(study.seconds)} after {format_seconds(study.ramp_seconds)} of ramp that is thrown away."
    yield "Every round holds every arm under every workload once, in an order drawn anew (the seed is above);"
    yield "each trial brings its stack up and takes it down, and begins with the image dropped from the page cache."
    yield from _changeovers(record)
    yield "A difference is a mean of the logarithms of the ratios within rounds, never computed from the number of"
    yield f"I/Os. 'same' means: the whole interval lies within a factor of {1 + study.margin:g}, up or down."
    yield f"Verdicts on {BY_ID[study.metric].label} hold together at {study.confidence:.0%} "
    yield "(Bonferroni over all pairs and workloads), and a sign test must agree; the intervals of all other metrics"
    yield f"hold at {study.confidence:.0%} each. "
    if study.sequential:
        yield "It was looked at after every round. The intervals hold at any time (mixture t test), with Huber's"
        yield "weights against single dips, a variance that borrows from the other pairs while rounds are few, and"
        yield "wider where neighbouring rounds are alike."
    else:
        yield "The number of rounds was fixed beforehand, so the intervals are Student's t."
    yield "Latency percentiles come from fio's histograms, added over rounds;"
    yield "~ marks one with fewer than 100 I/Os beyond it. Rates and means over rounds are geometric means."


def _changeovers(record: StudyRecord) -> Iterator[str]:
    """Say how arms came to run: how often swapped in a process that ran, how fast, and what new ones were for."""
    ways = [trial.in_force.changeover for trial in record.trials if trial.in_force.changeover is not None]
    swaps = [way for way in ways if way.swapped is not None]
    if swaps:
        took = f"{median(way.seconds for way in swaps) * 1e3:.0f} ms (median)"
        yield f"{len(swaps)} of {len(ways)} trials were swapped into a process that had carried others, in {took}."
    for why, count in Counter(way.why for way in ways if way.swapped is None).items():
        yield f"New processes: {count} ({why})."


def _arms(study: Study) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for arm in study.arms:
        known = "" if arm.stack.rig == "unknown" else f"durability: {durability_of(arm.stack).promise.value}"
        table.add_row(Text(arm.name, style="bold"), _settings(arm), known)
    return table


def _settings(arm: Arm) -> str:
    if arm.stack.rig == "unknown":
        return ", ".join(f"{name}={value}" for name, value in arm.options) or "its files do not say"
    return (
        ", ".join(f"{name}={value}" for name, value in arm.settings)
        or f"rig={arm.stack.rig}, everything else default"
    )


def _workloads(study: Study) -> Iterator[str]:
    for workload in study.workloads:
        yield f"{workload.name}: {workload.meaning}"
        for job in workload:
            yield f"  [{job.name}] " + " ".join(f"{name}={value}" for name, value in job.options)


def _host(facts: str) -> Iterator[str]:
    """The facts of the host at the start of the study, as they were read."""
    if not facts:
        yield "not recorded"
        return
    yield from json.dumps(json.loads(facts), indent=1).splitlines()
