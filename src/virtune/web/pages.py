# SPDX-License-Identifier: Apache-2.0
"""What the local page shows: a running study, a host over time, two studies side by side."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from virtune.flows.fleet.run import OpenTasks
from virtune.flows.run.check import fitness, newest_checks
from virtune.model.evidence import Listed
from virtune.model.fleet import FleetRun, TaskState
from virtune.model.result import Fitness, Result
from virtune.model.text import format_count, format_seconds, format_share
from virtune.report.charts.chart import Chart, filled, scales_of
from virtune.report.pages.check import sentence
from virtune.report.pages.evidence import DRIFT_TOLD, drift_text
from virtune.report.pages.fleet import run_table, run_title
from virtune.report.pages.result import MARKS, changed_value, verdict_sentences
from virtune.report.pages.study import host_line
from virtune.report.render.terminal import Table
from virtune.report.view import ResultView, view_of
from virtune.report.words import change_words, count_text, share_text
from virtune.store.progress import PairProgress, RunProgress
from virtune.store.store import Store

LOOK_SECONDS = 1.0
"""How often the run's file is read; with its drawing that took 0.2 ms of CPU time for one pair. It does not
open the store, which takes 4 ms.
"""

QUIET_SECONDS = 15.0
"""A stream in which nothing has changed for so long says that it is still there, or a proxy would close it."""

WIDTH, HEIGHT = 240, 48
_REACH_LEAST = math.log(1.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """The page of a run. `over`: nothing will change any more; `bar` is the share done, None where it is unknown;
    `pairs` has each pair with what is drawn of it, `rows` the hosts of a fleet below their heads.
    """

    study: str
    title: str
    state: str
    hint: str
    over: bool
    report: bool
    bar: float | None = None
    bar_label: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    caption: str = ""
    pairs: tuple[dict[str, Any], ...] = ()
    more: int = 0
    conditions: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def shown_running(run: RunProgress, *, now: float) -> RunShown:
    facts = [("now", run.now or "starting")] if run.total else []
    if run.step:
        facts.append(("preparing", run.step + ("" if run.share is None else f" ({format_share(run.share)})")))
    at_most = run.most != "about "
    done = count_text(run.done, "trial") + ("" if at_most else f" of {run.total}")
    if run.rows:
        done = f"{run.done} of {run.total} {'study' if run.total == 1 else 'studies'}"
    facts.append(("done", done))
    if run.until is not None:
        facts.append(("left", f"{run.most}{format_seconds(max(0.0, run.until - now))}"))
    if run.compared:
        facts.append(("decided", f"{run.decided} of {count_text(run.compared, 'pair')}"))
    if run.search:
        facts.append(("search", run.search))
    bar = None if at_most or not run.total else min(1.0, run.done / run.total)
    if bar is None and run.compared:
        bar = run.decided / run.compared
    bar = run.share if run.rows else bar
    rounds = max((point.round for pair in run.pairs for point in pair.rounds), default=0)
    return RunShown(
        study=run.study,
        title=run.title,
        state="running",
        hint="",
        over=False,
        report=run.done > 0 and not run.rows,
        bar=bar,
        bar_label=done if run.rows or not at_most else f"{run.decided} of {count_text(run.compared, 'pair')} decided",
        facts=tuple(facts),
        caption=f"after {'block' if run.search else 'round'} {rounds}",
        pairs=tuple(_pair(one) for one in run.pairs),
        more=max(0, run.compared - len(run.pairs)),
        conditions=run.conditions,
        rows=run.rows,
    )


def shown_kept(run: FleetRun) -> RunShown:
    """Return the page of a fleet's run that no process here carries now."""
    noted = OpenTasks(run)
    found = {one.name: noted.end_of(one) for one in run.tasks}
    table = run_table(run, found, to_see_first=True)
    again = f"virtune fleet {'tune' if run.search else 'run'} --again {run.name}"
    hint = f"`virtune fleet status {run.name}` asks its hosts, `{again}` goes on"
    if not run.search and found and all(one.state is TaskState.FINISHED for one in found.values()):
        hint = "`virtune fleet report` says what its studies say together"
    return RunShown(
        study=run.name,
        title=run_title(run),
        state="not running here",
        hint=hint,
        over=True,
        report=False,
        facts=(("seen last", table.states),),
        rows=tuple(table.rows),
    )


def shown_stored(store: Store, study: str) -> RunShown | None:
    """Return the page of a study that does not run: finished, killed or interrupted; None for one not stored."""
    found = store.page(words=study, kind="", limit=5, offset=0).rows
    one = next((one for one in found if isinstance(one, Listed) and one.study.id == study), None)
    if one is None:
        return None
    done = count_text(one.done, "trial")
    state, hint = "finished", f"{done} measured"
    if not one.finished:
        state = "not running"
        hint = f"its run ended before the study did; {done} stored; `virtune compare resume {study}` continues it"
    return RunShown(study=study, title=one.study.label, state=state, hint=hint, over=True, report=one.done > 0)


def _pair(one: PairProgress) -> dict[str, Any]:
    band, line = _paths(one)
    ends = {point.round: point for point in (*one.rounds[:1], *one.rounds[-1:])}
    told = ((number, change_words(at.low), change_words(at.high)) for number, at in ends.items())
    words = "; ".join(f"round {number}: {low} to {high}" for number, low, high in told)
    return {
        "of": one,
        "mark": MARKS.get(one.verdict.rpartition(" ")[2], "○"),
        "band": band,
        "line": line,
        "told": words,
    }


