# SPDX-License-Identifier: Apache-2.0
"""The result of a sweep as a JSON document.

History of the schema:

virtune/sweep/1   first version
virtune/sweep/2   `reasons`: the codes of why something was not found, beside the words
virtune/sweep/3   `first_reads`: what was read of the images before the first trial
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from virtune import __version__
from virtune.model.reason import OF_SWEEPS, Reason
from virtune.model.result import Result
from virtune.model.sweep import LoadEstimate, LoadPoint, LoadSweep
from virtune.report.json.document import AT_LEAST_ONE, IDENTITY, Moment, ProgramVersion
from virtune.report.json.parts import EstimatePart, FirstReads, estimate_part, first_read_parts
from virtune.report.reproduce import sweep_again

SCHEMA = "virtune/sweep/3"


class _Study(TypedDict):
    """What was asked."""

    id: Annotated[str, "By which `show` and `resume` find it."]
    created: Annotated[Moment, "When it was begun, in UTC."]
    simulated: Annotated[bool, "Whether its figures are invented (rig=simulated)."]
    finished: Annotated[bool, "Whether the curve needed no more loads."]
    arm: Annotated[str, "The name of the stack."]
    settings: Annotated[Mapping[str, str], "Its settings as they were asked for, by knob."]
    workload: Annotated[str, "The workload that was offered at each load."]
    limit: Annotated[str | None, "The limit that the greatest load was looked for under; null without one."]
    rounds: Annotated[int, "How often each load ran.", AT_LEAST_ONE]
    seconds: Annotated[float, "Measured time of a trial, in seconds."]
    ramp_seconds: Annotated[float, "Warm-up before it, in seconds."]
    seed: Annotated[int, "Of the random order and offsets."]
    trials: Annotated[int, "Trials so far.", AT_LEAST_ONE]
    first_reads: FirstReads


class _Point(TypedDict):
    """One offered load."""

    workload: Annotated[str, "Its name in the store."]
    offered_iops: Annotated[float, "Operations a second that were offered."]
    achieved_iops: Annotated[float, "Operations a second that were done, the mean of the rounds."]
    met: Annotated[
        bool, "Whether the median round did what was offered: 99 % of it, less 10 ms at the end of a trial."
    ]
    rounds: Annotated[int, "Rounds that gave a measurement.", AT_LEAST_ONE]
    values: Annotated[Mapping[str, float], "Its metrics by id, in base units (ns, B/s, 1/s, %)."]


class SweepDocument(TypedDict):
    """What `virtune sweep --json` writes."""

    schema: Annotated[str, IDENTITY, {"const": SCHEMA}]
    virtune: ProgramVersion
    study: _Study
    facts: Annotated[Any, "The facts of the host: a document `virtune/probe/1`; null without them."]
    saturation: Annotated[EstimatePart | None, "The most that was carried; null where it was not reached."]
    knee: Annotated[
        EstimatePart | None, "The load of the greatest IOPS by mean latency; null for fewer than three loads."
    ]
    most: Annotated[EstimatePart | None, "The greatest load at which the limit holds; null without one."]
    why: Annotated[list[Annotated[str, "One sentence."]], "What was not found, and why."]
    reasons: Annotated[
        list[Annotated[Reason, {"enum": [*OF_SWEEPS]}]],
        "The same as codes, in the same order; they stay the same whatever the words are.",
    ]
    points: Annotated[list[_Point], "The loads, the least first."]
    command: Annotated[str, "The command line that does it again."]


def sweep_document(known: LoadSweep, result: Result, *, facts: str) -> SweepDocument:
    """Return the whole result of a sweep, as plain JSON values in base units; `facts` are the host's, as JSON."""
    study = known.study
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "study": {
            "id": study.id,
            "created": study.created,
            "simulated": study.simulated,
            "finished": known.finished,
            "arm": study.arms[0].name,
            "settings": dict(study.arms[0].settings),
            "workload": study.workloads[0].name,
            "limit": None if study.sweep is None or study.sweep.limit is None else study.sweep.limit.text,
            "rounds": 0 if study.sweep is None else study.sweep.rounds,
            "seconds": study.seconds,
            "ramp_seconds": study.ramp_seconds,
            "seed": study.seed,
            "trials": len(study.trials),
            "first_reads": first_read_parts(study),
        },
        "facts": json.loads(facts) if facts else None,
        "saturation": _estimate(known.saturation),
        "knee": _estimate(known.knee),
        "most": _estimate(known.most),
        "why": [one.text for one in known.why],
        "reasons": [one.reason for one in known.why],
        "points": [_point(known, result, one) for one in known.points],
        "command": sweep_again(study),
    }


def _estimate(found: LoadEstimate | None) -> EstimatePart | None:
    return None if found is None else estimate_part(found)


def _point(known: LoadSweep, result: Result, point: LoadPoint) -> _Point:
    summary = result.summary(known.study.arms[0].name, point.workload)
    values = () if summary is None else summary.values
    return {
        "workload": point.workload,
        "offered_iops": point.offered,
        "achieved_iops": point.iops,
        "met": point.met,
        "rounds": len(point.achieved),
        "values": {one.metric: one.value for one in values},
    }
