# SPDX-License-Identifier: Apache-2.0
"""Diagnoses as one JSON document with a published schema."""

from collections.abc import Sequence
from typing import Any

from virtune import __version__
from virtune.model.bottleneck import CAUSE_WORDS, Diagnosis
from virtune.model.guideline import Walk
from virtune.model.threads import ThreadCost
from virtune.report.json.layers import layers_document

SCHEMA = "virtune/diagnose/1"


def diagnose_document(found: Sequence[Diagnosis]) -> dict[str, Any]:
    """Return the diagnosis of each disk, in base units."""
    return {"schema": SCHEMA, "virtune": __version__, "disks": [_disk(one) for one in found]}


def _disk(one: Diagnosis) -> dict[str, Any]:
    path = one.path
    return {
        "disk": one.disk,
        "workload": one.workload,
        "rate": one.rate,
        "seconds": one.seconds,
        "iops": path.iops,
        "bandwidth_bps": path.bandwidth,
        "bottleneck": {
            "cause": one.found.cause.value,
            "text": CAUSE_WORDS[one.found.cause],
            "evidence": list(one.found.evidence),
            "experiment": one.found.experiment,
            "rounds": one.found.rounds,
            "of": one.found.of,
        },
        "layers": layers_document(one.layers),
        "threads": [_thread(thread, path.iops) for thread in path.threads],
        "guideline": _guideline(one.guideline),
        "missing": list(one.missing),
    }


def _guideline(found: Walk | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "id": found.guideline.id,
        "source": found.guideline.source,
        "steps": [
            {"question": one.question.text, "yes": one.yes, "evidence": one.evidence, "assumed": one.assumed}
            for one in found.steps
        ],
        "leaf": found.leaf.id,
        "text": found.leaf.text,
        "limit": found.leaf.limit,
        "ours": found.leaf.ours,
    }


def _thread(one: ThreadCost, iops: float) -> dict[str, Any]:
    return {
        "tid": one.tid,
        "name": one.name,
        "role": one.role,
        "cpu_seconds": one.cpu_seconds,
        "user_seconds": one.user_seconds,
        "system_seconds": one.system_seconds,
        "wait_seconds": one.wait_seconds,
        "cpu_per_io_seconds": one.cpu_seconds / one.seconds / iops if iops else None,
    }