def _paths(one: PairProgress) -> tuple[str, str]:
    """Return the drawing's paths: rounds from left to right, the ratio's logarithm upwards, no difference half-way.

    The scale is that of the later half of the rounds: the first intervals are many times as wide.
    """
    points = one.rounds
    if not points:
        return "", ""
    later = points[len(points) // 2 :]
    reach = max(_REACH_LEAST, *(abs(math.log(end)) for point in later for end in (point.low, point.high)))
    first, last = points[0].round, max(points[-1].round, points[0].round + 1)

    def place(number: int, ratio: float) -> str:
        x = WIDTH * (number - first) / (last - first)
        y = HEIGHT / 2 * (1 - min(max(math.log(ratio) / reach, -1.0), 1.0))
        return f"{x:.1f} {y:.1f}"

    if len(points) == 1:  # a single round is drawn as a bar over the whole width
        points = (points[0], points[0])
        numbers = [first, last]
    else:
        numbers = [point.round for point in points]
    upper = [place(number, point.high) for number, point in zip(numbers, points, strict=True)]
    lower = [place(number, point.low) for number, point in zip(numbers, points, strict=True)]
    middle = [place(number, point.estimate) for number, point in zip(numbers, points, strict=True)]
    return f"M{'L'.join([*upper, *reversed(lower)])}Z", f"M{'L'.join(middle)}"


async def stream(
    show: Callable[[], tuple[str, bool]], *, ending: Callable[[], bool], wait: float = LOOK_SECONDS
) -> AsyncIterator[str]:
    """Yield server-sent events: the page's changing part whenever it changed, and `over` when nothing will any more.

    `show` returns that part as HTML and whether it is the last; `ending` says that the server stops.
    """
    sent, at = "", time.monotonic()
    while not ending():
        text, over = await asyncio.to_thread(show)
        if text != sent:
            # no line of it can begin another event
            yield "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
            sent, at = text, time.monotonic()
        elif time.monotonic() - at > QUIET_SECONDS:
            yield ": still here\n\n"
            at = time.monotonic()
        if over:
            yield "event: over\ndata: over\n\n"
            return
        await asyncio.sleep(wait)


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
    loads = list(dict.fromkeys(row["load"] for row in rows))
    fit = sum(not one.fitness.unfit for one in known)
    return Chart(
        name="host",
        title=f"in {fit} of {count_text(len(known), 'check')} this host was fit to measure",
        reading=(
            "Each column of marks is one check, a hollow mark one that found the host unfit. A level that moves is "
            "the host or its disk: a study before it and one after it are not comparable. The spread is that of IOPS "
            "within a check; the drift has its 95 % interval, and the dashed line is no drift."
        ),
        spec=filled(
            "host", rows=rows, legend={"title": None, "orient": "top"} if len(loads) > 1 else None,
            **scales_of(loads),
            figures=[one for one in (_LEVEL, _NOISE, _DRIFT) if any(row["figure"] == one for row in rows)],
        ),
        columns=(),  # the page has a table of its checks
        rows=(),
    )  # fmt: skip


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


CHECKS_SHOWN = 25
"""Each is derived from its trials when it is shown."""


def host_shown(store: Store) -> tuple[list[dict[str, str]], Chart | None]:
    """Return a row for each of the newest checks, and their drawing, None of fewer than two."""
    rows, checks = [], []
    for record in newest_checks(store, CHECKS_SHOWN):
        study, found = record.study, fitness(record)
        load = f"{found.workload} on {study.arms[0].stack.rig}"
        checks.append(HostCheck(created=study.created, load=load, fitness=found))
        rows.append(
            {
                "id": study.id,
                "created": study.created[:16].replace("T", " "),
                "host": host_line(study, record.facts),
                "load": load,
                "iops": "-" if found.iops is None else format_count(found.iops),
                "noise": "-" if found.windows_cv is None else share_text(found.windows_cv),
                "drift": "-" if found.drift is None else drift_text(found.drift),
                "said": sentence(found),
            }
        )
    return rows, host_over_time(checks)


def pair_of(first: Result, second: Result) -> dict[str, Any]:
    """Set two results side by side; `alone` are the workloads that only one of them has."""
    views = (view_of(first), view_of(second))
    names = [[one.workload.name for one in view.workloads] for view in views]
    shared = [name for name in names[0] if name in names[1]]
    said = [[one.plain for each in view.workloads for one in verdict_sentences(each.verdicts)] for view in views]
    return {
        "sides": [
            {"id": one.study.id, "label": one.study.label, "arms": view.arms, "verdicts": verdicts}
            for one, view, verdicts in zip((first, second), views, said, strict=True)
        ],
        "tables": [_table(views, name) for name in shared],
        "alone": [name for both in names for name in both if name not in shared],
        "comparable": first.study.simulated == second.study.simulated,
    }


def _table(views: tuple[ResultView, ResultView], name: str) -> Table:
    found = [next(one for one in view.workloads if one.workload.name == name) for view in views]
    notes = dict.fromkeys(one.worth for one in found if one.worth)  # why its figures are not comparable
    table = Table(["metric", *views[0].arms, *views[1].arms], caption=name, notes=notes)
    for label in dict.fromkeys(row.label for one in found for row in one.rows):
        cells: list[str] = []
        for view, one in zip(views, found, strict=True):
            row = next((row for row in one.rows if row.label == label), None)
            cells += ["-"] * len(view.arms) if row is None else [changed_value(row, cell) for cell in row.cells]
        table.add_row(label, *cells)
    return table
