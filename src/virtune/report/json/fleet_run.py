# SPDX-License-Identifier: Apache-2.0
"""A study on many hosts, and how far it is on each, as a JSON document."""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

from virtune import __version__
from virtune.model.fleet_task import FleetRun, FleetTask, HostDrift, TaskProgress, TaskState
from virtune.report.json.document import IDENTITY, NOT_NEGATIVE, Moment, Name, ProgramVersion

SCHEMA = "virtune/fleet-run/1"


class _Task(TypedDict):
    """The study on one host."""

    name: Annotated[str, "Its name, by which its host finds it."]
    host: Annotated[Name, "The host's name in the inventory."]
    part: Annotated[int, "Parts run one after the other: batches, and between them the reference host.", NOT_NEGATIVE]
    state: Annotated[
        TaskState,
        "`waiting`, `running`, `finished`, `failed`, `killed` (the next call resumes it), or `lost`: the host gives "
        "no answer, and the study may still run there.",
    ]
    study: Annotated[str | None, "The id of its study on that host; null before it has one."]
    trials_done: Annotated[int, "Trials that are measured.", NOT_NEGATIVE]
    trials: Annotated[int | None, "Trials that are planned; null where that is unknown."]
    left_seconds: Annotated[float | None, "Expected time to its end; null where that is unknown."]
    verdict: Annotated[str | None, "The verdicts so far, in words; null before the first."]
    code: Annotated[int | None, "The exit code on the host: 4 and 5 say that a condition is or may be breached."]
    because: Annotated[str | None, "Why it failed or was lost; null where it did not."]


class _Drift(TypedDict):
    """How the level of the reference host changed from one time to the next."""

    workload: Annotated[Name, "The workload."]
    metric: Annotated[str, "The metric."]
    ratio: Annotated[float, "Later / earlier."]
    low: Annotated[float, "The lower end of its 95 % interval."]
    high: Annotated[float, "The upper end."]
    hours: Annotated[float, "The time between the two, in hours.", NOT_NEGATIVE]


class FleetRunDocument(TypedDict):
    """What `virtune fleet run --json` and `virtune fleet status --json` write."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    run: Annotated[str, "The name of the run; `fleet status` and `fleet run --again` take it."]
    created: Annotated[Moment, "When it was begun, in UTC."]
    words: Annotated[list[str], "The verb and the options of the study."]
    reference: Annotated[str | None, "The host that is measured again in every other part; null without one."]
    tasks: Annotated[list[_Task], "The study on each host, in the order of the plan."]
    drift: Annotated[list[_Drift], "Of the reference host; empty without one, and of `fleet status`."]


def run_document(
    run: FleetRun, found: Mapping[str, TaskProgress], drift: Sequence[HostDrift] = ()
) -> FleetRunDocument:
    """Return a run with how far it is on each host."""
    waiting = TaskProgress(state=TaskState.WAITING)
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "run": run.name,
        "created": run.created,
        "words": list(run.words),
        "reference": run.reference or None,
        "tasks": [_task(task, found.get(task.name, waiting)) for task in run.tasks],
        "drift": [
            {
                "workload": one.workload,
                "metric": one.metric,
                "ratio": one.estimate,
                "low": one.low,
                "high": one.high,
                "hours": one.hours,
            }
            for one in drift
        ],
    }


def _task(task: FleetTask, found: TaskProgress) -> _Task:
    waits = found.state is TaskState.WAITING and found.left_seconds is None
    return {
        "name": task.name,
        "host": task.host.name,
        "part": task.part,
        "state": found.state,
        "study": found.study or None,
        "trials_done": found.done,
        "trials": found.total or None,
        "left_seconds": task.expected_seconds if waits else found.left_seconds,
        "verdict": found.verdict or None,
        "code": found.code,
        "because": found.said or None,
    }
