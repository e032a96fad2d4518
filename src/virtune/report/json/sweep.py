# SPDX-License-Identifier: Apache-2.0
"""The result of a sweep as a JSON document."""

import json
from dataclasses import asdict
from typing import Any

from virtune import __version__
from virtune.model.result import Result
from virtune.model.sweep import LoadEstimate, LoadPoint, LoadSweep
from virtune.report.reproduce import sweep_again

SCHEMA = "virtune/sweep/1"


def sweep_document(known: LoadSweep, result: Result, *, facts: str) -> dict[str, Any]:
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
        },
        "facts": json.loads(facts) if facts else None,
        "saturation": _estimate(known.saturation),
        "knee": _estimate(known.knee),
        "most": _estimate(known.most),
        "why": list(known.why),
        "points": [_point(known, result, one) for one in known.points],
        "command": sweep_again(study),
    }


def _estimate(found: LoadEstimate | None) -> dict[str, float | None] | None:
    return None if found is None else asdict(found)


def _point(known: LoadSweep, result: Result, point: LoadPoint) -> dict[str, Any]:
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
