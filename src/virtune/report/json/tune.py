# SPDX-License-Identifier: Apache-2.0
"""The result of a search as a JSON document."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from virtune import __version__
from virtune.model.metric import BY_ID
from virtune.model.search import Search
from virtune.model.standing import Contrast, Runner
from virtune.model.study import Study
from virtune.model.tuning import ArmAttempts, Confirmation, LimitCheck, Tuning
from virtune.report.reproduce import tune_again

SCHEMA = "virtune/tune/1"


def tuning_document(
    known: Tuning,
    *,
    facts: str,
    spelled: Mapping[str, str] | None = None,
    spelled_notes: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the whole result of a search, as plain JSON values in base units.

    `facts` are those of the host, JSON text as a study keeps it. `spelled` is the winner in other programs'
    configuration languages, by program, and `spelled_notes` holds notes on these texts, also by program.
    """
    study, standing = known.study, known.standing
    tried = {one.arm: one for one in known.attempts}
    assert study.search is not None  # noqa: S101 - a Tuning is of a search
    return {
        "schema": SCHEMA,
        "virtune": __version__,
        "study": _study(study, study.search) | {"finished": known.finished, "phase": known.phase.value},
        "facts": json.loads(facts) if facts else None,
        "recommendation": known.recommendation.value,
        "why": known.why,
        "winner": known.winner,
        "leader": standing.leader,
        "distance": known.distance,
        "error": study.search.error,
        "certified": standing.certified,
        "rivals": list(known.rivals),
        "tied": list(known.tied),
        "confirmation": None if known.confirmation is None else _confirmation(known.confirmation),
        "soaks": [{"arm": one.arm, "seconds": one.seconds, "ratio": one.ratio} for one in known.soaks],
        "limits": [_check(one) for one in known.checks],
        "arms": [_arm(known, runner) | _tried(tried, runner.arm) for runner in standing.runners],
        "tried": len(standing.runners) + len(known.broken),
        "broken": [{"arm": arm, "after_blocks": after} | _tried(tried, arm) for arm, after in known.broken],
        "cost": _cost(known, study.search),
        "repeated": known.repeated,
        "basis": {
            "unit": "block",
            "confirmation_unit": "start",
            "checked": None if study.checked is None else asdict(study.checked),
            "workloads": [asdict(one) for one in known.basis],
            "command": tune_again(study),
        },
        "ramps": [asdict(finding) for finding in known.ramps],
        "notes": list(known.notes),
        "spelled": dict(spelled or {}),
        "spelled_notes": {program: list(notes) for program, notes in (spelled_notes or {}).items()},
    }


def _cost(known: Tuning, search: Search) -> dict[str, Any]:
    return {
        "blocks": known.standing.blocks,
        "slices": known.standing.slices,
        "slices_max": known.probed.slices_max,
        "slices_left": known.standing.slices_left,
        "slice_seconds": known.probed.slice_seconds,
        "noise": known.probed.sd,
        "certificate_seconds": known.probed.certificate_seconds,
        "measured_seconds": known.measured_seconds,
        "elapsed_seconds": known.elapsed_seconds,
        "grid_seconds": search.grid_seconds,
    }


def _study(study: Study, search: Search) -> dict[str, Any]:
    return {
        "id": study.id,
        "kind": study.kind,
        "created": study.created,
        "mode": search.mode,
        "metric": study.metric,
        "better": BY_ID[study.metric].better,
        "limits": [limit.text for limit in search.goal.limits],
        "durability": search.promise.value,
        "ranked": len(search.ranked),
        "tries": search.tries,
        "spread_seconds": search.spread_seconds,
        "baseline": study.baseline,
        "margin": study.margin,
        "ramp_seconds": study.ramp_seconds,
        "seed": study.seed,
        "span_bytes": study.span_bytes,
        "target": study.target,
        "workloads": [workload.name for workload in study.workloads],
        "jobs": [
            {"workload": workload.name, "name": job.name, "options": job.as_dict()}
            for workload in study.workloads
            for job in workload
        ],
        "budget_seconds": search.budget_seconds,
        "factors": [{"knob": one.knob, "values": list(one.values), "costly": one.costly} for one in search.factors],
        "removed": [{"what": one.what, "count": one.count, "why": one.why} for one in search.removed],
        "apart": [
            {"arms": list(one.names), "durability": one.promise.value, "weaker": one.weaker, "why": one.words}
            for one in search.apart
        ],
    }


def _arm(known: Tuning, runner: Runner) -> dict[str, Any]:
    arm = known.study.arm(runner.arm)
    return {
        "name": arm.name,
        "settings": dict(arm.settings),
        "place": runner.place.value,
        "blocks": runner.blocks,
        "out_after": runner.out_after,
        "value": dict(known.values).get(arm.name),
        "against_leader": None if runner.against_leader is None else _contrast(runner.against_leader),
    }


def _tried(attempts: Mapping[str, ArmAttempts], arm: str) -> dict[str, Any]:
    found = attempts.get(arm, ArmAttempts(arm=arm, attempts=0))
    return {"attempts": found.attempts, "failed": found.failed, "invalid": dict(found.invalid)}


def _contrast(found: Contrast) -> dict[str, Any]:
    """ln(arm / leader) in the goal's direction: below 0 is worse; the ends are None where there is no interval."""
    bounded = found.why is None
    return {
        "mean": -found.mean,
        "low": -found.high if bounded else None,
        "high": -found.low if bounded else None,
        "blocks": found.blocks,
        "sd": found.sd,
        "lag1": None if found.sd is None else found.lag1,
        "why": None if found.why is None else found.why.text,
    }


def _confirmation(found: Confirmation) -> dict[str, Any]:
    return {
        "pairs": found.pairs,
        "winner": found.winner,
        "baseline": found.baseline,
        "ratio": None if found.ratio is None else asdict(found.ratio),
        "verdict": found.verdict.value,
        "why": found.why,
        "spread": found.spread,
        "baseline_spread": found.baseline_spread,
        "unstable": found.unstable,
        "breaks": list(found.breaks),
        "processes": found.processes,
    }


def _check(found: LimitCheck) -> dict[str, Any]:
    return {
        "arm": found.arm,
        "workload": found.workload,
        "limit": found.limit.text,
        "blocks": found.blocks,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "state": found.state.value,
    }
